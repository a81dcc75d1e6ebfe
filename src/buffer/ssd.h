/* The arithmetic of summarising stream data (Gu et al., "Summarizing Stream Data for Memory-Constrained Online Continual
 * Learning", AAAI 2024; docs/method.md, section 12), independent of a model: two distances with their gradients, and one step of
 * an image. It is followed by the state that the two files of the buffer method ssd share: buffer_ssd.c stores samples, ssd.c
 * optimises synthetic images. */
#ifndef SFP_BUFFER_SSD_H
#define SFP_BUFFER_SSD_H

#include "buffer/buffer.h"

enum { SFP__SSD_MEMORY = 10 }; /* maximum number of images of older classes that a class is compared with */
#define SFP__SSD_RATE 4e-3f    /* for pixels in [0, 1] */
#define SFP__SSD_MOMENTUM 0.9f

/* Length of h*v in the central difference over the parameters. Learnable components have length 1 (docs/method.md, section 2), so
 * this is a small change of them, and still far above the rounding noise of float. tests/unit/test_model_ops_pixels.c tests the
 * error from 1e-5 to 10. */
#define SFP__SSD_REACH 1e-2

/* Gradient matching: returns |gs - gr|^2, where gs is the gradient of synthetic and gr that of real samples, and writes its
 * derivative with respect to gs to v: 2 (gs - gr). v may be gs or gr. */
double sfp__ssd_gap(size_t n, const float *gs, const float *gr, float *v);

/* Relation matching: returns the sum over j of | |s - m_j| - |r - m_j| | and writes its gradient with respect to the features. s
 * is the mean unit vector of feature (n, D), r that of the real samples (D), and m_j the unit vector of row j of memory (count,
 * D). */
double sfp__ssd_relation(int n, int D, const float *feature, const float *real, int count, const float *memory,
                         float *work /* (3, D) */, float *dfeature /* (n, D) */);

/* Returns the rate of a step on normalised pixels x = (p - mean) / std that equals a step of SFP__SSD_RATE on the pixels p in
 * [0, 1]. The gradient with respect to p is that with respect to x, divided by std; a change of p is std times a change of x. */
float sfp__ssd_rate(float std);

/* The values of one channel of an image. */
typedef struct sfp__ssd_channel {
    float low, high; /* normalised values of the bytes 0 and 255 */
    float rate;      /* sfp__ssd_rate */
} sfp__ssd_channel;

/* One step of SGD with momentum on n pixels of one channel: u' = .9 u + g, x' = x - rate u'. x' is clipped to [low, high], the
 * range of 8-bit pixels. u_next may be NULL; outputs may be the inputs. */
void sfp__ssd_step(size_t n, const sfp__ssd_channel *c, const float *g, const float *u, const float *x, float *u_next,
                   float *x_next);

/* ---------------------------------------------------------- the buffer's state */

enum { SFP__SSD_CHUNK = 16 }; /* maximum number of images that are converted to pixels at a time */

typedef enum sfp__ssd_action {
    SFP__SSD_KEEP,
    SFP__SSD_STEP_PIXELS,
    SFP__SSD_STEP_BYTES
} sfp__ssd_action; /* a slot is unchanged; its pixels change; its pixels and its bytes change */

typedef struct sfp__ssd {
    int slots, side, max_batch, dim;
    size_t pixels; /* size of an image: 3*S*S numbers */
    float mean[3], std[3];
    sfp__ssd_channel channel[3];
    sfp__ssd_timing timing;

    struct {
        /* Contents of checkpoints. Values may come from a damaged or malicious file, so every use of them must be safe for any
         * value. */
        uint8_t *synthetic;    /* (m) 1: the image of the slot is synthetic */
        float *x, *u;          /* (m, 3, S, S) normalised pixels and momentum of the synthetic images; zeros in other slots */
        uint8_t *recent;       /* (window, max_batch, S, S, 3) images of the recent batches */
        int32_t *recent_label; /* (window, max_batch); -1: no sample */
        float *recent_query;   /* (window, max_batch, D) */
        uint8_t *recent_known; /* (window, max_batch) 1: the query is known; else it is zeros */
        int64_t batches;       /* number of batches of the task so far; the current batch is in row `batches % window` */
    } kept;

    struct {
        float *grad;     /* (m, 3, S, S) gradient of the matching loss */
        uint8_t *step;   /* (m) sfp__ssd_action of each slot */
        float *in;       /* (CHUNK, 3, S, S) */
        float *out;      /* (CHUNK, D) */
        uint8_t *rgb;    /* (S, S, 3) */
        float *feature;  /* (m, D) features of a class's synthetic images; later mean embeddings by slot */
        float *dfeature; /* (m, D) */
        /* (m, D) queries of a class's synthetic images; they differ from those of the bytes in the slots */
        float *query;
        float *older;                   /* (m, D) features of images of older classes by slot, valid during one optimisation */
        uint8_t *has_features;          /* (m) 1: row of `older` is valid */
        float *memory;                  /* (MEMORY, D) features that a class is compared with */
        float *real;                    /* (D) mean unit feature of the real samples */
        float *work;                    /* (3, D) */
        int *class_slots, *older_slots; /* (m) slots of the class; slots of older classes */
    } scratch;

    /* Arguments of the model callbacks: the images of a class or a chunk of other images. */
    struct {
        const float **xs; /* (max(m, CHUNK)) like the other arrays of this struct */
        int32_t *label;
        float **queries;
        bool *known;
        float **dx;
    } request;

    int quota;        /* number of synthetic images per class, as last enforced; -1: never enforced */
    sfp__arena arena; /* gradients (params) */
} sfp__ssd;

/* Makes one step of the synthetic images of every class in the batch, which must be in the window. Writes to *moved the mean
 * absolute change of their pixels in byte levels, over all images that made a step. On failure nothing has changed, except that
 * more queries may be known. */
sfp_status sfp__ssd_optimise(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, double *moved, sfp_error *err);

#endif
