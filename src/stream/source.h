/* Sources: where labelled images come from (docs/method.md, section 15). One file a
 * kind behind one small interface.
 *
 * A data set on disk is indexed: its records (label, domain, task, time) are
 * all known when it is opened, and image i is loaded when asked for, from any
 * thread. A live source (a watched directory, standard input) only has a next
 * one. Sources know nothing of the learner, and do not decode: they give the
 * bytes of an image file, or pixels where the format has nothing else.
 *
 * To add one: write sources/NAME.c with its `const sfp__source_ops` and
 * `const sfp__source_kind`, and add a row to the table in source.c. */
#ifndef SFP_STREAM_SOURCE_H
#define SFP_STREAM_SOURCE_H

#include "base/mem.h"
#include "io/image/image.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum sfp__raw_image_kind {
    SFP_RAW_IMAGE_ENCODED, /* a JPEG, PNG or WebP file's bytes */
    SFP_RAW_IMAGE_RGB,     /* (height, width, 3) */
    SFP_RAW_IMAGE_GREY,    /* (height, width) */
} sfp__raw_image_kind;

typedef struct sfp__raw_image {
    sfp__raw_image_kind kind;
    int width, height; /* of pixels; 0 for encoded ones */
    uint8_t *bytes;    /* sfp__malloc'ed; freed by sfp__raw_image_done */
    size_t size;
    bool has_box;   /* only this part of the image counts: cut after decoding, before resizing, clipped to the image */
    int32_t box[4]; /* left, top, right, bottom */
} sfp__raw_image;

void sfp__raw_image_done(sfp__raw_image *p);

typedef struct sfp__source_options {
    bool test;     /* the data set's own test part, where it has one (stream51, core50, clear10, clear100, cifar, idx) */
    uint64_t seed; /* of what a source draws itself (synthetic; orders that are part of a published protocol) */
    int order;     /* --order: 0 = natural order of classes; else the seed of the class order (core50: the run) */
} sfp__source_options;

/* Where an image of a live source comes from; goes with it by value. */
typedef struct sfp__origin {
    uint64_t identity;     /* of the image, whatever its name and label: a label may come by moving it; 0: none */
    uint64_t id;           /* its number, in the order in which images came for the first time; who takes it counts */
    uint64_t labelled_key; /* of the image with its label: what was taken once is known by it; 0: none */
    int64_t changed;       /* when it got there, in ns of the file system's clock; 0: not known */
} sfp__origin;

/* What a live source is not to give again after a break. */
typedef struct sfp__resume_filter {
    size_t n;
    const uint64_t *labelled_keys; /* (n) of what is done with; the latest */
    int64_t until;                 /* and all that did not change after this time, ... */
    size_t waiting;
    const uint64_t *waiting_keys; /* (waiting) ... but these */
} sfp__resume_filter;

typedef struct sfp__source_kind {
    const char *name;    /* "folder" */
    const char *alias;   /* an earlier name that is still accepted; NULL: none */
    const char *summary; /* one line */
    bool live;
    /* Opens PATH; reads all records of an indexed source, nothing of its images. On failure frees what it made. */
    sfp_status (*open)(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err);
} sfp__source_kind;

