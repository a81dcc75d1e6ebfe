/* PyTorch files (torch.save, TorchScript).
 *
 * Since version 1.6 they are zip archives. NAME/data.pkl contains the names, the shapes and the storage that each tensor is a
 * view of. NAME/data/KEY are the storages, uncompressed and aligned, so tensors are pointers into the mapped file. Older files
 * are one stream: a magic number, protocol, system information, the same pickle, the keys of the storages in order, then each
 * storage as its length and its numbers.
 *
 * Tensors in the pickle:
 *
 *     _rebuild_tensor_v2(storage, offset, size, stride, ...)      a view of a storage
 *     _rebuild_parameter(tensor, ...)                             the same, trainable
 *     _rebuild_from_type_v2(function, type, arguments, state)     the same, of a subclass
 *
 * They are searched in dicts and in TorchScript modules, whose state is a dict. All other contents of a training checkpoint
 * (arguments, random states, schedules) are ignored. A pickle can contain cycles and can reach one dict by many paths, so the
 * depth and the number of steps are limited. */
#include "io/tensor/formats.h"

#include "base/text.h"
#include "io/tensor/pickle.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 24, KEY_MAX = 512 };
#define STEPS_MAX ((size_t)2000000)
#define SLACK ((size_t)1 << 20)

/* One flat array of numbers that tensors are views of; a persistent value of the pickle identifies it. */
typedef struct storage {
    sfp__pickle_value at; /* the persistent value */
    const char *key;      /* its name in the file */
    sfp__dtype dtype;
    size_t count; /* elements */
    const uint8_t *bytes;
} storage;

typedef struct storages {
    storage *list; /* (count), ascending by `at`; bytes NULL: not located yet */
    size_t count;
} storages;

/* The names that a pickle of weights may contain. */
static const char *const globals[] = {
    "collections.OrderedDict", "collections.defaultdict", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter", "torch._tensor._rebuild_from_type_v2", "torch.nn.parameter.Parameter", "torch.Tensor",
    "torch.FloatStorage", "torch.DoubleStorage", "torch.HalfStorage", "torch.BFloat16Storage", "torch.LongStorage",
    "torch.IntStorage", "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage", "torch.BoolStorage", "torch.Size",
    "torch.device", "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int64", "torch.int32",
    "torch.uint8", "torch.bool",
    /* data that training scripts store beside the weights; never read */
    "argparse.Namespace", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype", "_codecs.encode",
    "pathlib.PosixPath", "builtins.int", "builtins.float", "builtins.list", "builtins.dict",
    /* TorchScript: the user's modules, and typed lists */
    "__torch__.*", "torch.jit._pickle.*", NULL};

static sfp__pickle_limits torch_limits(void)
{
    sfp__pickle_limits l = sfp__pickle_limits_defaults();
    l.bytes = (size_t)64 << 20;
    l.items = STEPS_MAX;
    l.memo = STEPS_MAX;
    l.globals = globals;
    return l;
}

/* ------------------------------------------------------------------ storages */

static const struct {
    const char *name;
    sfp__dtype dtype;
} types[] = {{"torch.FloatStorage", SFP__DTYPE_F32},     {"torch.HalfStorage", SFP__DTYPE_F16},
             {"torch.BFloat16Storage", SFP__DTYPE_BF16}, {"torch.DoubleStorage", SFP__DTYPE_F64},
             {"torch.LongStorage", SFP__DTYPE_I64},      {"torch.IntStorage", SFP__DTYPE_I32},
             {"torch.ByteStorage", SFP__DTYPE_U8},       {"torch.BoolStorage", SFP__DTYPE_U8}};

/* Reads a persistent value: ('storage', type, key, device, number of elements). In old files a sixth item is the view of
 * another storage. It must be None, as in all newer files. */
