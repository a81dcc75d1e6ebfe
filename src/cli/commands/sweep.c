/* streamfp sweep: all combinations of some settings on anybody's data. */
#include "cli/commands/experiment.h"
#include "cli/run_settings.h"

#include "base/mem.h"
#include "base/text.h"

#include <string.h>

static const sfp__opt own[] = {
    SFP__ROW_GROUP("Sweep"),
    SFP__ROW_STRING(
        "grid", "KEY=VALUE,VALUE", NULL,
        "An option of 'streamfp run' and its values; may be repeated. The values of the last grid are the columns of the table.",
        .repeats = true),
    SFP__ROWS_EXECUTION("3", "0", "sweep"),
};

static const sfp__opt *options(size_t *count)
{
    static sfp__experiment_table t;
    return sfp__experiment_options_table(&t, sizeof own / sizeof *own, own, count);
}

enum { GRIDS_MAX = 64 };

/* Is the error about a value of a grid? Then the command line is wrong, as it is for a value of an option. */
static bool is_about_grid(int count, const char *const *grids, const sfp_error *err)
{
    size_t n = strlen(err->key);
    for (int i = 0; i < count && n > 0; i++)
        if (strncmp(grids[i], err->key, n) == 0 && grids[i][n] == '=')
            return err->status == SFP_EINVAL || err->status == SFP_ELIMIT;
    return false;
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED char *text = NULL;
    const char *given = sfp__args_string(args, "grid"), *grids[GRIDS_MAX];
    int count = 0;
    if (!given)
        return sfp__fail_key(err, "grid", SFP_EINVAL, "grid is missing, expected at least one --grid KEY=VALUE,VALUE");
    TRY(sfp__text_new(&text, err, "%s", given));
    for (char *s = text; s && count < GRIDS_MAX;) {
        char *end = strchr(s, '\n');
        grids[count++] = s;
        if (end)
            *end = '\0';
        s = end ? end + 1 : NULL;
    }
    sfp_status status = sfp__experiment_execute(args, NULL, count, grids, err);
    return status && is_about_grid(count, grids, err) ? sfp__as_usage(err) : status;
}

const sfp__command sfp__cmd_sweep = {
    .name = "sweep",
    .summary = "run all combinations of some settings, as one table",
    .text =
        "Runs every combination of the values of the grids, with several seeds each, and writes one table with means and 95 % "
        "intervals: on "
        "the terminal, as Markdown, CSV, LaTeX and SVG in DIR/tables, and as one page, DIR/index.html. Each run has its own "
        "directory below "
        "DIR and its place in the registry.\n\n"
        "All combinations are checked before the first run. A sweep that was stopped continues with the same command and never "
        "runs a "
        "combination twice, unless the backbone, the data or the version of the program has changed. Other options are those of "
        "'streamfp run' and apply to all runs.",
    .examples = "  streamfp sweep --preset paper --grid sigma=0.2,0.5 --grid buffer=er,streamfp --data folder:photos --tasks 5\n"
                "  streamfp sweep --grid method=ncm,slda,ranpac --grid rate=50,100,200 --seeds 5 --out sweeps/rates\n",
    .options = options,
    .describe = sfp__run_describe_options,
    .run = run,
};
