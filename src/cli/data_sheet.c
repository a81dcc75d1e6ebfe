/* The contact sheet of `data describe`. It needs no font: a class is found by its place, which the table of classes names. */
#include "cli/data.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "io/image.h"
#include "stream/picture.h"

#include <stdio.h>
#include <string.h>

#define SIDE 64
#define GAP 2
#define BIG_GAP 10
#define ROWS 25 /* of a block */
#define FIFTH 5

static int blocks(const sfp_sheet *sheet)
{
    return (sheet->rows + ROWS - 1) / ROWS;
}

void sfp__sheet_place(const sfp_sheet *sheet, int r, int *x, int *y)
{
    int row = r % ROWS;
    *x = BIG_GAP + r / ROWS * (sheet->across * (SIDE + GAP) + BIG_GAP);
    *y = BIG_GAP + row * (SIDE + GAP) + row / FIFTH * (BIG_GAP - GAP);
}

const char *sfp__sheet_where(const sfp_sheet *sheet, int r, char *buf, size_t size)
{
    if (r >= sheet->rows)
        (void)snprintf(buf, size, "-");
    else if (blocks(sheet) == 1)
        (void)snprintf(buf, size, "row %d", r + 1);
    else
        (void)snprintf(buf, size, "block %d row %d", r / ROWS + 1, r % ROWS + 1);
    return buf;
}

static sfp_status blank(const sfp_sheet *sheet, sfp_image *out, sfp_error *err)
{
    int x, y, last = sheet->rows < ROWS ? sheet->rows - 1 : ROWS - 1;
    sfp__sheet_place(sheet, (blocks(sheet) - 1) * ROWS + last, &x, &y);
    sfp_image im = {.width = x + sheet->across * (SIDE + GAP) + BIG_GAP, .height = y + SIDE + BIG_GAP};
    size_t bytes = (size_t)im.width * (size_t)im.height * 3;
    im.rgb = sfp__malloc(bytes);
    if (!im.rgb)
        return sfp__fail_nomem(err);
    memset(im.rgb, 255, bytes);
    *out = im;
    return SFP_OK;
}

/* rgb (SIDE, SIDE, 3); NULL: a broken picture, red */
static void paste(sfp_image *im, int x, int y, const uint8_t *rgb)
{
    static const uint8_t red[3] = {200, 40, 40};
    for (int v = 0; v < SIDE; v++) {
        uint8_t *to = im->rgb + ((size_t)(y + v) * (size_t)im->width + (size_t)x) * 3;
        for (int i = 0; i < 3 * SIDE; i++)
            to[i] = rgb ? rgb[v * 3 * SIDE + i] : red[i % 3];
    }
}

/* Picture number j of the n of a class is shown at *place when it is one of `across` evenly spread ones. */
static bool shown(int64_t j, int64_t n, int across, int *place)
{
    int64_t m = n < across ? n : across, t = (j * m + n - 1) / n;
    *place = (int)t;
    return t < m && t * n / m == j;
}

static sfp_status fill(const sfp_source *s, const int64_t *count_of, int64_t *seen, sfp_sheet *sheet, sfp_image *im,
                       sfp_error *err)
{
    uint8_t rgb[3 * SIDE * SIDE];
    sfp_progress progress;
    sfp_status status = SFP_OK;
    sfp__progress_init(&progress, "pictures for the sheet", (uint64_t)s->count);
    for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
        sfp_record r;
        int place, x, y;
        status = s->record(s, i, &r, err);
        if (status != SFP_OK)
            break;
        int row = r.label < 0 ? s->classes : r.label;
        if (!shown(seen[row]++, count_of[row], sheet->across, &place) || row >= sheet->rows)
            continue;
        sfp_error why = {0};
        bool broken = sfp__picture_read_fit(s, i, SIDE, SFP_RESIZE_CROP, rgb, NULL, &why) != SFP_OK;
        if (broken && why.status == SFP_ENOMEM)
            status = sfp__fail(err, why.status, "%s", why.message);
        sheet->broken += broken;
        sfp__sheet_place(sheet, row, &x, &y);
        paste(im, x + place * (SIDE + GAP), y, broken ? NULL : rgb);
        sfp__progress_tell(&progress, (uint64_t)i);
    }
    sfp__progress_done(&progress);
    return status;
}

sfp_status sfp__sheet_write(const sfp_source *s, const int64_t *count_of, const char *path, sfp_sheet *out, sfp_error *err)
{
    sfp_image im = {0};
    sfp_sheet sheet = {.rows = s->classes + (count_of[s->classes] > 0)};
    sheet.rows = sheet.rows < SFP_SHEET_CLASSES_MAX ? sheet.rows : SFP_SHEET_CLASSES_MAX;
    sheet.across = sheet.rows <= ROWS ? 8 : 4;
    if (sheet.rows == 0)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: has no pictures for a sheet", s->kind->name, s->path);
    int64_t *seen = sfp__calloc((size_t)s->classes + 1, sizeof *seen);
    if (!seen)
        return sfp__fail_nomem(err);
    sfp_status status = blank(&sheet, &im, err);
    if (status == SFP_OK)
        status = fill(s, count_of, seen, &sheet, &im, err);
    if (status == SFP_OK)
        status = sfp__image_write_png(path, &im, err);
    if (status == SFP_OK)
        *out = sheet;
    sfp__image_done(&im);
    sfp__free(seen);
    return status;
}
