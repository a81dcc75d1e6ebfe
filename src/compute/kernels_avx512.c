/* Kernels for AVX-512: this file is compiled with its compiler flags and used only on CPUs that support it. */
#define SFP__VL 16
#define SFP__MR 12
#define SFP__TABLE sfp__kernels_avx512
#define SFP__ISA "avx512"
#include "compute/kernels_simd.inc"
