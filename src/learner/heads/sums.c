/* Products are added in groups of SFP_SUMS_GROUP samples of a fold, because a matrix of doubles is larger than the caches: a
 * single sample would cost as much memory traffic as a group. The groups depend only on the order of the samples, not on how they
 * are divided into batches. */
#include "learner/heads/sums.h"

#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/triangle.h"

#include <math.h>
#include <string.h>

sfp_status sfp__sums_init(sfp__sums *s, int dim, bool products, sfp_error *err)
{
    *s = (sfp__sums){.dim = dim, .products = products};
    TRY(sfp__alloc(&s->kept_x, SFP_SUMS_KEPT * (size_t)dim, sizeof *s->kept_x, err));
    for (int f = 0; products && f < SFP_FOLDS; f++) {
        TRY(sfp__check_memory((s->product[f] = sfp__calloc(sfp__triangle_count(dim), sizeof *s->product[f])), err));
        TRY(sfp__alloc(&s->recent_x[f], SFP_SUMS_GROUP * (size_t)dim, sizeof *s->recent_x[f], err));
    }
    return SFP_OK;
}

void sfp__sums_done(sfp__sums *s)
{
    sfp__free(s->kept_x);
    for (int f = 0; f < SFP_FOLDS; f++) {
        sfp__free(s->count[f]);
        sfp__free(s->class_sum[f]);
        sfp__free(s->product[f]);
        sfp__free(s->recent_x[f]);
    }
}

bool sfp__sums_grow(sfp__sums *s, int old, int capacity)
{
    size_t row = (size_t)s->dim * sizeof(double);
    for (int f = 0; f < SFP_FOLDS; f++)
        if (!sfp__head_extend(&s->count[f], sizeof *s->count[f], (size_t)old, (size_t)capacity) ||
            !sfp__head_extend(&s->class_sum[f], row, (size_t)old, (size_t)capacity))
            return false;
    return true;
}

/* ---------------------------------------------------------------- kept samples */

static float *kept_at(const sfp__sums *s, int i)
{
    return s->kept_x + (size_t)i * (size_t)s->dim;
}

