/* One directory per class: PATH/class/.../file, or PATH/domain/class/.../file.
 *
 * One pass over the tree (io/directory.h) lists all images; the layout follows from the list. Images directly in a directory of
 * the first level count for the layout of classes, deeper images for that of domains, and the majority decides (a tie: classes).
 * So one stray image does not turn domains into classes. In the layout of classes, everything below a directory belongs to its
 * class. In that of domains, an image beside the class directories is excluded, with a warning.
 *
 * If all deeper images lie in directories of the same name, as in CLASS/images/file, that name does not distinguish classes: the
 * first level are the classes, and a warning says so. */
#include "io/directory.h"
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Number of excluded files, and the first one by name. */
typedef struct tally {
    uint64_t count;
    char first[SFP__NAME_MAX];
} tally;

typedef struct scan {
    sfp__file_source *source;
    int64_t flat;   /* images directly in a directory of the first level */
    tally loose;    /* images beside the class directories */
    tally foreign;  /* files that are not images */
    tally odd;      /* entries that are not files but have names of images */
    tally empty[2]; /* directories of the first and second level without images */
} scan;

static void count_one(tally *t, const char *path)
{
    char text[SFP__NAME_MAX];
    (void)sfp__printable(path, text, sizeof text);
    if (t->count++ == 0 || sfp__natural_compare(text, t->first) < 0)
        (void)snprintf(t->first, sizeof t->first, "%s", text);
}

static sfp_status add_path(void *ctx, sfp__walk_kind kind, const char *path, int depth, sfp_error *err)
{
    scan *s = ctx;
    sfp__file_source *source = s->source;
    if (kind == SFP__WALK_DIRECTORY) {
        const sfp__entries *l = &source->entries; /* the contents of a directory are listed directly before it */
        bool has_last = l->count > 0 && strncmp(sfp__entries_path(l, l->count - 1), path, strlen(path)) == 0;
        if (depth < 2 && !has_last)
            count_one(&s->empty[depth], path);
        return SFP_OK;
    }
    bool image = sfp__image_name(path), other = kind != SFP__WALK_FILE;
    if (other || !image || depth == 0) {
        bool class = kind == SFP__WALK_BROKEN && depth < 2; /* the link may have led to a class or a domain */
        if (!other || image || class)
            count_one(other ? &s->odd : image ? &s->loose : &s->foreign, path);
        return SFP_OK;
    }
    s->flat += depth == 1;
    sfp_status status = sfp__entries_add(&source->entries, (sfp__entry){.record = sfp__record_none()}, path, strlen(path), err);
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s", source->base.path);
}

/* ------------------------------------------------------------------ the layout */

/* Returns the length of the part up to the next '/'; *rest is the remaining text. */
static size_t first_part(const char *path, const char **rest)
{
    size_t n = strcspn(path, "/");
    *rest = path[n] ? path + n + 1 : path + n;
    return n;
}

static bool is_flat(const char *path)
{
    const char *rest;
    (void)first_part(path, &rest);
    return !strchr(rest, '/');
}

static bool same_part(const char *a, size_t n, const char *b, size_t m)
{
    return n == m && memcmp(a, b, n) == 0;
}

/* Returns the common name (*n bytes) of all directories of the second level that have images, if there are several; NULL: none.
 */
static const char *common_inner_name(const sfp__entries *l, size_t *n)
{
    const char *first = NULL, *inner = NULL;
    size_t first_n = 0, inner_n = 0;
    bool several = false;
    for (int64_t i = 0; i < l->count; i++) {
        const char *path = sfp__entries_path(l, i), *second, *rest;
        if (is_flat(path))
            continue;
        size_t path_n = first_part(path, &second), second_n = first_part(second, &rest);
        if (!first) {
            first = path;
            first_n = path_n;
            inner = second;
            inner_n = second_n;
        }
        if (!same_part(second, second_n, inner, inner_n))
            return NULL;
        several = several || !same_part(path, path_n, first, first_n);
    }
    *n = inner_n;
    return several ? inner : NULL;
}

/* Excludes images beside the class directories of a domain. */
static void exclude_flat(scan *found)
{
    sfp__entries *l = &found->source->entries;
    int64_t kept = 0;
    for (int64_t i = 0; i < l->count; i++) {
        if (is_flat(sfp__entries_path(l, i)))
            count_one(&found->loose, sfp__entries_path(l, i));
        else
            l->at[kept++] = l->at[i];
    }
    l->count = kept;
}

static sfp_status choose_layout(scan *found, bool *domain_layout, sfp_error *err)
{
    sfp__file_source *s = found->source;
    size_t n = 0;
    *domain_layout = s->entries.count - found->flat > found->flat;
    const char *inner = *domain_layout ? common_inner_name(&s->entries, &n) : NULL;
    if (inner) {
        char name[SFP__NAME_MAX], text[SFP__NAME_MAX];
        (void)snprintf(name, sizeof name, "%.*s", (int)n, inner);
        *domain_layout = false;
        return sfp__source_warn(&s->base, err, "every directory has its images in '%s': the directories above are the classes",
                                sfp__printable(name, text, sizeof text));
    }
    if (*domain_layout)
        exclude_flat(found);
    return SFP_OK;
}

