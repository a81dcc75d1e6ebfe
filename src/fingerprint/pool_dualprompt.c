/* DualPrompt (Wang et al. 2022, "DualPrompt: Complementary Prompting for
 * Rehearsal-free Continual Learning", section 4; SPEC section 13): a general
 * prompt in each of the first two prompted layers, which all samples share and
 * all tasks train, and in the layers behind them an expert a task, with a key.
 * Training takes the expert of the task, a test the one with the key nearest to
 * the query; the key of the expert is drawn to the task's queries by
 * mean(1 - cos).
 *
 * With J known tasks there are J experts, whatever --pool says; those of
 * earlier tasks are frozen. On a free stream, which has no tasks, an expert
 * opens where coda opens a span (SPEC section 9), at most --pool of them, and
 * is the one that learns; when all are open and another is asked for, all learn
 * from then on, and a sample of the stream takes the nearest like one of a test.
 *
 * Where this departs from the authors' code:
 * - They have no rehearsal. Here a rehearsed sample takes the nearest expert,
 *   as in a test: the classifier then learns what it will be asked, and frozen
 *   experts are not worn down to the present one.
 * - A key for each layer's expert, as in CODA-Prompt's release; the authors
 *   have one for all layers. The layers' keys see the same queries (but with
 *   --query one, where each layer has its own).
 * - The term is a mean over samples and layers with weight 1; theirs has a
 *   coefficient, CODA-Prompt's release sums.
 * - General and expert prompts have one length (--prompt-length; the paper: 5
 *   and 20), start orthonormal (SPEC section 2), not uniform, and are attuned
 *   like fingerprints unless --attune is off. */
#include "fingerprint/pool_kind.h"

enum { GENERAL = 2 };

static sfp_status check(sfp_fp_options *o, sfp_error *err)
{
    if (o->last_layer - o->first_layer < GENERAL)
        return sfp__fail_key(
            err, "prompt-layers", SFP_EINVAL,
            "prompt-layers %d-%d with pool-kind dualprompt, expected %d layers or more: %d for the general prompt",
            o->first_layer, o->last_layer, GENERAL + 1, GENERAL);
    if (o->tasks > 0)
        o->pool = o->tasks;
    o->span = 1;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_dualprompt = {.name = "dualprompt",
                                             .parts = 1,
                                             .shared_layers = GENERAL,
                                             .check = check,
                                             .prepare = sfp__choose_prepare,
                                             .compose = sfp__choose_compose,
                                             .backward = sfp__choose_backward};
