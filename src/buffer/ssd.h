/* The arithmetic of summarising stream data (Gu et al., "Summarizing Stream Data for Memory-Constrained Online Continual
 * Learning", AAAI 2024; docs/method.md, section 12) without a model: two distances with their gradients, and one step of an
 * image. Then what the two files of the buffer ssd share: buffer_ssd.c (what is stored), ssd.c (what becomes of synthetic
 * images). */
#ifndef SFP_BUFFER_SSD_H
#define SFP_BUFFER_SSD_H

#include "buffer/buffer.h"

enum {
    SFP_SSD_EVERY = 6,   /* batches from one optimisation to the next */
    SFP_SSD_WINDOW = 16, /* batches whose samples are matched */
    SFP_SSD_MEMORY = 10, /* most images of older classes that distances are taken to */
};
#define SFP_SSD_RATE 4e-3f
#define SFP_SSD_MOMENTUM 0.9f

/* Length of h*v in the central difference over the parameters. Learnable components have length 1 (docs/method.md, section 2), so
 * this is a small part of what it moves, and still far above float's noise: tests/unit/test_model_ops_pixels.c has the error from
 * 1e-5 to 10. */
#define SFP_SSD_REACH 1e-2

/* Matching of gradients, gs of synthetic and gr of real samples: |gs - gr|^2 and, in v, its gradient to gs, 2 (gs - gr). v may be
 * either of them. */
double sfp__ssd_gap(size_t n, const float *gs, const float *gr, float *v);

/* Matching of relations: sum over j of | |s - m_j| - |r - m_j| |, s the mean unit vector of feature (n, D), r that of the real
 * samples (D), m_j the unit vector of row j of memory (count, D); and its gradient to the features. */
double sfp__ssd_relation(int n, int D, const float *feature, const float *real, int count, const float *memory,
                         float *work /* (3, D) */, float *dfeature /* (n, D) */);

/* SGD with momentum on n pixels of one channel, kept in [low, high], which is what 8 bits can hold: u' = .9 u + g,
 * x' = x - rate u'. u_next may be NULL; outputs may be the inputs. */
void sfp__ssd_step(size_t n, float low, float high, const float *g, const float *u, const float *x, float *u_next, float *x_next);

/* ---------------------------------------------------------- the buffer's state */

enum { SFP__SSD_CHUNK = 16 }; /* images that are pixels at a time */

typedef enum sfp__ssd_action {
    SFP__SSD_KEEP,
    SFP__SSD_STEP_PIXELS,
    SFP__SSD_STEP_BYTES
} sfp__ssd_action; /* pixels, pixels and bytes */

typedef struct sfp__ssd {
    int slots, side, max_batch, dim;
    size_t pixels; /* numbers of an image: 3*S*S */
    float mean[3], std[3];
    float low[3], high[3]; /* of a channel, normalised: bytes 0 and 255 */

    struct {
        /* kept by checkpoints. Values from a file are as hostile as the file: every use of them holds for any. */
        uint8_t *synthetic;    /* (m) 1: the slot's image is one of ours */
        float *x, *u;          /* (m, 3, S, S) their pixels, normalised, and SGD's momentum; zeros where there is none */
        uint8_t *recent;       /* (WINDOW, max_batch, S, S, 3) images of the last batches */
        int32_t *recent_label; /* (WINDOW, max_batch); -1: no sample */
        float *recent_query;   /* (WINDOW, max_batch, D) */
        uint8_t *recent_known; /* (WINDOW, max_batch) whether the query is; else it is zeros */
        int64_t batches;       /* offered so far: the one at hand is in row `batches % WINDOW` */
    } kept;

    struct {
        float *grad;           /* (m, 3, S, S) of the matching loss */
        uint8_t *step;         /* (m) what becomes of a slot: sfp__ssd_action */
        float *in;             /* (CHUNK, 3, S, S) */
        float *out;            /* (CHUNK, D) */
        uint8_t *rgb;          /* (S, S, 3) */
        float *feature;        /* (m, D) of a class's synthetic images; then mean embeddings, by slot */
        float *dfeature;       /* (m, D) */
        float *query;          /* (m, D) of a class's synthetic images as they are: not those of the bytes in their slots */
        float *older;          /* (m, D) features of older classes' images, by slot, for one optimisation */
        uint8_t *has_features; /* (m) whether they are there */
        float *memory;         /* (MEMORY, D) those that a class is compared with */
        float *real;           /* (D) mean unit feature of real samples */
        float *work;           /* (3, D) */
        int *mine, *deck;      /* (m) slots of a class; of older classes */
    } scratch;

    /* images that are asked about: those of a class or a chunk of others */
    struct {
        const float **xs; /* (max(m, CHUNK)), all of them */
        int32_t *label;
        float **queries;
        bool *known;
        float **dx;
    } request;

    int quota;        /* of a class, as it was last enforced */
    sfp__arena arena; /* gradients, as long as the parameters that learn */
} sfp__ssd;

/* One step of the synthetic images of every class in the batch, which is in the window. On failure nothing has changed, but
 * queries that are known now. */
sfp_status sfp__ssd_optimise(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp_error *err);

#endif
