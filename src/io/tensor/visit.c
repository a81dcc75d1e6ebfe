#include "io/tensor/visit.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>

static sfp_status put_tensor(void *ctx, const sfp__tensor *t, sfp_error *err)
{
    return sfp__tensor_list_add(ctx, t, NULL, err);
}

static const sfp__tensor *find_tensor(void *ctx, const char *name)
{
    return sfp__tensor_file_find(ctx, name);
}

sfp__visitor sfp__visit_writing(sfp__tensor_list *tensors)
{
    return (sfp__visitor){.ctx = tensors, .put = put_tensor};
}

sfp__visitor sfp__visit_reading(sfp__tensor_file *file, bool check_only)
{
    return (sfp__visitor){.ctx = file, .find = find_tensor, .file = file->path, .check_only = check_only};
}

static void full_name(const sfp__visitor *v, const char *name, char out[SFP__NAME_MAX])
{
    (void)snprintf(out, SFP__NAME_MAX, "%s%s%s", v->prefix ? v->prefix : "", v->prefix ? "." : "", name);
}

sfp_status sfp__visit_find(const sfp__visitor *v, const char *name, sfp__dtype dtype, const sfp__tensor **out, sfp_error *err)
{
    char full[SFP__NAME_MAX];
    full_name(v, name, full);
    const sfp__tensor *t = v->find(v->ctx, full);
    if (!t)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor '%s' is missing", v->file, full);
    if (t->dtype != dtype && !(v->converts && dtype == SFP__DTYPE_F32))
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is %s, expected %s", v->file, full, sfp__dtype_name(t->dtype),
                         sfp__dtype_name(dtype));
    *out = t;
    return SFP_OK;
}

static sfp_status check_finite(const sfp__visitor *v, const sfp__tensor *t, sfp_error *err)
{
    bool f32 = t->dtype == SFP__DTYPE_F32;
    for (size_t i = 0; (f32 || t->dtype == SFP__DTYPE_F64) && i < t->count; i++) {
        double value;
        float narrow;
        memcpy(f32 ? (void *)&narrow : (void *)&value, (const char *)t->data + i * (f32 ? 4 : 8), f32 ? 4 : 8);
        value = f32 ? (double)narrow : value;
        if (!isfinite(value))
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %g as element %zu, expected a finite number", v->file,
                             t->name, value, i);
    }
    return SFP_OK;
}

/* Finds the tensor to read and checks its type, shape and values. */
static sfp_status find_and_check(const sfp__visitor *v, const sfp__tensor *want, const sfp__tensor **out, sfp_error *err)
{
    const sfp__visitor whole = {.ctx = v->ctx, .find = v->find, .file = v->file, .converts = v->converts};
    TRY(sfp__visit_find(&whole, want->name, want->dtype, out, err));
    TRY(sfp__tensor_expect(v->file, *out, want->shape, want->ndim, err));
    return v->finite && !v->converts ? check_finite(v, *out, err) : SFP_OK;
}

/* Converts a tensor of any type to floats; `to` NULL: only checks that they are finite. It is converted in pieces, so that a check
 * needs no memory. */
static sfp_status convert(const sfp__visitor *v, const sfp__tensor *t, float *to, sfp_error *err)
{
    enum { PIECE = 512 };
    float values[PIECE];
    size_t size = sfp__dtype_size(t->dtype), n;
    for (size_t i = 0; i < t->count; i += n) {
        n = t->count - i < PIECE ? t->count - i : PIECE;
        const sfp__tensor piece = {.dtype = t->dtype, .count = n, .bytes = n * size, .data = (const char *)t->data + i * size};
        TRY(sfp__tensor_to_f32(v->file, &piece, values, err));
        for (size_t k = 0; k < n; k++)
            if (!isfinite(values[k]))
                return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %g as element %zu, expected a finite number", v->file,
                                 t->name, (double)values[k], i + k);
        if (to)
            memcpy(to + i, values, n * sizeof *to);
    }
    return SFP_OK;
}

static sfp_status describe(const sfp__visitor *v, const char *name, char full[SFP__NAME_MAX], sfp__dtype dtype, int ndim,
                           const int64_t *shape, const void *data, sfp__tensor *out, sfp_error *err)
{
    full_name(v, name, full);
    *out = (sfp__tensor){.name = full, .dtype = dtype, .ndim = ndim, .data = data};
    memcpy(out->shape, shape, (size_t)ndim * sizeof *shape);
    if (!sfp__shape_count(out->shape, ndim, dtype, &out->count, &out->bytes))
        return sfp__fail(err, SFP_ELIMIT, "tensor '%s' is too large", full);
    return SFP_OK;
}

sfp_status sfp__visit(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape, void *data,
                      sfp_error *err)
{
    char full[SFP__NAME_MAX];
    sfp__tensor t;
    const sfp__tensor *found = NULL;
    TRY(describe(v, name, full, dtype, ndim, shape, data, &t, err));
    if (v->put)
        return v->put(v->ctx, &t, err);
    TRY(find_and_check(v, &t, &found, err));
    if (v->converts && dtype == SFP__DTYPE_F32)
        return convert(v, found, v->check_only ? NULL : data, err);
    if (!v->check_only && found->bytes > 0)
        memcpy(data, found->data, found->bytes);
    return SFP_OK;
}

sfp_status sfp__visit_values(const sfp__visitor *v, const char *name, sfp__dtype dtype, int64_t count, void *data, sfp_error *err)
{
    sfp__visitor reading = *v;
    reading.check_only = false; /* the values go to the caller's copy, not into the object */
    if (!v->put)
        return sfp__visit(&reading, name, dtype, 1, &count, data, err);
    size_t bytes = (size_t)count * sfp__dtype_size(dtype);
    sfp__tensor_list *tensors = v->ctx;
    void *copy = sfp__arena_take(&tensors->arena, bytes, 1);
    TRY(sfp__check_memory(copy, err));
    memcpy(copy, data, bytes);
    return sfp__visit(v, name, dtype, 1, &count, copy, err);
}

sfp_status sfp__visit_pieces(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape,
                             const sfp__pieces *pieces, sfp_error *err)
{
    char full[SFP__NAME_MAX];
    sfp__tensor t;
    const sfp__tensor *found = NULL;
    size_t bytes = 0;
    TRY(describe(v, name, full, dtype, ndim, shape, pieces->n > 0 ? pieces->at(pieces->ctx, 0, &bytes) : NULL, &t, err));
    if (v->put)
        return sfp__tensor_list_add(v->ctx, &t, pieces, err);
    TRY(find_and_check(v, &t, &found, err));
    const char *from = found->data;
    for (int i = 0; i < pieces->n && !v->check_only; i++, from += bytes) {
        void *to = pieces->at(pieces->ctx, i, &bytes);
        memcpy(to, from, bytes);
    }
    return SFP_OK;
}
