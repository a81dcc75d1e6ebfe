/* The interface of the kinds of closed-form heads; only head*.c include this.
 *
 * head.c implements the common part of all heads: input checks, the table of classes, growth, log-softmax, saving and loading. A
 * kind adds sums over samples and a function that computes scores from them. Classes have dense rows in order of their first
 * sample, so an unused label costs four bytes, not a row.
 *
 * Two rules ensure that a loaded head continues with the same bytes:
 *   - The learned (saved) data depends only on the samples, their order and the points at which scores were needed, never on how
 *     the samples are divided into batches.
 *   - The derived data (computed by refresh) is a function of the saved data. */
#ifndef SFP_LEARNER_HEAD_KIND_H
#define SFP_LEARNER_HEAD_KIND_H

#include "base/mem.h"
#include "learner/heads/head.h"
#include "learner/heads/novelty.h"

#define SFP__HEAD_GRAIN 64 /* number of samples that are scored at a time */

/* A function may be NULL only where its comment says so. */
typedef struct sfp__head_kind {
    const char *name;
    size_t size;         /* size of the kind's struct, whose first member is sfp__head */
    bool saves_solution; /* refresh changes tensors of `visit` */

    /* Allocates everything whose size is known. `done` frees the memory of `init` and `grow`, also after a failed `init`. */
    sfp_status (*init)(sfp__head *h, sfp_error *err);
    void (*done)(sfp__head *h);
    /* Grows the arrays by class from h->capacity to `capacity` rows; new rows are zero. On failure nothing has changed. */
    sfp_status (*grow)(sfp__head *h, int capacity, sfp_error *err);
    /* Learns from one sample of class `row`; h->n and h->count[row] do not include it yet. Cannot fail. */
    void (*learn)(sfp__head *h, const float *q, int row, uint64_t key);
    /* Returns the sums of which the head is a function; NULL: the kind is not one. Without it the next two are NULL, too. */
    sfp__sums *(*sums)(sfp__head *h);
    /* Called after the sums were changed other than by `learn`: discards what was computed from them. */
    void (*sums_changed)(sfp__head *h);
    /* Drops the single samples in the sums (sums.h), after an exact refresh, whose solution stays. */
    void (*drop_samples)(sfp__head *h);
    sfp_status (*refresh)(sfp__head *h, bool exact, sfp_error *err);
    /* Computes unnormalised log-probabilities (n, h->rows), n <= SFP__HEAD_GRAIN, after refresh; -INFINITY: a class without samples,
     * or of which the solution does not know yet. Cannot fail. */
    void (*score)(sfp__head *h, int n, const float *q, bool exact, double *out);
    /* Computes the same scores of n <= SFP__HEAD_GRAIN samples x (n, D) that were learned with class row (n), each by the head without the
     * sample, and the scores for unknown classes, NAN: none. After an exact refresh; the sums are those of samples without a half-life.
     * NULL: the kind is not a function of sums. */
    sfp_status (*judge)(sfp__head *h, int n, const float *x, const int *row, double *out, float *unknown, sfp_error *err);
    /* Returns the fitted factor of the scores; NULL: the kind has none. */
    double (*scale)(const sfp__head *h, bool exact);
    /* Returns the data of the score for unknown classes, after an exact refresh; NULL: the kind has none. */
    const sfp__novelty *(*novelty)(const sfp__head *h);
    /* Writes the head, or reads it into a new head whose classes have been read and whose arrays have been grown. */
    sfp_status (*visit)(sfp__head *h, const sfp__visitor *v, sfp_error *err);
    /* Visits only the data that score reads, after refresh; NULL: use `visit`. */
    sfp_status (*visit_inference)(sfp__head *h, const sfp__visitor *v, sfp_error *err);
} sfp__head_kind;

struct sfp__head {
    const sfp__head_kind *kind;
    sfp__head_options opt;
    bool inference_only; /* loaded only for scores */
    int64_t n;           /* number of samples learned from */
    int rows, capacity;  /* number of classes seen; capacity of the arrays by class */
    int64_t *label;      /* (capacity) label of a row */
    int64_t *count;      /* (capacity) number of samples of a row */
    int label_capacity;
    int32_t *row_of; /* (label_capacity) row of a label; -1: not seen */
    double *raw;     /* (SFP__HEAD_GRAIN, capacity) */
};

extern const sfp__head_kind sfp__head_ncm, sfp__head_slda, sfp__head_ridge, sfp__head_ranpac;

/* Grows *p from `old` to `count` elements of `size` bytes; the new elements are zero. Returns false if there is no memory; *p is
 * then unchanged. */
bool sfp__head_extend(void *p, size_t size, size_t old, size_t count);

/* Returns the scale for which softmax(scale * scores) predicts samples best that the scores were not computed from. scores (n,
 * rows); row (n): the class of a sample; first: a likely value. Samples of a class without scores are not used. */
double sfp__head_fit_scale(int n, int rows, const double *scores, const int64_t *row, double first);

/* Computes the log-softmax over the rows whose label is below `classes`; the other elements of out (classes) are unchanged. */
void sfp__head_log_softmax(int rows, const int64_t *label, const double *raw, int classes, float *out);

#endif
