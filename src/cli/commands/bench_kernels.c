/* The parts of a forward pass one by one: bench --profile.
 *
 * Every kernel runs alone on the rows of one micro-batch, so that its arrays are in the caches as in a pass. Its roof is the time in which
 * the machine could do no less: that of its operations at the rate of the fastest of the four products, or that of copying as many bytes
 * as it reads and writes, whichever is longer. What the sum of the kernels lacks to the measured pass is between them: the class tokens
 * of the last block, calls, and caches. */
#include "cli/commands/bench.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "compute/kernels.h"

#include <string.h>

enum { PRODUCTS = 5, NORM = PRODUCTS, GELU, ATTENTION, KERNELS, IMAGES = 2 };

typedef struct kernel {
    const char *name;
    int times; /* in a pass */
    double flops, bytes, seconds, copy_seconds;
} kernel;

DEFINE_OWNED_PTR(sfp__bench_kernels, sfp__bench_kernels_free)

struct sfp__bench_kernels {
    sfp__bench_block block;
    kernel list[KERNELS];
    sfp__gemm_weight *weight[PRODUCTS];
    sfp__gemm_op *op[PRODUCTS];
    int rows[PRODUCTS], n[PRODUCTS], k[PRODUCTS];
    void *arrays;
    float *x, *y, *z, *w, *scratch; /* inputs, results, weights */
    size_t floats;                  /* of x, y and z */
};

static sfp_status fill(sfp__bench_kernels *p, const sfp__bench_block *b, sfp_error *err)
{
    static const char *const names[KERNELS] = {"product patch", "product qkv", "product proj", "product fc1",
                                               "product fc2",   "sum, norm",   "GELU",         "attention"};
    const sfp__kernels *kernels = sfp__kernels_get();
    int D = b->dim, F = b->hidden, L = IMAGES * (b->tokens - 1), M = IMAGES * b->tokens, d = D / b->heads;
    const int rows[PRODUCTS] = {L, M, M, M, M}, n[PRODUCTS] = {D, 3 * D, D, F, D}, k[PRODUCTS] = {b->patch, D, D, D, F};
    size_t widest = (size_t)(F > b->patch ? F : b->patch), weights = 0;
    for (int i = 0; i < PRODUCTS; i++)
        weights = weights > (size_t)n[i] * (size_t)k[i] ? weights : (size_t)n[i] * (size_t)k[i];
    p->block = *b;
    p->floats = (size_t)M * widest;
    const sfp__want list[] = {{&p->x, p->floats, sizeof(float)},
                              {&p->y, p->floats, sizeof(float)},
                              {&p->z, p->floats, sizeof(float)},
                              {&p->w, weights, sizeof(float)},
                              {&p->scratch, kernels->attn_scratch(b->tokens, b->tokens, d), sizeof(float)}};
    TRY(sfp__block(&p->arrays, SFP__LIST(list), err));
    for (size_t i = 0; i < p->floats; i++)
        p->x[i] = p->y[i] = (float)(i % 17) / 17.0f - 0.4f;
    for (size_t i = 0; i < weights; i++)
        p->w[i] = (float)(i % 13) / 130.0f - 0.05f;
    memset(p->z, 0, p->floats * sizeof *p->z);
    double m = M, T = b->tokens;
    for (int i = 0; i < PRODUCTS; i++) {
        const sfp__gemm_weight_desc desc = {.n = n[i], .k = k[i], .w = p->w, .align = i == 1 ? d : 0, .precision = b->precision};
        TRY(sfp__gemm_weight_create(&desc, &p->weight[i], err));
        TRY(sfp__gemm_op_create(p->weight[i], rows[i], 1, &p->op[i], err));
        double bytes = 4.0 * rows[i] * (n[i] + k[i]) + (b->precision == SFP_PRECISION_F32 ? 4.0 : 2.0) * n[i] * k[i];
        p->list[i] = (kernel){.times = i ? b->depth : 1, .flops = 2.0 * rows[i] * n[i] * k[i], .bytes = bytes};
    }
    p->list[NORM] = (kernel){.times = 2 * b->depth, .bytes = 4 * 4 * m * D};
    p->list[GELU] = (kernel){.times = b->depth, .bytes = 4 * 2 * m * F};
    p->list[ATTENTION] = (kernel){.times = b->depth, .flops = 4 * m * T * D, .bytes = 4 * 4 * m * D};
    for (int i = 0; i < KERNELS; i++)
        p->list[i].name = names[i];
    return SFP_OK;
}

sfp_status sfp__bench_kernels_create(const sfp__bench_block *b, sfp__bench_kernels **out, sfp_error *err)
{
    OWNED_PTR(sfp__bench_kernels_free) sfp__bench_kernels *p = NULL;
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    TRY(fill(p, b, err));
    *out = TAKE(p);
    return SFP_OK;
}

