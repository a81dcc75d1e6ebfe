#include "stream/source_internal.h"

#include "base/mem.h"
#include "base/rng.h"
#include "io/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------- order */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Two runs of digits as numbers of any length; moves both behind their run. */
static int compare_runs(const char **a, const char **b)
{
    const char *x = *a, *y = *b;
    while (*x == '0')
        x++;
    while (*y == '0')
        y++;
    int first = 0;
    while (is_digit(*x) && is_digit(*y)) {
        if (first == 0)
            first = *x - *y;
        x++;
        y++;
    }
    int order = is_digit(*x) ? 1 : is_digit(*y) ? -1 : first;
    *a = x;
    *b = y;
    return order;
}

int sfp__natural_compare(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            int order = compare_runs(&x, &y);
            if (order != 0)
                return order;
        } else if (*x != *y) {
            break;
        } else {
            x++;
            y++;
        }
    }
    int order = (int)(unsigned char)*x - (int)(unsigned char)*y;
    return order != 0 ? order : strcmp(a, b); /* "a01" and "a1" */
}

static bool is_number(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

int sfp__name_compare(const char *a, const char *b)
{
    bool x = is_number(a), y = is_number(b);
    if (x != y)
        return x ? -1 : 1;
    return x ? sfp__natural_compare(a, b) : strcmp(a, b);
}

void sfp__shuffle(int64_t *a, int64_t n, uint64_t seed, uint64_t stream)
{
    sfp_rng rng = sfp__rng_init(seed, stream);
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = sfp__rng_below(&rng, (uint32_t)i + 1), t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

/* ----------------------------------------------------------------- entries */

sfp_status sfp__entries_add(sfp_entries *l, sfp_entry entry, const char *path, size_t n, sfp_error *err)
{
    if (l->count >= SFP_RECORDS_MAX)
        return sfp__fail(err, SFP_ELIMIT, "more than %lld pictures", (long long)SFP_RECORDS_MAX);
    if (!sfp__grow(&l->at, sizeof *l->at, (size_t)l->count, (size_t)l->count + 1, &l->room))
        return sfp__fail_nomem(err);
    if (path) {
        entry.text = l->text.length;
        sfp__text_putn(&l->text, path, n);
        sfp__text_putn(&l->text, "", 1);
        if (l->text.failed)
            return sfp__fail_nomem(err);
    }
    l->at[l->count++] = entry;
    return SFP_OK;
}

void sfp__entries_relabel(sfp_entries *l, const int32_t *new_of)
{
    for (int64_t i = 0; new_of && i < l->count; i++) {
        if (l->at[i].record.label >= 0)
            l->at[i].record.label = new_of[l->at[i].record.label];
    }
}

void sfp__entries_redomain(sfp_entries *l, const int32_t *new_of)
{
    for (int64_t i = 0; new_of && i < l->count; i++) {
        if (l->at[i].record.domain >= 0)
            l->at[i].record.domain = new_of[l->at[i].record.domain];
    }
}

void sfp__entries_done(sfp_entries *l)
{
    sfp__free(l->at);
    sfp__text_done(&l->text);
    *l = (sfp_entries){0};
}

/* ----------------------------------------------------------------- sources */

sfp_status sfp__source_init(sfp_source *s, const sfp_source_kind *kind, const char *path, sfp_error *err)
{
    *s = (sfp_source){.kind = kind, .count = -1, .path = sfp__strdup(path)};
    return s->path ? SFP_OK : sfp__fail_nomem(err);
}

void sfp__source_done(sfp_source *s)
{
    sfp__free(s->path);
    sfp__name_list_free(s->class_names, s->classes);
    sfp__name_list_free(s->domain_names, s->domains);
    sfp__free((void *)(uintptr_t)s->note);
    *s = (sfp_source){0};
}

sfp_status sfp__source_note(sfp_source *s, sfp_error *err, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t room = strlen(text) + (s->note ? strlen(s->note) : 0) + 3;
    char *note = sfp__malloc(room);
    if (!note)
        return sfp__fail_nomem(err);
    (void)snprintf(note, room, "%s%s%s", s->note ? s->note : "", s->note ? "; " : "", text);
    sfp__free((void *)(uintptr_t)s->note);
    s->note = note;
    return SFP_OK;
}

sfp_status sfp__source_check_index(const sfp_source *s, int64_t i, sfp_error *err)
{
    if (i < 0 || i >= s->count)
        return sfp__fail(err, SFP_EINVAL, "%s: picture %lld of %lld", s->path, (long long)i, (long long)s->count);
    return SFP_OK;
}

const char *sfp__source_where(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    return s->where ? s->where(s, i, buf, size) : s->name(s, i, buf, size);
}

sfp_status sfp__picture_blame(const sfp_source *s, int64_t i, const char *what, sfp_error *err)
{
    char name[SFP_NAME_MAX];
    return sfp__fail(err, SFP_EFORMAT, "%s:%s: %s %s", s->kind->name, s->path, s->name(s, i, name, sizeof name), what);
}

void *sfp__room_for(size_t count, size_t size, sfp_status *status, sfp_error *err)
{
    void *p = sfp__calloc(count ? count : 1, size);
    if (!p)
        *status = sfp__fail_nomem(err);
    return p;
}

sfp_status sfp__file_source_create(size_t size, const sfp_source_kind *kind, const char *path, const char *root,
                                   sfp_file_source **out, sfp_error *err)
{
    sfp_file_source *s = sfp__calloc(1, size);
    if (!s)
        return sfp__fail_nomem(err);
    sfp_status status = sfp__source_init(&s->base, kind, path, err);
    if (status == SFP_OK && !(s->root = sfp__strdup(root)))
        status = sfp__fail_nomem(err);
    if (status != SFP_OK) {
        sfp__source_done(&s->base);
        sfp__free(s);
        return status;
    }
    s->base.record = sfp__file_source_record;
    s->base.load = sfp__file_source_load;
    s->base.name = sfp__file_source_name;
    s->base.where = sfp__file_source_where;
    s->base.close = sfp__file_source_close;
    *out = s;
    return SFP_OK;
}

void sfp__file_source_finish(sfp_file_source *s, sfp_names *classes, sfp_names *domains)
{
    sfp__names_give(classes, &s->base.class_names, &s->base.classes);
    sfp__names_give(domains, &s->base.domain_names, &s->base.domains);
    s->base.count = s->entries.count;
}

void sfp__file_source_close(sfp_source *base)
{
    if (!base)
        return;
    sfp_file_source *s = (sfp_file_source *)base;
    sfp__entries_done(&s->entries);
    sfp__free(s->root);
    sfp__source_done(base);
    sfp__free(s);
}

sfp_status sfp__file_source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    sfp_status status = sfp__source_check_index(s, i, err);
    if (status == SFP_OK)
        *out = ((const sfp_file_source *)s)->entries.at[i].record;
    return status;
}

char *sfp__file_source_path(const sfp_file_source *s, int64_t i)
{
    return sfp__path_join(s->root, sfp__entries_path(&s->entries, i));
}

sfp_status sfp__file_source_load(const sfp_source *s, int64_t i, sfp_picture *out, sfp_error *err)
{
    sfp_status status = sfp__source_check_index(s, i, err);
    if (status != SFP_OK)
        return status;
    char *path = sfp__file_source_path((const sfp_file_source *)s, i);
    if (!path)
        return sfp__fail_nomem(err);
    status = sfp__picture_read(path, out, err);
    sfp__free(path);
    return status;
}

const char *sfp__file_source_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    if (sfp__source_check_index(s, i, NULL) != SFP_OK)
        return sfp__printable("?", buf, size);
    return sfp__printable(sfp__entries_path(&((const sfp_file_source *)s)->entries, i), buf, size);
}

