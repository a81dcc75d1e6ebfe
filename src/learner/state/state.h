/* What a learner leaves in files: states, to use, and checkpoints, to go on from; their formats, and what reads and writes them.
 * Reading checks everything and changes nothing; what was read is committed when all of it is good. */
#ifndef SFP_LEARNER_STATE_H
#define SFP_LEARNER_STATE_H

#include "io/tensor/safetensors.h"
#include "learner/learner_internal.h"
#include "learner/state/visit.h"

/* ------------------------------------------------------------------ writing */

/* Metadata that grows; `failed` (out of memory) is kept until the end. Keys and values are copied. */
typedef struct sfp__file_metadata {
    sfp__meta *list;
    size_t count, capacity;
    sfp__arena arena; /* of the copies */
    bool failed;
} sfp__file_metadata;

void sfp__metadata_put(sfp__file_metadata *m, const char *key, const char *value);
void sfp__metadata_put_int(sfp__file_metadata *m, const char *key, long long value);
void sfp__metadata_done(sfp__file_metadata *m);

/* task, start, open (or the method), timestamps and class_names, a JSON list in which a class without a name is null. */
void sfp__metadata_put_common(sfp__file_metadata *m, sfp__learner *l);

/* ----------------------------------------------------------------- settings */

typedef enum sfp__saved_kind {
    SFP_SAVED_STATE,     /* gives the values of a state their meaning */
    SFP_SAVED_INFERENCE, /* what answering from a state needs besides; going on from it may differ */
    SFP_SAVED_RUN,       /* decides how a run goes on */
} sfp__saved_kind;

typedef struct sfp__saved_setting {
    sfp__saved_kind kind;
    const char *name; /* as the program's option, where there is one */
    char value[72];
} sfp__saved_setting;

enum { SFP_SAVED_SETTINGS_MAX = 64 };

/* A state's (all but SFP_SAVED_RUN), or with `run` a checkpoint's. */
void sfp__metadata_put_settings(sfp__file_metadata *m, const sfp__learner *l, bool run);
/* Fails with SFP_EINVAL and both values where the file's differ. `run`: those of SFP_SAVED_RUN too, of which
 * none may be missing. */
sfp_status sfp__metadata_check_settings(const sfp__learner *l, const sfp__tensor_file *st, bool run, sfp_error *err);

/* ----------------------------------------------------------------- backbone */

/* backbone-file, backbone-sizes, backbone: whose queries and features the values were learned on. */
void sfp__metadata_put_backbone(sfp__file_metadata *m, const sfp__vit *vit);
/* The input size at which the values were learned; 0: the file does not tell. */
int sfp__metadata_img_size(const sfp__tensor_file *st);
/* SFP_EINVAL and both by name when it is another one. A file that does not tell is taken. */
sfp_status sfp__metadata_check_backbone(const sfp__tensor_file *st, const sfp__vit *vit, sfp_error *err);

/* ------------------------------------------------------------------ reading */

#define SFP_SAVED_EARLIER \
    "written by an earlier version: start again without --resume in another --out, or finish it with that version"

/* SFP_EFORMAT for another format, SFP_EUNSUPPORTED for another version. `wanted`: the file must name its format. */
sfp_status sfp__metadata_check_format(const sfp__tensor_file *st, const char *format, int version, bool wanted, sfp_error *err);

/* A number of the metadata; SFP_EFORMAT when it is missing or out of range. */
sfp_status sfp__metadata_int(const sfp__tensor_file *st, const char *key, long long min, long long max, long long *out,
                             sfp_error *err);

typedef struct sfp__saved_names {
    bool given; /* the file has a list */
    int count;
    char **name; /* (count), NULL where a class has none */
} sfp__saved_names;

sfp_status sfp__metadata_names_read(const sfp__tensor_file *st, int most, sfp__saved_names *out, sfp_error *err);
void sfp__metadata_names_done(sfp__saved_names *n);
/* The learner takes the names over, in place of its own; there is space. Cannot fail. */
void sfp__metadata_names_commit(sfp__saved_names *n, sfp__learner *l);

/* How many rows the file's classifier has, or classes its method: as many as the learner's, or where they appear `least` and
 * more. */
sfp_status sfp__metadata_classes(sfp__learner *l, const sfp__tensor_file *st, int least, int *out, sfp_error *err);

typedef struct sfp__saved_components {
    int task, frozen_end, active_end;
} sfp__saved_components;

/* Everything of a commit that can fail: the span, then rows and space for classes and names. On failure all is as before. The
 * classifier may have more rows than `classes` afterwards. No random number is drawn. */
sfp_status sfp__metadata_prepare(sfp__learner *l, const char *path, const sfp__saved_components *span, int classes, int names,
                                 sfp_error *err);

/* -------------------------------------------------------------------- state */

/* state.safetensors: what was learned, under the names of the golden files, so
 * that any program that reads safetensors can use it, and what answering from
 * it needs. Optional parts stand beside the fingerprints, so that files without
 * them and readers that know nothing of them go on working:
 *
 *     prompt.*, last.*    F32       the fingerprints and the classifier
 *     head.KIND.*                   closed-form heads (head mix, or a method alone): what scores need
 *     head.mix            F64 (4)   mix: count, then the loss of each expert
 *
 * Metadata: format, version, classes, class_names, seen, timestamps; with fingerprints task, start, open and the settings that
 * give them their meaning; method (a closed-form head alone); resize, mean, std, head, batch, seed; the backbone
 * (backbone-file, backbone-sizes, backbone: its checksum); checksum, of all else that the file holds (state.c): a program
 * that changes a state leaves it out, and the file is then taken as it is. */

