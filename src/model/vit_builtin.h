/* The backbone that the program carries: models/builtin.safetensors, put into the binary when it is built. */
#ifndef SFP_MODEL_VIT_BUILTIN_H
#define SFP_MODEL_VIT_BUILTIN_H

#include "io/tensor/tensor_file.h"

/* The name under which sfp__vit_load takes it; a file of that name is "./builtin". */
#define SFP_VIT_BUILTIN "builtin"

/* Whether there was such a file when this was built. */
bool sfp__vit_has_builtin(void);
/* SFP_ENOTFOUND in a build without it. */
sfp_status sfp__vit_builtin_open(sfp_tensor_file **out, sfp_error *err);
/* All of the file as it lies in the binary; NULL in a build without it. */
const uint8_t *sfp__vit_builtin_bytes(size_t *size);

#endif
