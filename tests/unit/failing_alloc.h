/* Every allocation of a call made to fail in turn. Include after <cmocka.h>. */
#ifndef SFP_TESTS_FAILING_ALLOC_H
#define SFP_TESTS_FAILING_ALLOC_H

#include <limits.h>

#include "test.h"

/* Runs `call`, an sfp_status that writes its error to `told`, with its first allocation failing, then its second ... until none
 * is left to fail: then, and only then, it must work, so that what it makes is made once, at the end. A failure must be told as
 * one of memory with a message, and `untouched` must hold after it. The value is how many failures there were. */
#define FAIL_EACH_ALLOCATION(call, untouched) FAIL_SOME_ALLOCATIONS(LONG_MAX, call, untouched)

/* The same for calls of many allocations: the later ones in strides, the k-th followed by the k + 1 + k / dense. */
#define FAIL_SOME_ALLOCATIONS(dense, call, untouched)                                        \
    __extension__({                                                                          \
        failing_alloc failing = {0};                                                         \
        for (sfp_error *alloc_err = &failing.err;; failing.k += 1 + failing.k / (dense)) {   \
            failing_alloc_begin(&failing);                                                   \
            if (!failing_alloc_failed(&failing, (call), #call))                              \
                break;                                                                       \
            if (!(untouched))                                                                \
                fail_msg("%s, allocation %ld failing: !(%s)", #call, failing.k, #untouched); \
        }                                                                                    \
        failing.failures;                                                                    \
    })

typedef struct failing_alloc {
    long k;               /* the allocation that fails */
    unsigned long before; /* allocations of the process before the call */
    long failures;
    sfp_error err;
} failing_alloc;

static inline void failing_alloc_begin(failing_alloc *f)
{
    f->err = (sfp_error){0};
    f->before = sfp__mem_count();
    sfp__mem_fail_at(f->k);
}

/* The call is over: did it come as far as allocation k? */
static inline bool failing_alloc_failed(failing_alloc *f, sfp_status status, const char *call)
{
    sfp__mem_fail_at(-1);
    bool failed = sfp__mem_count() - f->before > (unsigned long)f->k;
    bool right = failed ? status == SFP_ENOMEM && f->err.status == status && f->err.message[0] : status == SFP_OK;
    if (!right)
        fail_msg("%s, allocation %ld %s: %s, '%s'", call, f->k, failed ? "failing" : "not reached", sfp_status_text(status),
                 f->err.message);
    f->failures += failed;
    return failed;
}

#endif
