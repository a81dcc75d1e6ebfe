/* How good features are, cheaply: nearest class mean and k nearest neighbours, both from pictures that were trained on to
 * pictures that were not. */
#ifndef SFP_PRETRAIN_SCORE_H
#define SFP_PRETRAIN_SCORE_H

#include "model/vit.h"
#include "pretrain/image_set.h"

typedef struct sfp_score {
    double ncm, knn; /* fractions; NAN without labels */
    int scored;      /* pictures */
} sfp_score;

/* At most `most` pictures of each set, evenly spread. Class means in Euclidean distance; 10 neighbours by cosine, each vote
 * weighted by it. */
sfp_status sfp__score(sfp_vit *v, sfp_thread_pool *pool, const sfp_image_set *known, const sfp_image_set *held, int most,
                      sfp_score *out, sfp_error *err);

#endif
