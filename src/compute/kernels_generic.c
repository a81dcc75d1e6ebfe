/* Kernels for any CPU: four lanes of the compiler's vector types (SSE2 on x86-64, NEON on aarch64). */
#define SFP__VL 4
#define SFP__MR 6
#define SFP__TABLE sfp__kernels_generic
#define SFP__ISA "generic"
#include "compute/kernels_simd.inc"
