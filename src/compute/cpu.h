/* What this CPU can run. */
#ifndef SFP_COMPUTE_CPU_H
#define SFP_COMPUTE_CPU_H

#include <stdbool.h>

typedef struct sfp_cpu {
    bool avx2;   /* AVX2 and FMA */
    bool avx512; /* F, BW, VL, DQ */
    bool bf16;   /* AVX512_BF16 */
} sfp_cpu;

sfp_cpu sfp__cpu(void);

/* The processor's name, e.g. from /proc/cpuinfo; never NULL. */
const char *sfp__cpu_name(void);

#endif
