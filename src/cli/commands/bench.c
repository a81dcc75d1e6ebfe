/* streamfp bench: compares the rate of the passes with the matrix-product rate of the machine (docs/method.md, section 17).
 * Passes and products alternate, so that other load on the machine affects both equally. Every number is the best of its
 * rounds. */
#include "cli/commands/bench.h"

#include "cli/command.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/rng.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "learner/learner.h"
#include "learner/settings.h"
#include "model/vit.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

enum { CLASSES = 51, TASKS = 5, WARM_UP = 1, SSD_WARM_UP = 33, PREFIX_ROWS = 4, PREFIX_LAYERS = 5 };

static const sfp__opt options[] = {
    SFP__ROW_CHOICE("size", "tiny|small|base", "base",
                    "Model: ViT-Ti/16, ViT-S/16 or ViT-B/16 at 224 x 224, with random weights."),
    SFP__ROW_INT("batch", "B", "20", 1, 100000, "Number of samples per batch."),
    SFP__ROW_INT("rounds", "N", "5", 1, 1000, "Number of rounds; the best round of each measurement is printed."),
    SFP__ROW_FLAG(
        "passes-only",
        "Measure only the two passes, without plain matrix products and timestamps: for memory use, and for comparisons "
        "with other programs."),
    SFP__ROW_FLAG("forward-only", "With --passes-only, measure only forward passes."),
    SFP__ROW_FLAG("timestamp-only", "Measure only whole timestamps of the learner."),
    SFP__ROW_FLAG(
        "profile",
        "Measure also each kernel of a forward pass alone, on one thread, and how far it is from what the machine can do."),
    SFP__ROW_CHOICE("precision", SFP__PRECISIONS, "f32",
                    "Measure also a forward pass with this precision of matrix products, and compare it with that of f32."),
    SFP__ROW_INT("merge-tokens", "R", "0", 0, 98, "Pairs of tokens that each block but the last merges in this forward pass."),
    SFP__ROW_STRING("select", "NAME", "streamfp", "Selector of the learner.", .word = sfp__selector_name),
    SFP__ROW_STRING("buffer", "NAME", "streamfp", "Buffer method of the learner.", .word = sfp__buffer_method_name),
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

/* ------------------------------------------------------------- whole timestamps */

/* The learner is in the state that it has in the middle of a stream: the buffer is full, and the queries of its slots are known,
 * as they are after the first replay of each slot (docs/method.md, section 17). */
enum { PART_SELECT = 1, PART_BUFFER = 6, PARTS };
static const char *const part_names[PARTS] = {"query", "select", "attune", "forward", "backward", "update", "buffer"};

typedef struct timestamps {
    int rounds, coreset, replay, slots;
    double total;       /* of the best round */
    double mean;        /* over all rounds; matters for methods that work only at some timestamps */
    double part[PARTS]; /* of the best round */
    size_t rss;
} timestamps;

static void fill_noise(uint8_t *to, size_t n, sfp__rng *rng)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)sfp__rng_u32(rng);
}

/* Makes all classes those of the current task; without a buffer, only these are in the softmax. */
static sfp_status set_classes(sfp__learner *l, sfp_error *err)
{
    int32_t all[CLASSES];
    for (int i = 0; i < CLASSES; i++)
        all[i] = i;
    return sfp__learner_set_classes(l, CLASSES, all, err);
}

/* Fills every slot with a random image and query, as after many samples. */
static sfp_status fill_buffer(sfp__learner *l, int dim, size_t bytes, sfp__rng *rng, sfp_error *err)
{
    enum { SEEN = 10000 };
    sfp__buffer *buffer = sfp__learner_buffer(l);
    if (!buffer)
        return SFP_OK;
    int m = sfp__learner_get_options(l)->buffer.slots;
    for (int i = 0; i < m; i++) {
        sfp__slot *s = &buffer->slot[i];
        s->label = i % CLASSES;
        s->id = (uint64_t)i;
        s->has_query = true;
        fill_noise(s->image, bytes, rng);
        for (int k = 0; k < dim; k++) {
            s->query[k] = (float)sfp__rng_normal(rng);
            s->mean_embed[k] = (float)sfp__rng_normal(rng) / (float)dim;
        }
    }
    return sfp__buffer_restore(buffer, m, SEEN, err);
}