static sfp_status read_storage(const char *path, const sfp__pickle *p, sfp__pickle_value v, storage *out, sfp_error *err)
{
    sfp__pickle_value id = sfp__pickle_item(p, v, 0);
    size_t key_size = 0;
    const char *kind = NULL, *type = NULL, *key = NULL;
    int64_t count = -1;
    if (sfp__pickle_type_of(p, id) == SFP__PICKLE_TUPLE && sfp__pickle_count(p, id) >= 5) {
        kind = sfp__pickle_text(p, sfp__pickle_item(p, id, 0), NULL);
        type = sfp__pickle_global(p, sfp__pickle_item(p, id, 1));
        key = sfp__pickle_text(p, sfp__pickle_item(p, id, 2), &key_size);
        if (sfp__pickle_type_of(p, sfp__pickle_item(p, id, 4)) == SFP__PICKLE_INT)
            count = sfp__pickle_int(p, sfp__pickle_item(p, id, 4));
        if (sfp__pickle_count(p, id) > 5 && sfp__pickle_type_of(p, sfp__pickle_item(p, id, 5)) != SFP__PICKLE_NONE)
            return sfp__fail(err, SFP_EUNSUPPORTED, "%s: a storage is a view of another one, expected whole storages", path);
    }
    if (!kind || strcmp(kind, "storage") != 0 || !type || !key || key_size > KEY_MAX || strlen(key) != key_size || count < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: the pickle has a persistent value that is not a tensor storage", path);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].name) == 0) {
            *out = (storage){.at = v, .key = key, .dtype = types[i].dtype, .count = (size_t)count};
            return SFP_OK;
        }
    return sfp__fail(err, SFP_EUNSUPPORTED, "%s: a storage has type '%s', expected floats, 64- or 32-bit integers or bytes", path,
                     type);
}

/* Finds every storage that the pickle refers to, with its type and length; the bytes are located later, depending on the file
 * layout. */
static sfp_status find_storages(const char *path, const sfp__pickle *p, storages *out, sfp_error *err)
{
    size_t n = 0;
    for (sfp__pickle_value v = 0; sfp__pickle_next(p, SFP__PICKLE_PERSISTENT, &v);)
        n++;
    OWNED storage *list = NULL;
    TRY(sfp__alloc(&list, n, sizeof *list, err));
    n = 0;
    for (sfp__pickle_value v = 0; sfp__pickle_next(p, SFP__PICKLE_PERSISTENT, &v);)
        TRY(read_storage(path, p, v, &list[n++], err));
    *out = (storages){TAKE(list), n};
    return SFP_OK;
}

