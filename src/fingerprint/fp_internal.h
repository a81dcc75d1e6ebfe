/* What the files of `fingerprint` share about a pool. */
#ifndef SFP_FINGERPRINT_FP_INTERNAL_H
#define SFP_FINGERPRINT_FP_INTERNAL_H

#include "fingerprint/attune.h"
#include "fingerprint/fingerprint.h"

#define SFP_FP_TINY 1e-12f /* the least length a vector is divided by, as in PyTorch's normalize */

typedef struct sfp__pool_kind sfp__pool_kind;

/* Components of layer number l: [0, rows) exist, [0, open) are in use, [start, open) learn. */
int sfp__fp_layer_rows(const sfp_fp *f, int l);
int sfp__fp_layer_start(const sfp_fp *f, int l);
int sfp__fp_layer_open(const sfp_fp *f, int l);

sfp_status sfp__fp_buffers_create(sfp_fp *f, sfp_error *err);
void sfp__fp_buffers_free(sfp_fp *f);

#endif
