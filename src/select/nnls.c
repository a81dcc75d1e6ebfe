#include "select/nnls.h"

#include <math.h>
#include <string.h>

sfp_status sfp__nnls_init(sfp_nnls *s, const sfp_select_env *env, int most, double ridge, sfp_error *err)
{
    size_t n = (size_t)most;
    *s = (sfp_nnls){.ridge = ridge};
    const sfp_want list[] = {{&s->column, n, sizeof *s->column},     {&s->rhs, n, sizeof *s->rhs}, {&s->w, n, sizeof *s->w},
                             {&s->l, n * (n + 1) / 2, sizeof *s->l}, {&s->y, n, sizeof *s->y},     {&s->z, n, sizeof *s->z},
                             {&s->line, n, sizeof *s->line}};
    sfp_status status = SFP_SELECT_TAKE(env, list, err);
    for (int i = 0; !status && i < most; i++)
        s->w[i] = s->rhs[i] = 0;
    return status;
}

static double *row(const sfp_nnls *s, int i)
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

static void append(sfp_nnls *s, int c, const double *gram, double self)
{
    int p = s->passive;
    double *to = row(s, p);
    for (int i = 0; i < p; i++) {
        const double *l = row(s, i);
        s->line[i] = (gram[i] - dot(i, l, s->line)) / l[i];
    }
    double pivot = self + s->ridge - dot(p, s->line, s->line);
    memcpy(to, s->line, (size_t)p * sizeof *to);
    to[p] = sqrt(fmax(pivot, 1e-6 * s->ridge)); /* at least the ridge but for rounding */
    s->y[p] = (s->rhs[c] - dot(p, to, s->y)) / to[p];
    s->column[p] = c;
    s->passive++;
}

/* Row t out of the factor. The rows below have one number too many: rotations of neighbouring columns bring each to its length,
 * and y, which is one more row of the same factor, follows. */
static void take_out(sfp_nnls *s, int t)
{
    double *cosine = s->z, *sine = s->line;
    int p = s->passive;
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
    }
    double carry = s->y[t];
    for (int m = t; m < p - 1; m++) {
        double next = s->y[m + 1];
        s->y[m] = cosine[m] * carry + sine[m] * next;
        carry = cosine[m] * next - sine[m] * carry;
    }
    s->passive--;
}

/* z: the weights of the factor's columns without the constraint. */
static void solve(sfp_nnls *s)
{
    memcpy(s->z, s->y, (size_t)s->passive * sizeof *s->z);
    for (int i = s->passive - 1; i >= 0; i--) {
        const double *l = row(s, i);
        double z = s->z[i] /= l[i];
        for (int j = 0; j < i; j++)
            s->z[j] -= l[j] * z;
    }
}

/* From w towards z as far as all stay >= 0; those that reach 0 leave. False: z was reached. */
static bool walk(sfp_nnls *s)
{
    double part = 1;
    int stop = -1;
    for (int t = 0; t < s->passive; t++) {
        double w = s->w[s->column[t]], reach = s->z[t] > 0 ? 1 : w / (w - s->z[t]);
        if (s->z[t] <= 0 && (stop < 0 || reach < part)) {
            part = isfinite(reach) ? reach : 0; /* 0 / 0: at 0, and to stay there */
            stop = t;
        }
    }
    for (int t = 0; t < s->passive; t++) {
        double *w = &s->w[s->column[t]];
        *w = stop < 0 ? s->z[t] : fmax(*w + part * (s->z[t] - *w), 0);
    }
    if (stop < 0)
        return false;
    s->w[s->column[stop]] = 0;
    for (int t = s->passive - 1; t >= 0; t--)
        if (s->w[s->column[t]] == 0)
            take_out(s, t);
    return true;
}

void sfp__nnls_add(sfp_nnls *s, int c, const double *gram, double self)
{
    append(s, c, gram, self);
    do
        solve(s);
    while (s->passive > 0 && walk(s));
}

bool sfp__nnls_holds(const sfp_nnls *s, int c)
{
    return s->w[c] > 0;
}
