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

#define SFP__RECORDS_MAX INT64_C(100000000)          /* images of one dataset */
#define SFP__RAW_IMAGE_BYTES_MAX ((size_t)256 << 20) /* bytes of one image file */
#define SFP__PATH_BYTES_MAX 4096                     /* bytes of a path in a file */
#define SFP__LIST_BYTES_MAX ((size_t)4 << 30)        /* bytes of a manifest or a pickle */
#define SFP__JSON_BYTES_MAX ((size_t)1 << 30)        /* bytes of a list in JSON */

extern const sfp__source_kind sfp__source_folder, sfp__source_manifest, sfp__source_idx, sfp__source_cifar, sfp__source_tar,
    sfp__source_stdin, sfp__source_synthetic, sfp__source_dir, sfp__source_stream51, sfp__source_core50, sfp__source_clear10,
    sfp__source_clear100, sfp__source_features, sfp__source_redis, sfp__source_kafka;

/* ------------------------------------------------------------------- order */

/* Compares file names: runs of digits as numbers, everything else as bytes, so that "a2" < "a10". 0 only if the bytes are equal.
 */
int sfp__natural_compare(const char *a, const char *b);
/* Shuffles with the algorithm of Fisher and Yates and the random numbers of (seed, stream); n is at most SFP__RECORDS_MAX. */
void sfp__shuffle(int64_t *a, int64_t n, uint64_t seed, uint64_t stream);
/* Shuffles the numbers below n; *out (n) is allocated by sfp__malloc. */
sfp_status sfp__shuffled(int64_t n, uint64_t seed, uint64_t stream, int64_t **out, sfp_error *err);
/* Shuffles as np.random.seed(seed); np.random.shuffle(a) do (authors_order.c). */
void sfp__authors_shuffle(int64_t *a, int n, uint32_t seed);
/* Writes the class at each place of the order to *class_at (classes), allocated by sfp__malloc. order 0: natural order; above 0:
 * shuffled by this seed; -K: order K of the paper's authors. The first of them is the natural order, order K has the seed K - 1.
 */
sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err);
/* Returns the task of the class at a place of the order. The first task has `first` classes, every other one has `each`. */
static inline int32_t sfp__task_of_place(int64_t place, int first, int each)
{
    return place < first ? 0 : (int32_t)(1 + (place - first) / each);
}

/* ------------------------------------------------------------------- names
 *
 * Numbers for the names of classes and domains, in order of arrival or sorted. Names come from files and are hostile: their
 * number and length have limits. */

#define SFP__CLASSES_MAX 65536   /* also domains */
#define SFP__CLASS_NAME_MAX 1024 /* bytes of a class or domain name */

/* Orders the names of classes and domains: whole numbers first, by number; then the others in byte order. */
int sfp__name_compare(const char *a, const char *b);

/* Maps names to numbers with a hash table. Zero-initialised it is empty. */
typedef struct sfp__names {
    int count;
    char **name; /* (count) */
    size_t capacity;
    int32_t *slot; /* (slots) number of the name + 1; 0: free */
    size_t slots;  /* a power of two */
} sfp__names;

/* Finds the number of the name of n bytes; a new name gets the next number. Fails if the name is empty, longer than
 * SFP__CLASS_NAME_MAX or not UTF-8, if it has a NUL byte, or if there are more than SFP__CLASSES_MAX names. The message does not
 * name a file; use sfp__fail_prefix. */
sfp_status sfp__names_add(sfp__names *t, const char *s, size_t n, int32_t *out, sfp_error *err);
/* Reserves memory for the maximum number of names, so that the list never moves while another thread reads it. */
sfp_status sfp__names_reserve(sfp__names *t, sfp_error *err);
int32_t sfp__names_find(const sfp__names *t, const char *s, size_t n); /* -1: unknown */
/* Renumbers the names in the order of sfp__name_compare. *new_of (count), allocated by sfp__malloc, has the new number for each
 * old one; NULL if there are no names. */
