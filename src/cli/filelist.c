#include "cli/filelist.h"

#include "base/mem.h"
#include "io/directory.h"
#include "io/image/image.h"
#include "io/lines.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

const char *sfp__filelist_path(const sfp__filelist *l, size_t i)
{
    return l->text + l->entries[i];
}

const char *sfp__filelist_label(const sfp__filelist *l, size_t i)
{
    const char *path = sfp__filelist_path(l, i);
    return path + strlen(path) + 1;
}

uint64_t sfp__filelist_line(const sfp__filelist *l, size_t i)
{
    return l->lines[i];
}

void sfp__filelist_done(sfp__filelist *l)
{
    sfp__free(l->lines);
    sfp__free(l->text);
    sfp__free(l->entries);
    memset(l, 0, sizeof *l);
}

sfp_status sfp__filelist_add(sfp__filelist *l, const char *path, const char *label, sfp_error *err)
{
    size_t p = strlen(path) + 1, q = strlen(label) + 1;
    if (l->count >= SFP__LIST_MAX_FILES)
        return sfp__fail(err, SFP_ELIMIT, "number of files exceeds %d", SFP__LIST_MAX_FILES);
    TRY(sfp__check_memory(sfp__grow(&l->text, 1, l->used, l->used + p + q, &l->text_capacity) &&
                              sfp__grow(&l->entries, sizeof *l->entries, l->count, l->count + 1, &l->entry_capacity) &&
                              sfp__grow(&l->lines, sizeof *l->lines, l->count, l->count + 1, &l->line_capacity),
                          err));
    l->lines[l->count] = 0;
    l->entries[l->count++] = l->used;
    memcpy(l->text + l->used, path, p);
    memcpy(l->text + l->used + p, label, q);
    l->used += p + q;
    return SFP_OK;
}

/* -------------------------------------------------------------- directories */

typedef struct directory_walk {
    sfp__filelist *list;
    const char *directory;
} directory_walk;

/* Adds a file that has the name of an image, even if it is not a regular file, so that it is reported when it is read. */
static sfp_status add_found(void *ctx, sfp__walk_kind kind, const char *below, int depth, sfp_error *err)
{
    const directory_walk *f = ctx;
    char path[PATH_MAX];
    size_t length = strlen(f->directory);
    (void)depth;
    if (kind == SFP__WALK_DIRECTORY || !sfp__image_name(below))
        return SFP_OK;
    const char *slash = length > 0 && f->directory[length - 1] == '/' ? "" : "/";
    int need = snprintf(path, sizeof path, "%s%s%s", f->directory, slash, below);
    if (need < 0 || (size_t)need >= sizeof path)
        return sfp__fail(err, SFP_ELIMIT, "%s/%s: the path is too long", f->directory, below);
    return sfp__filelist_add(f->list, path, "", err);
}

/* Compares bytes; '/' is less than all other bytes, so that the files of a directory stay together. */
static int compare_paths(const void *x, const void *y, void *text)
{
    const unsigned char *a = (unsigned char *)text + *(const size_t *)x, *b = (unsigned char *)text + *(const size_t *)y;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int p = *a == '/' ? 1 : *a, q = *b == '/' ? 1 : *b;
    return p - q;
}

static sfp_status add_directory(sfp__filelist *l, const char *directory, sfp_error *err)
{
    size_t before = l->count;
    TRY(sfp__walk(directory, add_found, &(directory_walk){l, directory}, err));
    if (l->count == before)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: directory contains no images, expected .jpg, .jpeg, .png or .webp", directory);
    qsort_r(l->entries + before, l->count - before, sizeof *l->entries, compare_paths, l->text);
    return SFP_OK;
}

static bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcasecmp(path + n - m, suffix) == 0;
}

sfp_status sfp__filelist_add_path(sfp__filelist *l, const char *path, sfp_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return sfp__filelist_add(l, path, "", err);
    if (S_ISDIR(st.st_mode))
        return add_directory(l, path, err);
    if (has_suffix(path, ".csv") || has_suffix(path, ".txt"))
        return sfp__filelist_add_csv(l, path, err);
    return sfp__filelist_add(l, path, "", err);
}

/* --------------------------------------------------------------------- csv */

static bool is_header(const char *file, const char *label)
{
    static const char *const files[] = {"file", "path", "filename", "image"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcasecmp(file, files[i]) == 0)
            return label[0] == '\0' || strcasecmp(label, "label") == 0 || strcasecmp(label, "class") == 0;
    return false;
}

static sfp_status add_line(sfp__filelist *l, const char *list, uint64_t number, char *line, sfp_error *err)
{
    char *at = line, *file, *label = "";
    if (!sfp__csv_field(&at, &file) || (at && !sfp__csv_field(&at, &label)))
        return sfp__fail(err, SFP_EFORMAT, "%s:%" PRIu64 ": a quote is not closed", list, number);
    if (number == 1 && is_header(file, label))
        return SFP_OK;
    if (file[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s:%" PRIu64 ": file name before the comma is missing", list, number);
    const char *slash = strrchr(list, '/');
    if (file[0] == '/' || !slash)
        return sfp__filelist_add(l, file, label, err);
    char path[PATH_MAX];
    int need = snprintf(path, sizeof path, "%.*s%s", (int)(slash - list + 1), list, file);
    if (need < 0 || (size_t)need >= sizeof path)
        return sfp__fail(err, SFP_ELIMIT, "%s:%" PRIu64 ": the path is too long", list, number);
    return sfp__filelist_add(l, path, label, err);
}

sfp_status sfp__filelist_add_csv(sfp__filelist *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__lines_done) sfp__lines lines = {0};
    size_t before = l->count;
    TRY(sfp__lines_open(path, "'file,label'", &lines, err));
    for (char *line;;) {
        TRY(sfp__lines_next(&lines, &line, err));
        if (!line)
            break;
        size_t count = l->count;
        if (line[0] != '\0' && line[0] != '#')
            TRY(add_line(l, path, lines.number, line, err));
        if (l->count > count)
            l->lines[count] = lines.number;
    }
    if (l->count == before)
        return sfp__fail(err, SFP_EFORMAT, "%s: the list is empty, expected lines 'file,label'", path);
    return SFP_OK;
}

/* ------------------------------------------------------------------- names */

sfp_status sfp__class_names_read(const char *path, sfp__strings *names, sfp_error *err)
{
    static const char expected[] = "one class name per line";
    OWNED_BY(sfp__lines_done) sfp__lines lines = {0};
    OWNED_BY(sfp__strings_done) sfp__strings list = {0};
    TRY(sfp__lines_open(path, expected, &lines, err));
    for (char *line;;) {
        TRY(sfp__lines_next(&lines, &line, err));
        if (!line)
            break;
        if (lines.number > SFP__LIST_MAX_NAMES)
            return sfp__fail(err, SFP_EFORMAT, "%s: number of class names exceeds %d", path, SFP__LIST_MAX_NAMES);
        TRY(sfp__strings_add(&list, line, err));
    }
    *names = list;
    list = (sfp__strings){0};
    return SFP_OK;
}
