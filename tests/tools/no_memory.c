/* A library for LD_PRELOAD that makes allocations of oneDNN fail: those by libdnnl itself and by the C++ library for it.
 *
 *     SFP_MEMORY_COUNT=FILE     at the end, writes the number of allocations to FILE
 *     SFP_MEMORY_FAIL=K         the first allocation that fails, from 0
 *     SFP_MEMORY_FAILS=N        how many fail from then on (default 1) */
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum { PARTS = 8 };

static struct {
    uintptr_t from, to;
} parts[PARTS]; /* code of these libraries */
static int part_count;
static atomic_bool ready;
static atomic_long allocations;
static long first = -1, count = 1;

static int add_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size, (void)ctx;
    if (!strstr(info->dlpi_name, "libdnnl") && !strstr(info->dlpi_name, "libstdc++"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && part_count < PARTS; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        parts[part_count].from = info->dlpi_addr + p->p_vaddr;
        parts[part_count].to = parts[part_count].from + p->p_memsz;
        part_count++;
    }
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *from = getenv("SFP_MEMORY_FAIL"), *fails = getenv("SFP_MEMORY_FAILS");
    (void)dl_iterate_phdr(add_library, NULL);
    first = from ? strtol(from, NULL, 10) : -1;
    count = fails ? strtol(fails, NULL, 10) : 1;
    atomic_store(&ready, true);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("SFP_MEMORY_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
    (void)fprintf(f, "%ld\n", atomic_load(&allocations));
    (void)fclose(f);
}

static bool must_fail(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; atomic_load(&ready) && i < part_count; i++)
        if (at >= parts[i].from && at < parts[i].to) {
            long k = atomic_fetch_add(&allocations, 1);
            return first >= 0 && k >= first && k - first < count;
        }
    return false;
}

static void *allocate(const void *caller, size_t alignment, size_t size)
{
    if (!must_fail(caller))
        return alignment ? __libc_memalign(alignment, size) : __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t size)
{
    return allocate(__builtin_return_address(0), 0, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return allocate(__builtin_return_address(0), alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *p = allocate(__builtin_return_address(0), alignment, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}
