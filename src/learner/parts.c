#include "learner/parts.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 96, PREFIX = 40 };

/* Part `index` as a tensor whose name lies in `name`; returns how many there are. */
static int tensor_of(const char *prefix, sfp_parts_fn parts, void *state, int index, char name[NAME], sfp_tensor *t, void **data)
{
    static const sfp_dtype types[] = {[SFP_PART_F32] = SFP_DTYPE_F32,
                                      [SFP_PART_F64] = SFP_DTYPE_F64,
                                      [SFP_PART_I32] = SFP_DTYPE_I32,
                                      [SFP_PART_I64] = SFP_DTYPE_I64,
                                      [SFP_PART_U8] = SFP_DTYPE_U8};
    sfp_part p = {0};
    int count = parts(state, index, &p);
    if (index >= count)
        return count;
    (void)snprintf(name, NAME, "%s.%s", prefix, p.name);
    *t = (sfp_tensor){.name = name, .dtype = types[p.type], .ndim = p.ndim, .data = p.data};
    memcpy(t->shape, p.shape, sizeof p.shape);
    (void)sfp__shape_count(t->shape, t->ndim, t->dtype, &t->count, &t->bytes); /* it is in memory: it fits */
    *data = p.data;
    return count;
}

sfp_status sfp__parts_visit(const char *prefix, sfp_parts_fn parts, void *state,
                            sfp_status (*fn)(void *ctx, const sfp_tensor *t, sfp_error *err), void *ctx, sfp_error *err)
{
    char name[NAME];
    sfp_tensor t;
    void *data;
    sfp_status s = SFP_OK;
    for (int i = 0; !s && parts && i < tensor_of(prefix, parts, state, i, name, &t, &data); i++)
        s = fn(ctx, &t, err);
    return s;
}

sfp_status sfp__parts_check(const char *prefix, sfp_parts_fn parts, void *state, const sfp_tensor_file *st, sfp_error *err)
{
    char name[NAME];
    sfp_tensor t;
    void *data;
    for (int i = 0; parts && i < tensor_of(prefix, parts, state, i, name, &t, &data); i++) {
        const sfp_tensor *found = NULL;
        sfp_status s = sfp__tensor_file_need(st, name, &found, err);
        if (!s && found->dtype != t.dtype)
            s = sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is %s, expected %s", st->path, name,
                          sfp__dtype_name(found->dtype), sfp__dtype_name(t.dtype));
        if (!s)
            s = sfp__tensor_expect(st->path, found, t.shape, t.ndim, err);
        if (s)
            return s;
    }
    return SFP_OK;
}

void sfp__parts_load(const char *prefix, sfp_parts_fn parts, void *state, const sfp_tensor_file *st)
{
    char name[NAME];
    sfp_tensor t;
    void *data;
    for (int i = 0; parts && i < tensor_of(prefix, parts, state, i, name, &t, &data); i++)
        memcpy(data, sfp__tensor_file_find(st, name)->data, t.bytes);
}

/* ------------------------------------------------------------------ of a buffer */

static sfp_parts_fn parts_of(const sfp_buffer *b, char prefix[PREFIX])
{
    const sfp_buffer_method *method = b ? b->method : NULL;
    (void)snprintf(prefix, PREFIX, "buffer.%s", method ? method->name : "");
    return method ? method->parts : NULL;
}

sfp_status sfp__parts_visit_buffer(const sfp_buffer *b, sfp_status (*fn)(void *ctx, const sfp_tensor *t, sfp_error *err),
                                   void *ctx, sfp_error *err)
{
    char prefix[PREFIX];
    sfp_parts_fn parts = parts_of(b, prefix);
    return parts ? sfp__parts_visit(prefix, parts, b->state, fn, ctx, err) : SFP_OK;
}

sfp_status sfp__parts_check_buffer(const sfp_buffer *b, const sfp_tensor_file *st, sfp_error *err)
{
    char prefix[PREFIX];
    sfp_parts_fn parts = parts_of(b, prefix);
    return parts ? sfp__parts_check(prefix, parts, b->state, st, err) : SFP_OK;
}

void sfp__parts_load_buffer(const sfp_buffer *b, const sfp_tensor_file *st)
{
    char prefix[PREFIX];
    sfp_parts_fn parts = parts_of(b, prefix);
    if (parts)
        sfp__parts_load(prefix, parts, b->state, st);
}
