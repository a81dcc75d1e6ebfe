/* The zip reader (APPNOTE 6.3, with the 64-bit extension).
 *
 * The directory at the end of the archive is authoritative; a member's own header must agree with it in name and method. Every
 * number is checked before it is used. */
#include "io/tensor/formats.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_SIZE = 30,
    ENTRY_SIZE = 46,
    END_SIZE = 22,
    LOCATOR_SIZE = 20,
    END64_SIZE = 56,
    COMMENT_MAX = 65535,
    STORED = 0,
    DEFLATED = 8
};

/* Weights hardly compress: an archive that unpacks to more than this is an attempt to exhaust memory. */
#define RATIO_MAX 20
#define SLACK ((size_t)16 << 20)

/* The location of the directory, from the end record of the archive. */
typedef struct directory {
    uint64_t offset, size, count;
} directory;

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static bool is_signature(const uint8_t *p, const char *two)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == (uint8_t)two[0] && p[3] == (uint8_t)two[1];
}

bool sfp__zip_is(const void *bytes, size_t size)
{
    return size >= 4 && (is_signature(bytes, "\x03\x04") || is_signature(bytes, "\x05\x06"));
}

#define FAIL_MEMBER(status, fmt, ...)                            \
    sfp__fail(err, status, "%s: zip member '%s' " fmt, z->label, \
              sfp__printable(m->name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX), __VA_ARGS__)

/* ---------------------------------------------------------------- directory */

