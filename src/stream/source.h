/* Sources: readers that deliver images and labels (docs/method.md, section 15). Each kind has one file behind this interface.
 *
 * An indexed source reads a dataset. Its records (label, domain, task, time) are known when it is opened, and image i is loaded
 * on request, from any thread. A live source (a watched directory, standard input) only delivers a next image. Sources know
 * nothing of the learner, and they do not decode: they return the bytes of an image file, or pixels if the format stores pixels.
 *
 * To add a kind, write sources/NAME.c with its `const sfp__source_ops` and `const sfp__source_kind`, and add a row to the table
 * in source.c. */
#ifndef SFP_STREAM_SOURCE_H
#define SFP_STREAM_SOURCE_H

#include "base/mem.h"
#include "io/image/image.h"
#include "stream/sample_store.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum sfp__raw_image_kind {
    SFP__RAW_IMAGE_ENCODED, /* the bytes of a JPEG, PNG or WebP file */
    SFP__RAW_IMAGE_RGB,     /* (height, width, 3) */
    SFP__RAW_IMAGE_GREY,    /* (height, width) */
    SFP__RAW_IMAGE_ROW,     /* floats; no image */
} sfp__raw_image_kind;

typedef struct sfp__raw_image {
    sfp__raw_image_kind kind;
    int width, height; /* in pixels; 0 if encoded */
    uint8_t *bytes;    /* allocated by sfp__malloc, freed by sfp__raw_image_done; NULL: no image */
    size_t size;
    bool has_box;   /* only the part in the box is used: cut after decoding and before resizing, clipped to the image */
    int32_t box[4]; /* left, top, right, bottom */
} sfp__raw_image;

void sfp__raw_image_done(sfp__raw_image *p);

typedef struct sfp__source_options {
    bool test;     /* the test part of a dataset that has one (stream51, core50, clear10, clear100, cifar, idx, tar) */
    uint64_t seed; /* of sources that draw their images (synthetic) or an order that a published protocol draws */
    /* --order: 0: natural order of the classes; above 0: the seed of the class order (core50: the run); -K: order K of the paper's
     * authors (core50: the run K - 1) */
    int order;
} sfp__source_options;

/* The origin of the image that `next` has delivered, or has failed to read. */
typedef struct sfp__origin {
    const char *name; /* name by which a late label refers to the image; valid until the next call */
    bool stored;      /* the sample is in the store, with this id */
    uint64_t id;
    bool urgent; /* the label is late or a correction, so the image must not be dropped */
    double at;   /* sfp__monotonic_seconds() of its arrival; 0: now */
} sfp__origin;

typedef struct sfp__source_kind {
    const char *name;    /* "folder" */
    const char *alias;   /* an earlier name that is still accepted; NULL: none */
    const char *summary; /* one line */
    bool live;
    bool walks; /* every directory below PATH is one of images, unless its name begins with a dot */
    /* Opens PATH. An indexed source reads all records, but no image. On failure it frees everything that it has allocated. */
    sfp_status (*open)(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err);
} sfp__source_kind;

/* The operations of a source. One that it does not have is NULL (flags: false). sfp__source_record, _load and _name check the index i and
 * call them. */
