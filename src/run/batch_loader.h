/* Images ahead of the learner: a thread of its own loads and decodes the
 * batches to come into a ring, so that learning never waits for a file unless
 * decoding is the slower of the two. */
#ifndef SFP_RUN_BATCH_LOADER_H
#define SFP_RUN_BATCH_LOADER_H

#include "base/mem.h"
#include "io/image/image.h"
#include "learner/learner.h"
#include "stream/source.h"
#include "stream/tasks.h"

/* Batches of a stream: batch k has samples order[first[k]] .. order[first[k+1]-1]. */
typedef struct sfp__batches {
    int64_t count;
    int64_t *first;   /* (count + 1) */
    int64_t *order;   /* source indices */
    int32_t *task;    /* (count) */
    int64_t *arrived; /* (count) samples of the stream up to the end of batch k */
    int64_t samples;  /* of the stream, those of batches left out too */
    int most;         /* samples in the largest */
} sfp__batches;

/* Batches of b never cross tasks; `whole`: a short last one of a task is left out (unless it is the task's only one). */
sfp_status sfp__batches_create(const sfp__tasks *tasks, int b, bool whole, sfp__batches *out, sfp_error *err);
/* `count` images, each a batch: order is taken over, also on failure. */
sfp_status sfp__batches_single(int64_t *order, int64_t count, sfp__batches *out, sfp_error *err);
/* The paper's clock: of the batches of each task sfp__clock_keep stay, evenly spread, and are numbered anew. */
void sfp__batches_keep(sfp__batches *b, double cs);
void sfp__batches_done(sfp__batches *b);

typedef struct sfp__batch_loader_options {
    int size; /* S */
    sfp__resize resize;
    bool keep_encoded;
    int depth; /* batches ahead */
} sfp__batch_loader_options;

typedef struct sfp__batch_loader sfp__batch_loader;

/* Source, tasks and batches must outlive it. It begins with batch `start`. */
sfp_status sfp__batch_loader_create(const sfp_source *s, const sfp__tasks *tasks, const sfp__batches *batches,
                                    const sfp__batch_loader_options *opt, int64_t start, sfp__batch_loader **out, sfp_error *err);
void sfp__batch_loader_free(sfp__batch_loader *f);
DEFINE_OWNED_PTR(sfp__batch_loader, sfp__batch_loader_free)

/* Batch k, which must not be below an earlier one released: its samples (ids are source indices, labels the stream's, -1:
 * none), valid until released. Images that could not be read are left out. */
sfp_status sfp__batch_loader_take(sfp__batch_loader *f, int64_t k, int *count, const sfp__sample **samples, sfp_error *err);
/* Batches below k are not needed any more. */
void sfp__batch_loader_release(sfp__batch_loader *f, int64_t k);

/* Seconds spent decoding, seconds takers waited, and why the first image was left out ("": none was). */
typedef struct sfp__batch_loader_stats {
    double decode, wait_seconds;
    char first_error[SFP_ERROR_MAX];
} sfp__batch_loader_stats;
sfp__batch_loader_stats sfp__batch_loader_get_stats(sfp__batch_loader *f);

#endif
