/* The table of heads, and what they share (head_kind.h). */
#include "learner/head.h"

#include "base/mem.h"
#include "base/text.h"
#include "compute/gemm.h"
#include "learner/head_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const sfp_head_kind *const kinds[] = {&sfp__head_ncm, &sfp__head_slda, &sfp__head_ranpac};

sfp_head_options sfp__head_options_defaults(int dim, int classes)
{
    return (sfp_head_options){
        .dim = dim, .classes = classes, .seed = 0, .ranpac_width = 4000, .slda_shrink = 1e-4f, .mix_rate = 0.01f};
}

/* ------------------------------------------------------------------- classes */

bool sfp__head_extend(void *p, size_t size, size_t old, size_t count)
{
    void *block;
    size_t bytes;
    memcpy(&block, p, sizeof block);
    if (count == 0 || (block && count <= old))
        return true;
    if (!sfp__mul_size(count, size, &bytes) || !(block = sfp__realloc(block, old * size, bytes)))
        return false;
    memset((char *)block + old * size, 0, (count - old) * size);
    memcpy(p, &block, sizeof block);
    return true;
}

static sfp_status reserve_rows(sfp_head *h, int rows, sfp_error *err)
{
    if (rows <= h->room)
        return SFP_OK;
    int room = h->room > 0 ? h->room : 8;
    while (room < rows)
        room *= 2;
    size_t old = (size_t)h->room, count = (size_t)room;
    if (!sfp__head_extend(&h->label, sizeof *h->label, old, count) ||
        !sfp__head_extend(&h->count, sizeof *h->count, old, count) ||
        !sfp__head_extend(&h->raw, SFP_HEAD_GRAIN * sizeof *h->raw, old, count))
        return sfp__fail_nomem(err);
    sfp_status s = h->kind->grow(h, room, err);
    if (s == SFP_OK)
        h->room = room;
    return s;
}

static sfp_status reserve_labels(sfp_head *h, int labels, sfp_error *err)
{
    if (labels <= h->label_room)
        return SFP_OK;
    int room = h->label_room > 0 ? h->label_room : 8;
    while (room < labels)
        room *= 2;
    if (!sfp__head_extend(&h->row_of, sizeof *h->row_of, (size_t)h->label_room, (size_t)room))
        return sfp__fail_nomem(err);
    for (int i = h->label_room; i < room; i++)
        h->row_of[i] = -1;
    h->label_room = room;
    return SFP_OK;
}

/* The row of a label for which there is room. */
static int row_of(sfp_head *h, int label)
{
    if (h->row_of[label] < 0) {
        h->label[h->rows] = label;
        h->row_of[label] = h->rows++;
        if (label >= h->labels)
            h->labels = label + 1;
    }
    return h->row_of[label];
}

/* Room for every class of a batch, before anything is learned: then nothing can fail half way. */
static sfp_status reserve(sfp_head *h, int n, const int32_t *label, sfp_error *err)
{
    int highest = -1, fresh = 0;
    for (int i = 0; i < n; i++) {
        if (label[i] < 0 || label[i] >= SFP_HEAD_LABEL_MAX)
            return sfp__fail(err, SFP_EINVAL, "head %s: label %d of sample %d, expected 0 to %d", h->kind->name, label[i], i,
                             SFP_HEAD_LABEL_MAX - 1);
        highest = label[i] > highest ? label[i] : highest;
    }
    sfp_status s = reserve_labels(h, highest + 1, err);
    for (int i = 0; s == SFP_OK && i < n; i++) /* -2: counted */
        if (h->row_of[label[i]] == -1) {
            h->row_of[label[i]] = -2;
            fresh++;
        }
    if (s == SFP_OK) {
        s = reserve_rows(h, h->rows + fresh, err);
        for (int i = 0; i < n; i++)
            if (h->row_of[label[i]] == -2)
                h->row_of[label[i]] = -1;
    }
    return s;
}

