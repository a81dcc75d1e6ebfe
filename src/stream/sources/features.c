/* Features that another model has computed: the rows of a matrix in a .npy file (float32, float16 or float64), one sample each. Labels
 * are in a file beside it: NAME.labels.txt has one class name per row, an empty line for a row without one; NAME.labels.npy has
 * integers, a negative one for a row without a label. Rows are read when they are needed, so memory does not grow with the file. */
#include "stream/source_internal.h"

#include "base/mem.h"
#include "io/tensor/tensor_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct features_source {
    sfp_source base;
    int fd;
    int64_t offset; /* of the first row */
    sfp__dtype dtype;
    const char *name; /* of the file, without its directory */
    int32_t *label;   /* (count) NULL: no labels */
} features_source;

static void close_features(sfp_source *base)
{
    features_source *s = (features_source *)base;
    if (s->fd >= 0)
        (void)close(s->fd);
    sfp__free(s->label);
}

static sfp_status record_features(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    const features_source *s = (const features_source *)base;
    (void)err;
    *out = sfp__record_none();
    if (s->label)
        out->label = s->label[i];
    return SFP_OK;
}

static sfp_status load_features(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const features_source *s = (const features_source *)base;
    OWNED uint8_t *bytes = NULL;
    OWNED float *row = NULL;
    size_t n = (size_t)base->row_dim, size = n * sfp__dtype_size(s->dtype);
    TRY(sfp__alloc(&bytes, size, 1, err));
    TRY(sfp__alloc(&row, n, sizeof *row, err));
    if (sfp__fd_read_at(s->fd, bytes, size, s->offset + i * (int64_t)size) != (int64_t)size)
        return sfp__fail(err, SFP_EFORMAT, "%s: row %lld cannot be read; the file has changed", base->path, (long long)i);
    const sfp__tensor t = {.name = "array", .dtype = s->dtype, .count = n, .bytes = size, .data = bytes};
    TRY(sfp__tensor_to_f32(base->path, &t, row, err));
    for (size_t k = 0; k < n; k++)
        if (!isfinite(row[k]))
            return sfp__fail(err, SFP_EFORMAT, "%s: row %lld has %g as value %zu, expected a finite number", base->path,
                             (long long)i, (double)row[k], k);
    *out = (sfp__raw_image){.kind = SFP__RAW_IMAGE_ROW, .bytes = (uint8_t *)TAKE(row), .size = n * sizeof *row};
    return SFP_OK;
}

static const char *name_features(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s[%lld]", ((const features_source *)base)->name, (long long)i);
    return buf;
}

static const sfp__source_ops features_ops = {
    .record = record_features, .load = load_features, .name = name_features, .close = close_features};

/* --------------------------------------------------------------------- labels */

static sfp_status fail_count(const features_source *s, const char *path, int64_t count, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s: file has %lld labels, expected %lld, the number of rows of %s", path,
                     (long long)count, (long long)s->base.count, s->base.path);
}

static sfp_status read_text(features_source *s, const char *path, sfp__names *names, sfp_error *err)
{
    OWNED_BY(sfp__lines_done) sfp__lines l = {0};
    int64_t count = 0;
    TRY(sfp__lines_open(path, "one class name per line", &l, err));
    for (char *line;; count++) {
        TRY(sfp__lines_next(&l, &line, err));
        if (!line)
            break;
        size_t n = strlen(line);
        while (n > 0 && strchr(" \t\r", line[n - 1]))
            n--;
        if (count >= s->base.count)
            return fail_count(s, path, count + 1, err);
        s->label[count] = -1;
        sfp_status status = n > 0 ? sfp__names_add(names, line, n, &s->label[count], err) : SFP_OK;
        if (status)
            return sfp__fail_prefix(err, status, "%s:%llu", path, (unsigned long long)l.number);
    }
    return count == s->base.count ? SFP_OK : fail_count(s, path, count, err);
}

