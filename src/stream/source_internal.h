/* Functions that the files of this directory share. Besides them only src/api and tests include this header.
 *
 * Everything here treats its input as hostile: names, lines, counts and sizes have limits, and a message never repeats raw bytes
 * of a file. */
#ifndef SFP_STREAM_SOURCE_INTERNAL_H
#define SFP_STREAM_SOURCE_INTERNAL_H

#include "base/text.h"
#include "io/json_read.h"
#include "io/lines.h"
#include "stream/source.h"

#include <math.h>

#define SFP_RECORDS_MAX INT64_C(100000000)          /* images of one data set */
#define SFP_RAW_IMAGE_BYTES_MAX ((size_t)256 << 20) /* of one image file */
#define SFP_PATH_BYTES_MAX 4096                     /* of a path that a file gives */
#define SFP_LIST_BYTES_MAX ((size_t)4 << 30)        /* of a manifest, a pickle */
#define SFP_JSON_BYTES_MAX ((size_t)1 << 30)        /* of a list in JSON */

extern const sfp__source_kind sfp__source_folder, sfp__source_manifest, sfp__source_idx, sfp__source_cifar, sfp__source_tar,
    sfp__source_stdin, sfp__source_synthetic, sfp__source_dir, sfp__source_stream51, sfp__source_core50, sfp__source_clear10,
    sfp__source_clear100;

/* ------------------------------------------------------------------- order */

/* Runs of digits compare as numbers, all else as bytes: "a2" < "a10"; equal only when the same bytes. For file names. */
int sfp__natural_compare(const char *a, const char *b);
/* Shuffles by Fisher and Yates, drawn from (seed, stream); n up to SFP_RECORDS_MAX. */
void sfp__shuffle(int64_t *a, int64_t n, uint64_t seed, uint64_t stream);
/* class_at (classes, sfp__malloc'ed): the class at each place of the order. order 0: natural, else shuffled by that seed. */
sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err);
/* The task of the class at a place of the order, when the first task has `first` classes and every other `each`. */
static inline int32_t sfp__task_of_place(int64_t place, int first, int each)
{
    return place < first ? 0 : (int32_t)(1 + (place - first) / each);
}

/* ------------------------------------------------------------------- names
 *
 * Of classes, domains and the like to numbers, in the order in which they come or sorted. They come from files and are hostile:
 * their number and length have limits. */

#define SFP_CLASSES_MAX 65536   /* also domains */
#define SFP_CLASS_NAME_MAX 1024 /* bytes of a class or domain name */

/* Names that are whole numbers first, by number; then the others in byte order. For classes and domains. */
int sfp__name_compare(const char *a, const char *b);

/* Names to numbers, by a hash table. Zero-initialised is empty. */
typedef struct sfp__names {
    int count;
    char **name; /* (count) */
    size_t capacity;
    int32_t *slot; /* (slots) number + 1; 0: free */
    size_t slots;  /* a power of two */
} sfp__names;

/* The number of the name of n bytes; a new one gets the next number. Empty, longer than SFP_CLASS_NAME_MAX, not UTF-8, with a
 * NUL byte or more than SFP_CLASSES_MAX of them: an error (without a file's name: use sfp__fail_prefix). */
sfp_status sfp__names_add(sfp__names *t, const char *s, size_t n, int32_t *out, sfp_error *err);
/* Space for all names there may be at once, so that the list stays where it is while another thread reads it. */
sfp_status sfp__names_reserve(sfp__names *t, sfp_error *err);
int32_t sfp__names_find(const sfp__names *t, const char *s, size_t n); /* -1: not there */
/* Renumbers in the order of sfp__name_compare; *new_of (count, sfp__malloc'ed; NULL when there are none): new number of an old
 * one. */
sfp_status sfp__names_sort(sfp__names *t, int32_t **new_of, sfp_error *err);
/* Gives the list away (to class_names, domain_names); t is empty afterwards. */
void sfp__names_give(sfp__names *t, char ***names, int *count);
void sfp__names_done(sfp__names *t);
void sfp__name_list_free(char **name, int count); /* a list that was given away */
/* Lines of a text file (class_names.txt and the like) as names, in their order; blank lines and '\r' are dropped; a name that
 * comes twice is an error. SFP_ENOTFOUND when there is no such file. */
sfp_status sfp__names_read(const char *path, sfp__names *out, sfp_error *err);

/* ----------------------------------------------------------------- entries */

/* One image of a data set that lists files. */
typedef struct sfp__entry {
    sfp_record record;
    uint64_t text;  /* where its path begins in `text` of the list */
    uint64_t place; /* what else its kind needs: a line, an offset */
    uint64_t size;
} sfp__entry;

/* A growing list; zero-initialised is empty. */
typedef struct sfp__entries {
    sfp__entry *at; /* (count) */
    int64_t count;
    size_t capacity;
    sfp__text text; /* paths, each with its NUL */
} sfp__entries;

/* No label, domain, task or time. */
static inline sfp_record sfp__record_none(void)
{
    return (sfp_record){.label = -1, .domain = -1, .task = -1, .time = NAN};
}

