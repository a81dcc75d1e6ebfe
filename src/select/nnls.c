#include "select/nnls.h"

#include <math.h>
#include <string.h>

enum { TOGETHER = SFP_NNLS_TOGETHER, PATIENCE = 3, ROUNDS = 200 };

sfp_status sfp__nnls_init(sfp__nnls *s, const sfp__select_env *env, const sfp__columns *columns, int most, double ridge,
                          sfp_error *err)
{
    size_t n = (size_t)most;
    *s = (sfp__nnls){.columns = *columns, .ridge = ridge};
    const sfp__want list[] = {
        {&s->column, n, sizeof *s->column}, {&s->place, n, sizeof *s->place},       {&s->rhs, n, sizeof *s->rhs},
        {&s->w, n, sizeof *s->w},           {&s->l, n * (n + 1) / 2, sizeof *s->l}, {&s->y, n, sizeof *s->y},
        {&s->z, n, sizeof *s->z},           {&s->line, n, sizeof *s->line},         {&s->corr, n, sizeof *s->corr},
        {&s->fresh, n, sizeof *s->fresh},   {&s->out, n, sizeof *s->out},           {&s->in, n, sizeof *s->in}};
    return sfp__arena_list(env->arena, SFP_LIST(list), err);
}

/* ----------------------------------------------------------------- the factor */

static double *row(const sfp__nnls *s, int i)
{
    return s->l + (size_t)i * ((size_t)i + 1) / 2;
}

/* Four partial sums: the compiler may not reorder one. */
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

/* n columns into the factor: each row of it is read once for all of them. */
static void append(sfp__nnls *s, int n, const int *columns)
{
    double *fresh[TOGETHER], self[TOGETHER];
    int p = s->passive;
    for (int r = 0; r < n; r++) {
        int c = columns[r];
        fresh[r] = row(s, p + r); /* the products first; solved in place */
        s->column[p + r] = c;
        s->place[c] = p + r;
        s->columns.gram(s->columns.ctx, c, p + r + 1, s->column, s->fresh); /* those that come before it, then itself */
        memcpy(fresh[r], s->fresh, (size_t)(p + r) * sizeof *s->fresh);
        self[r] = s->fresh[p + r];
    }
    for (int i = 0; i < p; i++) {
        const double *l = row(s, i);
        for (int r = 0; r < n; r++)
            fresh[r][i] = (fresh[r][i] - dot(i, l, fresh[r])) / l[i];
    }
    for (int r = 0; r < n; r++) {
        for (int i = p; i < p + r; i++)
            fresh[r][i] = (fresh[r][i] - dot(i, row(s, i), fresh[r])) / row(s, i)[i];
        double pivot = self[r] + s->ridge - dot(p + r, fresh[r], fresh[r]);
        fresh[r][p + r] = sqrt(fmax(pivot, 1e-6 * s->ridge)); /* at least the ridge but for rounding */
        s->y[p + r] = (s->rhs[columns[r]] - dot(p + r, fresh[r], s->y)) / fresh[r][p + r];
    }
    s->passive += n;
}

/* Row t out of the factor. The rows below have one number too many: rotations of neighbouring columns bring each to its length,
 * and y, which is one more row of the same factor, follows. */
static void take_out(sfp__nnls *s, int t)
{
    double *cosine = s->z, *sine = s->line;
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

/* The weights of the factor's columns without the constraint; 0 for the others. */
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

/* Who is on the wrong side: negative weights to out[], wanted ones to in[]; the number of each. */
static void find_wrong(sfp__nnls *s, int *outs, int *ins)
{
    int idle = 0;
    *outs = *ins = 0;
    for (int c = 0; c < s->known; c++) {
        if (s->place[c] < 0)
            s->in[idle++] = c;
        else if (s->w[c] < 0)
            s->out[(*outs)++] = c;
    }
    if (idle == 0)
        return;
    double noise = s->columns.correlate(s->columns.ctx, s, idle, s->in, s->corr);
    for (int i = 0; i < idle; i++)
        if (s->corr[i] > noise)
            s->in[(*ins)++] = s->in[i];
}

static void exchange(sfp__nnls *s, int outs, int ins)
{
    for (int i = 0; i < outs; i++)
        take_out(s, s->place[s->out[i]]);
    for (int i = 0; i < ins; i += TOGETHER)
        append(s, ins - i < TOGETHER ? ins - i : TOGETHER, s->in + i);
    solve(s);
}

/* Only the last of the wrong ones. */
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
    int c = s->known++, outs = 0, ins = 0, fewest = c + 2, patience = PATIENCE;
    s->rhs[c] = rhs;
    append(s, 1, &c);
    solve(s);
    for (int round = 0; round < ROUNDS; round++) {
        find_wrong(s, &outs, &ins);
        if (outs + ins == 0)
            return;
        if (outs + ins < fewest) {
            fewest = outs + ins;
            patience = PATIENCE;
        } else if (patience-- <= 0) {
            keep_last(s, &outs, &ins);
        }
        exchange(s, outs, ins);
    }
    do { /* numbers so close to 0 that rounding moves them to and fro: feasible, and as good as the minimum */
        outs = 0;
        for (int k = 0; k < s->known; k++)
            if (s->place[k] >= 0 && s->w[k] < 0)
                s->out[outs++] = k;
        exchange(s, outs, 0);
    } while (outs > 0);
}