static sfp_status find_directory(const char *label, const uint8_t *bytes, size_t size, directory *out, sfp_error *err)
{
    size_t back = END_SIZE;
    while (back <= size && back <= END_SIZE + COMMENT_MAX &&
           !(is_signature(bytes + size - back, "\x05\x06") && get(bytes + size - back + 20, 2) == back - END_SIZE))
        back++;
    if (back > size || back > END_SIZE + COMMENT_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: the zip archive has no directory at its end; the file may be incomplete", label);
    const uint8_t *end = bytes + size - back;
    directory d = {.offset = get(end + 16, 4), .size = get(end + 12, 4), .count = get(end + 10, 2)};
    size_t before = size - back;
    if (before >= LOCATOR_SIZE && is_signature(end - LOCATOR_SIZE, "\x06\x07")) {
        uint64_t at = get(end - LOCATOR_SIZE + 8, 8);
        if (before < LOCATOR_SIZE + END64_SIZE || at > before - LOCATOR_SIZE - END64_SIZE ||
            !is_signature(bytes + at, "\x06\x06"))
            return sfp__fail(err, SFP_EFORMAT, "%s: the 64-bit zip directory is missing at byte %llu", label,
                             (unsigned long long)at);
        d = (directory){.offset = get(bytes + at + 48, 8), .size = get(bytes + at + 40, 8), .count = get(bytes + at + 32, 8)};
    }
    if (d.offset > before || d.size > before - d.offset)
        return sfp__fail(err, SFP_EFORMAT, "%s: the zip directory is %llu bytes at %llu, but the archive has %zu before its end",
                         label, (unsigned long long)d.size, (unsigned long long)d.offset, before);
    if (d.count > d.size / ENTRY_SIZE)
        return sfp__fail(err, SFP_EFORMAT, "%s: the zip directory lists %llu members, which do not fit its %llu bytes", label,
                         (unsigned long long)d.count, (unsigned long long)d.size);
    *out = d;
    return SFP_OK;
}

/* Reads the numbers that did not fit 32 bits; they are in an extra field, in this order. */
static bool read_wide(const uint8_t *extra, size_t length, uint64_t *size, uint64_t *packed, uint64_t *offset)
{
    uint64_t *const wanted[] = {size, packed, offset};
    while (length >= 4) {
        size_t id = (size_t)get(extra, 2), n = (size_t)get(extra + 2, 2);
        if (n > length - 4)
            return false;
        if (id == 1) {
            const uint8_t *at = extra + 4, *end = at + n;
            for (size_t i = 0; i < 3; i++)
                if (*wanted[i] == UINT32_MAX) {
                    if (end - at < 8)
                        return false;
                    *wanted[i] = get(at, 8);
                    at += 8;
                }
            return true;
        }
        extra += 4 + n;
        length -= 4 + n;
    }
    return true;
}

/* Names are only compared and never opened, but a name that leads out of the directory is a sign of an attack. */
static bool is_relative_path(const char *name, size_t length)
{
    if (length == 0 || strlen(name) != length || name[0] == '/' || strchr(name, '\\'))
        return false;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    return true;
}

/* Finds the data of a member, which begins after the member's own header. */
static sfp_status find_data(const sfp__zip *z, const uint8_t *bytes, uint64_t capacity, uint64_t offset, int method,
                            sfp__zip_member *m, sfp_error *err)
{
    size_t length = strlen(m->name);
    if (capacity < LOCAL_SIZE || offset > capacity - LOCAL_SIZE || !is_signature(bytes + offset, "\x03\x04"))
        return FAIL_MEMBER(SFP_EFORMAT, "is at byte %llu, where no member begins", (unsigned long long)offset);
    const uint8_t *p = bytes + offset;
    uint64_t head = LOCAL_SIZE + get(p + 26, 2) + get(p + 28, 2);
    if (head > capacity - offset || m->packed > capacity - offset - head)
        return FAIL_MEMBER(SFP_EFORMAT, "has %zu bytes at %llu, which do not fit the file", m->packed,
                           (unsigned long long)offset);
    if (get(p + 26, 2) != length || memcmp(p + LOCAL_SIZE, m->name, length) != 0 || get(p + 8, 2) != (uint64_t)method)
        return FAIL_MEMBER(SFP_EFORMAT, "has another name or method in its own header at byte %llu than in the directory",
                           (unsigned long long)offset);
    m->data = p + head;
    return SFP_OK;
}

/* Reads the directory entry at p, where `left` bytes of directory remain; *used receives its length. `names` has space for its
 * name. */
static sfp_status read_entry(const sfp__zip *z, const uint8_t *bytes, uint64_t capacity, const uint8_t *p, size_t left,
                             char *names, sfp__zip_member *m, size_t *used, sfp_error *err)
{
    size_t length = left >= ENTRY_SIZE ? (size_t)get(p + 28, 2) : 0, extra = left >= ENTRY_SIZE ? (size_t)get(p + 30, 2) : 0;
    size_t whole = ENTRY_SIZE + length + extra + (left >= ENTRY_SIZE ? (size_t)get(p + 32, 2) : 0);
    if (whole > left || !is_signature(p, "\x01\x02"))
        return sfp__fail(err, SFP_EFORMAT, "%s: the zip directory is damaged at its member %zu", z->label, z->count);
    memcpy(names, p + ENTRY_SIZE, length);
    names[length] = '\0';
    *m = (sfp__zip_member){.name = names, .crc = (uint32_t)get(p + 16, 4)};
    if (!is_relative_path(names, length))
        return FAIL_MEMBER(SFP_EFORMAT, "has a name that is not a relative path%s", "");
    int flags = (int)get(p + 8, 2), method = (int)get(p + 10, 2);
    uint64_t packed = get(p + 20, 4), size = get(p + 24, 4), offset = get(p + 42, 4);
    if (flags & 1)
        return FAIL_MEMBER(SFP_EUNSUPPORTED, "is encrypted%s", "");
    if (method != STORED && method != DEFLATED)
        return FAIL_MEMBER(SFP_EUNSUPPORTED, "has compression method %d, expected 0 (stored) or 8 (deflated)", method);
    if (!read_wide(p + ENTRY_SIZE + length, extra, &size, &packed, &offset) || size > PTRDIFF_MAX || packed > PTRDIFF_MAX)
        return FAIL_MEMBER(SFP_EFORMAT, "has damaged sizes%s", "");
    if (method == STORED && packed != size)
        return FAIL_MEMBER(SFP_EFORMAT, "is stored in %llu bytes, expected its size of %llu", (unsigned long long)packed,
                           (unsigned long long)size);
    m->packed = (size_t)packed;
    m->size = (size_t)size;
    m->deflated = method == DEFLATED;
    *used = whole;
    return find_data(z, bytes, capacity, offset, method, m, err);
}

static int compare_name(const void *pa, const void *pb)
{
    const sfp__zip_member *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

/* Rejects members that share bytes, or that unpack to far more than the archive contains: both would exhaust memory. */
static sfp_status check_sizes(const sfp__zip *z, size_t capacity, sfp_error *err)
{
    size_t packed = 0, size = 0, limit = capacity < SIZE_MAX / RATIO_MAX - SLACK ? capacity * RATIO_MAX + SLACK : SIZE_MAX;
    for (size_t i = 0; i < z->count; i++)
        if (!sfp__add_size(packed, z->members[i].packed, &packed) || packed > capacity)
            return sfp__fail(err, SFP_EFORMAT, "%s: zip members have more bytes than the file: they overlap", z->label);
    for (size_t i = 0; i < z->count; i++)
        if (!sfp__add_size(size, z->members[i].size, &size) || size > limit)
            return sfp__fail(err, SFP_ELIMIT, "%s: %zu bytes of zip unpack to more than %zu, expected weights", z->label,
                             capacity, limit);
    return SFP_OK;
}

static sfp_status read_directory(sfp__zip *z, const uint8_t *bytes, size_t size, sfp_error *err)
{
    directory d = {0};
    TRY(find_directory(z->label, bytes, size, &d, err));
    size_t left = (size_t)d.size, names = 0;
    TRY(sfp__alloc(&z->members, (size_t)d.count, sizeof *z->members, err));
    TRY(sfp__alloc(&z->by_name, (size_t)d.count, sizeof *z->by_name, err));
    TRY(sfp__alloc(&z->names, left, 1, err)); /* an entry is longer than its name with a terminator */
    for (const uint8_t *p = bytes + d.offset; z->count < d.count;) {
        sfp__zip_member *m = &z->members[z->count];
        size_t used = 0;
        TRY(read_entry(z, bytes, d.offset, p, left, z->names + names, m, &used, err));
        names += strlen(m->name) + 1;
        z->by_name[z->count++] = m;
        p += used;
        left -= used;
    }
    if (z->count)
        qsort(z->by_name, z->count, sizeof *z->by_name, compare_name);
    for (size_t i = 1; i < z->count; i++) {
        const sfp__zip_member *m = z->by_name[i];
        if (strcmp(z->by_name[i - 1]->name, m->name) == 0)
            return FAIL_MEMBER(SFP_EFORMAT, "is a duplicate%s", "");
    }
    return check_sizes(z, size, err);
}

sfp_status sfp__zip_open(const char *label, const void *bytes, size_t size, sfp__zip **out, sfp_error *err)
{
    OWNED_PTR(sfp__zip_close) sfp__zip *z = NULL;
    TRY(sfp__alloc(&z, 1, sizeof *z, err));
    TRY(sfp__check_memory((z->label = sfp__strdup(label)), err));
    TRY(read_directory(z, bytes, size, err));
    *out = TAKE(z);
    return SFP_OK;
}

void sfp__zip_close(sfp__zip *z)
{
    if (!z)
        return;
    sfp__free(z->label);
    sfp__free(z->names);
    sfp__free(z->members);
    sfp__free(z->by_name);
    sfp__free(z);
}

const sfp__zip_member *sfp__zip_find(const sfp__zip *z, const char *name)
{
    const sfp__zip_member key = {.name = name}, *wanted = &key;
    const sfp__zip_member **found = z->count ? bsearch(&wanted, z->by_name, z->count, sizeof *z->by_name, compare_name) : NULL;
    return found ? *found : NULL;
}

/* ------------------------------------------------------------------- bytes */

static sfp_status unpack(const sfp__zip *z, const sfp__zip_member *m, uint8_t *out, sfp_error *err)
{
    z_stream s = {0};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return sfp__fail_nomem(err);
    size_t in = 0, done = 0;
    int code = Z_OK;
    while (code == Z_OK) { /* zlib counts in 32 bits, so larger members are unpacked in pieces */
        size_t feed = m->packed - in < UINT32_MAX ? m->packed - in : UINT32_MAX,
               capacity = m->size - done < UINT32_MAX ? m->size - done : UINT32_MAX;
        s.next_in = (z_const Bytef *)(uintptr_t)(m->data + in);
        s.avail_in = (uInt)feed;
        s.next_out = out + done;
        s.avail_out = (uInt)capacity;
        code = inflate(&s, Z_NO_FLUSH);
        in += feed - s.avail_in;
        done += capacity - s.avail_out;
    }
    (void)inflateEnd(&s);
    if (code == Z_MEM_ERROR)
        return sfp__fail_nomem(err);
    if (code != Z_STREAM_END || done != m->size)
        return FAIL_MEMBER(SFP_EFORMAT, "unpacks to %zu bytes%s, expected %zu", done,
                           code == Z_STREAM_END ? "" : " and more or is damaged", m->size);
    return SFP_OK;
}

sfp_status sfp__zip_bytes(const sfp__zip *z, const sfp__zip_member *m, const uint8_t **bytes, uint8_t **owned, sfp_error *err)
{
    OWNED uint8_t *block = NULL;
    if (m->deflated) {
        TRY(sfp__alloc(&block, m->size, 1, err));
        TRY(unpack(z, m, block, err));
    }
    const uint8_t *at = block ? block : m->data;
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), at, m->size);
    if (crc != m->crc)
        return FAIL_MEMBER(SFP_EFORMAT, "has CRC %08x, expected %08x: the file is damaged", (unsigned)crc, (unsigned)m->crc);
    *bytes = at;
    *owned = TAKE(block);
    return SFP_OK;
}
