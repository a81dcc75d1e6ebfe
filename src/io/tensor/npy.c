/* NumPy's .npy and .npz. A .npz is a zip of .npy files, stored (savez) or deflated (savez_compressed). The header of a .npy is a
 * Python dict as text: three keys, with a string, True or False, and a tuple of integers. The parser reads only this subset of
 * Python; anything else is an error, and nothing is evaluated. */
#include "io/tensor/formats.h"

#include "base/text.h"

#include <string.h>

#define MAGIC "\x93NUMPY"
#define HEADER_ALIGN 64 /* header padding used by NumPy */

struct cursor {
    const char *at, *end;
    const char *path;
    sfp_error *err;
};

static const char *const npy_codes[SFP__DTYPE_COUNT] = {
#define NPY_CODE(name, text, size, npy) npy,
    SFP__DTYPE_LIST(NPY_CODE)
#undef NPY_CODE
};

static sfp_status fail_expected(const struct cursor *c, const char *element)
{
    char rest[24], shown[sizeof rest * 4 + 1];
    size_t n = (size_t)(c->end - c->at) < sizeof rest - 1 ? (size_t)(c->end - c->at) : sizeof rest - 1;
    memcpy(rest, c->at, n);
    rest[n] = '\0';
    return sfp__fail(c->err, SFP_EFORMAT, "%s: npy header: expected %s, found '%s'", c->path, element,
                     sfp__printable(rest, shown, sizeof shown));
}

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

static bool accept(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool accept_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Parses 'text' or "text" without escapes into buf. */
static sfp_status parse_string(struct cursor *c, char *buf, size_t size, const char *element)
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return fail_expected(c, element);
    char quote = *c->at;
    const char *start = c->at + 1, *stop = memchr(start, quote, (size_t)(c->end - start));
    size_t n = stop ? (size_t)(stop - start) : 0;
    if (!stop || n >= size || memchr(start, '\\', n) || memchr(start, '\0', n))
        return fail_expected(c, element);
    memcpy(buf, start, n);
    buf[n] = '\0';
    c->at = stop + 1;
    return SFP_OK;
}

static sfp_status parse_descr(struct cursor *c, sfp__tensor *t)
{
    char descr[16], shown[64];
    skip_space(c);
    if (c->at < c->end && *c->at == '[')
        return sfp__fail(c->err, SFP_EUNSUPPORTED, "%s: npy contains records, expected one plain type", c->path);
    TRY(parse_string(c, descr, sizeof descr, "a type such as '<f4'"));
    sfp__printable(descr, shown, sizeof shown);
    if (descr[0] == '>')
        return sfp__fail(c->err, SFP_EUNSUPPORTED, "%s: npy type '%s' is big-endian, expected little-endian", c->path, shown);
    for (int i = 0; i < SFP__DTYPE_COUNT; i++) {
        if (npy_codes[i] && strcmp(npy_codes[i], descr) == 0) {
            t->dtype = (sfp__dtype)i;
            return SFP_OK;
        }
    }
    return sfp__fail(c->err, SFP_EUNSUPPORTED, "%s: npy type is '%s', expected <f8, <f4, <f2, <i8, <i4 or |u1", c->path, shown);
}

static sfp_status parse_order(struct cursor *c)
{
    if (accept_word(c, "False"))
        return SFP_OK;
    if (accept_word(c, "True"))
        return sfp__fail(c->err, SFP_EUNSUPPORTED,
                         "%s: npy is in Fortran order, expected C order; save numpy.ascontiguousarray(a)", c->path);
    return fail_expected(c, "True or False");
}

static sfp_status parse_dimension(struct cursor *c, int64_t *out)
{
    const char *start = c->at;
    int64_t v = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->at - '0', &v))
            return sfp__fail(c->err, SFP_ELIMIT, "%s: npy shape: a dimension is too large", c->path);
        c->at++;
    }
    if (c->at == start)
        return fail_expected(c, "a dimension");
    if (c->at < c->end && *c->at == 'L') /* written by Python 2 */
        c->at++;
    *out = v;
    return SFP_OK;
}

