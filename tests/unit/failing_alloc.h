/* Makes each allocation of a call fail in turn. Include after <cmocka.h>. */
#ifndef SFP_TESTS_FAILING_ALLOC_H
#define SFP_TESTS_FAILING_ALLOC_H

#include <limits.h>

#include "test.h"

/* Runs `call` repeatedly: first with its first allocation failing, then its second, and so on, until no allocation fails.
 * `call` returns sfp_status and writes its error to `alloc_err`. Every failure must be reported as SFP_ENOMEM with a message,
 * and `untouched` must hold after it. The last call must succeed, so its results exist exactly once. The value of the macro is
 * the number of failures. */
#define FAIL_EACH_ALLOCATION(call, untouched) FAIL_SOME_ALLOCATIONS(LONG_MAX, call, untouched)

/* FAIL_EACH_ALLOCATION for calls with many allocations. Later allocations are sampled in strides: k is followed by k + 1 + k /
 * dense. */
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
    long k;               /* index of the failing allocation */
    unsigned long before; /* number of allocations of the process before the call */
    long failures;
    sfp_error err;
} failing_alloc;

static inline void failing_alloc_begin(failing_alloc *f)
{
    f->err = (sfp_error){0};
    f->before = sfp__mem_count();
    sfp__mem_fail_at(f->k);
}

/* Ends one call and returns whether it reached allocation k. Fails the test if the status does not match. */
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
