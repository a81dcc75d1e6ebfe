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

typedef struct sfp__snapshot {
    struct sfp__snapshot *next; /* in the list of all */
    int holders;
    uint64_t t;        /* timestamps learned */
    sfp__fp_view view; /* into block */
    int classes;
    const float *linear_w, *linear_b; /* (classes, D), (classes), into block */
    uint8_t *seen;                    /* (classes) */
    float *block;
    size_t block_capacity, seen_capacity;
    uint64_t names_version; /* of the learner's names that are copied here; 0: none */
    int name_count;
    char **names; /* (name_count), in one block with their texts; NULL where a class has none */
    bool mixed;
    sfp__mix mix;
    sfp__head_scorer *heads[SFP_HEAD_MEMBERS]; /* [0] NULL: linear */
} sfp__snapshot;

typedef struct sfp__snapshots {
    pthread_mutex_t lock;
    sfp__snapshot *all, *current;
    int predictors; /* that ask at any moment: a copy is made after every timestamp; none: nothing is copied unasked */
    bool stale;     /* the current copy is not of the last timestamp; only the learner's own thread looks at it */
} sfp__snapshots;

void sfp__snapshots_init(sfp__snapshots *s);
void sfp__snapshots_done(sfp__snapshots *s);

/* What goes into a copy. */
typedef struct sfp__snapshot_source {
    uint64_t t;
    const sfp__fp_view *view;
    const sfp__param *linear_w, *linear_b;
    const uint8_t *seen;
    char *const *names; /* (name_count) */
    int name_count;
    uint64_t names_version;  /* changes with them, never 0 */
    const sfp__mix *mix;     /* NULL: linear only */
    sfp__head *const *heads; /* (SFP_HEAD_MEMBERS) with mix */
} sfp__snapshot_source;

sfp_status sfp__snapshots_publish(sfp__snapshots *s, const sfp__snapshot_source *from, sfp_error *err);

/* NULL: it has none. */
static inline const char *sfp__snapshot_class_name(const sfp__snapshot *s, int label)
{
    return label >= 0 && label < s->name_count ? s->names[label] : NULL;
}
/* Copies the names unless *to has this version of them. */
sfp_status sfp__snapshot_copy_names(sfp__snapshot *to, int count, char *const *names, uint64_t version, sfp_error *err);

/* The current copy, held until released; NULL before the first. */
sfp__snapshot *sfp__snapshots_hold(sfp__snapshots *s);
void sfp__snapshots_release(sfp__snapshots *s, sfp__snapshot *held);

#endif
