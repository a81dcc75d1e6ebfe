/* Changes a tensor or the metadata of a safetensors file. The header is written anew, and the checksum of a state (in its metadata)
 * or of a checkpoint (its last tensor) is repaired. */
#include "../unit/kept.h"
#include "learner/state/state.h"
#include "mutate.h"

#include <float.h>
#include <math.h>
#include <zlib.h>

enum { CHANGES_MAX = 2 }; /* per mutation; each can add a tensor or metadata */

typedef struct contents {
    sfp__tensor *tensors;
    sfp__meta *meta;
    size_t count, meta_count;
} contents;

static bool is_checksum(const sfp__tensor *t)
{
    return strcmp(t->name, SFP__CHECKSUM_KEY) == 0;
}

/* Returns ASCII text of other bytes. */
static const char *changed_text(const char *s)
{
    size_t n = strlen(s);
    char *bytes = changed_bytes(s, &n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(bytes[i] & 127 ? bytes[i] & 127 : 'x');
    const char *kept = kept_print("%s", bytes);
    free(bytes);
    return kept;
}

/* ----------------------------------------------------------------------- values */

static void put_value(sfp__rng *rng, sfp__dtype dtype, void *at)
{
    static const double reals[] = {0, -0.0, 1, -1, 1e-45, FLT_MAX, 1e38, DBL_MAX, -1e300, INFINITY, NAN, 0.5};
    static const int64_t wholes[] = {0,  1,   2,   -1,        3,         4,          5,         63,       64,
                                     65, 255, 256, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN};
    const double real = reals[below(rng, sizeof reals / sizeof *reals)];
    const int64_t whole = wholes[below(rng, sizeof wholes / sizeof *wholes)];
    const float narrow = fabs(real) > (double)FLT_MAX ? (float)copysign(INFINITY, real) : (float)real;
    if (dtype == SFP__DTYPE_F32)
        memcpy(at, &narrow, sizeof narrow);
    else if (dtype == SFP__DTYPE_F64)
        memcpy(at, &real, sizeof real);
    else
        memcpy(at, &whole, sfp__dtype_size(dtype)); /* little-endian */
}

static void change_values(sfp__rng *rng, sfp__tensor *t)
{
    if (t->bytes == 0)
        return;
    size_t size = sfp__dtype_size(t->dtype), n = one_in(rng, 6) ? t->count : 1, first = n > 1 ? 0 : below(rng, t->count);
    uint8_t *copy = memcpy(kept_malloc(t->bytes), t->data, t->bytes);
    t->data = copy;
    if (one_in(rng, 4)) {
        (void)LLVMFuzzerMutate(copy, t->bytes, t->bytes);
    } else {
        put_value(rng, t->dtype, copy + first * size);
        for (size_t i = 1; i < n; i++)
            memcpy(copy + i * size, copy, size);
    }
}

/* ----------------------------------------------------------------------- shapes */

/* Gives a tensor another type or shape; its bytes are kept, and zeros are appended. Returns false if it would be too large. */
static bool reshape(sfp__tensor *t, sfp__dtype dtype, int ndim, const int64_t *shape)
{
    size_t count, bytes;
    if (!sfp__shape_count(shape, ndim, dtype, &count, &bytes) || bytes > 1 << 20)
        return false;
    uint8_t *data = kept_calloc(bytes + 1, 1);
    memcpy(data, t->data, bytes < t->bytes ? bytes : t->bytes);
    sfp__tensor now = {.name = t->name, .dtype = dtype, .ndim = ndim, .count = count, .bytes = bytes, .data = data};
    memcpy(now.shape, shape, (size_t)ndim * sizeof *shape);
    *t = now;
    return true;
}

static int64_t other_size(sfp__rng *rng, int64_t size)
{
    const int64_t list[] = {0, 1, size + 1, size > 0 ? size - 1 : 0, 2 * size, 64, 65, 4096};
    return list[below(rng, sizeof list / sizeof *list)];
}

static void change_shape(sfp__rng *rng, sfp__tensor *t)
{
    int64_t shape[SFP__MAX_DIMS];
    int n = t->ndim, k = (int)below(rng, (size_t)n);
    sfp__dtype dtype = t->dtype;
    memcpy(shape, t->shape, sizeof shape);
    switch (below(rng, 5)) {
    case 0:
        dtype = (sfp__dtype)below(rng, SFP__DTYPE_COUNT);
        break;
    case 1:
        n = n > 0 ? n - 1 : 1;
        shape[0] = t->ndim > 0 ? shape[0] : 1;
        break;
    case 2:
        n = n < SFP__MAX_DIMS ? n + 1 : n;
        shape[n - 1] = 1;
        break;
    default:
        if (n > 0)
            shape[k] = other_size(rng, shape[k]);
    }
    (void)reshape(t, dtype, n, shape);
}

/* Changes a size wherever it occurs, in shapes and in metadata: the number of classes, of slots, ... */
static void change_size(sfp__rng *rng, contents *c, const sfp__tensor *like)
{
    if (like->ndim == 0)
        return;
    const int64_t was = like->shape[below(rng, (size_t)like->ndim)], now = other_size(rng, was);
    bool only_first = one_in(rng, 2);
    const char *text = kept_print("%lld", (long long)was);
    for (size_t i = 0; i < c->count; i++) {
        int64_t shape[SFP__MAX_DIMS];
        memcpy(shape, c->tensors[i].shape, sizeof shape);
        for (int k = 0; k < (only_first ? 1 : c->tensors[i].ndim); k++)
            shape[k] = shape[k] == was ? now : shape[k];
        if (!is_checksum(&c->tensors[i]))
            (void)reshape(&c->tensors[i], c->tensors[i].dtype, c->tensors[i].ndim, shape);
    }
    for (size_t i = 0; i < c->meta_count; i++)
        if (strcmp(c->meta[i].value, text) == 0 && strncmp(c->meta[i].key, "setting.", 8) != 0 &&
            strcmp(c->meta[i].key, "version") != 0)
            c->meta[i].value = kept_print("%lld", (long long)now);
}

/* ------------------------------------------------------------- tensors, metadata */

static void change_tensor(sfp__rng *rng, contents *c)
{
    size_t i = below(rng, c->count), k = below(rng, c->count);
    sfp__tensor *t = &c->tensors[i], *other = &c->tensors[k];
    if (is_checksum(t))
        return;
    switch (below(rng, 12)) {
    case 0:
        memmove(t, t + 1, (--c->count - i) * sizeof *t);
        break;
    case 1:
        t->name = changed_text(t->name);
        break;
    case 2: /* names are exchanged */
        if (!is_checksum(other)) {
            const char *name = t->name;
            t->name = other->name;
            other->name = name;
        }
        break;
    case 3:
        memmove(t + 1, t, (c->count++ - i) * sizeof *t);
        t->name = kept_print("%s.0", t->name);
        break;
    case 4:
    case 5:
        change_shape(rng, t);
        break;
    case 6:
    case 7:
        change_size(rng, c, t);
        break;
    default:
        change_values(rng, t);
    }
}

static const char *changed_value(sfp__rng *rng, const contents *c, const char *value)
{
    static const char *const words[] = {"",
                                        "0",
                                        "1",
                                        "2",
                                        "3",
                                        "8",
                                        "65",
                                        "1048576",
                                        "9223372036854775807",
                                        "-1",
                                        "nan",
                                        "linear",
                                        "ncm",
                                        "slda",
                                        "ridge",
                                        "ranpac",
                                        "coda",
                                        "l2p",
                                        "dualprompt",
                                        "on",
                                        "off",
                                        "0-1",
                                        "1-1",
                                        "0-63",
                                        "raw",
                                        "class-token",
                                        "squash",
                                        "crop",
                                        "[]",
                                        "[0]",
                                        "[0,1,2,3]",
                                        "[1e5]",
                                        "{}",
                                        "[\"a\",null,\"b\"]",
                                        "[\"a\",\"a\"]",
                                        "0.5,0.5,0.5",
                                        "0,0,0",
                                        "exact",
                                        "published",
                                        "all",
                                        "seen"};
    char *end;
    long long number = strtoll(value, &end, 10);
    switch (below(rng, 4)) {
    case 0:
        return words[below(rng, sizeof words / sizeof *words)];
    case 1:
        return c->meta[below(rng, c->meta_count)].value;
    case 2:
        if (*value && !*end && number < INT64_MAX && number > INT64_MIN)
            return kept_print("%lld", number + (one_in(rng, 2) ? 1 : -1));
        return words[below(rng, sizeof words / sizeof *words)];
    default:
        return changed_text(value);
    }
}

static void change_metadata(sfp__rng *rng, contents *c)
{
    size_t i = below(rng, c->meta_count);
    for (int tries = 0; tries < 3 && strncmp(c->meta[i].key, "setting.", 8) == 0; tries++) /* all of them are compared first */
        i = below(rng, c->meta_count);
    sfp__meta *m = &c->meta[i];
    switch (below(rng, 10)) {
    case 0:
        memmove(m, m + 1, (--c->meta_count - i) * sizeof *m);
        break;
    case 1:
        m->key = changed_text(m->key);
        break;
    case 2:
        c->meta[c->meta_count++] = (sfp__meta){kept_print("%s-2", m->key), m->value};
        break;
    default:
        m->value = changed_value(rng, c, m->value);
    }
}

/* ---------------------------------------------------------------------- the file */

/* Writes the file with the right checksum; false: it cannot be written (two equal names). */
static bool put_file(contents *c, sfp__text *out)
{
    char sum[SFP__CHECKSUM_MAX];
    sfp_error err = {0};
    bool checkpoint = c->count > 0 && is_checksum(&c->tensors[c->count - 1]);
    REQUIRE(sfp__state_sum(c->count, c->tensors, c->meta_count, c->meta, sum, &err) == SFP_OK);
    for (size_t i = 0; i < c->meta_count; i++)
        if (strcmp(c->meta[i].key, SFP__CHECKSUM_KEY) == 0)
            c->meta[i].value = sum;
    if (sfp__safetensors_header("", c->tensors, c->count, c->meta, c->meta_count, out, &err) != SFP_OK)
        return false;
    for (size_t i = 0; i + checkpoint < c->count; i++)
        sfp__text_putn(out, c->tensors[i].data, c->tensors[i].bytes);
    if (checkpoint) {
        const uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const uint8_t *)out->s, out->length);
        sfp__text_putn(out, (const char *)&crc, sizeof crc);
    }
    return true;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max_size, unsigned seed)
{
    KEPT_IN_BLOCK;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    sfp__rng rng = sfp__rng_init(seed, 0);
    sfp__text out = {0};
    if (sfp__safetensors_open_memory("", bytes, size, &f, NULL) != SFP_OK || one_in(&rng, 64))
        return LLVMFuzzerMutate(bytes, size, max_size);
    contents c = {.count = f->count, .meta_count = f->meta_count};
    c.tensors = kept_calloc(f->count + CHANGES_MAX, sizeof *c.tensors);
    c.meta = kept_calloc(f->meta_count + CHANGES_MAX, sizeof *c.meta);
    if (f->count)
        memcpy(c.tensors, f->tensors, f->count * sizeof *c.tensors);
    if (f->meta_count)
        memcpy(c.meta, f->meta, f->meta_count * sizeof *c.meta);
    for (size_t n = 1 + below(&rng, CHANGES_MAX); n > 0; n--) {
        if (c.count > 0 && (c.meta_count == 0 || !one_in(&rng, 3)))
            change_tensor(&rng, &c);
        else if (c.meta_count > 0)
            change_metadata(&rng, &c);
    }
    if (!put_file(&c, &out)) {
        sfp__text_done(&out);
        return LLVMFuzzerMutate(bytes, size, max_size);
    }
    return replace_input(bytes, size, max_size, &out);
}
