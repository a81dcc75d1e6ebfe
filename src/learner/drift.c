#include "learner/drift.h"

#include <math.h>

static const double slack = 0.5, limit = 20;
static const double warm_up = 30; /* values before anything can fire */

bool sfp__drift_next(sfp_drift_detector *d, double value)
{
    if (!isfinite(value))
        return false;
    double deviation = d->count > 1 ? sqrt(d->m2 / (d->count - 1)) : 0;
    if (d->count >= warm_up && deviation > 0) {
        double z = (value - d->mean) / deviation;
        d->up += z - slack;
        d->down += z + slack;
        d->up_min = fmin(d->up_min, d->up);
        d->down_max = fmax(d->down_max, d->down);
        if (d->up - d->up_min > limit || d->down_max - d->down > limit) {
            *d = (sfp_drift_detector){0};
            return true;
        }
    }
    d->count++;
    double delta = value - d->mean;
    d->mean += delta / d->count;
    d->m2 += delta * (value - d->mean);
    return false;
}
