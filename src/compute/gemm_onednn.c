/* Matrix products by oneDNN, for 2.x and 3.x (gemm_onednn.h declares the parts that differ).
 *
 * Two of its primitives can compute y = x W^T + bias with packed weights:
 *     - matmul with blocked weights ("brg..." implementations), for AVX-512;
 *     - a 1x1 convolution over m "pixels" with channels last ("jit_1x1..."), for AVX2, where matmul would copy W into its own
 *       layout in every call. It runs at full speed while a piece of W is below about 1.2 MB (measured on Zen 3: 195 against
 *       140 GFLOP/s at 2.4 MB), so wide weights are divided into panels of output columns.
 * If neither is available, matmul with plain weights is used. The choice is made when a weight is packed; an op contains the
 * primitive for m rows. */
#include "compute/gemm_onednn.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/onednn_call.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PANEL_BYTES ((size_t)1228800)

struct sfp__gemm_weight {
    bool conv, transposed;
    int n, k, panel, pieces;
    sfp_precision precision;
    dnnl_primitive_desc_t packing; /* packs one panel; its destination is the packed layout */
    size_t stride;                 /* bytes from one panel to the next */
    char *packed;                  /* (pieces, stride) */
    float *bias;                   /* (n); zero if there is no bias, and for int8 */
    float *columns;                /* int8: (3, n) step of the rounded weights, their sum times the step, bias; else NULL */
};

typedef struct lane {
    dnnl_stream_t stream;
    dnnl_memory_t src, weights, bias, dst, scratch;
    void *scratch_data;
    void *rounded; /* (m, k) input as bf16 or as u8; f32: NULL */
    float *rows;   /* int8: (m, 2) as of to_u8 */
} lane;

struct sfp__gemm_op {
    int m, n, k, panel, lanes;
    sfp_precision precision;
    dnnl_primitive_t primitive;
    lane *lane; /* (lanes) */
};

DEFINE_OWNED_PTR(sfp__gemm_op, sfp__gemm_op_free)

static dnnl_engine_t engine; /* NULL: not created yet */
static atomic_uint failures;

static sfp_status fail(sfp_error *err, dnnl_status_t s, const char *operation)
{
    if (s == dnnl_out_of_memory)
        return sfp__fail(err, SFP_ENOMEM, "oneDNN: %s: out of memory", operation);
    return sfp__fail(err, SFP_ELIBRARY, "oneDNN: %s failed with status %d", operation, (int)s);
}

/* oneDNN compiles the kernels of sgemm at their first use. They are used once here, so that a lack of memory for them is reported when an engine
 * is opened, and not in the middle of a run. */
static dnnl_status_t create_engine(void *ctx)
{
    enum { SIDE = 64 };
    static float x[SIDE * SIDE], y[SIDE * SIDE];
    dnnl_engine_t *to = ctx;
    dnnl_status_t s = *to ? dnnl_success : dnnl_engine_create(to, dnnl_cpu, 0);
    for (int i = 0; s == dnnl_success && i < 8; i++)
        s = dnnl_sgemm(i & 1 ? 'T' : 'N', i & 2 ? 'T' : 'N', SIDE, SIDE, SIDE, 1.0f, x, SIDE, x, SIDE, i & 4 ? 1.0f : 0.0f, y,
                       SIDE);
    return s;
}

static sfp_status need_engine(sfp_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static dnnl_engine_t created; /* becomes `engine` only after the kernels have been compiled */
    dnnl_status_t s = dnnl_success;
    pthread_mutex_lock(&lock);
    if (!engine) {
        int token = sfp__gemm_enter();
        s = sfp__onednn_call(create_engine, &created);
        sfp__gemm_leave(token);
        engine = s == dnnl_success ? created : NULL;
    }
    pthread_mutex_unlock(&lock);
    return s == dnnl_success ? SFP_OK : fail(err, s, "engine");
}

