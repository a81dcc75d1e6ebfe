/* Page-Hinkley on a series (SPEC section 9): fires when the mean has moved,
 * in either direction, by more than chance and its own spread explain.
 *
 * The series is standardised by its running mean and deviation, so one pair of
 * numbers serves every backbone: `slack` is the shift, in deviations, that is
 * still no drift, `limit` the accumulated excess that fires. After firing it
 * starts anew. */
#ifndef SFP_LEARNER_DRIFT_H
#define SFP_LEARNER_DRIFT_H

#include <stdbool.h>

typedef struct sfp_drift_detector {
    double count, mean, m2; /* running moments (Welford) */
    double up, up_min;      /* accumulated excess upwards and its least value */
    double down, down_max;  /* downwards and its greatest */
} sfp_drift_detector;

/* Takes the next value; true: drift. */
bool sfp__drift_next(sfp_drift_detector *d, double value);

#endif
