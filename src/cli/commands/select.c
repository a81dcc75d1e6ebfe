/* streamfp select: a coreset of any feature matrix, by the selectors that `run` uses (docs/method.md, sections 11 and 17).
 *
 * The files take the place of what a learner would compute: features are kcenter's logits, camel's and freesel's features, and
 * with labels and probabilities the last-layer gradients of craig and gradmatch. */
#include "cli/command.h"
#include "cli/matrix.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "select/select.h"

#include <math.h>

static const sfp__opt options[] = {
    SFP_ROW_CHOICE("method", "random|kcenter|camel|craig|gradmatch|d2", NULL, "How to choose (needed)."),
    SFP_ROW_STRING("features", "FILE", NULL, "Features, a row a sample (needed)."),
    SFP_ROW_STRING("labels", "FILE", NULL, "Labels from 0; camel, craig and gradmatch need them, the others leave them aside."),
    SFP_ROW_STRING("probs", "FILE", NULL,
                   "Predicted probabilities, a row a sample; craig and gradmatch need them, the others leave them aside."),
    SFP_ROW_REAL("ratio", "R", NULL, 1e-9, 1e9, "Which part of the samples is chosen (needed); 1 and more: all."),
    SFP_ROW_CHOICE("distance", "cosine|euclidean", "cosine", "d2: the distance whose square weighs a sample."),
    SFP_ROW_INT("seed", "N", "0", 0, INT64_MAX,
                "Seed of the random numbers (of random, gradmatch and d2; the others draw none)."),
    SFP_ROW_JSON,
    SFP_ROW_THREADS,
};

static const sfp__no_effect_rule idle[] = {{"distance", "method!=d2", "{method}", "it is of d2"}};

/* In the order of --method's words. */
typedef enum method { RANDOM, KCENTER, CAMEL, CRAIG, GRADMATCH, D2 } method;
static const char *const names[] = {"random", "kcenter", "camel", "craig", "gradmatch", "d2"};

typedef struct job {
    method method;
    double ratio;
    sfp__table features, probs;
    int32_t *label;
    int finite, *order; /* (rows): those that are finite ascending, then the others ascending */
    sfp__thread_pool *pool;
    sfp__arena arena;
    sfp__progress progress;
    sfp__select_env env;
    void *block;
    int count, *index;
    float *weight;
} job;

/* ---------------------------------------------------------------------- input */

static sfp_status same_rows(const job *j, const char *path, int rows, sfp_error *err)
{
    if (rows == j->features.rows)
        return SFP_OK;
    return sfp__fail(err, SFP_ESHAPE, "%s: has %d rows, expected %d, as many as the features", path, rows, j->features.rows);
}

/* A label is a column of the probabilities. */
static sfp_status check_labels(const job *j, const char *path, const char *probs, sfp_error *err)
{
    for (int i = 0; i < j->features.rows; i++)
        if (j->label[i] >= j->probs.columns)
            return sfp__fail(err, SFP_EFORMAT, "%s: label %d is %d, expected 0 to %d, a column of %s", path, i, j->label[i],
                             j->probs.columns - 1, probs);
    return SFP_OK;
}