static void keep_best(const sfp__timestamp_details *t, timestamps *out)
{
    out->mean += (t->seconds.total - out->mean) / (out->rounds + 1);
    if (out->rounds++ > 0 && t->seconds.total >= out->total)
        return;
    const double part[PARTS] = {t->seconds.query,    t->seconds.select, t->seconds.attune, t->seconds.forward,
                                t->seconds.backward, t->seconds.update, t->seconds.buffer};
    out->total = t->seconds.total;
    memcpy(out->part, part, sizeof part);
    out->coreset = t->coreset_count;
    out->replay = t->replay_count[0];
}

static size_t peak_rss(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (size_t)u.ru_maxrss * 1024 : 0;
}

static sfp_status run_rounds(sfp__learner *l, int b, int rounds, const sfp__vit_config *c, timestamps *out, sfp_error *err)
{
    size_t bytes = 3 * (size_t)c->img_size * (size_t)c->img_size, n = (size_t)b;
    sfp__rng rng = sfp__rng_init(7, 0);
    OWNED uint8_t *rgb = NULL;
    OWNED sfp__sample *samples = NULL;
    TRY(sfp__alloc(&rgb, n, bytes, err));
    TRY(sfp__alloc(&samples, n, sizeof *samples, err));
    TRY(set_classes(l, err));
    TRY(fill_buffer(l, c->dim, bytes, &rng, err));
    /* ssd works at every third timestamp, once its window of 32 batches is full */
    sfp__buffer *buffer = sfp__learner_buffer(l);
    int warm_up = buffer && strcmp(buffer->method->name, "ssd") == 0 ? SSD_WARM_UP : WARM_UP;
    for (int i = 0; i < warm_up + rounds; i++) {
        sfp__timestamp_details t;
        fill_noise(rgb, n * bytes, &rng);
        for (size_t k = 0; k < n; k++)
            samples[k] = (sfp__sample){.rgb = rgb + k * bytes, .label = (int32_t)(k % CLASSES), .id = 1000 * (uint64_t)i + k};
        TRY(sfp__learner_offer(l, b, samples, &t, err));
        if (i >= warm_up)
            keep_best(&t, out);
    }
    out->rss = peak_rss();
    out->slots = buffer ? sfp__learner_get_options(l)->buffer.slots : 0;
    return SFP_OK;
}

static sfp_status measure_timestamps(sfp__vit *vit, sfp__thread_pool *pool, int b, int rounds, const char *select,
                                     const char *buffer, timestamps *out, sfp_error *err)
{
    sfp__learner_options o = sfp__learner_options_defaults(vit);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    o.fp.tasks = TASKS;
    o.fp.classes = CLASSES;
    o.batch = b;
    o.select = select;
    o.buffer.method = buffer;
    TRY(sfp__learner_create(vit, pool, &o, &l, err));
    return run_rounds(l, b, rounds, &vit->config, out, err);
}

/* ----------------------------------------------------------------------- passes */

typedef struct bench {
    const char *select, *buffer; /* of the timestamps */
    int b, dim, depth, heads, rounds, merge_tokens;
    sfp_precision precision;
    bool forward_only;
    sfp__thread_pool *pool;
    sfp__vit *vit, *cheap_vit;
    sfp__vit_plan *forward, *backward;
    sfp__vit_plan *cheap; /* a forward pass with merge_tokens and precision; NULL: neither is given */
    void *block;
    float *x, *feature, *head; /* (b,3,S,S) (b,D) (CLASSES,D) */
    float *prefix, *grad;      /* (PREFIX_LAYERS, 2, b, PREFIX_ROWS, D) */
    sfp__vit_pass query, train;
    sfp__vit_prompt prompts[SFP__VIT_MAX_DEPTH];
    sfp__bench_gemm *gemm;
    sfp__bench_kernels *kernels; /* NULL: no profile */
    timestamps timestamp;        /* rounds 0: not measured */
    double forward_seconds, train_seconds, cheap_seconds, forward_flops, train_flops, cheap_flops;
    size_t rss;
} bench;

