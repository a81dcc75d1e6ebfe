#include "select/cover.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = SFP_COVER_BLOCK, GRAIN = 256 };

sfp_status sfp__cover_init(sfp_cover *c, const sfp_select_env *env, int n, int dim, const float *x, int most, sfp_error *err)
{
    size_t rows = (size_t)n, workers = (size_t)sfp__select_workers(env);
    *c = (sfp_cover){.env = env, .n = n, .dim = dim, .x = x, .most = most};
    const sfp_want list[] = {{&c->near2, rows, sizeof *c->near2},
                             {&c->applied, rows, sizeof *c->applied},
                             {&c->chosen, (size_t)most, sizeof *c->chosen},
                             {&c->square, rows, sizeof *c->square},
                             {&c->recent, BLOCK * (size_t)dim, sizeof *c->recent},
                             {&c->product, workers * GRAIN * BLOCK, sizeof *c->product}};
    sfp_status s = sfp__arena_list(env->arena, SFP_LIST(list), err);
    if (s)
        return s;
    for (int i = 0; i < n; i++) {
        const float *row = x + (size_t)i * (size_t)dim;
        c->near2[i] = INFINITY;
        c->applied[i] = 0;
        c->square[i] = sfp__dot(dim, row, row);
    }
    return SFP_OK;
}

double sfp__cover_now(sfp_cover *c, int i)
{
    const float *row = c->x + (size_t)i * (size_t)c->dim;
    for (int k = c->applied[i]; k < c->count; k++)
        c->near2[i] = fmin(c->near2[i], sfp__distance2_f64(c->dim, row, c->x + (size_t)c->chosen[k] * (size_t)c->dim));
    c->applied[i] = c->count;
    return c->near2[i];
}

/* Points [piece * GRAIN, ...) against the recent ones. */
static void refresh_piece(void *ctx, int piece, int worker)
{
    sfp_cover *c = ctx;
    int first = piece * GRAIN, rows = c->n - first < GRAIN ? c->n - first : GRAIN, pending = c->count - c->base;
    float *product = c->product + (size_t)worker * GRAIN * BLOCK;
    float slack = (float)(c->dim + 8) * 1.2e-7f; /* a float sum of D products is off by at most D units of 6e-8, twice over */
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, rows, pending, c->dim, c->x + (size_t)first * (size_t)c->dim, c->dim, c->recent, c->dim, 0,
                    product, BLOCK);
    sfp__gemm_leave(token);
    for (int r = 0; r < rows; r++) {
        int i = first + r;
        for (int k = c->applied[i] - c->base; k < pending; k++) {
            int j = c->chosen[c->base + k];
            float both = c->square[i] + c->square[j], at_least = both - 2 * product[(size_t)r * BLOCK + (size_t)k] - slack * both;
            if (!((double)at_least >= c->near2[i])) /* also when the product is not a number */
                c->near2[i] = fmin(c->near2[i], sfp__distance2_f64(c->dim, c->x + (size_t)i * (size_t)c->dim,
                                                                   c->recent + (size_t)k * (size_t)c->dim));
        }
        c->applied[i] = c->count;
    }
}

void sfp__cover_refresh(sfp_cover *c)
{
    if (c->count == c->base)
        return;
    sfp__select_each(c->env, (c->n + GRAIN - 1) / GRAIN, refresh_piece, c);
    c->base = c->count;
    sfp__select_tell(c->env, "picks", c->count, c->most);
}

bool sfp__cover_add(sfp_cover *c, int i)
{
    memcpy(c->recent + (size_t)(c->count - c->base) * (size_t)c->dim, c->x + (size_t)i * (size_t)c->dim,
           (size_t)c->dim * sizeof(float));
    c->chosen[c->count++] = i;
    if (c->count - c->base < BLOCK)
        return false;
    sfp__cover_refresh(c);
    return true;
}

void sfp__unit_rows(int n, int dim, float *x)
{
    for (int i = 0; i < n; i++) {
        float *row = x + (size_t)i * (size_t)dim;
        double norm = sqrt(sfp__dot_f64(dim, row, row));
        for (int k = 0; k < dim && norm > 0; k++)
            row[k] = (float)((double)row[k] / norm);
    }
}