/* Logits by mistake would be taken without a word. Rows that are not finite are left to the selector. */
static sfp_status check_probs(const sfp__table *p, const char *path, sfp_error *err)
{
    for (int i = 0; i < p->rows; i++) {
        const float *row = p->x + (size_t)i * (size_t)p->columns;
        double sum = 0, least = 0;
        for (int c = 0; c < p->columns; c++) {
            sum += (double)row[c];
            least = fmin(least, (double)row[c]);
        }
        if (isfinite(sum) && (fabs(sum - 1) > 0.01 || least < -1e-6))
            return sfp__fail(err, SFP_EFORMAT,
                             "%s: row %d adds up to %.6g, its least is %.6g; expected probabilities, which add up to 1", path, i,
                             sum, least);
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
        TRY(same_rows(j, labels, rows, err));
    }
    if (probs) {
        TRY(sfp__table_load(probs, &j->probs, err));
        TRY(same_rows(j, probs, j->probs.rows, err));
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

/* Rows with numbers that are not finite are a mistake more often than not: they are told. */
static void tell_not_finite(const sfp__table *t, const char *path)
{
    int count = 0, first = 0;
    for (int i = t->rows - 1; i >= 0; i--)
        if (!finite_row(t, i)) {
            count++;
            first = i;
        }
    if (count == 1)
        sfp__info("1 row of %s is not finite (row %d); it is chosen last", path, first);
    else if (count > 1)
        sfp__info("%d rows of %s are not finite (the first: row %d); they are chosen last", count, path, first);
}

static bool takes_probs(method m)
{
    return m == CRAIG || m == GRADMATCH;
}

/* In all that the method looks at. */
static bool finite_sample(const job *j, int i)
{
    return finite_row(&j->features, i) && (!takes_probs(j->method) || finite_row(&j->probs, i));
}

static sfp_status sort_out(job *j, const sfp__args *args, sfp_error *err)
{
    int n = 0, rows = j->features.rows;
    TRY(sfp__alloc(&j->order, (size_t)rows, sizeof *j->order, err));
    for (int i = 0; i < rows; i++)
        if (finite_sample(j, i))
            j->order[n++] = i;
    j->finite = n;
    for (int i = 0; i < rows && n < rows; i++)
        if (!finite_sample(j, i))
            j->order[n++] = i;
    tell_not_finite(&j->features, sfp__args_string(args, "features"));
    if (takes_probs(j->method))
        tell_not_finite(&j->probs, sfp__args_string(args, "probs"));
    return SFP_OK;
}

/* What a method cannot do without; NULL: nothing is missing. */
static const char *missing(const sfp__args *args, method m)
{
    static const char *const always[] = {"method", "features", "ratio"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (sfp__args_rank(args, always[i]) == SFP_RANK_UNSET)
            return always[i];
    if ((m == CAMEL || m == CRAIG || m == GRADMATCH) && !sfp__args_string(args, "labels"))
        return "labels";
    return takes_probs(m) && !sfp__args_string(args, "probs") ? "probs" : NULL;
}

/* ------------------------------------------------------------------- choosing */

static void tell(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    sfp__progress *p = ctx;
    p->unit = what;
    p->total = total;
    sfp__progress_update(p, done);
}

/* D^2 sampling is freesel on features as they are. */
static sfp_status choose_by_numbers(job *j, bool euclidean, sfp_error *err)
{
    const sfp__table *x = &j->features;
    const sfp__select_options opt = {.sigma = j->ratio, .euclidean = euclidean};
    sfp__select_batch batch = {
        .b = x->rows, .label = j->label, .dim = x->columns, .features = x->x, .query = x->x, .pooled = x->x};
    batch.classes = j->method == KCENTER ? x->columns : j->probs.columns;
    batch.logits = x->x;
    batch.probs = j->probs.x;
    const sfp__selector *s = sfp__selector_find(j->method == D2 ? "freesel" : names[j->method]);
    return s->pick(&batch, &opt, &j->env, j->index, j->weight, &j->count, err);
}

/* Random, and all rows by any method, look at no number: c of the finite rows, in their own order when that is all of them,
 * then the others. */
static sfp_status choose_blindly(job *j, int c, sfp_error *err)
{
    const sfp__select_batch batch = {.b = j->finite};
    const sfp__select_options opt = {.sigma = (c + 0.5) / fmax(1, j->finite)}; /* half a row: exactly c, however it is rounded */
    TRY(sfp__selector_find("random")->pick(&batch, &opt, &j->env, j->index, j->weight, &j->count, err));
    for (int i = 0; i < j->count; i++)
        j->index[i] = j->order[j->index[i]];
    for (; j->count < c; j->count++) {
        j->index[j->count] = j->order[j->count]; /* all finite ones are taken */
        j->weight[j->count] = 1;
    }
    return SFP_OK;
}

static sfp_status choose(job *j, bool euclidean, sfp_error *err)
{
    int rows = j->features.rows, c = sfp__coreset_size(rows, j->ratio);
    return j->method == RANDOM || c == rows ? choose_blindly(j, c, err) : choose_by_numbers(j, euclidean, err);
}

static sfp_status work(job *j, const sfp__args *args, sfp_error *err)
{
    sfp__rng rng = sfp__rng_init((uint64_t)sfp__args_int(args, "seed"), 2);
    TRY(load(j, args, err));
    TRY(sort_out(j, args, err));
    TRY(sfp__thread_pool_create((int)sfp__args_int(args, "threads"), &j->pool, err));
    size_t n = (size_t)j->features.rows;
    const sfp__want list[] = {{&j->index, n, sizeof *j->index}, {&j->weight, n, sizeof *j->weight}};
    TRY(sfp__block(&j->block, SFP_LIST(list), err));
    sfp__progress_init(&j->progress, "picks", 0);
    j->env =
        (sfp__select_env){.rng = &rng, .arena = &j->arena, .threads = j->pool, .on_progress = tell, .progress_ctx = &j->progress};
    sfp_status s = choose(j, sfp__args_choice(args, "distance") == 1, err);
    sfp__progress_done(&j->progress);
    return s;
}

/* --------------------------------------------------------------------- output */

static void print(const job *j, bool json)
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
    sfp__arena_done(&j->arena);
    sfp__thread_pool_free(j->pool);
    sfp__table_done(&j->features);
    sfp__table_done(&j->probs);
    sfp__free(j->label);
    sfp__free(j->order);
    sfp__free(j->block);
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(job_done) job j = {.method = (method)sfp__args_choice(args, "method")};
    const char *lacks = missing(args, j.method), *name = sfp__args_text(args, "method");
    if (lacks)
        return sfp__fail_usage(err, "%s%sneeds --%s", name ? name : "", name ? " " : "", lacks);
    TRY(sfp__args_check_no_effect(args, SFP_LIST(idle), 0, NULL, err));
    j.ratio = sfp__args_real(args, "ratio");
    TRY(work(&j, args, err));
    print(&j, sfp__args_flag(args, "json"));
    return SFP_OK;
}

const sfp__command sfp__cmd_select = {
    .name = "select",
    .summary = "choose a coreset of a feature matrix",
    .text =
        "Prints the chosen rows, counted from 0, in order of choice, each with its weight. kcenter: farthest first from row 0; "
        "camel: covers each class, on features of unit length; craig: covers the last-layer gradients, weights are cluster "
        "sizes; gradmatch: few weighted gradients that add up to all; d2: D^2 sampling, as freesel does it; random: "
        "uniformly.\n\n"
        "Files: .npy; .safetensors, .npz and .pth with one array, or FILE:NAME; anything else is text, a line a row: numbers "
        "between commas, or semicolons, or blanks where a line has neither. A first line without any number is a heading. Rows "
        "that are not finite are told, and chosen last, by index.",
    .examples = "  streamfp select --method kcenter --features f.npy --ratio 0.1\n"
                "  streamfp select --method gradmatch --features f.npy --labels y.npy --probs p.npy --ratio 0.1 --json\n"
                "  streamfp select --method camel --features all.safetensors:features --labels y.csv --ratio 0.2 > chosen.tsv\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
