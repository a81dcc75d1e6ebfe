/* Sums over samples, from which the closed-form heads are computed (docs/method.md, section 18): for each class the number of
 * samples and the sum of x, and the sum of x x^T over all samples.
 *
 * Sums of two machines add up, a sample can be taken out again, and a label can be corrected, so a head is the same as if it had
 * learned from the final set of samples in any order, up to the rounding of doubles.
 *
 * Each sample has a key, a digest of its image. It belongs to the held-out fold if its key says so, about one in ten. Because
 * this depends on the sample alone, sums of the folds add up, too. Some held-out samples are also kept themselves, those with the
 * lowest keys: calibration needs single samples. If one of them is taken out, the next lowest is not known any more, so there may
 * be one less than without it. */
#ifndef SFP_LEARNER_SUMS_H
#define SFP_LEARNER_SUMS_H

#include "base/thread_pool.h"
#include "learner/state/visit.h"

#include <stdint.h>

enum { SFP_REST, SFP_HELD, SFP_FOLDS }; /* folds: samples that are not held out, samples that are */
enum { SFP_SUMS_GROUP = 32 };           /* samples that are added to the product sums at a time */
enum { SFP_SUMS_KEPT = 256 };           /* held-out samples that are kept */

typedef struct sfp__sums {
    int dim;
    bool products;                   /* whether the sums of products are computed */
    int64_t total[SFP_FOLDS];        /* number of samples */
    double square[SFP_FOLDS];        /* sum of |x|^2 */
    int64_t *count[SFP_FOLDS];       /* (capacity) samples of a class */
    double *class_sum[SFP_FOLDS];    /* (capacity, D) */
    double *product[SFP_FOLDS];      /* sum of x x^T (triangle.h); NULL: none */
    int recent[SFP_FOLDS];           /* samples that are not in `product` yet */
    double *recent_x[SFP_FOLDS];     /* (SFP_SUMS_GROUP, D) */
    int kept;                        /* samples that are kept: */
    uint64_t key[SFP_SUMS_KEPT];     /* lowest first */
    int64_t kept_row[SFP_SUMS_KEPT]; /* class */
    float *kept_x;                   /* (SFP_SUMS_KEPT, D) */
} sfp__sums;

/* sfp__sums_done frees the memory, also after a failure. */
sfp_status sfp__sums_init(sfp__sums *s, int dim, bool products, sfp_error *err);
void sfp__sums_done(sfp__sums *s);
/* Grows the arrays by class from `old` to `capacity` rows; new rows are zero. */
bool sfp__sums_grow(sfp__sums *s, int old, int capacity);

static inline int sfp__sums_fold_of(uint64_t key)
{
    return key % 10 == 0 ? SFP_HELD : SFP_REST;
}

/* Adds a sample of class `row`. */
void sfp__sums_add(sfp__sums *s, const float *x, int row, uint64_t key, sfp__thread_pool *threads);
/* Takes out a sample that was added with this class and key; false: no sample of this class and fold was added. */
bool sfp__sums_remove(sfp__sums *s, const float *x, int row, uint64_t key);
/* Adds the sums of `from`, whose class r is class row[r] here. */
void sfp__sums_merge(sfp__sums *s, const sfp__sums *from, int rows, const int *row);

/* Writes the sum of products over the chosen folds (bits 1 << fold) to `out`. */
void sfp__sums_product(const sfp__sums *s, unsigned folds, double *out, sfp__thread_pool *threads);

/* samples (rows): the number of samples of each class, with which the sums that are read must agree. */
sfp_status sfp__sums_visit(sfp__sums *s, int rows, const int64_t *samples, const sfp__visitor *v, sfp_error *err);

#endif
