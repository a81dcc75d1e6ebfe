#include "select/cover.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = SFP_COVER_BLOCK, GRAIN = 256 };

sfp_status sfp__cover_init(sfp__cover *c, const sfp__select_env *env, int n, int dim, const float *x, int most, sfp_error *err)
{
    size_t rows = (size_t)n, workers = (size_t)sfp__select_workers(env);
    *c = (sfp__cover){.env = env, .n = n, .dim = dim, .x = x, .most = most};
    const sfp__want list[] = {{&c->near2, rows, sizeof *c->near2},
                              {&c->applied, rows, sizeof *c->applied},
                              {&c->chosen, (size_t)most, sizeof *c->chosen},
                              {&c->square, rows, sizeof *c->square},
                              {&c->recent, BLOCK * (size_t)dim, sizeof *c->recent},
                              {&c->product, workers * GRAIN * BLOCK, sizeof *c->product}};
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    for (int i = 0; i < n; i++) {
        const float *row = x + (size_t)i * (size_t)dim;
        c->near2[i] = INFINITY;
        c->applied[i] = 0;
        c->square[i] = sfp__dot(dim, row, row);
    }
    return SFP_OK;
}

double sfp__cover_now(sfp__cover *c, int i)
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
    sfp__cover *c = ctx;
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

/* All distances up to date. */
static void refresh(sfp__cover *c)
{
    if (c->count == c->base)
        return;
    sfp__select_each(c->env, (c->n + GRAIN - 1) / GRAIN, refresh_piece, c);
    c->base = c->count;
    sfp__select_report_progress(c->env, "picks", c->count, c->most);
}

bool sfp__cover_add(sfp__cover *c, int i)
{
    memcpy(c->recent + (size_t)(c->count - c->base) * (size_t)c->dim, c->x + (size_t)i * (size_t)c->dim,
           (size_t)c->dim * sizeof(float));
    c->chosen[c->count++] = i;
    if (c->count - c->base < BLOCK)
        return false;
    refresh(c);
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

/* --------------------------------------------------------------- D^2 sampling */

enum { PATIENCE = 32 }; /* proposals refused before the weights are brought up to date */

typedef struct sampler {
    sfp__cover cover;
    bool cosine;
    double *bound; /* (n) weight when the sums were made */
    double *sum;   /* (n) running sums of bound */
    bool *taken;   /* (n) */
} sampler;

static double weight_of(const sampler *s, int i, double near2)
{
    if (s->taken[i])
        return 0;
    return s->cosine ? 0.25 * near2 * near2 : near2; /* cosine distance is near2 / 2 */
}

static void make_sums(sampler *s)
{
    double total = 0;
    refresh(&s->cover);
    for (int i = 0; i < s->cover.n; i++)
        s->sum[i] = total += s->bound[i] = weight_of(s, i, s->cover.near2[i]);
}

/* The first index whose running sum exceeds u * total. */
static int propose(const sampler *s, double u)
{
    int low = 0, high = s->cover.n - 1;
    double at = u * s->sum[high];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->sum[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int any_left(const sampler *s, sfp__rng *rng)
{
    int k = (int)sfp__rng_below(rng, (uint32_t)(s->cover.n - s->cover.count)), i = 0;
    for (;; i++)
        if (!s->taken[i] && k-- == 0)
            return i;
}

static int draw(sampler *s, sfp__rng *rng)
{
    for (int refused = 0;; refused++) {
        if (refused == PATIENCE) /* with weights that are up to date the next proposal is taken */
            make_sums(s);
        if (!(s->sum[s->cover.n - 1] > 0))
            return any_left(s, rng);
        int i = propose(s, sfp__rng_double(rng));
        double u = sfp__rng_double(rng);
        if (u * s->bound[i] < weight_of(s, i, sfp__cover_now(&s->cover, i)))
            return i;
    }
}

sfp_status sfp__d2_sample(const sfp__select_env *env, int n, int dim, const float *x, bool cosine, int count, int *out,
                          sfp_error *err)
{
    if (count < 1)
        return SFP_OK;
    sampler s = {.cosine = cosine};
    TRY(sfp__cover_init(&s.cover, env, n, dim, x, count, err));
    const sfp__want list[] = {
        {&s.bound, (size_t)n, sizeof *s.bound}, {&s.sum, (size_t)n, sizeof *s.sum}, {&s.taken, (size_t)n, sizeof *s.taken}};
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    memset(s.taken, 0, (size_t)n * sizeof *s.taken);
    for (int k = 0; k < count; k++) {
        int i = k == 0 ? (int)sfp__rng_below(env->rng, (uint32_t)n) : draw(&s, env->rng);
        s.taken[i] = true;
        out[k] = i;
        if (sfp__cover_add(&s.cover, i) || k == 0)
            make_sums(&s);
    }
    return SFP_OK;
}
