/* A small network that predicts the loss of a sample from the token means after each quarter of the blocks. It follows Yoo and
 * Kweon, "Learning Loss for Active Learning", CVPR 2019, with vectors in place of pooled maps. Each mean -> 128, ReLU; the four
 * results concatenated -> 1.
 *
 * It is trained by ranking. Of n samples, i and n-1-i form a pair, and the sample with the larger loss should have a prediction
 * that is larger by 1: L = mean over pairs of max(0, 1 - s (p_i - p_j)), s = 1 if l_i > l_j, else -1. */
#ifndef SFP_SELECT_LOSSNET_H
#define SFP_SELECT_LOSSNET_H

#include "base/rng.h"
#include "compute/param.h"
#include "select/select.h"

enum { SFP__LOSSNET_WIDTH = 128, SFP__LOSSNET_JOINED = SFP__TAPS * SFP__LOSSNET_WIDTH, SFP__LOSSNET_PARAMS = 2 * SFP__TAPS + 2 };

typedef struct sfp__lossnet {
    int dim;
    sfp__param param[SFP__LOSSNET_PARAMS]; /* w0 (128, D), b0 (128), ..., w (1, 512), b (1) */
} sfp__lossnet;

/* Draws weights and biases uniformly from +-1/sqrt(inputs). */
sfp_status sfp__lossnet_init(sfp__lossnet *net, int dim, sfp__rng *rng, sfp_error *err);
void sfp__lossnet_done(sfp__lossnet *net);

/* taps (n, SFP__TAPS, D) -> hidden (n, 512) after ReLU -> predicted (n) */
void sfp__lossnet_fwd(const sfp__lossnet *net, int n, const float *taps, float *hidden, float *predicted);
/* Adds to the parameter gradients, given the gradient of the predictions. `hidden` is the output of fwd and is overwritten. */
void sfp__lossnet_bwd(sfp__lossnet *net, int n, const float *taps, float *hidden, const float *grad);
/* Returns L and writes its gradient with respect to the predictions. L is 0 for fewer than two samples. */
double sfp__lossnet_rank_loss(int n, const float *predicted, const float *loss, float *grad);

#endif
