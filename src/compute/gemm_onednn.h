/* The seam between gemm_onednn.c, which holds all that does not depend on
 * oneDNN's version, and gemm_onednn2.c or gemm_onednn3.c, which make the
 * descriptors: the one part of its C interface that changed from 2.x to 3.x.
 *
 * A memory descriptor is a struct in 2.x and a handle in 3.x, so none crosses
 * this seam: who needs the packed layout asks the packing for its destination. */
#ifndef SFP_COMPUTE_GEMM_ONEDNN_H
#define SFP_COMPUTE_GEMM_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

enum { SFP_ONEDNN_SRC, SFP_ONEDNN_WEIGHTS, SFP_ONEDNN_BIAS, SFP_ONEDNN_DST, SFP_ONEDNN_TENSORS };

typedef struct sfp__onednn_tensor {
    int ndims;
    dnnl_dims_t dims;
    dnnl_data_type_t type;
    dnnl_format_tag_t tag;
} sfp__onednn_tensor;

typedef struct sfp__onednn_product {
    bool conv; /* a 1x1 convolution; otherwise matmul */
    sfp__onednn_tensor tensor[SFP_ONEDNN_TENSORS];
    const char *impl; /* how the wanted implementation's name begins; NULL: the library's first choice */
} sfp__onednn_product;

/* Whether the implementation's name ("brg:avx512_core", "brg_matmul:avx512_core", "jit_1x1:avx2") begins so. */
bool sfp__onednn_named(const_dnnl_primitive_desc_t pd, const char *prefix);

/* Of the backend for the version at hand. Nothing is left behind and *out is untouched on failure. */

/* packing: weights in its destination's layout; NULL: as the tensor says. dnnl_unimplemented without such an implementation. */
dnnl_status_t sfp__onednn_product_create(dnnl_engine_t engine, const sfp__onednn_product *p, const_dnnl_primitive_desc_t packing,
                                         const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out);

/* The reorder from f32 weights at these strides into the layout that `product` wants. */
dnnl_status_t sfp__onednn_packing_create(dnnl_engine_t engine, int ndims, const dnnl_dims_t dims, const dnnl_dims_t strides,
                                         const_dnnl_primitive_desc_t product, dnnl_primitive_desc_t *out);

#endif
