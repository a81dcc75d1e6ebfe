/* Kernels for AVX2: this file is compiled with its compiler flags and used only on CPUs that support it. */
#define SFP_VL 8
#define SFP_MR 6
#define SFP_TABLE sfp__kernels_avx2
#define SFP_ISA "avx2"
#include "compute/kernels_simd.inc"
