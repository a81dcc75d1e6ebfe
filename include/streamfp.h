/* streamfp: real-time stream learning for vision transformers.
 *
 * This header is the whole public interface and its manual. The commands run, eval, predict, merge, select, convert and
 * pretrain of the program `streamfp` use nothing else of the library.
 *
 *   1 Errors and messages   5 Learner                  9 Evaluation
 *   2 Images                6 Predictor               10 Selectors and buffer methods of your own
 *   3 Engine                7 Sources                 11 Coresets of a matrix
 *   4 Settings              8 Runs and their results  12 Conversion and pretraining of backbones
 *                                                     13 Experiments and sweeps
 *                                                     14 Heads on features of your own
 *
 * Rules that hold for every function:
 *
 *   Errors      A function that can fail returns an sfp_status and, if `err` is not NULL, writes a message that names the file,
 *               the place, what was found and what was expected. Outputs are unchanged on failure. An argument that is NULL
 *               without being allowed to is SFP_EINVAL. Functions that return no status do not check their object for NULL.
 *   Ownership   What a function returns through `out` belongs to the caller, who frees it with the function named beside it; every
 *               such function accepts NULL. Pointers returned as `const` belong to the object and stay valid as long as stated.
 *               Arguments are copied; the caller may free them after the call unless stated otherwise.
 *   Threads     An object may be used by one thread at a time unless its part says otherwise. Different objects are independent.
 *   Growth      A struct that the caller fills begins with its size, set by its SFP_..._INIT macro, so that fields can be added
 *               without breaking compiled programs. Structs in arrays have reserved members, which must be 0.
 *   Process     The library never prints, exits, aborts or changes the locale of the process. It starts threads only where stated.
 *               Results do not depend on the rounding mode that the caller has set: functions that can fail compute with the default
 *               floating-point environment, and restore that of the caller. Threads need a stack of 256 KiB or more.
 *   fork        A child process has no threads of its parent. Engines, learners, predictors and heads with more than one thread, and
 *               runs, are refused there with SFP_EUNSUPPORTED, and freeing them does nothing: open them after fork. Those with one
 *               thread work, if no other thread of the parent was using them.
 *   Callbacks   A callback runs with the C locale and the default floating-point environment in its thread. It must not call a function on the object that called it, except
 *               sfp_run_cancel. */
#ifndef STREAMFP_H
#define STREAMFP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SFP_VERSION_MAJOR 0
#define SFP_VERSION_MINOR 11
#define SFP_VERSION_PATCH 0

#if defined(__GNUC__)
#define SFP_API __attribute__((visibility("default")))
#else
#define SFP_API
#endif

/* The value of the SFP_..._INIT macros: a struct with its size set and all other members 0. */
#ifdef __cplusplus
#define SFP_INIT(type) \
    {                  \
        sizeof(type)   \
    }
#else
#define SFP_INIT(type)       \
    {                        \
        .size = sizeof(type) \
    }
#endif

/* -------------------------------------------------------------------------------------------------- 1 Errors and messages */

/* One list defines the codes and their texts. */
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
    X(ELIBRARY, 9, "a library call failed")  \
    X(ECANCELLED, 10, "cancelled")

typedef enum sfp_status {
#define SFP_STATUS_ENUM(name, value, text) SFP_##name = value,
    SFP_STATUS_LIST(SFP_STATUS_ENUM)
#undef SFP_STATUS_ENUM
} sfp_status;

#define SFP_ERROR_MAX 768
#define SFP_KEY_MAX 32

typedef struct sfp_error {
    sfp_status status;
    char key[SFP_KEY_MAX];       /* the setting or field that the error is about; "": none */
    char message[SFP_ERROR_MAX]; /* always terminated; shortened if it is too long */
} sfp_error;

/* The version of the library, "0.11.0". */
SFP_API const char *sfp_version(void);

/* The text for a status; never NULL. */
SFP_API const char *sfp_status_text(sfp_status status);

/* Fills *err and returns `status`: how a callback of yours reports a failure (`return sfp_error_set(err, SFP_EIO, "camera lost");`).
 * err may be NULL. */
SFP_API sfp_status sfp_error_set(sfp_error *err, sfp_status status, const char *message);

/* Messages that are not errors. INFO: a normal event, such as "resuming from the last checkpoint". WARNING: data was skipped,
 * excluded or changed. The text is valid during the call only. */
typedef enum sfp_log_level { SFP_LOG_INFO = 0, SFP_LOG_WARNING = 1 } sfp_log_level;
typedef void (*sfp_log_fn)(void *ctx, sfp_log_level level, const char *message);

/* Frees memory that the library returned for the caller to free with sfp_free. Accepts NULL. */
SFP_API void sfp_free(void *memory);

/* -------------------------------------------------------------------------------------------------------------- 2 Images
 *
 * An sfp_image describes pixels or a file that the caller owns; the library reads it during the call and keeps no pointer to it.
 * Images of any size are accepted. They are resized to the input size of the backbone as the setting "resize" says. Encoded images and
 * files are turned upright by their EXIF orientation before; a box applies to the upright image.
 *
 *     sfp_image frame = {.format = SFP_IMAGE_BGR, .width = 640, .height = 480, .data = pixels};
 *     sfp_image photo = {.format = SFP_IMAGE_FILE, .data = "photo.jpg"}; */

typedef enum sfp_image_format {
    SFP_IMAGE_RGB = 0,     /* 3 bytes per pixel */
    SFP_IMAGE_BGR = 1,     /* 3 bytes per pixel, as OpenCV has them */
    SFP_IMAGE_GREY = 2,    /* 1 byte per pixel */
    SFP_IMAGE_ENCODED = 3, /* the bytes of a JPEG, PNG or WebP file */
    SFP_IMAGE_FILE = 4,    /* the path of a JPEG, PNG or WebP file, as a string */
    SFP_IMAGE_FEATURES = 5 /* `width` floats; only for an engine "features:D", with D floats */
} sfp_image_format;

/* Flags: this one has no effect, because images are always turned upright. */
#define SFP_IMAGE_EXIF 1u

typedef struct sfp_image {
    int32_t format;        /* sfp_image_format */
    int32_t width, height; /* RGB, BGR, GREY: in pixels; FEATURES: width, in floats; else ignored */
    uint32_t flags;
    int64_t stride;   /* bytes from one row to the next one below, may be negative; 0: rows follow each other without a gap */
    const void *data; /* first pixel of the top row, file bytes, path or floats */
    size_t bytes;     /* ENCODED: the length of data; else ignored */
    int32_t box[4];   /* left, top, right, bottom of the part to use, in pixels, clipped to the image; all 0: the whole image */
    /* Bytes from one pixel of a row to the next one (0: 3, GREY: 1), and from one colour of a pixel to the next one (0: 1); may be
     * negative. Planes of colours: pixel_stride 1, channel_stride width * height. RGBA: pixel_stride 4, stride 4 * width. */
    int64_t pixel_stride, channel_stride;
} sfp_image;

/* Decodes and resizes an image to rgb (size, size, 3). resize is "squash" or "crop"; NULL: "squash". Thread-safe. */
SFP_API sfp_status sfp_image_fit(const sfp_image *image, int size, const char *resize, uint8_t *rgb, sfp_error *err);

/* -------------------------------------------------------------------------------------------------------------- 3 Engine
 *
 * A frozen backbone and the threads that compute with it. An engine does not change: any number of learners, predictors and runs
 * may share one, from any thread. It must outlive them.
 *
 *     sfp_engine_open("deit_tiny.safetensors", NULL, &engine, &err);
 *     ...
 *     sfp_engine_close(engine); */

typedef struct sfp_engine sfp_engine;

/* Of matrix products. int8 is for closed-form heads only. auto is that of the state; without a state bf16 on a CPU with AVX-512 BF16, else
 * f32. */
typedef enum sfp_precision {
    SFP_PRECISION_F32 = 0,
    SFP_PRECISION_BF16 = 1,
    SFP_PRECISION_INT8 = 2,
    SFP_PRECISION_AUTO = 3
} sfp_precision;

typedef struct sfp_engine_options {
    size_t size;        /* sizeof(sfp_engine_options) */
    int32_t threads;    /* 0: as many as the process may run on */
    int32_t image_size; /* side of the input in pixels; 0: that of the file. Position embeddings are resized. */
    sfp_precision precision;
    sfp_log_fn log; /* NULL: no messages. May be called from any thread that uses the engine. */
    void *log_ctx;
    /* For SFP_IMAGE_SIZE_AUTO. The size is that of the file, unless images arrive more than five times as fast as they can be queried;
     * then it is the size with about half as many patches. It is chosen once and reported by a message. */
    double rate;          /* images that arrive per second; 0: not known, the size is that of the file */
    double query_seconds; /* seconds per image of a query pass at the size of the file; 0: measured when the engine is opened */
    /* A state (file or run directory) with which the engine will predict: with image_size 0, the input has the size at which the state
     * was learned. NULL: none. */
    const char *state;
} sfp_engine_options;
#define SFP_ENGINE_OPTIONS_INIT SFP_INIT(sfp_engine_options)
#define SFP_IMAGE_SIZE_AUTO (-1) /* for image_size: chosen by the arrival rate */

