/* The files of a learner: states, for prediction, and checkpoints, for resuming. A state has a part of a checkpoint's tensors
 * (visit_learner in saved_learner.c). Reading checks everything first; the learner changes only if all values are valid. */
#ifndef SFP_LEARNER_STATE_H
#define SFP_LEARNER_STATE_H

#include "io/tensor/metadata.h"
#include "io/tensor/safetensors.h"
#include "io/tensor/visit.h"
#include "learner/learner_internal.h"

/* ------------------------------------------------------------------ writing */

/* Puts class_names, a JSON list in which a class without a name is null. */
void sfp__metadata_put_names(sfp__file_metadata *m, int count, char *const *names);
/* Puts task, start, open (or the method), timestamps and class_names. */
void sfp__metadata_put_common(sfp__file_metadata *m, sfp__learner *l);

/* ----------------------------------------------------------------- settings */

/* Puts the settings of a state or, with `run`, of a checkpoint: those whose rows say so (base/settings.h), mean and std. */
void sfp__metadata_put_settings(sfp__file_metadata *m, const sfp__learner *l, bool run);
/* Compares the settings in the file with those of the learner: those that give the learned values their meaning and, with `run`, those that
 * affect how the run continues. SFP_EINVAL: one differs; the message has both values. In a checkpoint none may be missing. */
sfp_status sfp__metadata_check_settings(const sfp__learner *l, const sfp__tensor_file *st, bool checkpoint, bool run,
                                        sfp_error *err);

/* Reads the settings of a state, except those that only training needs. o->method is that of the file. */
sfp_status sfp__metadata_read_settings(const sfp__tensor_file *st, sfp__learner_options *o, sfp_error *err);

/* ----------------------------------------------------------------- backbone */

/* Puts backbone-file, backbone-sizes, backbone and, unless it is f32, precision: they identify the backbone on which the values were
 * learned. */
void sfp__metadata_put_backbone(sfp__file_metadata *m, const sfp__vit *vit);
/* Returns the input size at which the values were learned; 0: not in the file. */
int sfp__metadata_img_size(const sfp__tensor_file *st);
/* Fails with SFP_EINVAL if the file was written with another backbone; the message names both. A file without this metadata is
 * accepted. */
sfp_status sfp__metadata_check_backbone(const sfp__tensor_file *st, const sfp__vit *vit, sfp_error *err);

/* ------------------------------------------------------------------ reading */

/* Fails with SFP_EFORMAT for another format and SFP_EUNSUPPORTED for another version. `required`: the file must name its
 * format. */
sfp_status sfp__metadata_check_format(const sfp__tensor_file *st, const char *format, int version, bool required, sfp_error *err);

typedef struct sfp__saved_names {
    bool given; /* the file has a list of names */
    int count;
    char **name; /* (count) NULL: the class has no name */
} sfp__saved_names;

sfp_status sfp__metadata_names_read(const sfp__tensor_file *st, int max_names, sfp__saved_names *out, sfp_error *err);
void sfp__metadata_names_done(sfp__saved_names *n);
/* Moves the names to the learner, which replaces its own; memory must be reserved. Cannot fail. */
void sfp__metadata_names_commit(sfp__saved_names *n, sfp__learner *l);

/* Reads the number of classes in the file: rows of the linear head, or classes of the method. It must equal that of the learner,
 * or be at least `min_classes` if classes can be added. */
sfp_status sfp__metadata_classes(sfp__learner *l, const sfp__tensor_file *st, int min_classes, int *out, sfp_error *err);

typedef struct sfp__saved_components {
    int task, frozen_end, active_end;
} sfp__saved_components;

/* Performs the part of a commit that can fail: restores the range of components, then adds rows and reserves memory for classes
 * and names. On failure nothing has changed. Afterwards the linear head may have more rows than `classes`. Draws no random
 * number. */
sfp_status sfp__metadata_prepare(sfp__learner *l, const char *path, const sfp__saved_components *components, int classes,
                                 int names, sfp_error *err);

/* -------------------------------------------------------------------- state */

/* state.safetensors: the learned values, under the names of the golden files, so that any program that reads safetensors can use
 * them, and the data that prediction needs. Optional tensors are stored in addition to the fingerprints, so that files without
 * them, and readers that do not know them, still work:
 *
 *     prompt.*, last.*    F32       the fingerprints and the linear head
 *     head.KIND.*                   the closed-form head of a method: the data for scores; if it is a function of sums also these,
 *                                   unless they are too large (saved_sums.h)
 *
 * Metadata: format, version, classes, class_names, seen, timestamps; with fingerprints task, start, open and the settings that
 * define their meaning; method (a closed-form head); resize, mean, std, batch, seed; the backbone (backbone-file,
 * backbone-sizes, backbone: its checksum); checksum, of all other contents of the file (state.c). A program that changes a state
 * must remove the checksum; the file is then accepted without a check. */

