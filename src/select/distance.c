#include "select/distance.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { B = SFP__DISTANCE_BLOCK };

static const float *row(const float *x, int width, int i)
{
    return x + (size_t)i * (size_t)width;
}

double sfp__metric_product(const sfp__metric *m, const sfp__points *a, int i, const sfp__points *b, int j)
{
    double k = sfp__dot_f64(m->dim, row(a->h, m->dim, i), row(b->h, m->dim, j));
    return m->r ? sfp__dot_f64(m->classes, row(a->r, m->classes, i), row(b->r, m->classes, j)) * (1 + k) : k;
}

sfp__points sfp__metric_points(const sfp__metric *m, int first, int n)
{
    return (sfp__points){.n = n,
                         .h = row(m->h, m->dim, first),
                         .r = m->r ? row(m->r, m->classes, first) : NULL,
                         .self = m->self + first,
                         .first = first};
}

sfp__points sfp__metric_gather(const sfp__metric *m, int n, const int *which, float *h, float *r, double *self)
{
    for (int i = 0; i < n; i++) {
        memcpy(h + (size_t)i * (size_t)m->dim, row(m->h, m->dim, which[i]), (size_t)m->dim * sizeof *h);
        if (m->r)
            memcpy(r + (size_t)i * (size_t)m->classes, row(m->r, m->classes, which[i]), (size_t)m->classes * sizeof *r);
        self[i] = m->self[which[i]];
    }
    return (sfp__points){.n = n, .h = h, .r = m->r ? r : NULL, .self = self, .which = which};
}

sfp_status sfp__metric_init(sfp__metric *m, const sfp__select_env *env, int n, int dim, const float *h, int classes,
                            const float *r, sfp_error *err)
{
    *m = (sfp__metric){.n = n, .dim = dim, .h = h, .classes = classes, .r = r};
    const sfp__want self = {&m->self, (size_t)n, sizeof *m->self};
    TRY(sfp__arena_list(env->arena, 1, &self, err));
    sfp__points all = sfp__metric_points(m, 0, n);
    double max_self = 0;
    for (int i = 0; i < n; i++) {
        m->self[i] = sfp__metric_product(m, &all, i, &all, i);
        max_self = fmax(max_self, m->self[i]);
    }
    /* squared distances and 2^30 / U are then well inside the range of a float */
    bool fits_float = max_self <= 0 || (max_self > 1e-30 && max_self < 1e37);
    m->precise = n <= SFP__DISTANCE_PRECISE || !fits_float;
    m->scale = max_self > 0 && isfinite(max_self) ? SFP__DISTANCE_ONE / (2 * sqrt(max_self)) : 0; /* |a - b| <= |a| + |b| */
    return SFP_OK;
}

static void precise_block(const sfp__metric *m, const sfp__points *a, const sfp__points *b, int32_t *q)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            double d2 = m->r ? a->self[i] + b->self[j] - 2 * sfp__metric_product(m, a, i, b, j)
                             : sfp__distance2_f64(m->dim, row(a->h, m->dim, i), row(b->h, m->dim, j));
            d2 = fmax(d2, 0);
            q[i * B + j] = (int32_t)lrint(sqrt(d2) * m->scale);
        }
}

static void fast_block(const sfp__metric *m, const sfp__points *a, const sfp__points *b, float *work, int32_t *q)
{
    float *k = work, *rr = work + (size_t)B * B, scale = (float)m->scale, self[B];
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, a->n, b->n, m->dim, a->h, m->dim, b->h, m->dim, 0, k, B);
    if (m->r)
        sfp__gemm_plain(false, true, a->n, b->n, m->classes, a->r, m->classes, b->r, m->classes, 0, rr, B);
    sfp__gemm_leave(token);
    for (int j = 0; j < b->n; j++)
        self[j] = (float)b->self[j];
    for (int i = 0; i < a->n; i++) {
        float *line = k + (size_t)i * B, own = (float)a->self[i];
        int32_t *to = q + (size_t)i * B;
        if (m->r)
            for (int j = 0; j < b->n; j++)
                line[j] = rr[(size_t)i * B + (size_t)j] * (1 + line[j]);
        for (int j = 0; j < b->n; j++) {
            float d2 = own + self[j] - 2 * line[j];
            d2 = d2 > 0 ? d2 : 0;
            to[j] = (int32_t)(sqrtf(d2) * scale);
        }
    }
}

void sfp__metric_block(const sfp__metric *m, const sfp__points *a, const sfp__points *b, float *work, int32_t *q)
{
    if (m->precise)
        precise_block(m, a, b, q);
    else
        fast_block(m, a, b, work, q);
    for (int i = 0; i < a->n; i++) {
        int j = (a->which ? a->which[i] : a->first + i) - b->first;
        if (!b->which && j >= 0 && j < b->n)
            q[i * B + j] = 0;
    }
}

/* -------------------------------------------------------- last-layer gradients */

/* Builds a metric from the features and residuals of the candidates. */
static sfp_status make_metric(const sfp__select_batch *batch, const sfp__matrix *features, const sfp__matrix *probs,
                              const sfp__candidates *from, const sfp__select_env *env, sfp__metric *metric, sfp_error *err)
{
    size_t n = (size_t)from->n, classes = (size_t)probs->width;
    float *h, *r;
    const sfp__want list[] = {{&h, n * (size_t)features->width, sizeof *h}, {&r, n * classes, sizeof *r}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    sfp__select_gather(from, features, h);
    sfp__select_gather(from, probs, r);
    for (size_t i = 0; i < n; i++)
        r[i * classes + (size_t)batch->label[from->id[i]]] -= 1;
    return sfp__metric_init(metric, env, from->n, features->width, h, probs->width, r, err);
}

sfp_status sfp__lastlayer_pick(const sfp__selector *s, sfp__lastlayer_fn choose, const sfp__select_batch *batch,
                               const sfp__select_options *opt, const sfp__select_env *env, int *out, float *weight, int *count,
                               sfp_error *err)
{
    const sfp__matrix matrix[] = {{batch->features, batch->dim}, {batch->probs, batch->classes}};
    sfp__candidates from;
    sfp__metric metric;
    bool whole = false;
    TRY(sfp__select_check_labels(s, batch, err));
    TRY(sfp__select_begin(s, batch, opt, env, 2, matrix, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    int want = from.c < from.n ? from.c : from.n, *picked;
    double *w;
    const sfp__want list[] = {{&picked, (size_t)from.n, sizeof *picked}, {&w, (size_t)from.n, sizeof *w}};
    TRY(make_metric(batch, &matrix[0], &matrix[1], &from, env, &metric, err));
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    if (want > 0)
        TRY(choose(env, &metric, from.id, want, picked, w, err));
    for (int i = 0; weight && i < want; i++)
        weight[i] = (float)w[i];
    sfp__select_end(&from, want, picked, out, weight, count);
    return SFP_OK;
}
