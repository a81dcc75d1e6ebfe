/* The choice of a kernel table: once, at first use. */
#include "compute/kernels.h"

#include "compute/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const sfp_kernels *sfp__kernels_named(const char *isa)
{
    if (strcmp(isa, "ref") == 0)
        return &sfp__kernels_ref;
    if (strcmp(isa, "generic") == 0)
        return &sfp__kernels_generic;
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0 && sfp__cpu().avx2)
        return &sfp__kernels_avx2;
    if (strcmp(isa, "avx512") == 0 && sfp__cpu().avx512)
        return &sfp__kernels_avx512;
#endif
    return NULL;
}

static const sfp_kernels *chosen;

static void choose(void)
{
    const char *wish = getenv("STREAMFP_ISA");
    if (wish)
        chosen = sfp__kernels_named(wish);
    static const char *const order[] = {"avx512", "avx2", "generic"};
    for (size_t i = 0; !chosen && i < sizeof order / sizeof *order; i++)
        chosen = sfp__kernels_named(order[i]);
}

const sfp_kernels *sfp__kernels(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}
