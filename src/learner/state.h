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
 * (backbone-file, backbone-sizes, backbone: its checksum); checksum, of all else that the file holds (state_sum.c): a program
 * that changes a state leaves it out, and the file is then taken as it is. */
#ifndef SFP_LEARNER_STATE_H
#define SFP_LEARNER_STATE_H

#include "learner/saved.h"

#define SFP_STATE_FORMAT "streamfp-state"
enum { SFP_STATE_VERSION = 1, SFP_STATE_MIX = 1 + SFP_HEAD_EXPERTS };
#define SFP_STATE_HEAD "head." /* what tensors of heads begin with */

/* ------------------------------------------------------------------ writing */

/* What the metadata's checksum is to be, when everything else is there. */
sfp_status sfp__state_sum(const sfp_kept_parts *tensors, const sfp_saved_meta *meta, char out[SFP_CHECKSUM_MAX], sfp_error *err);

/* ------------------------------------------------------------------ reading */

/* SFP_EFORMAT for a state that is not what its checksum says; one without, and any other file, is taken as it is. */
sfp_status sfp__state_check_sum(const sfp_tensor_file *st, sfp_error *err);

/* The input size at which a state was learned, before there is a backbone to read it on; 0: the file does not tell. */
sfp_status sfp__state_img_size(const char *path, int *out, sfp_error *err);

/* What the tensors of a pool tell of its making. Files of the reference have no settings that do. */
typedef struct sfp_state_pool {
    int64_t pool, length, width; /* components a layer, rows of each, D */
    int first_layer, last_layer;
} sfp_state_pool;

bool sfp__state_pool(const sfp_tensor_file *st, sfp_state_pool *out); /* false: the file has none */
/* SFP_EINVAL and both values, by the names of the options, where the file's pool is not as these fingerprints have theirs. */
sfp_status sfp__state_check_pool(sfp_fp *fp, const sfp_tensor_file *st, sfp_error *err);

/* All parameters of fp in the order of sfp__fp_params, one after another, newly allocated; the classifier has `classes` rows.
 * Every tensor must be there, of the right shape and finite, and none that such fingerprints do not have. */
sfp_status sfp__state_values(sfp_fp *fp, const sfp_tensor_file *st, int classes, float **out, sfp_error *err);
/* Puts them in; the classifier has that many rows. Adam begins anew. Cannot fail. */
void sfp__state_put_values(sfp_fp *fp, const float *values);

/* Which components learn. Files of the reference name only the task. */
sfp_status sfp__state_span(const sfp_fp_options *o, const sfp_tensor_file *st, sfp_saved_span *out, sfp_error *err);

/* (classes) newly allocated, NULL for 0 classes; `otherwise` where the file does not tell. */
sfp_status sfp__state_seen(const sfp_tensor_file *st, int classes, bool otherwise, uint8_t **out, sfp_error *err);

#endif
