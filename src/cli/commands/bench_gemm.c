/* The compared implementations ("contenders") are the packed products of this program (the backend of gemm.h) and any tuned
 * BLAS on the machine. The BLAS is loaded at run time, so that the program does not depend on it. All of them are called in the
 * same way: the m rows are split among the threads of the pool, and each call is single-threaded. */
#include "cli/commands/bench.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "cli/ui.h"
#include "compute/gemm.h"

#include <dlfcn.h>
#include <stdio.h>

enum { SHAPES = 4, MAX_BLAS = 2, MAX_CONTENDERS = 2 + MAX_BLAS, SMALL_ROWS = 394 };

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc);

typedef struct contender {
    char name[64];
    int rows;        /* packed: rows per call */
    sgemm_fn *sgemm; /* NULL: packed */
    sfp__gemm_op *op[SHAPES], *tail[SHAPES];
    double best[SHAPES];
} contender;

struct sfp__bench_gemm {
    int m, n[SHAPES], k[SHAPES], contenders;
    sfp__thread_pool *pool;
    contender list[MAX_CONTENDERS];
    float *x, *y, *w[SHAPES];
    sfp__gemm_weight *packed[SHAPES];
    void *handle[MAX_BLAS];
};

static void load_blas(sfp__bench_gemm *g)
{
    static const struct {
        const char *file, *name, *threads;
    } known[MAX_BLAS] = {{"libopenblas.so.0", "OpenBLAS sgemm", "openblas_set_num_threads"},
                         {"libblis.so.4", "BLIS sgemm", "bli_thread_set_num_threads"}};
    for (int i = 0; i < MAX_BLAS; i++) {
        union {
            void *p;
            sgemm_fn *sgemm;
            void (*set)(long);
        } f;
        if (!(g->handle[i] = dlopen(known[i].file, RTLD_NOW | RTLD_LOCAL)))
            continue;
        if ((f.p = dlsym(g->handle[i], known[i].threads)))
            f.set(1);
        if (!(f.p = dlsym(g->handle[i], "cblas_sgemm")))
            continue;
        contender *c = &g->list[g->contenders++];
        (void)snprintf(c->name, sizeof c->name, "%s", known[i].name);
        c->sgemm = f.sgemm;
    }
}

/* Adds packed products in calls of `rows` rows. */
static sfp_status add_packed(sfp__bench_gemm *g, int rows, sfp_error *err)
{
    contender *c = &g->list[g->contenders++];
    (void)snprintf(c->name, sizeof c->name, "%s packed, %d rows per call", sfp__gemm_backend(), rows);
    c->rows = rows;
    for (int i = 0; i < SHAPES; i++) {
        TRY(sfp__gemm_op_create(g->packed[i], rows, sfp__thread_pool_size(g->pool), &c->op[i], err));
        if (g->m % rows)
            TRY(sfp__gemm_op_create(g->packed[i], g->m % rows, sfp__thread_pool_size(g->pool), &c->tail[i], err));
    }
    return SFP_OK;
}

static sfp_status fill(sfp__bench_gemm *g, int dim, int hidden, sfp_error *err)
{
    const int n[SHAPES] = {3 * dim, dim, hidden, dim}, k[SHAPES] = {dim, dim, dim, hidden};
    int threads = sfp__thread_pool_size(g->pool), m = g->m;
    size_t floats = (size_t)m * (size_t)(hidden > 3 * dim ? hidden : 3 * dim);
    TRY(sfp__alloc(&g->x, floats, sizeof *g->x, err));
    TRY(sfp__alloc(&g->y, floats, sizeof *g->y, err));
    for (size_t i = 0; i < floats; i++)
        g->x[i] = (float)(i % 17) / 17.0f - 0.4f;
    for (int i = 0; i < SHAPES; i++) {
        size_t count = (size_t)n[i] * (size_t)k[i];
        g->n[i] = n[i];
        g->k[i] = k[i];
        TRY(sfp__alloc(&g->w[i], count, sizeof(float), err));
        for (size_t j = 0; j < count; j++)
            g->w[i][j] = (float)(j % 13) / 130.0f - 0.05f;
        const sfp__gemm_weight_desc d = {.n = n[i], .k = k[i], .w = g->w[i]};
        TRY(sfp__gemm_weight_create(&d, &g->packed[i], err));
    }
    int rows = (m + threads - 1) / threads;
    TRY(add_packed(g, rows, err));
    if (SMALL_ROWS < m && SMALL_ROWS != rows) /* else it would be the same measurement twice */
        TRY(add_packed(g, SMALL_ROWS, err));
    load_blas(g);
    return SFP_OK;
}