static int compare_at(const void *pa, const void *pb)
{
    const storage *a = pa, *b = pb;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* ------------------------------------------------------------------- tensors */

typedef struct walk {
    sfp__tensor_file *f;
    const sfp__pickle *p;
    const storages *storages;
    size_t steps, left; /* number of steps done; bytes that further tensors may have */
    size_t copies;      /* bytes that further copies of tensors may have */
    sfp__text name;     /* dotted name of the current value */
    sfp_error *err;
} walk;

#define FAIL_TENSOR(status, fmt, ...)                             \
    sfp__fail(w->err, status, "%s: tensor '%s' " fmt, w->f->path, \
              sfp__printable(w->name.s, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX), __VA_ARGS__)

/* Reads a tuple of at most SFP__MAX_DIMS numbers that are not negative. Returns their number; -1: not such a tuple. */
static int read_numbers(const sfp__pickle *p, sfp__pickle_value v, int64_t out[SFP__MAX_DIMS])
{
    size_t n = sfp__pickle_count(p, v);
    if (sfp__pickle_type_of(p, v) != SFP__PICKLE_TUPLE || n > SFP__MAX_DIMS)
        return -1;
    for (size_t i = 0; i < n; i++) {
        sfp__pickle_value item = sfp__pickle_item(p, v, i);
        out[i] = sfp__pickle_int(p, item);
        if (sfp__pickle_type_of(p, item) != SFP__PICKLE_INT || out[i] < 0)
            return -1;
    }
    return (int)n;
}

static bool is_dense(const sfp__tensor *t, const int64_t *stride)
{
    int64_t dense = 1;
    for (int i = t->ndim; i-- > 0; dense *= t->shape[i])
        if (t->shape[i] != 1 && stride[i] != dense)
            return false;
    return true;
}

/* Returns whether the last element of the view is inside the storage; an empty view has none. */
static bool lies_inside(const sfp__tensor *t, const int64_t *stride, size_t offset, size_t count)
{
    size_t last = offset, step;
    if (t->count == 0)
        return offset <= count;
    for (int i = 0; i < t->ndim; i++)
        if (!sfp__mul_size((size_t)(t->shape[i] - 1), (size_t)stride[i], &step) || !sfp__add_size(last, step, &last))
            return false;
    return last < count;
}

/* Copies a view that is not contiguous in its storage, such as a transpose, in order. */
static sfp_status copy_strided(walk *w, sfp__tensor *t, const int64_t *stride, const uint8_t *from)
{
    size_t size = sfp__dtype_size(t->dtype);
    if (t->bytes > w->copies)
        return FAIL_TENSOR(SFP_ELIMIT, "is strided; copies of such tensors would be larger than the file%s", "");
    w->copies -= t->bytes;
    uint8_t *out = sfp__malloc(t->bytes);
    if (!out)
        return sfp__fail_nomem(w->err);
    int64_t at[SFP__MAX_DIMS] = {0};
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

/* Adds a tensor from the arguments (storage, offset, size, stride, ...). */
static sfp_status add_view(walk *w, sfp__pickle_value args)
{
    const sfp__pickle *p = w->p;
    int64_t stride[SFP__MAX_DIMS];
    sfp__tensor t = {.name = w->name.s};
    size_t n = sfp__pickle_count(p, args);
    const storage key = {.at = n >= 4 ? sfp__pickle_item(p, args, 0) : 0};
    const storage *s = w->storages->count ? bsearch(&key, w->storages->list, w->storages->count, sizeof key, compare_at) : NULL;
    if (!s)
        return FAIL_TENSOR(SFP_EFORMAT, "has no storage%s", "");
    int64_t offset = sfp__pickle_int(p, sfp__pickle_item(p, args, 1));
    t.dtype = s->dtype;
    t.ndim = read_numbers(p, sfp__pickle_item(p, args, 2), t.shape);
    if (t.ndim < 0 || read_numbers(p, sfp__pickle_item(p, args, 3), stride) != t.ndim || offset < 0)
        return FAIL_TENSOR(SFP_EFORMAT, "has an invalid size, stride or offset, expected at most %d numbers of 0 or more",
                           SFP__MAX_DIMS);
    char shape[SFP__SHAPE_MAX];
    (void)sfp__shape_text(t.shape, t.ndim, shape, sizeof shape);
    if (!sfp__shape_count(t.shape, t.ndim, t.dtype, &t.count, &t.bytes) || t.count > s->count ||
        !lies_inside(&t, stride, (size_t)offset, s->count))
        return FAIL_TENSOR(SFP_EFORMAT, "is %s at element %lld, but its storage '%s' has %zu elements", shape, (long long)offset,
                           sfp__printable(s->key, (char[64]){0}, 64), s->count);
    if (t.bytes > w->left)
        return FAIL_TENSOR(SFP_ELIMIT, "and the tensors before it are more than twice as large as the file%s", "");
    w->left -= t.bytes;
    const uint8_t *from = s->bytes + (size_t)offset * sfp__dtype_size(t.dtype);
    t.data = from;
    TRY(t.count == 0 || is_dense(&t, stride) ? SFP_OK : copy_strided(w, &t, stride, from));
    return sfp__tensor_file_add(w->f, &t, w->err);
}

/* Finds the arguments of _rebuild_tensor(_v2) in an object, also inside wrappers; false: not a tensor. */
static bool find_view(const sfp__pickle *p, sfp__pickle_value v, sfp__pickle_value *args)
{
    for (int wrapped = 0; wrapped < 4 && sfp__pickle_type_of(p, v) == SFP__PICKLE_OBJECT; wrapped++) {
        const char *name = sfp__pickle_global(p, sfp__pickle_item(p, v, 0));
        *args = sfp__pickle_item(p, v, 1);
        if (strcmp(name, "torch._tensor._rebuild_from_type_v2") == 0 && sfp__pickle_count(p, *args) >= 3) {
            name = sfp__pickle_global(p, sfp__pickle_item(p, *args, 0));
            *args = sfp__pickle_item(p, *args, 2);
        }
        if (name && sfp__pickle_type_of(p, *args) == SFP__PICKLE_TUPLE && strncmp(name, "torch._utils._rebuild_tensor", 28) == 0)
            return true;
        if (!name || strcmp(name, "torch._utils._rebuild_parameter") != 0 || sfp__pickle_count(p, *args) < 1)
            return false;
        v = sfp__pickle_item(p, *args, 0);
    }
    return false;
}

/* Finds the dict in a value: the value itself, or the state of a TorchScript module. */
static bool find_dict(const sfp__pickle *p, sfp__pickle_value v, sfp__pickle_value *dict)
{
    if (sfp__pickle_type_of(p, v) == SFP__PICKLE_OBJECT && sfp__pickle_count(p, v) == 3 &&
        strncmp(sfp__pickle_global(p, sfp__pickle_item(p, v, 0)), "__torch__.", 10) == 0)
        v = sfp__pickle_item(p, v, 2);
    *dict = v;
    return sfp__pickle_type_of(p, v) == SFP__PICKLE_DICT;
}

static sfp_status put_key(walk *w, sfp__pickle_value key, bool *usable)
{
    size_t length = 0;
    const char *text = sfp__pickle_text(w->p, key, &length);
    *usable = text || sfp__pickle_type_of(w->p, key) == SFP__PICKLE_INT;
    if (text && (length > KEY_MAX || strlen(text) != length))
        return sfp__fail(w->err, SFP_ELIMIT,
                         "%s: a name in the pickle has %zu bytes or contains a NUL, expected at most %d bytes", w->f->path,
                         length, KEY_MAX);
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

static sfp_status walk_dict(walk *w, sfp__pickle_value dict, int depth);

static sfp_status walk_value(walk *w, sfp__pickle_value v, int depth)
{
    sfp__pickle_value inner = 0;
    if (find_view(w->p, v, &inner))
        return add_view(w, inner);
    if (!find_dict(w->p, v, &inner))
        return SFP_OK;
    if (depth == DEPTH_MAX)
        return sfp__fail(w->err, SFP_ELIMIT, "%s: dicts are nested deeper than %d or in a cycle, at '%s'", w->f->path, DEPTH_MAX,
                         sfp__printable(w->name.s, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX));
    sfp__text_put(&w->name, ".");
    return w->name.failed ? sfp__fail_nomem(w->err) : walk_dict(w, inner, depth + 1);
}

static sfp_status walk_dict(walk *w, sfp__pickle_value dict, int depth)
{
    size_t prefix = w->name.length;
    for (size_t i = 0; i < sfp__pickle_count(w->p, dict); i++) {
        bool usable = false;
        if (++w->steps > STEPS_MAX)
            return sfp__fail(w->err, SFP_ELIMIT, "%s: the nested dicts of the pickle have more than %zu entries", w->f->path,
                             STEPS_MAX);
        TRY(put_key(w, sfp__pickle_key(w->p, dict, i), &usable));
        if (usable)
            TRY(walk_value(w, sfp__pickle_item(w->p, dict, i), depth));
        cut_name(w, prefix);
    }
    return SFP_OK;
}

/* Adds all tensors of all dicts to `f`. Together they may have twice `bytes` (the size of the storages), because only a few
 * weights are tied. */
static sfp_status add_tensors(sfp__tensor_file *f, const sfp__pickle *p, const storages *s, size_t bytes, sfp_error *err)
{
    walk w = {.f = f, .p = p, .storages = s, .err = err, .copies = bytes};
    if (!sfp__mul_size(bytes, 2, &w.left) || !sfp__add_size(w.left, SLACK, &w.left))
        w.left = SIZE_MAX;
    sfp__pickle_value root = p->root, inner;
    sfp_status status = SFP_OK;
    if (find_view(p, root, &inner)) {
        sfp__text_put(&w.name, "tensor");
        status = w.name.failed ? sfp__fail_nomem(err) : add_view(&w, inner);
    } else if (find_dict(p, root, &inner)) {
        status = walk_dict(&w, inner, 0);
    } else {
        status = sfp__fail(err, SFP_EFORMAT, "%s: the pickle contains %s, expected a dict of tensors", f->path,
                           sfp__pickle_type_name(sfp__pickle_type_of(p, root)));
    }
    sfp__text_done(&w.name);
    return status;
}

/* ----------------------------------------------------------------- zip files */

/* Returns the length of NAME/ if the member is NAME/data.pkl; else 0. */
static size_t pickle_prefix(const char *name)
{
    size_t n = strlen(name), end = strlen("/data.pkl");
    return n > end && strcmp(name + n - end, "/data.pkl") == 0 && strchr(name, '/') == name + n - end ? n - end + 1 : 0;
}

static const sfp__zip_member *find_pickle(const sfp__zip *zip)
{
    for (size_t i = 0; i < zip->count; i++)
        if (pickle_prefix(zip->members[i].name))
            return &zip->members[i];
    return NULL;
}

static bool is_zip(const uint8_t *bytes, size_t size, const sfp__zip *zip)
{
    (void)bytes;
    (void)size;
    return zip && find_pickle(zip);
}

static void storages_done(storages *s)
{
    sfp__free(s->list);
}

/* Locates the bytes of each storage, member by member; each member is checked once. `seen` (members) holds the data of the
 * checked ones. */
static sfp_status locate_storages(sfp__tensor_file *f, const sfp__zip *zip, const char *directory, size_t length,
                                  const uint8_t **seen, storages *s, size_t *total, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text name = {0};
    for (size_t i = 0; i < s->count; i++) {
        storage *one = &s->list[i];
        name.length = 0;
        sfp__text_printf(&name, "%.*sdata/%s", (int)length, directory, one->key);
        TRY(sfp__check_memory(!name.failed, err));
        const sfp__zip_member *m = sfp__zip_find(zip, name.s);
        char shown[SFP__NAME_MAX];
        size_t wanted;
        if (!m)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is missing from the zip archive", f->path,
                             sfp__printable(name.s, shown, sizeof shown));
        if (!sfp__mul_size(one->count, sfp__dtype_size(one->dtype), &wanted) || wanted > m->size)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %zu bytes, expected %zu elements of %s", f->path,
                             sfp__printable(name.s, shown, sizeof shown), m->size, one->count, sfp__dtype_name(one->dtype));
        const uint8_t **at = &seen[m - zip->members];
        uint8_t *unpacked = NULL;
        if (!*at) {
            *total += m->size;
            TRY(sfp__zip_bytes(zip, m, at, &unpacked, err));
        }
        if (unpacked)
            TRY(sfp__tensor_file_own(f, unpacked, err));
        one->bytes = *at;
    }
    return SFP_OK;
}

/* Checks the byte order, which the file records: numbers are used in place and must be little-endian. */
static sfp_status check_order(const sfp__tensor_file *f, const sfp__zip *zip, const char *directory, size_t length,
                              sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text name = {0};
    sfp__text_printf(&name, "%.*sbyteorder", (int)length, directory);
    TRY(sfp__check_memory(!name.failed, err));
    const sfp__zip_member *m = sfp__zip_find(zip, name.s);
    if (m && !m->deflated && m->size == 3 && memcmp(m->data, "big", 3) == 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: numbers are big-endian, expected little-endian", f->path);
    return SFP_OK;
}

static sfp_status open_zip(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err)
{
    (void)bytes;
    (void)size;
    const sfp__zip_member *m = find_pickle(zip);
    size_t prefix = pickle_prefix(m->name), total = 0;
    sfp__pickle_limits limits = torch_limits();
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL;
    OWNED_BY(storages_done) storages all = {0};
    const uint8_t *program;
    OWNED uint8_t *unpacked = NULL;
    OWNED const uint8_t **seen = NULL;
    TRY(check_order(f, zip, m->name, prefix, err));
    TRY(sfp__zip_bytes(zip, m, &program, &unpacked, err));
    TRY(sfp__pickle_parse(f->path, program, m->size, &limits, &p, err));
    TRY(find_storages(f->path, p, &all, err));
    TRY(sfp__alloc(&seen, zip->count, sizeof *seen, err));
    TRY(locate_storages(f, zip, m->name, prefix, seen, &all, &total, err));
    return add_tensors(f, p, &all, total, err);
}

const sfp__tensor_format sfp__format_torch = {"PyTorch", is_zip, open_zip};

/* ----------------------------------------------------------------- old files */

/* A pickle of the number 0x1950a86a20f9469cfc6c, by which torch.load recognises its files. */
static const uint8_t magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

static bool is_old(const uint8_t *bytes, size_t size, const sfp__zip *zip)
{
    return !zip && size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

/* Reads the next pickle of the stream. */
static sfp_status next_pickle(const sfp__tensor_file *f, const uint8_t *bytes, size_t size, size_t *at, sfp__pickle **out,
                              sfp_error *err)
{
    sfp__pickle_limits limits = torch_limits();
    size_t rest = size - *at < limits.bytes ? size - *at : limits.bytes;
    TRY(sfp__pickle_parse(f->path, bytes + *at, rest, &limits, out, err));
    *at += (*out)->used;
    return SFP_OK;
}

static int compare_key(const void *pa, const void *pb)
{
    const storage *const *a = pa, *const *b = pb;
    return strcmp((*a)->key, (*b)->key);
}

/* Locates the storages, which are in the order of `keys`, which is sorted: each is its length in elements and its bytes. `sorted`
 * has the storages of the pickle by key; a key that several tensors use occurs several times. */
static sfp_status locate_old_storages(const sfp__tensor_file *f, const uint8_t *bytes, size_t size, size_t at,
                                      const sfp__pickle *keys, storage **sorted, size_t count, sfp_error *err)
{
    sfp__pickle_value list = keys->root;
    size_t next = 0;
    for (size_t i = 0; i < sfp__pickle_count(keys, list); i++) {
        const char *key = sfp__pickle_text(keys, sfp__pickle_item(keys, list, i), NULL);
        char shown[64];
        if (!key || next == count || strcmp(key, sorted[next]->key) != 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' belongs to no tensor or is out of order", f->path,
                             sfp__printable(key ? key : "?", shown, sizeof shown));
        uint64_t elements = 0;
        size_t element = sfp__dtype_size(sorted[next]->dtype), n = 0;
        if (size - at >= 8) {
            memcpy(&elements, bytes + at, 8);
            at += 8;
        } else {
            elements = UINT64_MAX;
        }
        if (!sfp__mul_size((size_t)elements, element, &n) || n > size - at)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %llu elements of %s, but only %zu bytes follow", f->path,
                             sfp__printable(key, shown, sizeof shown), (unsigned long long)elements,
                             sfp__dtype_name(sorted[next]->dtype), size - at);
        for (; next < count && strcmp(sorted[next]->key, key) == 0; next++) {
            if (sorted[next]->count > elements || sfp__dtype_size(sorted[next]->dtype) != element)
                return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %llu elements, expected %zu of %s", f->path,
                                 sfp__printable(key, shown, sizeof shown), (unsigned long long)elements, sorted[next]->count,
                                 sfp__dtype_name(sorted[next]->dtype));
            sorted[next]->bytes = bytes + at;
        }
        at += n;
    }
    if (next < count)
        return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is missing", f->path,
                         sfp__printable(sorted[next]->key, (char[64]){0}, 64));
    return SFP_OK;
}