static sfp_status check_queries(const sfp_head *h, int n, const float *query, sfp_error *err)
{
    size_t count = (size_t)n * (size_t)h->opt.dim;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(query[i]) <= SFP_HEAD_VALUE_MAX))
            return sfp__fail(err, SFP_EINVAL, "head %s: value %zu of query %zu is %g, expected a number within +-%g",
                             h->kind->name, i % (size_t)h->opt.dim, i / (size_t)h->opt.dim, (double)query[i],
                             (double)SFP_HEAD_VALUE_MAX);
    return SFP_OK;
}

/* ---------------------------------------------------------------- life, use */

sfp_status sfp__head_create(const char *kind, const sfp_head_options *opt, sfp_head **out, sfp_error *err)
{
    const sfp_head_kind *k = NULL;
    char name[SFP_NAME_MAX];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            k = kinds[i];
    if (!k)
        return sfp__fail(err, SFP_EINVAL, "unknown head '%s', expected ncm, slda or ranpac",
                         sfp__printable(kind, name, sizeof name));
    if (opt->dim < 1 || opt->classes < 0 || opt->classes > SFP_HEAD_LABEL_MAX || opt->ranpac_width < 1 ||
        opt->ranpac_width > 1 << 15 || !(opt->slda_shrink >= 0 && opt->slda_shrink <= 1))
        return sfp__fail(err, SFP_EINVAL, "head %s: dim %d, classes %d, width %d, shrinkage %g are out of range", k->name,
                         opt->dim, opt->classes, opt->ranpac_width, (double)opt->slda_shrink);
    sfp_head *h = sfp__calloc(1, k->size);
    if (!h)
        return sfp__fail_nomem(err);
    h->kind = k;
    h->opt = *opt;
    sfp_status s = k->init(h, err);
    if (s == SFP_OK)
        s = reserve_rows(h, opt->classes > 0 ? opt->classes : 1, err);
    if (s == SFP_OK)
        s = reserve_labels(h, opt->classes, err);
    if (s == SFP_OK)
        *out = h;
    else
        sfp__head_free(h);
    return s;
}

void sfp__head_free(sfp_head *h)
{
    if (!h)
        return;
    h->kind->done(h);
    sfp__free(h->label);
    sfp__free(h->count);
    sfp__free(h->row_of);
    sfp__free(h->raw);
    sfp__free(h);
}

const char *sfp__head_kind(const sfp_head *h)
{
    return h->kind->name;
}

const char *sfp__head_name(int i)
{
    return i >= 0 && (size_t)i < sizeof kinds / sizeof *kinds ? kinds[i]->name : NULL;
}

int sfp__head_classes(const sfp_head *h)
{
    return h->labels;
}

sfp_status sfp__head_update(sfp_head *h, int n, const float *query, const float *feature, const int32_t *label, sfp_error *err)
{
    (void)feature; /* no kind learns from the prompted feature: it moves as the fingerprints learn, sums over it would be stale */
    if (h->answers)
        return sfp__fail(err, SFP_EUNSUPPORTED, "head %s was loaded to answer: what learning needs was not saved", h->kind->name);
    sfp_status s = check_queries(h, n, query, err);
    if (s == SFP_OK)
        s = reserve(h, n, label, err);
    if (s != SFP_OK)
        return s;
    int token = sfp__gemm_enter();
    for (int i = 0; i < n; i++) {
        int row = row_of(h, label[i]);
        h->kind->learn(h, query + (size_t)i * (size_t)h->opt.dim, row);
        h->count[row]++;
        h->n++;
    }
    sfp__gemm_leave(token);
    return SFP_OK;
}

sfp_status sfp__head_refresh(sfp_head *h, sfp_error *err)
{
    if (h->rows == 0)
        return SFP_OK;
    int token = sfp__gemm_enter();
    sfp_status s = h->kind->refresh(h, err);
    sfp__gemm_leave(token);
    return s;
}

/* A probability that underflows stays a number: only classes never seen are -INFINITY. */
void sfp__head_log_softmax(int rows, const int64_t *label, const double *raw, int classes, float *out)
{
    double top = -INFINITY, sum = 0;
    for (int r = 0; r < rows; r++)
        if (label[r] < classes && raw[r] > top)
            top = raw[r];
    for (int r = 0; r < rows; r++)
        if (label[r] < classes)
            sum += exp(raw[r] - top);
    double shift = top + log(sum);
    for (int r = 0; r < rows; r++)
        if (label[r] < classes)
            out[label[r]] = (float)fmax(raw[r] - shift, -1e30);
}