sfp_status sfp__bench_gemm_create(int m, int dim, int hidden, sfp__thread_pool *pool, sfp__bench_gemm **out, sfp_error *err)
{
    sfp__bench_gemm *g = NULL;
    TRY(sfp__alloc(&g, 1, sizeof *g, err));
    g->m = m;
    g->pool = pool;
    sfp_status s = fill(g, dim, hidden, err);
    if (s)
        sfp__bench_gemm_free(g);
    else
        *out = g;
    return s;
}

void sfp__bench_gemm_free(sfp__bench_gemm *g)
{
    if (!g)
        return;
    for (int c = 0; c < g->contenders; c++)
        for (int i = 0; i < SHAPES; i++) {
            sfp__gemm_op_free(g->list[c].op[i]);
            sfp__gemm_op_free(g->list[c].tail[i]);
        }
    for (int i = 0; i < SHAPES; i++) {
        sfp__gemm_weight_free(g->packed[i]);
        sfp__free(g->w[i]);
    }
    sfp__free(g->x);
    sfp__free(g->y);
    /* the BLAS libraries stay loaded, because threads that they created may still run */
    sfp__free(g);
}

typedef struct job {
    sfp__bench_gemm *g;
    const contender *c;
    int shape, rows;
} job;

static void run_piece(void *ctx, int piece, int worker)
{
    const job *j = ctx;
    const sfp__bench_gemm *g = j->g;
    int first = piece * j->rows, rows = g->m - first < j->rows ? g->m - first : j->rows, n = g->n[j->shape], k = g->k[j->shape];
    const float *x = g->x + (size_t)first * (size_t)k;
    float *y = g->y + (size_t)first * (size_t)n;
    int token = sfp__gemm_enter();
    if (j->c->sgemm)
        j->c->sgemm(101, 111, 112, rows, n, k, 1.0f, x, k, g->w[j->shape], k, 0.0f, y, n); /* row-major, W transposed */
    else
        sfp__gemm_run(rows == j->rows ? j->c->op[j->shape] : j->c->tail[j->shape], worker, g->packed[j->shape], x, y);
    sfp__gemm_leave(token);
}

void sfp__bench_gemm_round(sfp__bench_gemm *g)
{
    int threads = sfp__thread_pool_size(g->pool);
    for (int i = 0; i < SHAPES; i++)
        for (int c = 0; c < g->contenders; c++) {
            contender *t = &g->list[c];
            job j = {g, t, i, t->sgemm ? (g->m + threads - 1) / threads : t->rows};
            double begin = sfp__monotonic_seconds();
            sfp__thread_pool_run(g->pool, (g->m + j.rows - 1) / j.rows, run_piece, &j);
            double took = sfp__monotonic_seconds() - begin;
            if (t->best[i] <= 0 || took < t->best[i])
                t->best[i] = took;
        }
}

double sfp__bench_gemm_rate(const sfp__bench_gemm *g, int c)
{
    double flops = 0, seconds = 0;
    for (int i = 0; i < SHAPES; i++) {
        flops += 2.0 * g->m * g->n[i] * g->k[i];
        seconds += g->list[c].best[i];
    }
    return flops / seconds * 1e-9;
}

double sfp__bench_gemm_best(const sfp__bench_gemm *g, const char **name)
{
    double best = 0;
    for (int c = 0; c < g->contenders; c++)
        if (sfp__bench_gemm_rate(g, c) > best) {
            best = sfp__bench_gemm_rate(g, c);
            *name = g->list[c].name;
        }
    return best;
}

int sfp__bench_gemm_contenders(const sfp__bench_gemm *g)
{
    return g->contenders;
}

const char *sfp__bench_gemm_name(const sfp__bench_gemm *g, int i)
{
    return g->list[i].name;
}
