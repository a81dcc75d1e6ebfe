/* The learner (docs/method.md, sections 5-7, 9). One timestamp processes one arriving batch: score, select, K training steps with
 * replay, buffer update.
 *
 *     learner = create(vit, pool, options)
 *     for each batch:       offer(learner, batch, report)
 *     at a task boundary:   next_task(learner, classes)
 *
 * Only one thread may call `offer`; predictors (predictor.h) may run on other threads at the same time. After the first
 * timestamps no memory is allocated, except for new classes. */
#ifndef SFP_LEARNER_LEARNER_H
#define SFP_LEARNER_LEARNER_H

#include "base/mem.h"
#include "buffer/buffer.h"
#include "fingerprint/fingerprint.h"
#include "io/image/image.h"
#include "learner/heads/head.h"
#include "model/vit_memo.h"
#include "select/select.h"

typedef enum sfp__drift { SFP__DRIFT_OFF, SFP__DRIFT_NEW_CLASS } sfp__drift;

typedef struct sfp__learner sfp__learner;

/* A sample at the input size of the backbone. */
typedef struct sfp__sample {
    const uint8_t *rgb; /* (S, S, 3) */
    int32_t label;
    uint64_t id;
    const char *name; /* of its image, for events.jsonl; NULL: none */
} sfp__sample;

typedef struct sfp__learner_options {
    /* Name of a closed-form head ("ncm", "slda", "ridge", "ranpac"; head.h) that is used instead of fingerprints; NULL: fingerprints. It
     * learns from the query of every sample, without selection and without a buffer. The only other options that it uses are fp.classes
     * (0: classes are added when they appear), taps, tap_mean, merge_tokens, ridge_balanced, batch, resize, mean,
     * std and seed. */
    const char *method;
    sfp__fp_options fp; /* tasks is 0 for a task-free stream */
    sfp__adam adam;
    const char *select; /* name of the selector */
    sfp__select_options coreset;
    sfp__buffer_options buffer;                          /* method, slots, rules and budget; sfp__learner_create sets the sizes */
    sfp__resize resize;                                  /* how the caller resizes images; files of the learner name it */
    enum { SFP__DECODE_EXACT, SFP__DECODE_FAST } decode; /* whether large JPEGs are decoded at a fraction of their size */
    int batch;                                           /* maximum number of samples per timestamp */
    int steps;                                           /* K */
    int replay;                                          /* r */
    int taps;            /* K: a closed-form head learns from the class tokens after the last K blocks; 0: half of the blocks */
    bool tap_mean;       /* and from the mean of the patch tokens after the last block but one */
    int merge_tokens;    /* R: pairs of tokens that each block but the last merges in passes of a closed-form head; 0: none */
    bool ridge_balanced; /* head ridge: scores do not prefer frequent classes */
    double half_life;    /* ncm, slda, ridge: samples count half after this number of others; 0: never */
    int ranpac_width;    /* method ranpac: number of features; always 4000, except in tests */
    sfp__drift drift;    /* task-free streams: event that activates new components */
    bool weighted;       /* the loss uses the weights of the selector */
    float mean[3], std[3];
    uint64_t seed;
    /* The following must outlive the learner. */
    sfp__vit_memo *memo;          /* feature cache; NULL: none */
    const sfp__time_source *time; /* clock of processing times; NULL: the monotonic clock (no feature cache) */
} sfp__learner_options;

sfp__learner_options sfp__learner_options_defaults(const sfp__vit *vit);
/* How images are decoded and resized. */
static inline sfp__resize sfp__learner_resize(const sfp__learner_options *o)
{
    return o->decode == SFP__DECODE_FAST ? (sfp__resize)(o->resize | SFP__RESIZE_FAST) : o->resize;
}

/* Details of one timestamp. The arrays belong to the learner and are valid until the next call. Members that do not apply to a
 * closed-form head are zero. */
typedef struct sfp__timestamp_details {
    uint64_t t;
    int task, offered, coreset_count, steps;
    const float *similarity; /* (offered) scores that the selection used; NULL: not computed */
    const int *coreset;      /* (coreset_count) indices into the batch */
    const int *replay_count; /* (steps) */
    const int *replay;       /* (steps, options.replay) slots */
    const double *loss;      /* (steps) */
    sfp__buffer_change buffer;
    bool grew; /* new components were activated */
    int prequential_total,
        /* number of predictions of the coreset before the first step, and of correct ones; their time is not part of the
         * processing time */
        prequential_correct;
    struct {
        double query, select, attune, forward, backward, update, buffer, head, total;
        double diagnostics; /* not part of the total */
    } seconds;
} sfp__timestamp_details;

/* `threads` and `vit` must outlive the learner. */
sfp_status sfp__learner_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, sfp__learner **out,
                               sfp_error *err);
void sfp__learner_free(sfp__learner *l);
DEFINE_OWNED_PTR(sfp__learner, sfp__learner_free)
const sfp__learner_options *sfp__learner_get_options(const sfp__learner *l);

/* Processes one timestamp. If it fails before the first step, nothing has changed. */
sfp_status sfp__learner_offer(sfp__learner *l, int b, const sfp__sample *samples, sfp__timestamp_details *report, sfp_error *err);