enum { PROTOCOL, SYSTEM, OBJECT, KEYS, PICKLES };

typedef struct old_file {
    sfp__pickle *p[PICKLES];
    storages found;
    storage **sorted; /* by key */
} old_file;

static void old_done(old_file *o)
{
    for (int i = 0; i < PICKLES; i++)
        sfp__pickle_free(o->p[i]);
    storages_done(&o->found);
    sfp__free(o->sorted);
}

static sfp_status open_old(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err)
{
    (void)zip;
    OWNED_BY(old_done) old_file o = {0};
    size_t at = sizeof magic;
    for (int i = 0; i < PICKLES; i++)
        TRY(next_pickle(f, bytes, size, &at, &o.p[i], err));
    TRY(find_storages(f->path, o.p[OBJECT], &o.found, err));
    TRY(sfp__alloc(&o.sorted, o.found.count, sizeof *o.sorted, err));
    for (size_t i = 0; i < o.found.count; i++)
        o.sorted[i] = &o.found.list[i];
    qsort(o.sorted, o.found.count, sizeof *o.sorted, compare_key);
    TRY(locate_old_storages(f, bytes, size, at, o.p[KEYS], o.sorted, o.found.count, err));
    return add_tensors(f, o.p[OBJECT], &o.found, size, err);
}

const sfp__tensor_format sfp__format_torch_old = {"PyTorch before 1.6", is_old, open_old};
