/* The inside of a buffer, for its methods. */
#ifndef SFP_BUFFER_BUFFER_INTERNAL_H
#define SFP_BUFFER_BUFFER_INTERNAL_H

#include "buffer/buffer.h"

extern const sfp_buffer_method sfp__buffer_streamfp, sfp__buffer_none, sfp__buffer_er;

struct sfp_buffer {
    sfp_buffer_options opt;
    const sfp_buffer_method *method;
    int max_batch;
    int filled;    /* slots 0..filled-1 are in use; never falls */
    uint64_t seen; /* n_seen */
    size_t bytes;  /* of the slots */

    sfp_slot *slot; /* (m); image, query and mean_embed point into `store` */
    void *store;    /* m pictures, then m queries, then m mean embeddings */

    /* workspace: pieces of one block, laid out by layout() in buffer.c; n = max(max_batch, m) */
    void *work;
    double *u_nu, *u_batch, *u_buffer; /* (max_batch) */
    double *weight;                    /* (n) */
    float *score;                      /* (m) */
    int *order;                        /* (n); also the deck of sfp__buffer_draw */
    int *retained, *replaced;          /* (max_batch): what the last change points to */
};

/* Sample k of the batch into slot i: everything a slot holds. */
void sfp__buffer_put(sfp_buffer *b, int i, const sfp_buffer_batch *batch, int k);

/* Samples 0.. into the free slots while there are any, each adding 1 to n_seen; returns how many. */
int sfp__buffer_fill(sfp_buffer *b, const sfp_buffer_batch *batch);

#endif
