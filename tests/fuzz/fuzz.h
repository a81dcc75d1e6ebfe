/* Helpers of the fuzz targets. */
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

/* Checks a condition that holds for every input. libFuzzer and ctest both detect abort(). */
#define REQUIRE(condition) ((condition) ? (void)0 : abort())

/* Returns whether the input was accepted. If not, the error must have a message. */
static inline bool accepted(sfp_status status, const sfp_error *err)
{
    REQUIRE(status == SFP_OK || (err->status == status && err->message[0] != '\0'));
    return status == SFP_OK;
}

/* Reads every byte, so that a pointer beyond the input is detected. */
static inline void touch(const void *data, size_t size)
{
    static _Thread_local volatile uint8_t sink;
    for (size_t i = 0; i < size; i++)
        sink = ((const uint8_t *)data)[i];
    (void)sink;
}

/* Returns the descriptor of a file in memory with these bytes, which the caller closes; `path` is its name. */
static inline int file_of(const uint8_t *bytes, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
