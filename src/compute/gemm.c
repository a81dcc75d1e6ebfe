/* What all matrix-product backends share. */
#include "compute/gemm.h"

#include <dlfcn.h>
#include <pthread.h>

/* Whatever OpenMP runtime the library below has loaded (none is fine): asked by name, so that this code neither needs
 * nor brings a second one. */
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
    int before = max_threads.f();
    if (before != 1)
        set_threads.f(1);
    return before;
}

void sfp__gemm_leave(int token)
{
    if (token > 1)
        set_threads.f(token);
}

int sfp__gemm_choose_panel(int n, int k, int align, size_t bytes)
{
    if (align < 1)
        align = 1;
    for (int parts = 1; parts <= n; parts++) {
        int w = n / parts;
        if (n % parts == 0 && w % align == 0 && (size_t)w * (size_t)k * sizeof(float) <= bytes)
            return w % 8 == 0 || parts == 1 ? w : n; /* ragged panels would cost more than they save */
    }
    return n;
}
