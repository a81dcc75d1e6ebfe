/* Snapshots: immutable copies of everything that a prediction reads, made after a timestamp. Predictors use them while the
 * learner trains.
 *
 * The thread that may change the learner publishes them. A closed-form head is not copied: predictors read it under its lock.
 *
 * The lock protects only the pointer to the current snapshot and the number of holders; no computation or copying is done under
 * it. A snapshot without holders is overwritten, so there are at most two more snapshots than predictors. */
#ifndef SFP_LEARNER_SNAPSHOT_H
#define SFP_LEARNER_SNAPSHOT_H

#include "fingerprint/fingerprint.h"

#include <pthread.h>

typedef struct sfp__snapshot {
    struct sfp__snapshot *next; /* in the list of all snapshots */
    int holders;
    uint64_t t;        /* number of timestamps when the copy was made */
    sfp__fp_view view; /* points into block */
    int classes;
    const float *linear_w, *linear_b; /* (classes, D), (classes), point into block */
    uint8_t *seen;                    /* (classes) */
    float *block;
    size_t block_capacity, seen_capacity;
    uint64_t names_version; /* version of the names that were copied; 0: none */
    int name_count;
    char **names; /* (name_count) in one block with their texts; NULL: the class has no name */
} sfp__snapshot;

typedef struct sfp__snapshots {
    pthread_mutex_t lock;
    sfp__snapshot *all, *current;
    /* number of predictors on other threads. If there are any, every timestamp publishes a snapshot; else only on demand */
    int predictors;
    bool stale; /* the current snapshot is older than the last timestamp; only the learner's thread reads this */
} sfp__snapshots;

void sfp__snapshots_init(sfp__snapshots *s);
void sfp__snapshots_done(sfp__snapshots *s);

/* Returns the name of a class; NULL: it has none. */
static inline const char *sfp__snapshot_class_name(const sfp__snapshot *s, int label)
{
    return label >= 0 && label < s->name_count ? s->names[label] : NULL;
}
/* Copies the names unless *to already has this version of them. */
sfp_status sfp__snapshot_copy_names(sfp__snapshot *to, int count, char *const *names, uint64_t version, sfp_error *err);

/* Returns the current snapshot, which is not overwritten until it is released; NULL: none was published yet. */
sfp__snapshot *sfp__snapshots_hold(sfp__snapshots *s);
void sfp__snapshots_release(sfp__snapshots *s, sfp__snapshot *held);

#endif