/* Mean cross-entropy of a linear head, which has the cost of a learner's loss. */
static void loss(void *ctx, int first, int n, const float *feature, float *grad)
{
    const bench *t = ctx;
    int D = t->dim;
    for (int i = 0; i < n; i++) {
        float z[CLASSES], max = -INFINITY, sum = 0;
        for (int k = 0; k < CLASSES; k++) {
            z[k] = 0;
            for (int c = 0; c < D; c++)
                z[k] += feature[i * D + c] * t->head[k * D + c];
            max = fmaxf(max, z[k]);
        }
        for (int k = 0; k < CLASSES; k++)
            sum += z[k] = expf(z[k] - max);
        memset(grad + i * D, 0, (size_t)D * sizeof *grad);
        for (int k = 0; k < CLASSES; k++) {
            float r = (z[k] / sum - (k == (first + i) % CLASSES)) / (float)t->b;
            for (int c = 0; c < D; c++)
                grad[i * D + c] += r * t->head[k * D + c];
        }
    }
}

static void fill_normal(float *out, size_t n, uint64_t stream)
{
    sfp__rng rng = sfp__rng_init(1, stream);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)sfp__rng_normal(&rng);
}

static sfp_status prepare(bench *t, sfp_error *err)
{
    enum { S = 224, P = 16 };
    sfp__vit_config c = {.img_size = S,
                         .patch_size = P,
                         .channels = 3,
                         .dim = t->dim,
                         .depth = t->depth,
                         .heads = t->heads,
                         .hidden = 4 * t->dim,
                         .ln_eps = 1e-6f,
                         .std = {1, 1, 1}};
    size_t b = (size_t)t->b, D = (size_t)t->dim, piece = b * PREFIX_ROWS * D;
    const sfp__want list[] = {{&t->x, b * 3 * S * S, sizeof(float)},
                              {&t->head, CLASSES * D, sizeof(float)},
                              {&t->prefix, 2 * PREFIX_LAYERS * piece, sizeof(float)},
                              {&t->grad, 2 * PREFIX_LAYERS * piece, sizeof(float)},
                              {&t->feature, b * D, sizeof(float)}};
    const sfp__vit_plan_options plain = {.mode = SFP__VIT_FORWARD},
                                cheap = {.mode = SFP__VIT_FORWARD, .merge_tokens = t->merge_tokens},
                                prompted = {.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = PREFIX_ROWS};
    TRY(sfp__vit_random(&c, 0, 0.02f, &t->vit, err));
    TRY(sfp__vit_free_packed(t->vit, err));
    TRY(sfp__block(&t->block, SFP__LIST(list), err));
    fill_normal(t->x, b * 3 * S * S, 1);
    fill_normal(t->head, CLASSES * D, 2);
    fill_normal(t->prefix, 2 * PREFIX_LAYERS * piece, 3);
    TRY(sfp__vit_plan_create(t->vit, t->pool, &plain, &t->forward, err));
    if (!t->forward_only)
        TRY(sfp__vit_plan_create(t->vit, t->pool, &prompted, &t->backward, err));
    if (t->precision || t->merge_tokens) {
        TRY(sfp__vit_random(&c, 0, 0.02f, &t->cheap_vit, err));
        t->cheap_vit->precision = t->precision;
        TRY(sfp__vit_plan_create(t->cheap_vit, t->pool, &cheap, &t->cheap, err));
    }
    t->query = (sfp__vit_pass){.b = t->b, .x = t->x, .feature = t->feature};
    t->train = (sfp__vit_pass){.b = t->b, .x = t->x, .prompts = t->prompts, .head = loss, .head_ctx = t};
    for (size_t l = 0; l < PREFIX_LAYERS; l++) {
        t->prompts[l] = (sfp__vit_prompt){.rows = PREFIX_ROWS,
                                          .k = t->prefix + 2 * l * piece,
                                          .v = t->prefix + (2 * l + 1) * piece,
                                          .grad_k = t->grad + 2 * l * piece,
                                          .grad_v = t->grad + (2 * l + 1) * piece};
    }
    return SFP_OK;
}

