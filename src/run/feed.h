/* Pictures ahead of the learner: a thread of its own loads and decodes the
 * batches to come into a ring, so that learning never waits for a file unless
 * decoding is the slower of the two. */
#ifndef SFP_RUN_FEED_H
#define SFP_RUN_FEED_H

#include "io/image.h"
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
void sfp__batches_done(sfp_batches *b);

typedef struct sfp_feed_options {
    int size; /* S */
    sfp_resize resize;
    bool keep_encoded;
    int depth;           /* batches ahead */
    const int64_t *only; /* (only_count) the batches that will be taken, ascending; NULL: all. Must outlive the feed. */
    int64_t only_count;
} sfp_feed_options;

typedef struct sfp_feed sfp_feed;

/* Source, tasks and batches must outlive it. It begins with batch `start`, or the first behind it. */
sfp_status sfp__feed_create(const sfp_source *s, const sfp_tasks *tasks, const sfp_batches *batches, const sfp_feed_options *opt,
                            int64_t start, sfp_feed **out, sfp_error *err);
void sfp__feed_free(sfp_feed *f);

/* Batch k, which must not be below an earlier one released: its samples (ids are source indices, labels the stream's), valid
 * until released. Pictures that could not be read are left out. */
sfp_status sfp__feed_take(sfp_feed *f, int64_t k, int *count, const sfp_sample **samples, sfp_error *err);
/* Batches below k are not needed any more. */
void sfp__feed_release(sfp_feed *f, int64_t k);

/* Seconds spent decoding, seconds takers waited, pictures left out, and the message of the first of these ("" when none). */
typedef struct sfp_feed_stats {
    double decode, waited;
    uint64_t skipped;
    char first_error[SFP_ERROR_MAX];
} sfp_feed_stats;
sfp_feed_stats sfp__feed_stats(sfp_feed *f);

#endif
