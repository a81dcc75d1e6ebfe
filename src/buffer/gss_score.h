/* The numbers of gradient-based sample selection, without who computes gradients (buffer_gss.c; Aljundi et al. 2019). */
#ifndef SFP_BUFFER_GSS_SCORE_H
#define SFP_BUFFER_GSS_SCORE_H

#include "base/thread_pool.h"

#include <stddef.h>

/* Groups of up to 10 slots, at most 20, all different slots: as many whole groups as `filled` slots give. */
enum { SFP_GSS_GROUPS = 20, SFP_GSS_GROUP = 10 };
int sfp__gss_group_size(int filled);
int sfp__gss_groups(int filled);

/* To unit length; zeros stay. */
void sfp__gss_unit(size_t n, float *g);

/* The largest cosine of g to one of the groups (groups, n) of unit length; 0 to one without length. Those that are not numbers do
 * not count, and when none is left it is 1: as like the others as can be. Sums in double. */
float sfp__gss_score(size_t n, int groups, const float *group, const float *g, sfp_thread_pool *threads /* or NULL */);

/* Weights by which slots are drawn: (s - min) / (max - min + 0.01), a score that is not finite counting as 1. */
void sfp__gss_weights(int n, const float *score, double *weight);

/* Probability that a slot's sample gives way to a new one: (s_slot + 1) / ((s_slot + 1) + (s_new + 1)); one half when both are
 * -1. */
double sfp__gss_replace(float slot, float fresh);

#endif
