/* Descriptors of oneDNN 3.x: memory descriptors are handles, and the descriptor of a primitive is created in one call and can
 * advance to its next implementation. */
#include "compute/gemm_onednn.h"

/* Advances to the implementation with this prefix. It need not be the first: for AVX2, 3.x offers "brgconv_1x1" before
 * "jit_1x1". */
static dnnl_status_t find_implementation(dnnl_primitive_desc_t pd, const char *impl)
{
    dnnl_status_t s = dnnl_success;
    while (s == dnnl_success && !sfp__onednn_named(pd, impl))
        s = dnnl_primitive_desc_next_impl(pd);
    return s == dnnl_last_impl_reached ? dnnl_unimplemented : s;
}

dnnl_status_t sfp__onednn_product_create(dnnl_engine_t engine, const sfp__onednn_product *p, const_dnnl_primitive_desc_t packing,
                                         const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    static const dnnl_dims_t one = {1, 1}, zero = {0, 0};
    dnnl_memory_desc_t md[SFP__ONEDNN_TENSORS] = {NULL};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = dnnl_success;
    for (int i = 0; s == dnnl_success && i < SFP__ONEDNN_TENSORS; i++) {
        const sfp__onednn_tensor *t = &p->tensor[i];
        s = dnnl_memory_desc_create_with_tag(&md[i], t->ndims, t->dims, t->type, t->tag);
    }
    if (s != dnnl_success)
        goto done;
    const_dnnl_memory_desc_t x = md[SFP__ONEDNN_SRC], b = md[SFP__ONEDNN_BIAS], y = md[SFP__ONEDNN_DST];
    const_dnnl_memory_desc_t w = packing ? dnnl_primitive_desc_query_md(packing, dnnl_query_dst_md, 0) : md[SFP__ONEDNN_WEIGHTS];
    s = p->conv ? dnnl_convolution_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference, dnnl_convolution_direct, x,
                                                                 w, b, y, one, zero, zero, zero, attr)
                : dnnl_matmul_primitive_desc_create(&pd, engine, x, w, b, y, attr);
    if (s == dnnl_success && p->impl)
        s = find_implementation(pd, p->impl);
    if (s == dnnl_success)
        *out = pd;
    else
        dnnl_primitive_desc_destroy(pd);
done:
    for (int i = 0; i < SFP__ONEDNN_TENSORS; i++)
        dnnl_memory_desc_destroy(md[i]);
    return s;
}

dnnl_status_t sfp__onednn_packing_create(dnnl_engine_t engine, int ndims, const dnnl_dims_t dims, const dnnl_dims_t strides,
                                         const_dnnl_primitive_desc_t product, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t plain = NULL;
    dnnl_status_t s = dnnl_memory_desc_create_with_strides(&plain, ndims, dims, dnnl_f32, strides);
    if (s == dnnl_success) {
        const_dnnl_memory_desc_t packed = dnnl_primitive_desc_query_md(product, dnnl_query_weights_md, 0);
        s = dnnl_reorder_primitive_desc_create(out, plain, engine, packed, engine, NULL);
    }
    dnnl_memory_desc_destroy(plain);
    return s;
}
