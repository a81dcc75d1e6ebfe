/* What predictors see while the learner learns: copies of everything a
 * prediction reads, made after a timestamp, never changed afterwards.
 *
 * A lock guards only which copy is the current one and who holds it; nobody
 * computes or copies under it. A copy that no one holds is written over, so
 * there are at most two more than predictors. */
#ifndef SFP_LEARNER_SNAPSHOT_H
#define SFP_LEARNER_SNAPSHOT_H

#include "fingerprint/fingerprint.h"
#include "learner/heads/head.h"

#include <pthread.h>

typedef struct sfp_snapshot {
    struct sfp_snapshot *next; /* in the list of all */
    int holders;
    uint64_t t;       /* timestamps learned */
    sfp_fp_view view; /* into block */
    int classes;
    const float *linear_w, *linear_b; /* (classes, D), (classes), into block */
    uint8_t *seen;                /* (classes) */
    float *block;
    size_t block_capacity, seen_capacity;
    bool mixed;
    sfp_mix mix;
    sfp_head_scorer *heads[SFP_HEAD_MEMBERS]; /* [0] NULL: linear */
} sfp_snapshot;

typedef struct sfp_snapshots {
    pthread_mutex_t lock;
    sfp_snapshot *all, *current;
    int predictors; /* that ask at any moment: a copy is made after every timestamp; none: nothing is copied unasked */
    bool stale;     /* the current copy is not of the last timestamp; only the learner's own thread looks at it */
} sfp_snapshots;

void sfp__snapshots_init(sfp_snapshots *s);
void sfp__snapshots_done(sfp_snapshots *s);

/* What goes into a copy. */
typedef struct sfp_snapshot_source {
    uint64_t t;
    const sfp_fp_view *view;
    const sfp_param *linear_w, *linear_b;
    const uint8_t *seen;
    const sfp_mix *mix;     /* NULL: linear only */
    sfp_head *const *heads; /* (SFP_HEAD_MEMBERS) with mix */
} sfp_snapshot_source;

sfp_status sfp__snapshots_publish(sfp_snapshots *s, const sfp_snapshot_source *from, sfp_error *err);

/* The current copy, held until released; NULL before the first. */
sfp_snapshot *sfp__snapshots_hold(sfp_snapshots *s);
void sfp__snapshots_release(sfp_snapshots *s, sfp_snapshot *held);

#endif
