/* Kernels for any CPU: four lanes of the compiler's vector types (SSE2 on x86-64, NEON on aarch64). */
#define SFP_VL 4
#define SFP_MR 6
#define SFP_TABLE sfp__kernels_generic
#define SFP_ISA "generic"
#include "compute/kernels_simd.inc"
