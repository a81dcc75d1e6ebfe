/* Functions that several kinds of sources share: orders, lists of entries, sources of files, paths. */
#include "stream/source_internal.h"

#include "base/mem.h"
#include "base/rng.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAMES_MAX (1 << 24)                       /* names in one directory */
#define CLASS_STREAM (UINT64_C(0x636c6173) << 32) /* shuffles for different purposes use different random sequences of a seed */

/* ------------------------------------------------------------------- order */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compares two runs of digits as numbers of any length and moves both pointers behind their run. */
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
    sfp__rng rng = sfp__rng_init(seed, stream);
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = sfp__rng_below(&rng, (uint32_t)i + 1), t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

static sfp_status numbers_to(int64_t n, int64_t **out, sfp_error *err)
{
    TRY(sfp__alloc(out, (size_t)n, sizeof **out, err));
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = i;
    return SFP_OK;
}

sfp_status sfp__shuffled(int64_t n, uint64_t seed, uint64_t stream, int64_t **out, sfp_error *err)
{
    TRY(numbers_to(n, out, err));
    sfp__shuffle(*out, n, seed, stream);
    return SFP_OK;
}

sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err)
{
    TRY(numbers_to(classes, class_at, err));
    if (order < -1) /* -1: the first order of the authors is the natural one */
        sfp__authors_shuffle(*class_at, classes, (uint32_t)(-(int64_t)order - 1));
    else if (order > 0)
        sfp__shuffle(*class_at, classes, (uint64_t)(int64_t)order, CLASS_STREAM);
    return SFP_OK;
}

/* ----------------------------------------------------------------- entries */

sfp_status sfp__entries_add(sfp__entries *l, sfp__entry entry, const char *path, size_t n, sfp_error *err)
{
    if (l->count >= SFP__RECORDS_MAX)
        return sfp__fail(err, SFP_ELIMIT, "number of images exceeds %lld", (long long)SFP__RECORDS_MAX);
    TRY(sfp__check_memory(sfp__grow(&l->at, sizeof *l->at, (size_t)l->count, (size_t)l->count + 1, &l->capacity), err));
    if (path) {
        entry.text = l->text.length;
        sfp__text_putn(&l->text, path, n);
        sfp__text_putn(&l->text, "", 1);
        TRY(sfp__check_memory(!l->text.failed, err));
    }
    l->at[l->count++] = entry;
    return SFP_OK;
}

sfp_status sfp__entries_sort_names(sfp__entries *l, sfp__names *classes, sfp__names *domains, sfp_error *err)
{
    OWNED int32_t *label = NULL, *domain = NULL;
    TRY(sfp__names_sort(classes, &label, err));
    TRY(sfp__names_sort(domains, &domain, err));
    for (int64_t i = 0; i < l->count; i++) {
        sfp_record *r = &l->at[i].record;
        r->label = r->label < 0 ? r->label : label[r->label];
        r->domain = r->domain < 0 ? r->domain : domain[r->domain];
    }
    return SFP_OK;
}

/* ----------------------------------------------------------------- sources */

sfp_status sfp__source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                              sfp_source **out, sfp_error *err)
{
    OWNED sfp_source *s = NULL;
    TRY(sfp__alloc(&s, 1, size, err));
    s->kind = kind;
    s->ops = ops;
    s->count = -1;
    TRY(sfp__check_memory((s->path = sfp__strdup(path)), err));
    *out = TAKE(s);
    return SFP_OK;
}

sfp_status sfp__source_warn(sfp_source *s, sfp_error *err, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *all;
    TRY(sfp__text_new(&all, err, "%s%s%s", s->warning ? s->warning : "", s->warning ? "; " : "", text));
    sfp__free((void *)(uintptr_t)s->warning);
    s->warning = all;
    return SFP_OK;
}

sfp_status sfp__raw_image_blame(const sfp_source *s, int64_t i, const char *what, sfp_error *err)
{
    char name[SFP__NAME_MAX];
    return sfp__fail(err, SFP_EFORMAT, "%s:%s: %s %s", s->kind->name, s->path, sfp__source_name(s, i, name, sizeof name), what);
}

sfp_status sfp__file_source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                                   const char *root, sfp__file_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
    TRY(sfp__source_create(size, kind, ops, path, &s, err));
    TRY(sfp__check_memory((((sfp__file_source *)s)->root = sfp__strdup(root)), err));
    *out = (sfp__file_source *)TAKE(s);
    return SFP_OK;
}

sfp_source *sfp__file_source_finish(sfp__file_source *s, sfp__names *classes, sfp__names *domains)
{
    sfp__names_give(classes, &s->base.class_names, &s->base.classes);
    if (domains)
        sfp__names_give(domains, &s->base.domain_names, &s->base.domains);
    s->base.count = s->entries.count;
    return &s->base;
}

