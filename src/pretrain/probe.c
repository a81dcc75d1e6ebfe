/* Probes of features: nearest class mean and k nearest neighbours. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/rank.h"
#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, NEIGHBOURS = 10 };

/* Features of labelled images, evenly spread over a set. */
typedef struct feature_set {
    int n;
    float *feature; /* (n, D) */
    int32_t *label; /* (n) */
} feature_set;

static sfp_status run_features(const sfp__vit *v, sfp__vit_plan *plan, sfp__thread_pool *pool, const sfp__image_set *p,
                               const int64_t *index, feature_set *s, sfp_error *err)
{
    const sfp__vit_config *c = &v->config;
    size_t pixels = 3 * (size_t)c->img_size * (size_t)c->img_size;
    OWNED float *x = NULL;
    TRY(sfp__alloc(&x, CHUNK * pixels, sizeof *x, err));
    for (int first = 0; first < s->n; first += CHUNK) {
        int n = s->n - first < CHUNK ? s->n - first : CHUNK;
        TRY(sfp__inputs_make(p, n, index + first, NULL, c, pool, x, err));
        const sfp__vit_pass pass = {.b = n, .x = x, .feature = s->feature + (size_t)first * (size_t)c->dim};
        TRY(sfp__vit_run(plan, &pass, err));
    }
    return SFP_OK;
}

static sfp_status compute_features(const sfp__vit *v, sfp__vit_plan *plan, sfp__thread_pool *pool, const sfp__image_set *p,
                                   int max_images, feature_set *s, sfp_error *err)
{
    int64_t n = p->count < max_images ? p->count : max_images;
    OWNED int64_t *index = NULL;
    TRY(sfp__alloc(&index, (size_t)n, sizeof *index, err));
    TRY(sfp__alloc(&s->feature, (size_t)n * (size_t)v->config.dim, sizeof *s->feature, err));
    TRY(sfp__alloc(&s->label, (size_t)n, sizeof *s->label, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * p->count / n;
        if (p->label[at] < 0)
            continue;
        index[s->n] = at;
        s->label[s->n++] = p->label[at];
    }
    return run_features(v, plan, pool, p, index, s, err);
}

static void feature_set_done(feature_set *s)
{
    sfp__free(s->feature);
    sfp__free(s->label);
}

/* Accuracy of nearest class mean. */
static sfp_status nearest_mean(const feature_set *train, const feature_set *test, int classes, int D, double *out, sfp_error *err)
{
    OWNED float *mean = NULL;
    OWNED int *count = NULL;
    TRY(sfp__alloc(&mean, (size_t)classes * (size_t)D, sizeof *mean, err));
    TRY(sfp__alloc(&count, (size_t)classes, sizeof *count, err));
    for (int i = 0; i < train->n; i++) {
        count[train->label[i]]++;
        sfp__axpy(D, 1, train->feature + (size_t)i * (size_t)D, mean + (size_t)train->label[i] * (size_t)D);
    }
    for (int c = 0; c < classes; c++)
        for (int k = 0; count[c] && k < D; k++)
            mean[(size_t)c * (size_t)D + (size_t)k] /= (float)count[c];
    int correct = 0;
    for (int i = 0; i < test->n; i++) {
        const float *f = test->feature + (size_t)i * (size_t)D;
        int best = -1;
        float min_distance = INFINITY;
        for (int c = 0; c < classes; c++) {
            const float *m = mean + (size_t)c * (size_t)D;
            float d = count[c] ? sfp__dot(D, m, m) - 2 * sfp__dot(D, m, f) : INFINITY;
            if (d < min_distance) {
                min_distance = d;
                best = c;
            }
        }
        correct += best == test->label[i];
    }
    *out = (double)correct / test->n;
    return SFP_OK;
}

static void normalise_rows(feature_set *s, int D)
{
    for (int i = 0; i < s->n; i++) {
        float *f = s->feature + (size_t)i * (size_t)D, scale = 1 / fmaxf(sqrtf(sfp__dot(D, f, f)), 1e-12f);
        for (int k = 0; k < D; k++)
            f[k] *= scale;
    }
}

/* Accuracy of nearest neighbours. Normalises the features in place. */
static sfp_status nearest_neighbours(feature_set *train, feature_set *test, int classes, int D, double *out, sfp_error *err)
{
    float *similarity, *votes;
    int *order;
    OWNED void *block = NULL;
    const sfp__want list[] = {{&similarity, (size_t)train->n, sizeof *similarity},
                              {&votes, (size_t)classes, sizeof *votes},
                              {&order, (size_t)train->n, sizeof *order}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    normalise_rows(train, D);
    normalise_rows(test, D);
    int correct = 0, token = sfp__gemm_enter();
    for (int i = 0; i < test->n; i++) {
        int best = 0;
        sfp__gemm_plain(false, true, 1, train->n, D, test->feature + (size_t)i * (size_t)D, D, train->feature, D, 0.0f,
                        similarity, train->n);
        sfp__rank_descending(train->n, similarity, order);
        memset(votes, 0, (size_t)classes * sizeof *votes);
        for (int k = 0; k < NEIGHBOURS && k < train->n; k++)
            votes[train->label[order[k]]] += expf(similarity[order[k]] * 10);
        for (int c = 1; c < classes; c++)
            if (votes[c] > votes[best])
                best = c;
        correct += best == test->label[i];
    }
    sfp__gemm_leave(token);
    *out = (double)correct / test->n;
    return SFP_OK;
}

sfp_status sfp__probe_run(sfp__vit *v, sfp__thread_pool *pool, const sfp__image_set *train, const sfp__image_set *test,
                          int max_images, sfp__probe *out, sfp_error *err)
{
    sfp__probe r = {.ncm = NAN, .knn = NAN};
    OWNED_BY(feature_set_done) feature_set a = {0};
    OWNED_BY(feature_set_done) feature_set b = {0};
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    int D = v->config.dim, classes = train->classes;
    const sfp__vit_plan_options po = {.mode = SFP__VIT_FORWARD};
    TRY(sfp__vit_plan_create(v, pool, &po, &plan, err));
    TRY(compute_features(v, plan, pool, train, max_images, &a, err));
    TRY(compute_features(v, plan, pool, test, max_images, &b, err));
    if (a.n && b.n && classes > 1) {
        TRY(nearest_mean(&a, &b, classes, D, &r.ncm, err));
        TRY(nearest_neighbours(&a, &b, classes, D, &r.knn, err));
    }
    r.tested = b.n;
    *out = r;
    return SFP_OK;
}
