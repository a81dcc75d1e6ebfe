/* Tensors in a pickle of PyTorch.
 *
 *   _rebuild_tensor_v2(storage, offset, size, stride, ...)      a view of a storage
 *   _rebuild_parameter(tensor, ...)                             the same, to be trained
 *   _rebuild_from_type_v2(function, type, arguments, state)     the same, of a subclass
 *
 * They are looked for in dicts and in the modules of TorchScript, which are
 * dicts in disguise; everything else of a training checkpoint (arguments,
 * random states, schedules) is passed over. A pickle can lead in circles and
 * reach one dict by many ways, so depth and number of steps are limited. */
#include "io/tensor/formats.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 24, KEY_MAX = 512 };
#define STEPS_MAX ((size_t)2000000)
#define SLACK ((size_t)1 << 20)

const char *const sfp__torch_globals[] = {
    "collections.OrderedDict", "collections.defaultdict", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter", "torch._tensor._rebuild_from_type_v2", "torch.nn.parameter.Parameter", "torch.Tensor",
    "torch.FloatStorage", "torch.DoubleStorage", "torch.HalfStorage", "torch.BFloat16Storage", "torch.LongStorage",
    "torch.IntStorage", "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage", "torch.BoolStorage", "torch.Size",
    "torch.device", "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int64", "torch.int32",
    "torch.uint8", "torch.bool",
    /* what training scripts leave beside the weights; never looked into */
    "argparse.Namespace", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype", "_codecs.encode",
    "pathlib.PosixPath", "builtins.int", "builtins.float", "builtins.list", "builtins.dict",
    /* TorchScript: the user's modules, and typed lists */
    "__torch__.*", "torch.jit._pickle.*", NULL};

sfp_pickle_limits sfp__torch_limits(void)
{
    sfp_pickle_limits l = sfp__pickle_limits_defaults();
    l.bytes = (size_t)64 << 20;
    l.items = STEPS_MAX;
    l.memo = STEPS_MAX;
    l.globals = sfp__torch_globals;
    return l;
}

/* ------------------------------------------------------------------ storages */

static const struct {
    const char *name;
    sfp_dtype dtype;
} types[] = {{"torch.FloatStorage", SFP_DTYPE_F32},     {"torch.HalfStorage", SFP_DTYPE_F16},
             {"torch.BFloat16Storage", SFP_DTYPE_BF16}, {"torch.DoubleStorage", SFP_DTYPE_F64},
             {"torch.LongStorage", SFP_DTYPE_I64},      {"torch.IntStorage", SFP_DTYPE_I32},
             {"torch.ByteStorage", SFP_DTYPE_U8},       {"torch.BoolStorage", SFP_DTYPE_U8}};

/* A persistent value is ('storage', type, key, where it was, elements), in old files also which part of another storage it is:
 * None since storages are no longer parts of others. */
static sfp_status read_storage(const char *path, const sfp_pickle *p, sfp_pickle_value v, sfp__torch_storage *out, sfp_error *err)
{
    sfp_pickle_value id = sfp__pickle_item(p, v, 0);
    size_t key_size = 0;
    const char *kind = NULL, *type = NULL, *key = NULL;
    int64_t count = -1;
    if (sfp__pickle_type(p, id) == SFP_PICKLE_TUPLE && sfp__pickle_count(p, id) >= 5) {
        kind = sfp__pickle_text(p, sfp__pickle_item(p, id, 0), NULL);
        type = sfp__pickle_global(p, sfp__pickle_item(p, id, 1));
        key = sfp__pickle_text(p, sfp__pickle_item(p, id, 2), &key_size);
        if (sfp__pickle_type(p, sfp__pickle_item(p, id, 4)) == SFP_PICKLE_INT)
            count = sfp__pickle_int(p, sfp__pickle_item(p, id, 4));
        if (sfp__pickle_count(p, id) > 5 && sfp__pickle_type(p, sfp__pickle_item(p, id, 5)) != SFP_PICKLE_NONE)
            return sfp__fail(err, SFP_EUNSUPPORTED, "%s: a storage is part of another one, expected whole storages", path);
    }
    if (!kind || strcmp(kind, "storage") != 0 || !type || !key || key_size > KEY_MAX || strlen(key) != key_size || count < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: the pickle names something outside of it that is no storage of a tensor", path);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].name) == 0) {
            *out = (sfp__torch_storage){.at = v, .key = key, .dtype = types[i].dtype, .count = (size_t)count};
            return SFP_OK;
        }
    return sfp__fail(err, SFP_EUNSUPPORTED, "%s: a storage is of type '%s', expected floats, 64- or 32-bit integers or bytes",
                     path, type);
}

