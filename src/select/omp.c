#include "select/omp.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 512, GRAM_GRAIN = 1024, REFRESH = 64 };

typedef struct pursuit {
    const sfp__select_env *env;
    const sfp__metric *m;
    int n, C, D, max_picks;
    int picked;
    int *pick;      /* (max_picks) positions of the picks; a column of the fit is an index into this array */
    bool *is_pick;  /* (n) */
    double *corr;   /* (n) <g_i, residual> */
    double *target; /* (C, D+1) sum of all gradients */
    sfp__nnls fit;
    /* gram */
    bool use_gram;
    double *start; /* (n) correlations before the first pick, <g_i, target> */
    double *gram;  /* (max_picks, n) products of each pick with every sample */
    /* factored */
    double *base;    /* (C, D+1) residual at the weights base_w */
    double *base_w;  /* (max_picks) weights when `base` was computed */
    int refreshed;   /* number of picks when `base` was computed */
    float *pick_h;   /* (max_picks, D+1) features of the picks, each followed by 1 */
    float *scaled_r; /* (max_picks, C) residuals of the picks times the change of their weights */
    float *residual; /* (C, D) current residual without its last column */
    float *bias;     /* (C) last column of the residual */
    float *change;   /* (C, D+1) change of the residual since `base` */
    float *product;  /* (workers, GRAIN, C) */
    int gram_of;     /* arguments of gram_piece: the column whose products are computed, the others, their number, the result */
    const int *gram_others;
    int gram_count;
    double *gram_out;
} pursuit;

static const float *h_of(const pursuit *p, int i)
{
    return p->m->h + (size_t)i * (size_t)p->D;
}

static const float *r_of(const pursuit *p, int i)
{
    return p->m->r + (size_t)i * (size_t)p->C;
}

/* --------------------------------------------------------------------- memory */

static sfp_status init(pursuit *p, const sfp__columns *columns, sfp_error *err)
{
    size_t n = (size_t)p->n, c = (size_t)p->max_picks, C = (size_t)p->C, D = (size_t)p->D;
    size_t workers = (size_t)sfp__select_workers(p->env);
    const sfp__want both[] = {{&p->pick, c, sizeof *p->pick},
                              {&p->is_pick, n, sizeof *p->is_pick},
                              {&p->corr, n, sizeof *p->corr},
                              {&p->target, C * (D + 1), sizeof *p->target}};
    const sfp__want kept[] = {{&p->start, n, sizeof *p->start}, {&p->gram, c * n, sizeof *p->gram}};
    const sfp__want factored[] = {
        {&p->base, C * (D + 1), sizeof *p->base},     {&p->base_w, c, sizeof *p->base_w},
        {&p->pick_h, c * (D + 1), sizeof *p->pick_h}, {&p->scaled_r, c * C, sizeof *p->scaled_r},
        {&p->residual, C * D, sizeof *p->residual},   {&p->bias, C, sizeof *p->bias},
        {&p->change, C * (D + 1), sizeof *p->change}, {&p->product, workers * GRAIN * C, sizeof *p->product}};
    TRY(sfp__arena_list(p->env->arena, SFP__LIST(both), err));
    TRY(p->use_gram ? sfp__arena_list(p->env->arena, SFP__LIST(kept), err)
                    : sfp__arena_list(p->env->arena, SFP__LIST(factored), err));
    TRY(sfp__nnls_init(&p->fit, p->env, columns, p->max_picks, SFP__OMP_RIDGE, err));
    memset(p->is_pick, 0, n * sizeof *p->is_pick);
    return SFP_OK;
}

/* --------------------------------------------------------- sums of gradients */

/* Adds row c of the gradient of sample i, times f: to += f * r_c * (h, 1). */
static void add_row(const pursuit *p, int i, int c, double f, double *to)
{
    const float *h = h_of(p, i);
    double part = f * (double)r_of(p, i)[c];
    for (int k = 0; k < p->D; k++)
        to[k] += part * (double)h[k];
    to[p->D] += part;
}

static void target_piece(void *ctx, int c, int worker)
{
    pursuit *p = ctx;
    double *row = p->target + (size_t)c * (size_t)(p->D + 1);
    (void)worker;
    memset(row, 0, (size_t)(p->D + 1) * sizeof *row);
    for (int i = 0; i < p->n; i++)
        add_row(p, i, c, 1, row);
}

