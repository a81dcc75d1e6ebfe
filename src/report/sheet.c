/* Contact sheets. All images of a sheet are combined in one PNG, a data: URL in a style rule. A thumbnail is an element that
 * shows its part of the PNG. */
#include "report/report_internal.h"

#include "base/mem.h"
#include "io/image/image.h"
#include "stream/source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 48
#define COLUMNS 24
#define MAX_THUMBS 360 /* per sheet: about a megabyte of photographs */

/* ---------------------------------------------------------------------- sprite */

static void put_base64(sfp__text *t, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char out[4096];
    size_t used = 0;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t v = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        out[used++] = digits[v >> 18];
        out[used++] = digits[v >> 12 & 63];
        out[used++] = left > 1 ? digits[v >> 6 & 63] : '=';
        out[used++] = left > 2 ? digits[v & 63] : '=';
        if (used == sizeof out) {
            sfp__text_putn(t, out, used);
            used = 0;
        }
    }
    sfp__text_putn(t, out, used);
}

/* Copies an image to the centre of cell `at` of a sheet. */
static void put_image(sfp__image *sheet, int at, const sfp__image *small)
{
    size_t left = (size_t)(at % COLUMNS) * SIDE + (size_t)(SIDE - small->width) / 2,
           top = (size_t)(at / COLUMNS) * SIDE + (size_t)(SIDE - small->height) / 2;
    size_t row = (size_t)small->width * 3;
    for (size_t y = 0; y < (size_t)small->height; y++)
        memcpy(sheet->rgb + ((top + y) * (size_t)sheet->width + left) * 3, small->rgb + y * row, row);
}

/* Draws one thumbnail in cell `at`, with its aspect ratio. Without pixels, the cell stays grey. */
static sfp_status paste(sfp__image *sheet, int at, const sfp__thumb *from, sfp_error *err)
{
    if (!from->rgb || from->width < 1 || from->height < 1)
        return SFP_OK;
    sfp__image whole = {from->width, from->height, (uint8_t *)(uintptr_t)from->rgb}, small;
    int longer = from->width > from->height ? from->width : from->height;
    int64_t w = (int64_t)from->width * SIDE / longer, h = (int64_t)from->height * SIDE / longer;
    TRY(sfp__image_resize(&whole, w > 0 ? (int)w : 1, h > 0 ? (int)h : 1, SFP__FILTER_BILINEAR, &small, err));
    put_image(sheet, at, &small);
    sfp__image_done(&small);
    return SFP_OK;
}

/* Writes the style rule with the PNG. */
static sfp_status put_sprite(sfp__text *t, const char *class, int n, const sfp__thumb *const *thumb, sfp_error *err)
{
    sfp__image sheet = {.width = COLUMNS * SIDE, .height = (n + COLUMNS - 1) / COLUMNS * SIDE};
    size_t bytes = (size_t)sheet.width * (size_t)sheet.height * 3;
    OWNED uint8_t *rgb = sheet.rgb = sfp__malloc(bytes);
    OWNED_BY(sfp__text_done) sfp__text png = {0};
    TRY(sfp__check_memory(rgb, err));
    memset(rgb, 128, bytes);
    for (int i = 0; i < n; i++)
        TRY(paste(&sheet, i, thumb[i], err));
    TRY(sfp__image_encode_png("thumbnails", &sheet, &png, err));
    sfp__text_printf(t, "<style>.%s i{background-image:url(data:image/png;base64,", class);
    put_base64(t, (const uint8_t *)png.s, png.length);
    sfp__text_put(t, ")}</style>");
    return SFP_OK;
}

static const char *label_of(const sfp__thumb *th)
{
    return th->label && *th->label ? th->label : "no name";
}

/* ---------------------------------------------------------------------- sheets */

/* Sorts the thumbnails and returns at most MAX_THUMBS of them, evenly spread; sets *count. NULL: out of memory. */
static const sfp__thumb **choose_thumbs(int *count, const sfp__thumb *thumbs, int (*order)(const void *, const void *))
{
    const sfp__thumb **all = sfp__malloc((size_t)*count * sizeof *all);
    if (!all)
        return NULL;
    for (int i = 0; i < *count; i++)
        all[i] = &thumbs[i];
    qsort(all, (size_t)*count, sizeof *all, order);
    int n = *count < MAX_THUMBS ? *count : MAX_THUMBS;
    for (int i = 0; i < n; i++)
        all[i] = all[(size_t)i * (size_t)*count / (size_t)n];
    *count = n;
    return all;
}

