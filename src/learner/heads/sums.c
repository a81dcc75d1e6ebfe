/* Products are added in groups of SFP__SUMS_GROUP samples, because a matrix of doubles is larger than the caches: a single sample would
 * cost as much memory traffic as a group. The groups depend only on the order of the samples, not on how they are divided into
 * batches. */
#include "learner/heads/sums.h"

#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/triangle.h"

#include <math.h>
#include <string.h>

sfp_status sfp__sums_init(sfp__sums *s, int dim, bool products, double half_life, sfp_error *err)
{
    *s = (sfp__sums){.dim = dim, .products = products, .half_life = half_life, .weight = 1};
    TRY(sfp__alloc(&s->kept_x, SFP__SUMS_KEPT * (size_t)dim, sizeof *s->kept_x, err));
    if (!products)
        return SFP_OK;
    TRY(sfp__check_memory((s->product = sfp__calloc(sfp__triangle_count(dim), sizeof *s->product)), err));
    return sfp__alloc(&s->recent_x, SFP__SUMS_GROUP * (size_t)dim, sizeof *s->recent_x, err);
}

void sfp__sums_done(sfp__sums *s)
{
    sfp__free(s->kept_x);
    sfp__free(s->mass);
    sfp__free(s->class_sum);
    sfp__free(s->product);
    sfp__free(s->recent_x);
}

bool sfp__sums_grow(sfp__sums *s, int old, int capacity)
{
    return sfp__head_extend(&s->mass, sizeof *s->mass, (size_t)old, (size_t)capacity) &&
           sfp__head_extend(&s->class_sum, (size_t)s->dim * sizeof *s->class_sum, (size_t)old, (size_t)capacity);
}

/* ---------------------------------------------------------------- kept samples */

static float *kept_at(const sfp__sums *s, int i)
{
    return s->kept_x + (size_t)i * (size_t)s->dim;
}

/* Keeps a sample if its key is among the lowest. */
static void keep(sfp__sums *s, const float *x, int64_t row, uint64_t key)
{
    size_t bytes = (size_t)s->dim * sizeof *x;
    int at = s->kept;
    while (at > 0 && s->key[at - 1] > key)
        at--;
    if (at == SFP__SUMS_KEPT)
        return;
    int moved = (s->kept < SFP__SUMS_KEPT ? s->kept : SFP__SUMS_KEPT - 1) - at;
    memmove(s->key + at + 1, s->key + at, (size_t)moved * sizeof *s->key);
    memmove(s->kept_row + at + 1, s->kept_row + at, (size_t)moved * sizeof *s->kept_row);
    memmove(kept_at(s, at + 1), kept_at(s, at), (size_t)moved * bytes);
    s->key[at] = key;
    s->kept_row[at] = row;
    memcpy(kept_at(s, at), x, bytes);
    s->kept += s->kept < SFP__SUMS_KEPT;
}

static void drop(sfp__sums *s, int row, uint64_t key)
{
    int at = 0;
    while (at < s->kept && (s->key[at] != key || s->kept_row[at] != row))
        at++;
    if (at == s->kept)
        return;
    size_t moved = (size_t)(--s->kept - at);
    memmove(s->key + at, s->key + at + 1, moved * sizeof *s->key);
    memmove(s->kept_row + at, s->kept_row + at + 1, moved * sizeof *s->kept_row);
    memmove(kept_at(s, at), kept_at(s, at + 1), moved * (size_t)s->dim * sizeof *s->kept_x);
}

/* ------------------------------------------------------------------------ sums */

/* Clears sums that have no samples any more, so that no rounding error of them is left. */
static void clear_if_empty(sfp__sums *s, int row)
{
    size_t d = (size_t)s->dim;
    if (s->mass[row] == 0)
        memset(s->class_sum + (size_t)row * d, 0, d * sizeof *s->class_sum);
    if (s->total > 0)
        return;
    s->square = 0;
    s->recent = 0;
    if (s->products)
        memset(s->product, 0, sfp__triangle_count(s->dim) * sizeof *s->product);
}

/* Adds weight * the sample to all sums but the products. */
static void add_to_class(sfp__sums *s, const float *x, int row, double weight)
{
    double *sum = s->class_sum + (size_t)row * (size_t)s->dim, square = 0;
    for (int i = 0; i < s->dim; i++) {
        sum[i] += weight * (double)x[i];
        square += (double)x[i] * (double)x[i];
    }
    s->square += weight * square;
    s->mass[row] += weight;
    s->total += weight;
}

/* Adds the recent samples to the products. */
static void fold_recent(sfp__sums *s, sfp__thread_pool *threads)
{
    if (s->products)
        sfp__triangle_add(s->dim, s->product, s->recent, 1, s->recent_x, threads);
    s->recent = 0;
}

