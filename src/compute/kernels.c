/* CPU detection, and the choice of a kernel table, made once at first use. */
#include "compute/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

sfp__cpu sfp__cpu_detect(void)
{
    sfp__cpu c = {0};
#if defined(__x86_64__)
    __builtin_cpu_init();
    c.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    c.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    c.bf16 = c.avx512 && __builtin_cpu_supports("avx512bf16");
#endif
    return c;
}

static char name[3 * 16 + 1] = "unknown CPU";

/* Reads the name by the CPUID instruction. Opening /proc/cpuinfo could fail, and the same run would then have another result.json. */
static void read_name(void)
{
#if defined(__x86_64__)
    const unsigned first = 0x80000002;
    unsigned text[3][4];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(first + i, &text[i][0], &text[i][1], &text[i][2], &text[i][3]))
            return;
    (void)memcpy(name, text, sizeof text);
    size_t blank = strspn(name, " "), length = strlen(name);
    while (length > blank && name[length - 1] == ' ')
        length--;
    (void)memmove(name, name + blank, length - blank);
    name[length - blank] = '\0';
#endif
}

const char *sfp__cpu_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_name);
    return name;
}

const sfp__kernels *sfp__kernels_named(const char *isa)
{
    if (strcmp(isa, "ref") == 0)
        return &sfp__kernels_ref;
    if (strcmp(isa, "generic") == 0)
        return &sfp__kernels_generic;
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0 && sfp__cpu_detect().avx2)
        return &sfp__kernels_avx2;
    if (strcmp(isa, "avx512") == 0 && sfp__cpu_detect().avx512)
        return &sfp__kernels_avx512;
#endif
    return NULL;
}

static const sfp__kernels *chosen;

static void choose(void)
{
    const char *requested = getenv("STREAMFP_ISA");
    if (requested)
        chosen = sfp__kernels_named(requested);
    static const char *const order[] = {"avx512", "avx2", "generic"};
    for (size_t i = 0; !chosen && i < sizeof order / sizeof *order; i++)
        chosen = sfp__kernels_named(order[i]);
}

const sfp__kernels *sfp__kernels_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}
