/* Arbitrary bytes as the file of `run --config`: refused with a message that names the file, or every value is valid for its
 * option. */
#include "cli/command.h"
#include "fuzz.h"

#include <string.h>

/* Checks that a value agrees with its text. */
static void check(const sfp__args *args, const sfp__opt *o, const sfp__value *v)
{
    sfp__args again;
    sfp_error err = {0};
    REQUIRE(v->text && memchr(v->text, 0, 4096));
    touch(v->text, strlen(v->text));
    REQUIRE(sfp__args_init(&again, args->command, args->opts, args->count, &err) == SFP_OK);
    REQUIRE(sfp__args_set(&again, o->name, v->text, SFP__RANK_COMMAND_LINE, o->name, &err) == SFP_OK);
    sfp__args_done(&again);
    REQUIRE(o->type != SFP__OPT_INT || o->named.word || ((double)v->integer >= o->min && (double)v->integer <= o->max));
    REQUIRE(o->type != SFP__OPT_REAL || o->named.word || (v->real >= o->min && v->real <= o->max));
    REQUIRE(o->type != SFP__OPT_CHOICE || v->choice >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const sfp__command *run = &sfp__cmd_run;
    sfp__args args;
    sfp_error err = {0};
    char path[32];
    int fd = file_of(bytes, size, path);
    size_t count;
    const sfp__opt *opts = sfp__command_options(run, &count);
    REQUIRE(sfp__args_init(&args, run->name, opts, count, &err) == SFP_OK);
    if (!accepted(sfp__yaml_config(path, &args, &err), &err))
        REQUIRE(strncmp(err.message, path, strlen(path)) == 0);
    for (size_t i = 0; i < args.count; i++)
        if (args.values[i].rank == SFP__RANK_FILE)
            check(&args, &args.opts[i], &args.values[i]);
    sfp__args_done(&args);
    (void)close(fd);
    return 0;
}
