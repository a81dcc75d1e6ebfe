/* The inside of a buffer, for its methods. */
#ifndef SFP_BUFFER_BUFFER_INTERNAL_H
#define SFP_BUFFER_BUFFER_INTERNAL_H

#include "buffer/buffer.h"

extern const sfp_buffer_method sfp__buffer_streamfp, sfp__buffer_none, sfp__buffer_er, sfp__buffer_aser, sfp__buffer_camel,
    sfp__buffer_gss, sfp__buffer_ssd;

struct sfp_buffer {
    sfp_buffer_options opt;
    const sfp_buffer_method *method;
    void *state; /* what the method's `open` made */
    int max_batch;
    int filled;    /* slots 0..filled-1 are in use; never falls */
    uint64_t seen; /* n_seen */
    size_t bytes;  /* of the slots, and what the method keeps beside them */

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

/* For methods that decide before they change anything. Free slots that the batch is going to fill, and the samples then left: */
int sfp__buffer_fits(const sfp_buffer *b, const sfp_buffer_batch *batch);
/* Who is in slot p once it has, as base/ask.h numbers samples; and the label of a sample so numbered. */
int sfp__buffer_who(const sfp_buffer *b, const sfp_buffer_batch *batch, int p);
int32_t sfp__buffer_label(const sfp_buffer *b, const sfp_buffer_batch *batch, int who);
/* Does what was decided: fills free slots, then puts sample retained[i] into slot replaced[i] for i < nu, counts all of the batch
 * as seen, and tells. */
void sfp__buffer_commit(sfp_buffer *b, const sfp_buffer_batch *batch, int nu, sfp_buffer_change *change);

/* A reservoir's choice for a sample that finds no free slot, which is counted as seen: a slot, or -1. One bounded draw. */
int sfp__reservoir_slot(sfp_buffer *b, sfp_rng *rng);
/* Notes in retained and replaced that sample k goes to a slot. A later sample of the batch can push out an earlier one: only the
 * last is told. */
void sfp__buffer_note(sfp_buffer *b, int slot, int k, int *nu);

#endif
