#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/rank.h"
#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, NEIGHBOURS = 10 };

/* Features of labelled images evenly spread over a set. */
typedef struct sheet {
    int n;
    float *feature; /* (n, D) */
    int32_t *label; /* (n) */
} sheet;

static sfp_status run_features(const sfp__vit *v, sfp__vit_plan *plan, sfp__thread_pool *pool, const sfp__image_set *p,
                               const int64_t *which, sheet *s, sfp_error *err)
{
    const sfp__vit_config *c = &v->config;
    size_t pixels = 3 * (size_t)c->img_size * (size_t)c->img_size;
    OWNED float *x = NULL;
    TRY(sfp__alloc(&x, CHUNK * pixels, sizeof *x, err));
    for (int first = 0; first < s->n; first += CHUNK) {
        int n = s->n - first < CHUNK ? s->n - first : CHUNK;
        TRY(sfp__inputs_make(p, n, which + first, NULL, c, pool, x, err));
        const sfp__vit_pass pass = {.b = n, .x = x, .feature = s->feature + (size_t)first * (size_t)c->dim};
        TRY(sfp__vit_run(plan, &pass, err));
    }
    return SFP_OK;
}

static sfp_status make_sheet(const sfp__vit *v, sfp__vit_plan *plan, sfp__thread_pool *pool, const sfp__image_set *p, int most,
                             sheet *s, sfp_error *err)
{
    int64_t n = p->count < most ? p->count : most;
    OWNED int64_t *which = NULL;
    TRY(sfp__alloc(&which, (size_t)n, sizeof *which, err));
    TRY(sfp__alloc(&s->feature, (size_t)n * (size_t)v->config.dim, sizeof *s->feature, err));
    TRY(sfp__alloc(&s->label, (size_t)n, sizeof *s->label, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * p->count / n;
        if (p->label[at] < 0)
            continue;
        which[s->n] = at;
        s->label[s->n++] = p->label[at];
    }
    return run_features(v, plan, pool, p, which, s, err);
}

static void sheet_done(sheet *s)
{
    sfp__free(s->feature);
    sfp__free(s->label);
}

static sfp_status nearest_mean(const sheet *known, const sheet *held, int classes, int D, double *out, sfp_error *err)
{
    OWNED float *mean = NULL;
    OWNED int *count = NULL;
    TRY(sfp__alloc(&mean, (size_t)classes * (size_t)D, sizeof *mean, err));
    TRY(sfp__alloc(&count, (size_t)classes, sizeof *count, err));
    for (int i = 0; i < known->n; i++) {
        count[known->label[i]]++;
        sfp__axpy(D, 1, known->feature + (size_t)i * (size_t)D, mean + (size_t)known->label[i] * (size_t)D);
    }
    for (int c = 0; c < classes; c++)
        for (int k = 0; count[c] && k < D; k++)
            mean[(size_t)c * (size_t)D + (size_t)k] /= (float)count[c];
    int right = 0;
    for (int i = 0; i < held->n; i++) {
        const float *f = held->feature + (size_t)i * (size_t)D;
        int best = -1;
        float least = INFINITY;
        for (int c = 0; c < classes; c++) {
            const float *m = mean + (size_t)c * (size_t)D;
            float d = count[c] ? sfp__dot(D, m, m) - 2 * sfp__dot(D, m, f) : INFINITY;
            if (d < least) {
                least = d;
                best = c;
            }
        }
        right += best == held->label[i];
    }
    *out = (double)right / held->n;
    return SFP_OK;
}

static void unit_rows(sheet *s, int D)
{
    for (int i = 0; i < s->n; i++) {
        float *f = s->feature + (size_t)i * (size_t)D, scale = 1 / fmaxf(sqrtf(sfp__dot(D, f, f)), 1e-12f);
        for (int k = 0; k < D; k++)
            f[k] *= scale;
    }
}

/* The features become unit vectors. */
static sfp_status neighbours(sheet *known, sheet *held, int classes, int D, double *out, sfp_error *err)
{
    float *likeness, *votes;
    int *order;
    OWNED void *block = NULL;
    const sfp__want list[] = {{&likeness, (size_t)known->n, sizeof *likeness},
                              {&votes, (size_t)classes, sizeof *votes},
                              {&order, (size_t)known->n, sizeof *order}};
    TRY(sfp__block(&block, SFP_LIST(list), err));
    unit_rows(known, D);
    unit_rows(held, D);
    int right = 0, token = sfp__gemm_enter();
    for (int i = 0; i < held->n; i++) {
        int best = 0;
        sfp__gemm_plain(false, true, 1, known->n, D, held->feature + (size_t)i * (size_t)D, D, known->feature, D, 0.0f, likeness,
                        known->n);
        sfp__rank_descending(known->n, likeness, order);
        memset(votes, 0, (size_t)classes * sizeof *votes);
        for (int k = 0; k < NEIGHBOURS && k < known->n; k++)
            votes[known->label[order[k]]] += expf(likeness[order[k]] * 10);
        for (int c = 1; c < classes; c++)
            if (votes[c] > votes[best])
                best = c;
        right += best == held->label[i];
    }
    sfp__gemm_leave(token);
    *out = (double)right / held->n;
    return SFP_OK;
}

sfp_status sfp__probe_run(sfp__vit *v, sfp__thread_pool *pool, const sfp__image_set *known, const sfp__image_set *held, int most,
                          sfp__probe *out, sfp_error *err)
{
    sfp__probe r = {.ncm = NAN, .knn = NAN};
    OWNED_BY(sheet_done) sheet a = {0};
    OWNED_BY(sheet_done) sheet b = {0};
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    int D = v->config.dim, classes = known->classes;
    const sfp__vit_plan_options po = {.mode = SFP_VIT_FORWARD};
    TRY(sfp__vit_plan_create(v, pool, &po, &plan, err));
    TRY(make_sheet(v, plan, pool, known, most, &a, err));
    TRY(make_sheet(v, plan, pool, held, most, &b, err));
    if (a.n && b.n && classes > 1) {
        TRY(nearest_mean(&a, &b, classes, D, &r.ncm, err));
        TRY(neighbours(&a, &b, classes, D, &r.knn, err));
    }
    r.scored = b.n;
    *out = r;
    return SFP_OK;
}
