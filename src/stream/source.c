/* The table of the kinds of sources, and opening a source by its name on the command line. */
#include "stream/source_internal.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const sfp__source_kind *const sfp__source_kinds[] = {
    &sfp__source_folder,
    &sfp__source_manifest,
    &sfp__source_idx,
    &sfp__source_cifar,
    &sfp__source_tar,
    &sfp__source_stream51,
    &sfp__source_core50,
    &sfp__source_clear10,
    &sfp__source_clear100,
    &sfp__source_features,
    &sfp__source_synthetic,
    &sfp__source_dir,
    &sfp__source_stdin,
    &sfp__source_submitted,
    &sfp__source_redis,
    &sfp__source_kafka,
    NULL,
};

/* Guesses the kind of source for a path that was given without a kind, for the error message; NULL: the path does not exist. */
static const char *likely_kind(const char *path)
{
    static const struct {
        const char *inside, *kind; /* a file that only this kind has */
    } marks[] = {{"Stream-51_meta_train.json", "stream51"},
                 {"core50_128x128", "core50"},
                 {"train/labeled_metadata.json", "clear10"},
                 {"data_batch_1.bin", "cifar"},
                 {"data_batch_1.png", "cifar"},
                 {"train.bin", "cifar"},
                 {"train-images-idx3-ubyte", "idx"},
                 {"train-images-idx3-ubyte.gz", "idx"}};
    static const struct {
        const char *suffix, *kind;
    } files[] = {{".csv", "manifest"}, {".jsonl", "manifest"}, {".tar", "tar"}, {".npy", "features"}};
    struct stat st;
    size_t n = strlen(path);
    if (stat(path, &st) != 0)
        return NULL;
    for (size_t i = 0; !S_ISDIR(st.st_mode) && i < sizeof files / sizeof *files; i++)
        if (n > strlen(files[i].suffix) && strcmp(path + n - strlen(files[i].suffix), files[i].suffix) == 0)
            return files[i].kind;
    if (!S_ISDIR(st.st_mode))
        return NULL;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        OWNED char *inside = NULL;
        if (!sfp__path_make(path, marks[i].inside, &inside, NULL) && stat(inside, &st) == 0)
            return marks[i].kind;
    }
    return "folder";
}

static sfp_status unknown_kind(const char *spec, sfp_error *err)
{
    char name[SFP__NAME_MAX];
    const char *kind = likely_kind(spec);
    if (kind)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data '%s': kind is missing, did you mean %s:%s?",
                             sfp__printable(spec, name, sizeof name), kind, name);
    OWNED_BY(sfp__text_done) sfp__text list = {0};
    for (size_t i = 0; sfp__source_kinds[i]; i++)
        sfp__text_printf(&list, "%s%s", i == 0 ? "" : ", ", sfp__source_kinds[i]->name);
    return sfp__fail_key(err, "data", SFP_EINVAL, "data '%s': expected KIND:PATH with KIND one of %s",
                         sfp__printable(spec, name, sizeof name), list.failed ? "..." : list.s);
}

static bool is_name(const char *name, const char *spec, size_t n)
{
    return name && strlen(name) == n && memcmp(name, spec, n) == 0;
}

const sfp__source_kind *sfp__source_kind_find(const char *spec)
{
    size_t n = strcspn(spec, ":");
    for (size_t i = 0; sfp__source_kinds[i]; i++)
        if (is_name(sfp__source_kinds[i]->name, spec, n) || is_name(sfp__source_kinds[i]->alias, spec, n))
            return sfp__source_kinds[i];
    return NULL;
}

sfp_status sfp__source_check(const char *spec, sfp_error *err)
{
    const sfp__source_kind *kind = sfp__source_kind_find(spec);
    size_t n = strcspn(spec, ":");
    if (!kind)
        return unknown_kind(spec, err);
    if ((!spec[n] || !spec[n + 1]) && kind != &sfp__source_stdin && kind != &sfp__source_synthetic &&
        kind != &sfp__source_submitted)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data '%s': path is missing, expected %s:PATH", spec, kind->name);
    return SFP_OK;
}

sfp_status sfp__source_open(const char *spec, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    static const sfp__source_options defaults;
    size_t n = strcspn(spec, ":");
    TRY(sfp__source_check(spec, err));
    return sfp__source_kind_find(spec)->open(spec[n] ? spec + n + 1 : "", opt ? opt : &defaults, out, err);
}

void sfp__source_close(sfp_source *s)
{
    if (!s)
        return;
    if (s->ops->close)
        s->ops->close(s);
    sfp__free(s->path);
    sfp__name_list_free(s->class_names, s->classes);
    sfp__name_list_free(s->domain_names, s->domains);
    sfp__free((void *)(uintptr_t)s->warning);
    sfp__free(s);
}

static sfp_status check_index(const sfp_source *s, int64_t i, sfp_error *err)
{
    if (i >= 0 && (i < s->count || s->count < 0))
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: number of the image is %lld, expected 0 to %lld", s->path, (long long)i,
                     (long long)s->count - 1);
}

sfp_status sfp__source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    TRY(check_index(s, i, err));
    return s->ops->record(s, i, out, err);
}

sfp_status sfp__source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    TRY(check_index(s, i, err));
    return s->ops->load(s, i, out, err);
}

const char *sfp__source_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    bool none = !s->live && check_index(s, i, NULL) != SFP_OK;
    return none ? sfp__printable("?", buf, size) : s->ops->name(s, i, buf, size);
}

const char *sfp__source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    bool none = !s->live && check_index(s, i, NULL) != SFP_OK;
    return none || !s->ops->display_name ? sfp__source_name(s, i, buf, size) : s->ops->display_name(s, i, buf, size);
}

void sfp__source_warn_live(sfp_source *s, const char *fmt, ...)
{
    sfp__source_live *l = s->live;
    int n = atomic_load(&l->warning_count);
    if (n == SFP__LIVE_WARNINGS_MAX)
        return;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(l->warnings[n], sizeof l->warnings[n], fmt, ap);
    va_end(ap);
    if (n == SFP__LIVE_WARNINGS_MAX - 1)
        (void)snprintf(l->warnings[n], sizeof l->warnings[n], "%.400s: further warnings are not shown", s->path);
    for (int i = 0; i < n; i++)
        if (strcmp(l->warnings[i], l->warnings[n]) == 0)
            return;
    atomic_store(&l->warning_count, n + 1);
}

sfp_status sfp__source_digest(const sfp_source *s, uint64_t *out, sfp_error *err)
{
    uint64_t h = SFP__HASH_START;
    for (int64_t i = 0; i < s->count; i++) {
        char buf[4096];
        sfp_record r;
        TRY(sfp__source_record(s, i, &r, err));
        const char *name = sfp__source_name(s, i, buf, sizeof buf), *class_name = r.label < 0 ? "" : s->class_names[r.label];
        h = sfp__hash(sfp__hash(h, name, strlen(name)), class_name, strlen(class_name));
    }
    *out = h ? h : 1;
    return SFP_OK;
}
