#include "cli/filelist.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/image/image.h"
#include "io/lines.h"
#include "io/folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

const char *sfp__filelist_path(const sfp_filelist *l, size_t i)
{
    return l->text + l->entries[i];
}

const char *sfp__filelist_label(const sfp_filelist *l, size_t i)
{
    const char *path = sfp__filelist_path(l, i);
    return path + strlen(path) + 1;
}

void sfp__filelist_done(sfp_filelist *l)
{
    sfp__free(l->text);
    sfp__free(l->entries);
    memset(l, 0, sizeof *l);
}

sfp_status sfp__filelist_add(sfp_filelist *l, const char *path, const char *label, sfp_error *err)
{
    size_t p = strlen(path) + 1, q = strlen(label) + 1;
    if (l->count >= SFP_LIST_MAX_FILES)
        return sfp__fail(err, SFP_ELIMIT, "more than %d files", SFP_LIST_MAX_FILES);
    if (l->room - l->used < p + q) {
        size_t room = 2 * l->room + p + q + 4096;
        char *text = sfp__realloc(l->text, l->used, room);
        if (!text)
            return sfp__fail_nomem(err);
        l->text = text;
        l->room = room;
    }
    if (l->count == l->entry_room) {
        size_t room = 2 * l->entry_room + 256;
        size_t *entries = sfp__realloc(l->entries, l->count * sizeof *entries, room * sizeof *entries);
        if (!entries)
            return sfp__fail_nomem(err);
        l->entries = entries;
        l->entry_room = room;
    }
    l->entries[l->count++] = l->used;
    memcpy(l->text + l->used, path, p);
    memcpy(l->text + l->used + p, label, q);
    l->used += p + q;
    return SFP_OK;
}

/* ----------------------------------------------------------------- folders */

/* What a walk through one folder adds. */
typedef struct found {
    sfp_filelist *list;
    const char *folder;
} found;

/* What is no file is added too, to be told of like any other picture that cannot be read. */
static sfp_status take(void *ctx, sfp_walk_kind kind, const char *below, int depth, sfp_error *err)
{
    const found *f = ctx;
    char path[PATH_MAX];
    size_t length = strlen(f->folder);
    (void)depth;
    if (kind == SFP_WALK_FOLDER || !sfp__image_name(below))
        return SFP_OK;
    const char *slash = length > 0 && f->folder[length - 1] == '/' ? "" : "/";
    int need = snprintf(path, sizeof path, "%s%s%s", f->folder, slash, below);
    if (need < 0 || (size_t)need >= sizeof path)
        return sfp__fail(err, SFP_ELIMIT, "%s/%s: the path is too long", f->folder, below);
    return sfp__filelist_add(f->list, path, "", err);
}

/* By the bytes of their names, folder by folder: '/' comes before all others. */
static int by_path(const void *x, const void *y, void *text)
{
    const unsigned char *a = (unsigned char *)text + *(const size_t *)x, *b = (unsigned char *)text + *(const size_t *)y;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int p = *a == '/' ? 1 : *a, q = *b == '/' ? 1 : *b;
    return p - q;
}

static sfp_status add_folder(sfp_filelist *l, const char *folder, sfp_error *err)
{
    size_t before = l->count;
    sfp_status s = sfp__walk(folder, take, &(found){l, folder}, err);
    if (s == SFP_OK && l->count > before)
        qsort_r(l->entries + before, l->count - before, sizeof *l->entries, by_path, l->text);
    return s;
}

static bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcasecmp(path + n - m, suffix) == 0;
}

sfp_status sfp__filelist_add_path(sfp_filelist *l, const char *path, sfp_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return sfp__filelist_add(l, path, "", err);
    if (S_ISDIR(st.st_mode)) {
        size_t before = l->count;
        sfp_status s = add_folder(l, path, err);
        if (s == SFP_OK && l->count == before)
            return sfp__fail(err, SFP_ENOTFOUND, "%s: no pictures in this folder, expected .jpg, .jpeg, .png or .webp", path);
        return s;
    }
    if (has_suffix(path, ".csv") || has_suffix(path, ".txt"))
        return sfp__filelist_add_csv(l, path, err);
    return sfp__filelist_add(l, path, "", err);
}

/* --------------------------------------------------------------------- csv */

/* Reads a line without its end into buf; false at the end of the file. Too long a line, or a NUL in it, sets *bad. */
static bool read_line(FILE *f, char *buf, size_t size, const char **bad)
{
    size_t n = 0;
    int c;
    *bad = NULL;
    while ((c = getc(f)) != EOF && c != '\n') {
        if (c == '\0')
            *bad = "a zero byte";
        if (n + 1 >= size)
            *bad = "a line that is too long";
        else
            buf[n++] = (char)c;
    }
    if (c == EOF && n == 0)
        return false;
    while (n > 0 && (buf[n - 1] == '\r' || buf[n - 1] == ' '))
        n--;
    buf[n] = '\0';
    return true;
}

