/* The learner (docs/method.md, sections 5-7, 9): one timestamp is one arriving batch:
 * score, select, K training steps with rehearsal, buffer update.
 *
 *     learner = create(vit, pool, options)
 *     for each batch:  offer(learner, batch, report)
 *     at a boundary:   next_task(learner, classes)
 *
 * One thread offers; predictors (predictor.h) may run on other threads at the
 * same time. After warm-up a timestamp allocates nothing (but for new classes,
 * and for images kept compressed). */
#ifndef SFP_LEARNER_LEARNER_H
#define SFP_LEARNER_LEARNER_H

#include "base/mem.h"
#include "buffer/buffer.h"
#include "fingerprint/fingerprint.h"
#include "io/image/image.h"
#include "learner/heads/head.h"
#include "select/select.h"

typedef enum sfp__head_mode { SFP_HEAD_LINEAR, SFP_HEAD_MIX } sfp__head_mode;
typedef enum sfp__head_feed {
    SFP_FEED_CORESET,
    SFP_FEED_BATCH,
    SFP_FEED_AUTO
} sfp__head_feed; /* auto: batch while there is slack */
typedef enum sfp__drift { SFP_DRIFT_OFF, SFP_DRIFT_NEW_CLASS, SFP_DRIFT_PH } sfp__drift;

typedef struct sfp__learner sfp__learner;

/* A sample at the input size. */
typedef struct sfp__sample {
    const uint8_t *rgb; /* (S, S, 3) */
    int32_t label;
    uint64_t id;
    const void *encoded; /* the bytes of the original file, for --buffer-format compressed; NULL: not known */
    size_t encoded_size;
} sfp__sample;

typedef struct sfp__learner_options {
    /* A closed-form head alone ("ncm", "slda", "ranpac"; head.h), which learns from the query of every sample: no fingerprints,
     * no selection, no buffer. Of the others it then reads fp.classes (0: they appear), batch, resize, mean, std and seed. NULL:
     * none. */
    const char *method;
    sfp__fp_options fp; /* tasks 0: a free stream */
    sfp__adam adam;
    const char *select; /* name of the selector */
    sfp__select_options coreset;
    sfp__buffer_options buffer; /* method, slots, rules, budget; sizes are filled in */
    bool keep_compressed;       /* slots keep the original bytes where these are smaller than the pixels */
    sfp__resize resize;         /* how kept original bytes become pixels again */
    int batch;                  /* most samples a timestamp */
    int coreset_most;           /* most samples of a batch that are trained on; 0: sigma alone decides */
    int steps;                  /* K */
    int replay;                 /* r */
    sfp__head_mode head;
    sfp__head_feed feed;
    sfp__drift drift; /* free streams: what opens new components */
    bool weighted;    /* the selector's weights enter the loss */
    float mean[3], std[3];
    uint64_t seed;
} sfp__learner_options;

sfp__learner_options sfp__learner_options_defaults(const sfp__vit *vit);

/* What a timestamp did; arrays are the learner's own and hold until the next call. A method leaves out what it does not have. */
typedef struct sfp__timestamp_details {
    uint64_t t;
    int task, offered, coreset_count, steps;
    const float *similarity; /* (offered) as selection saw it; NULL when nothing asked for it */
    const int *coreset;      /* (coreset_count) indices into the batch */
    const int *replay_count; /* (steps) */
    const int *replay;       /* (steps, options.replay) slots */
    const double *loss;      /* (steps) */
    sfp__buffer_change buffer;
    bool grew; /* new components opened */
    int prequential_total,
        prequential_correct; /* test-then-train on the coreset: answers before the first step, and right ones; their time is not a
                        * method's cost */
    struct {
        double query, select, attune, forward, backward, update, buffer, head, total;
    } seconds;
} sfp__timestamp_details;

/* `threads` and `vit` must outlive the learner. */
sfp_status sfp__learner_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, sfp__learner **out,
                               sfp_error *err);
