#include "pretrain/score.h"

#include "base/mem.h"
#include "base/pixels.h"
#include "base/rank.h"
#include "compute/gemm.h"
#include "compute/vec.h"
#include "pretrain/views.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, NEIGHBOURS = 10 };

/* Features of labelled pictures evenly spread over a set. */
typedef struct sheet {
    int n;
    float *feature; /* (n, D) */
    int32_t *label; /* (n) */
} sheet;

typedef struct normalising {
    const sfp_pictures *p;
    const int64_t *which;
    const sfp_vit_config *c;
    float *x;
    sfp_status *status; /* (CHUNK) */
} normalising;

static void normalise_one(void *ctx, int piece, int worker)
{
    (void)worker;
    normalising *n = ctx;
    int S = n->c->img_size;
    size_t pixels = 3 * (size_t)S * (size_t)S;
    const uint8_t *rgb = sfp__pictures_at(n->p, n->which[piece]);
    uint8_t *fit = n->p->size != S ? sfp__malloc(pixels) : NULL;
    const sfp_view whole = {.width = n->p->size, .height = n->p->size};
    n->status[piece] = n->p->size == S ? SFP_OK : !fit ? SFP_ENOMEM : sfp__view_render(rgb, n->p->size, &whole, S, fit, NULL);
    if (!n->status[piece])
        sfp__pixels_normalise(fit ? fit : rgb, S, n->c->mean, n->c->std, n->x + (size_t)piece * pixels);
    sfp__free(fit);
}

static sfp_status run_features(const sfp_vit *v, sfp_vit_plan *plan, sfp_thread_pool *pool, const sfp_pictures *p,
                               const int64_t *which, sheet *s, sfp_error *err)
{
    const sfp_vit_config *c = &v->config;
    size_t pixels = 3 * (size_t)c->img_size * (size_t)c->img_size;
    sfp_status made[CHUNK];
    float *x = sfp__malloc(CHUNK * pixels * sizeof *x);
    if (!x)
        return sfp__fail_nomem(err);
    sfp_status status = SFP_OK;
    for (int first = 0; !status && first < s->n; first += CHUNK) {
        int n = s->n - first < CHUNK ? s->n - first : CHUNK;
        normalising ctx = {.p = p, .which = which + first, .c = c, .x = x, .status = made};
        sfp__thread_pool_run(pool, n, normalise_one, &ctx);
        for (int i = 0; !status && i < n; i++)
            status = made[i] ? sfp__fail(err, made[i], "cannot make a view of %d x %d pixels", c->img_size, c->img_size) : SFP_OK;
        if (status)
            break;
        const sfp_vit_pass pass = {.b = n, .x = x, .feature = s->feature + (size_t)first * (size_t)c->dim};
        status = sfp__vit_run(plan, &pass, err);
    }
    sfp__free(x);
    return status;
}

static sfp_status make_sheet(const sfp_vit *v, sfp_vit_plan *plan, sfp_thread_pool *pool, const sfp_pictures *p, int most,
                             sheet *out, sfp_error *err)
{
    int64_t n = p->count < most ? p->count : most;
    sheet s = {0};
    int64_t *which = sfp__malloc((size_t)(n ? n : 1) * sizeof *which);
    s.feature = sfp__malloc((size_t)(n ? n : 1) * (size_t)v->config.dim * sizeof *s.feature);
    s.label = sfp__malloc((size_t)(n ? n : 1) * sizeof *s.label);
    sfp_status status = which && s.feature && s.label ? SFP_OK : sfp__fail_nomem(err);
    for (int64_t i = 0; !status && i < n; i++) {
        int64_t at = i * p->count / n;
        if (p->label[at] < 0)
            continue;
        which[s.n] = at;
        s.label[s.n++] = p->label[at];
    }
    if (!status)
        status = run_features(v, plan, pool, p, which, &s, err);
    sfp__free(which);
    if (status) {
        sfp__free(s.feature);
        sfp__free(s.label);
    } else {
        *out = s;
    }
    return status;
}

static sfp_status nearest_mean(const sheet *known, const sheet *held, int classes, int D, double *out, sfp_error *err)
{
    float *mean = sfp__calloc((size_t)classes * (size_t)D, sizeof *mean);
    int *count = sfp__calloc((size_t)classes, sizeof *count);
    if (!mean || !count) {
        sfp__free(mean);
        sfp__free(count);
        return sfp__fail_nomem(err);
    }
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
    sfp__free(mean);
    sfp__free(count);
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
    float *likeness = sfp__malloc((size_t)known->n * sizeof *likeness), *votes = sfp__malloc((size_t)classes * sizeof *votes);
    int *order = sfp__malloc((size_t)known->n * sizeof *order);
    if (!likeness || !votes || !order) {
        sfp__free(likeness);
        sfp__free(votes);
        sfp__free(order);
        return sfp__fail_nomem(err);
    }
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
    sfp__free(likeness);
    sfp__free(votes);
    sfp__free(order);
    return SFP_OK;
}

sfp_status sfp__score(sfp_vit *v, sfp_thread_pool *pool, const sfp_pictures *known, const sfp_pictures *held, int most,
                      sfp_score *out, sfp_error *err)
{
    sfp_score r = {.ncm = NAN, .knn = NAN};
    sheet a = {0}, b = {0};
    sfp_vit_plan *plan = NULL;
    int D = v->config.dim, classes = known->classes;
    const sfp_vit_plan_options po = {.mode = SFP_VIT_FORWARD};
    sfp_status s = sfp__vit_plan_create(v, pool, &po, &plan, err);
    if (!s)
        s = make_sheet(v, plan, pool, known, most, &a, err);
    if (!s)
        s = make_sheet(v, plan, pool, held, most, &b, err);
    if (!s && a.n && b.n && classes > 1) {
        s = nearest_mean(&a, &b, classes, D, &r.ncm, err);
        if (!s)
            s = neighbours(&a, &b, classes, D, &r.knn, err);
    }
    r.scored = b.n;
    sfp__vit_plan_free(plan);
    sfp__free(a.feature);
    sfp__free(a.label);
    sfp__free(b.feature);
    sfp__free(b.label);
    if (!s)
        *out = r;
    return s;
}