sfp_status sfp__gemm_prepare(sfp_error *err)
{
    return need_engine(err);
}

static char backend[48];

static void write_backend(void)
{
    const dnnl_version_t *v = dnnl_version();
    (void)snprintf(backend, sizeof backend, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const char *sfp__gemm_backend(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, write_backend); /* another thread may read the text of an earlier call */
    return backend;
}

int sfp__gemm_isa(void)
{
    return (int)dnnl_get_effective_cpu_isa();
}

sfp_precision sfp__gemm_native_precision(void)
{
    const int bf16 = dnnl_cpu_isa_avx512_core_bf16 & ~dnnl_cpu_isa_avx512_core_vnni;
    return sfp__gemm_isa() & bf16 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32;
}

/* ---------------------------------------------------------------- primitives */

bool sfp__onednn_named(const_dnnl_primitive_desc_t pd, const char *prefix)
{
    const char *name = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, prefix, strlen(prefix)) == 0;
}

/* The largest number to which an input is rounded for int8. Without VNNI, oneDNN adds two products in 16 bits, which 255 * 127 would
 * exceed. */
static int int8_levels(void)
{
    const int vnni = (dnnl_cpu_isa_avx2_vnni & ~dnnl_cpu_isa_avx2) | (dnnl_cpu_isa_avx512_core_vnni & ~dnnl_cpu_isa_avx512_core);
    return sfp__gemm_isa() & vnni ? 255 : 127;
}

/* Describes the product of m rows and one panel of n columns. */
static sfp__onednn_product describe_product(bool conv, int m, int n, int k, sfp_precision precision)
{
    static const dnnl_data_type_t inputs[] = {dnnl_f32, dnnl_bf16, dnnl_u8}, weights[] = {dnnl_f32, dnnl_bf16, dnnl_s8};
    dnnl_data_type_t in = inputs[precision], type = weights[precision];
    if (conv)
        return (sfp__onednn_product){.conv = true,
                                     .impl = precision == SFP_PRECISION_INT8 ? "jit_" : "jit_1x1",
                                     .tensor = {[SFP__ONEDNN_SRC] = {4, {1, k, m, 1}, in, dnnl_nhwc},
                                                [SFP__ONEDNN_WEIGHTS] = {4, {n, k, 1, 1}, type, dnnl_format_tag_any},
                                                [SFP__ONEDNN_BIAS] = {1, {n}, dnnl_f32, dnnl_a},
                                                [SFP__ONEDNN_DST] = {4, {1, n, m, 1}, dnnl_f32, dnnl_nhwc}}};
    return (sfp__onednn_product){.tensor = {[SFP__ONEDNN_SRC] = {2, {m, k}, in, dnnl_ab},
                                            [SFP__ONEDNN_WEIGHTS] = {2, {k, n}, type, dnnl_format_tag_any},
                                            [SFP__ONEDNN_BIAS] = {2, {1, n}, dnnl_f32, dnnl_ab},
                                            [SFP__ONEDNN_DST] = {2, {m, n}, dnnl_f32, dnnl_ab}}};
}

/* ------------------------------------------------------------------ weights */

static void destroy_desc(const dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_destroy(*pd);
}

static void destroy_primitive(const dnnl_primitive_t *p)
{
    dnnl_primitive_destroy(*p);
}

static void destroy_memory(const dnnl_memory_t *m)
{
    dnnl_memory_destroy(*m);
}

static void destroy_stream(const dnnl_stream_t *s)
{
    dnnl_stream_destroy(*s);
}

