/* The interface between gemm_onednn.c, which does not depend on the version of oneDNN, and gemm_onednn2.c or gemm_onednn3.c.
 * These create the descriptors: the only part of oneDNN's C interface that changed from 2.x to 3.x.
 *
 * A memory descriptor is a struct in 2.x and a handle in 3.x, so none is passed through this interface. The packed layout is
 * obtained as the destination of the packing primitive. */
#ifndef SFP_COMPUTE_GEMM_ONEDNN_H
#define SFP_COMPUTE_GEMM_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

enum { SFP__ONEDNN_SRC, SFP__ONEDNN_WEIGHTS, SFP__ONEDNN_BIAS, SFP__ONEDNN_DST, SFP__ONEDNN_TENSORS };

typedef struct sfp__onednn_tensor {
    int ndims;
    dnnl_dims_t dims;
    dnnl_data_type_t type;
    dnnl_format_tag_t tag;
} sfp__onednn_tensor;

typedef struct sfp__onednn_product {
    bool conv; /* true: a 1x1 convolution; false: matmul */
    sfp__onednn_tensor tensor[SFP__ONEDNN_TENSORS];
    const char *impl; /* required prefix of the implementation's name; NULL: the library's first choice */
} sfp__onednn_product;

/* Returns whether the implementation's name ("brg:avx512_core", "brg_matmul:avx512_core", "jit_1x1:avx2") has this prefix. */
bool sfp__onednn_named(const_dnnl_primitive_desc_t pd, const char *prefix);

/* The functions below are defined in the file for the installed version. On failure they release everything and do not change
 * *out. */

/* packing: the weights have the layout of its destination; NULL: that of the tensor. dnnl_unimplemented: no such
 * implementation. */
dnnl_status_t sfp__onednn_product_create(dnnl_engine_t engine, const sfp__onednn_product *p, const_dnnl_primitive_desc_t packing,
                                         const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out);

/* Creates the reorder from f32 weights with these strides into the layout that `product` requires. */
dnnl_status_t sfp__onednn_packing_create(dnnl_engine_t engine, int ndims, const dnnl_dims_t dims, const dnnl_dims_t strides,
                                         const_dnnl_primitive_desc_t product, dnnl_primitive_desc_t *out);

#endif