/* backbone: a safetensors, PyTorch or .npz file, or "builtin", or "features:D": no network, for samples that are features of D values
 * (SFP_IMAGE_FEATURES). NULL, only with options.state: the backbone with which the state was learned; its file is that in result.json
 * beside the state, and a message names it. options NULL: defaults. */
SFP_API sfp_status sfp_engine_open(const char *backbone, const sfp_engine_options *options, sfp_engine **out, sfp_error *err);

/* A tiny random backbone (32 x 32 pixels) for tests and examples that have no file. It is not trained. */
SFP_API sfp_status sfp_engine_open_random(uint64_t seed, const sfp_engine_options *options, sfp_engine **out, sfp_error *err);
SFP_API void sfp_engine_close(sfp_engine *e);

SFP_API int sfp_engine_image_size(const sfp_engine *e); /* side of the input in pixels */
SFP_API int sfp_engine_dim(const sfp_engine *e);        /* length of a feature */
SFP_API int sfp_engine_classes(const sfp_engine *e);    /* classes of the backbone's own head; 0: it has none */

/* The input size at which the state in `path` (a state file or a run directory) was learned. */
SFP_API sfp_status sfp_state_image_size(const char *path, int *size, sfp_error *err);

/* ------------------------------------------------------------------------------------------------------------ 4 Settings
 *
 * How to learn and what to run, by the keys of `streamfp run`: "sigma", "buffer-size", "method", "data", ... A learner uses the
 * settings of scope LEARNER, a run uses all. An unknown key or a value out of range is refused with a message that says what is
 * allowed. Numbers have a decimal point in every locale. New settings have preset best, as `streamfp run` has: a closed-form head, which
 * has no fingerprints, coreset, buffer and steps. "preset" paper is StreamFP as published, which has them.
 *
 *     sfp_settings_create(&settings, &err);
 *     sfp_settings_set(settings, "method", "slda", &err);   another closed-form head
 *     sfp_settings_set(settings, "batch", "20", &err); */

typedef struct sfp_settings sfp_settings;

SFP_API sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err);
SFP_API void sfp_settings_free(sfp_settings *s);
SFP_API sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err);

/* Opens the engine that a run with these settings needs: backbone, img-size, precision and threads; "features:D" if data is
 * features:FILE.npy. With img-size auto, the size is
 * that of the checkpoint from which the run resumes or of its init-state; else it is chosen by rate and, if they are given, costs. */
SFP_API sfp_status sfp_engine_open_for(const sfp_settings *settings, sfp_log_fn log, void *log_ctx, sfp_engine **out,
                                       sfp_error *err);

/* The value of a setting: the one that was set, or that of the preset, or the default; NULL: it has none, or the key is unknown.
 * Valid until the next call on `s`. */
SFP_API const char *sfp_settings_get(const sfp_settings *s, const char *key);

/* 1: the value of this setting changes something beside the other settings; 0: it has no effect, as "sigma" with "select" none, or the
 * key is unknown. A run refuses a setting without effect that was set. */
SFP_API int sfp_settings_has_effect(const sfp_settings *s, const char *key);

typedef enum sfp_setting_type {
    SFP_TYPE_FLAG = 0,   /* on, off */
    SFP_TYPE_INT = 1,    /* min to max */
    SFP_TYPE_REAL = 2,   /* min to max */
    SFP_TYPE_CHOICE = 3, /* one of `values`, separated by | */
    SFP_TYPE_TEXT = 4    /* `values` says what */
} sfp_setting_type;

typedef enum sfp_setting_scope { SFP_SCOPE_LEARNER = 0, SFP_SCOPE_RUN = 1, SFP_SCOPE_ENGINE = 2 } sfp_setting_scope;

#define SFP_CHANGES_RESULT 1 /* what is learned, predicted or measured */
#define SFP_CHANGES_COST 2   /* the processing time of a batch */

typedef struct sfp_setting_info {
    const char *key;
    const char *group; /* heading under which --help lists it; NULL: none */
    sfp_setting_type type;
    sfp_setting_scope scope;
    int changes;               /* SFP_CHANGES_RESULT | SFP_CHANGES_COST: what another value changes; 0: neither */
    const char *values;        /* "exact|paper", "N", "KIND:PATH" */
    const char *default_value; /* NULL: none */
    double min, max;           /* INT and REAL */
    const char *word;          /* INT and REAL: a word that is also accepted, such as "off"; NULL: none */
    const char *help;
    const char *(*name)(int i); /* TEXT: names that it accepts, from 0 until NULL; NULL: not a list of names */
} sfp_setting_info;

/* Setting i, from 0; NULL after the last one. The result is valid for ever. */
SFP_API const sfp_setting_info *sfp_settings_info(int i);

/* ------------------------------------------------------------------------------------------------------------- 5 Learner
 *
 * Learns from batches of labelled samples. One thread at a time calls the functions of this part on one learner, except where
 * stated; its predictors (part 6) may run on other threads at the same time.
 *
 *     sfp_learner_create(engine, settings, &learner, &err);
 *     for (;;) {
 *         ... fill samples[0 .. n - 1] ...
 *         sfp_learner_offer(learner, n, samples, &report, &err);        one timestamp: the head learns from the batch
 *         sfp_learner_checkpoint(learner, "checkpoint", where, &err);   to resume after a crash
 *     }
 *     sfp_learner_save(learner, "state.safetensors", &err);             to predict with later */

typedef struct sfp_learner sfp_learner;

#define SFP_UNLABELLED (-1)

typedef struct sfp_sample {
    sfp_image image;
    int32_t label; /* from 0 */
    uint32_t reserved0;
    uint64_t id; /* chosen by the caller; events and sfp_learner_label use it */
    uint64_t reserved[2];
} sfp_sample;

typedef struct sfp_timestamp_report {
    size_t size;        /* sizeof(sfp_timestamp_report) */
    uint64_t timestamp; /* number of this batch, from 0 */
    int32_t offered;    /* samples in the batch */
    int32_t coreset;    /* samples of the batch that were chosen for training */
    int32_t steps;      /* gradient steps */
    int32_t trained;    /* coreset samples, summed over the steps */
    int32_t replayed;   /* buffered samples, summed over the steps */
    int32_t stored;     /* samples that went into free slots */
    int32_t replaced;   /* samples that replaced a buffered one */
    int32_t reserved;
    double loss;    /* of the last step; NaN: nothing was trained */
    double seconds; /* select, train and update the buffer */
} sfp_timestamp_report;
#define SFP_TIMESTAMP_REPORT_INIT SFP_INIT(sfp_timestamp_report)

/* settings NULL: defaults, a closed-form head (preset best). Settings of the trained learner, such as "select", need preset paper. Else,
 * unlike a run, a learner accepts a setting that has no effect beside the others, such as "sigma" with "select" none: a checkpoint of
 * such a learner can only be resumed with the same settings. */
SFP_API sfp_status sfp_learner_create(sfp_engine *e, const sfp_settings *settings, sfp_learner **out, sfp_error *err);

/* Its predictors must be freed first. */
SFP_API void sfp_learner_free(sfp_learner *l);

/* One timestamp with 1 to "batch" labelled samples. If an image cannot be read, nothing is learned and the message names its place
 * in the batch. report may be NULL. */
SFP_API sfp_status sfp_learner_offer(sfp_learner *l, int count, const sfp_sample *samples, sfp_timestamp_report *report,
                                     sfp_error *err);

/* Late labels. sfp_learner_enqueue keeps a copy of unlabelled samples (their label is ignored) in the label queue, which holds
 * "label-queue" images; the oldest one expires when it is full. sfp_learner_label gives some of them their labels, removes them
 * from the queue and offers them as one batch. SFP_ENOTFOUND: an id is not in the queue; nothing is learned. An id that is
 * enqueued again replaces the earlier image. The queue is not part of a checkpoint. */
SFP_API sfp_status sfp_learner_enqueue(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err);
SFP_API sfp_status sfp_learner_label(sfp_learner *l, int count, const uint64_t *ids, const int32_t *labels,
                                     sfp_timestamp_report *report, sfp_error *err);
SFP_API int sfp_learner_queued(const sfp_learner *l); /* images that wait for a label */