static sfp_status parse_shape(struct cursor *c, sfp__tensor *t)
{
    if (!accept(c, '('))
        return fail_expected(c, "a tuple");
    bool comma = true;
    while (!accept(c, ')')) {
        if (!comma)
            return fail_expected(c, "',' or ')'");
        if (t->ndim == SFP__MAX_DIMS)
            return sfp__fail(c->err, SFP_ELIMIT, "%s: npy has more than %d dimensions", c->path, SFP__MAX_DIMS);
        TRY(parse_dimension(c, &t->shape[t->ndim]));
        t->ndim++;
        comma = accept(c, ',');
    }
    if (t->ndim == 1 && !comma)
        return sfp__fail(c->err, SFP_EFORMAT, "%s: npy shape is a number, expected a tuple", c->path);
    return SFP_OK;
}

static sfp_status parse_dict(struct cursor *c, sfp__tensor *t)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    static const struct {
        const char *name;
        int bit;
    } keys[] = {{"descr", DESCR}, {"fortran_order", ORDER}, {"shape", SHAPE}};
    int seen = 0;
    bool comma = true;
    if (!accept(c, '{'))
        return fail_expected(c, "'{'");
    while (!accept(c, '}')) {
        if (!comma)
            return fail_expected(c, "',' or '}'");
        char key[16] = "";
        TRY(parse_string(c, key, sizeof key, "a key"));
        int bit = 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            if (strcmp(key, keys[i].name) == 0)
                bit = keys[i].bit;
        }
        if (bit == 0 || (seen & bit))
            return sfp__fail(c->err, SFP_EFORMAT, "%s: npy header: key '%s' is %s", c->path,
                             sfp__printable(key, (char[64]){0}, 64), bit ? "duplicate" : "unknown");
        seen |= bit;
        if (!accept(c, ':'))
            return fail_expected(c, "':'");
        TRY(bit == DESCR ? parse_descr(c, t) : bit == ORDER ? parse_order(c) : parse_shape(c, t));
        comma = accept(c, ',');
    }
    skip_space(c);
    if (c->at != c->end)
        return fail_expected(c, "the end of the header");
    if (seen != (DESCR | ORDER | SHAPE))
        return sfp__fail(c->err, SFP_EFORMAT, "%s: npy header lacks '%s'", c->path,
                         !(seen & DESCR)   ? "descr"
                         : !(seen & ORDER) ? "fortran_order"
                                           : "shape");
    return SFP_OK;
}

/* Parses a .npy with any contents; the caller sets the name of the tensor. */
static sfp_status parse_npy(const char *path, const uint8_t *bytes, size_t size, sfp__tensor *t, sfp_error *err)
{
    if (size < 10 || memcmp(bytes, MAGIC, 6) != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: not an npy file, it does not begin with NUMPY", path);
    int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: npy version is %d.%d, expected 1.0, 2.0 or 3.0", path, major, minor);
    size_t start = major == 1 ? 10 : 12;
    if (size < start)
        return sfp__fail(err, SFP_EFORMAT, "%s: npy ends within its header", path);
    uint32_t length = (uint32_t)bytes[8] | (uint32_t)bytes[9] << 8;
    if (major > 1)
        length |= (uint32_t)bytes[10] << 16 | (uint32_t)bytes[11] << 24;
    if (length > size - start)
        return sfp__fail(err, SFP_EFORMAT, "%s: npy header length is %u, but only %zu bytes follow it", path, (unsigned)length,
                         size - start);

    const char *header = (const char *)bytes + start;
    struct cursor c = {header, header + length, path, err};
    TRY(parse_dict(&c, t));
    char shape[SFP__SHAPE_MAX];
    sfp__shape_text(t->shape, t->ndim, shape, sizeof shape);
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &t->count, &t->bytes))
        return sfp__fail(err, SFP_ELIMIT, "%s: npy shape %s is too large", path, shape);
    size_t rest = size - start - length;
    if (rest != t->bytes)
        return sfp__fail(err, SFP_EFORMAT, "%s: npy contains %zu bytes of data, expected %zu for %s %s", path, rest, t->bytes,
                         sfp__dtype_name(t->dtype), shape);
    t->data = bytes + start + length;
    return SFP_OK;
}

static bool is_npy(const uint8_t *bytes, size_t size, const sfp__zip *zip)
{
    (void)zip;
    return size >= strlen(MAGIC) && memcmp(bytes, MAGIC, strlen(MAGIC)) == 0;
}

static sfp_status open_npy(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err)
{
    (void)zip;
    sfp__tensor t = {.name = "array"};
    TRY(parse_npy(f->path, bytes, size, &t, err));
    return sfp__tensor_file_add(f, &t, err);
}

const sfp__tensor_format sfp__format_npy = {"npy", is_npy, open_npy};

