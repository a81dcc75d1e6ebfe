/* JPEG, by libjpeg's interface.
 *
 * libjpeg reports errors by a callback that must not return, hence longjmp. Everything that must survive the jump is in one
 * struct, outside of the function that calls setjmp. Warnings that mean missing data are errors: otherwise a half grey image
 * would be trained on. Other warnings, such as stray bytes between markers, are ignored, as by Pillow. */
#include "io/image/image.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

/* Maximum number of scans: a progressive file of some kilobytes may require thousands of passes over a large image. */
#define SCANS_MAX 500

struct reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    const char *label;
    const sfp__image_options *opt;
    sfp_error *err;
    sfp_status status;
    sfp__image image;
    uint8_t *row; /* (width, 4), for a CMYK image */
    int orientation;
};

_Noreturn static void abort_decoding(struct reader *r, sfp_status status)
{
    r->status = status;
    longjmp(r->escape, 1);
}

_Noreturn static void on_error(j_common_ptr info)
{
    struct reader *r = info->client_data;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    sfp_status status = info->err->msg_code == JERR_OUT_OF_MEMORY ? SFP_ENOMEM : SFP_EFORMAT;
    abort_decoding(r, sfp__fail(r->err, status, "%s: JPEG: %s", r->label, text));
}

static void on_message(j_common_ptr info, int level)
{
    struct reader *r = info->client_data;
    int code = info->err->msg_code;
    if (level >= 0) /* trace */
        return;
    if (code == JWRN_JPEG_EOF)
        abort_decoding(r, sfp__fail(r->err, SFP_EFORMAT, "%s: JPEG is truncated: the file ends before the image does", r->label));
    if (code == JWRN_HIT_MARKER)
        abort_decoding(r, sfp__fail(r->err, SFP_EFORMAT, "%s: JPEG is truncated: the coded data ends early", r->label));
    info->err->num_warnings++;
}

static void on_output(j_common_ptr info)
{
    (void)info; /* the default callback prints the message */
}

static void on_progress(j_common_ptr info)
{
    struct reader *r = info->client_data;
    if (r->info.input_scan_number > SCANS_MAX)
        abort_decoding(r, sfp__fail(r->err, SFP_ELIMIT, "%s: JPEG has more than %d scans", r->label, SCANS_MAX));
}

/* Adobe's CMYK is stored inverted. Pillow assumes this for all four-channel files, and mixes black in with this rounding. */
static void cmyk_to_rgb(const uint8_t *cmyk, int width, uint8_t *rgb)
{
    for (int x = 0; x < width; x++, cmyk += 4, rgb += 3) {
        unsigned white = cmyk[3];
        for (int c = 0; c < 3; c++) {
            unsigned ink = (255u - cmyk[c]) * white + 128;
            rgb[c] = (uint8_t)(white - ((ink + (ink >> 8)) >> 8));
        }
    }
}

static void find_orientation(struct reader *r)
{
    for (jpeg_saved_marker_ptr m = r->info.marker_list; m; m = m->next) {
        if (m->marker == JPEG_APP0 + 1 && m->data_length >= 6 && GETJOCTET(m->data[0]) == 'E') {
            r->orientation = sfp__exif_orientation(m->data, m->data_length);
            return;
        }
    }
}

static void read_rows(struct reader *r, bool cmyk)
{
    size_t stride = (size_t)r->image.width * 3;
    while (r->info.output_scanline < r->info.output_height) {
        uint8_t *to = r->image.rgb + r->info.output_scanline * stride;
        JSAMPROW row = cmyk ? r->row : to;
        if (jpeg_read_scanlines(&r->info, &row, 1) == 1 && cmyk)
            cmyk_to_rgb(r->row, r->image.width, to);
    }
}

/* Makes libjpeg compute a smaller image, by a divisor for which it has fast code, if both sides remain at least 2 * fit_side. The resize that
 * follows averages the remaining pixels, so its result is nearly the same. */
static void choose_scale(struct jpeg_decompress_struct *info, int fit_side)
{
    unsigned short_side = info->image_width < info->image_height ? info->image_width : info->image_height, divisor = 8;
    while (divisor > 1 && (fit_side < 1 || short_side / divisor < 2 * (unsigned)fit_side))
        divisor /= 2;
    info->scale_num = 1;
    info->scale_denom = divisor;
    jpeg_calc_output_dimensions(info);
}

static void decode(struct reader *r, const uint8_t *bytes, size_t size)
{
    jpeg_create_decompress(&r->info);
    r->progress.progress_monitor = on_progress;
    r->info.progress = &r->progress;
    jpeg_mem_src(&r->info, bytes, (unsigned long)size);
    jpeg_save_markers(&r->info, JPEG_APP0 + 1, 0xffff);
    (void)jpeg_read_header(&r->info, TRUE);
    find_orientation(r);
    bool cmyk = r->info.num_components == 4;
    r->info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;

    sfp_status status = sfp__image_check_size(r->label, r->info.image_width, r->info.image_height, r->opt->max_pixels, r->err);
    if (status == SFP_OK) {
        choose_scale(&r->info, r->opt->fit_side);
        status = sfp__image_alloc(r->label, r->info.output_width, r->info.output_height, r->opt->max_pixels, &r->image, r->err);
    }
    if (status != SFP_OK)
        abort_decoding(r, status);
    if (cmyk) {
        size_t need = (size_t)r->image.width * 4;
        r->row = sfp__malloc(need);
        if (!r->row)
            abort_decoding(r, sfp__fail_nomem(r->err));
    }
    (void)jpeg_start_decompress(&r->info);
    read_rows(r, cmyk);
    (void)jpeg_finish_decompress(&r->info); /* reads up to the end marker: if that is missing, the file is truncated */
}

static void decode_guarded(struct reader *r, const uint8_t *bytes, size_t size)
{
    if (setjmp(r->escape) == 0)
        decode(r, bytes, size);
}

sfp_status sfp__jpeg_decode(const char *label, const uint8_t *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                            int *orientation, sfp_error *err)
{
    struct reader r = {.label = label, .opt = opt, .err = err, .status = SFP_OK, .orientation = 1};
    r.info.err = jpeg_std_error(&r.errors);
    r.info.client_data = &r;
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    r.errors.output_message = on_output;
    decode_guarded(&r, bytes, size);
    jpeg_destroy_decompress(&r.info);
    sfp__free(r.row);
    *out = r.image;
    *orientation = r.orientation;
    return r.status;
}