sfp_status sfp__head_scores(sfp_head *h, int n, const float *query, const float *feature, int classes, float *out, sfp_error *err)
{
    (void)feature;
    sfp_status s = check_queries(h, n, query, err);
    if (s == SFP_OK)
        s = sfp__head_refresh(h, err);
    if (s != SFP_OK)
        return s;
    size_t count = (size_t)n * (size_t)classes;
    for (size_t i = 0; i < count; i++)
        out[i] = -INFINITY;
    if (h->rows == 0)
        return SFP_OK;
    int token = sfp__gemm_enter();
    for (int i = 0; i < n; i += SFP_HEAD_GRAIN) {
        int m = n - i < SFP_HEAD_GRAIN ? n - i : SFP_HEAD_GRAIN;
        h->kind->score(h, m, query + (size_t)i * (size_t)h->opt.dim, h->raw);
        for (int j = 0; j < m; j++)
            sfp__head_log_softmax(h->rows, h->label, h->raw + (size_t)j * (size_t)h->rows, classes,
                                  out + (size_t)(i + j) * (size_t)classes);
    }
    sfp__gemm_leave(token);
    return SFP_OK;
}

/* ---------------------------------------------------------------- save, load */

sfp_status sfp__head_put(const sfp_head_saver *s, const char *name, sfp_dtype dtype, int ndim, const int64_t *shape,
                         const void *data, sfp_error *err)
{
    char full[SFP_NAME_MAX];
    sfp_tensor t = {.name = full, .dtype = dtype, .ndim = ndim, .data = data};
    (void)snprintf(full, sizeof full, "%s.%s", s->prefix, name);
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    if (!sfp__shape_count(t.shape, ndim, dtype, &t.count, &t.bytes))
        return sfp__fail(err, SFP_ELIMIT, "tensor '%s' is too large", full);
    return s->fn(s->ctx, &t, err);
}

sfp_status sfp__head_find(const sfp_head_loader *l, const char *name, sfp_dtype dtype, const sfp_tensor **out, sfp_error *err)
{
    char full[SFP_NAME_MAX];
    (void)snprintf(full, sizeof full, "%s.%s", l->prefix, name);
    const sfp_tensor *t = l->find(l->ctx, full);
    if (!t)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor '%s' is missing", l->file, full);
    if (t->dtype != dtype)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is %s, expected %s", l->file, full, sfp__dtype_name(t->dtype),
                         sfp__dtype_name(dtype));
    *out = t;
    return SFP_OK;
}

/* The first value that is no finite number; `count`: there is none. */
static size_t first_not_finite(sfp_dtype dtype, size_t count, const void *data, double *value)
{
    bool f32 = dtype == SFP_DTYPE_F32;
    for (size_t i = 0; (f32 || dtype == SFP_DTYPE_F64) && i < count; i++) {
        *value = f32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
        if (!isfinite(*value))
            return i;
    }
    return count;
}

sfp_status sfp__head_get(const sfp_head_loader *l, const char *name, sfp_dtype dtype, int ndim, const int64_t *shape, void *out,
                         sfp_error *err)
{
    const sfp_tensor *t = NULL;
    sfp_status s = sfp__head_find(l, name, dtype, &t, err);
    if (s == SFP_OK)
        s = sfp__tensor_expect(l->file, t, shape, ndim, err);
    if (s != SFP_OK || t->bytes == 0)
        return s;
    memcpy(out, t->data, t->bytes);
    double value = 0;
    size_t at = first_not_finite(dtype, t->count, out, &value);
    if (at < t->count)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s.%s' has %g as element %zu, expected a finite number", l->file,
                         l->prefix, name, value, at);
    return SFP_OK;
}

static sfp_status put_classes(const sfp_head *h, const sfp_head_saver *saver, sfp_error *err)
{
    const int64_t rows = h->rows;
    sfp_status s = sfp__head_put(saver, "labels", SFP_DTYPE_I64, 1, &rows, h->label, err);
    return s == SFP_OK ? sfp__head_put(saver, "counts", SFP_DTYPE_I64, 1, &rows, h->count, err) : s;
}