static sfp_status read_npy(features_source *s, const char *path, sfp__names *names, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    OWNED int64_t *number = NULL;
    TRY(sfp__npy_open(path, &f, err));
    const sfp__tensor *t = &f->tensors[0];
    if (t->ndim != 1 || t->shape[0] != s->base.count)
        return fail_count(s, path, t->ndim == 1 ? t->shape[0] : -1, err);
    TRY(sfp__alloc(&number, t->count, sizeof *number, err));
    TRY(sfp__tensor_to_i64(path, t, number, err));
    for (int64_t i = 0; i < s->base.count; i++) {
        char text[24];
        s->label[i] = -1;
        int n = snprintf(text, sizeof text, "%lld", (long long)number[i]);
        sfp_status status = number[i] >= 0 ? sfp__names_add(names, text, (size_t)n, &s->label[i], err) : SFP_OK;
        if (status)
            return sfp__fail_prefix(err, status, "%s: label %lld", path, (long long)i);
    }
    return SFP_OK;
}

/* Reads the labels, if there are any. */
static sfp_status read_labels(features_source *s, sfp_error *err)
{
    static const struct {
        const char *suffix;
        sfp_status (*read)(features_source *s, const char *path, sfp__names *names, sfp_error *err);
    } kinds[] = {{".labels.txt", read_text}, {".labels.npy", read_npy}};
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    size_t stem = strlen(s->base.path) - strlen(".npy");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        OWNED_BY(sfp__text_done) sfp__text path = {0};
        OWNED int32_t *new_of = NULL;
        bool found = false;
        sfp__text_printf(&path, "%.*s%s", (int)stem, s->base.path, kinds[k].suffix);
        TRY(sfp__check_memory(!path.failed, err));
        TRY(sfp__path_exists(path.s, &found, err));
        if (!found)
            continue;
        TRY(sfp__alloc(&s->label, (size_t)s->base.count, sizeof *s->label, err));
        TRY(kinds[k].read(s, path.s, &names, err));
        TRY(sfp__names_sort(&names, &new_of, err));
        for (int64_t i = 0; i < s->base.count; i++)
            if (s->label[i] >= 0)
                s->label[i] = new_of[s->label[i]];
        sfp__names_give(&names, &s->base.class_names, &s->base.classes);
        return SFP_OK;
    }
    return sfp__source_warn(&s->base, err, "%s: no labels, expected %.*s%s or %s", s->base.path, (int)stem, s->base.path,
                            kinds[0].suffix, kinds[1].suffix);
}

/* ----------------------------------------------------------------------- rows */

/* Reads the header of the matrix. The bytes of the rows are read later. */
static sfp_status open_matrix(features_source *s, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    const char *path = s->base.path;
    char shape[SFP__SHAPE_MAX];
    size_t size = 0;
    TRY(sfp__tensor_file_map(path, &f, err));
    const sfp__tensor *t = f->count == 1 ? &f->tensors[0] : NULL;
    if (!t || strcmp(f->format, "npy") != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: format is %s, expected a .npy file", path, f->format);
    bool real = t->dtype == SFP__DTYPE_F32 || t->dtype == SFP__DTYPE_F16 || t->dtype == SFP__DTYPE_F64;
    if (t->ndim != 2 || !real || t->shape[1] < 1 || t->shape[1] > SFP__ROW_MAX || t->shape[0] > SFP__RECORDS_MAX)
        return sfp__fail(err, SFP_ESHAPE, "%s: array is %s %s, expected (rows, 1 to %d) floats", path, sfp__dtype_name(t->dtype),
                         sfp__shape_text(t->shape, t->ndim, shape, sizeof shape), SFP__ROW_MAX);
    s->base.count = t->shape[0];
    s->base.row_dim = (int)t->shape[1];
    s->dtype = t->dtype;
    s->offset = (const uint8_t *)t->data - f->map.bytes;
    TRY(sfp__fd_open(path, &s->fd, &size, err));
    if (size != f->map.size)
        return sfp__fail(err, SFP_EIO, "%s: the file has changed while it was opened", path);
    return SFP_OK;
}

static sfp_status open_features(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    (void)opt;
    if (!dot || strcmp(dot, ".npy") != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: not the name of a matrix, expected NAME.npy", path);
    TRY(sfp__source_create(sizeof(features_source), &sfp__source_features, &features_ops, path, &base, err));
    features_source *s = (features_source *)base;
    s->fd = -1;
    s->name = base->path + (slash ? slash + 1 - path : 0);
    TRY(open_matrix(s, err));
    TRY(read_labels(s, err));
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_features = {
    .name = "features",
    .summary = "rows of a .npy matrix: features of another model, labels in NAME.labels.txt or .npy",
    .open = open_features,
};
