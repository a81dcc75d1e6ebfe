/* Kernels for AVX2: this file is compiled with its compiler flags and used only on CPUs that support it. */
#define SFP__VL 8
#define SFP__MR 6
#define SFP__TABLE sfp__kernels_avx2
#define SFP__ISA "avx2"
#include "compute/kernels_simd.inc"
