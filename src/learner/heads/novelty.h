/* A score for images that belong to none of the classes (docs/method.md, section 18): the squared Mahalanobis distance of a query to
 * the nearest class mean, as a quantile of the distances of samples of known classes that are left out. It is 0.95 if the query is farther
 * from all means than 95 % of these. */
#ifndef SFP_LEARNER_NOVELTY_H
#define SFP_LEARNER_NOVELTY_H

#include "learner/heads/sums.h"

enum { SFP__NOVELTY_KEPT_MIN = 20 }; /* with fewer samples to leave out images have no score */
enum { SFP__NOVELTY_QUANTILES = 101 };

typedef struct sfp__novelty {
    int dim;                                 /* D: samples may have more values, of which the last D are used */
    int rows;                                /* number of class means; 0: images have no score */
    double *centre;                          /* (D) */
    double *factor;                          /* triangle.h: U, where U^T U is the covariance within classes */
    double *mean;                            /* (capacity, D) U^-T (mean - centre), so that distances are Euclidean */
    size_t capacity;                         /* of a copy */
    double *work;                            /* (D) of a fit and of sfp__novelty_score_left_out */
    double share;                            /* of the shrinkage of the covariance; only after a fit */
    double quantile[SFP__NOVELTY_QUANTILES]; /* of squared distances, increasing */
} sfp__novelty;

/* sfp__novelty_done frees the memory, also after a failure. */
sfp_status sfp__novelty_init(sfp__novelty *y, int dim, sfp_error *err);
void sfp__novelty_done(sfp__novelty *y);
/* Grows the means from `old` to `capacity` rows. */
bool sfp__novelty_grow(sfp__novelty *y, int old, int capacity);

/* Computes means, covariance and quantiles. The quantiles are those of the kept samples, each compared with means and covariance without it. The
 * sums must have `rows` classes and include products. */
void sfp__novelty_fit(sfp__novelty *y, const sfp__sums *s, int rows, sfp__thread_pool *threads);
/* Removes the means and all that was computed from samples. */
void sfp__novelty_clear(sfp__novelty *y);
/* Returns the score of a query x (D), from 0 to 1; NAN: there is none. work (D). */
float sfp__novelty_score(const sfp__novelty *y, const float *x, double *work);

/* Returns the score of a sample x (D) of class `row` by means and covariance without it, after a fit to the sums, which contain it. */
float sfp__novelty_score_left_out(sfp__novelty *y, const sfp__sums *s, const float *x, int64_t row);

/* A state without these tensors has no score. rows: the number of classes of the head. */
sfp_status sfp__novelty_visit(sfp__novelty *y, int rows, const sfp__visitor *v, sfp_error *err);

#endif