void sfp__bench_kernels_free(sfp__bench_kernels *p)
{
    if (!p)
        return;
    for (int i = 0; i < PRODUCTS; i++) {
        sfp__gemm_op_free(p->op[i]);
        sfp__gemm_weight_free(p->weight[i]);
    }
    sfp__free(p->arrays);
    sfp__free(p);
}

static void attend(const sfp__bench_kernels *p)
{
    const sfp__bench_block *b = &p->block;
    int T = b->tokens, D = b->dim, d = D / b->heads, w = sfp__gemm_panel(p->weight[1]), M = IMAGES * T;
    for (int i = 0; i < IMAGES; i++)
        for (int h = 0; h < b->heads; h++) {
            const float *part[3];
            for (int q = 0; q < 3; q++) {
                int c = q * D + h * d;
                part[q] = p->x + (size_t)(c / w) * (size_t)M * (size_t)w + (size_t)i * (size_t)T * (size_t)w + c % w;
            }
            sfp__kernels_get()->attn_fwd(&(sfp__attn){.nq = T,
                                                      .nk = T,
                                                      .d = d,
                                                      .scale = 0.125f,
                                                      .q = part[0],
                                                      .ldq = w,
                                                      .k = part[1],
                                                      .v = part[2],
                                                      .ldkv = w,
                                                      .out = p->z + (size_t)i * (size_t)T * (size_t)D + h * d,
                                                      .ldo = D,
                                                      .scratch = p->scratch});
        }
}

static void run_kernel(const sfp__bench_kernels *p, int i)
{
    const sfp__kernels *k = sfp__kernels_get();
    const sfp__bench_block *b = &p->block;
    int D = b->dim, F = b->hidden, M = IMAGES * b->tokens;
    if (i < PRODUCTS)
        sfp__gemm_run(p->op[i], 0, p->weight[i], p->x, p->z);
    else if (i == NORM)
        k->add_norm_fwd(M, D, p->x, p->y, sfp__gemm_panel(p->weight[2]), p->w, p->w + D, 1e-6f, p->z,
                        p->z + (size_t)M * (size_t)D, p->scratch);
    else if (i == GELU)
        k->gelu_fwd(M, F, p->y, sfp__gemm_panel(p->weight[3]), false, p->z);
    else
        attend(p);
}

static void keep_least(double *to, double seconds)
{
    if (*to <= 0 || seconds < *to)
        *to = seconds;
}

void sfp__bench_kernels_round(sfp__bench_kernels *p)
{
    enum { CALLS = 20 };
    int token = sfp__gemm_enter();
    for (int i = 0; i < KERNELS; i++) {
        kernel *k = &p->list[i];
        size_t most = p->floats * sizeof *p->z, bytes = (size_t)k->bytes / 2 < most ? (size_t)k->bytes / 2 : most;
        double begin = sfp__monotonic_seconds();
        for (int c = 0; c < CALLS; c++)
            run_kernel(p, i);
        double end = sfp__monotonic_seconds();
        keep_least(&k->seconds, (end - begin) / CALLS);
        for (int c = 0; c < CALLS; c++)
            memcpy(p->z, (c % 2 ? p->x : p->y), bytes);
        keep_least(&k->copy_seconds, (sfp__monotonic_seconds() - end) / CALLS * (k->bytes / 2) / (double)bytes);
    }
    sfp__gemm_leave(token);
}

void sfp__bench_kernels_put(const sfp__bench_kernels *p, double pass, sfp__out *o)
{
    double peak = 0, sum = 0;
    for (int i = 1; i < PRODUCTS; i++) {
        double rate = p->list[i].flops / p->list[i].seconds;
        peak = rate > peak ? rate : peak;
    }
    sfp__out_printf(o, "%-16s %6s %10s %8s %8s %10s\n", "kernel", "times", "GFLOP/s", "GB/s", "of roof", "of a pass");
    sfp__json_array(&o->json, "profile");
    for (int i = 0; i < KERNELS; i++) {
        const kernel *k = &p->list[i];
        double compute = k->flops / peak, roof = compute > k->copy_seconds ? compute : k->copy_seconds;
        double share = k->times * k->seconds / IMAGES / pass;
        sum += share;
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "kernel", k->name);
        sfp__json_int(&o->json, "times", k->times);
        sfp__json_real(&o->json, "seconds", k->seconds);
        sfp__json_real(&o->json, "gflops", k->flops / k->seconds * 1e-9);
        sfp__json_real(&o->json, "of_roof", roof / k->seconds);
        sfp__json_real(&o->json, "of_pass", share);
        sfp__json_end(&o->json);
        sfp__out_printf(o, "%-16s %6d %10.1f %8.1f %8.2f %8.1f %%\n", k->name, k->times, k->flops / k->seconds * 1e-9,
                        k->bytes / k->seconds * 1e-9, roof / k->seconds, 100 * share);
    }
    sfp__json_end(&o->json);
    sfp__out_printf(o, "%-16s %45.1f %%\n\n", "between kernels", 100 * (1 - sum));
}
