/* A folder a class: PATH/class/.../file, or PATH/domain/class/.../file.
 *
 * One pass over the tree lists every picture; which of the two layouts it is
 * follows from the list: with a picture right inside a folder of the first
 * level, these folders are classes, otherwise they hold only folders and are
 * domains. Files are not looked at (d_type says what they are), so that a
 * large set opens as fast as its folders can be read. */
#include "base/mem.h"
#include "io/image.h"
#include "stream/source_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32
#define FOLDERS_MAX 1000000 /* links between folders can make endless ways without a circle */

typedef struct folder_id {
    dev_t device;
    ino_t inode;
} folder_id;

typedef struct scan {
    sfp_file_source *source;
    sfp_text path; /* of the folder being read, relative to the root, "" or ending in '/' */
    folder_id above[DEPTH_MAX];
    int folders;
    uint64_t loose;   /* pictures beside the class folders */
    uint64_t foreign; /* files that are no pictures */
    bool classes;     /* a picture right inside a folder of the first level was seen */
} scan;

static sfp_status scan_folder(scan *s, int fd, int depth, sfp_error *err);

static sfp_status fail_at(const scan *s, sfp_status status, const char *what, sfp_error *err)
{
    char text[SFP_NAME_MAX * 2];
    return sfp__fail_errno(err, status, "%s: %s: %s", s->source->base.path,
                           s->path.s ? sfp__printable(s->path.s, text, sizeof text) : "", what);
}

/* 'd' a folder, 'f' a file, 0 anything else (a broken link too). */
static char entry_type(int fd, const struct dirent *e)
{
    if (e->d_type == DT_DIR)
        return 'd';
    if (e->d_type == DT_REG)
        return 'f';
    if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN)
        return 0;
    struct stat st;
    if (fstatat(fd, e->d_name, &st, 0) != 0)
        return 0;
    return S_ISDIR(st.st_mode) ? 'd' : S_ISREG(st.st_mode) ? 'f' : 0;
}

static sfp_status take_file(scan *s, const char *name, int depth, sfp_error *err)
{
    if (!sfp__image_name(name)) {
        s->foreign++;
        return SFP_OK;
    }
    if (depth == 0) {
        s->loose++;
        return SFP_OK;
    }
    if (depth == 1)
        s->classes = true;
    size_t length = s->path.length;
    sfp__text_put(&s->path, name);
    if (s->path.failed)
        return sfp__fail_nomem(err, length + strlen(name));
    sfp_status status =
        sfp__entries_add(&s->source->entries, (sfp_entry){.record = sfp__record_none()}, s->path.s, s->path.length, err);
    s->path.length = length;
    s->path.s[length] = '\0';
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s", s->source->base.path);
}

static sfp_status take_folder(scan *s, int fd, const char *name, int depth, sfp_error *err)
{
    size_t length = s->path.length;
    sfp__text_put(&s->path, name);
    sfp__text_put(&s->path, "/");
    if (s->path.failed)
        return sfp__fail_nomem(err, length + strlen(name));
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sfp_status status = below < 0 ? fail_at(s, SFP_EIO, "cannot open the folder", err) : scan_folder(s, below, depth + 1, err);
    s->path.length = length;
    s->path.s[length] = '\0';
    return status;
}

/* Takes fd over. */
static sfp_status scan_folder(scan *s, int fd, int depth, sfp_error *err)
{
    struct stat st;
    sfp_status status = SFP_OK;
    DIR *dir = NULL;
    if (depth >= DEPTH_MAX) {
        errno = ELOOP;
        status = fail_at(s, SFP_ELIMIT, "folders are nested too deep", err);
        goto done;
    }
    if (++s->folders > FOLDERS_MAX) {
        status =
            sfp__fail(err, SFP_ELIMIT, "%s: more than %d folders, counting each way to one", s->source->base.path, FOLDERS_MAX);
        goto done;
    }
    if (fstat(fd, &st) != 0 || !(dir = fdopendir(fd))) {
        status = fail_at(s, SFP_EIO, "cannot open the folder", err);
        goto done;
    }
    for (int i = 0; i < depth; i++) {
        if (s->above[i].device == st.st_dev && s->above[i].inode == st.st_ino)
            goto done; /* a link to a folder above: its pictures are listed already */
    }
    s->above[depth] = (folder_id){st.st_dev, st.st_ino};
    while (status == SFP_OK) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno != 0)
            status = fail_at(s, SFP_EIO, "cannot read the folder", err);
        if (!e)
            break;
        if (e->d_name[0] == '.')
            continue;
        char type = entry_type(fd, e);
        if (type == 'd')
            status = take_folder(s, fd, e->d_name, depth, err);
        else if (type == 'f')
            status = take_file(s, e->d_name, depth, err);
    }
