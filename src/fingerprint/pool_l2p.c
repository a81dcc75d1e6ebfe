/* L2P (Wang et al. 2022, "Learning to Prompt for Continual Learning", section
 * 4; SPEC section 13): one pool of prompts for all tasks, in one layer. A
 * sample takes the five whose keys are nearest to its query; their keys are
 * drawn to the query by mean(1 - cos).
 *
 * The layer is the first of --prompt-layers. There is no task in it: all
 * prompts learn from beginning to end, on known tasks and on free streams, and
 * nothing is opened.
 *
 * Where this departs from the authors' code:
 * - A prompt's halves go to the keys and the values of the layer (--prefix), as
 *   every kind here and CODA-Prompt's release of L2P have it; the authors
 *   prepend prompts to the tokens and classify by the mean of what becomes of
 *   them. The class token is what all parts of this program read.
 * - The term is a mean over samples and choices with weight 1; the authors'
 *   is a mean over samples of sums over choices with a coefficient, CODA-Prompt's
 *   release takes every sample with every other's choices (cos_sim[:, k_idx]).
 *   Keys have no other term, so that Adam makes little of its scale.
 * - Prompts and keys start orthonormal (SPEC section 2) instead of uniform in
 *   [0, 1): keys that all point the same way are chosen by nothing but noise.
 * - Prompts are not weighed by how often earlier tasks chose them (the paper's
 *   option for when boundaries are known).
 * - With --attune on (default) prompts are attuned as fingerprints are; off is
 *   the published method. */
#include "fingerprint/pool_kind.h"

static sfp_status check(sfp_fp_options *o, sfp_error *err)
{
    if (o->query_one && o->first_layer == 0)
        return sfp__fail_key(
            err, "pool-kind", SFP_EINVAL,
            "pool-kind l2p chooses by the query, and with query one that of layer 0 is the same for every image");
    o->last_layer = o->first_layer;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_l2p = {.name = "l2p",
                                      .parts = 5,
                                      .whole = true,
                                      .check = check,
                                      .prepare = sfp__choose_prepare,
                                      .compose = sfp__choose_compose,
                                      .backward = sfp__choose_backward};
