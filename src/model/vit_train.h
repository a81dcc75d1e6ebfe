/* A vit that learns: its weights as one block of floats, so that an optimiser, an average and a checkpoint are plain loops,
 * and the way new weights come into the packed copies that passes read. */
#ifndef SFP_MODEL_VIT_TRAIN_H
#define SFP_MODEL_VIT_TRAIN_H

#include "model/vit.h"

/* Floats of all weights of such a vit in one block; each tensor begins at a multiple of 16. */
size_t sfp__vit_flat_count(const sfp_vit_config *c);

/* The tensors in a block of that many floats, which stays the caller's. */
sfp_status sfp__vit_flat_view(const sfp_vit_config *c, float *block, sfp_vit_weights *out, sfp_error *err);
void sfp__vit_flat_view_done(sfp_vit_weights *view);

/* What a training starts from: weights of products uniform by their fan (the ones that end a residual branch scaled down by
 * the number of branches), norms 1, biases 0, class token normal with 0.02. Two things that a short training has no time to
 * find: positions are sines and cosines of row and column, and keys start equal to queries, so tokens attend to what is like
 * them and near them. */
sfp_status sfp__vit_flat_init(const sfp_vit_config *c, uint64_t seed, sfp_vit_weights *view, sfp_error *err);

/* Of two sets of the same sizes; `c` says whether there is a head. */
void sfp__vit_weights_copy(const sfp_vit_config *c, sfp_vit_weights *to, const sfp_vit_weights *from);

/* Copies the weights into a vit made by sfp__vit_random and packs them again. No pass may run meanwhile. */
sfp_status sfp__vit_set_weights(sfp_vit *v, const sfp_vit_weights *from, sfp_error *err);

#endif
