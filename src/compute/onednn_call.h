/* Calls `function`, which calls oneDNN. If oneDNN throws an exception, variables declared OWNED are released and the result is
 * dnnl_out_of_memory. */
#ifndef SFP_COMPUTE_ONEDNN_CALL_H
#define SFP_COMPUTE_ONEDNN_CALL_H

#include <oneapi/dnnl/dnnl.h>

#ifdef __cplusplus
extern "C"
#endif
    dnnl_status_t
    sfp__onednn_call(dnnl_status_t (*function)(void *ctx), void *ctx);

#endif
