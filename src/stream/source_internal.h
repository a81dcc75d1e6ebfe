/* What the files of sources share; besides them only tests include it.
 *
 * Everything here treats its input as hostile: names, lines, counts and sizes
 * have limits, and a message never repeats raw bytes of a file. */
#ifndef SFP_STREAM_SOURCE_INTERNAL_H
#define SFP_STREAM_SOURCE_INTERNAL_H

#include "base/text.h"
#include "stream/names.h"
#include "stream/source.h"

#include <math.h>

#define SFP_RECORDS_MAX INT64_C(100000000)        /* pictures of one data set */
#define SFP_PICTURE_BYTES_MAX ((size_t)256 << 20) /* of one picture file */
#define SFP_PATH_BYTES_MAX 4096                   /* of a path that a file gives */
#define SFP_LIST_BYTES_MAX ((size_t)4 << 30)      /* of a manifest, a JSON list, a pickle */

extern const sfp_source_kind sfp__source_folder, sfp__source_manifest, sfp__source_idx, sfp__source_cifar, sfp__source_tar,
    sfp__source_stdin, sfp__source_synthetic, sfp__source_dir, sfp__source_stream51, sfp__source_core50, sfp__source_clear10,
    sfp__source_clear100;

/* ------------------------------------------------------------------- order */

/* Runs of digits compare as numbers, all else as bytes: "a2" < "a10"; equal only when the same bytes. For file names. */
int sfp__natural_compare(const char *a, const char *b);
/* Shuffles by Fisher and Yates, drawn from (seed, stream); n up to SFP_RECORDS_MAX. */
void sfp__shuffle(int64_t *a, int64_t n, uint64_t seed, uint64_t stream);

/* ----------------------------------------------------------------- entries */

/* One picture of a data set that lists files. */
typedef struct sfp_entry {
    sfp_record record;
    uint64_t text;  /* where its path begins in `text` of the list */
    uint64_t place; /* what else its kind needs: a line, an offset */
    uint64_t size;
} sfp_entry;

/* A growing list; zero-initialised is empty. */
typedef struct sfp_entries {
    sfp_entry *at; /* (count) */
    int64_t count;
    size_t room;
    sfp_text text; /* paths, each with its NUL */
} sfp_entries;

/* No label, domain, task or time. */
static inline sfp_record sfp__record_none(void)
{
    return (sfp_record){.label = -1, .domain = -1, .task = -1, .time = NAN};
}

/* Copies the path of n bytes (NULL: none, then entry.text is taken as it is) and appends the entry. */
sfp_status sfp__entries_add(sfp_entries *l, sfp_entry entry, const char *path, size_t n, sfp_error *err);
static inline const char *sfp__entries_path(const sfp_entries *l, int64_t i)
{
    return l->text.s + l->at[i].text;
}
/* label (or domain) = new_of[label] where it is not -1; new_of NULL: nothing. */
void sfp__entries_relabel(sfp_entries *l, const int32_t *new_of);
void sfp__entries_redomain(sfp_entries *l, const int32_t *new_of);
void sfp__entries_done(sfp_entries *l);

/* ----------------------------------------------------------------- sources */

/* Fills kind and path, and leaves the rest empty; s is cleared first. */
sfp_status sfp__source_init(sfp_source *s, const sfp_source_kind *kind, const char *path, sfp_error *err);
/* Frees what the common part owns, not s. */
void sfp__source_done(sfp_source *s);
/* One thing more in s->note. */
sfp_status sfp__source_note(sfp_source *s, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A source whose pictures are files below a folder: what folder, manifest, stream51, core50 and clear have in common. A kind
 * that needs more begins its struct with this one. */
typedef struct sfp_file_source {
    sfp_source base;
    char *root; /* paths of entries that do not begin with '/' are below it; owned */
    sfp_entries entries;
} sfp_file_source;

/* base as sfp__source_init with record, load, name, where, close and root set; `size` is of the kind's whole struct. *out is to
 * be freed by sfp__file_source_close also when a later step of opening fails. */
sfp_status sfp__file_source_create(size_t size, const sfp_source_kind *kind, const char *path, const char *root,
                                   sfp_file_source **out, sfp_error *err);
/* The last step of opening: sorts nothing, takes the names, sets count. */
void sfp__file_source_finish(sfp_file_source *s, sfp_names *classes, sfp_names *domains);
void sfp__file_source_close(sfp_source *s);
sfp_status sfp__file_source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
sfp_status sfp__file_source_load(const sfp_source *s, int64_t i, sfp_picture *out, sfp_error *err);
const char *sfp__file_source_name(const sfp_source *s, int64_t i, char *buf, size_t size);
const char *sfp__file_source_where(const sfp_source *s, int64_t i, char *buf, size_t size);
/* The path of entry i to open; sfp__malloc'ed, NULL: no memory. */
char *sfp__file_source_path(const sfp_file_source *s, int64_t i);

/* ------------------------------------------------------------------- files */

/* "DIR/NAME"; NAME alone when it begins with '/'. sfp__malloc'ed, NULL: no memory. */
char *sfp__path_join(const char *dir, const char *name);
/* The folder part of a path ("." when it has none); sfp__malloc'ed, NULL: no memory. */
char *sfp__path_dir(const char *path);
bool sfp__path_is_dir(const char *path);
/* A picture file's bytes, at most SFP_PICTURE_BYTES_MAX; the message names the file. */
sfp_status sfp__picture_read(const char *path, sfp_picture *out, sfp_error *err);
/* SFP_OK when i is a picture of s; else a message */
sfp_status sfp__source_check_index(const sfp_source *s, int64_t i, sfp_error *err);
/* SFP_EFORMAT: picture i `what`. */
sfp_status sfp__picture_blame(const sfp_source *s, int64_t i, const char *what, sfp_error *err);
/* Zeroed room for `count` things of `size` bytes, at least one; NULL: no memory, and *status says so. */
void *sfp__room_for(size_t count, size_t size, sfp_status *status, sfp_error *err);

/* ------------------------------------------------- for tests and fuzz targets */

/* A manifest in memory; `path` is for messages, and its folder is where pictures are looked for. */
sfp_status sfp__manifest_open_memory(const char *path, const void *bytes, size_t size, sfp_source **out, sfp_error *err);
/* What follows the header of an IDX file (plain or gzipped), sfp__malloc'ed; dims (ndim) are the sizes in the header. */
sfp_status sfp__idx_read(const char *path, int ndim, int64_t *dims, uint8_t **bytes, sfp_error *err);
/* A tar read from an open file as it comes; the file stays open when it is closed. classes: file of class names or "". */
sfp_status sfp__tar_stream_open(int fd, const char *classes, sfp_source **out, sfp_error *err);

#endif