/* Corrections, for the methods ncm, slda and ridge (setting "method"), which are functions of sums over samples; SFP_EUNSUPPORTED for
 * other learners. On failure nothing is learned or forgotten.
 *
 * sfp_learner_forget takes out 1 to "batch" samples that were learned with these images and labels: predictions are then those of a
 * learner that has never seen them. SFP_ENOTFOUND: one of them cannot have been learned; whether just these images were learned is
 * not known to the learner. sfp_learner_relabel corrects the label of one such sample. States and checkpoints that are saved afterwards
 * contain no feature of a forgotten sample; earlier files do, also the backup PATH.old of a checkpoint until two more are written. */
SFP_API sfp_status sfp_learner_forget(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err);
SFP_API sfp_status sfp_learner_relabel(sfp_learner *l, const sfp_sample *sample, int32_t label, sfp_error *err);

/* Sums of two learners with the same backbone, input size, method, "taps", "tap-mean", "ridge" and preprocessing add up.
 * sfp_learner_merge adds the samples of another learner: predictions are then those of a learner of both streams. sfp_learner_subtract
 * takes them out again; SFP_ENOTFOUND: the learner does not have as many samples of a class. `path` is a state, a checkpoint or a run directory; `data` is the contents of such a file, which are only read during the call.
 *
 * Classes are matched by name; their labels may differ. A class that the learner does not have is added, with its own label if that is
 * unused. A class without a name, on either side, is the class of the same label. SFP_EINVAL: two classes would become one. */
SFP_API sfp_status sfp_learner_merge(sfp_learner *l, const char *path, sfp_error *err);
SFP_API sfp_status sfp_learner_merge_memory(sfp_learner *l, const void *data, size_t size, sfp_error *err);
SFP_API sfp_status sfp_learner_subtract(sfp_learner *l, const char *path, sfp_error *err);
SFP_API sfp_status sfp_learner_subtract_memory(sfp_learner *l, const void *data, size_t size, sfp_error *err);

/* Merges states, checkpoints and run directories without a backbone, and writes a state that contains the sums. All of them must have
 * the backbone and the settings of the first one, whose labels the classes keep. On failure no file is written.
 *
 * sums_only: the file contains sums over samples only, and no feature vector of a single sample: recent and kept samples are not
 * stored. Classes with fewer than min_count samples (0: 2) are excluded, and left_out is called for each of them; the spread of their
 * samples stays in the sum over all classes. The calibration of probabilities is kept. A learner that continues with the file adjusts it to new
 * samples, and has scores for "none of the classes" when it has enough of them. */
typedef struct sfp_merge_options {
    size_t size;                 /* sizeof(sfp_merge_options) */
    int32_t subtract_count;      /* files to subtract after all inputs were added */
    int32_t sums_only;           /* 1: no single samples */
    const char *const *subtract; /* (subtract_count) */
    int64_t min_count;           /* only with sums_only */
    /* name NULL: the class has none */
    void (*left_out)(void *ctx, int32_t label, const char *name, int64_t samples);
    void *ctx;
    int32_t threads; /* 0: as many as the process may run on */
    int32_t reserved;
} sfp_merge_options;
#define SFP_MERGE_OPTIONS_INIT SFP_INIT(sfp_merge_options)

typedef struct sfp_merge_report {
    size_t size;     /* sizeof(sfp_merge_report) */
    int64_t samples; /* in the written sums */
    int32_t classes; /* with samples */
    int32_t units;   /* files that were added */
    uint64_t digest; /* of a share: the sum of the digests of its messages; otherwise 0 */
} sfp_merge_report;
#define SFP_MERGE_REPORT_INIT SFP_INIT(sfp_merge_report)

/* inputs (count, at least 1). options NULL: defaults. report may be NULL. */
SFP_API sfp_status sfp_merge(int count, const char *const *inputs, const char *output, const sfp_merge_options *options,
                             sfp_merge_report *report, sfp_error *err);

/* Merges what the workers of a message log have committed (docs/scale.md). dir: their setting "share", which names the log. The log tells the
 * last file of each worker (redis:), or of each partition (kafka:); those are added in the order of partitions, so that the output has the
 * same bytes for any number of workers. Workers may learn meanwhile. SFP_EIO: the log or the directory cannot be reached. */
SFP_API sfp_status sfp_merge_share(const char *dir, const char *output, const sfp_merge_options *options,
                                   sfp_merge_report *report, sfp_error *err);

/* Known tasks ("tasks" is a number). sfp_learner_set_task_classes names the classes of the current task: without a buffer the loss
 * is over these classes only, so a learner with buffer=none needs them before the first batch of every task, and after a resume. */
SFP_API sfp_status sfp_learner_set_task_classes(sfp_learner *l, int count, const int32_t *labels, sfp_error *err);
SFP_API sfp_status sfp_learner_next_task(sfp_learner *l, sfp_error *err);

/* Classes. sfp_learner_classes may be called from any thread, also while another one offers; it then includes the classes of the
 * batch in progress. sfp_learner_add_class returns the label of the class of that name; if there is none, a new label: the lowest
 * one that has neither a name nor samples. Names are saved in states. */
SFP_API int sfp_learner_classes(const sfp_learner *l);
SFP_API sfp_status sfp_learner_add_class(sfp_learner *l, const char *name, int32_t *label, sfp_error *err);
SFP_API sfp_status sfp_learner_set_class_name(sfp_learner *l, int32_t label, const char *name, sfp_error *err);
/* NULL: the class has no name. Valid until the next call on the learner. */
SFP_API const char *sfp_learner_class_name(const sfp_learner *l, int32_t label);

/* The state (state.safetensors): all that prediction needs. A learner with the same settings can load it, or a checkpoint, and
 * continue with its fingerprints and classifier, without its buffer. The state of method ncm, slda or ridge also contains its sums, if
 * they have at most 64 MiB: a learner that loads it continues as after the checkpoint, with these samples instead of its own; classes
 * are matched as sfp_learner_merge does. */
SFP_API sfp_status sfp_learner_save(sfp_learner *l, const char *path, sfp_error *err);
SFP_API sfp_status sfp_learner_load(sfp_learner *l, const char *path, sfp_error *err);

/* The checkpoint: everything needed to resume. A learner that resumes ends in the same bytes as one that never stopped. A kill at
 * any moment leaves this checkpoint or the one before. `position` is a text of the caller, such as the place in the stream;
 * sfp_learner_resume returns it whole in *position (free with sfp_free; position may be NULL). SFP_ENOTFOUND: no checkpoint. A load
 * or resume that fails changes nothing. */
SFP_API sfp_status sfp_learner_checkpoint(sfp_learner *l, const char *path, const char *position, sfp_error *err);
SFP_API sfp_status sfp_learner_resume(sfp_learner *l, const char *path, char **position, sfp_error *err);

/* ----------------------------------------------------------------------------------------------------------- 6 Predictor
 *
 * Predicts while the learner learns. Every run reads one consistent snapshot: that of the last finished timestamp when the call
 * began. A predictor belongs to one thread at a time; create one per thread. sfp_predictor_run may overlap with any call on the
 * learner; creating and freeing a predictor must not.
 *
 *     sfp_predictor_create(learner, NULL, &predictor, &err);
 *     sfp_predictor_run(predictor, 1, &frame, &answer, &err);
 *     printf("%s %.2f\n", sfp_predictor_class_name(predictor, answer.label), answer.probability);
 *
 * Classes, names, timestamps and scores belong to the snapshot of the last run, so that they always fit its answers. Before the
 * first run they are those of the moment of creation. They are valid until the next run. */

typedef struct sfp_predictor sfp_predictor;

typedef struct sfp_predictor_options {
    size_t size;       /* sizeof(sfp_predictor_options) */
    int32_t threads;   /* 0: as many as the process may run on. A predictor has its own threads. */
    int32_t max_batch; /* images computed at once; larger runs are split. 0: as runs evaluate */
    int32_t sums;      /* sfp_predictor_open: 1: also reads the sums of the state, for sfp_predictor_judge */
    int32_t reserved;
    const char *cache; /* sfp_predictor_open: directory of a feature cache, as the setting "cache"; NULL: none */
} sfp_predictor_options;
#define SFP_PREDICTOR_OPTIONS_INIT SFP_INIT(sfp_predictor_options)

typedef struct sfp_prediction {
    int32_t label;     /* the best class; -1: no class has been learned yet, or the image could not be read */
    sfp_status status; /* not SFP_OK: the image could not be read; see sfp_predictor_image_error */
    float probability; /* of that class; NaN for label -1 */
    float own;         /* of sfp_predictor_judge: the probability of the sample's label; else 0 */
    uint32_t reserved[2];
} sfp_prediction;

/* Creates a predictor of a learner, which must outlive it. options NULL: defaults. */
SFP_API sfp_status sfp_predictor_create(sfp_learner *l, const sfp_predictor_options *options, sfp_predictor **out,
                                        sfp_error *err);

