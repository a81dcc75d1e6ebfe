/* Ranking by score, and places in what is sorted. */
#ifndef SFP_BASE_RANK_H
#define SFP_BASE_RANK_H

#include <stdint.h>

/* Positions 0..n-1 by score descending, ties by lower index, NaN last. One right answer, so the same on every machine;
 * no memory but `order`. */
void sfp__rank_descending(int n, const float *score, int *order);

/* The first of n ascending values that is not below `value`; n: there is none. */
int64_t sfp__lower_bound(const int64_t *at, int64_t n, int64_t value);

#endif
