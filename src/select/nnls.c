#include "select/nnls.h"

#include <math.h>
#include <string.h>

enum { MAX_APPEND = SFP__NNLS_MAX_APPEND, PATIENCE = 3, ROUNDS = 200 };

sfp_status sfp__nnls_init(sfp__nnls *s, const sfp__select_env *env, const sfp__columns *columns, int max_columns, double ridge,
                          sfp_error *err)
{
    size_t n = (size_t)max_columns;
    *s = (sfp__nnls){.columns = *columns, .ridge = ridge};
    const sfp__want list[] = {{&s->column, n, sizeof *s->column},
                              {&s->place, n, sizeof *s->place},
                              {&s->rhs, n, sizeof *s->rhs},
                              {&s->w, n, sizeof *s->w},
                              {&s->l, n * (n + 1) / 2, sizeof *s->l},
                              {&s->y, n, sizeof *s->y},
                              {&s->z, n, sizeof *s->z},
                              {&s->sines, n, sizeof *s->sines},
                              {&s->corr, n, sizeof *s->corr},
                              {&s->products, n, sizeof *s->products},
                              {&s->out, n, sizeof *s->out},
                              {&s->in, n, sizeof *s->in}};
    return sfp__arena_list(env->arena, SFP__LIST(list), err);
}

/* ----------------------------------------------------------------- the factor */

static double *row(const sfp__nnls *s, int i)
{
    return s->l + (size_t)i * ((size_t)i + 1) / 2;
}

/* Uses four partial sums, because the compiler may not reorder a floating-point sum. */
static double dot(int n, const double *a, const double *b)
{
    double s[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            s[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Appends n columns to the factor. Each row of the factor is read once for all of them. */
static void append(sfp__nnls *s, int n, const int *columns)
{
    double *products[MAX_APPEND], self[MAX_APPEND];
    int p = s->passive;
    for (int r = 0; r < n; r++) {
        int c = columns[r];
        products[r] = row(s, p + r); /* holds the products first, then the solution */
        s->column[p + r] = c;
        s->place[c] = p + r;
        s->columns.gram(s->columns.ctx, c, p + r + 1, s->column, s->products); /* with the preceding columns and with itself */
        memcpy(products[r], s->products, (size_t)(p + r) * sizeof *s->products);
        self[r] = s->products[p + r];
    }
    for (int i = 0; i < p; i++) {
        const double *l = row(s, i);
        for (int r = 0; r < n; r++)
            products[r][i] = (products[r][i] - dot(i, l, products[r])) / l[i];
    }
    for (int r = 0; r < n; r++) {
        for (int i = p; i < p + r; i++)
            products[r][i] = (products[r][i] - dot(i, row(s, i), products[r])) / row(s, i)[i];
        double pivot = self[r] + s->ridge - dot(p + r, products[r], products[r]);
        products[r][p + r] = sqrt(fmax(pivot, 1e-6 * s->ridge)); /* the pivot is at least the ridge, except for rounding */
        s->y[p + r] = (s->rhs[columns[r]] - dot(p + r, products[r], s->y)) / products[r][p + r];
    }
    s->passive += n;
}

/* Removes row t of the factor. The rows below then have one number too many. Rotations of neighbouring columns shorten each of
 * them, and y, which is one more row of the same factor, is rotated too. */
static void remove_row(sfp__nnls *s, int t)
{
    double *cosine = s->z, *sine = s->sines;
    int p = s->passive;
    s->place[s->column[t]] = -1;
    for (int i = t + 1; i < p; i++) {
        double *l = row(s, i), carry = l[t];
        for (int m = t; m < i - 1; m++) {
            double next = l[m + 1];
            l[m] = cosine[m] * carry + sine[m] * next;
            carry = cosine[m] * next - sine[m] * carry;
        }
        double length = hypot(carry, l[i]);
        cosine[i - 1] = carry / length;
        sine[i - 1] = l[i] / length;
        l[i - 1] = length;
        memmove(row(s, i - 1), l, (size_t)i * sizeof *l);
        s->column[i - 1] = s->column[i];
        s->place[s->column[i]] = i - 1;
    }
    double carry = s->y[t];
    for (int m = t; m < p - 1; m++) {
        double next = s->y[m + 1];
        s->y[m] = cosine[m] * carry + sine[m] * next;
        carry = cosine[m] * next - sine[m] * carry;
    }
    s->passive--;
}

/* Solves for the weights of the factor's columns without the constraint; the other weights are 0. */
static void solve(sfp__nnls *s)
{
    double *z = s->z;
    memcpy(z, s->y, (size_t)s->passive * sizeof *z);
    for (int i = s->passive - 1; i >= 0; i--) {
        const double *l = row(s, i);
        double x = z[i] /= l[i];
        for (int j = 0; j < i; j++)
            z[j] -= l[j] * x;
    }
    for (int c = 0; c < s->known; c++)
        s->w[c] = s->place[c] < 0 ? 0 : z[s->place[c]];
}

/* ------------------------------------------------------------------- pivoting */

/* Finds the misplaced columns: passive ones with negative weight go to out[], others with positive correlation to in[]. */
static void find_misplaced(sfp__nnls *s, int *outs, int *ins)
{
    int outside = 0;
    *outs = *ins = 0;
    for (int c = 0; c < s->known; c++) {
        if (s->place[c] < 0)
            s->in[outside++] = c;
        else if (s->w[c] < 0)
            s->out[(*outs)++] = c;
    }
    if (outside == 0)
        return;
    double noise = s->columns.correlate(s->columns.ctx, s, outside, s->in, s->corr);
    for (int i = 0; i < outside; i++)
        if (s->corr[i] > noise)
            s->in[(*ins)++] = s->in[i];
}

static void exchange(sfp__nnls *s, int outs, int ins)
{
    for (int i = 0; i < outs; i++)
        remove_row(s, s->place[s->out[i]]);
    for (int i = 0; i < ins; i += MAX_APPEND)
        append(s, ins - i < MAX_APPEND ? ins - i : MAX_APPEND, s->in + i);
    solve(s);
}

/* Keeps only the last misplaced column. */
static void keep_last(sfp__nnls *s, int *outs, int *ins)
{
    int last_out = *outs ? s->out[*outs - 1] : -1, last_in = *ins ? s->in[*ins - 1] : -1;
    *outs = last_out > last_in;
    *ins = !*outs;
    if (*outs)
        s->out[0] = last_out;
    else
        s->in[0] = last_in;
}

void sfp__nnls_add(sfp__nnls *s, double rhs)
{
    int c = s->known++, outs = 0, ins = 0, min_misplaced = c + 2, patience = PATIENCE;
    s->rhs[c] = rhs;
    append(s, 1, &c);
    solve(s);
    for (int round = 0; round < ROUNDS; round++) {
        find_misplaced(s, &outs, &ins);
        if (outs + ins == 0)
            return;
        if (outs + ins < min_misplaced) {
            min_misplaced = outs + ins;
            patience = PATIENCE;
        } else if (patience-- <= 0) {
            keep_last(s, &outs, &ins);
        }
        exchange(s, outs, ins);
    }
    /* The remaining weights are so close to 0 that rounding changes their sign. The result is feasible and equals the minimum up
     * to rounding. */
    do {
        outs = 0;
        for (int k = 0; k < s->known; k++)
            if (s->place[k] >= 0 && s->w[k] < 0)
                s->out[outs++] = k;
        exchange(s, outs, 0);
    } while (outs > 0);
}