/* Keeps a held-out sample if its key is among the lowest. */
static void keep(sfp__sums *s, const float *x, int64_t row, uint64_t key)
{
    size_t bytes = (size_t)s->dim * sizeof *x;
    int at = s->kept;
    while (at > 0 && s->key[at - 1] > key)
        at--;
    if (at == SFP_SUMS_KEPT)
        return;
    int moved = (s->kept < SFP_SUMS_KEPT ? s->kept : SFP_SUMS_KEPT - 1) - at;
    memmove(s->key + at + 1, s->key + at, (size_t)moved * sizeof *s->key);
    memmove(s->kept_row + at + 1, s->kept_row + at, (size_t)moved * sizeof *s->kept_row);
    memmove(kept_at(s, at + 1), kept_at(s, at), (size_t)moved * bytes);
    s->key[at] = key;
    s->kept_row[at] = row;
    memcpy(kept_at(s, at), x, bytes);
    s->kept += s->kept < SFP_SUMS_KEPT;
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

/* Adds sign * the sample to all sums but the products. */
static void add_to_class(sfp__sums *s, const float *x, int row, int fold, int sign)
{
    double *sum = s->class_sum[fold] + (size_t)row * (size_t)s->dim, square = 0;
    for (int i = 0; i < s->dim; i++) {
        sum[i] += sign * (double)x[i];
        square += (double)x[i] * (double)x[i];
    }
    s->square[fold] += sign * square;
    s->count[fold][row] += sign;
    s->total[fold] += sign;
}

void sfp__sums_add(sfp__sums *s, const float *x, int row, uint64_t key, sfp__thread_pool *threads)
{
    int f = sfp__sums_fold_of(key);
    add_to_class(s, x, row, f, 1);
    if (f == SFP_HELD)
        keep(s, x, row, key);
    if (!s->products)
        return;
    double *to = s->recent_x[f] + (size_t)s->recent[f]++ * (size_t)s->dim;
    for (int i = 0; i < s->dim; i++)
        to[i] = (double)x[i];
    if (s->recent[f] == SFP_SUMS_GROUP) {
        sfp__triangle_add(s->dim, s->product[f], SFP_SUMS_GROUP, 1, s->recent_x[f], threads);
        s->recent[f] = 0;
    }
}

bool sfp__sums_remove(sfp__sums *s, const float *x, int row, uint64_t key)
{
    int f = sfp__sums_fold_of(key);
    if (s->count[f][row] == 0)
        return false;
    add_to_class(s, x, row, f, -1);
    drop(s, row, key);
    for (int i = 0; s->products && i < s->dim; i++) { /* a single sample: the products of its row i */
        double *to = sfp__triangle_row(s->product[f], s->dim, i);
        for (int j = i; j < s->dim; j++)
            to[j] -= (double)x[i] * (double)x[j];
    }
    return true;
}

void sfp__sums_merge(sfp__sums *s, const sfp__sums *from, int rows, const int *row)
{
    size_t d = (size_t)s->dim, count = sfp__triangle_count(s->dim);
    for (int f = 0; f < SFP_FOLDS; f++) {
        for (int r = 0; r < rows; r++) {
            s->count[f][row[r]] += from->count[f][r];
            for (size_t i = 0; i < d; i++)
                s->class_sum[f][(size_t)row[r] * d + i] += from->class_sum[f][(size_t)r * d + i];
        }
        s->total[f] += from->total[f];
        s->square[f] += from->square[f];
        for (size_t i = 0; s->products && i < count; i++)
            s->product[f][i] += from->product[f][i];
        if (s->products)
            sfp__triangle_add(s->dim, s->product[f], from->recent[f], 1, from->recent_x[f], NULL);
    }
    for (int i = 0; i < from->kept; i++)
        keep(s, kept_at(from, i), row[from->kept_row[i]], from->key[i]);
}

void sfp__sums_product(const sfp__sums *s, unsigned folds, double *out, sfp__thread_pool *threads)
{
    size_t count = sfp__triangle_count(s->dim);
    memset(out, 0, count * sizeof *out);
    for (int f = 0; f < SFP_FOLDS; f++) {
        if (!(folds & 1u << f))
            continue;
        for (size_t i = 0; i < count; i++)
            out[i] += s->product[f][i];
        sfp__triangle_add(s->dim, out, s->recent[f], 1, s->recent_x[f], threads);
    }
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

/* Returns false for values that no stream can produce. The limits are twice what samples can add up to, because of rounding. */
static bool plausible_fold(const sfp__sums *s, int f, int rows)
{
    size_t d = (size_t)s->dim;
    double limit = 2 * (double)SFP_HEAD_VALUE_MAX, n = (double)s->total[f] + 1;
    int64_t total = 0;
    for (int r = 0; r < rows; r++) {
        if (s->count[f][r] < 0 || s->count[f][r] > s->total[f] || s->total[f] > INT64_MAX / SFP_HEAD_LABEL_MAX)
            return false;
        total += s->count[f][r];
    }
    return total == s->total[f] && bounded(1, &s->square[f], n * (double)d * limit * limit) &&
           bounded((size_t)rows * d, s->class_sum[f], n * limit) &&
           (!s->products || (bounded(sfp__triangle_count(s->dim), s->product[f], n * limit * limit) &&
                             bounded((size_t)s->recent[f] * d, s->recent_x[f], limit)));
}

static bool plausible(const sfp__sums *s, int rows, const int64_t *samples)
{
    size_t values = (size_t)s->kept * (size_t)s->dim;
    for (int f = 0; f < SFP_FOLDS; f++)
        if (!plausible_fold(s, f, rows))
            return false;
    for (int r = 0; r < rows; r++)
        if (s->count[SFP_REST][r] + s->count[SFP_HELD][r] != samples[r])
            return false;
    for (int i = 0; i < s->kept; i++)
        if (s->kept_row[i] < 0 || s->kept_row[i] >= rows || (i > 0 && s->key[i] < s->key[i - 1]))
            return false;
    for (size_t i = 0; i < values; i++)
        if (!(fabsf(s->kept_x[i]) <= SFP_HEAD_VALUE_MAX))
            return false;
    return true;
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
    static const char *const recent[] = {"recent", "recent_held"}, *const sum[] = {"sums", "sums_held"},
                             *const count[] = {"samples", "samples_held"}, *const product[] = {"products", "products_held"};
    const int64_t two = SFP_FOLDS, sums[] = {rows, s->dim}, products = (int64_t)sfp__triangle_count(s->dim);
    if (!v->put)
        TRY(read_count(v, "kept", SFP_DTYPE_F32, SFP_SUMS_KEPT, &s->kept, err));
    const int64_t kept[] = {s->kept, s->dim};
    TRY(sfp__visit(v, "total", SFP_DTYPE_I64, 1, &two, s->total, err));
    TRY(sfp__visit(v, "square", SFP_DTYPE_F64, 1, &two, s->square, err));
    TRY(sfp__visit(v, "key", SFP_DTYPE_I64, 1, kept, s->key, err));
    TRY(sfp__visit(v, "kept_row", SFP_DTYPE_I64, 1, kept, s->kept_row, err));
    TRY(sfp__visit(v, "kept", SFP_DTYPE_F32, 2, kept, s->kept_x, err));
    for (int f = 0; f < SFP_FOLDS; f++) {
        TRY(sfp__visit(v, count[f], SFP_DTYPE_I64, 1, sums, s->count[f], err));
        TRY(sfp__visit(v, sum[f], SFP_DTYPE_F64, 2, sums, s->class_sum[f], err));
        if (!s->products)
            continue;
        if (!v->put)
            TRY(read_count(v, recent[f], SFP_DTYPE_F64, SFP_SUMS_GROUP - 1, &s->recent[f], err));
        const int64_t x[] = {s->recent[f], s->dim};
        TRY(sfp__visit(v, recent[f], SFP_DTYPE_F64, 2, x, s->recent_x[f], err));
        TRY(sfp__visit(v, product[f], SFP_DTYPE_F64, 1, &products, s->product[f], err));
    }
    if (!v->put && !plausible(s, rows, samples))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counts, classes and samples are inconsistent", v->file, v->prefix);
    return SFP_OK;
}
