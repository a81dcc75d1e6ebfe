/* streamfp: real-time stream learning for vision transformers.
 *
 * The public interface. Everything a program outside this repository needs is
 * here; names begin with sfp_. Names that begin with sfp__ are internal.
 *
 * Errors: fallible functions return a status and, when `err` is not NULL, put
 * a message there that names the file, the place, what was found and what was
 * expected. Outputs are untouched on failure. The library never prints, exits
 * or aborts.
 *
 * Locale: numbers in settings, files and messages have a decimal point in every
 * locale. The library never sets the locale of the process. */
#ifndef STREAMFP_H
#define STREAMFP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SFP_VERSION_MAJOR 0
#define SFP_VERSION_MINOR 2
#define SFP_VERSION_PATCH 0

#if defined(__GNUC__)
#define SFP_API __attribute__((visibility("default")))
#else
#define SFP_API
#endif

/* One list makes the enum and its words. */
#define SFP_STATUS_LIST(X)                   \
    X(OK, 0, "ok")                           \
    X(EINVAL, 1, "invalid argument")         \
    X(EIO, 2, "input/output error")          \
    X(EFORMAT, 3, "malformed file")          \
    X(ESHAPE, 4, "wrong shape")              \
    X(ENOTFOUND, 5, "not found")             \
    X(ENOMEM, 6, "out of memory")            \
    X(ELIMIT, 7, "limit exceeded")           \
    X(EUNSUPPORTED, 8, "not supported here") \
    X(ELIBRARY, 9, "a library call failed")

typedef enum sfp_status {
#define SFP_STATUS_ENUM(name, value, text) SFP_##name = value,
    SFP_STATUS_LIST(SFP_STATUS_ENUM)
#undef SFP_STATUS_ENUM
} sfp_status;

#define SFP_ERROR_MAX 768
#define SFP_KEY_MAX 32

typedef struct sfp_error {
    sfp_status status;
    char key[SFP_KEY_MAX];       /* the setting or field it is about; "": none */
    char message[SFP_ERROR_MAX]; /* always terminated; cut when too long */
} sfp_error;

/* "0.2.0" */
SFP_API const char *sfp_version(void);

/* The words for a status; never NULL. */
SFP_API const char *sfp_status_text(sfp_status status);

/* ------------------------------------------------------------------- engine
 *
 * A frozen backbone and the threads that compute with it. Immutable: any number
 * of learners and predictors may share one, from any thread. It must outlive
 * them. */

typedef struct sfp_engine sfp_engine;

/* threads 0: as many as the process may run on. */
SFP_API sfp_status sfp_engine_open(const char *backbone, int threads, sfp_engine **out, sfp_error *err);

/* A tiny seeded random backbone (32 x 32 pixels): for trying things out without a file; it knows nothing. */
SFP_API sfp_status sfp_engine_open_random(uint64_t seed, int threads, sfp_engine **out, sfp_error *err);
SFP_API void sfp_engine_close(sfp_engine *e);

/* Images go in as (size, size, 3) bytes, RGB. */
SFP_API int sfp_engine_image_size(const sfp_engine *e);
SFP_API int sfp_engine_dim(const sfp_engine *e); /* length of a feature */

/* Reads a JPEG, PNG or WebP file into rgb (size * size * 3 bytes), squashed to the input size. */
SFP_API sfp_status sfp_engine_read_image(const sfp_engine *e, const char *path, uint8_t *rgb, sfp_error *err);

/* ----------------------------------------------------------------- settings
 *
 * How to learn, by the keys of the command line: "sigma", "buffer-size",
 * "tasks", ... An unknown key or a value out of range is refused with a message
 * that names what is allowed. */

typedef struct sfp_settings sfp_settings;

SFP_API sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err);
SFP_API void sfp_settings_free(sfp_settings *s);
SFP_API sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err);

/* Setting i of all: key, allowed values, default, help; NULL past the last. */
typedef struct sfp_setting_info {
    const char *key, *values, *default_value, *help;
} sfp_setting_info;
SFP_API const sfp_setting_info *sfp_settings_info(int i);

/* ------------------------------------------------------------------ learner
 *
 * Mutable. One thread at a time calls the functions below on one learner;
 * predictors of it may run on other threads all the while. */

typedef struct sfp_learner sfp_learner;