#define SFP__STATE_FORMAT "streamfp-state"
enum { SFP__STATE_VERSION = 1 };

/* Computes the checksum of a state from everything except the checksum itself. */
sfp_status sfp__state_sum(size_t count, const sfp__tensor *tensors, size_t meta_count, const sfp__meta *meta,
                          char out[SFP__CHECKSUM_MAX], sfp_error *err);
/* Fails with SFP_EFORMAT if the contents of a state do not match its checksum. A state without a checksum, and any other file, is
 * accepted. */
sfp_status sfp__state_check_sum(const sfp__tensor_file *st, sfp_error *err);

/* Puts the metadata with which a state begins: format, version, classes and seen (classes). */
void sfp__state_put_format(sfp__file_metadata *m, int classes, const uint8_t *seen);
/* Writes a state; adds its checksum to the metadata. */
sfp_status sfp__state_write(const char *path, const sfp__tensor_list *tensors, sfp__file_metadata *meta, sfp_error *err);

/* Returns the path of the state file that a user names: FILE itself, or state.safetensors in the run directory. */
sfp_status sfp__state_path(const char *given, char *buf, size_t size, sfp_error *err);
/* Reads the input size at which a state was learned, before a backbone is loaded; 0: not in the file. */
sfp_status sfp__state_img_size(const char *path, int *out, sfp_error *err);
/* Reads the precision of the matrix products with which a state was learned. */
sfp_status sfp__state_precision(const char *path, sfp_precision *out, sfp_error *err);
/* Writes the name of the backbone of a state: "features:DIM", "builtin", or a file without its directory; "": not in the file. */
sfp_status sfp__state_backbone(const char *path, char *backbone, size_t size, sfp_error *err);

/* The sizes of a pool as its tensors define them. Files of the reference have no settings for these. */
typedef struct sfp__state_pool {
    int64_t pool, length, width; /* components per layer, rows per component, D */
    int first_layer, last_layer;
} sfp__state_pool;

bool sfp__state_pool_read(const sfp__tensor_file *st, sfp__state_pool *out); /* false: the file has no pool */
/* Fails with SFP_EINVAL if the sizes of the file's pool differ from those of `fp`; the message has the name of the option and
 * both values. */
sfp_status sfp__state_check_pool(sfp__fp *fp, const sfp__tensor_file *st, sfp_error *err);

/* Reads which components are trained. Files of the reference contain only the task, which a learner that only predicts ignores. */
sfp_status sfp__state_components(const sfp__learner *l, const sfp__tensor_file *st, sfp__saved_components *out, sfp_error *err);

/* Reads which classes were seen: (classes) newly allocated, NULL for 0 classes. `default_value` is used if the file does not
 * contain this. */
sfp_status sfp__state_seen(const sfp__tensor_file *st, int classes, bool default_value, uint8_t **out, sfp_error *err);

/* --------------------------------------------------------------- checkpoint */

/* The format of a checkpoint: everything that a learner needs to resume, in a file with backup (io/backed_file.h) that has these
 * tensors; n = filled slots, C = classes:
 *
 *     counters           I64 (6)   timestamps, offered, scored, trained, replayed, n_seen
 *     rng.fingerprints .select .replay .buffer   I64 (8)  key, stream, counter, block[4], left
 *     NAME               F32       values, names as in state files
 *     adam.m.NAME .v.NAME F32, adam.steps.NAME I32 (rows)
 *     select.NAME        the state tensors of a selector that learns (select/select.h), buffer.METHOD.NAME those of a buffer
 *                        method
 *     buffer.id .born    I64 (n), buffer.query .mean_embed F32 (n, D), buffer.label I32 (n)
 *     buffer.has_query   U8 (n), buffer.image U8 (n, 3*S*S)
 *     seen, allowed      U8 (C)
 *     head.KIND.*        a method: as the head writes itself
 *     diagnostics.*      the sums and images of diagnostics (learner/diagnostics.h), if they are on
 *
 * A checkpoint of a method (learner.h) has counters, seen, allowed and its head. */

#define SFP__CHECKPOINT_FORMAT "streamfp-checkpoint"
enum { SFP__CHECKPOINT_VERSION = 7 };

/* ------------------------------------------------------------------ opened files */

/* A state or a checkpoint in memory, with the right format, version and checksum. */
typedef struct sfp__opened_file {
    uint8_t *bytes; /* NULL: the bytes belong to the caller */
    sfp__tensor_file *st;
    bool checkpoint; /* false: a state */
} sfp__opened_file;

/* Opens a file or a block of memory. foreign: a state of the reference, which does not name its format, is accepted. */
sfp_status sfp__saved_file_open(const sfp__saved_file *from, bool foreign, sfp__opened_file *out, sfp_error *err);
void sfp__opened_file_done(sfp__opened_file *f);

#endif
