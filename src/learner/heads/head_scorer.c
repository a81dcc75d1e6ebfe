/* The scores of a head are a linear map of the query, raw_r = bias_r + sum_i weight_ir (q_i - centre_i), so one copy of centre,
 * weight and bias represents any kind but ranpac, whose scores are not linear. */
#include "learner/heads/head.h"

#include "base/mem.h"
#include "learner/heads/head_kind.h"

#include <math.h>
#include <string.h>

struct sfp__head_scorer {
    sfp__head_linear_map linear_map;
    double *weight, *bias, *centre; /* (D, rows) (rows) (D) */
    int64_t *label;                 /* (rows) */
    double scale;                   /* NAN: none */
    sfp__novelty novelty;
    size_t weight_capacity, row_capacity;
};

void sfp__head_scorer_free(sfp__head_scorer *s)
{
    if (!s)
        return;
    sfp__free(s->weight);
    sfp__free(s->bias);
    sfp__free(s->centre);
    sfp__free(s->label);
    sfp__novelty_done(&s->novelty);
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

sfp_status sfp__head_freeze(sfp__head *h, bool exact, sfp__head_scorer **scorer, sfp_error *err)
{
    TRY(sfp__check_memory(*scorer || (*scorer = sfp__calloc(1, sizeof **scorer)), err));
    sfp__head_scorer *s = *scorer;
    s->linear_map = (sfp__head_linear_map){.dim = h->opt.dim};
    s->scale = NAN;
    s->novelty.rows = 0;
    sfp__head_linear_map map = s->linear_map;
    exact = exact || h->inference_only;
    sfp_status status = sfp__head_refresh(h, exact, err);
    if (status || h->n == 0)
        return status;
    h->kind->linear_map(h, exact, &map); /* sets rows */
    TRY(reserve(s, (size_t)map.rows, (size_t)map.dim * (size_t)map.rows, (size_t)map.dim, err));
    map.weight = s->weight;
    map.bias = s->bias;
    map.centre = s->centre;
    memset(s->bias, 0, (size_t)map.rows * sizeof *s->bias);
    memset(s->centre, 0, (size_t)map.dim * sizeof *s->centre);
    memcpy(s->label, h->label, (size_t)map.rows * sizeof *s->label);
    h->kind->linear_map(h, exact, &map);
    if (exact && h->kind->novelty)
        TRY(sfp__novelty_copy(&s->novelty, h->kind->novelty(h), err));
    s->scale = sfp__head_scale(h, exact);
    s->linear_map = map;
    return SFP_OK;
}

double sfp__head_scorer_scale(const sfp__head_scorer *s)
{
    return s->scale;
}

float sfp__head_scorer_unknown(const sfp__head_scorer *s, const float *query, double *work)
{
    return sfp__novelty_score(&s->novelty, query + s->linear_map.dim - s->novelty.dim, work);
}

size_t sfp__head_scorer_work(const sfp__head_scorer *s)
{
    return (size_t)s->linear_map.rows;
}

void sfp__head_scorer_scores(const sfp__head_scorer *s, int n, const float *query, int classes, double *work, float *out)
{
    const sfp__head_linear_map *f = &s->linear_map;
    for (int i = 0; i < n; i++, query += f->dim, out += classes) {
        for (int c = 0; c < classes; c++)
            out[c] = -INFINITY;
        if (f->rows == 0)
            continue;
        memcpy(work, s->bias, (size_t)f->rows * sizeof *work);
        for (int k = 0; k < f->dim; k++) {
            const double *w = s->weight + (size_t)k * (size_t)f->rows;
            double x = (double)query[k] - s->centre[k];
            for (int r = 0; r < f->rows; r++)
                work[r] += x * w[r];
        }
        sfp__head_log_softmax(f->rows, s->label, work, classes, out);
    }
}
