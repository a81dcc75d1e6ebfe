/* Helpers of the selector tests: an environment, random batches, one pick. A batch has all inputs, so that every selector of the
 * table can run on it. */
#ifndef SFP_TESTS_SELECT_CASE_H
#define SFP_TESTS_SELECT_CASE_H

#include "select/select.h"

#include "test.h"

typedef struct select_case {
    sfp__select_batch batch;
    int32_t *label;
    float *score, *query, *features, *logits, *probs, *pooled, *taps;
} select_case;

typedef enum case_kind {
    CASE_NORMAL,
    CASE_GRID,
    CASE_TWINS
} case_kind; /* grid: small integers with many ties; twins: some rows are equal */

static inline float *case_rows(sfp__rng *rng, int n, int width, case_kind kind)
{
    float *x = kept_malloc((size_t)n * (size_t)width * sizeof *x + 1);
    for (int i = 0; i < n * width; i++)
        x[i] = kind == CASE_GRID ? (float)((int)sfp__rng_below(rng, 4) - 1) : (float)sfp__rng_normal(rng);
    for (int i = 1; kind == CASE_TWINS && i < n; i++)
        if (sfp__rng_below(rng, 3) == 0) {
            int from = (int)sfp__rng_below(rng, (uint32_t)i);
            for (int k = 0; k < width; k++)
                x[i * width + k] = x[from * width + k];
        }
    return x;
}

static inline select_case make_case(sfp__rng *rng, int b, int dim, int classes, case_kind kind)
{
    select_case c = {.label = kept_malloc((size_t)b * sizeof(int32_t) + 1)};
    for (int i = 0; i < b; i++)
        c.label[i] = (int32_t)sfp__rng_below(rng, (uint32_t)classes);
    c.score = case_rows(rng, b, 1, kind);
    c.query = case_rows(rng, b, dim, kind);
    c.features = case_rows(rng, b, dim, kind);
    c.logits = case_rows(rng, b, classes, kind);
    c.pooled = case_rows(rng, b, dim, kind);
    c.taps = case_rows(rng, b, SFP__TAPS * dim, kind);
    c.probs = kept_malloc((size_t)b * (size_t)classes * sizeof(float) + 1);
    for (int i = 0; i < b; i++) {
        double sum = 0;
        for (int k = 0; k < classes; k++)
            sum += exp((double)c.logits[i * classes + k]);
        for (int k = 0; k < classes; k++)
            c.probs[i * classes + k] = (float)(exp((double)c.logits[i * classes + k]) / sum);
    }
    c.batch = (sfp__select_batch){.b = b,
                                  .label = c.label,
                                  .score = c.score,
                                  .dim = dim,
                                  .query = c.query,
                                  .features = c.features,
                                  .classes = classes,
                                  .logits = c.logits,
                                  .probs = c.probs,
                                  .pooled = c.pooled,
                                  .taps = c.taps};
    return c;
}

/* Runs one pick into arrays of exactly b elements. */
static inline sfp_status case_try(const sfp__selector *s, const sfp__select_batch *batch, const sfp__select_options *opt,
                                  sfp__select_env env, int *out, float *weight, int *count, sfp_error *why)
{
    sfp_status status = s->open ? s->open(batch->dim, batch->b > 0 ? batch->b : 1, 7, &env.state, why) : SFP_OK;
    if (status)
        return status;
    status = s->pick(batch, opt, &env, out, weight, count, why);
    if (s->close)
        s->close(env.state);
    return status;
}

/* Runs one pick of the selector with this name. Returns the count, -1: the pick failed. */
static inline int case_pick(const char *name, const sfp__select_batch *batch, double sigma, sfp__rng *rng, sfp__arena *arena,
                            sfp__thread_pool *pool, int *out, float *weight)
{
    const sfp__select_options opt = {.sigma = sigma};
    const sfp__select_env env = {.rng = rng, .arena = arena, .threads = pool};
    int count = -1;
    return case_try(sfp__selector_find(name), batch, &opt, env, out, weight, &count, NULL) ? -1 : count;
}

#endif