static sfp_status run_timed(sfp__vit_plan *plan, const sfp__vit_pass *pass, double *best, double *flops, sfp_error *err)
{
    double begin = sfp__monotonic_seconds();
    sfp_status s = sfp__vit_run(plan, pass, err);
    double took = sfp__monotonic_seconds() - begin;
    if (*best <= 0 || took < *best)
        *best = took;
    *flops = sfp__vit_plan_flops(plan);
    return s;
}

static sfp_status measure_passes(bench *t, bool passes_only, bool profile, sfp_error *err)
{
    const sfp__vit_config *c = &t->vit->config;
    const sfp__bench_block block = {.dim = c->dim,
                                    .hidden = c->hidden,
                                    .heads = c->heads,
                                    .depth = c->depth,
                                    .tokens = t->vit->tokens,
                                    .patch = c->channels * c->patch_size * c->patch_size,
                                    .precision = t->precision};
    double unused = 0;
    TRY(run_timed(t->forward, &t->query, &unused, &t->forward_flops, err)); /* warm-up */
    if (t->backward)
        TRY(run_timed(t->backward, &t->train, &unused, &t->train_flops, err));
    if (t->cheap)
        TRY(run_timed(t->cheap, &t->query, &unused, &t->cheap_flops, err));
    t->rss = peak_rss(); /* before the buffers of the plain products are allocated */
    if (!passes_only)
        TRY(sfp__bench_gemm_create(t->b * t->vit->tokens, t->dim, 4 * t->dim, t->pool, &t->gemm, err));
    if (profile)
        TRY(sfp__bench_kernels_create(&block, &t->kernels, err));
    for (int i = 0; i < t->rounds; i++) {
        if (t->kernels)
            sfp__bench_kernels_round(t->kernels);
        if (t->gemm)
            sfp__bench_gemm_round(t->gemm);
        TRY(run_timed(t->forward, &t->query, &t->forward_seconds, &t->forward_flops, err));
        if (t->cheap)
            TRY(run_timed(t->cheap, &t->query, &t->cheap_seconds, &t->cheap_flops, err));
        if (t->backward)
            TRY(run_timed(t->backward, &t->train, &t->train_seconds, &t->train_flops, err));
    }
    return SFP_OK;
}

static void put_rate(sfp__out *o, const char *label, const char *key, double rate, double seconds, double best)
{
    char name[40];
    sfp__out_printf(o, "%-34s %8.1f GFLOP/s %8.3f s", label, rate, seconds);
    if (best > 0) {
        (void)snprintf(name, sizeof name, "%s_over_gemm", key);
        sfp__json_real(&o->json, name, rate / best);
        sfp__out_printf(o, "  %5.2f of the best product", rate / best);
    }
    sfp__out_printf(o, "\n");
}

