/* The steps of a plot's axis. */
#ifndef SFP_BASE_AXIS_H
#define SFP_BASE_AXIS_H

#include <math.h>

/* 1, 2 or 5 times a power of ten: about `count` steps up to `range` > 0. */
static inline double sfp__nice_step(double range, int count)
{
    double raw = range / count, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

#endif