static int compare_coreset_first(const void *a, const void *b)
{
    const sfp__thumb *x = *(const sfp__thumb *const *)a, *y = *(const sfp__thumb *const *)b;
    if (x->in_coreset != y->in_coreset)
        return x->in_coreset ? -1 : 1;
    return x < y ? -1 : 1; /* keeps the given order */
}

static int compare_class_and_age(const void *a, const void *b)
{
    const sfp__thumb *x = *(const sfp__thumb *const *)a, *y = *(const sfp__thumb *const *)b;
    int names = strverscmp(label_of(x), label_of(y)); /* "class 2" before "class 10" */
    if (names)
        return names;
    if (x->age != y->age)
        return x->age > y->age ? -1 : 1;
    return x < y ? -1 : 1;
}

static void put_thumb(sfp__text *t, int i)
{
    sfp__text_printf(t, "<i style=\"background-position:%dpx %dpx\"></i>", -(i % COLUMNS * SIDE), -(i / COLUMNS * SIDE));
}

/* Thumbnails [from, to) are shown of `all` images. */
static void put_batch_group(sfp__text *t, const char *class, const char *title, int all, int from, int to,
                            const sfp__thumb *const *thumb)
{
    char number[SFP__SHORT];
    sfp__text_printf(t, "<h3>%s: %s", title, sfp__format_count(all, number));
    if (to - from < all)
        sfp__text_printf(t, ", %d shown", to - from);
    sfp__text_printf(t, "</h3><ul class=\"sheet took %s\">", class);
    for (int i = from; i < to; i++) {
        sfp__text_put(t, "<li title=\"");
        sfp__put_html(t, label_of(thumb[i]));
        sfp__text_put(t, "\">");
        put_thumb(t, i);
        sfp__text_put(t, "<small>");
        sfp__put_html_cut(t, label_of(thumb[i]), 24);
        sfp__text_put(t, "</small></li>");
    }
    sfp__text_put(t, "</ul>");
}

sfp_status sfp__sheet_batch(sfp__text *t, const sfp__report_images *p, sfp_error *err)
{
    int n = p->batch_count, in_coreset = 0;
    OWNED const sfp__thumb **thumb = choose_thumbs(&n, p->batch, compare_coreset_first);
    TRY(sfp__check_memory(thumb, err));
    TRY(put_sprite(t, "took", n, thumb, err));
    while (in_coreset < n && thumb[in_coreset]->in_coreset)
        in_coreset++;
    put_batch_group(t, "yes", "Trained on", p->coreset_count, 0, in_coreset, thumb);
    put_batch_group(t, "no", "Not trained on", p->rest_count, in_coreset, n, thumb);
    return SFP_OK;
}

static void put_buffer_thumb(sfp__text *t, int i, const sfp__thumb *th, uint64_t oldest)
{
    sfp__text_printf(t, "<li title=\"%" PRIu64 " timestamp%s old\">", th->age, th->age == 1 ? "" : "s");
    put_thumb(t, i);
    sfp__text_printf(t, "<u style=\"width:%.0f%%\"></u></li>", oldest ? 100 * (double)th->age / (double)oldest : 0);
}

sfp_status sfp__sheet_buffer(sfp__text *t, int count, const sfp__thumb *thumbs, sfp_error *err)
{
    int n = count;
    uint64_t oldest = 0;
    OWNED const sfp__thumb **thumb = choose_thumbs(&n, thumbs, compare_class_and_age);
    TRY(sfp__check_memory(thumb, err));
    for (int i = 0; i < n; i++)
        oldest = thumb[i]->age > oldest ? thumb[i]->age : oldest;
    TRY(put_sprite(t, "kept", n, thumb, err));
    sfp__text_printf(t, "<p class=\"note\">%d image%s", count, count == 1 ? "" : "s");
    if (n < count)
        sfp__text_printf(t, ", of which %d are shown, evenly spread", n);
    sfp__text_printf(
        t, "; oldest first; the bar below an image shows its age (full width: %" PRIu64 " timestamp%s).</p><div class=\"shelf\">",
        oldest, oldest == 1 ? "" : "s");
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && strcmp(label_of(thumb[i]), label_of(thumb[end])) == 0;)
            end++;
        sfp__text_put(t, "<div><div class=\"name\" title=\"");
        sfp__put_html(t, label_of(thumb[i]));
        sfp__text_put(t, "\">");
        sfp__put_html_cut(t, label_of(thumb[i]), 40);
        sfp__text_printf(t, " <small>%d</small></div><ul class=\"sheet kept\">", end - i);
        for (int k = i; k < end; k++)
            put_buffer_thumb(t, k, thumb[k], oldest);
        sfp__text_put(t, "</ul></div>");
    }
    sfp__text_put(t, "</div>");
    return SFP_OK;
}
