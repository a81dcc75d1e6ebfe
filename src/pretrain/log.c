#include "pretrain/log.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define LOG_BYTES_MAX ((size_t)256 << 20)

static void put(sfp_text *t, const char *key, double x)
{
    if (isfinite(x))
        sfp__text_printf(t, ", \"%s\": %.6g", key, x);
}

static sfp_status line_of(const sfp_log_point *p, sfp_text *t, sfp_error *err)
{
    sfp__text_printf(t, "{\"step\": %" PRIu64, p->step);
    put(t, "epoch", p->epoch);
    put(t, "seconds", p->seconds);
    put(t, "lr", p->lr);
    put(t, "grad_norm", p->grad_norm);
    put(t, "images_per_second", p->images_per_second);
    for (int i = 0; i < SFP_TERMS; i++)
        put(t, sfp__pretrain_term_name(i), p->loss[i]);
    put(t, "ncm", p->ncm);
    put(t, "knn", p->knn);
    sfp__text_put(t, "}\n");
    return t->failed ? sfp__fail_nomem(err) : SFP_OK;
}

static sfp_status keep(sfp_log *l, const sfp_log_point *p, sfp_error *err)
{
    if (!sfp__grow(&l->point, sizeof *l->point, l->count, l->count + 1, &l->room))
        return sfp__fail_nomem(err);
    l->point[l->count++] = *p;
    return SFP_OK;
}

/* Anybody may have written the file: what no training comes to is no number. */
static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    return fabs(x) < 1e15 ? x : NAN;
}

/* A line that is none (the last one of a killed training may be cut) ends what is kept. */
static bool read_line(const char *line, size_t n, sfp_log_point *out)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    bool ok = json_is_object(o) && json_is_integer(json_object_get(o, "step"));
    if (ok) {
        *out = (sfp_log_point){.step = (uint64_t)json_integer_value(json_object_get(o, "step")),
                               .epoch = number(o, "epoch"),
                               .seconds = number(o, "seconds"),
                               .lr = number(o, "lr"),
                               .grad_norm = number(o, "grad_norm"),
                               .images_per_second = number(o, "images_per_second"),
                               .ncm = number(o, "ncm"),
                               .knn = number(o, "knn")};
        for (int i = 0; i < SFP_TERMS; i++)
            out->loss[i] = number(o, sfp__pretrain_term_name(i));
    }
    json_decref(o);
    return ok;
}

static sfp_status read_points(const char *path, uint64_t upto, sfp_log *l, sfp_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status s = sfp__file_read(path, LOG_BYTES_MAX, &bytes, &size, err);
    if (s == SFP_ENOTFOUND || s == SFP_EFORMAT)
        return SFP_OK; /* none, or empty: it begins here */
    for (size_t at = 0; !s && at < size;) {
        const char *line = (const char *)bytes + at, *end = memchr(line, '\n', size - at);
        sfp_log_point p;
        if (!end || !read_line(line, (size_t)(end - line), &p) || p.step > upto)
            break;
        s = keep(l, &p, err);
        at += (size_t)(end - line) + 1;
    }
    sfp__free(bytes);
    return s;
}

static sfp_status put_lines(const sfp_log *l, const sfp_text *t, sfp_error *err)
{
    if (t->length && (fwrite(t->s, 1, t->length, l->file) != t->length || fflush(l->file) != 0))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", l->path);
    return SFP_OK;
}

sfp_status sfp__log_open(const char *path, uint64_t upto, sfp_log *out, sfp_error *err)
{
    sfp_log l = {.path = sfp__strdup(path)};
    sfp_status s = l.path ? SFP_OK : sfp__fail_nomem(err);
    if (!s && upto)
        s = read_points(path, upto, &l, err);
    sfp_text t = {0};
    for (size_t i = 0; !s && i < l.count; i++)
        s = line_of(&l.point[i], &t, err);
    if (!s)
        s = sfp__file_write(path, t.s, t.length, err); /* in one go: a kill leaves the old lines or the new */
    sfp__text_done(&t);
    if (!s && !(l.file = fopen(path, "ae")))
        s = sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    if (s)
        sfp__log_close(&l);
    else
        *out = l;
    return s;
}

sfp_status sfp__log_add(sfp_log *l, const sfp_log_point *p, sfp_error *err)
{
    sfp_text t = {0};
    sfp_status s = keep(l, p, err);
    if (!s)
        s = line_of(p, &t, err);
    if (!s)
        s = put_lines(l, &t, err);
    sfp__text_done(&t);
    return s;
}

void sfp__log_close(sfp_log *l)
{
    if (l->file)
        (void)fclose(l->file);
    sfp__free(l->path);
    sfp__free(l->point);
    *l = (sfp_log){0};
}