/* Chooses the primitive, the panel width and the packed layout. */
static sfp_status choose_layout(sfp__gemm_weight *w, int align, bool transposed, sfp_error *err)
{
    enum { TYPICAL_ROWS = 256 };
    OWNED_BY(destroy_desc) dnnl_primitive_desc_t pd = NULL, conv = NULL;
    sfp__onednn_product product = describe_product(false, TYPICAL_ROWS, w->n, w->k, w->precision);
    dnnl_status_t s = sfp__onednn_product_create(engine, &product, NULL, NULL, &pd);
    if (w->precision == SFP_PRECISION_BF16 && ((s != dnnl_success && s != dnnl_out_of_memory) || !sfp__cpu_detect().avx512))
        return sfp__fail(err, SFP_EUNSUPPORTED, "bf16 matrix products need AVX-512, which %s does not have; use --precision f32",
                         sfp__cpu_name());
    w->panel = w->n;
    if (w->precision != SFP_PRECISION_BF16 && (s != dnnl_success || !sfp__onednn_named(pd, "brg"))) {
        int panel = sfp__gemm_choose_panel(w->n, w->k, align, PANEL_BYTES);
        product = describe_product(true, TYPICAL_ROWS, panel, w->k, w->precision);
        dnnl_status_t status = sfp__onednn_product_create(engine, &product, NULL, NULL, &conv);
        w->conv = status == dnnl_success;
        w->panel = w->conv ? panel : w->n;
        if (w->conv || status == dnnl_out_of_memory) /* fails: the layout must not depend on how much memory is free */
            s = status;
    }
    if (s != dnnl_success)
        return fail(err, s, "matrix product");
    w->pieces = w->n / w->panel;
    const_dnnl_primitive_desc_t chosen = w->conv ? conv : pd;
    w->stride = (dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(chosen, dnnl_query_weights_md, 0)) + SFP__ALIGN - 1) /
                SFP__ALIGN * SFP__ALIGN;
    /* logical (n, k) for the convolution, (k, n) for matmul; the strides locate an element in the plain weights */
    dnnl_dim_t sn = transposed ? 1 : w->k, sk = transposed ? w->n : 1;
    if (w->conv)
        s = sfp__onednn_packing_create(engine, 4, (const dnnl_dims_t){w->panel, w->k, 1, 1}, (const dnnl_dims_t){sn, sk, 1, 1},
                                       chosen, &w->packing);
    else
        s = sfp__onednn_packing_create(engine, 2, (const dnnl_dims_t){w->k, w->panel}, (const dnnl_dims_t){sk, sn}, chosen,
                                       &w->packing);
    return s == dnnl_success ? SFP_OK : fail(err, s, "packed layout");
}

/* The description of packing in the other direction. */
static dnnl_status_t describe_unpacking(const sfp__gemm_weight *w, dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, dnnl_primitive_desc_query_md(w->packing, dnnl_query_dst_md, 0), engine,
                                              dnnl_primitive_desc_query_md(w->packing, dnnl_query_src_md, 0), engine, NULL);
}