void sfp__learner_free(sfp__learner *l);
DEFINE_OWNED_PTR(sfp__learner, sfp__learner_free)
const sfp__learner_options *sfp__learner_get_options(const sfp__learner *l);

/* One timestamp. On failure before the first step nothing has changed. */
sfp_status sfp__learner_offer(sfp__learner *l, int b, const sfp__sample *samples, sfp__timestamp_details *report, sfp_error *err);

/* Is there time to spare (feed auto)? Yes until told otherwise. */
void sfp__learner_set_slack(sfp__learner *l, bool slack);

/* From now on at most so much a timestamp (within the options): how a controller follows the load. 0: as the options say. */
void sfp__learner_set_limits(sfp__learner *l, int coreset, int replay, int steps);

/* Known tasks: the classes (n labels) that compete in a loss without rehearsal; at the start, and with each next task. */
sfp_status sfp__learner_set_classes(sfp__learner *l, int n, const int32_t *labels, sfp_error *err);
sfp_status sfp__learner_next_task(sfp__learner *l, sfp_error *err);
int sfp__learner_task(const sfp__learner *l); /* from 0; a state brings its own along */

/* Classes that have a row in the classifier, or that a closed-form head has seen. */
int sfp__learner_classes(const sfp__learner *l);
/* Labels are below this; on a task-free stream classes appear, up to a limit. */
int sfp__learner_label_end(const sfp__learner *l);
int sfp__learner_name_end(const sfp__learner *l); /* no label from here on has a name */
/* NULL: removes the name. */
sfp_status sfp__learner_name_class(sfp__learner *l, int label, const char *name, sfp_error *err);
/* Only the classes of the current task compete in the loss of the batch (docs/method.md, section 6): known tasks, no buffer. */
bool sfp__learner_masked(const sfp__learner *l);
bool sfp__learner_known_tasks(const sfp__learner *l);
const char *sfp__learner_class_name(const sfp__learner *l, int label); /* NULL: none */
bool sfp__learner_seen(const sfp__learner *l, int label);              /* was it ever offered */

/* The rehearsal buffer, to look into; NULL without one. */
sfp__buffer *sfp__learner_buffer(sfp__learner *l);

/* Counters since the beginning, kept by checkpoints. */
typedef struct sfp__learner_counts {
    uint64_t timestamps, offered, scored, trained, replayed;
} sfp__learner_counts;
sfp__learner_counts sfp__learner_get_counts(const sfp__learner *l);

/* ------------------------------------------------------------- state, checkpoint */

/* sfp__learner_save, sfp__learner_load: learnable state, names as in the golden files. Loading needs the same sizes and the
 * settings the values were learned with; the message names what differs. On a free stream the file may have more classes. Adam
 * begins anew; buffer, heads, counters and generators stay. A load or resume that fails changes nothing, with one exception: when
 * there is no memory for what predictors see (SFP_ENOMEM), they go on with what they had.
 *
 * sfp__learner_checkpoint: everything needed to go on, atomically; the previous one stays beside it as PATH.old. `position` is the
 * caller's own text (stream position, configuration) and comes back from resume, newly allocated (sfp__free). */

sfp_status sfp__learner_save(sfp__learner *l, const char *path, sfp_error *err);
sfp_status sfp__learner_load(sfp__learner *l, const char *path, sfp_error *err);
sfp_status sfp__learner_checkpoint(sfp__learner *l, const char *path, const char *position, sfp_error *err);

/* What a checkpoint that is whole says of itself: the method that made it ("": fingerprints), and its position, newly allocated.
 */
sfp_status sfp__checkpoint_peek(const char *path, char *method, size_t size, char **position, sfp_error *err);
/* SFP_ENOTFOUND: there is none. A damaged one is passed over for PATH.old; *used_old tells. */
sfp_status sfp__learner_resume(sfp__learner *l, const char *path, char **position, bool *used_old, sfp_error *err);

#endif
