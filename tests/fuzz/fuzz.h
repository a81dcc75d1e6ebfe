/* What the fuzz targets share. */
#ifndef SFP_TESTS_FUZZ_H
#define SFP_TESTS_FUZZ_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A condition that holds whatever the input: abort() is what libFuzzer and ctest both notice. */
#define REQUIRE(condition) ((condition) ? (void)0 : abort())

/* Was the input taken? If not, the error says what happened. */
static inline bool taken(sfp_status status, const sfp_error *err)
{
    REQUIRE(status == SFP_OK || (err->status == status && err->message[0] != '\0'));
    return status == SFP_OK;
}

/* Reads every byte, so that a pointer beyond the input is seen. */
static inline void touch(const void *data, size_t size)
{
    static volatile unsigned sink;
    for (size_t i = 0; i < size; i++)
        sink += ((const uint8_t *)data)[i];
}

/* The descriptor of a file in memory with these bytes, to be closed; `path` is its name. */
static inline int file_of(const uint8_t *bytes, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