sfp_status sfp__names_sort(sfp__names *t, int32_t **new_of, sfp_error *err);
/* Moves the list to *names (class_names or domain_names of a source); t is empty afterwards. */
void sfp__names_give(sfp__names *t, char ***names, int *count);
void sfp__names_done(sfp__names *t);
void sfp__name_list_free(char **name, int count); /* a list from sfp__names_give */
/* Reads the lines of a text file (class_names.txt and the like) as names, in their order. Blank lines and '\r' are ignored; a
 * name that is listed twice is an error. SFP_ENOTFOUND: there is no such file. */
sfp_status sfp__names_read(const char *path, sfp__names *out, sfp_error *err);

/* ----------------------------------------------------------------- entries */

/* One image of a dataset that lists files. */
typedef struct sfp__entry {
    sfp_record record;
    uint64_t text;  /* offset of its path in `text` of the list */
    uint64_t place; /* data of the kind: a line number, an offset */
    uint64_t size;
} sfp__entry;

/* A list that grows; zero-initialised it is empty. */
typedef struct sfp__entries {
    sfp__entry *at; /* (count) */
    int64_t count;
    size_t capacity;
    sfp__text text; /* paths, each terminated by NUL */
} sfp__entries;

/* Returns a record without label, domain, task and time. */
static inline sfp_record sfp__record_none(void)
{
    return (sfp_record){.label = -1, .domain = -1, .task = -1, .time = NAN};
}

/* Copies the path of n bytes and appends the entry. path NULL: entry.text is used as it is. */
sfp_status sfp__entries_add(sfp__entries *l, sfp__entry entry, const char *path, size_t n, sfp_error *err);
static inline const char *sfp__entries_path(const sfp__entries *l, int64_t i)
{
    return l->text.s + l->at[i].text;
}
/* Sorts the names (sfp__names_sort) and renumbers the labels and domains of the entries. */
sfp_status sfp__entries_sort_names(sfp__entries *l, sfp__names *classes, sfp__names *domains, sfp_error *err);

/* ----------------------------------------------------------------- sources */

/* Creates a source of `size` bytes with ops, kind and path; its count is -1 and everything else is empty. sfp__source_close frees
 * it at any later time. */
sfp_status sfp__source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                              sfp_source **out, sfp_error *err);
/* Appends a warning to s->warning. */
sfp_status sfp__source_warn(sfp_source *s, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A source whose images are files below a directory: the common part of folder, manifest, stream51, core50 and clear. A kind that
 * needs more begins its struct with this one. */
typedef struct sfp__file_source {
    sfp_source base;
    char *root; /* directory of the entries whose paths do not begin with '/'; owned */
    sfp__entries entries;
} sfp__file_source;

extern const sfp__source_ops sfp__file_source_ops;
/* Like sfp__source_create, with a root directory. */
sfp_status sfp__file_source_create(size_t size, const sfp__source_kind *kind, const sfp__source_ops *ops, const char *path,
                                   const char *root, sfp__file_source **out, sfp_error *err);
/* Completes opening and cannot fail: moves the names into the source (domains may be NULL) and sets count. */
sfp_source *sfp__file_source_finish(sfp__file_source *s, sfp__names *classes, sfp__names *domains);
static inline void sfp__file_source_free(sfp__file_source *s)
{
    sfp__source_close(s ? &s->base : NULL);
}
DEFINE_OWNED_PTR(sfp__file_source, sfp__file_source_free)
/* The operations of a file source, for the tables of the kinds. */
sfp_status sfp__file_source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
sfp_status sfp__file_source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
const char *sfp__file_source_name(const sfp_source *s, int64_t i, char *buf, size_t size);
const char *sfp__file_source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size);
void sfp__file_source_close(sfp_source *base);

/* ------------------------------------------------------------------- files */