/* What a source can do; what it cannot is NULL or 0. Called by the functions below, which look at i before. */
typedef struct sfp__source_ops {
    /* Indexed: both thread-safe. */
    sfp_status (*record)(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
    sfp_status (*load)(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
    /* A name for messages and reports: file name, "train-images[17]"; of a live source that of the image given last. */
    const char *(*name)(const sfp_source *s, int64_t i, char *buf, size_t size);
    /* As the messages of load call it: "ROOT/NAME", "SHARD: NAME". NULL: by its name. */
    const char *(*display_name)(const sfp_source *s, int64_t i, char *buf, size_t size);
    /* Live. */
    sfp_status (*next)(sfp_source *s, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err);
    const char *(*origin)(const sfp_source *s, sfp__origin *out);
    sfp_status (*set_resume_filter)(sfp_source *s, const sfp__resume_filter *what,
                                    sfp_error *err); /* NULL: it cannot go back anyway */
    size_t labelled_keys; /* of so many images that are done with the caller keeps the marks for leave_out */
    double pause;         /* seconds without an arrival after which nobody waits for a batch to be full; 0: always wait */
    bool on_demand;       /* images are made when asked for; they do not arrive by themselves */
    /* Frees what the kind owns itself, also of a source that was not opened to its end; may be NULL. */
    void (*close)(sfp_source *s);
} sfp__source_ops;

#define SFP_LIVE_WARNINGS_MAX 16

/* What only a live source has. */
typedef struct sfp__source_live {
    const atomic_bool *stop;                   /* set by the caller before the first next; NULL: never */
    bool lost;                                 /* next failed, but for this image alone */
    atomic_int warning_count;                  /* how many things were found meanwhile that a user should know; ... */
    char warnings[SFP_LIVE_WARNINGS_MAX][512]; /* ... these, each written before it is counted */
} sfp__source_live;

/* The common part; a kind's own struct begins with it. Filled by open, constant afterwards. */
struct sfp_source {
    const sfp__source_kind *kind;
    const sfp__source_ops *ops;
    sfp__source_live *live; /* NULL: it is indexed */
    char *path;
    int64_t count; /* images; -1: not known or without end */
    int classes;
    char **class_names; /* (classes) in natural order (by number where names are numbers, else byte order; published order) */
    int domains;
    char **domain_names; /* (domains) */
    bool keeps_order;    /* records come in an order that means something: not shuffled within a task (manifest, tar, clear,
                            stream51, core50, live) */
    const char *warning; /* what a user should know, e.g. skipped files, NULL: nothing; owned */
    uint64_t skipped;    /* broken entries that were passed over when opening, told in note */
    bool seeded;         /* options.seed has a say in its images or their order */
    bool test_part;      /* opened with options.test, and it has a test part: these images are not those of the training part */
};

/* "KIND:PATH", e.g. "folder:data/pacs/train"; "synthetic:2000". */
sfp_status sfp__source_open(const char *spec, const sfp__source_options *opt, sfp_source **out, sfp_error *err);
/* Checks that the kind is known and that there is a path where the kind needs one; the key of the message is "data". */
sfp_status sfp__source_check(const char *spec, sfp_error *err);
/* The kind of KIND:PATH; NULL: it is unknown. */
const sfp__source_kind *sfp__source_kind_find(const char *spec);
void sfp__source_close(sfp_source *s);
DEFINE_OWNED_PTR(sfp_source, sfp__source_close)

/* Of image i of an indexed source; thread-safe. */
sfp_status sfp__source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
sfp_status sfp__source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
/* A name for messages and reports; returns buf. */
const char *sfp__source_name(const sfp_source *s, int64_t i, char *buf, size_t size);
/* Image i for a message, so that it is called the same whether its file or what is in it cannot be read; returns buf. */
const char *sfp__source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size);
/* Decodes, cuts and resizes to rgb (size, size, 3). `name` stands for the image in messages. */
sfp_status sfp__raw_image_fit(const sfp__raw_image *p, const char *name, int size, sfp__resize how, uint8_t *rgb, sfp_error *err);
/* Image i of an indexed source, fitted; *kept gets the encoded bytes when not NULL and there are any (else bytes NULL). */
sfp_status sfp__raw_image_read_fit(const sfp_source *s, int64_t i, int size, sfp__resize how, uint8_t *rgb, sfp__raw_image *kept,
                                   sfp_error *err);
/* Of the list of an indexed source's images: their names (which do not tell where it lies), labels and order; never 0. */
sfp_status sfp__source_digest(const sfp_source *s, uint64_t *out, sfp_error *err);

/* Live: blocks until there is one. *end (then there is no image): it has ended, or *live->stop became true, which is looked at
 * at least every 100 ms. A record without an image (no bytes) is a label that came late, for the image of that name.
 * Classes may grow, class_names never moves. A failure with live->lost set is that of one image (origin tells which), and the
 * stream goes on behind it. */
static inline sfp_status sfp__source_next(sfp_source *s, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    return s->ops->next(s, record, out, end, err);
}
/* Of what next gave or lost last. Returns its name, as a label that comes later calls it; holds until the next call. */
static inline const char *sfp__source_origin(const sfp_source *s, sfp__origin *out)
{
    return s->ops->origin(s, out);
}
/* To go on after a break, before the first next: what was done with is not given again, nor what did not change after `until`
 * (the latest change of those whose marks were not kept). */
static inline sfp_status sfp__source_set_resume_filter(sfp_source *s, const sfp__resume_filter *what, sfp_error *err)
{
    return s->ops->set_resume_filter(s, what, err);
}
/* One remark more, by the thread that opens it or calls next; not one that was made already, nor more than there is space for. */
void sfp__source_warn_live(sfp_source *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

extern const sfp__source_kind *const sfp__source_kinds[]; /* ends with NULL */

#endif
