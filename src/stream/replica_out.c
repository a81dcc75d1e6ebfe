#include "stream/replica_out.h"

#include "base/mem.h"
#include "io/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#define QUALITY 90
#define PATH_ROOM 4096

/* ---------------------------------------------------------------------- files */

static sfp_status open_new(const char *path, int *out, sfp_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT) {
        sfp_status s = sfp__folder_make_for(path, err);
        if (s != SFP_OK)
            return s;
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (fd < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
    *out = fd;
    return SFP_OK;
}

void sfp__out_bytes(sfp_replica_out *o, const char *name, const void *bytes, size_t size)
{
    char path[PATH_ROOM];
    if (o->status != SFP_OK)
        return;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", o->root, name) >= sizeof path) {
        o->status = sfp__fail(o->err, SFP_EINVAL, "%.80s...: the path is too long", o->root);
        return;
    }
    int fd = -1;
    o->status = open_new(path, &fd, o->err);
    if (o->status != SFP_OK)
        return;
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            o->status = sfp__fail_errno(o->err, SFP_EIO, "%s: cannot write", path);
            break;
        }
        done += (size_t)n;
    }
    if (close(fd) != 0 && o->status == SFP_OK)
        o->status = sfp__fail_errno(o->err, SFP_EIO, "%s: cannot write", path);
    o->files++;
}

void sfp__out_text(sfp_replica_out *o, const char *name, sfp_text *t)
{
    if (t->failed && o->status == SFP_OK)
        o->status = sfp__fail_nomem(o->err);
    sfp__out_bytes(o, name, t->s ? t->s : "", t->length);
    sfp__text_done(t);
    *t = (sfp_text){0};
}

/* ------------------------------------------------------------------- pictures */

typedef struct jpeg_trap {
    struct jpeg_error_mgr base;
    jmp_buf out;
} jpeg_trap;

static void jpeg_failed(j_common_ptr info)
{
    longjmp(((jpeg_trap *)info->err)->out, 1);
}

static void jpeg_silent(j_common_ptr info)
{
    (void)info;
}

/* libjpeg allocates *bytes with malloc. */
static bool encode_jpeg(const sfp_image *im, unsigned char **bytes, unsigned long *size)
{
    struct jpeg_compress_struct info;
    jpeg_trap trap;
    info.err = jpeg_std_error(&trap.base);
    trap.base.error_exit = jpeg_failed;
    trap.base.output_message = jpeg_silent;
    if (setjmp(trap.out)) {
        jpeg_destroy_compress(&info);
        return false;
    }
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, bytes, size);
    info.image_width = (JDIMENSION)im->width;
    info.image_height = (JDIMENSION)im->height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, QUALITY, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = im->rgb + (size_t)info.next_scanline * (size_t)im->width * 3;
        (void)jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return true;
}

void sfp__out_jpeg(sfp_replica_out *o, const sfp_image *im, sfp_text *to)
{
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    if (o->status == SFP_OK && !encode_jpeg(im, &bytes, &size))
        o->status = sfp__fail(o->err, SFP_ELIBRARY, "%s: cannot encode a JPEG", o->root);
    if (o->status == SFP_OK)
        sfp__text_putn(to, (const char *)bytes, size);
    free(bytes);
}

void sfp__out_picture(sfp_replica_out *o, const char *name, const sfp_image *im)
{
    const char *dot = strrchr(name, '.');
    sfp_text t = {0};
    if (!dot || strcmp(dot, ".png") != 0)
        sfp__out_jpeg(o, im, &t);
    else if (o->status == SFP_OK)
        o->status = sfp__image_encode_png(name, im, &t, o->err);
    sfp__out_text(o, name, &t);
}

/* -------------------------------------------------------------------- pickles */

void sfp__out_pickle_int(sfp_text *t, int v)
{
    char b[5] = {'J', (char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    if (v >= 0 && v < 256) {
        b[0] = 'K';
        sfp__text_putn(t, b, 2);
    } else if (v >= 0 && v < 65536) {
        b[0] = 'M';
        sfp__text_putn(t, b, 3);
    } else {
        sfp__text_putn(t, b, 5);
    }
}

void sfp__out_pickle_string(sfp_text *t, const char *s)
{
    size_t n = strlen(s);
    char head[2] = {'U', (char)n}; /* names are short */
    sfp__text_putn(t, head, 2);
    sfp__text_putn(t, s, n);
}
