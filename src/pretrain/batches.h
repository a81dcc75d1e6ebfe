/* Batches: which views a step learns from, made ahead by a thread of their own so that the learner never waits.
 *
 * Batch k depends on (seed, k) alone. Epoch e shows every picture once, in an order of its own; with fixed views picture i
 * shows view (e + i) mod V, so all views come up equally often and a batch mixes them; half of them are shown mirrored,
 * which the teacher's outputs follow. A batch that does not fill is left out: an epoch has floor(count / b) steps. */
#ifndef SFP_PRETRAIN_BATCHES_H
#define SFP_PRETRAIN_BATCHES_H

#include "pretrain/pictures.h"

typedef struct sfp_batches_options {
    int batch;
    int size;  /* S, of the input */
    int views; /* fixed views a picture; 0: a new one every epoch */
    uint64_t seed;
    double crop_least, jitter;
    double mixup; /* Beta(mixup, mixup) gives the first picture's part; 0: no mixing */
    float mean[3], std[3];
} sfp_batches_options;

/* Sample i is `part` of picture[i] and 1 - part of picture[mate(i)], mate(i) = b - 1 - i. */
typedef struct sfp_batch_made {
    uint64_t step;
    float part;        /* 1: not mixed */
    float *x;          /* (b, 3, S, S) */
    int64_t *picture;  /* (b) */
    int *view;         /* (b) */
    bool *mirrored;    /* (b) against the fixed view */
    sfp_status status; /* of making it */
    sfp_error err;
} sfp_batch_made;

typedef struct sfp_batch_feed sfp_batch_feed;

uint64_t sfp__batch_feed_epoch_steps(const sfp_pictures *p, int batch);
sfp_status sfp__batch_feed_create(const sfp_pictures *p, const sfp_batches_options *o, uint64_t first_step, sfp_batch_feed **out,
                                  sfp_error *err);
void sfp__batch_feed_free(sfp_batch_feed *f);
/* The batch of the next step; it is valid until the next take. */
sfp_status sfp__batch_feed_take(sfp_batch_feed *f, const sfp_batch_made **out, sfp_error *err);

#endif
