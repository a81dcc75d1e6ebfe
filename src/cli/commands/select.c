/* streamfp select: chooses a coreset of any feature matrix with the selectors of `run` (sfp_coreset of the public header). */
#include "cli/command.h"
#include "cli/matrix.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "streamfp.h"

#include <math.h>

static const sfp__opt options[] = {
    SFP__ROW_CHOICE("method", "random|kcenter|camel|craig|gradmatch|d2", NULL, "Selector (required)."),
    SFP__ROW_STRING("features", "FILE", NULL, "Features, one row per sample (required)."),
    SFP__ROW_STRING("labels", "FILE", NULL,
                    "Labels from 0, one per sample; required by camel, craig and gradmatch, ignored by the others."),
    SFP__ROW_STRING("probs", "FILE", NULL,
                    "Predicted probabilities, one row per sample; required by craig and gradmatch, ignored by the others."),
    SFP__ROW_REAL("ratio", "R", NULL, 1e-9, 1e9, "Fraction of the samples to choose (required). 1 or more: all."),
    SFP__ROW_CHOICE("distance", "cosine|euclidean", "cosine", "d2: the distance whose square is the weight of a sample."),
    SFP__ROW_INT("seed", "N", "0", 0, INT64_MAX, "Seed of the random numbers of random, gradmatch and d2; the others use none."),
    SFP__ROW_JSON,
    SFP__ROW_THREADS,
};

static const sfp__no_effect_rule no_effect_rules[] = {{"distance", "method!=d2", "{method}", "only d2 uses it"}};

/* In the order of the values of --method. */
typedef enum method { RANDOM, KCENTER, CAMEL, CRAIG, GRADMATCH, D2 } method;

typedef struct job {
    method method;
    sfp__table features, probs;
    int32_t *label;
    sfp__progress progress;
    void *block; /* of the arrays below */
    int count;
    int32_t *index; /* (rows) */
    float *weight;  /* (rows) */
} job;

/* ---------------------------------------------------------------------- input */

static sfp_status check_rows(const job *j, const char *path, int rows, sfp_error *err)
{
    if (rows == j->features.rows)
        return SFP_OK;
    return sfp__fail(err, SFP_ESHAPE, "%s: number of rows is %d, expected %d as in the features", path, rows, j->features.rows);
}

/* Checks that each label is a column of the probabilities. */
static sfp_status check_labels(const job *j, const char *path, const char *probs, sfp_error *err)
{
    for (int i = 0; i < j->features.rows; i++)
        if (j->label[i] >= j->probs.columns)
            return sfp__fail(err, SFP_EFORMAT, "%s: label %d is %d, expected 0 to %d, the columns of %s", path, i, j->label[i],
                             j->probs.columns - 1, probs);
    return SFP_OK;
}

/* Refuses logits, which are easily used by mistake. Rows that are not finite are accepted; they are chosen last. */
static sfp_status check_probs(const sfp__table *p, const char *path, sfp_error *err)
{
    for (int i = 0; i < p->rows; i++) {
        const float *row = p->x + (size_t)i * (size_t)p->columns;
        double sum = 0, min = 0;
        for (int c = 0; c < p->columns; c++) {
            sum += (double)row[c];
            min = fmin(min, (double)row[c]);
        }
        if (isfinite(sum) && (fabs(sum - 1) > 0.01 || min < -1e-6))
            return sfp__fail(err, SFP_EFORMAT,
                             "%s: row %d has sum %.6g and minimum %.6g, expected probabilities with sum 1 and minimum 0", path, i,
                             sum, min);
    }
    return SFP_OK;
}

static sfp_status load(job *j, const sfp__args *args, sfp_error *err)
{
    const char *labels = sfp__args_string(args, "labels"), *probs = sfp__args_string(args, "probs");
    int rows = 0;
    TRY(sfp__table_load(sfp__args_string(args, "features"), &j->features, err));
    if (labels) {
        TRY(sfp__labels_load(labels, &rows, &j->label, err));
        TRY(check_rows(j, labels, rows, err));
    }
    if (probs) {
        TRY(sfp__table_load(probs, &j->probs, err));
        TRY(check_rows(j, probs, j->probs.rows, err));
        TRY(check_probs(&j->probs, probs, err));
    }
    return labels && probs ? check_labels(j, labels, probs, err) : SFP_OK;
}

static bool finite_row(const sfp__table *t, int i)
{
    const float *row = t->x + (size_t)i * (size_t)t->columns;
    for (int k = 0; k < t->columns; k++)
        if (!isfinite(row[k]))
            return false;
    return true;
}

/* Warns of rows with NaN or infinite values, which are often a mistake. */
static void warn_not_finite(const sfp__table *t, const char *path)
{
    int count = 0, first = 0;
    for (int i = t->rows - 1; i >= 0; i--)
        if (!finite_row(t, i)) {
            count++;
            first = i;
        }
    if (count == 1)
        sfp__warn("1 row of %s has NaN or infinite values (row %d); it is chosen last", path, first);
    else if (count > 1)
        sfp__warn("%d rows of %s have NaN or infinite values (first: row %d); they are chosen last", count, path, first);
}