sfp_status sfp__torch_find_storages(const char *path, const sfp_pickle *p, sfp__torch_storages *out, sfp_error *err)
{
    size_t n = 0;
    for (sfp_pickle_value v = 0; sfp__pickle_next(p, SFP_PICKLE_PERSISTENT, &v);)
        n++;
    OWNED sfp__torch_storage *list = NULL;
    TRY(sfp__alloc(&list, n, sizeof *list, err));
    n = 0;
    for (sfp_pickle_value v = 0; sfp__pickle_next(p, SFP_PICKLE_PERSISTENT, &v);)
        TRY(read_storage(path, p, v, &list[n++], err));
    *out = (sfp__torch_storages){TAKE(list), n};
    return SFP_OK;
}

static int compare_at(const void *pa, const void *pb)
{
    const sfp__torch_storage *a = pa, *b = pb;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* ------------------------------------------------------------------- tensors */

typedef struct walk {
    sfp_tensor_file *f;
    const sfp_pickle *p;
    const sfp__torch_storages *storages;
    size_t steps, left; /* steps done; bytes that tensors may still take */
    size_t copies;      /* bytes that tensors may still be copied to */
    sfp_text name;      /* of the value at hand */
    sfp_error *err;
} walk;

#define FAIL_TENSOR(status, fmt, ...)                             \
    sfp__fail(w->err, status, "%s: tensor '%s' " fmt, w->f->path, \
              sfp__printable(w->name.s, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX), __VA_ARGS__)

/* A tuple of up to SFP_MAX_DIMS numbers that are not negative; their number, or -1. */
static int read_numbers(const sfp_pickle *p, sfp_pickle_value v, int64_t out[SFP_MAX_DIMS])
{
    size_t n = sfp__pickle_count(p, v);
    if (sfp__pickle_type(p, v) != SFP_PICKLE_TUPLE || n > SFP_MAX_DIMS)
        return -1;
    for (size_t i = 0; i < n; i++) {
        sfp_pickle_value item = sfp__pickle_item(p, v, i);
        out[i] = sfp__pickle_int(p, item);
        if (sfp__pickle_type(p, item) != SFP_PICKLE_INT || out[i] < 0)
            return -1;
    }
    return (int)n;
}

static bool is_dense(const sfp_tensor *t, const int64_t *stride)
{
    int64_t dense = 1;
    for (int i = t->ndim; i-- > 0; dense *= t->shape[i])
        if (t->shape[i] != 1 && stride[i] != dense)
            return false;
    return true;
}

/* The last element of the view lies in the storage; an empty view has none. */
static bool lies_inside(const sfp_tensor *t, const int64_t *stride, size_t offset, size_t count)
{
    size_t last = offset, step;
    if (t->count == 0)
        return offset <= count;
    for (int i = 0; i < t->ndim; i++)
        if (!sfp__mul_size((size_t)(t->shape[i] - 1), (size_t)stride[i], &step) || !sfp__add_size(last, step, &last))
            return false;
    return last < count;
}

/* A view that is no plain piece of its storage (a transpose, say), copied in order. */
static sfp_status gather(walk *w, sfp_tensor *t, const int64_t *stride, const uint8_t *from)
{
    size_t size = sfp__dtype_size(t->dtype);
    if (t->bytes > w->copies)
        return FAIL_TENSOR(SFP_ELIMIT, "is strided, and the copies of such tensors would be larger than the file%s", "");
    w->copies -= t->bytes;
    uint8_t *out = sfp__malloc(t->bytes);
    if (!out)
        return sfp__fail_nomem(w->err);
    int64_t at[SFP_MAX_DIMS] = {0};
    for (size_t i = 0; i < t->count; i++) {
        size_t place = 0;
        for (int d = 0; d < t->ndim; d++)
            place += (size_t)at[d] * (size_t)stride[d];
        memcpy(out + i * size, from + place * size, size);
        for (int d = t->ndim; d-- > 0 && ++at[d] == t->shape[d];)
            at[d] = 0;
    }
    t->data = out;
    return sfp__tensor_file_own(w->f, out, w->err);
}

/* (storage, offset, size, stride, ...) */
static sfp_status add_view(walk *w, sfp_pickle_value args)
{
    const sfp_pickle *p = w->p;
    int64_t stride[SFP_MAX_DIMS];
    sfp_tensor t = {.name = w->name.s};
    size_t n = sfp__pickle_count(p, args);
    const sfp__torch_storage key = {.at = n >= 4 ? sfp__pickle_item(p, args, 0) : 0};
    const sfp__torch_storage *s =
        w->storages->count ? bsearch(&key, w->storages->list, w->storages->count, sizeof key, compare_at) : NULL;
    if (!s)
        return FAIL_TENSOR(SFP_EFORMAT, "has no storage%s", "");
    int64_t offset = sfp__pickle_int(p, sfp__pickle_item(p, args, 1));
    t.dtype = s->dtype;
    t.ndim = read_numbers(p, sfp__pickle_item(p, args, 2), t.shape);
    if (t.ndim < 0 || read_numbers(p, sfp__pickle_item(p, args, 3), stride) != t.ndim || offset < 0)
        return FAIL_TENSOR(SFP_EFORMAT, "has a size, stride or offset that is none, expected up to %d numbers of 0 or more",
                           SFP_MAX_DIMS);
    char shape[SFP_SHAPE_MAX];
    (void)sfp__shape_text(t.shape, t.ndim, shape, sizeof shape);
    if (!sfp__shape_count(t.shape, t.ndim, t.dtype, &t.count, &t.bytes) || t.count > s->count ||
        !lies_inside(&t, stride, (size_t)offset, s->count))
        return FAIL_TENSOR(SFP_EFORMAT, "is %s at element %lld, but its storage '%s' has %zu elements", shape, (long long)offset,
                           sfp__printable(s->key, (char[64]){0}, 64), s->count);
    if (t.bytes > w->left)
        return FAIL_TENSOR(SFP_ELIMIT, "and those before it are more than twice as large as the file%s", "");
    w->left -= t.bytes;
    const uint8_t *from = s->bytes + (size_t)offset * sfp__dtype_size(t.dtype);
    t.data = from;
    TRY(t.count == 0 || is_dense(&t, stride) ? SFP_OK : gather(w, &t, stride, from));
    return sfp__tensor_file_add(w->f, &t, w->err);
}

/* The arguments of _rebuild_tensor(_v2) behind an object, whatever it is wrapped in; false: it is no tensor. */
static bool find_view(const sfp_pickle *p, sfp_pickle_value v, sfp_pickle_value *args)
{
    for (int wrapped = 0; wrapped < 4 && sfp__pickle_type(p, v) == SFP_PICKLE_OBJECT; wrapped++) {
        const char *name = sfp__pickle_global(p, sfp__pickle_item(p, v, 0));
        *args = sfp__pickle_item(p, v, 1);
        if (strcmp(name, "torch._tensor._rebuild_from_type_v2") == 0 && sfp__pickle_count(p, *args) >= 3) {
            name = sfp__pickle_global(p, sfp__pickle_item(p, *args, 0));
            *args = sfp__pickle_item(p, *args, 2);
        }
        if (name && sfp__pickle_type(p, *args) == SFP_PICKLE_TUPLE && strncmp(name, "torch._utils._rebuild_tensor", 28) == 0)
            return true;
        if (!name || strcmp(name, "torch._utils._rebuild_parameter") != 0 || sfp__pickle_count(p, *args) < 1)
            return false;
        v = sfp__pickle_item(p, *args, 0);
    }
    return false;
}

/* The dict to look into: one itself, or the state of a TorchScript module. */
static bool find_dict(const sfp_pickle *p, sfp_pickle_value v, sfp_pickle_value *dict)
{
    if (sfp__pickle_type(p, v) == SFP_PICKLE_OBJECT && sfp__pickle_count(p, v) == 3 &&
        strncmp(sfp__pickle_global(p, sfp__pickle_item(p, v, 0)), "__torch__.", 10) == 0)
        v = sfp__pickle_item(p, v, 2);
    *dict = v;
    return sfp__pickle_type(p, v) == SFP_PICKLE_DICT;
}

static sfp_status put_key(walk *w, sfp_pickle_value key, bool *usable)
{
    size_t length = 0;
    const char *text = sfp__pickle_text(w->p, key, &length);
    *usable = text || sfp__pickle_type(w->p, key) == SFP_PICKLE_INT;
    if (text && (length > KEY_MAX || strlen(text) != length))
        return sfp__fail(w->err, SFP_ELIMIT, "%s: a name in the pickle is %zu bytes or has a NUL in it, expected at most %d",
                         w->f->path, length, KEY_MAX);
    if (text)
        sfp__text_putn(&w->name, text, length);
    else
        sfp__text_printf(&w->name, "%lld", (long long)sfp__pickle_int(w->p, key));
    return w->name.failed ? sfp__fail_nomem(w->err) : SFP_OK;
}

static void cut_name(walk *w, size_t length)
{
    w->name.length = length;
    if (w->name.s)
        w->name.s[length] = '\0';
}

static sfp_status walk_dict(walk *w, sfp_pickle_value dict, int depth);

static sfp_status walk_value(walk *w, sfp_pickle_value v, int depth)
{
    sfp_pickle_value inner = 0;
    if (find_view(w->p, v, &inner))
        return add_view(w, inner);
    if (!find_dict(w->p, v, &inner))
        return SFP_OK;
    if (depth == DEPTH_MAX)
        return sfp__fail(w->err, SFP_ELIMIT, "%s: dicts are nested deeper than %d or in a circle, at '%s'", w->f->path, DEPTH_MAX,
                         sfp__printable(w->name.s, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    sfp__text_put(&w->name, ".");
    return w->name.failed ? sfp__fail_nomem(w->err) : walk_dict(w, inner, depth + 1);
}

static sfp_status walk_dict(walk *w, sfp_pickle_value dict, int depth)
{
    size_t prefix = w->name.length;
    for (size_t i = 0; i < sfp__pickle_count(w->p, dict); i++) {
        bool usable = false;
        if (++w->steps > STEPS_MAX)
            return sfp__fail(w->err, SFP_ELIMIT, "%s: the pickle's dicts have more than %zu entries, one inside another",
                             w->f->path, STEPS_MAX);
        TRY(put_key(w, sfp__pickle_key(w->p, dict, i), &usable));
        if (usable)
            TRY(walk_value(w, sfp__pickle_item(w->p, dict, i), depth));
        cut_name(w, prefix);
    }
    return SFP_OK;
}

sfp_status sfp__torch_add_tensors(sfp_tensor_file *f, const sfp_pickle *p, const sfp__torch_storages *s, size_t bytes,
                                  sfp_error *err)
{
    walk w = {.f = f, .p = p, .storages = s, .err = err, .copies = bytes};
    if (!sfp__mul_size(bytes, 2, &w.left) || !sfp__add_size(w.left, SLACK, &w.left))
        w.left = SIZE_MAX;
    sfp_pickle_value root = p->root, inner;
    sfp_status status = SFP_OK;
    if (find_view(p, root, &inner)) {
        sfp__text_put(&w.name, "tensor");
        status = w.name.failed ? sfp__fail_nomem(err) : add_view(&w, inner);
    } else if (find_dict(p, root, &inner)) {
        status = walk_dict(&w, inner, 0);
    } else {
        status = sfp__fail(err, SFP_EFORMAT, "%s: the pickle holds %s, expected a dict of tensors", f->path,
                           sfp__pickle_type_name(sfp__pickle_type(p, root)));
    }
    sfp__text_done(&w.name);
    return status;
}
