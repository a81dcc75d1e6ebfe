/* From argv to a command: finds the command, parses its options, runs it, and checks that its output was written. */
#include "cli/command.h"

#include "cli/external.h"
#include "cli/help.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

const sfp__command *const sfp__commands[] = {
    &sfp__cmd_run,
    &sfp__cmd_serve,
    &sfp__cmd_runs,
    &sfp__cmd_eval,
    &sfp__cmd_select,
    &sfp__cmd_data,
    &sfp__cmd_predict,
    &sfp__cmd_correct,
    &sfp__cmd_classes,
    &sfp__cmd_forget,
    &sfp__cmd_suspects,
    &sfp__cmd_queue,
    &sfp__cmd_merge,
    &sfp__cmd_pretrain,
    &sfp__cmd_inspect,
    &sfp__cmd_convert,
    &sfp__cmd_bench,
    &sfp__cmd_help,
    NULL,
};

const sfp__command *sfp__command_find(const char *name)
{
    for (size_t i = 0; sfp__commands[i]; i++)
        if (strcmp(sfp__commands[i]->name, name) == 0)
            return sfp__commands[i];
    return NULL;
}

const sfp__opt *sfp__command_options(const sfp__command *c, size_t *count)
{
    *count = c->opt_count;
    return c->options ? c->options(count) : c->opts;
}

sfp_status sfp__fail_quietly(sfp_error *err)
{
    return sfp__fail(err, SFP_EIO, "%s", "");
}

sfp_status sfp__as_usage(sfp_error *err)
{
    (void)snprintf(err->key, sizeof err->key, "%s", SFP__USAGE);
    return err->status;
}

static int print_failure(const sfp__args *args, sfp_error *err)
{
    bool value = (err->status == SFP_EINVAL || err->status == SFP_ELIMIT) && sfp__args_add_origin(args, err);
    bool usage = value || strcmp(err->key, SFP__USAGE) == 0;
    if (err->status && !*err->message) /* printed already */
        return usage ? SFP__EXIT_USAGE : SFP__EXIT_FAILED;
    return usage ? sfp__usage_error(args->command, "%s", err->message) : sfp__print_error(err);
}

/* ------------------------------------------------------------ command line */

/* Parses one option; arg is its text after "--", next the following argument (NULL: none). Sets *used if `next` is its value. */
static sfp_status parse_long_option(sfp__args *a, const char *arg, const char *next, bool *used, sfp_error *err)
{
    char name[SFP__KEY_LENGTH_MAX + 1], origin[SFP__KEY_LENGTH_MAX + 3];
    const char *value = strchr(arg, '=');
    size_t n = value ? (size_t)(value - arg) : strlen(arg);
    if (n > SFP__KEY_LENGTH_MAX)
        return sfp__fail(err, SFP_EINVAL, "unknown option '--%.*s...'", SFP__KEY_LENGTH_MAX, arg);
    memcpy(name, arg, n);
    name[n] = '\0';
    (void)snprintf(origin, sizeof origin, "--%s", name);

    const sfp__opt *o = sfp__args_find(a, name);
    if (!o && strncmp(name, "no-", 3) == 0 && !value) {
        o = sfp__args_find(a, name + 3);
        if (o && o->type == SFP__OPT_FLAG)
            return sfp__args_set(a, o->name, "off", SFP__RANK_COMMAND_LINE, origin, err);
        o = NULL;
    }
    if (!o)
        return sfp__args_unknown(a, "option", "--", name, err);
    if (value)
        value++;
    else if (o->type == SFP__OPT_FLAG && (!next || (strcmp(next, "on") != 0 && strcmp(next, "off") != 0)))
        value = "on";
    else if (!next)
        return sfp__fail(err, SFP_EINVAL, "%s needs %s", origin, o->arg);
    else
        *used = true;
    if (*used)
        value = next;
    if (o->type == SFP__OPT_PAIR)
        return sfp__args_set_assignment(a, value, SFP__RANK_COMMAND_LINE, err);
    OWNED char *joined = NULL;
    if (o->repeats && sfp__args_string(a, o->name)) {
        TRY(sfp__text_new(&joined, err, "%s\n%s", sfp__args_string(a, o->name), value));
        value = joined;
    }
    return sfp__args_set(a, o->name, value, SFP__RANK_COMMAND_LINE, origin, err);
}