static bool uses_probs(method m)
{
    return m == CRAIG || m == GRADMATCH;
}

/* Fails if a required option is not set. */
static sfp_status check_required(const sfp__args *args, method m, sfp_error *err)
{
    static const char *const always[] = {"method", "features", "ratio"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (sfp__args_rank(args, always[i]) == SFP__RANK_UNSET)
            return sfp__fail_usage(err, "--%s is missing", always[i]);
    bool labels = (m == CAMEL || m == CRAIG || m == GRADMATCH) && !sfp__args_string(args, "labels");
    if (labels || (uses_probs(m) && !sfp__args_string(args, "probs")))
        return sfp__fail_usage(err, "--%s is missing, expected one with --method %s", labels ? "labels" : "probs",
                               sfp__args_text(args, "method"));
    return SFP_OK;
}

/* ------------------------------------------------------------------- choosing */

static void on_progress(void *ctx, const char *unit, uint64_t done, uint64_t total)
{
    sfp__progress *p = ctx;
    p->unit = unit;
    p->total = total;
    sfp__progress_update(p, done);
}

static sfp_status choose_coreset(job *j, const sfp__args *args, sfp_error *err)
{
    sfp_coreset_options o = SFP_CORESET_OPTIONS_INIT;
    TRY(load(j, args, err));
    warn_not_finite(&j->features, sfp__args_string(args, "features"));
    if (uses_probs(j->method))
        warn_not_finite(&j->probs, sfp__args_string(args, "probs"));
    size_t n = (size_t)j->features.rows;
    const sfp__want list[] = {{&j->index, n, sizeof *j->index}, {&j->weight, n, sizeof *j->weight}};
    TRY(sfp__block(&j->block, SFP__LIST(list), err));
    sfp__progress_init(&j->progress, "picks", 0);
    o.method = sfp__args_text(args, "method");
    o.ratio = sfp__args_real(args, "ratio");
    o.seed = (uint64_t)sfp__args_int(args, "seed");
    o.euclidean = sfp__args_choice(args, "distance") == 1;
    o.threads = (int32_t)sfp__args_int(args, "threads");
    o.progress = on_progress;
    o.ctx = &j->progress;
    sfp_status s = sfp_coreset(&o, j->features.rows, j->features.columns, j->features.x, j->label, j->probs.columns, j->probs.x,
                               j->index, j->weight, &j->count, err);
    sfp__progress_done(&j->progress);
    return s;
}

/* --------------------------------------------------------------------- output */

static void print_coreset(const job *j, bool json)
{
    if (!json) {
        for (int i = 0; i < j->count; i++)
            (void)printf("%d\t%.9g\n", j->index[i], (double)j->weight[i]);
        return;
    }
    sfp__json out;
    sfp__json_begin(&out, stdout);
    sfp__json_array(&out, "indices");
    for (int i = 0; i < j->count; i++)
        sfp__json_int(&out, NULL, j->index[i]);
    sfp__json_end(&out);
    sfp__json_array(&out, "weights");
    for (int i = 0; i < j->count; i++)
        sfp__json_float(&out, NULL, j->weight[i]);
    sfp__json_end_all(&out);
}

static void job_done(job *j)
{
    sfp__table_done(&j->features);
    sfp__table_done(&j->probs);
    sfp__free(j->label);
    sfp__free(j->block);
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(job_done) job j = {.method = (method)sfp__args_choice(args, "method")};
    TRY(check_required(args, j.method, err));
    TRY(sfp__args_check_no_effect(args, SFP__LIST(no_effect_rules), 0, NULL, err));
    TRY(choose_coreset(&j, args, err));
    print_coreset(&j, sfp__args_flag(args, "json"));
    return SFP_OK;
}

const sfp__command sfp__cmd_select = {
    .name = "select",
    .summary = "choose a coreset of a feature matrix",
    .text =
        "Prints the chosen rows, counted from 0, in the order of choice, each with its weight. kcenter: farthest-first traversal "
        "from row 0. camel: covers each class, with features of unit length. craig: covers the last-layer gradients. The weights "
        "of both are cluster sizes. gradmatch: few weighted gradients whose sum approximates that of all. d2: D^2 sampling, as "
        "in "
        "freesel. "
        "random: uniform.\n\n"
        "Files: .npy; .safetensors, .npz or .pth with one array, or FILE:NAME to choose one. Any other file is text with one row "
        "per line. Numbers are separated by commas, by semicolons or, on lines with neither, by blanks. A first line without "
        "numbers is a header. Rows with NaN or infinite values are reported and chosen last, in index order.",
    .examples = "  streamfp select --method kcenter --features f.npy --ratio 0.1\n"
                "  streamfp select --method gradmatch --features f.npy --labels y.npy --probs p.npy --ratio 0.1 --json\n"
                "  streamfp select --method camel --features all.safetensors:features --labels y.csv --ratio 0.2 > chosen.tsv\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run,
};
