/* Descriptors of oneDNN 2.x: memory descriptors are structs, and an operation is described before its implementation is
 * chosen. */
#include "compute/gemm_onednn.h"

#include "base/mem.h"

static void destroy_iterator(const dnnl_primitive_desc_iterator_t *it)
{
    dnnl_primitive_desc_iterator_destroy(*it);
}

static dnnl_status_t find_implementation(dnnl_engine_t engine, const_dnnl_op_desc_t op, const char *impl,
                                         const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    OWNED_BY(destroy_iterator) dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = dnnl_primitive_desc_iterator_create(&it, op, attr, engine, NULL);
    while (s == dnnl_success) {
        pd = dnnl_primitive_desc_iterator_fetch(it);
        if (!pd)
            s = dnnl_out_of_memory;
        else if (!impl || sfp__onednn_named(pd, impl))
            break;
        else {
            dnnl_primitive_desc_destroy(pd);
            s = dnnl_primitive_desc_iterator_next(it);
        }
    }
    if (s == dnnl_success)
        *out = pd;
    return s == dnnl_iterator_ends ? dnnl_unimplemented : s;
}

dnnl_status_t sfp__onednn_product_create(dnnl_engine_t engine, const sfp__onednn_product *p, const_dnnl_primitive_desc_t packing,
                                         const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    static const dnnl_dims_t one = {1, 1}, zero = {0, 0};
    dnnl_memory_desc_t md[SFP__ONEDNN_TENSORS];
    dnnl_status_t s = dnnl_success;
    for (int i = 0; s == dnnl_success && i < SFP__ONEDNN_TENSORS; i++) {
        const sfp__onednn_tensor *t = &p->tensor[i];
        s = dnnl_memory_desc_init_by_tag(&md[i], t->ndims, t->dims, t->type, t->tag);
    }
    if (s != dnnl_success)
        return s;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_matmul_desc_t matmul;
    } op;
    const dnnl_memory_desc_t *x = &md[SFP__ONEDNN_SRC], *b = &md[SFP__ONEDNN_BIAS], *y = &md[SFP__ONEDNN_DST];
    const dnnl_memory_desc_t *w =
        packing ? dnnl_primitive_desc_query_md(packing, dnnl_query_dst_md, 0) : &md[SFP__ONEDNN_WEIGHTS];
    s = p->conv ? dnnl_convolution_forward_desc_init(&op.conv, dnnl_forward_inference, dnnl_convolution_direct, x, w, b, y, one,
                                                     zero, zero)
                : dnnl_matmul_desc_init(&op.matmul, x, w, b, y);
    return s == dnnl_success ? find_implementation(engine, &op, p->impl, attr, out) : s;
}

dnnl_status_t sfp__onednn_packing_create(dnnl_engine_t engine, int ndims, const dnnl_dims_t dims, const dnnl_dims_t strides,
                                         const_dnnl_primitive_desc_t product, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t plain;
    dnnl_status_t s = dnnl_memory_desc_init_by_strides(&plain, ndims, dims, dnnl_f32, strides);
    if (s != dnnl_success)
        return s;
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(product, dnnl_query_weights_md, 0);
    return dnnl_reorder_primitive_desc_create(out, &plain, engine, packed, engine, NULL);
}