/* Opens a predictor of a state file or a run directory, with the settings of the file. The file records its backbone; the engine must have the same. */
SFP_API sfp_status sfp_predictor_open(sfp_engine *e, const char *state, const sfp_predictor_options *options, sfp_predictor **out,
                                      sfp_error *err);

/* Opens a predictor of the backbone's own head. A backbone without a head has 0 classes and gives only features. settings: "resize", "decode",
 * "normalise", "taps", "tap-mean" and "merge-tokens" have the same meaning as for a learner, so the features are those from which a closed-form
 * head learns. NULL: defaults, and features of one tap. */
SFP_API sfp_status sfp_predictor_open_backbone(sfp_engine *e, const sfp_settings *settings, const sfp_predictor_options *options,
                                               sfp_predictor **out, sfp_error *err);
SFP_API void sfp_predictor_free(sfp_predictor *p);

/* predictions: (count). An image that cannot be read fails alone: its prediction has a status, the others are answered. */
SFP_API sfp_status sfp_predictor_run(sfp_predictor *p, int count, const sfp_image *images, sfp_prediction *predictions,
                                     sfp_error *err);
/* The message for image i of the last run; "" if it was read. */
SFP_API const char *sfp_predictor_image_error(const sfp_predictor *p, int i);

/* Updates the predictor to the newest snapshot without predicting an image, for example to read its classes. */
SFP_API sfp_status sfp_predictor_refresh(sfp_predictor *p, sfp_error *err);

SFP_API int sfp_predictor_classes(const sfp_predictor *p);
SFP_API const char *sfp_predictor_class_name(const sfp_predictor *p, int32_t label); /* NULL: it has none */
SFP_API int sfp_predictor_class_seen(const sfp_predictor *p, int32_t label);         /* 1: samples of it were offered */
SFP_API uint64_t sfp_predictor_timestamps(const sfp_predictor *p);                   /* batches learned in its snapshot */

/* (count, classes) log-probabilities of the last run, -INFINITY for classes never seen; logits if the backbone's own head answers.
 * Rows of unreadable images are undefined. NULL: no run since the last refresh, or no classes. */
SFP_API const float *sfp_predictor_scores(const sfp_predictor *p);
/* (count) scores of the last run for "none of the classes": the share of samples of known classes that are nearer to a class mean than
 * the image, each compared with the means of the others, from 0 to 1. From about 0.95 on the image may belong to a class that was not learned. NAN: the image could not
 * be read, or the predictor has no scores: the head is not ridge or slda, or fewer than about 20 samples were learned. NULL: no run,
 * or a predictor of the backbone's own head. */
SFP_API const float *sfp_predictor_unknown(const sfp_predictor *p);
/* (count, feature_dim) features of the last run: the class tokens after the last "taps" blocks and with "tap-mean" the mean patch
 * token before them; of images that could not be read, undefined. NULL: a predictor of fingerprints does not compute them, nor do
 * sfp_predictor_judge and sfp_predictor_queue. */
SFP_API const float *sfp_predictor_features(const sfp_predictor *p);
SFP_API int sfp_predictor_feature_dim(const sfp_predictor *p); /* length of a row; 0: no features */

/* Judges samples that were learned with these labels: predicts each one with the learner as it would be without this sample. This is computed
 * exactly, in closed form, but with the strengths that were chosen with all samples. features (count, feature_dim): those of a run of this
 * predictor. predictions, sfp_predictor_scores and sfp_predictor_unknown are then as after a run. A class whose only sample is the judged one
 * has probability 0; if the class of a label has no samples, the prediction has label -1. SFP_EUNSUPPORTED: the method is not ncm, slda or
 * ridge, it has a half-life, or the predictor has no sums (it needs a learner, or options.sums when it is opened).
 *
 *     sfp_predictor_run(predictor, count, images, predictions, &err);
 *     memcpy(features, sfp_predictor_features(predictor), ...);       (or kept from an earlier run)
 *     sfp_predictor_judge(predictor, count, features, labels, predictions, &err);
 *     n = sfp_suspects(count, labels, predictions, 10, suspects); */
SFP_API sfp_status sfp_predictor_judge(sfp_predictor *p, int count, const float *features, const int32_t *labels,
                                       sfp_prediction *predictions, sfp_error *err);
/* Writes the indices of judged samples whose answer differs from their label, at most `limit`; returns their number. Samples with the largest
 * difference between the two probabilities come first. */
SFP_API int sfp_suspects(int count, const int32_t *labels, const sfp_prediction *predictions, int limit, int32_t *indices);

/* Why a sample is in the queue. UNCERTAIN: its two highest probabilities are close. UNLIKE: it is farther from all classes than 95 % of the
 * known samples. DIVERSE: its class has few samples or, before anything was learned, it differs from the samples before it. */
typedef enum sfp_queue_reason { SFP_REASON_UNCERTAIN = 0, SFP_REASON_UNLIKE = 1, SFP_REASON_DIVERSE = 2 } sfp_queue_reason;

typedef struct sfp_queued {
    int32_t index;
    int32_t reason; /* sfp_queue_reason */
    float score;    /* above 0; in the order of the queue it never increases */
    int32_t label;  /* the present answer; -1: nothing was learned yet */
    float probability;
    uint32_t reserved[3];
} sfp_queued;

/* Chooses the samples whose labels would teach most, best first, from those without a label. The next one has the answer with the fewest
 * samples, counting those that were learned and those in the queue; of these it is the one with the smallest difference between its two
 * highest probabilities. Before anything was learned, the next one is farthest from those before it. features: as above. *found: number
 * of samples written to out (limit). */
SFP_API sfp_status sfp_predictor_queue(sfp_predictor *p, int count, const float *features, int limit, sfp_queued *out, int *found,
                                       sfp_error *err);

/* ------------------------------------------------------------------------------------------------------------- 7 Sources
 *
 * Where images come from. An indexed source is a dataset: its records are known when it is opened, and image i is loaded on request,
 * from any thread. A live source delivers images as they arrive, to one thread.
 *
 *     sfp_source_open("folder:pacs/train", NULL, &source, &err);
 *     for (int64_t i = 0; i < sfp_source_count(source); i++) {
 *         sfp_source_read(source, i, &record, &image, &err);
 *         ...
 *         sfp_source_release(source, &image);
 *     } */

typedef struct sfp_source sfp_source;

typedef struct sfp_record {
    int32_t label;  /* class, from 0; SFP_UNLABELLED */
    int32_t domain; /* from 0; -1: none */
    int32_t task;   /* of the dataset's own scenario; -1: none */
    double time;    /* of the dataset (year, bucket, seconds); NaN: none */
} sfp_record;

typedef struct sfp_source_options {
    size_t size;  /* sizeof(sfp_source_options) */
    int32_t test; /* 1: the test part of a dataset that has one */
    int32_t
        order; /* order of the classes: 0 natural; above 0: shuffled by this seed; -K: authors:K, order K of the paper's authors */
    uint64_t seed; /* of sources that draw their images or their order */
} sfp_source_options;
#define SFP_SOURCE_OPTIONS_INIT SFP_INIT(sfp_source_options)

/* spec: "KIND:PATH". options NULL: defaults. */
SFP_API sfp_status sfp_source_open(const char *spec, const sfp_source_options *options, sfp_source **out, sfp_error *err);
SFP_API void sfp_source_close(sfp_source *s);

/* Describes kind i of the library, from 0; returns 0 if there is no such kind. name, summary and live may be NULL. */
SFP_API int sfp_source_kind(int i, const char **name, const char **summary, int *live);

SFP_API int sfp_source_is_live(const sfp_source *s);
SFP_API int sfp_source_has_test_part(const sfp_source *s); /* 1: opened with options.test, and the dataset has such a part */
SFP_API int sfp_source_is_seeded(const sfp_source *s);     /* 1: options.seed changes its images or their order */
SFP_API int64_t sfp_source_count(const sfp_source *s);     /* images; -1: live */
SFP_API int sfp_source_classes(const sfp_source *s);       /* a live source discovers them: so far */
SFP_API const char *sfp_source_class_name(const sfp_source *s, int label);
SFP_API int sfp_source_domains(const sfp_source *s);
SFP_API const char *sfp_source_domain_name(const sfp_source *s, int domain);
SFP_API const char *sfp_source_warning(const sfp_source *s); /* files that were skipped when it was opened; NULL: none */

/* Indexed: the record of image i, and the image; either may be NULL. Thread-safe. Release the image. */
SFP_API sfp_status sfp_source_read(const sfp_source *s, int64_t i, sfp_record *record, sfp_image *image, sfp_error *err);
SFP_API void sfp_source_release(const sfp_source *s, sfp_image *image);

/* A source of your own. It fills either the indexed members (count >= 0, record, load) or the live one (next). Strings and
 * arrays must stay valid until close. The library calls record and load from several threads, next from one. Callbacks report
 * failures with sfp_error_set. */
