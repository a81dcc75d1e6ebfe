/* Sizes of small ViTs. Golden numbers depend on these sizes and on the seeds of the weights. */
#ifndef SFP_TESTS_VIT_MAKE_H
#define SFP_TESTS_VIT_MAKE_H

#include "model/vit.h"

/* Arguments: side and patch in pixels, width, blocks, heads, hidden width; mean and standard deviation of all channels; other
 * members. */
#define VIT(...) VIT_EPS(1e-6f, __VA_ARGS__)
#define VIT_EPS(eps, S, patch, D, blocks, H, width, mean_, std_, ...)                                                          \
    {                                                                                                                          \
        .img_size = (S), .patch_size = (patch), .channels = 3, .dim = (D), .depth = (blocks), .heads = (H), .hidden = (width), \
        .ln_eps = (eps), .mean = {mean_, mean_, mean_}, .std = {std_, std_, std_}, __VA_ARGS__                                 \
    }

#endif
