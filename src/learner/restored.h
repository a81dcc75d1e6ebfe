/* A state file (state.h) opened to answer and nothing else: no trainer, no
 * buffer, no gradients; the settings come from the file. Immutable once made,
 * but for the scratch memory of `heads`. */
#ifndef SFP_LEARNER_RESTORED_H
#define SFP_LEARNER_RESTORED_H

#include "learner/saved.h"

typedef struct sfp_restored {
    sfp_learner_options opt; /* as far as answers need them: fp, head, resize, mean, std, batch, seed */
    bool method;             /* a closed-form head alone: heads[0] */
    sfp_fp *fp;              /* NULL with a method */
    sfp_head *heads[SFP_HEAD_EXPERTS];
    sfp_saved_names names;
    sfp_snapshot snapshot; /* what a predictor reads, into the above; its view has no layers with a method */
} sfp_restored;

/* `threads` is used while loading. A message names file, tensor or key, what was found and what was expected. */
sfp_status sfp__restored_load(sfp_vit *vit, sfp_thread_pool *threads, const char *path, sfp_restored **out, sfp_error *err);
void sfp__restored_free(sfp_restored *r);

#endif
