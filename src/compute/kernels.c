/* CPU detection, and the choice of a kernel table, made once at first use. */
#include "compute/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static char name[128] = "unknown CPU";

static void read_name(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            size_t n = strcspn(colon + 1, "\n");
            colon[1 + n] = 0;
            (void)snprintf(name, sizeof name, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
            break;
        }
    }
    (void)fclose(f);
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