typedef struct sfp_live_item {
    sfp_image image;        /* data NULL: no image, only the label of an earlier one, found by its key */
    const char *class_name; /* NULL: unlabelled */
    const char *key;        /* identifies the image for a label that arrives later; NULL: none */
    uint64_t reserved[2];
} sfp_live_item;

typedef struct sfp_source_definition {
    size_t size;      /* sizeof(sfp_source_definition) */
    const char *name; /* for messages: "camera" */
    void *ctx;        /* passed to every callback */
    /* indexed */
    int64_t count;
    int32_t classes, domains;
    const char *const *class_names;  /* (classes) all different */
    const char *const *domain_names; /* (domains) all different */
    int32_t keeps_order;             /* 1: the order of the images means something and is not shuffled within a task */
    /* The record has no label, domain, task and time before the call. */
    sfp_status (*record)(void *ctx, int64_t i, sfp_record *record, sfp_error *err);
    /* The pixels that image points to must stay valid until release, which is called if load succeeds. An image that cannot be
     * loaded is skipped and counted. After SFP_EIO and SFP_ENOMEM it is loaded again; then the run fails, after SFP_EIO only if
     * eight images in a row failed so. */
    sfp_status (*load)(void *ctx, int64_t i, sfp_image *image, sfp_error *err);
    void (*release)(void *ctx, sfp_image *image); /* NULL: nothing to release */
    /* live: waits for the next image at most 100 ms. *got 1: the item is filled; *end 1: no other item follows. Both are 0 before
     * the call. What item points to must stay valid until the next call. A failure ends the source; an image that cannot be
     * decoded is skipped and counted. */
    sfp_status (*next)(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *err);
    void (*close)(void *ctx); /* NULL: nothing to close */
} sfp_source_definition;
#define SFP_SOURCE_DEFINITION_INIT SFP_INIT(sfp_source_definition)

/* The source belongs to the caller, or to the run it is given to. close is called also if this fails. */
SFP_API sfp_status sfp_source_create(const sfp_source_definition *definition, sfp_source **out, sfp_error *err);

/* ------------------------------------------------------------------------------------------- 8 Runs and their results
 *
 * A run learns from a stream at its arrival rate, evaluates, and writes result.json, events.jsonl, state.safetensors, a checkpoint
 * and report.html into the directory "out". What it does is in the settings. On a live source, result.json ("finished" is false),
 * state.safetensors and report.html are also written while it runs, with its checkpoints. Lines of its logs go to the file that has the
 * name of the log when they are written, so that another program may rotate them.
 *
 *     sfp_settings_set(settings, "data", "folder:pacs/train", &err);
 *     sfp_settings_set(settings, "out", "runs/1", &err);
 *     sfp_run_open(engine, settings, NULL, &run, &err);
 *     sfp_run_finish(run, &err);
 *     printf("%.3f\n", sfp_result_number(sfp_run_result(run), "average_accuracy"));
 *     sfp_run_close(run); */

typedef struct sfp_run sfp_run;
typedef struct sfp_result sfp_result;

typedef struct sfp_run_progress {
    size_t size;         /* set by the library */
    int32_t task, tasks; /* tasks 0: the processing time is being measured, on `offered` of `total` batches */
    const char *task_name;
    uint64_t offered_before, offered, total;   /* samples: by earlier processes, so far, in all (0: unknown) */
    double rate, lag, loss, accuracy, seconds; /* samples/s, s, prequential accuracy, s of this process; NaN: unknown */
    uint64_t evaluated, to_evaluate;           /* during an evaluation: test images done and in all; else both 0 */
} sfp_run_progress;

typedef struct sfp_run_options {
    size_t size; /* sizeof(sfp_run_options) */
    sfp_source
        *source; /* the stream, instead of the setting "data"; the run owns it from now on, also if opening fails. NULL: none */
    sfp_source *test;                                              /* the test set, instead of the setting "test"; likewise */
    void (*progress)(void *ctx, const sfp_run_progress *progress); /* after each timestamp and during evaluations; NULL: none */
    sfp_log_fn log;                                                /* NULL: that of the engine */
    void *ctx;                                                     /* of both callbacks */
} sfp_run_options;
#define SFP_RUN_OPTIONS_INIT SFP_INIT(sfp_run_options)

/* Checks everything that can be checked before the first sample: settings, sources, the directory. Nothing in the directory is
 * replaced before the first sample has arrived. options NULL: defaults. */
SFP_API sfp_status sfp_run_open(sfp_engine *e, const sfp_settings *settings, const sfp_run_options *options, sfp_run **out,
                                sfp_error *err);

/* Processes the next delivery: at most one timestamp, with the evaluation and the checkpoint that are due after it. *more 0: the
 * stream has ended and the outputs are written, or the run was cancelled and its checkpoint is written. */
SFP_API sfp_status sfp_run_step(sfp_run *run, int *more, sfp_error *err);

/* All steps that are left. SFP_OK also if it was cancelled: sfp_result_number(result, "finished") is then 0. */
SFP_API sfp_status sfp_run_finish(sfp_run *run, sfp_error *err);

/* Asks the run to stop after the current timestamp and write a checkpoint; the setting "resume" continues it. On a live source this
 * is a normal end. May be called from any thread and from a signal handler. */
SFP_API void sfp_run_cancel(sfp_run *run);

/* The number of batches in a task (-1: in all tasks) before a clock drops any, and of their samples (may be NULL). Both are 0 for a
 * live source and for a task that does not exist. */
SFP_API int64_t sfp_run_batches(const sfp_run *run, int task, int64_t *samples);

/* Measures the mean processing time of a batch in seconds on a copy of the learner, as clock "paper" does, with the number of batches
 * in the setting "calibrate". Call it before the first step; the run is not changed. */
SFP_API sfp_status sfp_run_measure(sfp_run *run, double *seconds, sfp_error *err);

/* Valid until sfp_run_close; complete when the run has ended. */
SFP_API const sfp_result *sfp_run_result(const sfp_run *run);
/* A run that has not ended leaves its directory as a killed process would: the setting "resume" continues from the last checkpoint. */
SFP_API void sfp_run_close(sfp_run *run);

/* Corrections of a live run: a sample gets another label, or is forgotten, as if it had always been so. dir: the setting "out" of
 * the run, which another process may be running; if none does, the run is resumed for this. file: the name of the sample in its
 * stream, or the path of its image. The image must exist, because its features are subtracted from the sums; the head must be
 * ncm, slda or ridge. After sfp_run_forget, state, checkpoint and store of samples contain nothing of the sample but its id and a
 * hash of its image, so that the same bytes are not learned again. SFP_ENOTFOUND: there is no such sample. */
SFP_API sfp_status sfp_run_correct(const char *dir, const char *file, const char *label, sfp_error *err);
SFP_API sfp_status sfp_run_forget(const char *dir, const char *file, sfp_error *err);
/* Corrections of a class in a run with a watched directory. sfp_run_rename_class: the class keeps its samples, and samples that
 * arrive later with the old name belong to it. With merge not 0, `to` must be an existing class, which gets the samples; with 0
 * there must be no class `to`. sfp_run_remove_class forgets all samples of a class; samples of this class that arrive later are
 * learned. */
SFP_API sfp_status sfp_run_rename_class(const char *dir, const char *name, const char *to, int merge, sfp_error *err);
SFP_API sfp_status sfp_run_remove_class(const char *dir, const char *name, sfp_error *err);

/* Submitted samples. A run whose setting "data" is "submitted" learns what the program submits while another thread calls sfp_run_step. The
 * setting "out" is its directory; with the setting "resume" it continues there. All functions below are thread-safe beside sfp_run_step and
 * each other. They are accepted from the first sfp_run_step on until the run ends, and must have returned before sfp_run_close.
 *
 *     sfp_submission s = SFP_SUBMISSION_INIT;
 *     s.bytes = jpeg, s.byte_count = n, s.label = "cup", s.key = "camera-1/4711";
 *     sfp_run_submit(run, &s, &id, NULL, &err);       the sample is on the disk, and will be learned once */
typedef struct sfp_submission {
    size_t size;       /* sizeof(sfp_submission) */
    const void *bytes; /* contents of a JPEG, PNG or WebP file */
    size_t byte_count;
    const char *name;  /* NULL: "#ID". If another sample has this name, #ID is appended. */
    const char *label; /* NULL: the sample waits for its label */
    const char *key;   /* a second submission with the same key is the same sample; NULL: none */
    /* The answer, if the program has predicted the image already. Without it, the run predicts a sample that has no label. */
    int32_t answered;       /* 1: the members below are set */
    const char *class_name; /* NULL: nothing is learned yet */
    double probability, unknown;
    uint64_t timestamp; /* sfp_predictor_timestamps */
} sfp_submission;
#define SFP_SUBMISSION_INIT SFP_INIT(sfp_submission)

