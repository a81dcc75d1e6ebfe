/* The rate to beat: plain matrix products over a block's shapes. */
#ifndef SFP_CLI_BENCH_H
#define SFP_CLI_BENCH_H

#include "base/error.h"
#include "base/thread_pool.h"

typedef struct sfp__bench_gemm sfp__bench_gemm;

/* Shapes of a ViT block of width D and MLP width F at m rows: qkv, proj, fc1, fc2. */
sfp_status sfp__bench_gemm_create(int m, int dim, int hidden, sfp__thread_pool *pool, sfp__bench_gemm **out, sfp_error *err);
void sfp__bench_gemm_free(sfp__bench_gemm *g);

/* One round of every contender; each keeps its best time. */
void sfp__bench_gemm_round(sfp__bench_gemm *g);

/* GFLOP/s of the best round of the best contender, FLOP-weighted over the shapes, and its name. */
double sfp__bench_gemm_best(const sfp__bench_gemm *g, const char **name);

int sfp__bench_gemm_contenders(const sfp__bench_gemm *g);
const char *sfp__bench_gemm_name(const sfp__bench_gemm *g, int i);
double sfp__bench_gemm_rate(const sfp__bench_gemm *g, int c);

#endif
