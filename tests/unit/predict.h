/* A run of a predictor, whose results are copied to the arrays of a test. */
#ifndef TEST_PREDICT_H
#define TEST_PREDICT_H

#include "learner/predictor.h"

#include <string.h>

/* query, known: as in sfp__known_queries, or NULL. score: (n, ld), NULL: not wanted. about: NULL: not wanted. */
static inline sfp_status predict_into(sfp_predictor *p, int n, const uint8_t *const *rgb, float *query, bool *known,
                                      int32_t *label, float *score, int ld, sfp__predictions *about, sfp_error *e)
{
    const sfp__known_queries queries = {.query = query, .known = known};
    sfp__predictions found;
    TRY(sfp__predictor_run(p, n, rgb, query ? &queries : NULL, score ? SFP__WANT_SCORES : 0, &found, e));
    memcpy(label, found.label, (size_t)n * sizeof *label);
    for (int i = 0; score && i < n; i++)
        memcpy(score + (size_t)i * (size_t)ld, found.scores + (size_t)i * (size_t)found.classes,
               (size_t)found.classes * sizeof *score);
    if (about)
        *about = found;
    return SFP_OK;
}

#endif