typedef struct sfp__source_ops {
    /* Indexed sources; both are thread-safe. */
    sfp_status (*record)(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
    sfp_status (*load)(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
    /* The name of image i for messages and reports, such as a file name or "train-images[17]"; live: that of the last image. */
    const char *(*name)(const sfp_source *s, int64_t i, char *buf, size_t size);
    /* The name of image i in the messages of load, such as "ROOT/NAME" or "SHARD: NAME". NULL: the same as `name`. */
    const char *(*display_name)(const sfp_source *s, int64_t i, char *buf, size_t size);
    /* Live sources. */
    sfp_status (*next)(sfp_source *s, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err);
    void (*origin)(const sfp_source *s, sfp__origin *out);
    /* Called before the first next. From then on the source looks in the store for images that it has delivered, and delivers those
     * again that an earlier process has left. NULL: the source cannot deliver an image twice. */
    sfp_status (*set_store)(sfp_source *s, sfp__store *store, sfp_error *err);
    /* Called when a command has given the sample a label: labels for it that the source has not read yet are older and must not replace this one. The
     * calling thread is not that of `next`. NULL: all labels come through `next`. */
    sfp_status (*decided)(sfp_source *s, uint64_t id, const char *name, sfp_error *err);
    /* Reads the image of a sample from the store, in which the source keeps images. No sample of such a source is dropped: samples wait in the store,
     * and the source is blocked. NULL: the source does not keep images, or they are files. */
    sfp_status (*image)(sfp_source *s, const sfp__stored *row, sfp__raw_image *out, sfp_error *err);
    bool pauses;    /* an incomplete batch does not wait for more images (--max-wait) */
    bool on_demand; /* images are generated on request; they do not arrive by themselves */
    /* Frees the memory of the kind, also if opening failed half-way; may be NULL. */
    void (*close)(sfp_source *s);
} sfp__source_ops;

#define SFP__LIVE_WARNINGS_MAX 16

/* Members of live sources only. */
typedef struct sfp__source_live {
    const atomic_bool *stop;    /* set by the caller before the first call of next; NULL: the source is never stopped */
    bool lost;                  /* next failed for one image only */
    struct sfp__offers *offers; /* it takes submitted samples (submitted.h); NULL: it does not */
    atomic_int warning_count;   /* number of warnings so far */
    char warnings[SFP__LIVE_WARNINGS_MAX][512]; /* each is written before it is counted */
} sfp__source_live;

/* The common members; the struct of a kind begins with them. Filled by open, constant afterwards. */
struct sfp_source {
    const sfp__source_kind *kind;
    const sfp__source_ops *ops;
    sfp__source_live *live; /* NULL: indexed source */
    char *path;
    int64_t count; /* number of images; -1: live source */
    int classes;
    /* (classes) in natural order: names that are numbers by number, else in byte order; or in the published order */
    char **class_names;
    int domains;
    char **domain_names; /* (domains) */
    bool keeps_order;    /* the order of the records means something: they are not shuffled within a task */
    const char *warning; /* warnings, such as skipped files; NULL: none; owned */
    uint64_t skipped;    /* number of entries that were skipped when the source was opened; `warning` describes them */
    bool seeded;         /* options.seed changes its images or their order */
    int row_dim;         /* number of floats per row, if the source delivers rows instead of images; 0: images */
    bool test_part;      /* opened with options.test, and the dataset has a test part, which shares no image with the other */

    /* images in a row whose reading failed because of the disk; changed by sfp__source_settle only */
    atomic_int failed_reads;
};

/* spec is "KIND:PATH", such as "folder:data/pacs/train" or "synthetic:2000". */
sfp_status sfp__source_open(const char *spec, const sfp__source_options *opt, sfp_source **out, sfp_error *err);
/* Replaces a dataset by its shard I/N (shard.c); text NULL: all of it. On failure the source is unchanged. */
sfp_status sfp__shard_open(sfp_source **source, const char *text, sfp_error *err);
sfp_status sfp__shard_parse(const char *text, int *index, int *count, sfp_error *err);
/* Checks that the kind is known and that there is a path where the kind needs one; the key of the message is "data". */
sfp_status sfp__source_check(const char *spec, sfp_error *err);
/* The kind of KIND:PATH; NULL: it is unknown. */
const sfp__source_kind *sfp__source_kind_find(const char *spec);
void sfp__source_close(sfp_source *s);
DEFINE_OWNED_PTR(sfp_source, sfp__source_close)

/* The record and the bytes of image i of an indexed source; thread-safe. */
sfp_status sfp__source_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err);
sfp_status sfp__source_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err);
/* Writes a name for messages and reports to buf, which is returned. */
const char *sfp__source_name(const sfp_source *s, int64_t i, char *buf, size_t size);
/* Writes the name of image i for messages to buf, which is returned. It is the same whether reading or decoding fails. */
const char *sfp__source_display_name(const sfp_source *s, int64_t i, char *buf, size_t size);
/* Decodes, cuts and resizes an image to rgb (size, size, 3). `name` is the name of the image in messages. */
sfp_status sfp__raw_image_fit(const sfp__raw_image *p, const char *name, int size, sfp__resize how, uint8_t *rgb, sfp_error *err);
/* Loads image i of an indexed source and fits it, with SFP__READ_ATTEMPTS attempts. */
sfp_status sfp__raw_image_read_fit(const sfp_source *s, int64_t i, int size, sfp__resize how, uint8_t *rgb, sfp_error *err);
#define SFP__READ_ATTEMPTS 3 /* at reading an image, if memory, descriptors or the disk fail */
/* Called with the status of the last attempt at reading an image, also if it was read; returns what it means. SFP_EIO becomes
 * SFP_EFORMAT: one file that the disk cannot read is skipped like a damaged one. Only if several images in a row cannot be read,
 * or if there are no descriptors, the machine has failed, and the status stays. Thread-safe. */
sfp_status sfp__source_settle(const sfp_source *s, sfp_status status, sfp_error *err);

/* Images that are skipped, because they cannot be read or because their label is refused. */
typedef struct sfp__skipped {
    uint64_t count;
    bool refused;              /* a label was refused */
    char first[SFP_ERROR_MAX]; /* why the first one was skipped; "": an earlier process did */
} sfp__skipped;

void sfp__skipped_add(sfp__skipped *s, const char *why);
void sfp__skipped_join(sfp__skipped *s, const sfp__skipped *later);
/* Writes "2 images could not be read and were skipped (first: WHY)" to buf. what: "image". */
void sfp__skipped_text(const sfp__skipped *s, const char *what, char *buf, size_t size);
/* Fails if more images of `name` were skipped than are allowed of its number of images. */
sfp_status sfp__skipped_check(const sfp__skipped *s, const char *name, uint64_t allowed, uint64_t total, sfp_error *err);
/* Fails because all images of `name` are skipped. */
sfp_status sfp__skipped_all(const sfp__skipped *s, const char *name, sfp_error *err);
/* Writes a hash of the names, labels and order of the images of an indexed source, never 0. The names do not depend on where the
 * dataset is. */
sfp_status sfp__source_digest(const sfp_source *s, uint64_t *out, sfp_error *err);

/* Delivers the next image of a live source and waits for it. *end: the stream has ended, or *live->stop has become true, which is
 * checked at least every 100 ms; there is no image then. A record without an image (bytes is NULL) is the label of an earlier
 * image with this name. The number of classes may grow, but class_names never moves. A failure with live->lost set concerns one
 * image (ops->origin names it), and the stream continues. */
static inline sfp_status sfp__source_next(sfp_source *s, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    return s->ops->next(s, record, out, end, err);
}
/* Adds a warning, on the thread that opens the source or calls next. A warning that was already given and warnings beyond the
 * limit are ignored. */
void sfp__source_warn_live(sfp_source *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

extern const sfp__source_kind *const sfp__source_kinds[]; /* ends with NULL */

#endif