/* Copies the plain weights to the packed ones, panel by panel, or back (`unpack`). */
static dnnl_status_t reorder(const sfp__gemm_weight *w, const float *plain, bool transposed, bool unpack)
{
    OWNED_BY(destroy_desc) dnnl_primitive_desc_t unpacking = NULL;
    OWNED_BY(destroy_stream) dnnl_stream_t stream = NULL;
    OWNED_BY(destroy_primitive) dnnl_primitive_t copy = NULL;
    OWNED_BY(destroy_memory) dnnl_memory_t outside = NULL, packed = NULL;
    dnnl_status_t s = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    if (s == dnnl_success && unpack)
        s = describe_unpacking(w, &unpacking);
    if (s == dnnl_success)
        s = dnnl_primitive_create(&copy, unpack ? unpacking : w->packing);
    if (s == dnnl_success)
        s = dnnl_memory_create(&outside, dnnl_primitive_desc_query_md(w->packing, dnnl_query_src_md, 0), engine, NULL);
    if (s == dnnl_success)
        s = dnnl_memory_create(&packed, dnnl_primitive_desc_query_md(w->packing, dnnl_query_dst_md, 0), engine, NULL);
    dnnl_memory_t from = unpack ? packed : outside, to = unpack ? outside : packed;
    size_t step = (size_t)w->panel * (transposed ? 1 : (size_t)w->k);
    for (int i = 0; s == dnnl_success && i < w->pieces; i++) {
        union {
            const float *in;
            void *arg;
        } data = {.in = plain + (size_t)i * step}; /* the C API has no const data handle */
        s = dnnl_memory_set_data_handle(outside, data.arg);
        if (s == dnnl_success)
            s = dnnl_memory_set_data_handle(packed, w->packed + (size_t)i * w->stride);
        if (s == dnnl_success)
            s = dnnl_primitive_execute(copy, stream, 2, (const dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
        if (s == dnnl_success)
            s = dnnl_stream_wait(stream);
    }
    return s;
}

/* Rounds the weights of each column of the result to whole numbers from -127 to 127; the largest becomes one of these two. */
static void round_weights(const sfp__gemm_weight_desc *d, float *columns, float *out)
{
    size_t n = (size_t)d->n, k = (size_t)d->k, sj = d->transposed ? 1 : k, st = d->transposed ? n : 1;
    for (size_t j = 0; j < n; j++) {
        float most = 0, sum = 0;
        for (size_t t = 0; t < k; t++)
            most = fmaxf(most, fabsf(d->w[j * sj + t * st]));
        float step = most / 127, factor = step > 0 ? 1 / step : 0;
        for (size_t t = 0; t < k; t++)
            sum += out[j * sj + t * st] = rintf(d->w[j * sj + t * st] * factor);
        columns[j] = step;
        columns[n + j] = sum * step;
        columns[2 * n + j] = d->bias ? d->bias[j] : 0;
    }
}

typedef struct weight_call {
    sfp__gemm_weight *w;
    const sfp__gemm_weight_desc *d;
    sfp_status status;
    sfp_error *err;
} weight_call;

static dnnl_status_t call_pack(void *ctx)
{
    const weight_call *c = ctx;
    return reorder(c->w, c->d->w, c->d->transposed, false);
}

static sfp_status pack(weight_call *c)
{
    OWNED float *rounded = NULL;
    sfp__gemm_weight_desc d = *c->d;
    if (c->w->columns) {
        TRY(sfp__alloc(&rounded, (size_t)d.n * (size_t)d.k, sizeof *rounded, c->err));
        round_weights(c->d, c->w->columns, rounded);
        d.w = rounded;
    } else if (d.bias) {
        memcpy(c->w->bias, d.bias, (size_t)d.n * sizeof *d.bias);
    }
    dnnl_status_t s = sfp__onednn_call(call_pack, &(weight_call){.w = c->w, .d = &d});
    return s == dnnl_success ? SFP_OK : fail(c->err, s, "packing weights");
}

static dnnl_status_t call_choose_layout(void *ctx)
{
    weight_call *c = ctx;
    c->status = choose_layout(c->w, c->d->align, c->d->transposed, c->err);
    return dnnl_success;
}

static sfp_status fill_weight(weight_call *c)
{
    sfp__gemm_weight *w = c->w;
    if (sfp__onednn_call(call_choose_layout, c) != dnnl_success)
        return fail(c->err, dnnl_out_of_memory, "matrix product");
    TRY(c->status);
    TRY(sfp__check_memory((w->packed = sfp__malloc((size_t)w->pieces * w->stride)) &&
                              (w->bias = sfp__calloc((size_t)w->n, sizeof *w->bias)),
                          c->err));
    if (w->precision == SFP_PRECISION_INT8)
        TRY(sfp__alloc(&w->columns, (size_t)w->n, 3 * sizeof *w->columns, c->err));
    return pack(c);
}

sfp_status sfp__gemm_weight_create(const sfp__gemm_weight_desc *d, sfp__gemm_weight **out, sfp_error *err)
{
    sfp_status status = need_engine(err);
    if (status)
        return status;
    sfp__gemm_weight *w = sfp__calloc(1, sizeof *w);
    if (!w)
        return sfp__fail_nomem(err);
    int token = sfp__gemm_enter();
    w->n = d->n;
    w->k = d->k;
    w->transposed = d->transposed;
    w->precision = d->precision;
    status = fill_weight(&(weight_call){.w = w, .d = d, .err = err});
    sfp__gemm_leave(token);
    if (status)
        sfp__gemm_weight_free(w);
    else
        *out = w;
    return status;
}

sfp_status sfp__gemm_weight_update(sfp__gemm_weight *w, const sfp__gemm_weight_desc *d, sfp_error *err)
{
    int token = sfp__gemm_enter();
    sfp_status status = pack(&(weight_call){.w = w, .d = d, .err = err});
    sfp__gemm_leave(token);
    return status;
}

typedef struct unpack_call {
    const sfp__gemm_weight *w;
    float *out;
} unpack_call;

static dnnl_status_t call_unpack(void *ctx)
{
    const unpack_call *c = ctx;
    return reorder(c->w, c->out, c->w->transposed, true);
}

sfp_status sfp__gemm_weight_unpack(const sfp__gemm_weight *w, float *out, sfp_error *err)
{
    if (w->precision != SFP_PRECISION_F32)
        return sfp__fail(err, SFP_EUNSUPPORTED, "packed weights are rounded, expected f32");
    int token = sfp__gemm_enter();
    dnnl_status_t s = sfp__onednn_call(call_unpack, &(unpack_call){w, out});
    sfp__gemm_leave(token);
    return s == dnnl_success ? SFP_OK : fail(err, s, "unpacking weights");
}

void sfp__gemm_weight_free(sfp__gemm_weight *w)
{
    if (!w)
        return;
    dnnl_primitive_desc_destroy(w->packing);
    sfp__free(w->packed);
    sfp__free(w->bias);
    sfp__free(w->columns);
    sfp__free(w);
}

int sfp__gemm_panel(const sfp__gemm_weight *w)
{
    return w->panel;
}

/* ---------------------------------------------------------------- operations */

static dnnl_status_t lane_init(lane *l, const_dnnl_primitive_desc_t pd, int m, const sfp__gemm_weight *like)
{
    size_t bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    if (bytes && !(l->scratch_data = sfp__malloc(bytes)))
        return dnnl_out_of_memory;
    if (like->precision && !(l->rounded = sfp__malloc((size_t)m * (size_t)like->k * sizeof(uint16_t))))
        return dnnl_out_of_memory;
    if (like->columns && !(l->rows = sfp__malloc((size_t)m * 2 * sizeof *l->rows)))
        return dnnl_out_of_memory;
    dnnl_status_t s = dnnl_stream_create(&l->stream, engine, dnnl_stream_default_flags);
    const struct {
        dnnl_memory_t *memory;
        dnnl_query_t query;
        int index;
        void *data;
    } list[] = {{&l->src, dnnl_query_src_md, 0, l->rounded},
                {&l->weights, dnnl_query_weights_md, 0, NULL},
                {&l->bias, dnnl_query_weights_md, 1, NULL},
                {&l->dst, dnnl_query_dst_md, 0, NULL},
                {&l->scratch, dnnl_query_scratchpad_md, 0, l->scratch_data}};
    for (size_t i = 0; s == dnnl_success && i < sizeof list / sizeof *list; i++)
        s = dnnl_memory_create(list[i].memory, dnnl_primitive_desc_query_md(pd, list[i].query, list[i].index), engine,
                               list[i].data);
    return s;
}

typedef struct op_call {
    sfp__gemm_op *op;
    const sfp__gemm_weight *like;
    int lanes;
} op_call;

static void destroy_attr(const dnnl_primitive_attr_t *attr)
{
    dnnl_primitive_attr_destroy(*attr);
}

static dnnl_status_t call_fill_op(void *ctx)
{
    const op_call *c = ctx;
    sfp__gemm_op *op = c->op;
    OWNED_BY(destroy_attr) dnnl_primitive_attr_t attr = NULL;
    OWNED_BY(destroy_desc) dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    if (s == dnnl_success) /* lanes run concurrently: each has its own scratch memory */
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    sfp__onednn_product product = describe_product(c->like->conv, op->m, op->panel, op->k, c->like->precision);
    if (s == dnnl_success)
        s = sfp__onednn_product_create(engine, &product, c->like->packing, attr, &pd);
    if (s == dnnl_success)
        s = dnnl_primitive_create(&op->primitive, pd);
    for (int i = 0; s == dnnl_success && i < c->lanes; i++)
        s = lane_init(&op->lane[i], pd, op->m, c->like);
    return s;
}

sfp_status sfp__gemm_op_create(const sfp__gemm_weight *like, int m, int lanes, sfp__gemm_op **out, sfp_error *err)
{
    OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = NULL;
    TRY(sfp__alloc(&op, 1, sizeof *op, err));
    op->m = m;
    op->n = like->n;
    op->k = like->k;
    op->panel = like->panel;
    op->precision = like->precision;
    TRY(sfp__alloc(&op->lane, (size_t)lanes, sizeof *op->lane, err));
    op->lanes = lanes;
    int token = sfp__gemm_enter();
    dnnl_status_t s = sfp__onednn_call(call_fill_op, &(op_call){.op = op, .like = like, .lanes = lanes});
    sfp__gemm_leave(token);
    if (s != dnnl_success)
        return fail(err, s, "preparing a matrix product");
    *out = TAKE(op);
    return SFP_OK;
}

void sfp__gemm_op_free(sfp__gemm_op *op)
{
    if (!op)
        return;
    for (int i = 0; op->lane && i < op->lanes; i++) {
        lane *l = &op->lane[i];
        dnnl_memory_destroy(l->src);
        dnnl_memory_destroy(l->weights);
        dnnl_memory_destroy(l->bias);
        dnnl_memory_destroy(l->dst);
        dnnl_memory_destroy(l->scratch);
        dnnl_stream_destroy(l->stream);
        sfp__free(l->scratch_data);
        sfp__free(l->rounded);
        sfp__free(l->rows);
    }
    sfp__free(op->lane);
    dnnl_primitive_destroy(op->primitive);
    sfp__free(op);
}

/* The kernels of sgemm, which matmul may use, too, set the stack pointer to their workspace on the heap (observed from k = 96 on). A signal
 * handler would then overwrite the memory before the workspace. Therefore this thread blocks signals during a product, and receives them
 * afterwards; only signals that a fault in this thread raises are not blocked. */
static bool block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t all;
    (void)sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigdelset(&all, faults[i]);
    return pthread_sigmask(SIG_BLOCK, &all, before) == 0;
}

static void unblock_signals(bool blocked, const sigset_t *before)
{
    if (blocked)
        (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

typedef struct run_call {
    const sfp__gemm_op *op;
    lane *l;
    const sfp__gemm_weight *w;
    const float *x;
    float *y;
    int rows; /* of the matrix that y is in */
} run_call;

static dnnl_status_t call_run(void *ctx)
{
    const run_call *c = ctx;
    lane *l = c->l;
    union {
        const float *in;
        void *arg;
    } src = {.in = c->x};
    dnnl_status_t s = l->rounded ? dnnl_success : dnnl_memory_set_data_handle(l->src, src.arg);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, l->src},
                                    {DNNL_ARG_WEIGHTS, l->weights},
                                    {DNNL_ARG_BIAS, l->bias},
                                    {DNNL_ARG_DST, l->dst},
                                    {DNNL_ARG_SCRATCHPAD, l->scratch}};
    for (int i = 0; s == dnnl_success && i < c->w->pieces; i++) {
        s = dnnl_memory_set_data_handle(l->weights, c->w->packed + (size_t)i * c->w->stride);
        if (s == dnnl_success)
            s = dnnl_memory_set_data_handle(l->bias, c->w->bias + (size_t)i * (size_t)c->w->panel);
        if (s == dnnl_success)
            s = dnnl_memory_set_data_handle(l->dst, c->y + (size_t)i * (size_t)c->w->panel * (size_t)c->rows);
        if (s == dnnl_success)
            s = dnnl_primitive_execute(c->op->primitive, l->stream, sizeof args / sizeof *args, args);
    }
    return s;
}

void sfp__gemm_run_rows(const sfp__gemm_op *op, int lane_index, const sfp__gemm_weight *w, const float *x, float *y, int rows)
{
    lane *l = &op->lane[lane_index];
    const sfp__kernels *k = sfp__kernels_get();
    sigset_t before;
    if (op->precision == SFP_PRECISION_BF16)
        k->to_bf16((size_t)op->m * (size_t)op->k, x, l->rounded);
    else if (op->precision == SFP_PRECISION_INT8)
        k->to_u8(op->m, op->k, int8_levels(), x, l->rounded, l->rows);
    bool blocked = block_signals(&before);
    if (sfp__onednn_call(call_run, &(run_call){op, l, w, x, y, rows}) != dnnl_success)
        atomic_fetch_add(&failures, 1);
    unblock_signals(blocked, &before);
    for (int i = 0, at = 0; w->columns && i < w->pieces; i++, at += w->panel)
        k->scale_product(op->m, w->panel, l->rows, w->columns + at, w->columns + w->n + at, w->columns + 2 * w->n + at,
                         y + (size_t)at * (size_t)rows);
}

void sfp__gemm_run(const sfp__gemm_op *op, int lane_index, const sfp__gemm_weight *w, const float *x, float *y)
{
    sfp__gemm_run_rows(op, lane_index, w, x, y, op->m);
}

unsigned sfp__gemm_failures(void)
{
    return atomic_load(&failures);
}

/* Computes the product of sfp__gemm_plain slowly, but without allocating memory. Its last bits differ. */
static void multiply(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int t = 0; t < k; t++)
                sum += (double)a[ta ? (size_t)t * (size_t)lda + (size_t)i : (size_t)i * (size_t)lda + (size_t)t] *
                       (double)b[tb ? (size_t)j * (size_t)ldb + (size_t)t : (size_t)t * (size_t)ldb + (size_t)j];
            float *to = &c[(size_t)i * (size_t)ldc + (size_t)j];
            *to = (float)(sum + (beta != 0 ? (double)beta * (double)*to : 0));
        }
}

typedef struct plain_call {
    bool ta, tb;
    int m, n, k, lda, ldb, ldc;
    const float *a, *b;
    float beta, *c;
} plain_call;

static dnnl_status_t call_plain(void *ctx)
{
    const plain_call *p = ctx;
    return dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a, p->lda, p->b, p->ldb, p->beta, p->c,
                      p->ldc);
}

void sfp__gemm_plain(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc)
{
    sigset_t before;
    bool blocked = block_signals(&before);
    dnnl_status_t s = sfp__onednn_call(call_plain, &(plain_call){.ta = ta,
                                                                 .tb = tb,
                                                                 .m = m,
                                                                 .n = n,
                                                                 .k = k,
                                                                 .lda = lda,
                                                                 .ldb = ldb,
                                                                 .ldc = ldc,
                                                                 .a = a,
                                                                 .b = b,
                                                                 .beta = beta,
                                                                 .c = c});
    unblock_signals(blocked, &before);
    if (s == dnnl_success)
        return;
    atomic_fetch_add(&failures, 1);
    multiply(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc); /* C is unchanged: sgemm allocates its copies before it writes */
}
