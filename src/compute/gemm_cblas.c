/* Matrix products by any CBLAS (OpenBLAS, BLIS, ...). Weights are not packed here; the library packs them in every call. */
#include "compute/gemm.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Declared here, so that the header of a particular BLAS is not needed. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc);

struct sfp__gemm_weight {
    int n, k;
    bool transposed;
    float *w;    /* unpacked copy, (n, k) or (k, n) */
    float *bias; /* (n) */
};

struct sfp__gemm_op {
    int m;
};

/* Makes a BLAS that has its own threads use only one; the function names are those of OpenBLAS and BLIS. */
static void set_single_thread(void)
{
    union {
        void *p;
        void (*f_int)(int);
        void (*f_long)(long);
    } set;
    if ((set.p = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
        set.f_int(1);
    if ((set.p = dlsym(RTLD_DEFAULT, "bli_thread_set_num_threads")))
        set.f_long(1);
}

static char backend[160] = "CBLAS";

static void find_backend_name(void)
{
    union {
        void *p;
        const char *(*f)(void);
    } get;
    if ((get.p = dlsym(RTLD_DEFAULT, "openblas_get_config")))
        (void)snprintf(backend, sizeof backend, "CBLAS (%s)", get.f());
    else if ((get.p = dlsym(RTLD_DEFAULT, "bli_info_get_version_str")))
        (void)snprintf(backend, sizeof backend, "CBLAS (BLIS %s)", get.f());
}

const char *sfp__gemm_backend(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_backend_name);
    return backend;
}

int sfp__gemm_isa(void)
{
    return 0;
}

sfp_precision sfp__gemm_native_precision(void)
{
    return SFP_PRECISION_F32;
}

sfp_status sfp__gemm_weight_create(const sfp__gemm_weight_desc *d, sfp__gemm_weight **out, sfp_error *err)
{
    if (d->precision != SFP_PRECISION_F32)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s matrix products are not available with CBLAS; use --precision f32",
                         sfp__precision_name(d->precision));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_single_thread);
    sfp__gemm_weight *w = sfp__calloc(1, sizeof *w);
    size_t count = (size_t)d->n * (size_t)d->k;
    float *copy = sfp__malloc(count * sizeof *copy), *bias = sfp__calloc((size_t)d->n, sizeof *bias);
    if (!w || !copy || !bias) {
        sfp__free(w);
        sfp__free(copy);
        sfp__free(bias);
        return sfp__fail_nomem(err);
    }
    memcpy(copy, d->w, count * sizeof *copy);
    if (d->bias)
        memcpy(bias, d->bias, (size_t)d->n * sizeof *bias);
    *w = (sfp__gemm_weight){.n = d->n, .k = d->k, .transposed = d->transposed, .w = copy, .bias = bias};
    *out = w;
    return SFP_OK;
}

sfp_status sfp__gemm_weight_update(sfp__gemm_weight *w, const sfp__gemm_weight_desc *d, sfp_error *err)
{
    (void)err;
    memcpy(w->w, d->w, (size_t)d->n * (size_t)d->k * sizeof *w->w);
    if (d->bias)
        memcpy(w->bias, d->bias, (size_t)d->n * sizeof *w->bias);
    return SFP_OK;
}

sfp_status sfp__gemm_weight_unpack(const sfp__gemm_weight *w, float *out, sfp_error *err)
{
    (void)err;
    memcpy(out, w->w, (size_t)w->n * (size_t)w->k * sizeof *out);
    return SFP_OK;
}

void sfp__gemm_weight_free(sfp__gemm_weight *w)
{
    if (!w)
        return;
    sfp__free(w->w);
    sfp__free(w->bias);
    sfp__free(w);
}

int sfp__gemm_panel(const sfp__gemm_weight *w)
{
    return w->n;
}

sfp_status sfp__gemm_op_create(const sfp__gemm_weight *like, int m, int lanes, sfp__gemm_op **out, sfp_error *err)
{
    (void)like;
    (void)lanes;
    sfp__gemm_op *op = sfp__calloc(1, sizeof *op);
    if (!op)
        return sfp__fail_nomem(err);
    op->m = m;
    *out = op;
    return SFP_OK;
}

void sfp__gemm_op_free(sfp__gemm_op *op)
{
    sfp__free(op);
}

void sfp__gemm_run(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y)
{
    (void)lane;
    for (int r = 0; r < op->m; r++)
        memcpy(y + (size_t)r * (size_t)w->n, w->bias, (size_t)w->n * sizeof *y);
    sfp__gemm_plain(false, !w->transposed, op->m, w->n, w->k, x, w->k, w->w, w->transposed ? w->n : w->k, 1.0f, y, w->n);
}

void sfp__gemm_run_rows(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y, int rows)
{
    (void)rows; /* there is one panel */
    sfp__gemm_run(op, lane, w, x, y);
}

unsigned sfp__gemm_failures(void)
{
    return 0; /* a BLAS allocates its memory when it is loaded, so a product cannot fail */
}

void sfp__gemm_plain(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc)
{
    cblas_sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}

sfp_status sfp__gemm_prepare(sfp_error *err)
{
    (void)err; /* a BLAS has no kernels to compile */
    return SFP_OK;
}