/* The path as it is opened, byte for byte: that of a file that cannot be read is told so too. */
const char *sfp__file_source_where(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    char *path = sfp__source_check_index(s, i, NULL) == SFP_OK ? sfp__file_source_path((const sfp_file_source *)s, i) : NULL;
    if (!path)
        return sfp__file_source_name(s, i, buf, size);
    if (snprintf(buf, size, "%s", path) >= (int)size && size > 3)
        memcpy(buf + size - 4, "...", 4);
    sfp__free(path);
    return buf;
}

/* ------------------------------------------------------------------- files */

char *sfp__path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir), room = n + strlen(name) + 2;
    if (*name == '/' || n == 0)
        return sfp__strdup(name);
    char *path = sfp__malloc(room);
    if (path)
        (void)snprintf(path, room, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
    return path;
}

char *sfp__path_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return sfp__strdup(".");
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    char *dir = sfp__malloc(n + 1);
    if (dir) {
        memcpy(dir, path, n);
        dir[n] = '\0';
    }
    return dir;
}

bool sfp__path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

sfp_status sfp__picture_read(const char *path, sfp_picture *out, sfp_error *err)
{
    sfp_picture p = {.kind = SFP_PICTURE_ENCODED};
    sfp_status status = sfp__file_read(path, SFP_PICTURE_BYTES_MAX, &p.bytes, &p.size, err);
    if (status == SFP_OK)
        *out = p;
    return status;
}

void sfp__picture_done(sfp_picture *p)
{
    sfp__free(p->bytes);
    *p = (sfp_picture){0};
}
