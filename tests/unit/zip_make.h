/* Builds zip archives and pickles of tensors byte by byte, for tests of their readers. */
#ifndef SFP_TESTS_ZIP_MAKE_H
#define SFP_TESTS_ZIP_MAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "kept.h"

/* A growing array of bytes. */
typedef struct made {
    uint8_t *bytes;
    size_t size, capacity;
} made;

static inline void put(made *m, const void *data, size_t n)
{
    if (m->size + n > m->capacity) {
        m->capacity = 2 * (m->size + n) + 256;
        m->bytes = kept_realloc(m->bytes, m->capacity);
    }
    if (n)
        memcpy(m->bytes + m->size, data, n);
    m->size += n;
}

static inline void put_number(made *m, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++, v >>= 8)
        put(m, &(uint8_t){(uint8_t)v}, 1);
}

/* Appends pairs {number, its size in bytes}, little-endian. */
#define PUT_NUMBERS(m, ...) \
    put_numbers(m, sizeof((uint64_t[][2]){__VA_ARGS__}) / sizeof(uint64_t[2]), (const uint64_t[][2]){__VA_ARGS__})
static inline void put_numbers(made *m, size_t count, const uint64_t (*list)[2])
{
    for (size_t i = 0; i < count; i++)
        put_number(m, list[i][0], list[i][1]);
}

/* An archive under construction: its members, then its directory. */
typedef struct zip_made {
    made file, directory;
    unsigned count;
} zip_made;

static inline void zip_add(zip_made *z, const char *name, const void *data, size_t size, bool deflated)
{
    uLongf packed = size;
    Bytef *out = NULL;
    if (deflated) {
        z_stream s = {0};
        if (deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) != Z_OK)
            abort();
        packed = deflateBound(&s, size);
        out = kept_malloc(packed);
        s.next_in = (z_const Bytef *)(uintptr_t)data;
        s.avail_in = (uInt)size;
        s.next_out = out;
        s.avail_out = (uInt)packed;
        if (deflate(&s, Z_FINISH) != Z_STREAM_END)
            abort();
        packed -= s.avail_out;
        (void)deflateEnd(&s);
    }
    size_t at = z->file.size, length = strlen(name);
    uLong crc = crc32_z(crc32_z(0, NULL, 0), data, size);
    for (int entry = 0; entry < 2; entry++) { /* the member's header, then the directory's entry, which is nearly the same */
        made *m = entry ? &z->directory : &z->file;
        put(m, entry ? "PK\1\2" : "PK\3\4", 4);
        put_number(m, 20, entry ? 2 : 0);
        PUT_NUMBERS(m, {20, 2}, {0, 2}, {deflated ? 8 : 0, 2}, {0, 4}, {crc, 4}, {packed, 4}, {size, 4}, {length, 2});
        PUT_NUMBERS(m, {0, entry ? 12 : 2}, {at, entry ? 4 : 0});
        put(m, name, length);
    }
    put(&z->file, deflated ? out : data, packed);
    z->count++;
}

/* Appends the directory. The complete archive is z->file. */
static inline void zip_end(zip_made *z)
{
    size_t at = z->file.size;
    put(&z->file, z->directory.bytes, z->directory.size);
    put(&z->file, "PK\5\6", 4);
    PUT_NUMBERS(&z->file, {0, 4}, {z->count, 2}, {z->count, 2}, {z->directory.size, 4}, {at, 4}, {0, 2});
}

#endif