/* Adds a sample. SFP_OK means: it is on the disk with its image and, if it has a label, is learned exactly once, even if the
 * process is killed or the machine loses power. *repeated (may be NULL) 1: the key was submitted before, and *id is the sample of
 * that submission. SFP_ELIMIT: the images that wait to be learned fill the setting "keep-images"; submit it again later.
 * SFP_EUNSUPPORTED: the same bytes were forgotten. The image is not decoded here: one that cannot be read is found when it is its
 * turn. */
SFP_API sfp_status sfp_run_submit(sfp_run *run, const sfp_submission *s, uint64_t *id, int *repeated, sfp_error *err);
/* Sets or changes the label of a sample. SFP_OK means that the label is on the disk. If the sample was learned with another label, the run
 * forgets it and learns it again with the new label (heads ncm, slda and ridge). SFP_ENOTFOUND: there is no such sample. SFP_ELIMIT: its
 * image is no longer stored. */
SFP_API sfp_status sfp_run_label(sfp_run *run, uint64_t id, const char *label, sfp_error *err);
/* Forgets a sample as sfp_run_forget does, and waits until this is done. may_return 1: the same bytes may be submitted again later. */
SFP_API sfp_status sfp_run_forget_sample(sfp_run *run, uint64_t id, int may_return, sfp_error *err);

typedef enum sfp_standing {
    SFP_WAITING = 0, /* for its label, or to be learned */
    SFP_LEARNED = 1,
    SFP_DROPPED = 2, /* its image was removed to make space before it had a label */
    SFP_UNREADABLE = 3,
    SFP_FORGOTTEN = 4
} sfp_standing;

/* A sample; texts are valid during the call. */
typedef struct sfp_sample_info {
    size_t size; /* set by the library */
    uint64_t id;
    const char *name, *label, *learned; /* learned: the label with which it is part of the learner. NULL: none */
    const char *predicted, *reason;     /* predicted: the class of its answer; reason: why it was dropped. NULL: none */
    double probability, unknown;        /* of the answer; NAN: none */
    int64_t arrived;                    /* milliseconds since 1970 */
    sfp_standing standing;
    int32_t has_image;
    const char *path; /* sfp_run_list, of a run with a watched directory: where its image is, or was; else NULL */
} sfp_sample_info;

typedef struct sfp_sample_filter {
    size_t size;         /* sizeof(sfp_sample_filter) */
    uint64_t from;       /* the first id */
    int32_t limit;       /* 0: 100 */
    int32_t by_standing; /* 1: only samples with the standing below */
    sfp_standing standing;
    int32_t unlabelled;            /* 1: only samples without a label */
    const char *label, *predicted; /* NULL: any */
} sfp_sample_filter;
#define SFP_SAMPLE_FILTER_INIT SFP_INIT(sfp_sample_filter)

/* Calls fn for each sample that passes the filter, in order of id, except forgotten samples. fn must not call a function on the
 * run. */
SFP_API sfp_status sfp_run_samples(sfp_run *run, const sfp_sample_filter *filter,
                                   sfp_status (*fn)(void *ctx, const sfp_sample_info *sample, sfp_error *err), void *ctx,
                                   sfp_error *err);
/* sfp_run_samples for the run in the directory `dir`, which may be running or not. A limit of 0 means no limit here. */
SFP_API sfp_status sfp_run_list(const char *dir, const sfp_sample_filter *filter,
                                sfp_status (*fn)(void *ctx, const sfp_sample_info *sample, sfp_error *err), void *ctx,
                                sfp_error *err);
/* The bytes of the image of a sample, as they were submitted; free them with sfp_free. */
SFP_API sfp_status sfp_run_sample_image(sfp_run *run, uint64_t id, void **bytes, size_t *count, sfp_error *err);

/* Calls fn for each class with the number of its learned samples, in order of names. sfp_run_add_class adds a class that has no sample yet. */
SFP_API sfp_status sfp_run_classes(sfp_run *run, sfp_status (*fn)(void *ctx, const char *name, int64_t samples, sfp_error *err),
                                   void *ctx, sfp_error *err);
SFP_API sfp_status sfp_run_add_class(sfp_run *run, const char *name, sfp_error *err);

/* counts: (5) samples by standing. */
SFP_API sfp_status sfp_run_counts(sfp_run *run, uint64_t counts[5], sfp_error *err);
/* Reads the numbers of a worker of a message log (redis:, kafka:). Any thread may call it. SFP_EINVAL: "data" is not a log. */
typedef struct sfp_worker_status {
    size_t size;
    uint64_t samples;  /* learned in its unit: all of the worker (redis:), or those of the present partition (kafka:) */
    uint64_t pending;  /* messages that it has read and not committed */
    uint64_t commits;  /* of this process, as the following */
    uint64_t fenced;   /* commits that were refused, because another worker has the messages */
    uint64_t rejected; /* messages that were set aside */
    uint64_t answered; /* messages without a label */
    double lag;        /* seconds from the receipt of a message by the log to its learning; NaN: unknown */
    double sum_age;    /* seconds since the state of "answer-with" was written; NaN: there is none */
} sfp_worker_status;
#define SFP_WORKER_STATUS_INIT SFP_INIT(sfp_worker_status)
SFP_API sfp_status sfp_run_worker(sfp_run *run, sfp_worker_status *out, sfp_error *err);

/* Pauses (1) or resumes (0) learning. While the run is paused, samples are accepted and wait. */
SFP_API sfp_status sfp_run_pause(sfp_run *run, int paused, sfp_error *err);
/* Asks the run to write a checkpoint, the state and the report, and waits until they are written. */
SFP_API sfp_status sfp_run_checkpoint(sfp_run *run, sfp_error *err);
/* Creates a predictor of the run's learner, which one thread may use while another calls sfp_run_step. Create it before the first step, and free
 * it before the run is closed. */
SFP_API sfp_status sfp_run_predictor(sfp_run *run, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err);

/* Results. docs/method.md, section 17, lists the fields of result.json. */
SFP_API sfp_status sfp_result_read(const char *path, sfp_result **out, sfp_error *err); /* a result.json or a run directory */
SFP_API void sfp_result_free(sfp_result *r);

/* A number by its key in result.json, with dots for inner objects: "average_accuracy", "samples.offered", "lag.mean". NaN: not
 * measured, or there is no such number. */
SFP_API double sfp_result_number(const sfp_result *r, const char *key);
/* A text by its key, such as "started" or "config.sigma"; NULL: there is none. */
SFP_API const char *sfp_result_string(const sfp_result *r, const char *key);

SFP_API int sfp_result_tasks(const sfp_result *r);
SFP_API int sfp_result_classes(const sfp_result *r);
SFP_API const char *sfp_result_task_name(const sfp_result *r, int task);
SFP_API const char *sfp_result_class_name(const sfp_result *r, int label);
/* Accuracy on task `on` after task `after`. NaN: not measured. */
SFP_API double sfp_result_accuracy(const sfp_result *r, int after, int on);
/* The whole result as JSON, on one line or indented; free with sfp_free. */
SFP_API sfp_status sfp_result_json(const sfp_result *r, int one_line, char **out, sfp_error *err);

/* The registry, in which every run with a directory records its result. sfp_registry_list returns {"runs": [...]} as `streamfp runs
 * --json` does, newest first; limit 0: all runs; free *json with sfp_free. A run is "gone" if its directory does not exist any more,
 * and "running" if it is not finished and a process has locked its directory.
 * sfp_registry_forget removes a run by its number ("12"), all runs of a directory or, with NULL, all that are gone, but no file.
 * *count (may be NULL): how many. SFP_ENOTFOUND: no such run, or no registry yet. */
SFP_API sfp_status sfp_registry_list(int limit, char **json, sfp_error *err);
SFP_API sfp_status sfp_registry_forget(const char *run, int *count, sfp_error *err);

/* ---------------------------------------------------------------------------------------------------------- 9 Evaluation
 *
 * The accuracy of a saved state on labelled images. Classes are matched by name; images of classes that the state has not learned
 * are counted as unknown.
 *
 *     sfp_evaluation_options o = SFP_EVALUATION_OPTIONS_INIT;
 *     o.state = "runs/1", o.data = "folder:pacs/test";
 *     sfp_evaluate(engine, &o, &evaluation, &err);
 *     printf("%.3f\n", sfp_evaluation_number(evaluation, "accuracy")); */

typedef struct sfp_evaluation sfp_evaluation;

