/* NumPy's .npy, versions 1-3, C order, little-endian dtypes of tensor.h. */
#ifndef SFP_IO_NPY_H
#define SFP_IO_NPY_H

#include "base/mem.h"
#include "io/tensor.h"

typedef struct sfp_npy sfp_npy;

sfp_status sfp__npy_open(const char *path, sfp_npy **out, sfp_error *err);
sfp_status sfp__npy_open_memory(const char *label, const void *bytes, size_t size, sfp_npy **out, sfp_error *err);
void sfp__npy_close(sfp_npy *npy);
DEFINE_OWNED_PTR(sfp_npy, sfp__npy_close)
const sfp_tensor *sfp__npy_tensor(const sfp_npy *npy); /* name is the path */

sfp_status sfp__npy_write(const char *path, const sfp_tensor *t, sfp_error *err);

#endif