done:
    if (dir)
        (void)closedir(dir);
    else
        (void)close(fd);
    return status;
}

/* The part of a path up to the next '/', and what follows it. */
static size_t first_part(const char *path, const char **rest)
{
    size_t n = strcspn(path, "/");
    *rest = path[n] ? path + n + 1 : path + n;
    return n;
}

static sfp_status name_entries(sfp_file_source *s, bool domain_layout, sfp_names *classes, sfp_names *domains, sfp_error *err)
{
    for (int64_t i = 0; i < s->entries.count; i++) {
        const char *path = sfp__entries_path(&s->entries, i), *rest;
        sfp_record *r = &s->entries.at[i].record;
        size_t n = first_part(path, &rest);
        sfp_status status = SFP_OK;
        if (domain_layout) {
            status = sfp__names_add(domains, path, n, &r->domain, err);
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

/* By domain, class, file. */
static int compare_entries(const void *a, const void *b, void *text)
{
    const sfp_entry *x = a, *y = b;
    if (x->record.domain != y->record.domain)
        return x->record.domain < y->record.domain ? -1 : 1;
    if (x->record.label != y->record.label)
        return x->record.label < y->record.label ? -1 : 1;
    return sfp__natural_compare((const char *)text + x->text, (const char *)text + y->text);
}

static sfp_status sort_entries(sfp_file_source *s, sfp_names *classes, sfp_names *domains, sfp_error *err)
{
    int32_t *label = NULL, *domain = NULL;
    sfp_status status = sfp__names_sort(classes, &label, err);
    if (status == SFP_OK)
        status = sfp__names_sort(domains, &domain, err);
    if (status == SFP_OK) {
        sfp__entries_relabel(&s->entries, label);
        sfp__entries_redomain(&s->entries, domain);
        qsort_r(s->entries.at, (size_t)s->entries.count, sizeof *s->entries.at, compare_entries, s->entries.text.s);
    }
    sfp__free(label);
    sfp__free(domain);
    return status;
}

static sfp_status make_note(sfp_file_source *s, const scan *found, sfp_error *err)
{
    s->base.skipped = found->loose + found->foreign;
    if (found->loose && found->foreign)
        return sfp__source_note(&s->base, err,
                                "left out: %llu pictures outside a class folder, %llu files that are not JPEG, PNG or WebP",
                                (unsigned long long)found->loose, (unsigned long long)found->foreign);
    if (found->loose)
        return sfp__source_note(&s->base, err, "left out: %llu pictures outside a class folder",
                                (unsigned long long)found->loose);
    if (found->foreign)
        return sfp__source_note(&s->base, err, "left out: %llu files that are not JPEG, PNG or WebP",
                                (unsigned long long)found->foreign);
    return SFP_OK;
}

static sfp_status open_folder(const char *path, const sfp_source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    sfp_file_source *s = NULL;
    scan found = {0};
    sfp_names classes = {0}, domains = {0};
    sfp_status status = sfp__file_source_create(sizeof *s, &sfp__source_folder, path, path, &s, err);
    if (status != SFP_OK)
        return status;
    found.source = s;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        status = sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the folder", path);
    else
        status = scan_folder(&found, fd, 0, err);
    if (status == SFP_OK && s->entries.count == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: %s, expected CLASS/*.jpg or DOMAIN/CLASS/*.jpg", path,
                           found.loose ? "has pictures but no class folders" : "has no pictures");
    if (status == SFP_OK)
        status = name_entries(s, !found.classes, &classes, &domains, err);
    if (status == SFP_OK)
        status = sort_entries(s, &classes, &domains, err);
    if (status == SFP_OK)
        status = make_note(s, &found, err);
    sfp__text_done(&found.path);
    if (status == SFP_OK) {
        sfp__file_source_finish(s, &classes, &domains);
        *out = &s->base;
    } else {
        sfp__file_source_close(&s->base);
    }
    sfp__names_done(&classes);
    sfp__names_done(&domains);
    return status;
}

const sfp_source_kind sfp__source_folder = {
    .name = "folder",
    .summary = "pictures in CLASS/ or DOMAIN/CLASS/ folders",
    .open = open_folder,
};
