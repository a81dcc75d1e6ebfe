/* The loss over a student's tokens, and the small layers that exist only for it: a linear head for labels, one for the
 * teacher's logits, and projections to the teacher's width.
 *
 * Terms, each a mean over the batch times its weight:
 *   label   cross-entropy with smoothed, mixed labels (pictures without a label count 0)
 *   class   the class token against the teacher's, standardised: 1 - cosine, as the norm that ends a ViT fixes the length
 *   patch   the patch tokens against the teacher's, standardised: smooth L1, mean over channels and patches
 *   logits  temperature^2 KL(teacher || student) over the teacher's classes
 *
 * Used as the token head of a pass (model/vit.h): gradients of the layers are summed by lane. */
#ifndef SFP_PRETRAIN_LOSS_H
#define SFP_PRETRAIN_LOSS_H

#include "pretrain/teacher.h"
#include "pretrain/views.h"

typedef struct sfp_loss sfp_loss;

/* teacher may be NULL; terms that need what is not there get weight 0. lanes: of the passes. */
sfp_status sfp__loss_create(const sfp_loss_options *o, const sfp_vit_config *student, const sfp_image_set *pictures,
                            const sfp_teacher *teacher, int lanes, int most_samples, sfp_loss **out, sfp_error *err);
void sfp__loss_free(sfp_loss *l);
DEFINE_OWNED_PTR(sfp_loss, sfp__loss_free)

size_t sfp__loss_count(const sfp_loss *l); /* floats of parameters */
void sfp__loss_init(const sfp_loss *l, uint64_t seed, float *params);
/* 1 for each float that weight decay applies to. */
void sfp__loss_decays(const sfp_loss *l, uint8_t *decays);
/* Whether it sees all tokens (n, T, D); else class tokens alone (n, 1, D), and the last block need compute no others. */
bool sfp__loss_all_tokens(const sfp_loss *l);
/* The label head's W (classes, D) and b (classes) in the parameters; NULL without one. */
const float *sfp__loss_label_head(const sfp_loss *l, const float *params, const float **bias);

/* Before a pass: the batch and the parameters; clears the sums. */
void sfp__loss_begin(sfp_loss *l, const sfp_batch_made *batch, int b, const float *params);
/* The token head. */
void sfp__loss_tokens(void *loss, int lane, int first, int n, const float *tokens, float *grad);
/* After it: the terms' values, and the gradients of the parameters (overwritten). */
void sfp__loss_end(const sfp_loss *l, double value[SFP_TERMS], float *grad);

#endif
