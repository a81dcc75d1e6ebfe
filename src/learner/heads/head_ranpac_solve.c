/* The derived part of RanPAC (head_ranpac.c has the formulas): the choice of lambda on held-out samples, the factors, the
 * weights.
 *
 * All functions work in memory that was reserved when the head was created. Only the numerics can fail; lambda is then raised. */
#include "compute/gemm.h"
#include "learner/heads/cholesky.h"
#include "learner/heads/head_ranpac.h"

#include <math.h>
#include <string.h>

enum { GRAIN = SFP__RANPAC_GRAIN };
enum { DECADES_BELOW = 6, DECADES_ABOVE = 3, DECADES = DECADES_BELOW + 1 + DECADES_ABOVE };
enum { WHOLE_GRID = 512 }; /* largest number of unknowns for which every lambda is tried */

/* ------------------------------------------------------- lambda, held-out error */

/* A ridge regression fitted without the held-out samples, with `a` unknowns: (A + lambda I) X^T = B^T, tested on T. While the
 * base is empty, A = Phi Phi^T over samples and T has their products with the held-out samples; else A = G and T = Phi_held. */
typedef struct trial {
    sfp__ranpac *m;
    int a;
    const float *gram; /* (a, a) A, lower triangle */
    const float *b;    /* (classes, M) B; NULL: one-hot labels of the samples that are not held out */
    const float *test; /* (held, a) T */
    int held;
    float *work;           /* (a, a) */
    double middle;         /* lambda of index DECADES_BELOW */
    double error[DECADES]; /* NAN: not tried */
    int last;              /* index of the lambda whose predictions are in m->dual */
} trial;

static double lambda_of(const trial *t, int index)
{
    return t->middle * pow(10, index - DECADES_BELOW);
}

static void fill_right_side(const trial *t)
{
    sfp__ranpac *m = t->m;
    for (int r = 0; r < m->base.rows; r++) {
        float *x = m->weight + (size_t)r * (size_t)m->side;
        if (t->b) {
            memcpy(x, t->b + (size_t)r * (size_t)m->width, (size_t)t->a * sizeof *x);
            continue;
        }
        for (int i = 0; i < m->recent; i++)
            if (m->slot[i] < 0)
                *x++ = m->row[i] == r ? 1.0f : 0.0f;
    }
}

/* Writes the predictions for the held-out samples to m->dual (classes, held). Returns the squared error; INFINITY: lambda is too
 * small. */
static double fit(const trial *t, double lambda)
{
    sfp__ranpac *m = t->m;
    int rows = m->base.rows, a = t->a;
    for (size_t i = 0; i < (size_t)a; i++) {
        memcpy(t->work + i * (size_t)a, t->gram + i * (size_t)a, (i + 1) * sizeof *t->work);
        t->work[i * (size_t)a + i] += (float)lambda;
    }
    if (!sfp__cholesky(a, t->work, a))
        return INFINITY;
    fill_right_side(t);
    sfp__cholesky_forward(rows, a, t->work, a, m->weight, m->side);
    sfp__cholesky_backward(rows, a, t->work, a, m->weight, m->side);
    sfp__gemm_plain(false, true, rows, t->held, a, m->weight, m->side, t->test, a, 0.0f, m->dual, m->cap);
    double error = 0;
    for (int i = 0, k = 0; i < m->recent; i++) {
        if (m->slot[i] < 0)
            continue;
        for (int r = 0; r < rows; r++) {
            double e = (double)m->dual[(size_t)r * (size_t)m->cap + (size_t)k] - (m->row[i] == r ? 1 : 0);
            error += e * e;
        }
        k++;
    }
    return isfinite(error) ? error : INFINITY;
}

static double error_at(trial *t, int index)
{
    if (isnan(t->error[index])) {
        t->error[index] = fit(t, lambda_of(t, index));
        t->last = index;
    }
    return t->error[index];
}

/* Returns the index with the smallest error: of all, or the nearest minimum downhill from `from`. */
static int find_best_lambda(trial *t, int from)
{
    int best = from;
    if (t->a <= WHOLE_GRID) {
        for (int i = 0; i < DECADES; i++)
            best = error_at(t, i) < error_at(t, best) ? i : best;
        return best;
    }
    while (best + 1 < DECADES && isinf(error_at(t, best))) /* the factorisation fails in float */
        best++;
    while (best + 1 < DECADES && error_at(t, best + 1) < error_at(t, best))
        best++;
    if (best == from)
        while (best > 0 && error_at(t, best - 1) < error_at(t, best))
            best--;
    return best;
}

/* ------------------------------------------------------ scale of the outputs */

