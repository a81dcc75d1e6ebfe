/* Images ahead of the learner: a thread of its own loads and decodes the
 * batches to come into a ring, so that learning never waits for a file unless
 * decoding is the slower of the two. */
#ifndef SFP_RUN_BATCH_LOADER_H
#define SFP_RUN_BATCH_LOADER_H

#include "base/mem.h"
#include "io/image/image.h"
#include "stream/source.h"
#include "stream/tasks.h"

/* Batches of a stream: batch k has samples order[first[k]] .. order[first[k+1]-1]. */
typedef struct sfp_batches {
    int64_t count;
    int64_t *first;   /* (count + 1) */
    int64_t *order;   /* source indices */
    int32_t *task;    /* (count) */
    int64_t *arrived; /* (count) samples of the stream up to the end of batch k */
    int64_t samples;  /* of the stream, those of batches left out too */
    int most;         /* samples in the largest */
} sfp_batches;

/* Batches of b never cross tasks; `whole`: a short last one of a task is left out (unless it is the task's only one). */
sfp_status sfp__batches_create(const sfp_tasks *tasks, int b, bool whole, sfp_batches *out, sfp_error *err);
/* `count` images, each a batch: order is taken over, also on failure. */
sfp_status sfp__batches_single(int64_t *order, int64_t count, sfp_batches *out, sfp_error *err);
/* The paper's clock: of the batches of each task sfp__clock_keep stay, evenly spread, and are numbered anew. */
void sfp__batches_keep(sfp_batches *b, double cs);
void sfp__batches_done(sfp_batches *b);

typedef struct sfp_batch_loader_options {
    int size; /* S */
    sfp_resize resize;
    bool keep_encoded;
    int depth; /* batches ahead */
} sfp_batch_loader_options;

typedef struct sfp_batch_loader sfp_batch_loader;

/* Source, tasks and batches must outlive it. It begins with batch `start`. */
sfp_status sfp__batch_loader_create(const sfp_source *s, const sfp_tasks *tasks, const sfp_batches *batches,
                                    const sfp_batch_loader_options *opt, int64_t start, sfp_batch_loader **out, sfp_error *err);
void sfp__batch_loader_free(sfp_batch_loader *f);
DEFINE_OWNED_PTR(sfp_batch_loader, sfp__batch_loader_free)

/* Batch k, which must not be below an earlier one released: its samples (ids are source indices, labels the stream's, -1:
 * none), valid until released. Images that could not be read are left out. */
sfp_status sfp__batch_loader_take(sfp_batch_loader *f, int64_t k, int *count, const sfp_sample **samples, sfp_error *err);
/* Batches below k are not needed any more. */
void sfp__batch_loader_release(sfp_batch_loader *f, int64_t k);

/* Seconds spent decoding, seconds takers waited, and why the first image was left out ("": none was). */
typedef struct sfp_batch_loader_stats {
    double decode, wait_seconds;
    char first_error[SFP_ERROR_MAX];
} sfp_batch_loader_stats;
sfp_batch_loader_stats sfp__batch_loader_stats(sfp_batch_loader *f);

#endif