typedef struct sfp_sample {
    const uint8_t *rgb;  /* (size, size, 3) */
    int32_t label;       /* >= 0 */
    uint64_t id;         /* the caller's own */
    const void *encoded; /* the original file's bytes, for the setting keep=compressed; may be NULL */
    size_t encoded_size;
} sfp_sample;

typedef struct sfp_report {
    uint64_t timestamp; /* this was the so-many-th batch, from 0 */
    int offered, trained, replayed, stored, replaced;
    double loss;    /* of the last step */
    double seconds; /* select + train + buffer */
} sfp_report;

/* settings NULL: defaults. */
SFP_API sfp_status sfp_learner_create(sfp_engine *e, const sfp_settings *settings, sfp_learner **out, sfp_error *err);
SFP_API void sfp_learner_free(sfp_learner *l);

/* One timestamp: scores the batch, trains on its coreset and on rehearsed samples, updates the buffer. report may be NULL. */
SFP_API sfp_status sfp_learner_offer(sfp_learner *l, int count, const sfp_sample *samples, sfp_report *report, sfp_error *err);

/* Known tasks: the next one begins. */
SFP_API sfp_status sfp_learner_next_task(sfp_learner *l, sfp_error *err);

SFP_API int sfp_learner_classes(const sfp_learner *l);

/* What a class is called in state files; NULL: nothing. */
SFP_API sfp_status sfp_learner_name_class(sfp_learner *l, int32_t label, const char *name, sfp_error *err);

/* Learnable state (state.safetensors). What is saved is enough to predict with (sfp_predictor_open); loading takes the
 * fingerprints and the classifier over, so that a learner of the same settings goes on from there. */
SFP_API sfp_status sfp_learner_save(sfp_learner *l, const char *path, sfp_error *err);
SFP_API sfp_status sfp_learner_load(sfp_learner *l, const char *path, sfp_error *err);

/* Everything needed to go on: resuming gives the same bytes as never stopping. `position` is the caller's own text, e.g. where
 * in the stream it was; resume copies it into `buffer` (cut at `size`, may be NULL). SFP_ENOTFOUND: there is no checkpoint. */
SFP_API sfp_status sfp_learner_checkpoint(sfp_learner *l, const char *path, const char *position, sfp_error *err);
SFP_API sfp_status sfp_learner_resume(sfp_learner *l, const char *path, char *buffer, size_t size, sfp_error *err);

/* ---------------------------------------------------------------- predictor
 *
 * Predicts while the learner learns: every answer comes from one consistent
 * state, that of the last finished timestamp when the call began, and no lock
 * is held while computing. A predictor belongs to one thread at a time; make
 * one a thread. Creating and freeing one must not overlap with a call on its
 * learner; running does. */

typedef struct sfp_predictor sfp_predictor;

SFP_API sfp_status sfp_predictor_create(sfp_learner *l, int threads, int max_batch, sfp_predictor **out, sfp_error *err);

/* A predictor without a learner, from a state file: the settings come from the file, which names its backbone; another one is
 * refused. */
SFP_API sfp_status sfp_predictor_open(sfp_engine *e, const char *state, int threads, int max_batch, sfp_predictor **out,
                                      sfp_error *err);
SFP_API void sfp_predictor_free(sfp_predictor *p);

/* Of a learner's predictor: not while the learner learns. */
SFP_API int sfp_predictor_classes(const sfp_predictor *p);
SFP_API const char *sfp_predictor_class_name(const sfp_predictor *p, int32_t label); /* NULL: it has none */

/* Reads a JPEG, PNG or WebP file into rgb (size * size * 3 bytes), brought to the input size as when it was learned. */
SFP_API sfp_status sfp_predictor_read_image(const sfp_predictor *p, const char *path, uint8_t *rgb, sfp_error *err);

/* label (count): the best class seen so far, -1 before any. logp: NULL, or (count, classes) log-probabilities. *timestamps (may
 * be NULL): how many batches the state behind the answers had learned from. */
SFP_API sfp_status sfp_predictor_run(sfp_predictor *p, int count, const uint8_t *const *rgb, int32_t *label, float *logp,
                                     int classes, uint64_t *timestamps, sfp_error *err);

#ifdef __cplusplus
}
#endif
#endif