static void put_passes(sfp__out *o, const bench *t)
{
    double forward = t->forward_flops / t->forward_seconds * 1e-9, train = t->train_flops / t->train_seconds * 1e-9, best = 0;
    const char *name = "";
    if (t->gemm) {
        best = sfp__bench_gemm_best(t->gemm, &name);
        sfp__json_real(&o->json, "gemm_gflops", best);
        sfp__json_string(&o->json, "gemm_best", name);
        sfp__json_object(&o->json, "gemm_all");
        for (int i = 0; i < sfp__bench_gemm_contenders(t->gemm); i++) {
            double rate = sfp__bench_gemm_rate(t->gemm, i);
            sfp__json_real(&o->json, sfp__bench_gemm_name(t->gemm, i), rate);
            sfp__out_printf(o, "%-34s %8.1f GFLOP/s\n", sfp__bench_gemm_name(t->gemm, i), rate);
        }
        sfp__json_end(&o->json);
        sfp__out_printf(o, "\n");
    }
    if (!(t->forward_seconds > 0))
        return;
    put_rate(o, "forward", "forward", forward, t->forward_seconds, best);
    if (t->cheap) {
        char label[40];
        (void)snprintf(label, sizeof label, "forward, %s, merging %d", sfp__precision_name(t->precision), t->merge_tokens);
        sfp__json_real(&o->json, "cheap_seconds", t->cheap_seconds);
        sfp__json_real(&o->json, "cheap_speedup", t->forward_seconds / t->cheap_seconds);
        sfp__out_printf(o, "%-34s %8.1f GFLOP/s %8.3f s  %5.2f times as fast\n", label, t->cheap_flops / t->cheap_seconds * 1e-9,
                        t->cheap_seconds, t->forward_seconds / t->cheap_seconds);
    }
    if (t->backward)
        put_rate(o, "forward + prefix backward", "backward", train, t->train_seconds, best);
    sfp__out_printf(o, "%-34s %8.2f GB\n\n", "peak memory of the passes", (double)t->rss * 1e-9);
    if (t->kernels) {
        double seconds = t->precision ? t->cheap_seconds : t->forward_seconds;
        sfp__bench_kernels_put(t->kernels, seconds * sfp__thread_pool_size(t->pool) / t->b, o);
    }
    sfp__json_real(&o->json, "forward_gflops", forward);
    sfp__json_real(&o->json, "forward_seconds", t->forward_seconds);
    if (t->backward) {
        sfp__json_real(&o->json, "backward_gflops", train);
        sfp__json_real(&o->json, "backward_seconds", t->train_seconds);
    }
    sfp__json_uint(&o->json, "peak_rss_bytes", t->rss);
}

static void put_timestamp(sfp__out *o, const bench *t)
{
    const timestamps *s = &t->timestamp;
    sfp__json_string(&o->json, "select", t->select);
    sfp__json_string(&o->json, "buffer", t->buffer);
    sfp__json_real(&o->json, "timestamp_seconds", s->total);
    sfp__json_real(&o->json, "timestamp_mean_seconds", s->mean);
    sfp__out_printf(o, "One timestamp: batch %d, select %s, coreset %d, buffer %s of %d, replay %d\n", t->b, t->select,
                    s->coreset, t->buffer, s->slots, s->replay);
    sfp__json_object(&o->json, "timestamp_parts");
    for (int i = 0; i < PARTS; i++) {
        sfp__json_real(&o->json, part_names[i], s->part[i]);
        sfp__out_printf(o, "  %-32s %8.4f s  %5.1f %%\n", part_names[i], s->part[i], 100 * s->part[i] / s->total);
    }
    sfp__json_end(&o->json);
    sfp__json_real(&o->json, "select_and_buffer_share", (s->part[PART_SELECT] + s->part[PART_BUFFER]) / s->total);
    sfp__json_real(&o->json, "samples_per_second", t->b / s->total);
    sfp__json_uint(&o->json, "peak_rss_bytes_learner", s->rss);
    sfp__out_printf(o, "  %-32s %8.4f s  %8.2f samples/s, peak memory %.2f GB\n", "all", s->total, t->b / s->total,
                    (double)s->rss * 1e-9);
}

static void print_results(const bench *t, const char *size, const char *name, bool json)
{
    int threads = sfp__thread_pool_size(t->pool);
    sfp__out o;
    sfp__out_begin(&o, json, 0);
    sfp__json_string(&o.json, "size", size);
    sfp__json_int(&o.json, "batch", t->b);
    sfp__json_string(&o.json, "precision", sfp__precision_name(t->precision));
    sfp__json_int(&o.json, "merge_tokens", t->merge_tokens);
    sfp__json_int(&o.json, "threads", threads);
    sfp__json_string(&o.json, "cpu", sfp__cpu_name());
    sfp__json_string(&o.json, "kernels", sfp__kernels_get()->isa);
    sfp__json_string(&o.json, "gemm_backend", sfp__gemm_backend());
    sfp__out_printf(&o, "ViT-%s/16, batch %d, %d thread%s, %s kernels, %s\n%s\n\n", name, t->b, threads, threads == 1 ? "" : "s",
                    sfp__kernels_get()->isa, sfp__gemm_backend(), sfp__cpu_name());
    put_passes(&o, t);
    if (t->timestamp.rounds)
        put_timestamp(&o, t);
    sfp__out_end(&o);
}

