/* The arithmetic of summarising stream data (Gu et al., "Summarizing Stream Data for Memory-Constrained Online Continual
 * Learning", AAAI 2024; SPEC section 12) without a model: two distances with their gradients, and one step of a picture.
 * buffer_ssd.c puts them together. */
#ifndef SFP_BUFFER_SSD_H
#define SFP_BUFFER_SSD_H

#include <stddef.h>

enum {
    SFP_SSD_EVERY = 6,   /* batches from one optimisation to the next */
    SFP_SSD_WINDOW = 16, /* batches whose samples are matched */
    SFP_SSD_MEMORY = 10, /* most pictures of older classes that distances are taken to */
};
#define SFP_SSD_RATE 4e-3f
#define SFP_SSD_MOMENTUM 0.9f

/* Length of h*v in the central difference over the parameters. Learnable components have length 1 (SPEC section 2), so this is a
 * small part of what it moves, and still far above float's noise: tests/unit/test_ask_pixels.c has the error from 1e-5 to 10. */
#define SFP_SSD_REACH 1e-2

/* Matching of gradients, gs of synthetic and gr of real samples: |gs - gr|^2 and, in v, its gradient to gs, 2 (gs - gr). v may be
 * either of them. */
double sfp__ssd_gap(size_t n, const float *gs, const float *gr, float *v);

/* to (D) += scale * the sum of the rows (n, D), each of length 1. */
void sfp__ssd_add_units(int n, int D, const float *rows, float scale, float *to);

/* Matching of relations: sum over j of | |s - m_j| - |r - m_j| |, s the mean unit vector of feature (n, D), r that of the real
 * samples (D), m_j the unit vector of row j of memory (count, D); and its gradient to the features. */
double sfp__ssd_relation(int n, int D, const float *feature, const float *real, int count, const float *memory,
                         float *work /* (3, D) */, float *dfeature /* (n, D) */);

/* SGD with momentum on n pixels of one channel, kept in [low, high], which is what 8 bits can hold: u' = .9 u + g,
 * x' = x - rate u'. u_next may be NULL; outputs may be the inputs. */
void sfp__ssd_step(size_t n, float low, float high, const float *g, const float *u, const float *x, float *u_next, float *x_next);

#endif