sfp_status sfp__head_visit(const sfp_head *h, const char *prefix, sfp_head_tensor_fn fn, void *ctx, sfp_error *err)
{
    const sfp_head_saver saver = {.prefix = prefix, .fn = fn, .ctx = ctx};
    sfp_status s = put_classes(h, &saver, err);
    return s == SFP_OK ? h->kind->save(h, &saver, err) : s;
}

sfp_status sfp__head_visit_answer(sfp_head *h, const char *prefix, sfp_head_tensor_fn fn, void *ctx, sfp_error *err)
{
    const sfp_head_saver saver = {.prefix = prefix, .fn = fn, .ctx = ctx};
    sfp_status s = sfp__head_refresh(h, err);
    if (s == SFP_OK)
        s = put_classes(h, &saver, err);
    if (s != SFP_OK)
        return s;
    return h->kind->save_answer ? h->kind->save_answer(h, &saver, err) : h->kind->save(h, &saver, err);
}

static sfp_status load_classes(sfp_head *h, const sfp_head_loader *l, sfp_error *err)
{
    const sfp_tensor *t = NULL;
    sfp_status s = sfp__head_find(l, "labels", SFP_DTYPE_I64, &t, err);
    if (s != SFP_OK)
        return s;
    if (t->ndim != 1 || t->count > SFP_HEAD_LABEL_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s.labels' is no list of classes", l->file, l->prefix);
    const int64_t rows = (int64_t)t->count;
    s = reserve_rows(h, (int)rows, err);
    if (s == SFP_OK)
        s = sfp__head_get(l, "labels", SFP_DTYPE_I64, 1, &rows, h->label, err);
    if (s == SFP_OK)
        s = sfp__head_get(l, "counts", SFP_DTYPE_I64, 1, &rows, h->count, err);
    for (int64_t r = 0; s == SFP_OK && r < rows; r++) {
        int64_t label = h->label[r];
        if (label < 0 || label >= SFP_HEAD_LABEL_MAX || h->count[r] < 1 || h->count[r] > INT64_MAX / SFP_HEAD_LABEL_MAX)
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s': class %lld has label %lld and %lld samples", l->file, l->prefix,
                             (long long)r, (long long)label, (long long)h->count[r]);
        s = reserve_labels(h, (int)label + 1, err);
        if (s == SFP_OK && row_of(h, (int)label) != (int)r)
            s = sfp__fail(err, SFP_EFORMAT, "%s: '%s': label %lld is there twice", l->file, l->prefix, (long long)label);
        h->n += h->count[r];
    }
    return s;
}

static sfp_status load(sfp_head *h, const sfp_head_loader *loader, bool answers, sfp_error *err)
{
    sfp_head *fresh = NULL; /* a failed load leaves h as it was */
    sfp_status s = sfp__head_create(h->kind->name, &h->opt, &fresh, err);
    if (s == SFP_OK)
        s = load_classes(fresh, loader, err);
    if (s == SFP_OK)
        s = answers && h->kind->load_answer ? h->kind->load_answer(fresh, loader, err) : h->kind->load(fresh, loader, err);
    if (s == SFP_OK) {
        fresh->answers = answers;
        char *a = (char *)h, *b = (char *)fresh;
        for (size_t i = 0; i < h->kind->size; i++) {
            char c = a[i];
            a[i] = b[i];
            b[i] = c;
        }
    }
    sfp__head_free(fresh);
    return s;
}

sfp_status sfp__head_load(sfp_head *h, const char *prefix, sfp_head_find_fn find, void *ctx, const char *file, sfp_error *err)
{
    const sfp_head_loader loader = {.prefix = prefix, .file = file, .find = find, .ctx = ctx};
    return load(h, &loader, false, err);
}

sfp_status sfp__head_load_answer(sfp_head *h, const char *prefix, sfp_head_find_fn find, void *ctx, const char *file,
                                 sfp_error *err)
{
    const sfp_head_loader loader = {.prefix = prefix, .file = file, .find = find, .ctx = ctx};
    return load(h, &loader, true, err);
}