static const sfp__no_effect_rule no_effect_rules[] = {
    {"select buffer", "passes-only=on", "passes-only", "only timestamps use it"},
    {"forward-only", "passes-only=off", "no --passes-only", "timestamps need the other passes"},
    {"profile precision merge-tokens", "timestamp-only=on", "timestamp-only", "no pass alone is measured"}};

static void bench_done(bench *t)
{
    sfp__bench_gemm_free(t->gemm);
    sfp__bench_kernels_free(t->kernels);
    sfp__vit_plan_free(t->backward);
    sfp__vit_plan_free(t->cheap);
    sfp__vit_plan_free(t->forward);
    sfp__vit_free(t->cheap_vit);
    sfp__vit_free(t->vit);
    sfp__thread_pool_free(t->pool);
    sfp__free(t->block);
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    static const struct {
        const char *name;
        int dim, depth, heads;
    } sizes[] = {{"Ti", 192, 12, 3}, {"S", 384, 12, 6}, {"B", 768, 12, 12}};
    int size = sfp__args_choice(args, "size");
    bool passes_only = sfp__args_flag(args, "passes-only"), timestamp_only = sfp__args_flag(args, "timestamp-only");
    OWNED_BY(bench_done)
    bench t = {.select = sfp__args_text(args, "select"),
               .buffer = sfp__args_text(args, "buffer"),
               .b = (int)sfp__args_int(args, "batch"),
               .dim = sizes[size].dim,
               .depth = sizes[size].depth,
               .heads = sizes[size].heads,
               .rounds = (int)sfp__args_int(args, "rounds"),
               .precision = (sfp_precision)sfp__args_choice(args, "precision"),
               .forward_only = sfp__args_flag(args, "forward-only"),
               .merge_tokens = (int)sfp__args_int(args, "merge-tokens")};
    if (passes_only && timestamp_only)
        return sfp__fail_usage(err, "--passes-only and --timestamp-only exclude each other");
    TRY(sfp__args_check_no_effect(args, SFP__LIST(no_effect_rules), 0, NULL, err));
    TRY(sfp__thread_pool_create((int)sfp__args_int(args, "threads"), &t.pool, err));
    if (t.precision == SFP_PRECISION_AUTO)
        t.precision = sfp__gemm_native_precision();
    TRY(prepare(&t, err));
    if (!timestamp_only)
        TRY(measure_passes(&t, passes_only, sfp__args_flag(args, "profile"), err));
    if (!passes_only)
        TRY(measure_timestamps(t.vit, t.pool, t.b, t.rounds, t.select, t.buffer, &t.timestamp, err));
    print_results(&t, sfp__args_text(args, "size"), sizes[size].name, sfp__args_flag(args, "json"));
    return SFP_OK;
}

const sfp__command sfp__cmd_bench = {
    .name = "bench",
    .summary = "measure passes and learner against the matrix-product rate of the machine",
    .text =
        "Measures the forward pass alone, and the forward pass with prefixes in the first five layers together with the backward "
        "pass to these prefixes. Compares their rates with the fastest plain matrix product: that of this program, or that of a "
        "tuned BLAS on the machine. Rates count executed operations. Then measures whole timestamps of the learner and their "
        "parts, with sigma 0.5, replay 10, a full buffer of 102 slots with known queries, and a pool of 100 components for 5 "
        "tasks.",
    .examples = "  streamfp bench --size tiny\n"
                "  streamfp bench --size base --json\n",
    .run = run,
    SFP__COMMAND_OPTIONS(options),
};
