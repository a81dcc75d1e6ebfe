/* What a run trains and asks: the learner, or one of the closed-form heads
 * alone (--method ncm, slda, ranpac: one query pass a sample, no gradient).
 * One interface, so that clock, evaluation and report are the same for all. */
#ifndef SFP_RUN_SYSTEM_H
#define SFP_RUN_SYSTEM_H

#include "learner/learner.h"
#include "learner/predictor.h"

typedef struct sfp_system {
    sfp_vit *vit;
    sfp_thread_pool *pool;
    int D, S;
    /* the learner ... */
    sfp_learner *learner;
    sfp_predictor *predictor; /* without a learner: of a saved state, which only answers */
    /* ... or a head */
    sfp_head *head;
    sfp_vit_plan *plan;
    sfp_learner_options opt; /* as given */
    float *x, *query, *score; /* (opt.batch, 3, S, S) (opt.batch, D) (opt.batch, class_room) */
    int32_t *label;           /* (opt.batch) */
    int classes;
    bool grows;    /* classes were not known: labels appear */
    bool damaged;  /* the file at its checkpoint's path: it must not become the one before */
    int class_room;
    uint8_t *seen; /* (class_room) */
    char **names;  /* (name_room) of classes, NULL where there is none */
    int name_room;
    float *logp;   /* (logp_room) answers of the learner as probabilities */
    size_t logp_room;
    sfp_learner_counts counts;
} sfp_system;

/* method NULL: the learner. classes: known ones (stream labels are below); 0: they appear, told by sfp__system_classes. */
sfp_status sfp__system_init(sfp_system *s, sfp_vit *vit, sfp_thread_pool *pool, const sfp_learner_options *opt,
                            const char *method, int classes, sfp_error *err);
/* Answers from a state file and nothing else: predict and done. */
sfp_status sfp__system_open(sfp_system *s, sfp_vit *vit, sfp_thread_pool *pool, const char *state, sfp_error *err);
void sfp__system_done(sfp_system *s);

/* One timestamp; the cost is in t->seconds.total. Heads fill offered, coreset_count, judged, right and seconds. */
sfp_status sfp__system_offer(sfp_system *s, int b, const sfp_sample *samples, sfp_timestamp *t, sfp_error *err);
sfp_status sfp__system_next_task(sfp_system *s, sfp_error *err);
sfp_learner_counts sfp__system_counts(const sfp_system *s);

/* Labels are below `classes` from now on; never fewer than before. */
sfp_status sfp__system_classes(sfp_system *s, int classes, sfp_error *err);

/* Pictures that the learner answers at once: of more the answer comes later, not faster. */
int sfp__system_cut(const sfp_system *s);
/* label (n) of pictures, -1: no class was seen; queries are kept in query (n, D) as has_query tells. probability (n) of the label,
 * NAN for -1, when not NULL. */
sfp_status sfp__system_predict(sfp_system *s, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                               float *probability, sfp_error *err);

/* What a class is called in state files; copied. */
sfp_status sfp__system_name_class(sfp_system *s, int label, const char *name, sfp_error *err);

/* What a checkpoint that is whole says of itself: the head that made it ("" for the learner), and its position, newly allocated. */
sfp_status sfp__system_look(const char *path, char *method, size_t size, char **position, sfp_error *err);

/* DIR/state.safetensors; checkpoint and resume as the learner's. */
sfp_status sfp__system_save(sfp_system *s, const char *path, sfp_error *err);
sfp_status sfp__system_checkpoint(sfp_system *s, const char *path, const char *position, sfp_error *err);
sfp_status sfp__system_resume(sfp_system *s, const char *path, char **position, bool *used_old, sfp_error *err);

#endif