static void base_piece(void *ctx, int c, int worker)
{
    pursuit *p = ctx;
    size_t width = (size_t)p->D + 1;
    double *row = p->base + (size_t)c * width;
    (void)worker;
    memcpy(row, p->target + (size_t)c * width, width * sizeof *row);
    for (int k = 0; k < p->picked; k++)
        if (p->base_w[k] != 0)
            add_row(p, p->pick[k], c, -p->base_w[k], row);
}

/* Returns <g_i, target>, computed in double. */
static double correlate_with_target(const pursuit *p, int i)
{
    const float *h = h_of(p, i), *r = r_of(p, i);
    double sum = 0;
    for (int c = 0; c < p->C; c++) {
        const double *row = p->target + (size_t)c * (size_t)(p->D + 1);
        double part = row[p->D];
        for (int k = 0; k < p->D; k++)
            part += row[k] * (double)h[k];
        sum += (double)r[c] * part;
    }
    return sum;
}

/* ---------------------------------------------------------------- correlations */

static void gram_correlations(pursuit *p)
{
    size_t n = (size_t)p->n;
    memcpy(p->corr, p->start, n * sizeof *p->corr);
    for (int k = 0; k < p->picked; k++) {
        const double *line = p->gram + (size_t)k * n;
        double w = p->fit.w[k];
        for (size_t i = 0; w != 0 && i < n; i++)
            p->corr[i] -= w * line[i];
    }
}

static void correlation_piece(void *ctx, int piece, int worker)
{
    pursuit *p = ctx;
    int first = piece * GRAIN, rows = p->n - first < GRAIN ? p->n - first : GRAIN;
    float *product = p->product + (size_t)worker * GRAIN * (size_t)p->C;
    int token = sfp__gemm_enter();
    for (int i = 0; i < rows; i++)
        memcpy(product + (size_t)i * (size_t)p->C, p->bias, (size_t)p->C * sizeof *product);
    sfp__gemm_plain(false, true, rows, p->C, p->D, h_of(p, first), p->D, p->residual, p->D, 1, product, p->C);
    sfp__gemm_leave(token);
    for (int i = 0; i < rows; i++)
        p->corr[first + i] = (double)sfp__dot(p->C, r_of(p, first + i), product + (size_t)i * (size_t)p->C);
}

/* Computes the residual at the current weights from `base` and the change of the weights since then. */
static void update_residual(pursuit *p)
{
    size_t width = (size_t)p->D + 1, C = (size_t)p->C;
    if (p->picked == 0 || p->picked - p->refreshed >= REFRESH) {
        memcpy(p->base_w, p->fit.w, (size_t)p->picked * sizeof *p->base_w);
        p->refreshed = p->picked;
        sfp__select_each(p->env, p->C, base_piece, p);
        memset(p->change, 0, C * width * sizeof *p->change);
    } else {
        for (int k = 0; k < p->picked; k++) {
            float *to = p->scaled_r + (size_t)k * C;
            const float *r = r_of(p, p->pick[k]);
            float f = (float)(p->fit.w[k] - (k < p->refreshed ? p->base_w[k] : 0));
            for (size_t c = 0; c < C; c++)
                to[c] = f * r[c];
        }
        int token = sfp__gemm_enter();
        sfp__gemm_plain(true, false, p->C, (int)width, p->picked, p->scaled_r, p->C, p->pick_h, (int)width, 0, p->change,
                        (int)width);
        sfp__gemm_leave(token);
    }
    for (size_t c = 0; c < C; c++) {
        const double *base = p->base + c * width;
        const float *change = p->change + c * width;
        for (size_t k = 0; k + 1 < width; k++)
            p->residual[c * (width - 1) + k] = (float)(base[k] - (double)change[k]);
        p->bias[c] = (float)(base[width - 1] - (double)change[width - 1]);
    }
}

/* Computes the correlations of all samples with the residual. */
static void compute_correlations(pursuit *p)
{
    if (p->use_gram) {
        gram_correlations(p);
        return;
    }
    update_residual(p);
    sfp__select_each(p->env, (p->n + GRAIN - 1) / GRAIN, correlation_piece, p);
}

/* ------------------------------------------------------------ callbacks of the fit */

static void gram_piece(void *ctx, int piece, int worker)
{
    pursuit *p = ctx;
    sfp__points all = sfp__metric_points(p->m, 0, p->n);
    int end = (piece + 1) * GRAM_GRAIN < p->gram_count ? (piece + 1) * GRAM_GRAIN : p->gram_count;
    (void)worker;
    for (int t = piece * GRAM_GRAIN; t < end; t++)
        p->gram_out[t] = sfp__metric_product(p->m, &all, p->pick[p->gram_of], &all, p->pick[p->gram_others[t]]);
}