static const double weight_max = 0x1p40;

/* Doubles the weight of new samples with each half-life. Before it becomes too large for the sums, all of them are divided by it. */
static void age(sfp__sums *s, int rows, sfp__thread_pool *threads)
{
    size_t d = (size_t)s->dim, products = s->products ? sfp__triangle_count(s->dim) : 0;
    s->weight *= exp2(1 / s->half_life);
    if (s->weight < weight_max)
        return;
    double factor = 1 / s->weight;
    fold_recent(s, threads);
    for (size_t i = 0; i < products; i++)
        s->product[i] *= factor;
    for (size_t i = 0; i < (size_t)rows * d; i++)
        s->class_sum[i] *= factor;
    for (int r = 0; r < rows; r++)
        s->mass[r] *= factor;
    s->square *= factor;
    s->total *= factor;
    s->weight = 1;
}

/* Keeps some of the samples of the last half-lives: the newest have the lowest keys. */
static void keep_recent(sfp__sums *s, const float *x, int row, uint64_t key, int64_t number)
{
    uint64_t stride = (uint64_t)fmax(1, s->half_life / (SFP__SUMS_KEPT / 2.0));
    if (key % stride == 0)
        keep(s, x, row, (uint64_t)(INT64_MAX - number));
}

void sfp__sums_add(sfp__sums *s, const float *x, int row, int rows, uint64_t key, int64_t number, sfp__thread_pool *threads)
{
    add_to_class(s, x, row, s->weight);
    if (s->half_life > 0)
        keep_recent(s, x, row, key, number);
    else
        keep(s, x, row, key);
    if (s->products) {
        double *to = s->recent_x + (size_t)s->recent++ * (size_t)s->dim, root = sqrt(s->weight);
        for (int i = 0; i < s->dim; i++)
            to[i] = root * (double)x[i];
        if (s->recent == SFP__SUMS_GROUP)
            fold_recent(s, threads);
    }
    if (s->half_life > 0)
        age(s, rows, threads);
}

/* Returns the place of a sample among the recent ones; -1: it is in the products. */
static int find_recent(const sfp__sums *s, const float *x)
{
    for (int k = 0; k < s->recent; k++) {
        const double *at = s->recent_x + (size_t)k * (size_t)s->dim;
        int i = 0;
        while (i < s->dim && at[i] == (double)x[i])
            i++;
        if (i == s->dim)
            return k;
    }
    return -1;
}

/* Takes a sample out of the recent ones or else out of the products. No values of it stay, because files contain both. */
static void remove_products(sfp__sums *s, const float *x)
{
    size_t d = (size_t)s->dim;
    int at = find_recent(s, x);
    double *last = s->recent_x + (size_t)s->recent * d; /* there is always room for one more */
    if (at >= 0) {
        last -= d;
        memmove(s->recent_x + (size_t)at * d, s->recent_x + (size_t)(at + 1) * d, (size_t)(--s->recent - at) * d * sizeof *last);
    } else {
        for (size_t i = 0; i < d; i++)
            last[i] = (double)x[i];
        sfp__triangle_add(s->dim, s->product, 1, -1, last, NULL);
    }
    memset(last, 0, d * sizeof *last);
}

void sfp__sums_remove(sfp__sums *s, const float *x, int row, uint64_t key)
{
    add_to_class(s, x, row, -1);
    drop(s, row, key);
    if (s->products)
        remove_products(s, x);
    clear_if_empty(s, row);
}

/* --------------------------------------------------------------- sums of two streams */

/* Adds sign * the sums of `from`, but not its kept samples. Sums without samples become those of `from`, to the last bit: the recent samples
 * stay, so that the groups in which products are added do not depend on where a learner was saved and loaded. */
static void combine(sfp__sums *s, const sfp__sums *from, int rows, const int *row, int sign)
{
    size_t d = (size_t)s->dim, count = sfp__triangle_count(s->dim);
    bool copies = s->products && s->total == 0 && sign > 0;
    for (int r = 0; r < rows; r++) {
        if (from->mass[r] == 0)
            continue;
        s->mass[row[r]] += sign * from->mass[r];
        for (size_t i = 0; i < d; i++)
            s->class_sum[(size_t)row[r] * d + i] += sign * from->class_sum[(size_t)r * d + i];
    }
    s->total += sign * from->total;
    s->square += sign * from->square;
    for (size_t i = 0; s->products && i < count; i++)
        s->product[i] += sign * from->product[i];
    if (copies) {
        s->recent = from->recent;
        memcpy(s->recent_x, from->recent_x, (size_t)from->recent * d * sizeof *s->recent_x);
    } else if (s->products) {
        sfp__triangle_add(s->dim, s->product, from->recent, sign, from->recent_x, NULL);
    }
    for (int i = 0; i < 1 + SFP__STRENGTHS; i++)
        s->dropped[i] += sign * from->dropped[i];
}

