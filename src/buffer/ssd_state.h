/* What the two files of the buffer ssd share: buffer_ssd.c (what is stored), ssd_match.c (what becomes of synthetic pictures). */
#ifndef SFP_BUFFER_SSD_STATE_H
#define SFP_BUFFER_SSD_STATE_H

#include "base/arena.h"
#include "buffer/buffer_internal.h"
#include "buffer/ssd.h"

enum { SFP__SSD_CHUNK = 16 }; /* pictures that are pixels at a time */

typedef struct sfp__ssd {
    int slots, side, max_batch, dim;
    size_t pixels; /* numbers of a picture: 3*S*S */
    float mean[3], std[3];
    float low[3], high[3]; /* of a channel, normalised: bytes 0 and 255 */

    /* kept by checkpoints. Values from a file are as hostile as the file: every use of them holds for any. */
    uint8_t *synthetic;    /* (m) 1: the slot's picture is one of ours */
    float *x, *u;          /* (m, 3, S, S) their pixels, normalised, and SGD's momentum; zeros where there is none */
    uint8_t *recent;       /* (WINDOW, max_batch, S, S, 3) pictures of the last batches */
    int32_t *recent_label; /* (WINDOW, max_batch); -1: no sample */
    int64_t batches;       /* offered so far: the next one goes to row `batches % WINDOW` */

    /* scratch */
    float *grad;      /* (m, 3, S, S) of the matching loss */
    uint8_t *touched; /* (m) slots with a gradient */
    float *in, *out;  /* (CHUNK, 3, S, S); out also (CHUNK, D) */
    uint8_t *rgb;     /* (S, S, 3) */
    float *feature;   /* (m, D) of synthetic pictures; then their mean embeddings */
    float *dfeature;  /* (m, D) */
    float *memory;    /* (MEMORY, D) features of older pictures */
    float *real;      /* (D) mean unit feature of real samples */
    float *work;      /* (3, D) */
    int *mine, *deck; /* (m) slots of a class; of older classes */
    const float *xs[SFP__SSD_CHUNK];
    int32_t label[SFP__SSD_CHUNK];
    int quota;       /* of a class, as it was last enforced */
    sfp_arena arena; /* gradients, as long as the parameters that learn */
} sfp__ssd;

/* Sample k of the last WINDOW batches with the one at hand, 0 <= k < WINDOW * max_batch: its label (-1: none), its picture. */
int32_t sfp__ssd_recent_label(const sfp__ssd *s, const sfp_buffer_batch *batch, int k);
const uint8_t *sfp__ssd_recent_picture(const sfp__ssd *s, const sfp_buffer_batch *batch, int k);

/* One step of the synthetic pictures of every class in the batch. On failure nothing has changed. */
sfp_status sfp__ssd_optimise(sfp_buffer *b, const sfp_buffer_batch *batch, sfp_rng *rng, sfp_error *err);

#endif
