/* The scores of every kind are a linear map of the query or of its random projection:
 *
 *     raw_r = bias_r + sum_i weight_ir f_i,   f = q - centre, or relu(q R)
 *
 * so one copy of centre, weight and bias represents any kind. R never changes, so it is shared, not copied. It has a count of
 * holders because a resume replaces the head while predictors still read the scorers of the previous one. */
#include "learner/heads/head.h"

#include "base/mem.h"
#include "learner/heads/head_kind.h"

#include <math.h>
#include <string.h>

struct sfp__head_scorer {
    sfp__head_linear_map linear_map;
    double *weight, *bias, *centre; /* (width, rows) (rows) (D) */
    int64_t *label;                 /* (rows) */
    size_t weight_capacity, row_capacity;
    sfp__projection *project; /* linear_map.project, held while rows > 0 */
};

sfp__projection *sfp__projection_hold(sfp__projection *p)
{
    if (p)
        p->holders++;
    return p;
}

void sfp__projection_release(sfp__projection *p)
{
    if (p && --p->holders == 0)
        sfp__free(p);
}

void sfp__head_scorer_free(sfp__head_scorer *s)
{
    if (!s)
        return;
    sfp__free(s->weight);
    sfp__free(s->bias);
    sfp__free(s->centre);
    sfp__free(s->label);
    sfp__projection_release(s->project);
    sfp__free(s);
}

static sfp_status reserve(sfp__head_scorer *s, size_t rows, size_t weights, size_t dim, sfp_error *err)
{
    TRY(sfp__check_memory(s->centre || (s->centre = sfp__malloc(dim * sizeof *s->centre)), err));
    if (weights > s->weight_capacity) {
        sfp__free(s->weight);
        s->weight_capacity = 0;
        TRY(sfp__check_memory((s->weight = sfp__malloc(weights * sizeof *s->weight)), err));
        s->weight_capacity = weights;
    }
    if (rows > s->row_capacity) {
        sfp__free(s->bias);
        sfp__free(s->label);
        s->row_capacity = 0;
        s->bias = sfp__malloc(rows * sizeof *s->bias);
        s->label = sfp__malloc(rows * sizeof *s->label);
        TRY(sfp__check_memory(s->bias && s->label, err));
        s->row_capacity = rows;
    }
    return SFP_OK;
}

sfp_status sfp__head_freeze(sfp__head *h, sfp__head_scorer **scorer, sfp_error *err)
{
    TRY(sfp__check_memory(*scorer || (*scorer = sfp__calloc(1, sizeof **scorer)), err));
    sfp__head_scorer *s = *scorer;
    s->linear_map = (sfp__head_linear_map){.dim = h->opt.dim};
    sfp_status status = sfp__head_refresh(h, err);
    if (status || h->rows == 0)
        return status;
    s->linear_map.rows = h->rows;
    h->kind->linear_map(h, &s->linear_map); /* sets width and R */
    status = reserve(s, (size_t)h->rows, (size_t)s->linear_map.width * (size_t)h->rows, (size_t)h->opt.dim, err);
    if (status) {
        s->linear_map.rows = 0;
        return status;
    }
    sfp__projection *before = s->project;
    s->project = sfp__projection_hold(s->linear_map.project);
    sfp__projection_release(before);
    s->linear_map.weight = s->weight;
    s->linear_map.bias = s->bias;
    s->linear_map.centre = s->centre;
    memset(s->bias, 0, (size_t)h->rows * sizeof *s->bias);
    memset(s->centre, 0, (size_t)h->opt.dim * sizeof *s->centre);
    memcpy(s->label, h->label, (size_t)h->rows * sizeof *s->label);
    h->kind->linear_map(h, &s->linear_map);
    return SFP_OK;
}

size_t sfp__head_scorer_work(const sfp__head_scorer *s)
{
    return (size_t)s->linear_map.width + (size_t)s->linear_map.rows;
}

static void compute_features(const sfp__head_linear_map *f, const float *q, double *out)
{
    if (!f->project) {
        for (int i = 0; i < f->dim; i++)
            out[i] = (double)q[i] - f->centre[i];
        return;
    }
    memset(out, 0, (size_t)f->width * sizeof *out);
    for (int i = 0; i < f->dim; i++) {
        const float *row = f->project->r + (size_t)i * (size_t)f->width;
        for (int j = 0; j < f->width; j++)
            out[j] += (double)q[i] * (double)row[j];
    }
    for (int j = 0; j < f->width; j++)
        out[j] = fmax(out[j], 0);
}

void sfp__head_scorer_scores(const sfp__head_scorer *s, int n, const float *query, int classes, double *work, float *out)
{
    const sfp__head_linear_map *f = &s->linear_map;
    double *x = work, *raw = work + f->width;
    for (int i = 0; i < n; i++, query += f->dim, out += classes) {
        for (int c = 0; c < classes; c++)
            out[c] = -INFINITY;
        if (f->rows == 0)
            continue;
        compute_features(f, query, x);
        memcpy(raw, s->bias, (size_t)f->rows * sizeof *raw);
        for (int k = 0; k < f->width; k++) {
            const double *w = s->weight + (size_t)k * (size_t)f->rows;
            for (int r = 0; r < f->rows && x[k] != 0; r++)
                raw[r] += x[k] * w[r];
        }
        sfp__head_log_softmax(f->rows, s->label, raw, classes, out);
    }
}