void sfp__sums_merge(sfp__sums *s, const sfp__sums *from, int rows, const int *row)
{
    combine(s, from, rows, row, 1);
    for (int i = 0; i < from->kept; i++)
        if (row[from->kept_row[i]] >= 0)
            keep(s, kept_at(from, i), row[from->kept_row[i]], from->key[i]);
}

void sfp__sums_subtract(sfp__sums *s, const sfp__sums *from, int rows, const int *row)
{
    combine(s, from, rows, row, -1);
    for (int i = 0; i < from->kept; i++)
        drop(s, row[from->kept_row[i]], from->key[i]);
    for (int r = 0; r < rows; r++)
        if (row[r] >= 0)
            clear_if_empty(s, row[r]);
    if (!(s->dropped[0] > 0))
        memset(s->dropped, 0, sizeof s->dropped);
}

/* ----------------------------------------------------------- without single samples */

void sfp__sums_leave_out(sfp__sums *s, int row)
{
    size_t d = (size_t)s->dim;
    double n = s->mass[row], *x = s->class_sum + (size_t)row * d;
    fold_recent(s, NULL);
    for (int i = s->kept - 1; i >= 0; i--)
        if (s->kept_row[i] == row)
            drop(s, row, s->key[i]);
    if (n == 0)
        return;
    for (size_t i = 0; i < d; i++) {
        x[i] /= sqrt(n);
        s->square -= x[i] * x[i];
    }
    if (s->products)
        sfp__triangle_add(s->dim, s->product, 1, -1, x, NULL);
    s->mass[row] = 0;
    s->total -= n;
    clear_if_empty(s, row);
}

static const double log_strength_max = 20; /* a strength within it is one that a file may have */

static double bounded_log(double x)
{
    return fmax(-log_strength_max, fmin(log(x), log_strength_max));
}

void sfp__sums_drop_samples(sfp__sums *s, const double *strength)
{
    double n = s->total;
    fold_recent(s, NULL);
    if (s->products)
        memset(s->recent_x, 0, SFP__SUMS_GROUP * (size_t)s->dim * sizeof *s->recent_x);
    memset(s->kept_x, 0, SFP__SUMS_KEPT * (size_t)s->dim * sizeof *s->kept_x);
    s->kept = 0;
    memset(s->dropped, 0, sizeof s->dropped);
    for (int i = 0; strength && n > 0 && i < SFP__STRENGTHS; i++)
        s->dropped[1 + i] = n * (i == SFP__SCALING ? strength[i] : bounded_log(strength[i]));
    s->dropped[0] = strength ? n : 0;
}

bool sfp__sums_dropped_strength(const sfp__sums *s, double *strength)
{
    double n = s->dropped[0];
    for (int i = 0; n > 0 && i < SFP__STRENGTHS; i++) {
        double mean = fmax(-log_strength_max, fmin(s->dropped[1 + i] / n, log_strength_max));
        strength[i] = i == SFP__SCALING ? round(mean) : exp(mean);
    }
    return n > 0;
}

void sfp__sums_product(const sfp__sums *s, double *out, sfp__thread_pool *threads)
{
    memcpy(out, s->product, sfp__triangle_count(s->dim) * sizeof *out);
    sfp__triangle_add(s->dim, out, s->recent, 1, s->recent_x, threads);
}

/* ------------------------------------------------------------------ save, load */

/* Returns whether all numbers are within +-limit. */
static bool bounded(size_t n, const double *x, double limit)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i]) <= limit))
            return false;
    return true;
}

/* Returns whether the masses are those of these numbers of samples. */
static bool plausible_masses(const sfp__sums *s, int rows, const int64_t *samples)
{
    double total = 0;
    if (!(s->weight >= 1 && s->weight <= weight_max) || (s->half_life == 0 && s->weight != 1))
        return false;
    for (int r = 0; r < rows; r++) {
        double n = (double)samples[r];
        if (s->half_life > 0 ? !(s->mass[r] >= 0 && s->mass[r] <= n * s->weight) : s->mass[r] != n)
            return false;
        total += s->mass[r];
    }
    return fabs(total - s->total) <= 1e-6 * total;
}