#define SFP_STATE_FORMAT "streamfp-state"
enum { SFP_STATE_VERSION = 1, SFP_STATE_MIX = 1 + SFP_HEAD_MEMBERS };
#define SFP_STATE_HEAD "head." /* what tensors of heads begin with */

/* SFP_EFORMAT for a state that is not what its checksum says; one without, and any other file, is taken as it is. */
sfp_status sfp__state_check_sum(const sfp__tensor_file *st, sfp_error *err);

/* The input size at which a state was learned, before there is a backbone to read it on; 0: the file does not tell. */
/* The state file that a user names: FILE itself, or state.safetensors of the run directory. */
sfp_status sfp__state_path(const char *given, char *buf, size_t size, sfp_error *err);
sfp_status sfp__state_img_size(const char *path, int *out, sfp_error *err);

/* What the tensors of a pool tell of its making. Files of the reference have no settings that do. */
typedef struct sfp__state_pool {
    int64_t pool, length, width; /* components a layer, rows of each, D */
    int first_layer, last_layer;
} sfp__state_pool;

bool sfp__state_pool_read(const sfp__tensor_file *st, sfp__state_pool *out); /* false: the file has none */
/* SFP_EINVAL and both values, by the names of the options, where the file's pool is not as these fingerprints have theirs. */
sfp_status sfp__state_check_pool(sfp__fp *fp, const sfp__tensor_file *st, sfp_error *err);

/* All parameters of fp in the order of sfp__fp_params, one after another, newly allocated; the classifier has `classes` rows.
 * Every tensor must be there, of the right shape and finite, and none that such fingerprints do not have. */
sfp_status sfp__state_values(sfp__fp *fp, const sfp__tensor_file *st, int classes, float **out, sfp_error *err);
/* Puts them in; the classifier has that many rows. Adam begins anew. Cannot fail. */
void sfp__state_put_values(sfp__fp *fp, const float *values);

/* Which components learn. Files of the reference name only the task. */
sfp_status sfp__state_components(const sfp__fp_options *o, const sfp__tensor_file *st, sfp__saved_components *out,
                                 sfp_error *err);

/* (classes) newly allocated, NULL for 0 classes; `otherwise` where the file does not tell. */
sfp_status sfp__state_seen(const sfp__tensor_file *st, int classes, bool otherwise, uint8_t **out, sfp_error *err);

/* --------------------------------------------------------------- checkpoint */

/* The format of a checkpoint: everything a learner needs to go on, a kept file (io/backed_file.h) of these tensors; n = slots
 * filled, C = classes:
 *
 *     counters           I64 (10)  timestamps, offered, scored, trained, replayed, n_seen; what a controller said last: most of
 *                                  coreset, replay and steps (0: no limit), 1 when there is no time to spare
 *     rng.fingerprints .select .replay .buffer   I64 (8)  key, stream, counter, block[4], left
 *     drift              F64 (7)   the detector's fields in order
 *     mix                F64 (4)   head mix: count, then the loss of each expert
 *     NAME               F32       values, names as in state files
 *     adam.m.NAME .v.NAME F32, adam.steps.NAME I32 (rows)
 *     select.NAME        the parts of a selector that learns (select/select.h), buffer.METHOD.NAME those of a buffer method
 *     buffer.id .born .image_size I64 (n), buffer.query .mean_embed F32 (n, D), buffer.label I32 (n)
 *     buffer.has_query   U8 (n), buffer.image U8 (sum of image_size), one after another
 *     seen, allowed      U8 (C)
 *     head.KIND.*        head mix, or a method: as the heads write themselves
 *
 * A method (learner.h) has counters, seen, allowed and its head. */

#define SFP_CHECKPOINT_FORMAT "streamfp-checkpoint"
enum { SFP_CHECKPOINT_VERSION = 3 };

/* -------------------------------------------------------------- answering from a state */

/* A state file (state.h) opened to answer and nothing else: no trainer, no
 * buffer, no gradients; the settings come from the file. Immutable once made,
 * but for the scratch memory of `heads`. */

typedef struct sfp__inference_state {
    sfp__learner_options opt; /* as far as answers need them: fp, head, resize, mean, std, batch, seed */
    bool method;              /* a closed-form head alone: heads[0] */
    sfp__fp *fp;              /* NULL with a method */
    sfp__head *heads[SFP_HEAD_MEMBERS];
    sfp__saved_names names;
    sfp__snapshot snapshot; /* what a predictor reads, into the above; its view has no layers with a method */
} sfp__inference_state;

/* `threads` is used while loading. A message names file, tensor or key, what was found and what was expected. */
sfp_status sfp__inference_state_load(sfp__vit *vit, sfp__thread_pool *threads, const char *path, sfp__inference_state **out,
                                     sfp_error *err);
void sfp__inference_state_free(sfp__inference_state *r);
DEFINE_OWNED_PTR(sfp__inference_state, sfp__inference_state_free)

#endif
