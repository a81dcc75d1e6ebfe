#include "select/cover.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = SFP__COVER_BLOCK, GRAIN = 256 };

sfp_status sfp__cover_init(sfp__cover *c, const sfp__select_env *env, int n, int dim, const float *x, int max_picks,
                           sfp_error *err)
{
    size_t rows = (size_t)n, workers = (size_t)sfp__select_workers(env);
    *c = (sfp__cover){.env = env, .n = n, .dim = dim, .x = x, .max_picks = max_picks};
    const sfp__want list[] = {{&c->near2, rows, sizeof *c->near2},
                              {&c->applied, rows, sizeof *c->applied},
                              {&c->chosen, (size_t)max_picks, sizeof *c->chosen},
                              {&c->square, rows, sizeof *c->square},
                              {&c->recent, BLOCK * (size_t)dim, sizeof *c->recent},
                              {&c->product, workers * GRAIN * BLOCK, sizeof *c->product}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    for (int i = 0; i < n; i++) {
        const float *row = x + (size_t)i * (size_t)dim;
        c->near2[i] = INFINITY;
        c->applied[i] = 0;
        c->square[i] = sfp__dot(dim, row, row);
    }
    return SFP_OK;
}

double sfp__cover_update(sfp__cover *c, int i)
{
    const float *row = c->x + (size_t)i * (size_t)c->dim;
    for (int k = c->applied[i]; k < c->count; k++)
        c->near2[i] = fmin(c->near2[i], sfp__distance2_f64(c->dim, row, c->x + (size_t)c->chosen[k] * (size_t)c->dim));
    c->applied[i] = c->count;
    return c->near2[i];
}

/* Compares the points from piece * GRAIN on with the recently chosen points. */
static void refresh_piece(void *ctx, int piece, int worker)
{
    sfp__cover *c = ctx;
    int first = piece * GRAIN, rows = c->n - first < GRAIN ? c->n - first : GRAIN, pending = c->count - c->compared;
    float *product = c->product + (size_t)worker * GRAIN * BLOCK;
    /* rounding error of two float sums of D products: each is at most D units of 6e-8 */
    float slack = (float)(c->dim + 8) * 1.2e-7f;
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, rows, pending, c->dim, c->x + (size_t)first * (size_t)c->dim, c->dim, c->recent, c->dim, 0,
                    product, BLOCK);
    sfp__gemm_leave(token);
    for (int r = 0; r < rows; r++) {
        int i = first + r;
        for (int k = c->applied[i] - c->compared; k < pending; k++) {
            int j = c->chosen[c->compared + k];
            float both = c->square[i] + c->square[j],
                  lower_bound = both - 2 * product[(size_t)r * BLOCK + (size_t)k] - slack * both;
            if (!((double)lower_bound >= c->near2[i])) /* also true if the product is NaN */
                c->near2[i] = fmin(c->near2[i], sfp__distance2_f64(c->dim, c->x + (size_t)i * (size_t)c->dim,
                                                                   c->recent + (size_t)k * (size_t)c->dim));
        }
        c->applied[i] = c->count;
    }
}

/* Brings all distances up to date. */
static void refresh(sfp__cover *c)
{
    if (c->count == c->compared)
        return;
    sfp__select_each(c->env, (c->n + GRAIN - 1) / GRAIN, refresh_piece, c);
    c->compared = c->count;
    sfp__select_report_progress(c->env, "picks", c->count, c->max_picks);
}

bool sfp__cover_add(sfp__cover *c, int i)
{
    memcpy(c->recent + (size_t)(c->count - c->compared) * (size_t)c->dim, c->x + (size_t)i * (size_t)c->dim,
           (size_t)c->dim * sizeof(float));
    c->chosen[c->count++] = i;
    if (c->count - c->compared < BLOCK)
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

enum { PATIENCE = 32 }; /* number of rejected proposals after which the weights are brought up to date */

typedef struct sampler {
    sfp__cover cover;
    bool cosine;
    double *bound; /* (n) weight at the last make_sums */
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

/* Returns the first index whose running sum exceeds u * total. */
static int propose(const sampler *s, double u)
{
    int low = 0, high = s->cover.n - 1;
    double target = u * s->sum[high];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->sum[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int draw_unchosen(const sampler *s, sfp__rng *rng)
{
    int k = (int)sfp__rng_below(rng, (uint32_t)(s->cover.n - s->cover.count)), i = 0;
    for (;; i++)
        if (!s->taken[i] && k-- == 0)
            return i;
}

static int draw_next(sampler *s, sfp__rng *rng)
{
    for (int rejected = 0;; rejected++) {
        if (rejected == PATIENCE) /* with current weights the next proposal is accepted */
            make_sums(s);
        if (!(s->sum[s->cover.n - 1] > 0))
            return draw_unchosen(s, rng);
        int i = propose(s, sfp__rng_double(rng));
        double u = sfp__rng_double(rng);
        if (u * s->bound[i] < weight_of(s, i, sfp__cover_update(&s->cover, i)))
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
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    memset(s.taken, 0, (size_t)n * sizeof *s.taken);
    for (int k = 0; k < count; k++) {
        int i = k == 0 ? (int)sfp__rng_below(env->rng, (uint32_t)n) : draw_next(&s, env->rng);
        s.taken[i] = true;
        out[k] = i;
        if (sfp__cover_add(&s.cover, i) || k == 0)
            make_sums(&s);
    }
    return SFP_OK;
}