/* Returns false for values that no stream can produce. The limits are twice what samples can add up to, because of rounding. */
static bool plausible(const sfp__sums *s, int rows, const int64_t *samples)
{
    size_t d = (size_t)s->dim, values = (size_t)s->kept * d;
    double limit = 2 * (double)SFP__HEAD_VALUE_MAX, n = s->total + 1;
    if (!plausible_masses(s, rows, samples) || !bounded(1, &s->square, n * (double)d * limit * limit) ||
        !bounded((size_t)rows * d, s->class_sum, n * limit))
        return false;
    if (s->products && !(bounded(sfp__triangle_count(s->dim), s->product, n * limit * limit) &&
                         bounded((size_t)s->recent * d, s->recent_x, limit * sqrt(s->weight))))
        return false;
    for (int i = 0; i < s->kept; i++)
        if (s->kept_row[i] < 0 || s->kept_row[i] >= rows || (i > 0 && s->key[i] < s->key[i - 1]))
            return false;
    for (size_t i = 0; i < values; i++)
        if (!(fabsf(s->kept_x[i]) <= SFP__HEAD_VALUE_MAX))
            return false;
    return true;
}

size_t sfp__sums_bytes(const sfp__sums *s, int rows)
{
    size_t d = (size_t)s->dim, products = s->products ? sfp__triangle_count(s->dim) : 0;
    return (products + ((size_t)rows + (size_t)s->recent) * d) * sizeof(double) + (size_t)s->kept * d * sizeof *s->kept_x;
}

/* Only sums whose single samples were dropped have this tensor. */
static sfp_status visit_dropped(sfp__sums *s, const sfp__visitor *v, sfp_error *err)
{
    const int64_t count = 1 + SFP__STRENGTHS;
    const sfp__tensor *t = NULL;
    bool found = v->put ? s->dropped[0] > 0 : sfp__visit_find(v, "dropped", SFP__DTYPE_F64, &t, NULL) != SFP_ENOTFOUND;
    if (found)
        TRY(sfp__visit(v, "dropped", SFP__DTYPE_F64, 1, &count, s->dropped, err));
    if (!(s->dropped[0] >= 0 && s->dropped[0] <= 0x1p53))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s.dropped' begins with %g, expected a number of samples", v->file, v->prefix,
                         s->dropped[0]);
    return SFP_OK;
}

/* Reads how many samples a tensor of the file has, at most `most`. */
static sfp_status read_count(const sfp__visitor *v, const char *name, sfp__dtype dtype, int most, int *out, sfp_error *err)
{
    const sfp__tensor *t = NULL;
    TRY(sfp__visit_find(v, name, dtype, &t, err));
    if (t->ndim < 1 || t->shape[0] < 0 || t->shape[0] > most)
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s.%s': number of samples is out of range, expected at most %d", v->file,
                         v->prefix, name, most);
    *out = (int)t->shape[0];
    return SFP_OK;
}

sfp_status sfp__sums_visit(sfp__sums *s, int rows, const int64_t *samples, const sfp__visitor *v, sfp_error *err)
{
    const int64_t sums[] = {rows, s->dim}, products = (int64_t)sfp__triangle_count(s->dim), one = 1;
    if (!v->put)
        TRY(read_count(v, "kept", SFP__DTYPE_F32, SFP__SUMS_KEPT, &s->kept, err));
    const int64_t kept[] = {s->kept, s->dim};
    TRY(sfp__visit(v, "sample_weight", SFP__DTYPE_F64, 1, &one, &s->weight, err));
    TRY(sfp__visit(v, "total", SFP__DTYPE_F64, 1, &one, &s->total, err));
    TRY(sfp__visit(v, "square", SFP__DTYPE_F64, 1, &one, &s->square, err));
    TRY(sfp__visit(v, "key", SFP__DTYPE_I64, 1, kept, s->key, err));
    TRY(sfp__visit(v, "kept_row", SFP__DTYPE_I64, 1, kept, s->kept_row, err));
    TRY(sfp__visit(v, "kept", SFP__DTYPE_F32, 2, kept, s->kept_x, err));
    TRY(sfp__visit(v, "mass", SFP__DTYPE_F64, 1, sums, s->mass, err));
    TRY(sfp__visit(v, "sums", SFP__DTYPE_F64, 2, sums, s->class_sum, err));
    if (s->products) {
        if (!v->put)
            TRY(read_count(v, "recent", SFP__DTYPE_F64, SFP__SUMS_GROUP - 1, &s->recent, err));
        const int64_t x[] = {s->recent, s->dim};
        TRY(sfp__visit(v, "recent", SFP__DTYPE_F64, 2, x, s->recent_x, err));
        TRY(sfp__visit(v, "products", SFP__DTYPE_F64, 1, &products, s->product, err));
    }
    TRY(visit_dropped(s, v, err));
    if (!v->put && !plausible(s, rows, samples))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counts, classes and samples are inconsistent", v->file, v->prefix);
    return SFP_OK;
}
