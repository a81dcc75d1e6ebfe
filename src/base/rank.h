/* Ranking by score: what coreset selection and rehearsal share. */
#ifndef SFP_BASE_RANK_H
#define SFP_BASE_RANK_H

/* Positions 0..n-1 by score descending, ties by lower index, NaN last. One right answer, so the same on every machine;
 * no memory but `order`. */
void sfp__rank_descending(int n, const float *score, int *order);

#endif
