/* Parts of bench: the reference rate, plain matrix products with the shapes of a ViT block; the kernels of a pass one by one. */
#ifndef SFP_CLI_BENCH_H
#define SFP_CLI_BENCH_H

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/output.h"
#include "streamfp.h"

typedef struct sfp__bench_gemm sfp__bench_gemm;

/* The shapes are those of a ViT block of width dim and MLP width `hidden` with m rows: qkv, proj, fc1, fc2. */
sfp_status sfp__bench_gemm_create(int m, int dim, int hidden, sfp__thread_pool *pool, sfp__bench_gemm **out, sfp_error *err);
void sfp__bench_gemm_free(sfp__bench_gemm *g);

/* Measures every implementation once; each keeps its best time. */
void sfp__bench_gemm_round(sfp__bench_gemm *g);

/* Returns the GFLOP/s of the best rounds of the fastest implementation over all shapes, and its name. */
double sfp__bench_gemm_best(const sfp__bench_gemm *g, const char **name);

int sfp__bench_gemm_contenders(const sfp__bench_gemm *g);
const char *sfp__bench_gemm_name(const sfp__bench_gemm *g, int i);
double sfp__bench_gemm_rate(const sfp__bench_gemm *g, int c);

/* The sizes of a ViT: `patch` numbers per patch, `tokens` per image. */
typedef struct sfp__bench_block {
    int dim, hidden, heads, depth, tokens, patch;
    sfp_precision precision;
} sfp__bench_block;

typedef struct sfp__bench_kernels sfp__bench_kernels;

sfp_status sfp__bench_kernels_create(const sfp__bench_block *b, sfp__bench_kernels **out, sfp_error *err);
void sfp__bench_kernels_free(sfp__bench_kernels *p);
/* Measures every kernel once, on one thread; each keeps its best time. */
void sfp__bench_kernels_round(sfp__bench_kernels *p);
/* Prints their rates and shares of a pass that takes `pass` seconds per image and thread. */
void sfp__bench_kernels_put(const sfp__bench_kernels *p, double pass, sfp__out *o);

#endif
