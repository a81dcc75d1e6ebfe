/* Sums over samples, from which the closed-form heads are computed (docs/method.md, section 18): for each class the number of
 * samples and the sum of x, and the sum of x x^T over all samples.
 *
 * Sums of several machines can be added, samples can be subtracted again, and labels can be corrected. The head is then the same as if it had
 * learned only the final set of samples, in any order, up to the rounding of doubles.
 *
 * A random part of the samples is also kept: the strength of regularisation and the calibration are chosen by leaving out each kept sample. The
 * samples with the lowest keys are kept. Keys are digests of the images, so this does not depend on the order of the samples. If a kept sample is
 * forgotten, the sample with the next lowest key is not available any more, so one sample less is kept.
 *
 * With a half-life, older samples count less. To avoid changing all sums, the weight of new samples grows instead: it doubles with each half-life.
 * Such sums depend on the order of the samples, so they cannot be merged, and no sample can be taken out. */
#ifndef SFP_LEARNER_SUMS_H
#define SFP_LEARNER_SUMS_H

#include "base/thread_pool.h"
#include "io/tensor/visit.h"

#include <stdint.h>

enum { SFP__SUMS_GROUP = 32 };                                  /* samples that are added to the product sums at a time */
enum { SFP__SUMS_KEPT = 256 };                                  /* samples that are kept */
enum { SFP__LAMBDA, SFP__SCALE, SFP__SCALING, SFP__STRENGTHS }; /* what is chosen by leaving kept samples out (head_ridge_judge.c) */

typedef struct sfp__sums {
    int dim;
    bool products;                    /* whether the sums of products are computed */
    double half_life;                 /* in samples; 0: all samples count the same */
    double weight;                    /* of the next sample; 1 without a half-life */
    double total;                     /* weight of all samples */
    double square;                    /* sum of |x|^2 */
    double *mass;                     /* (capacity) weight of the samples of a class: their number without a half-life */
    double *class_sum;                /* (capacity, D) */
    double *product;                  /* sum of x x^T (triangle.h); NULL: none */
    int recent;                       /* samples that are not in `product` yet */
    double *recent_x;                 /* (SFP__SUMS_GROUP, D) */
    int kept;                         /* number of kept samples */
    uint64_t key[SFP__SUMS_KEPT];     /* their keys, lowest first */
    int64_t kept_row[SFP__SUMS_KEPT]; /* their classes */
    float *kept_x;                    /* (SFP__SUMS_KEPT, D) */
    /* Strengths that were chosen before the kept samples were dropped: the number of samples, and the sums of log lambda, log scale and
     * scaling over them. */
    double dropped[1 + SFP__STRENGTHS];
} sfp__sums;

/* sfp__sums_done frees the memory, also after a failure. */
sfp_status sfp__sums_init(sfp__sums *s, int dim, bool products, double half_life, sfp_error *err);
void sfp__sums_done(sfp__sums *s);
/* Grows the arrays by class from `old` to `capacity` rows; new rows are zero. */
bool sfp__sums_grow(sfp__sums *s, int old, int capacity);

/* Adds a sample of class `row` of `rows`; number: that of the samples before it. */
void sfp__sums_add(sfp__sums *s, const float *x, int row, int rows, uint64_t key, int64_t number, sfp__thread_pool *threads);
/* Takes out a sample that was added with this class and key. */
void sfp__sums_remove(sfp__sums *s, const float *x, int row, uint64_t key);
/* Adds the sums of `from`. Row r of `from` (0 <= r < rows) is row row[r] of `s`; row[r] is -1 if `s` does not have the class, which then
 * has no samples in `from`. */
void sfp__sums_merge(sfp__sums *s, const sfp__sums *from, int rows, const int *row);
/* Subtracts the sums of `from`, which must not have more samples of a class than `s`. */
void sfp__sums_subtract(sfp__sums *s, const sfp__sums *from, int rows, const int *row);

/* Takes out a class. Products are not stored by class, so only the product of the class mean can be subtracted: the spread of its samples around
 * their mean remains in the spread of all classes. */
void sfp__sums_leave_out(sfp__sums *s, int row);
/* Drops the single samples: adds the recent ones to the products and removes the kept ones. `strength` (SFP__STRENGTHS) was chosen with the kept
 * samples; NULL: none was chosen. */
void sfp__sums_drop_samples(sfp__sums *s, const double *strength);
/* Writes the strengths that were chosen with dropped samples; false: there are none, and `strength` is unchanged. */
bool sfp__sums_dropped_strength(const sfp__sums *s, double *strength);

/* Writes the sum of products to `out`. */
void sfp__sums_product(const sfp__sums *s, double *out, sfp__thread_pool *threads);

/* Returns the size of the tensors of sfp__sums_visit in bytes, without the smallest ones. */
size_t sfp__sums_bytes(const sfp__sums *s, int rows);

/* Visits the tensors of the sums. samples (rows): the number of samples of each class; sums that are read must agree with them. */
sfp_status sfp__sums_visit(sfp__sums *s, int rows, const int64_t *samples, const sfp__visitor *v, sfp_error *err);

#endif