/* Refuses a learner that cannot forget, relabel or merge: its head is not a function of sums. */
sfp_status sfp__learner_check_sums(const sfp__learner *l, sfp_error *err);
/* Corrections, only for the methods ncm, slda and ridge, which are functions of sums (else SFP_EUNSUPPORTED). On failure nothing is
 * learned or forgotten.
 *
 * sfp__learner_forget takes out 1 to options.batch samples that were learned with these images and labels; SFP_ENOTFOUND: one of
 * them cannot have been learned. sfp__learner_relabel changes the label of such a sample. sfp__learner_merge adds the sums of a state
 * or a checkpoint of the same method, backbone, taps and preprocessing, sfp__learner_subtract takes them out (SFP_ENOTFOUND: the learner
 * does not have all of these samples). Classes are matched by name (state/saved_sums.h). The counters of the learner are unchanged. */
sfp_status sfp__learner_forget(sfp__learner *l, int n, const sfp__sample *samples, sfp_error *err);
sfp_status sfp__learner_relabel(sfp__learner *l, const sfp__sample *sample, int32_t label, sfp_error *err);

/* A state or checkpoint: a file, a run directory, or a block of memory. */
typedef struct sfp__saved_file {
    const char *path; /* of the file or directory; for a block its name in messages */
    const void *data; /* (size) NULL: the file */
    size_t size;
} sfp__saved_file;
sfp_status sfp__learner_merge(sfp__learner *l, const sfp__saved_file *from, sfp_error *err);
sfp_status sfp__learner_subtract(sfp__learner *l, const sfp__saved_file *from, sfp_error *err);

/* Returns how many samples of a class the closed-form head has learned; 0: there is no such head. */
int64_t sfp__learner_class_samples(const sfp__learner *l, int32_t label);

/* With known tasks: sets the classes (n labels) that compete in a loss without replay. Call it at the start and with each next
 * task. */
sfp_status sfp__learner_set_classes(sfp__learner *l, int n, const int32_t *labels, sfp_error *err);
sfp_status sfp__learner_next_task(sfp__learner *l, sfp_error *err);
int sfp__learner_task(const sfp__learner *l); /* starts at 0; loading a state sets it */

/* Returns the number of classes in the linear head, or that the closed-form head has seen. */
int sfp__learner_classes(const sfp__learner *l);
/* Labels must be below this. On a task-free stream it is the limit of the number of classes. */
int sfp__learner_label_end(const sfp__learner *l);
int sfp__learner_name_end(const sfp__learner *l); /* no label from this one on has a name */
/* Sets the name of a class; NULL: removes it. */
sfp_status sfp__learner_name_class(sfp__learner *l, int label, const char *name, sfp_error *err);
/* Returns whether only the classes of the current task compete in the loss of the batch (docs/method.md, section 6): with known
 * tasks and without a buffer. */
bool sfp__learner_masked(const sfp__learner *l);
bool sfp__learner_known_tasks(const sfp__learner *l);
const char *sfp__learner_class_name(const sfp__learner *l, int label); /* NULL: none */
bool sfp__learner_seen(const sfp__learner *l, int label);              /* whether a sample of this class was ever offered */

/* Returns the rehearsal buffer, for reading; NULL: none. */
sfp__buffer *sfp__learner_buffer(sfp__learner *l);

/* Counters since the start of the stream; checkpoints contain them. */
typedef struct sfp__learner_counts {
    uint64_t timestamps, offered, scored, trained, replayed;
} sfp__learner_counts;
sfp__learner_counts sfp__learner_get_counts(const sfp__learner *l);

/* ------------------------------------------------------------- state, checkpoint */

/* sfp__learner_save and sfp__learner_load write and read the learnable state under the tensor names of the golden files. Loading
 * requires the same sizes and the settings with which the values were learned; the error message names the difference. On a
 * task-free stream the file may have more classes. Loading resets Adam; buffer, counters and random generators are unchanged.
 * A checkpoint can be loaded, too. A closed-form head replaces its sums by those of the file; classes are matched by name, and missing ones are
 * added.
 * If a load or a resume fails, nothing changes, with one exception: if there is no memory for a snapshot (SFP_ENOMEM),
 * predictors continue with the previous one.
 *
 * sfp__learner_checkpoint atomically writes everything that is needed to resume; the previous checkpoint is kept as PATH.old.
 * `position` is a text of the caller (stream position, configuration). sfp__learner_resume returns it, newly allocated
 * (sfp__free). */

/* Opens a state to predict from it, with the options of the file: a learner without trainer, buffer or batch, which cannot learn.
 * An error message names the file, the tensor or key, the found and the expected value. */
sfp_status sfp__learner_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, sfp__learner **out, sfp_error *err);
sfp_status sfp__learner_save(sfp__learner *l, const char *path, sfp_error *err);
sfp_status sfp__learner_load(sfp__learner *l, const char *path, sfp_error *err);
sfp_status sfp__learner_checkpoint(sfp__learner *l, const char *path, const char *position, sfp_error *err);

/* Reads the method with which an undamaged checkpoint was written ("": fingerprints) and its position, newly allocated. */
sfp_status sfp__checkpoint_peek(const char *path, char *method, size_t size, char **position, sfp_error *err);
/* Reads the input size (0: not in the file) of the checkpoint from which sfp__learner_resume would resume. */
sfp_status sfp__checkpoint_img_size(const char *path, int *size, sfp_error *err);
/* Returns SFP_ENOTFOUND if there is no checkpoint. If the checkpoint is damaged, PATH.old is used and *used_old is set. */
sfp_status sfp__learner_resume(sfp__learner *l, const char *path, char **position, bool *used_old, sfp_error *err);

#endif