/* Cuts the field at *at off in place: quotes gone, doubled ones single. *at moves behind the comma, to NULL after the last field.
 * False when a quote is not closed. */
static bool take_field(char **at, char **field)
{
    char *in = *at, *out = in;
    *field = in;
    if (*in == '"') {
        size_t n = 0;
        const char *stop = sfp__csv_quoted(in + 1, in + strlen(in), in + 1, &n);
        if (!stop || (*stop != ',' && *stop != '\0'))
            return false;
        *field = in + 1;
        out = in + 1 + n;
        in += stop - in;
    } else {
        while (*in && *in != ',')
            in++;
        out = in;
    }
    bool more = *in == ',';
    *out = '\0';
    *at = more ? in + 1 : NULL;
    return true;
}

static bool is_header(const char *file, const char *label)
{
    static const char *const files[] = {"file", "path", "filename", "image"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcasecmp(file, files[i]) == 0)
            return label[0] == '\0' || strcasecmp(label, "label") == 0 || strcasecmp(label, "class") == 0;
    return false;
}

static sfp_status add_line(sfp_filelist *l, const char *list, size_t number, char *line, sfp_error *err)
{
    char *at = line, *file, *label = "";
    if (!take_field(&at, &file) || (at && !take_field(&at, &label)))
        return sfp__fail(err, SFP_EFORMAT, "%s:%zu: a quote is not closed", list, number);
    if (number == 1 && is_header(file, label))
        return SFP_OK;
    if (file[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s:%zu: no file name before the comma", list, number);
    const char *slash = strrchr(list, '/');
    if (file[0] == '/' || !slash)
        return sfp__filelist_add(l, file, label, err);
    char path[PATH_MAX];
    int need = snprintf(path, sizeof path, "%.*s%s", (int)(slash - list + 1), list, file);
    if (need < 0 || (size_t)need >= sizeof path)
        return sfp__fail(err, SFP_ELIMIT, "%s:%zu: the path is too long", list, number);
    return sfp__filelist_add(l, path, label, err);
}

sfp_status sfp__filelist_add_csv(sfp_filelist *l, const char *path, sfp_error *err)
{
    FILE *f = NULL;
    char *line = NULL;
    sfp_status s = sfp__file_open(path, &f, err);
    if (s != SFP_OK)
        return s;
    line = sfp__malloc(SFP_LIST_MAX_LINE);
    if (!line) {
        s = sfp__fail_nomem(err);
        goto done;
    }
    const char *bad;
    size_t before = l->count;
    for (size_t number = 1; s == SFP_OK && read_line(f, line, SFP_LIST_MAX_LINE, &bad); number++) {
        if (bad)
            s = sfp__fail(err, SFP_EFORMAT, "%s:%zu: found %s, expected 'file,label'", path, number, bad);
        else if (number == 1 && sfp__text_mark(line, strlen(line)))
            memmove(line, line + 3, strlen(line + 3) + 1);
        if (!bad && line[0] != '\0' && line[0] != '#')
            s = add_line(l, path, number, line, err);
    }
    if (s == SFP_OK && ferror(f))
        s = sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    if (s == SFP_OK && l->count == before)
        s = sfp__fail(err, SFP_EFORMAT, "%s: the list is empty, expected lines 'file,label'", path);
done:
    sfp__free(line);
    (void)fclose(f);
    return s;
}

/* ------------------------------------------------------------------- names */

sfp_status sfp__class_names_read(const char *path, char ***names, size_t *count, sfp_error *err)
{
    char **list = NULL, *line = NULL;
    size_t n = 0, room = 0;
    FILE *f = NULL;
    sfp_status s = sfp__file_open(path, &f, err);
    if (s != SFP_OK)
        return s;
    line = sfp__malloc(SFP_LIST_MAX_LINE);
    if (!line)
        s = sfp__fail_nomem(err);
    const char *bad;
    while (s == SFP_OK && read_line(f, line, SFP_LIST_MAX_LINE, &bad)) {
        if (bad || n >= SFP_LIST_MAX_NAMES) {
            s = sfp__fail(err, SFP_EFORMAT, "%s:%zu: found %s, expected one class name a line", path, n + 1,
                          bad ? bad : "too many lines");
            break;
        }
        if (n == room) {
            char **bigger = sfp__realloc(list, n * sizeof *list, (2 * room + 64) * sizeof *list);
            if (!bigger) {
                s = sfp__fail_nomem(err);
                break;
            }
            list = bigger;
            room = 2 * room + 64;
        }
        list[n] = sfp__strdup(line + (n == 0 ? sfp__text_mark(line, strlen(line)) : 0));
        if (!list[n])
            s = sfp__fail_nomem(err);
        else
            n++;
    }
    if (s == SFP_OK && ferror(f))
        s = sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    sfp__free(line);
    (void)fclose(f);
    if (s != SFP_OK) {
        sfp__names_free(list, n);
        return s;
    }
    *names = list;
    *count = n;
    return SFP_OK;
}

void sfp__names_free(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        sfp__free(names[i]);
    sfp__free(names);
}
