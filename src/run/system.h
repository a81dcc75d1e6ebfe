/* What a run trains and asks: the learner, or one of the closed-form heads
 * alone (--method ncm, slda, ranpac: one query pass a sample, no gradient).
 * One interface, so that clock, evaluation and report are the same for all. */
#ifndef SFP_RUN_SYSTEM_H
#define SFP_RUN_SYSTEM_H

#include "learner/learner.h"
#include "learner/predictor.h"

typedef struct sfp_system {
    sfp_vit *vit;
    sfp_pool *pool;
    int D, S;
    /* the learner ... */
    sfp_learner *learner;
    sfp_predictor *predictor;
    /* ... or a head */
    sfp_head *head;
    sfp_vit_plan *plan;
    float mean[3], std[3];
    int batch;
    float *x, *query, *score; /* (batch, 3, S, S) (batch, D) (batch, classes) */
    int32_t *label;           /* (batch) */
    int classes;
    uint8_t *seen; /* (classes) */
    sfp_learner_counts counts;
} sfp_system;

/* method NULL: the learner. classes: known ones (stream labels are below). */
sfp_status sfp__system_init(sfp_system *s, sfp_vit *vit, sfp_pool *pool, const sfp_learner_options *opt, const char *method, int classes,
                            sfp_error *err);
void sfp__system_done(sfp_system *s);

/* One timestamp; the cost is in t->seconds.total. Heads fill offered, coreset_count, judged, right and seconds. */
sfp_status sfp__system_offer(sfp_system *s, int b, const sfp_sample *samples, sfp_timestamp *t, sfp_error *err);
sfp_status sfp__system_next_task(sfp_system *s, sfp_error *err);
sfp_learner_counts sfp__system_counts(const sfp_system *s);

/* label (n) of pictures; queries are kept in query (n, D) as has_query tells. */
sfp_status sfp__system_predict(sfp_system *s, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label, sfp_error *err);

/* DIR/state.safetensors; checkpoint and resume as the learner's. */
sfp_status sfp__system_save(sfp_system *s, const char *path, sfp_error *err);
sfp_status sfp__system_checkpoint(sfp_system *s, const char *path, const char *position, sfp_error *err);
sfp_status sfp__system_resume(sfp_system *s, const char *path, char **position, bool *used_old, sfp_error *err);

#endif