sfp_status sfp__npy_open(const char *path, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(&sfp__format_npy, path, NULL, 0, out, err);
}

sfp_status sfp__npy_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(&sfp__format_npy, label, bytes, size, out, err);
}

/* ----------------------------------------------------------------------- npz */

/* Returns the length of the name without ".npy"; 0: another extension. */
static size_t stem_length(const char *name)
{
    size_t n = strlen(name), end = strlen(".npy");
    return n > end && strcmp(name + n - end, ".npy") == 0 ? n - end : 0;
}

static bool is_npz(const uint8_t *bytes, size_t size, const sfp__zip *zip)
{
    (void)bytes;
    (void)size;
    for (size_t i = 0; zip && i < zip->count; i++)
        if (stem_length(zip->members[i].name))
            return true;
    return false;
}

/* Adds a member as a tensor, which is named like the member without ".npy". */
static sfp_status add_member(sfp__tensor_file *f, const sfp__zip *zip, const sfp__zip_member *m, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    const uint8_t *bytes;
    uint8_t *unpacked = NULL;
    OWNED_BY(sfp__text_done) sfp__text label = {0};
    OWNED char *name = sfp__strdup(m->name);
    sfp__text_printf(&label, "%s: %s", f->path, sfp__printable(m->name, shown, sizeof shown));
    TRY(sfp__check_memory(name && !label.failed, err));
    if (!stem_length(m->name))
        return sfp__fail(err, SFP_EFORMAT, "%s: zip member '%s' is not a .npy file, expected only .npy files", f->path, shown);
    TRY(sfp__zip_bytes(zip, m, &bytes, &unpacked, err));
    if (unpacked)
        TRY(sfp__tensor_file_own(f, unpacked, err));
    name[stem_length(m->name)] = '\0';
    sfp__tensor t = {.name = name};
    TRY(parse_npy(label.s, bytes, m->size, &t, err));
    return sfp__tensor_file_add(f, &t, err);
}

static sfp_status open_npz(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err)
{
    (void)bytes;
    (void)size;
    for (size_t i = 0; i < zip->count; i++)
        TRY(add_member(f, zip, &zip->members[i], err));
    return SFP_OK;
}

const sfp__tensor_format sfp__format_npz = {"NumPy npz", is_npz, open_npz};

/* ------------------------------------------------------------------- writing */

static void write_header(const sfp__tensor *t, sfp__text *text)
{
    sfp__text_put(text, MAGIC "\x01");
    sfp__text_fill(text, '\0', 3); /* minor version and header length */
    sfp__text_printf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_codes[t->dtype]);
    for (int i = 0; i < t->ndim; i++)
        sfp__text_printf(text, i + 1 < t->ndim ? "%lld, " : "%lld", (long long)t->shape[i]);
    sfp__text_put(text, t->ndim == 1 ? ",), }" : "), }");
    sfp__text_fill(text, ' ', HEADER_ALIGN - 1 - text->length % HEADER_ALIGN);
    sfp__text_put(text, "\n");
    if (text->failed)
        return;
    size_t length = text->length - 10; /* a header with eight dimensions fits 16 bits */
    text->s[8] = (char)(length & 0xff);
    text->s[9] = (char)(length >> 8);
}

sfp_status sfp__npy_write(const char *path, const sfp__tensor *t, sfp_error *err)
{
    size_t count, bytes;
    if ((int)t->dtype < 0 || t->dtype >= SFP__DTYPE_COUNT || !npy_codes[t->dtype])
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: element type is %s, which npy does not have", path,
                         sfp__dtype_name(t->dtype));
    if (t->ndim < 0 || t->ndim > SFP__MAX_DIMS)
        return sfp__fail(err, SFP_ELIMIT, "%s: tensor has %d dimensions, expected at most %d", path, t->ndim, SFP__MAX_DIMS);
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &count, &bytes) || bytes != t->bytes || (bytes > 0 && !t->data))
        return sfp__fail(err, SFP_EINVAL, "%s: tensor has %zu bytes%s, which do not match its shape", path, t->bytes,
                         t->data ? "" : " (NULL)");
    OWNED_BY(sfp__text_done) sfp__text header = {0};
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    write_header(t, &header);
    TRY(sfp__check_memory(!header.failed, err));
    TRY(sfp__writer_open(path, &w, err));
    TRY(sfp__writer_put(&w, header.s, header.length, err));
    TRY(sfp__writer_put(&w, t->data, t->bytes, err));
    return sfp__writer_commit(&w, err);
}