typedef struct sfp_evaluation_options {
    size_t size;        /* sizeof(sfp_evaluation_options) */
    const char *state;  /* a state file or a run directory */
    const char *data;   /* KIND:PATH; or */
    sfp_source *source; /* an indexed source, owned by the evaluation from now on, also if it fails */
    const char *tasks;  /* as the setting "tasks"; NULL: the domains or tasks of the dataset */
    int32_t train_part; /* 1: the training part of a dataset that has both; else the test part */
    int32_t has_seed;   /* 1: `seed` is used; 0: that of the state */
    uint64_t seed;      /* of sources that draw their images */
    uint64_t limit;     /* images per task; 0: all */
    void (*progress)(void *ctx, uint64_t done, uint64_t total); /* NULL: none */
    sfp_log_fn log;                                             /* NULL: that of the engine */
    void *ctx;                                                  /* of both callbacks */
    const char *shard; /* "I/N": a part of the dataset, as the setting "shard"; NULL: all of it */
} sfp_evaluation_options;
#define SFP_EVALUATION_OPTIONS_INIT SFP_INIT(sfp_evaluation_options)

typedef struct sfp_accuracy {
    const char *name;
    uint64_t images, correct;
    double accuracy; /* NaN: no images */
} sfp_accuracy;

SFP_API sfp_status sfp_evaluate(sfp_engine *e, const sfp_evaluation_options *options, sfp_evaluation **out, sfp_error *err);
SFP_API void sfp_evaluation_free(sfp_evaluation *v);

/* "accuracy", "average_accuracy" (mean over tasks), "calibration_error", "calibration_error_before" (without the fitted scale of a
 * closed-form head; NaN: it has none), "images", "correct", "skipped" (unreadable), "unlabelled", "unknown" (images of
 * unknown classes), "seconds". NaN: there is no such number. */
SFP_API double sfp_evaluation_number(const sfp_evaluation *v, const char *key);
/* Rows (*count), valid until the evaluation is freed. With too many classes for a confusion matrix there are no rows of classes. */
SFP_API const sfp_accuracy *sfp_evaluation_tasks(const sfp_evaluation *v, int *count);
SFP_API const sfp_accuracy *sfp_evaluation_classes(const sfp_evaluation *v, int *count);
SFP_API const sfp_accuracy *sfp_evaluation_unknown(const sfp_evaluation *v, int *count); /* correct is 0 */
/* (classes, classes), row: true class, column: answer; NULL: too many classes. */
SFP_API const uint64_t *sfp_evaluation_confusion(const sfp_evaluation *v);
/* Why the first unreadable image was skipped; "": none was. */
SFP_API const char *sfp_evaluation_first_error(const sfp_evaluation *v);

/* --------------------------------------------------------------------- 10 Selectors and buffer methods of your own
 *
 * Register them before learners are created; afterwards their names are values of the settings "select" and "buffer". A definition
 * is copied; its strings and ctx must stay valid until the program ends. Callbacks of one learner run on the thread that offers;
 * those of different learners may run at the same time. The library checks what a callback returns. If a callback fails or breaks
 * the rules below, the timestamp fails with a message that names the selector or buffer method. */

/* What a selector or a buffer method needs; the library computes nothing else. */
#define SFP_NEEDS_SCORE 1u    /* the similarity of each sample to the fingerprints */
#define SFP_NEEDS_FEATURES 2u /* (b, D) class tokens of the prompted pass; costs a pass */
#define SFP_NEEDS_LOGITS 4u   /* (b, classes); comes with FEATURES */
#define SFP_NEEDS_PROBS 8u    /* (b, classes); comes with FEATURES */
#define SFP_NEEDS_QUERY \
    64u /* (b, D) class tokens of the pass without prompts; costs a pass for samples that are not trained on */

/* Random numbers of the learner: a checkpoint continues their sequence. */
typedef struct sfp_random sfp_random;
SFP_API double sfp_random_uniform(sfp_random *r);             /* [0, 1) */
SFP_API uint32_t sfp_random_below(sfp_random *r, uint32_t n); /* 0 .. n - 1; n > 0 */

typedef struct sfp_selection {
    size_t size;           /* set by the library */
    int32_t b;             /* samples in the batch */
    int32_t coreset;       /* how many to choose: floor(sigma * b), at least 1 */
    int32_t dim, classes;  /* D, C */
    const int32_t *labels; /* (b) */
    const float *score;    /* (b); what was not declared is NULL */
    const float *query;    /* (b, D) */
    const float *features; /* (b, D) */
    const float *logits;   /* (b, C) */
    const float *probs;    /* (b, C) */
    sfp_random *random;
} sfp_selection;

typedef struct sfp_selector_definition {
    size_t size;         /* sizeof(sfp_selector_definition) */
    const char *name;    /* 1 to 31 lower-case letters, digits and '-' */
    const char *summary; /* one line for --help; NULL: none */
    unsigned needs;      /* SFP_NEEDS_... */
    void *ctx;
    /* Writes 1 to b different indices in order of choice, their number, and their weights: finite, at least 0, and 1 before the
     * call. At most the first `coreset` indices are trained on. Not called if the whole batch is to be trained on. */
    sfp_status (*select)(void *ctx, const sfp_selection *batch, int32_t *chosen, float *weights, int32_t *count, sfp_error *err);
} sfp_selector_definition;
#define SFP_SELECTOR_DEFINITION_INIT SFP_INIT(sfp_selector_definition)

/* SFP_EINVAL: the definition is incomplete, or the name is in use. Thread-safe. */
SFP_API sfp_status sfp_register_selector(const sfp_selector_definition *definition, sfp_error *err);

typedef struct sfp_buffer_view {
    size_t size;   /* set by the library */
    int32_t b;     /* samples of the batch that found no free slot */
    int32_t slots; /* m; all are full */
    uint64_t seen; /* samples offered to the buffer before these */
    uint64_t timestamp;
    const int32_t *labels;     /* (b) */
    const uint64_t *ids;       /* (b) */
    const float *score;        /* (b) with SFP_NEEDS_SCORE, else NULL */
    const int32_t *slot_label; /* (m) */
    const uint64_t *slot_id;   /* (m) */
    const uint64_t *slot_time; /* (m) timestamp at which the sample was stored */
    const float *slot_score;   /* (m) with SFP_NEEDS_SCORE, else NULL */
    sfp_random *random;
} sfp_buffer_view;

typedef struct sfp_buffer_definition {
    size_t size;                /* sizeof(sfp_buffer_definition) */
    const char *name, *summary; /* as those of a selector */
    unsigned needs;             /* SFP_NEEDS_SCORE or 0 */
    void *ctx;
    size_t state_bytes; /* memory of the method in each learner, zero at first, saved in checkpoints; at most 1 MiB */
    /* Called for the samples that find no free slot: the library fills free slots itself. Writes pairs: sample[i] goes into slot[i];
     * at most min(b, m) pairs, all samples and all slots different. If it fails, the library restores the state. */
    sfp_status (*replace)(void *ctx, void *state, const sfp_buffer_view *view, int32_t *sample, int32_t *slot, int32_t *count,
                          sfp_error *err);
} sfp_buffer_definition;
#define SFP_BUFFER_DEFINITION_INIT SFP_INIT(sfp_buffer_definition)

/* As sfp_register_selector. */
SFP_API sfp_status sfp_register_buffer(const sfp_buffer_definition *definition, sfp_error *err);

/* ------------------------------------------------------------------------------------------- 11 Coresets of a matrix
 *
 * The selectors on any feature matrix, without a learner or an engine.
 *
 *     sfp_coreset_options o = SFP_CORESET_OPTIONS_INIT;
 *     o.method = "kcenter", o.ratio = 0.1;
 *     sfp_coreset(&o, rows, dim, features, NULL, 0, NULL, indices, NULL, &count, &err); */

typedef struct sfp_coreset_options {
    size_t size;        /* sizeof(sfp_coreset_options) */
    const char *method; /* "random", "kcenter", "camel", "craig", "gradmatch" or "d2" */
    double ratio;       /* share of the rows to choose, more than 0; 1 or more: all */
    uint64_t seed;      /* of random, gradmatch and d2 */
    int32_t euclidean;  /* d2: 1 for Euclidean distance, 0 for cosine distance */
    int32_t threads;    /* 0: as many as the process may run on */
    void (*progress)(void *ctx, const char *unit, uint64_t done, uint64_t total); /* total 0: unknown. NULL: none */
    void *ctx;
} sfp_coreset_options;
#define SFP_CORESET_OPTIONS_INIT SFP_INIT(sfp_coreset_options)

/* Chooses rows of features (rows, dim). camel, craig and gradmatch need labels (rows); craig and gradmatch also probs (rows,
 * classes), the predicted probabilities; others ignore both. indices (rows): the chosen rows in order of choice, *count of them.
 * weights (rows) may be NULL. Rows with NaN or infinite values are chosen last, in index order. */
