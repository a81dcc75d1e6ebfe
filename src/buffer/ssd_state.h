/* What the two files of the buffer ssd share: buffer_ssd.c (what is stored), ssd_match.c (what becomes of synthetic pictures). */
#ifndef SFP_BUFFER_SSD_STATE_H
#define SFP_BUFFER_SSD_STATE_H

#include "base/mem.h"
#include "buffer/buffer.h"
#include "buffer/ssd.h"

enum { SFP__SSD_CHUNK = 16 }; /* pictures that are pixels at a time */

typedef enum sfp__ssd_fate { SFP__SSD_STAYS, SFP__SSD_MOVES, SFP__SSD_CHANGES } sfp__ssd_fate; /* pixels, pixels and bytes */

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
    float *recent_query;   /* (WINDOW, max_batch, D) */
    uint8_t *recent_known; /* (WINDOW, max_batch) whether the query is; else it is zeros */
    int64_t batches;       /* offered so far: the one at hand is in row `batches % WINDOW` */

    /* scratch */
    float *grad;      /* (m, 3, S, S) of the matching loss */
    uint8_t *step;    /* (m) what becomes of a slot: sfp__ssd_fate */
    float *in;        /* (CHUNK, 3, S, S) */
    float *out;       /* (CHUNK, D) */
    uint8_t *rgb;     /* (S, S, 3) */
    float *feature;   /* (m, D) of a class's synthetic pictures; then mean embeddings, by slot */
    float *dfeature;  /* (m, D) */
    float *query;     /* (m, D) of a class's synthetic pictures as they are: not those of the bytes in their slots */
    float *older;     /* (m, D) features of older classes' pictures, by slot, for one optimisation */
    uint8_t *looked;  /* (m) whether they are there */
    float *memory;    /* (MEMORY, D) those that a class is compared with */
    float *real;      /* (D) mean unit feature of real samples */
    float *work;      /* (3, D) */
    int *mine, *deck; /* (m) slots of a class; of older classes */

    /* pictures that are asked about: those of a class or a chunk of others */
    const float **xs; /* (max(m, CHUNK)), all of them */
    int32_t *label;
    float **queries;
    bool *known;
    float **dx;

    int quota;       /* of a class, as it was last enforced */
    sfp_arena arena; /* gradients, as long as the parameters that learn */
} sfp__ssd;

/* One step of the synthetic pictures of every class in the batch, which is in the window. On failure nothing has changed, but
 * queries that are known now. */
sfp_status sfp__ssd_optimise(sfp_buffer *b, const sfp_buffer_batch *batch, sfp_rng *rng, sfp_error *err);

#endif