/* Copies the path of n bytes (NULL: none, then entry.text is taken as it is) and appends the entry. */
sfp_status sfp__entries_add(sfp__entries *l, sfp__entry entry, const char *path, size_t n, sfp_error *err);
static inline const char *sfp__entries_path(const sfp__entries *l, int64_t i)
{
    return l->text.s + l->at[i].text;
}
/* Sorts the names (sfp__names_sort), and renumbers the labels and domains of the entries. */
sfp_status sfp__entries_sort_names(sfp__entries *l, sfp__names *classes, sfp__names *domains, sfp_error *err);

/* ----------------------------------------------------------------- sources */

/* A source of `size` bytes, all of it but ops, kind and path empty and count -1. Whatever follows, sfp__source_close frees it. */
sfp_status sfp__source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                              sfp_source **out, sfp_error *err);
/* One thing more in s->note. */
sfp_status sfp__source_warn(sfp_source *s, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A source whose images are files below a folder: what folder, manifest, stream51, core50 and clear have in common. A kind
 * that needs more begins its struct with this one. */
typedef struct sfp__file_source {
    sfp_source base;
    char *root; /* paths of entries that do not begin with '/' are below it; owned */
    sfp__entries entries;
} sfp__file_source;

extern const sfp__source_ops sfp__file_source_ops;
/* As sfp__source_create, with its root. */
sfp_status sfp__file_source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                                   const char *root, sfp__file_source **out, sfp_error *err);
/* The last step of opening, which cannot fail: sorts nothing, takes the names (domains may be NULL), sets count. */
sfp_source *sfp__file_source_finish(sfp__file_source *s, sfp__names *classes, sfp__names *domains);
static inline void sfp__file_source_free(sfp__file_source *s)
{
    sfp__source_close(s ? &s->base : NULL);
}
DEFINE_OWNED_PTR(sfp__file_source, sfp__file_source_free)
/* What its ops are made of. */
sfp_status sfp__file_source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
sfp_status sfp__file_source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
const char *sfp__file_source_name(const sfp_source *s, int64_t i, char *buf, size_t size);
const char *sfp__file_source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size);
void sfp__file_source_close(sfp_source *base);

/* ------------------------------------------------------------------- files */

/* "DIR/NAME", NAME alone when it begins with '/': to *out, sfp__malloc'ed. */
sfp_status sfp__path_make(const char *dir, const char *name, char **out, sfp_error *err);
/* PATH itself when it is a folder, else the one it lies in ("." when it names none). */
sfp_status sfp__path_directory(const char *path, char **out, sfp_error *err);
/* The names in a folder but . and .., in natural order. SFP_ENOTFOUND, else SFP_EIO when it cannot be opened. */
sfp_status sfp__directory_names(const char *path, sfp__strings *names, sfp_error *err);
bool sfp__path_is_dir(const char *path);
/* An image file's bytes, at most SFP_RAW_IMAGE_BYTES_MAX; the message names the file. */
sfp_status sfp__raw_image_read(const char *path, sfp__raw_image *out, sfp_error *err);
/* SFP_EFORMAT: image i `what`. */
sfp_status sfp__raw_image_blame(const sfp_source *s, int64_t i, const char *what, sfp_error *err);

/* -------------------------------------------------------------- task split
 *
 * Which task a record belongs to: made from a specification (--tasks) and the training set alone, asked for the test set too. */

typedef enum sfp__task_split_kind {
    SFP_SPLIT_FREE,
    SFP_SPLIT_CLASSES,
    SFP_SPLIT_DOMAIN,
    SFP_SPLIT_TIME,
    SFP_SPLIT_GIVEN
} sfp__task_split_kind;

typedef struct sfp__task_split {
    sfp__task_split_kind kind;
    int tasks;
    int *end;        /* SFP_SPLIT_CLASSES (tasks): first stream label behind the task */
    int32_t *domain; /* SFP_SPLIT_DOMAIN (tasks): of the training set */
    double *value;   /* SFP_SPLIT_TIME, SFP_SPLIT_GIVEN (tasks): ascending */
} sfp__task_split;

/* r: the records of s. spec NULL: the tasks that the data set gives, else free. */
sfp_status sfp__task_split_make(const sfp_source *s, const sfp_record *r, const char *spec, sfp__task_split *c, sfp_error *err);
void sfp__task_split_done(sfp__task_split *c);

/* The task of a record (its domain by number of the training set), -1: none. */
int sfp__task_split_task(const sfp__task_split *c, const sfp_record *r, int32_t stream_label, int32_t domain);
/* What task t is called; s is the training set. sfp__malloc'ed, NULL: no memory. */
char *sfp__task_split_name(const sfp_source *s, const sfp__task_split *c, int t);

/* Does any labelled image have a task? */
bool sfp__gives_tasks(const sfp_source *s, const sfp_record *r);

/* ------------------------------------------------- for tests and fuzz targets */

/* A manifest in memory; `path` is for messages, and its folder is where images are looked for. */
sfp_status sfp__manifest_open_memory(const char *path, const void *bytes, size_t size, sfp_source **out, sfp_error *err);
/* What follows the header of an IDX file (plain or gzipped), sfp__malloc'ed; dims (ndim) are the sizes in the header. */
sfp_status sfp__idx_read(const char *path, int ndim, int64_t *dims, uint8_t **bytes, sfp_error *err);
/* A tar read from an open file as it comes; the file stays open when it is closed. classes: file of class names or "". */
sfp_status sfp__tar_stream_open(int fd, const char *classes, sfp_source **out, sfp_error *err);

#endif