void sfp__file_source_close(sfp_source *base)
{
    sfp__file_source *s = (sfp__file_source *)base;
    sfp__free(s->entries.at);
    sfp__text_done(&s->entries.text);
    sfp__free(s->root);
}

sfp_status sfp__file_source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    (void)err;
    *out = ((const sfp__file_source *)s)->entries.at[i].record;
    return SFP_OK;
}

/* Returns the path of entry i for opening it. */
static sfp_status path_of(const sfp_source *base, int64_t i, char **out, sfp_error *err)
{
    const sfp__file_source *s = (const sfp__file_source *)base;
    return sfp__path_make(s->root, sfp__entries_path(&s->entries, i), out, err);
}

sfp_status sfp__file_source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    OWNED char *path = NULL;
    TRY(path_of(s, i, &path, err));
    return sfp__raw_image_read(path, out, err);
}

const char *sfp__file_source_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    return sfp__printable(sfp__entries_path(&((const sfp__file_source *)s)->entries, i), buf, size);
}

/* The path byte for byte as it is opened, because messages of a failed open have it too. */
const char *sfp__file_source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    OWNED char *path = NULL;
    if (path_of(s, i, &path, NULL))
        return sfp__file_source_name(s, i, buf, size);
    if (snprintf(buf, size, "%s", path) >= (int)size && size > 3)
        memcpy(buf + size - 4, "...", 4);
    return buf;
}

const sfp__source_ops sfp__file_source_ops = {
    .record = sfp__file_source_record,
    .load = sfp__file_source_load,
    .name = sfp__file_source_name,
    .display_name = sfp__file_source_display_name,
    .close = sfp__file_source_close,
};

/* ------------------------------------------------------------------- files */

sfp_status sfp__path_make(const char *dir, const char *name, char **out, sfp_error *err)
{
    size_t n = strlen(dir);
    if (*name == '/' || n == 0)
        return sfp__text_new(out, err, "%s", name);
    return sfp__text_new(out, err, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

sfp_status sfp__path_directory(const char *path, char **out, sfp_error *err)
{
    const char *slash = strrchr(path, '/');
    bool directory = false;
    TRY(sfp__path_is_dir(path, &directory, err));
    if (directory)
        return sfp__text_new(out, err, "%s", path);
    return sfp__text_new(out, err, "%.*s", !slash || slash == path ? 1 : (int)(slash - path), slash ? path : ".");
}

static int compare_strings(const void *a, const void *b)
{
    return sfp__natural_compare(*(char *const *)a, *(char *const *)b);
}

static void close_directory(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

sfp_status sfp__directory_names(const char *path, sfp__strings *names, sfp_error *err)
{
    OWNED_BY(close_directory) DIR *dir = opendir(path);
    if (!dir)
        return sfp__fail_errno(err, errno == ENOENT || errno == ENOTDIR ? SFP_ENOTFOUND : SFP_EIO,
                               "%s: cannot open the directory", path);
    for (const struct dirent *entry; (errno = 0, entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (names->count == NAMES_MAX)
            return sfp__fail(err, SFP_ELIMIT, "%s: directory has more than %d names", path, NAMES_MAX);
        TRY(sfp__strings_add(names, entry->d_name, err));
    }
    if (errno)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read the directory", path);
    if (names->count)
        qsort(names->s, (size_t)names->count, sizeof *names->s, compare_strings);
    return SFP_OK;
}

/* Gets the mode of a file or directory; 0: there is none. */
static sfp_status get_mode(const char *path, mode_t *out, sfp_error *err)
{
    struct stat st;
    bool found = stat(path, &st) == 0;
    if (!found && errno != ENOENT && errno != ENOTDIR)
        return sfp__fail_errno(err, errno == EACCES || errno == ELOOP || errno == ENAMETOOLONG ? SFP_EINVAL : SFP_EIO,
                               "%s: cannot open", path);
    *out = found ? st.st_mode : 0;
    return SFP_OK;
}

sfp_status sfp__path_exists(const char *path, bool *out, sfp_error *err)
{
    mode_t mode = 0;
    TRY(get_mode(path, &mode, err));
    *out = mode != 0;
    return SFP_OK;
}

sfp_status sfp__path_is_dir(const char *path, bool *out, sfp_error *err)
{
    mode_t mode = 0;
    TRY(get_mode(path, &mode, err));
    *out = S_ISDIR(mode);
    return SFP_OK;
}

sfp_status sfp__raw_image_read(const char *path, sfp__raw_image *out, sfp_error *err)
{
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_ENCODED};
    TRY(sfp__image_read(path, SFP__RAW_IMAGE_BYTES_MAX, &p.bytes, &p.size, err));
    *out = p;
    return SFP_OK;
}

void sfp__raw_image_done(sfp__raw_image *p)
{
    sfp__free(p->bytes);
    *p = (sfp__raw_image){0};
}
