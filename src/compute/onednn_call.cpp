/* Calls oneDNN, which is written in C++, from C. If there is no memory, its functions throw an exception, and an exception that reaches a C function
 * would end the process. This is the only file in C++. */
#include "compute/onednn_call.h"

dnnl_status_t sfp__onednn_call(dnnl_status_t (*function)(void *ctx), void *ctx)
{
    try {
        return function(ctx);
    } catch (...) {
        return dnnl_out_of_memory;
    }
}
