/* Coresets of a matrix (streamfp.h, part 11), by the selectors that a learner uses (docs/method.md, sections 11 and 17).
 *
 * The matrix replaces the inputs that a learner computes. Its rows are the logits for kcenter and the features for camel and
 * freesel. With labels and probabilities they define the last-layer gradients for craig and gradmatch. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

enum { RANDOM, KCENTER, CAMEL, CRAIG, GRADMATCH, D2, METHODS };
static const char *const names[METHODS] = {"random", "kcenter", "camel", "craig", "gradmatch", "d2"};

typedef struct job {
    int method, rows, dim, classes;
    double ratio;
    bool euclidean;
    const float *features, *probs;
    const int32_t *labels;
    int finite, *order; /* (rows): rows with finite values ascending, then the others ascending */
    sfp__thread_pool *pool;
    sfp__arena arena;
    sfp__select_env env;
    void *block;
    int count, *index; /* (rows) */
    float *weight;     /* (rows) */
} job;

static void job_done(job *j)
{
    sfp__arena_done(&j->arena);
    sfp__thread_pool_free(j->pool);
    sfp__free(j->block);
}

static bool uses_probs(int method)
{
    return method == CRAIG || method == GRADMATCH;
}

static bool is_finite(int n, const float *row)
{
    for (int k = 0; k < n; k++)
        if (!isfinite(row[k]))
            return false;
    return true;
}

/* Returns whether all values of sample i that the method reads are finite. */
static bool is_finite_sample(const job *j, int i)
{
    return is_finite(j->dim, j->features + (size_t)i * (size_t)j->dim) &&
           (!uses_probs(j->method) || is_finite(j->classes, j->probs + (size_t)i * (size_t)j->classes));
}

static void order_rows(job *j)
{
    int n = 0;
    for (int i = 0; i < j->rows; i++)
        if (is_finite_sample(j, i))
            j->order[n++] = i;
    j->finite = n;
    for (int i = 0; i < j->rows && n < j->rows; i++)
        if (!is_finite_sample(j, i))
            j->order[n++] = i;
}

/* D^2 sampling is freesel on features as they are. */
static sfp_status choose_by_values(job *j, sfp_error *err)
{
    const sfp__select_options opt = {.sigma = j->ratio, .euclidean = j->euclidean};
    const sfp__select_batch batch = {.b = j->rows,
                                     .label = j->labels,
                                     .dim = j->dim,
                                     .features = j->features,
                                     .query = j->features,
                                     .pooled = j->features,
                                     .classes = j->method == KCENTER ? j->dim : j->classes,
                                     .logits = j->features,
                                     .probs = j->probs};
    const sfp__selector *s = sfp__selector_find(j->method == D2 ? "freesel" : names[j->method]);
    return s->pick(&batch, &opt, &j->env, j->index, j->weight, &j->count, err);
}

/* Chooses c rows without reading their values: for method random, and for all methods if every row is chosen. Finite rows come first, in their own
 * order if all of them are chosen; then the others. */
static sfp_status choose_without_values(job *j, int c, sfp_error *err)
{
    const sfp__select_batch batch = {.b = j->finite};
    const sfp__select_options opt = {.sigma =
                                         (c + 0.5) / fmax(1, j->finite)}; /* half a row more, so that rounding down yields c */
    TRY(sfp__selector_find("random")->pick(&batch, &opt, &j->env, j->index, j->weight, &j->count, err));
    for (int i = 0; i < j->count; i++)
        j->index[i] = j->order[j->index[i]];
    for (; j->count < c; j->count++) {
        j->index[j->count] = j->order[j->count]; /* all finite ones are chosen already */
        j->weight[j->count] = 1;
    }
    return SFP_OK;
}

static sfp_status check(const job *j, const char *method, sfp_error *err)
{
    if (j->method == METHODS)
        return sfp__fail_key(err, "method", SFP_EINVAL,
                             "method is '%.80s', expected random, kcenter, camel, craig, gradmatch or d2", method ? method : "");
    if (!(j->ratio > 0) || !isfinite(j->ratio))
        return sfp__fail_key(err, "ratio", SFP_EINVAL, "ratio is %g, expected more than 0", j->ratio);
    if (j->rows < 1 || j->dim < 1 || !j->features)
        return sfp__fail_key(err, "features", SFP_EINVAL, "features are %d x %d, expected at least 1 x 1", j->rows, j->dim);
    if ((j->method == CAMEL || uses_probs(j->method)) && !j->labels)
        return sfp__fail_key(err, "labels", SFP_EINVAL, "labels are missing, expected one per row for method %s", method);
    if (!uses_probs(j->method))
        return SFP_OK;
    if (!j->probs || j->classes < 1)
        return sfp__fail_key(err, "probs", SFP_EINVAL, "probs are missing, expected one row per sample for method %s", method);
    for (int i = 0; i < j->rows; i++)
        if (j->labels[i] < 0 || j->labels[i] >= j->classes)
            return sfp__fail_key(err, "labels", SFP_EINVAL, "label %d is %d, expected 0 to %d", i, j->labels[i], j->classes - 1);
    return SFP_OK;
}

static sfp_status choose_coreset(job *j, const sfp_coreset_options *o, sfp_error *err)
{
    sfp__rng rng = sfp__rng_init(o->seed, 2);
    size_t n = (size_t)j->rows;
    const sfp__want list[] = {
        {&j->index, n, sizeof *j->index}, {&j->weight, n, sizeof *j->weight}, {&j->order, n, sizeof *j->order}};
    int c = sfp__coreset_size(j->rows, j->ratio);
    if (o->threads < 0 || o->threads > 1024)
        return sfp__fail_key(err, "threads", SFP_EINVAL, "threads is %d, expected 0 to 1024", o->threads);
    TRY(sfp__block(&j->block, SFP__LIST(list), err));
    TRY(sfp__thread_pool_create(o->threads, &j->pool, err));
    order_rows(j);
    j->env = (sfp__select_env){
        .rng = &rng, .arena = &j->arena, .threads = j->pool, .on_progress = o->progress, .progress_ctx = o->ctx};
    return j->method == RANDOM || c == j->rows ? choose_without_values(j, c, err) : choose_by_values(j, err);
}

sfp_status sfp_coreset(const sfp_coreset_options *options, int rows, int dim, const float *features, const int32_t *labels,
                       int classes, const float *probs, int32_t *indices, float *weights, int *count, sfp_error *err)
{
    IN_LIBRARY;
    sfp_coreset_options o;
    SFP__REQUIRE(options && indices && count, "options, indices and count");
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_coreset_options", err));
    OWNED_BY(job_done)
    job j = {.rows = rows,
             .dim = dim,
             .classes = classes,
             .ratio = o.ratio,
             .euclidean = o.euclidean,
             .features = features,
             .labels = labels,
             .probs = probs};
    while (j.method < METHODS && (!o.method || strcmp(names[j.method], o.method) != 0))
        j.method++;
    TRY(check(&j, o.method, err));
    TRY(choose_coreset(&j, &o, err));
    memcpy(indices, j.index, (size_t)j.count * sizeof *indices);
    if (weights)
        memcpy(weights, j.weight, (size_t)j.count * sizeof *weights);
    *count = j.count;
    return SFP_OK;
}