static sfp_status name_entries(sfp__file_source *s, bool domain_layout, sfp__names *classes, sfp__names *domains, sfp_error *err)
{
    for (int64_t i = 0; i < s->entries.count; i++) {
        const char *path = sfp__entries_path(&s->entries, i), *rest;
        sfp_record *r = &s->entries.at[i].record;
        size_t n = first_part(path, &rest);
        sfp_status status = domain_layout ? sfp__names_add(domains, path, n, &r->domain, err) : SFP_OK;
        if (domain_layout) {
            path = rest;
            n = first_part(path, &rest);
        }
        if (status == SFP_OK)
            status = sfp__names_add(classes, path, n, &r->label, err);
        if (status != SFP_OK)
            return sfp__fail_prefix(err, status, "%s", s->base.path);
    }
    return SFP_OK;
}

/* Compares by domain, class and file. */
static int compare_entries(const void *a, const void *b, void *text)
{
    const sfp__entry *x = a, *y = b;
    if (x->record.domain != y->record.domain)
        return x->record.domain < y->record.domain ? -1 : 1;
    if (x->record.label != y->record.label)
        return x->record.label < y->record.label ? -1 : 1;
    return sfp__natural_compare((const char *)text + x->text, (const char *)text + y->text);
}

/* ------------------------------------------------------------------- warnings */

static sfp_status warn_excluded(sfp__file_source *s, const tally *t, const char *what, sfp_error *err)
{
    return t->count
               ? sfp__source_warn(&s->base, err, "excluded: %llu %s (first: %s)", (unsigned long long)t->count, what, t->first)
               : SFP_OK;
}

/* Warns about domains that have the names of parts of a dataset, which are probably not meant as domains. */
static sfp_status warn_parts(sfp__file_source *s, const sfp__names *domains, sfp_error *err)
{
    static const char *const parts[] = {"train", "test", "val", "valid", "validation"};
    const char *found[2];
    int n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int d = 0; d < domains->count && n < 2; d++)
            if (strcasecmp(domains->name[d], parts[i]) == 0)
                found[n++] = domains->name[d];
    if (n < 2)
        return SFP_OK;
    int root = (int)strnlen(s->base.path, 300);
    while (root > 1 && s->base.path[root - 1] == '/')
        root--;
    return sfp__source_warn(&s->base, err,
                            "'%s' and '%s' are treated as domains; for parts of one dataset use "
                            "--data folder:%.*s/%s --test folder:%.*s/%s",
                            found[0], found[1], root, s->base.path, found[0], root, s->base.path, found[1]);
}

static sfp_status add_warnings(scan *found, const sfp__names *domains, sfp_error *err)
{
    sfp__file_source *s = found->source;
    tally empty = found->empty[0];
    if (domains->count && found->empty[1].count) {
        count_one(&empty, found->empty[1].first);
        empty.count += found->empty[1].count - 1;
    }
    s->base.skipped = found->loose.count + found->foreign.count + found->odd.count;
    TRY(warn_excluded(s, &found->loose, "images outside a class directory", err));
    TRY(warn_excluded(s, &found->foreign, "files that are not JPEG, PNG or WebP", err));
    TRY(warn_excluded(s, &found->odd, "entries that are not regular files, or broken links", err));
    TRY(warn_excluded(s, &empty, "directories without images", err));
    return warn_parts(s, domains, err);
}

static sfp_status open_folder(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    OWNED_PTR(sfp__file_source_free) sfp__file_source *s = NULL;
    OWNED_BY(sfp__names_done) sfp__names classes = {0}, domains = {0};
    bool domain_layout = false;
    TRY(sfp__file_source_create(sizeof *s, &sfp__source_folder, &sfp__file_source_ops, path, path, &s, err));
    scan found = {.source = s};
    TRY(sfp__walk(path, add_path, &found, err));
    if (s->entries.count == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: %s, expected CLASS/*.jpg or DOMAIN/CLASS/*.jpg", path,
                         found.loose.count ? "directory has images but no class directories" : "directory has no images");
    TRY(choose_layout(&found, &domain_layout, err));
    TRY(name_entries(s, domain_layout, &classes, &domains, err));
    TRY(sfp__entries_sort_names(&s->entries, &classes, &domains, err));
    qsort_r(s->entries.at, (size_t)s->entries.count, sizeof *s->entries.at, compare_entries, s->entries.text.s);
    TRY(add_warnings(&found, &domains, err));
    *out = sfp__file_source_finish(TAKE(s), &classes, &domains);
    return SFP_OK;
}

const sfp__source_kind sfp__source_folder = {
    .name = "folder",
    .summary = "images in CLASS/ or DOMAIN/CLASS/ directories",
    .walks = true,
    .open = open_folder,
};
