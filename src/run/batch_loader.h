/* Prefetches batches: a background thread loads and decodes them into a ring, so that training waits for files only if decoding
 * is the slower of the two. */
#ifndef SFP_RUN_BATCH_LOADER_H
#define SFP_RUN_BATCH_LOADER_H

#include "base/mem.h"
#include "io/image/image.h"
#include "learner/learner.h"
#include "stream/source.h"
#include "stream/tasks.h"

/* Fails if the samples of the source are not what the backbone accepts: images, or features of its size. `key` is the setting that
 * names the source. */
sfp_status sfp__check_input(const sfp_source *s, const sfp__vit_config *c, const char *key, const char *name, sfp_error *err);

/* The batches of a stream: batch k has the samples order[first[k]] .. order[first[k+1]-1]. */
typedef struct sfp__batches {
    int64_t count;
    int64_t *first;   /* (count + 1) positions in order */
    int64_t *order;   /* source indices */
    int32_t *task;    /* (count) the task of each batch */
    int64_t *arrived; /* (count) samples of the stream up to the end of batch k */
    int64_t samples;  /* number of samples of the stream, including those of excluded batches */
    int max_batch_samples;
} sfp__batches;

/* Makes batches of b samples, each within one task. whole: a short last batch of a task is excluded, unless it is the only
 * one. */
sfp_status sfp__batches_create(const sfp__tasks *tasks, int b, bool whole, sfp__batches *out, sfp_error *err);
/* Returns the number of samples that `whole` excludes from the first `count` tasks. */
int64_t sfp__batches_excluded(const sfp__tasks *tasks, int b, int count);
/* Makes `count` batches of one image; takes ownership of order, also on failure. */
sfp_status sfp__batches_single(int64_t *order, int64_t count, sfp__batches *out, sfp_error *err);
/* Clock paper: keeps sfp__clock_keep batches of each task, evenly spread, and renumbers them. Returns the number of starved tasks:
 * those that keep one batch although C_S leaves time for less than one. */
int sfp__batches_keep(sfp__batches *b, double cs);
void sfp__batches_done(sfp__batches *b);

typedef struct sfp__batch_loader_options {
    int size; /* S */
    sfp__resize resize;
    int depth;     /* number of batches in the ring */
    int64_t count; /* batches that can be taken; after the last one they begin again with the first one. 0: each batch once */
} sfp__batch_loader_options;

typedef struct sfp__batch_loader sfp__batch_loader;

/* Source, tasks and batches must outlive the loader, which starts with batch `start`. */
sfp_status sfp__batch_loader_create(const sfp_source *s, const sfp__tasks *tasks, const sfp__batches *batches,
                                    const sfp__batch_loader_options *opt, int64_t start, sfp__batch_loader **out, sfp_error *err);
void sfp__batch_loader_free(sfp__batch_loader *f);
DEFINE_OWNED_PTR(sfp__batch_loader, sfp__batch_loader_free)

/* A batch, valid until it is released. */
typedef struct sfp__loaded_batch {
    int count;
    sfp__sample *samples; /* ids are indices in the source, labels those of the stream (-1: none) */
    sfp__skipped skipped; /* the other images of the batch: they cannot be read */
} sfp__loaded_batch;

/* Takes batch k, which must not be released yet (with options.count: batch k modulo the number of batches). Fails if memory or the disk
 * failed (sfp__source_settle). */
sfp_status sfp__batch_loader_take(sfp__batch_loader *f, int64_t k, const sfp__loaded_batch **out, sfp_error *err);
/* Releases all batches below k. */
void sfp__batch_loader_release(sfp__batch_loader *f, int64_t k);

/* Seconds of decoding, and of waiting in sfp__batch_loader_take. */
typedef struct sfp__batch_loader_stats {
    double decode, wait_seconds;
} sfp__batch_loader_stats;
sfp__batch_loader_stats sfp__batch_loader_get_stats(sfp__batch_loader *f);

#endif