sfp_status sfp__args_parse(sfp__args *a, int argc, char **argv, sfp_error *err)
{
    if (!a->operands)
        TRY(sfp__alloc(&a->operands, (size_t)argc, sizeof *a->operands, err));
    bool options = true;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        bool is_out = strcmp(arg, "-o") == 0 && sfp__args_find(a, "out");
        if (!options || arg[0] != '-' || arg[1] == '\0') {
            a->operands[a->operand_count++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            options = false;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            a->help = true;
            return SFP_OK;
        } else if (arg[1] != '-' && !is_out) {
            return sfp__fail(err, SFP_EINVAL, "unknown option '%s' (options start with '--')", arg);
        } else {
            bool used = false;
            TRY(parse_long_option(a, is_out ? "out" : arg + 2, i + 1 < argc ? argv[i + 1] : NULL, &used, err));
            i += used;
        }
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------- commands */

static int print_unknown_command(const char *name)
{
    const char *names[64] = {0};
    size_t count = 0;
    for (size_t i = 0; sfp__commands[i]; i++)
        names[count++] = sfp__commands[i]->name;
    for (const sfp__external *e = sfp__externals; e->name; e++)
        names[count++] = e->name;
    const char *best = sfp__nearest(name, names, count);
    if (best)
        return sfp__usage_error(NULL, "unknown command '%s', did you mean '%s'?", name, best);
    return sfp__usage_error(NULL, "unknown command '%s'", name);
}

static sfp_status fail_unknown_verb(const sfp__command *c, const char *name, sfp_error *err)
{
    const char *names[16];
    char all[256] = "";
    size_t used = 0, n = c->verb_count;
    for (size_t i = 0; i < n; i++) {
        names[i] = c->verbs[i].name;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", names[i]);
    }
    const char *best = sfp__nearest(name, names, n);
    return best ? sfp__fail_usage(err, "first argument is '%s', expected %s; did you mean '%s'?", name, all, best)
                : sfp__fail_usage(err, "first argument is '%s', expected %s", name, all);
}

/* true: the word is in the list, which is separated by blanks. */
static bool is_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static sfp_status run_verb(const sfp__command *c, const sfp__args *a, sfp_error *err)
{
    const char *name = a->operand_count ? a->operands[0] : NULL;
    const sfp__verb *v = NULL;
    int n = a->operand_count - 1;
    for (size_t i = 0; name && i < c->verb_count; i++)
        v = strcmp(c->verbs[i].name, name) == 0 ? &c->verbs[i] : v;
    if (!v)
        return name ? fail_unknown_verb(c, name, err) : c->run(a, err);
    for (size_t i = 0; i < a->count; i++) {
        const char *option = a->opts[i].name;
        if (a->values[i].rank == SFP__RANK_COMMAND_LINE && strcmp(option, "json") != 0 && !is_listed(v->options, option))
            return sfp__fail_usage(err, "--%s is not an option of %s", option, name);
    }
    if (n > 0 && !v->needs)
        return sfp__fail_usage(err, "unexpected argument '%s'", a->operands[1]);
    if (n < v->min_operands || (v->max_operands != SFP__OPERANDS_ANY && n > v->max_operands))
        return sfp__fail_usage(err, "%s needs %s", name, v->needs);
    return v->run(a, err);
}

static sfp_status run_parsed(const sfp__command *c, const sfp__args *a, sfp_error *err)
{
    if (a->help)
        return sfp__help_command(stdout, c, err);
    if (a->operand_count < c->min_operands)
        return sfp__fail_usage(err, "argument is missing, expected %s", c->operands);
    if (c->max_operands != SFP__OPERANDS_ANY && a->operand_count > c->max_operands)
        return sfp__fail_usage(err, "unexpected argument '%s'", a->operands[c->max_operands]);
    return c->verbs ? run_verb(c, a, err) : c->run(a, err);
}

static int run_command(const sfp__command *c, int argc, char **argv)
{
    OWNED_BY(sfp__args_done) sfp__args args = {0};
    sfp_error err = {0};
    size_t count;
    const sfp__opt *options = sfp__command_options(c, &count);
    if (sfp__args_init(&args, c->name, options, count, &err))
        return sfp__print_error(&err);
    if (sfp__args_parse(&args, argc, argv, &err))
        return err.status == SFP_EINVAL ? sfp__usage_error(c->name, "%s", err.message) : sfp__print_error(&err);
    return run_parsed(c, &args, &err) ? print_failure(&args, &err) : SFP__EXIT_OK;
}

static int run_external(const char *name, char **argv)
{
    sfp_error err = {0};
    if (sfp__external_run(name, argv, &err) == SFP_ENOTFOUND)
        return print_unknown_command(name);
    (void)sfp__print_error(&err);
    return SFP__EXIT_USAGE;
}

int sfp__command_main(int argc, char **argv)
{
    int code = SFP__EXIT_OK;
    if (argc < 2) {
        sfp__help_overview(stderr);
        return SFP__EXIT_USAGE;
    }
    const char *name = argv[1];
    const sfp__command *c = sfp__command_find(name);
    if (c)
        code = run_command(c, argc - 2, argv + 2);
    else if (strcmp(name, "--version") == 0)
        (void)printf("streamfp %s\n", sfp_version());
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        sfp__help_overview(stdout);
    else if (name[0] == '-')
        code = sfp__usage_error(NULL, "unknown option '%s' (the first argument is a command)", name);
    else
        code = run_external(name, argv + 1);

    /* a full disk may be detected only now */
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        sfp_error err = {0};
        (void)sfp__fail(&err, SFP_EIO, "cannot write to standard output%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
        int failed = sfp__print_error(&err);
        if (code == SFP__EXIT_OK)
            code = failed;
    }
    return code;
}