/* Computes the cross-entropy of softmax(scale * predictions) on the held-out samples. A prior with the strength of a few samples
 * keeps the scale moderate if there are few samples or all predictions are correct. */
static double scale_loss(const sfp__ranpac *m, double scale)
{
    double loss = 2 * log(scale / 10) * log(scale / 10);
    for (int i = 0, k = 0; i < m->recent; i++) {
        if (m->slot[i] < 0)
            continue;
        const float *y = m->dual + k++; /* the prediction of class r is y[r * cap] */
        double top = -INFINITY, sum = 0;
        for (int r = 0; r < m->base.rows; r++)
            top = fmax(top, (double)y[(size_t)r * (size_t)m->cap]);
        for (int r = 0; r < m->base.rows; r++)
            sum += exp(scale * ((double)y[(size_t)r * (size_t)m->cap] - top));
        loss += scale * (top - (double)y[(size_t)m->row[i] * (size_t)m->cap]) + log(sum);
    }
    return loss;
}

static double best_scale(const sfp__ranpac *m)
{
    double best = INFINITY, choice = 10;
    for (int i = -3; i <= 6; i++) { /* 10 * sqrt(2)^i: 3.5 to 80 */
        double scale = 10 * exp2(0.5 * i), loss = scale_loss(m, scale);
        if (loss < best) {
            best = loss;
            choice = scale;
        }
    }
    return choice;
}

/* Returns the power of ten nearest to x; 1 if x is zero or not finite (for example if all features are zero). */
static double decade(double x)
{
    return x > 1e-30 && isfinite(x) ? pow(10, round(log10(x))) : 1;
}

static void choose_lambda(sfp__ranpac *m)
{
    trial t = {.m = m, .last = -1};
    int w = m->width;
    double samples;
    if (sfp__ranpac_has_base(m)) {
        sfp__ranpac_fold(m);
        t.held = sfp__ranpac_project_recent(m, true, m->z);
        t.a = w;
        t.gram = m->gram;
        t.b = m->target;
        t.test = m->z;
        t.work = m->factor;
        samples = (double)m->counter[SFP__RANPAC_FOLDED];
    } else { /* uses the memory of the (M, M) matrices, which are not in use yet */
        t.a = sfp__ranpac_project_recent(m, false, m->z);
        float *held = m->z + (size_t)t.a * (size_t)w;
        t.held = sfp__ranpac_project_recent(m, true, held);
        if (t.a > 0) {
            sfp__gemm_plain(false, true, t.a, t.a, w, m->z, w, m->z, w, 0.0f, m->factor, t.a);
            sfp__gemm_plain(false, true, t.held, t.a, w, held, w, m->z, w, 0.0f, m->gram, t.a);
        }
        t.gram = m->factor;
        t.test = m->gram;
        t.work = m->small;
        samples = t.a;
    }
    m->counter[SFP__RANPAC_NEXT_CHOICE] = 2 * m->base.n;
    m->factored = false;
    m->done = 0;
    if (t.a == 0 || t.held == 0)
        return;
    double trace = 0;
    for (size_t i = 0; i < (size_t)t.a; i++)
        trace += (double)t.gram[i * (size_t)t.a + i];
    t.middle = decade(trace / samples);
    for (int i = 0; i < DECADES; i++)
        t.error[i] = NAN;
    int from = DECADES_BELOW - 2;
    if (m->strength[SFP__RANPAC_LAMBDA] > 0)
        from = (int)fmin(fmax(round(log10(m->strength[SFP__RANPAC_LAMBDA] / t.middle)) + DECADES_BELOW, 0), DECADES - 1);
    int best = find_best_lambda(&t, from);
    m->strength[SFP__RANPAC_LAMBDA] = lambda_of(&t, best);
    if (isinf(t.error[best]))
        return;
    if (t.last != best)
        (void)fit(&t, lambda_of(&t, best));
    m->strength[SFP__RANPAC_SCALE] = best_scale(m);
}

/* Sets lambda before there are held-out samples: a hundredth of the mean |phi|^2 of the first samples. */
static void guess_lambda(sfp__ranpac *m)
{
    int n = m->recent < GRAIN ? m->recent : GRAIN;
    size_t count = (size_t)n * (size_t)m->width;
    double sum = 0;
    sfp__ranpac_project(m, n, m->query, m->z);
    for (size_t i = 0; i < count; i++)
        sum += (double)m->z[i] * (double)m->z[i];
    m->strength[SFP__RANPAC_LAMBDA] = decade(0.01 * sum / (n > 0 ? n : 1));
    m->done = 0;
}

/* ------------------------------------------------------------------ factors */

static void scale_rows(size_t count, float by, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= by;
}

