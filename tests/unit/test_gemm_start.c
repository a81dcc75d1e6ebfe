/* The backend of matrix products compiles its kernels when an engine is opened. This file has one test, because the kernels of a process
 * are compiled once. */
#include "compute/gemm.h"

#include "test.h"

#include <stdio.h>
#include <string.h>

/* Counts the executable pages of this process that are not those of a file: compiled kernels. */
static long compiled_pages(void)
{
    char line[4096], rights[8];
    unsigned long from, to, inode;
    long pages = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, rights, &inode) == 4 && inode == 0 && rights[2] == 'x' &&
            !strstr(line, "[v"))
            pages += (long)((to - from) / 4096);
    (void)fclose(f);
    return pages;
}

TEST(products_compile_no_kernel_after_the_start)
{
    static float a[100 * 100], b[100 * 100], c[100 * 100];
    MUST(sfp__gemm_prepare(&err));
    long after_start = compiled_pages();
    int token = sfp__gemm_enter();
    for (int i = 0; i < 8; i++)
        sfp__gemm_plain(i & 1, i & 2, 96, 90, 100, a, 100, b, 100, i & 4 ? 1.0f : 0.0f, c, 100);
    sfp__gemm_leave(token);
    assert_int_equal(compiled_pages(), after_start);
}