/* Writes "DIR/NAME", or NAME if it begins with '/', to *out, allocated by sfp__malloc. */
sfp_status sfp__path_make(const char *dir, const char *name, char **out, sfp_error *err);
/* Returns PATH itself if it is a directory, else the directory that contains it ("." if PATH names none). */
sfp_status sfp__path_directory(const char *path, char **out, sfp_error *err);
/* Lists the names in a directory except . and .., in natural order. SFP_ENOTFOUND: no such directory; SFP_EIO: it cannot be
 * opened. */
sfp_status sfp__directory_names(const char *path, sfp__strings *names, sfp_error *err);
/* Find whether there is a file or directory at `path`. They fail if this is not known: a test set or a list of classes must not count
 * as missing because memory or the disk failed. */
sfp_status sfp__path_exists(const char *path, bool *out, sfp_error *err);
sfp_status sfp__path_is_dir(const char *path, bool *out, sfp_error *err);
/* Reads the bytes of an image file, at most SFP__RAW_IMAGE_BYTES_MAX; messages name the file. */
sfp_status sfp__raw_image_read(const char *path, sfp__raw_image *out, sfp_error *err);
/* Fails with SFP_EFORMAT and the message "KIND:PATH: NAME WHAT", where NAME is that of image i. */
sfp_status sfp__raw_image_blame(const sfp_source *s, int64_t i, const char *what, sfp_error *err);

/* -------------------------------------------------------------- task split
 *
 * Assigns records to tasks. The rule follows from a specification (--tasks) and the training set, and is applied to the test set
 * too. */

typedef enum sfp__task_split_kind {
    SFP__SPLIT_FREE,
    SFP__SPLIT_CLASSES,
    SFP__SPLIT_DOMAIN,
    SFP__SPLIT_TIME,
    SFP__SPLIT_GIVEN
} sfp__task_split_kind;

typedef struct sfp__task_split {
    sfp__task_split_kind kind;
    int tasks;
    int *end;        /* SFP__SPLIT_CLASSES (tasks): end of the stream labels of a task */
    int32_t *domain; /* SFP__SPLIT_DOMAIN (tasks): number of the domain in the training set */
    double *value;   /* SFP__SPLIT_TIME, SFP__SPLIT_GIVEN (tasks): ascending */
} sfp__task_split;

/* r has the records of s. spec NULL: the tasks of the dataset, else task-free. */
sfp_status sfp__task_split_make(const sfp_source *s, const sfp_record *r, const char *spec, sfp__task_split *c, sfp_error *err);
void sfp__task_split_done(sfp__task_split *c);

/* Returns the task of a record, whose domain is numbered as in the training set; -1: none. */
int sfp__task_split_task(const sfp__task_split *c, const sfp_record *r, int32_t stream_label, int32_t domain);
/* Returns the name of task t, allocated by sfp__malloc; s is the training set. NULL: out of memory. */
char *sfp__task_split_name(const sfp_source *s, const sfp__task_split *c, int t);

/* Returns true if a labelled image has a task. */
bool sfp__gives_tasks(const sfp_source *s, const sfp_record *r);

/* ------------------------------------------------- for tests and fuzz targets */

/* Opens a manifest in memory. `path` is used in messages, and images are relative to its directory. */
sfp_status sfp__manifest_open_memory(const char *path, const void *bytes, size_t size, sfp_source **out, sfp_error *err);
/* Reads the data behind the header of an IDX file (plain or gzipped), allocated by sfp__malloc; dims (ndim) are the sizes in the
 * header. */
sfp_status sfp__idx_read(const char *path, int ndim, int64_t *dims, uint8_t **bytes, sfp_error *err);
/* Opens a live source that reads a tar from an open file, which stays open when the source is closed. classes: a file of class
 * names, or "". */
sfp_status sfp__tar_stream_open(int fd, const char *classes, sfp_source **out, sfp_error *err);

#endif
