/* An input as a file that has a name, for readers that want one. */
#ifndef SFP_TESTS_FUZZ_FILE_H
#define SFP_TESTS_FUZZ_FILE_H

#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The descriptor of a file in memory with these bytes, to be closed; `path` is its name. */
static inline int file_of(const uint8_t *bytes, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
