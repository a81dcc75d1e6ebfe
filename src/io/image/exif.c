/* EXIF: a TIFF file in a marker, of which one number is wanted. Broken blocks
 * are common in the wild and no reason to refuse a picture: they mean 1. */
#include "io/image/codec.h"

#include "base/mem.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_SIZE 12

struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big_endian;
};

/* 0 outside: a count, an offset or a tag of 0 is never the one looked for */
static unsigned get16(const struct tiff *t, size_t at)
{
    if (t->size < 2 || at > t->size - 2)
        return 0;
    const uint8_t *p = t->bytes + at;
    return t->big_endian ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t get32(const struct tiff *t, size_t at)
{
    if (t->size < 4 || at > t->size - 4)
        return 0;
    uint32_t first = get16(t, at), second = get16(t, at + 2);
    return t->big_endian ? first << 16 | second : second << 16 | first;
}

int sfp__exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) {
        bytes += 6;
        size -= 6;
    }
    if (size < 8)
        return 1;
    struct tiff t = {bytes, size, bytes[0] == 'M'};
    if (memcmp(bytes, "II", 2) != 0 && memcmp(bytes, "MM", 2) != 0)
        return 1;
    if (get16(&t, 2) != 42)
        return 1;
    size_t directory = get32(&t, 4);
    if (directory < 8 || directory > size)
        return 1;
    unsigned entries = get16(&t, directory);
    for (unsigned i = 0; i < entries; i++) {
        size_t at = directory + 2 + (size_t)i * ENTRY_SIZE;
        if (at > size)
            break;
        if (get16(&t, at) != TAG_ORIENTATION)
            continue;
        unsigned value = get16(&t, at + 8);
        bool sane = get16(&t, at + 2) == TYPE_SHORT && get32(&t, at + 4) == 1 && value >= 1 && value <= 8;
        return sane ? (int)value : 1;
    }
    return 1;
}

sfp_status sfp__image_orient(sfp_image *im, int orientation, sfp_error *err)
{
    if (orientation < 2 || orientation > 8)
        return SFP_OK;
    /* which way the source is read: x and y swapped, columns from the right, rows from the bottom */
    static const struct {
        bool swap, right, bottom;
    } ways[9] = {
        [2] = {0, 1, 0}, [3] = {0, 1, 1}, [4] = {0, 0, 1}, [5] = {1, 0, 0}, [6] = {1, 0, 1}, [7] = {1, 1, 1}, [8] = {1, 1, 0}};
    ptrdiff_t w = im->width, h = im->height;
    ptrdiff_t column = ways[orientation].right ? -3 : 3, row = ways[orientation].bottom ? -3 * w : 3 * w;
    const uint8_t *start =
        im->rgb + (ways[orientation].right ? 3 * (w - 1) : 0) + (ways[orientation].bottom ? 3 * w * (h - 1) : 0);
    ptrdiff_t step_x = ways[orientation].swap ? row : column, step_y = ways[orientation].swap ? column : row;

    sfp_image turned = {0};
    TRY(sfp__image_alloc("turned picture", ways[orientation].swap ? h : w, ways[orientation].swap ? w : h, SIZE_MAX, &turned,
                         err));
    uint8_t *to = turned.rgb;
    for (int y = 0; y < turned.height; y++) {
        for (int x = 0; x < turned.width; x++, to += 3)
            memcpy(to, start + y * step_y + x * step_x, 3);
    }
    sfp__image_done(im);
    *im = turned;
    return SFP_OK;
}