/* Computes L of the base and U. The base may be empty. */
static bool factor_base(sfp__ranpac *m)
{
    int w = m->width, rows = m->base.rows;
    size_t width = (size_t)w;
    if (!m->factored) {
        if (sfp__ranpac_has_base(m)) {
            for (size_t i = 0; i < width; i++) {
                memcpy(m->factor + i * width, m->gram + i * width, (i + 1) * sizeof *m->factor);
                m->factor[i * width + i] += (float)m->strength[SFP__RANPAC_LAMBDA];
            }
            if (!sfp__cholesky(w, m->factor, w))
                return false;
        }
        m->factored = true;
        m->start_rows = 0;
        m->done = 0;
    }
    if (sfp__ranpac_has_base(m) && m->start_rows != rows) { /* all rows at once, so that the bytes depend only on their number */
        memcpy(m->start, m->target, (size_t)rows * width * sizeof *m->start);
        sfp__cholesky_forward(rows, w, m->factor, w, m->start, w);
        m->start_rows = rows;
    }
    return true;
}

/* Computes Z and F. Complete grains are kept; an incomplete one is recomputed when it has grown. */
static bool factor_recent(sfp__ranpac *m)
{
    int w = m->width, d = m->base.opt.dim;
    for (int r = m->done; r < m->recent; r += GRAIN) {
        int n = m->recent - r < GRAIN ? m->recent - r : GRAIN;
        float *z = m->z + (size_t)r * (size_t)w, *f = m->small + (size_t)r * (size_t)m->cap;
        sfp__ranpac_project(m, n, m->query + (size_t)r * (size_t)d, z);
        if (sfp__ranpac_has_base(m))
            sfp__cholesky_forward(n, w, m->factor, w, z, w);
        else
            scale_rows((size_t)n * (size_t)w, (float)(1 / sqrt(m->strength[SFP__RANPAC_LAMBDA])), z);
        sfp__gemm_plain(false, true, n, r + n, w, z, w, m->z, w, 0.0f, f, m->cap);
        for (int i = 0; i < n; i++)
            f[(size_t)i * (size_t)m->cap + (size_t)(r + i)] += 1;
        if (!sfp__cholesky_append(r, n, m->small, m->cap))
            return false;
        if (n == GRAIN)
            m->done = r + GRAIN;
    }
    return true;
}

static void solve_weights(sfp__ranpac *m)
{
    int w = m->width, rows = m->base.rows, p = m->recent;
    size_t row = (size_t)w * sizeof *m->weight;
    bool base = sfp__ranpac_has_base(m);
    if (base && p > 0)
        sfp__gemm_plain(false, true, rows, p, w, m->start, w, m->z, w, 0.0f, m->dual, m->cap);
    for (int r = 0; r < rows; r++) {
        float *e = m->dual + (size_t)r * (size_t)m->cap, *x = m->weight + (size_t)r * (size_t)m->side;
        for (int i = 0; i < p; i++)
            e[i] = (m->row[i] == r ? 1.0f : 0.0f) - (base ? e[i] : 0.0f);
        if (base)
            memcpy(x, m->start + (size_t)r * (size_t)w, row);
        else
            memset(x, 0, row);
    }
    if (p > 0) {
        sfp__cholesky_forward(rows, p, m->small, m->cap, m->dual, m->cap);
        sfp__cholesky_backward(rows, p, m->small, m->cap, m->dual, m->cap);
        sfp__gemm_plain(false, false, rows, w, p, m->dual, m->cap, m->z, w, 1.0f, m->weight, m->side);
    }
    if (base) {
        sfp__cholesky_backward(rows, w, m->factor, w, m->weight, m->side);
        return;
    }
    for (int r = 0; r < rows; r++)
        scale_rows((size_t)w, (float)(1 / sqrt(m->strength[SFP__RANPAC_LAMBDA])), m->weight + (size_t)r * (size_t)m->side);
}

sfp_status sfp__ranpac_solve(sfp__ranpac *m, sfp_error *err)
{
    if (m->base.n >= m->counter[SFP__RANPAC_NEXT_CHOICE])
        choose_lambda(m);
    if (m->strength[SFP__RANPAC_LAMBDA] <= 0)
        guess_lambda(m);
    while (!factor_base(m) || !factor_recent(m)) {
        m->strength[SFP__RANPAC_LAMBDA] *= 10;
        m->factored = false;
        m->done = 0;
        if (m->strength[SFP__RANPAC_LAMBDA] > 1e36)
            return sfp__fail(err, SFP_EINVAL, "head ranpac: the system of %lld samples is singular for every lambda",
                             (long long)m->base.n);
    }
    solve_weights(m);
    m->solved = m->base.n;
    return SFP_OK;
}
