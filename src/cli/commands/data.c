/* streamfp data: lists source kinds and datasets, and describes datasets (data_describe.c). */
#include "cli/commands/data.h"
#include "cli/output.h"

#include "io/file.h"
#include "streamfp.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const sfp__opt options[] = {
    SFP__ROW_STRING(
        "tasks", "SPEC", NULL,
        "describe: split into tasks as in 'run': a number, sizes like 3,2,2, domain[:a,b,c], time or free. Default: the tasks "
        "of the dataset, else free."),
    SFP__ROW_CHOICE("part", "train|test", "train", "describe: the part to describe, if the dataset has both."),
    SFP__ROW_FLAG("test", "describe: the same as --part test.", .hidden = true),
    SFP__ROW_STRING("sheet", "FILE", NULL, "describe: write a contact sheet with some images of each class as PNG."),
    SFP__ROW_JSON,
};

/* Datasets that a package provides. */
static const struct dataset {
    const char *name;
    const char *kind;        /* of its source */
    const char *dir;         /* where it is installed */
    const char *marker_file; /* the dataset is installed if this file, or this file with .gz, is in the directory */
    const char *from;
} datasets[] = {
    {"fashion-mnist", "idx", "/usr/share/datasets/fashion-mnist", "train-images-idx3-ubyte",
     "Debian package dataset-fashion-mnist"},
    {"cifar10", "cifar", "data/cifar10", "data_batch_1.png", "scripts/fetch-cifar10"},
};

static sfp_status find_dataset(const struct dataset *d, bool *installed, sfp_error *err)
{
    static const char *const suffix[] = {"", ".gz"};
    char path[PATH_MAX];
    *installed = false;
    for (int i = 0; i < 2 && !*installed; i++) {
        TRY(sfp__path_print(path, sizeof path, err, "%s/%s%s", d->dir, d->marker_file, suffix[i]));
        *installed = access(path, R_OK) == 0;
        if (!*installed && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    }
    return SFP_OK;
}

static sfp_status list(const sfp__args *args, sfp_error *err)
{
    sfp__out o;
    sfp__json *j = &o.json;
    sfp_status status = SFP_OK;
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 0);
    sfp__out_printf(&o, "source kinds for --data KIND:PATH\n");
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
    sfp__out_printf(&o, "\ndatasets\n");
    sfp__json_array(j, "data_sets");
    for (const struct dataset *d = datasets; d < datasets + sizeof datasets / sizeof *datasets && !status; d++) {
        char spec[PATH_MAX + 16];
        bool installed = false;
        status = find_dataset(d, &installed, err);
        (void)snprintf(spec, sizeof spec, "%s:%s", d->kind, d->dir);
        sfp__out_printf(&o, "  %-13s  %-13s  --data %-37s  %s\n", d->name, installed ? "installed" : "not installed", spec,
                        d->from);
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", d->name);
        sfp__json_bool(j, "installed", installed);
        sfp__json_string(j, "data", spec);
        sfp__json_string(j, "from", d->from);
        sfp__json_end(j);
    }
    sfp__out_end(&o);
    return status;
}

/* Without a verb, the command is list, which has no options. */
static sfp_status run(const sfp__args *args, sfp_error *err)
{
    for (size_t i = 0; i < args->count; i++)
        if (args->values[i].rank == SFP__RANK_COMMAND_LINE && strcmp(args->opts[i].name, "json") != 0)
            return sfp__fail_usage(err, "--%s is not an option of list", args->opts[i].name);
    return list(args, err);
}

static const sfp__verb verbs[] = {
    {.name = "list", .run = list},
    {"describe", sfp__data_describe, 1, 1, "one dataset, KIND:PATH", "tasks part test sheet"},
};

const sfp__command sfp__cmd_data = {
    .name = "data",
    .summary = "list and describe datasets",
    .operands = "[list | describe KIND:PATH]",
    .max_operands = SFP__OPERANDS_ANY,
    .text =
        "Without an argument, lists the source kinds and the datasets that are installed or that a package has, each with its "
        "--data "
        "value.\n\n"
        "'describe' counts images, classes, domains and tasks. It decodes up to 200 evenly spread images to find their sizes and "
        "images that cannot be read. Each row of --sheet is a class; the printed table gives the row of each class.",
    .examples = "  streamfp data\n"
                "  streamfp data describe folder:pacs/train --tasks domain --sheet pacs.png\n",
    SFP__COMMAND_OPTIONS(options),
    SFP__COMMAND_VERBS(verbs),
    .run = run,
};
