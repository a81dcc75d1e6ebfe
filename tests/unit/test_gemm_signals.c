/* A signal may arrive during a product. Some kernels of oneDNN use the stack pointer as a pointer to their workspace on the heap. The frame
 * of a signal handler would then overwrite the heap, so such products must hold signals back. */
#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>

#include "test.h"

static pthread_t caller;
static uintptr_t stack_low, stack_high;
static volatile sig_atomic_t arrived, outside;

static void on_alarm(int number)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    (void)number;
    if (!pthread_equal(pthread_self(), caller)) /* a thread of the matrix-product library has a stack of its own */
        return;
    arrived = arrived + 1;
    outside = outside + !(here >= stack_low && here < stack_high);
}

static void find_stack(void)
{
    pthread_attr_t attr;
    void *low;
    size_t size;
    caller = pthread_self();
    assert_int_equal(pthread_getattr_np(caller, &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &low, &size), 0);
    (void)pthread_attr_destroy(&attr);
    stack_low = (uintptr_t)low;
    stack_high = stack_low + size;
}

static void set_alarm(long microseconds)
{
    const struct itimerval timer = {.it_interval = {.tv_usec = microseconds}, .it_value = {.tv_usec = microseconds}};
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* Each kind of product for a while, with signals every 100 microseconds. */
static void multiply_under_signals(int m, int n, int k, double seconds)
{
    OWNED float *a = sfp__calloc((size_t)m * (size_t)k, sizeof *a), *b = sfp__calloc((size_t)n * (size_t)k, sizeof *b);
    OWNED float *c = sfp__calloc((size_t)m * (size_t)n, sizeof *c);
    assert_true(a && b && c);
    int token = sfp__gemm_enter();
    for (int i = 0; i < 4; i++) {
        bool ta = i & 1, tb = i & 2;
        double end = sfp__monotonic_seconds() + seconds;
        while (sfp__monotonic_seconds() < end)
            sfp__gemm_plain(ta, tb, m, n, k, a, ta ? m : k, b, tb ? k : n, 0.0f, c, n);
    }
    sfp__gemm_leave(token);
}

TEST(a_signal_during_a_product_is_handled_on_the_stack_of_the_thread)
{
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct sigaction before;
    MUST(sfp__gemm_prepare(&err));
    find_stack();
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    set_alarm(100);
    multiply_under_signals(10, 10, 4000, 0.05); /* a row of each class and many unknowns, as in head ranpac */
    multiply_under_signals(64, 64, 4000, 0.05);
    multiply_under_signals(300, 64, 10000, 0.05);
    for (int k = 8; k <= 2048; k *= 2) { /* also those between two powers of 2 */
        multiply_under_signals(20, 1536, k, 0.01);
        multiply_under_signals(1536, 20, k + k / 2, 0.01);
        multiply_under_signals(5, 26, k, 0.01);
    }
    set_alarm(0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_true(arrived > 0);
    assert_int_equal(outside, 0);
}
