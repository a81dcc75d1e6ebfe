#include "learner/validation.h"

#include "base/mem.h"
#include "learner/heads/sums.h"

#include <string.h>

sfp_status sfp__validation_init(sfp__validation *v, size_t image_bytes, size_t tap_dim, sfp_error *err)
{
    size_t n = SFP_VALIDATION_SIZE;
    *v = (sfp__validation){.image_bytes = image_bytes, .tap_dim = tap_dim};
    const sfp__want list[] = {{&v->key, n, sizeof *v->key},
                              {&v->label, n, sizeof *v->label},
                              {&v->rgb, n * image_bytes, 1},
                              {&v->tap, n * tap_dim, sizeof *v->tap}};
    return sfp__block(&v->block, SFP_LIST(list), err);
}

void sfp__validation_done(sfp__validation *v)
{
    sfp__free(v->block);
}

/* Moves the elements [from, from + n) of an array with elements of `size` bytes by one place. */
static void shift(void *array, int64_t from, int64_t n, size_t size)
{
    char *p = (char *)array + (size_t)from * size;
    memmove(p + size, p, (size_t)n * size);
}

void sfp__validation_add(sfp__validation *v, const uint8_t *rgb, const float *tap, int32_t label, uint64_t key)
{
    int64_t at = v->count;
    if (sfp__sums_fold_of(key) != SFP_HELD)
        return;
    while (at > 0 && v->key[at - 1] > key)
        at--;
    if (at == SFP_VALIDATION_SIZE || (at > 0 && v->key[at - 1] == key))
        return;
    int64_t moved = (v->count < SFP_VALIDATION_SIZE ? v->count : SFP_VALIDATION_SIZE - 1) - at;
    shift(v->key, at, moved, sizeof *v->key);
    shift(v->label, at, moved, sizeof *v->label);
    shift(v->rgb, at, moved, v->image_bytes);
    shift(v->tap, at, moved, v->tap_dim * sizeof *v->tap);
    v->key[at] = key;
    v->label[at] = label;
    memcpy(v->rgb + (size_t)at * v->image_bytes, rgb, v->image_bytes);
    memcpy(v->tap + (size_t)at * v->tap_dim, tap, v->tap_dim * sizeof *tap);
    v->count += v->count < SFP_VALIDATION_SIZE;
}

sfp_status sfp__validation_visit(sfp__validation *v, const sfp__visitor *with, bool commits, int classes, sfp_error *err)
{
    int64_t n[] = {v->count, v->next};
    TRY(sfp__visit_values(with, "validation", SFP_DTYPE_I64, 2, n, err));
    if (n[0] < 0 || n[0] > SFP_VALIDATION_SIZE || n[1] < 0 || n[1] > SFP_VALIDATION_SIZE)
        return sfp__fail(err, SFP_EFORMAT, "%s: 'validation': number of images is %lld, expected 0 to %d", with->file,
                         (long long)n[0], SFP_VALIDATION_SIZE);
    const int64_t rgb[] = {n[0], (int64_t)v->image_bytes}, tap[] = {n[0], (int64_t)v->tap_dim};
    TRY(sfp__visit(with, "validation.key", SFP_DTYPE_I64, 1, rgb, v->key, err));
    TRY(sfp__visit(with, "validation.label", SFP_DTYPE_I32, 1, rgb, v->label, err));
    TRY(sfp__visit(with, "validation.image", SFP_DTYPE_U8, 2, rgb, v->rgb, err));
    TRY(sfp__visit(with, "validation.tap", SFP_DTYPE_F32, 2, tap, v->tap, err));
    if (!commits)
        return SFP_OK;
    v->count = n[0];
    v->next = n[1];
    for (int64_t i = 0; i < v->count; i++) /* a damaged label must not become an index */
        if (v->label[i] < 0 || v->label[i] >= classes)
            v->count = i;
    return SFP_OK;
}
