/* Kernels for AVX-512: this file is compiled with its compiler flags and used only on CPUs that support it. */
#define SFP_VL 16
#define SFP_MR 12
#define SFP_TABLE sfp__kernels_avx512
#define SFP_ISA "avx512"
#include "compute/kernels_simd.inc"