SFP_API sfp_status sfp_coreset(const sfp_coreset_options *options, int rows, int dim, const float *features,
                               const int32_t *labels, int classes, const float *probs, int32_t *indices, float *weights,
                               int *count, sfp_error *err);

/* ---------------------------------------------------------------------- 12 Conversion and pretraining of backbones
 *
 * A backbone is trained by the settings of `streamfp pretrain`, which are another table than those of a run: "data", "out", "epochs",
 * "teacher", ...
 *
 *     sfp_pretrain_settings_create(&settings, &err);
 *     sfp_settings_set(settings, "data", "folder:photos", &err);
 *     sfp_settings_set(settings, "out", "mine", &err);
 *     sfp_pretrain(settings, NULL, NULL, &err);                  writes mine/model.safetensors */

/* Writes the backbone as a safetensors file with timm names, at the input size of the engine. dtype is "f32", "f16" or "bf16"; NULL:
 * "f32". */
SFP_API sfp_status sfp_engine_save(const sfp_engine *e, const char *path, const char *dtype, sfp_error *err);

/* Settings of a pretraining, for sfp_settings_set, _get and _free; and setting i of them, as sfp_settings_info. */
SFP_API sfp_status sfp_pretrain_settings_create(sfp_settings **out, sfp_error *err);
SFP_API const sfp_setting_info *sfp_pretrain_settings_info(int i);

typedef struct sfp_pretrain_progress {
    size_t size;           /* set by the library */
    const char *phase;     /* "images" (reading them), "teacher" (computing its outputs) or "train" */
    uint64_t done, total;  /* of the phase; total 0: unknown */
    double fraction;       /* of the phase, 0 to 1 */
    double start_fraction; /* at which this process began */
    double seconds, epoch, images_per_second;
    double loss[4];  /* of labels, class token, patch tokens and logits; NaN: not used */
    double ncm, knn; /* last probe: accuracy of nearest class mean and nearest neighbours; NaN: none yet */
} sfp_pretrain_progress;

typedef struct sfp_pretrain_options {
    size_t size;                                                        /* sizeof(sfp_pretrain_options) */
    void (*progress)(void *ctx, const sfp_pretrain_progress *progress); /* NULL: none */
    sfp_log_fn log;                                                     /* NULL: no messages */
    int (*cancelled)(void *ctx); /* asked after every step; 1: write a checkpoint and return. NULL: never */
    void *ctx;                   /* of the callbacks */
    const char *command;         /* recorded in the model's file; NULL: none */
} sfp_pretrain_options;
#define SFP_PRETRAIN_OPTIONS_INIT SFP_INIT(sfp_pretrain_options)

typedef struct sfp_pretrain_result {
    size_t size;      /* sizeof(sfp_pretrain_result) */
    int32_t finished; /* 0: cancelled; the setting "resume" continues */
    int32_t reserved;
    uint64_t steps, images, parameters;
    double seconds, images_per_second, epochs;
    double loss[4];
    double ncm, knn; /* probe of the written model; NaN: no labels */
} sfp_pretrain_result;
#define SFP_PRETRAIN_RESULT_INIT SFP_INIT(sfp_pretrain_result)

/* Trains to the end or until it is cancelled. options and result may be NULL. */
SFP_API sfp_status sfp_pretrain(const sfp_settings *settings, const sfp_pretrain_options *options, sfp_pretrain_result *result,
                                sfp_error *err);

/* ------------------------------------------------------------------------------------ 13 Heads on features of your own
 *
 * The closed-form heads of a learner, without an engine: for features that come from another model or another machine. A head that is
 * given the features of `streamfp predict --features` (or of sfp_predictor_open_backbone) answers as a learner of the same method.
 *
 *     sfp_head_create("ridge", 384, NULL, &head, &err);
 *     sfp_head_add_class(head, "cat", &label, &err);
 *     sfp_head_learn(head, 1, features, 0, &label, NULL, &err);
 *     sfp_head_predict(head, 1, features, 0, 1, &answer, &err);
 *     sfp_head_save(head, "animals.safetensors", &err);
 *
 * Rows are floats, `stride` of them from the start of a row to that of the next one (0: the dimension). Values that are NaN, infinite
 * or above 1e12 are refused with their row. On failure nothing is learned, forgotten or added.
 *
 * A head has the size of its sums, however many rows it learns. After learning, the first answer solves an equation, which takes time
 * that grows with the third power of the dimension (not with "ncm"): learn many rows between answers. */

typedef struct sfp_head sfp_head;

typedef struct sfp_head_options {
    size_t size;     /* sizeof(sfp_head_options) */
    int32_t threads; /* for solves; 0: as many as the process may run on. A head has its own threads. */
    int32_t tap_dim; /* a row consists of taps of this length: D of the backbone, for features with several taps; 0: of one */
    uint64_t seed;   /* of ranpac's projection */
    int32_t plain; /* ridge: 1: scores as the regression gives them, which prefer frequent classes; 0: without this preference */
    int32_t tap_mean;  /* 1: the first tap of a row is the mean tap */
    int64_t half_life; /* not ranpac: rows count half after this number of later ones; 0: all count the same */
} sfp_head_options;
#define SFP_HEAD_OPTIONS_INIT SFP_INIT(sfp_head_options)

/* method: "ridge", "slda", "ncm" or "ranpac". dim: values of a row, 1 to 16384. options NULL: defaults. */
SFP_API sfp_status sfp_head_create(const char *method, int dim, const sfp_head_options *options, sfp_head **out, sfp_error *err);
SFP_API void sfp_head_free(sfp_head *h);

SFP_API const char *sfp_head_method(const sfp_head *h);
SFP_API int sfp_head_dim(const sfp_head *h);
SFP_API int64_t sfp_head_samples(const sfp_head *h, int32_t label); /* rows learned with this label; -1: with any */

/* Classes have labels from 0. Learning a label adds the classes up to it; sfp_head_add_class returns the label of the class of that
 * name or, if there is none, the lowest one that has neither a name nor rows. sfp_head_class_name: NULL: it has none. Valid until the
 * head is freed. */
SFP_API int sfp_head_classes(const sfp_head *h);
SFP_API sfp_status sfp_head_add_class(sfp_head *h, const char *name, int32_t *label, sfp_error *err);
SFP_API const char *sfp_head_class_name(const sfp_head *h, int32_t label);

/* keys (count): one number per row that identifies it, such as a hash of its image. The 256 rows with the lowest keys are kept to choose
 * the head's parameters. NULL: keys are derived from the values.
 *
 * sfp_head_forget takes out rows that were learned with these labels and keys: the head is then as if it had never seen them. Only
 * ridge, slda and ncm (else SFP_EUNSUPPORTED). SFP_ENOTFOUND: one of them cannot have been learned. */
SFP_API sfp_status sfp_head_learn(sfp_head *h, int count, const float *rows, int64_t stride, const int32_t *labels,
                                  const uint64_t *keys, sfp_error *err);
SFP_API sfp_status sfp_head_forget(sfp_head *h, int count, const float *rows, int64_t stride, const int32_t *labels,
                                   const uint64_t *keys, sfp_error *err);

/* sfp_head_merge adds the rows of another head with the same method and dimension: the head is then as if it had learned both.
 * sfp_head_subtract takes them out again. Classes are matched by name; a class without a name is the one of the same label. Only ridge,
 * slda and ncm (else SFP_EUNSUPPORTED). SFP_ENOTFOUND: the head does not have all rows of the other one. */
SFP_API sfp_status sfp_head_merge(sfp_head *h, const sfp_head *from, sfp_error *err);
SFP_API sfp_status sfp_head_subtract(sfp_head *h, const sfp_head *from, sfp_error *err);

/* scores: (count, classes) log-probabilities; -INFINITY for a class without rows. */
SFP_API sfp_status sfp_head_scores(sfp_head *h, int count, const float *rows, int64_t stride, float *scores, sfp_error *err);
/* predictions: (count, top), the best classes of each row, best first; label -1 and probability NaN if there are fewer. */
SFP_API sfp_status sfp_head_predict(sfp_head *h, int count, const float *rows, int64_t stride, int top,
                                    sfp_prediction *predictions, sfp_error *err);
/* unknown: (count) scores for "none of the classes", as sfp_predictor_unknown; NAN: the head has none (ncm and ranpac, or fewer than
 * about 200 rows). */
SFP_API sfp_status sfp_head_unknown(sfp_head *h, int count, const float *rows, int64_t stride, float *unknown, sfp_error *err);

/* The whole head as a safetensors file: a head that was loaded continues with the same bytes. threads: as in the options. */
SFP_API sfp_status sfp_head_save(sfp_head *h, const char *path, sfp_error *err);
SFP_API sfp_status sfp_head_load(const char *path, int threads, sfp_head **out, sfp_error *err);

#ifdef __cplusplus
}
#endif
#endif
