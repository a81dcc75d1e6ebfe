/* Functions that all matrix-product backends share. */
#include "compute/gemm.h"

#include <dlfcn.h>
#include <pthread.h>

/* The OpenMP runtime that the backend library has loaded, if any. Its functions are looked up by name, so that this code neither
 * needs nor loads a second runtime. */
static union {
    void *p;
    int (*f)(void);
} max_threads;
static union {
    void *p;
    void (*f)(int);
} set_threads;

static void find_openmp(void)
{
    max_threads.p = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    set_threads.p = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

int sfp__gemm_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_openmp);
    if (!max_threads.p || !set_threads.p)
        return 0;
    int previous = max_threads.f();
    if (previous != 1)
        set_threads.f(1);
    return previous;
}

void sfp__gemm_leave(int token)
{
    if (token > 1)
        set_threads.f(token);
}

const char *sfp__precision_name(sfp_precision precision)
{
    static const char *const names[] = {"f32", "bf16", "int8", "auto"};
    return names[precision];
}

sfp_status sfp__gemm_check(unsigned before, sfp_error *err)
{
    return sfp__gemm_failures() == before ? SFP_OK : sfp__fail(err, SFP_ENOMEM, "%s: out of memory", sfp__gemm_backend());
}

int sfp__gemm_choose_panel(int n, int k, int align, size_t bytes)
{
    if (align < 1)
        align = 1;
    for (int panels = 1; panels <= n; panels++) {
        int w = n / panels;
        if (n % panels == 0 && w % align == 0 && (size_t)w * (size_t)k * sizeof(float) <= bytes)
            return w % 8 == 0 || panels == 1 ? w : n; /* panels that are not a multiple of 8 would cost more than they save */
    }
    return n;
}