static void compute_gram(void *ctx, int c, int n, const int *others, double *out)
{
    pursuit *p = ctx;
    for (int t = 0; p->use_gram && t < n; t++)
        out[t] = p->gram[(size_t)c * (size_t)p->n + (size_t)p->pick[others[t]]];
    if (p->use_gram)
        return;
    p->gram_of = c;
    p->gram_others = others;
    p->gram_count = n;
    p->gram_out = out;
    sfp__select_each(p->env, (n + GRAM_GRAIN - 1) / GRAM_GRAIN, gram_piece, p);
}

/* A column in the factor has correlation ridge * w. Values that are small compared with the largest of these are noise. */
static double noise_of(const pursuit *p, const sfp__nnls *fit)
{
    double largest = 0;
    for (int k = 0; k < fit->known; k++)
        largest = fmax(largest, fabs(fit->w[k]));
    return (p->use_gram ? 1e-10 : 1e-5) * fit->ridge * largest;
}

static double correlate(void *ctx, const sfp__nnls *fit, int n, const int *which, double *out)
{
    pursuit *p = ctx;
    if (!p->use_gram)
        update_residual(p);
    for (int i = 0; i < n; i++) {
        int at = p->pick[which[i]];
        if (p->use_gram) {
            out[i] = p->start[at];
            for (int k = 0; k < fit->known; k++)
                out[i] -= fit->w[k] * p->gram[(size_t)which[i] * (size_t)p->n + (size_t)p->pick[k]];
        } else {
            double sum = 0;
            for (int c = 0; c < p->C; c++)
                sum += (double)r_of(p, at)[c] *
                       ((double)p->bias[c] + (double)sfp__dot(p->D, h_of(p, at), p->residual + (size_t)c * (size_t)p->D));
            out[i] = sum;
        }
    }
    return noise_of(p, fit);
}

/* ----------------------------------------------------------------------- steps */

/* Makes sample i column `picked` of the fit. */
static void add_pick(pursuit *p, int i)
{
    int k = p->picked++;
    p->pick[k] = i;
    p->is_pick[i] = true;
    if (p->use_gram) {
        sfp__points all = sfp__metric_points(p->m, 0, p->n);
        for (int j = 0; j < p->n; j++)
            p->gram[(size_t)k * (size_t)p->n + (size_t)j] = sfp__metric_product(p->m, &all, i, &all, j);
    } else {
        float *h = p->pick_h + (size_t)k * (size_t)(p->D + 1);
        memcpy(h, h_of(p, i), (size_t)p->D * sizeof *h);
        h[p->D] = 1;
    }
    sfp__nnls_add(&p->fit, p->use_gram ? p->start[i] : correlate_with_target(p, i));
}

static int find_largest_correlation(const pursuit *p)
{
    int best = -1;
    for (int i = 0; i < p->n; i++)
        if (!p->is_pick[i] && p->corr[i] > (best < 0 ? 0 : p->corr[best]))
            best = i;
    return best;
}

sfp_status sfp__omp(const sfp__select_env *env, const sfp__metric *m, size_t max_gram, int count, int *out, double *weight,
                    int *got, sfp_error *err)
{
    pursuit p = {.env = env, .m = m, .n = m->n, .C = m->classes, .D = m->dim, .max_picks = count};
    p.use_gram = (size_t)m->n * (size_t)count <= max_gram;
    *got = 0;
    if (count < 1)
        return SFP_OK;
    const sfp__columns columns = {.ctx = &p, .gram = compute_gram, .correlate = correlate};
    TRY(init(&p, &columns, err));
    sfp__select_each(env, p.C, target_piece, &p);
    for (int i = 0; p.use_gram && i < p.n; i++)
        p.start[i] = correlate_with_target(&p, i);
    while (p.picked < count) {
        compute_correlations(&p);
        int best = find_largest_correlation(&p);
        if (best < 0)
            break;
        add_pick(&p, best);
        sfp__select_report_progress(env, "picks", p.picked, count);
    }
    for (int k = 0; k < p.picked; k++) {
        out[k] = p.pick[k];
        weight[k] = p.fit.w[k];
    }
    *got = p.picked;
    return SFP_OK;
}
