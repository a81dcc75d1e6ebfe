/* A directory for the files of a fuzz target, in memory if possible: writing and syncing is then fast. */
#ifndef SFP_TESTS_FUZZ_DIRECTORY_H
#define SFP_TESTS_FUZZ_DIRECTORY_H

#include "fuzz.h"

#include <string.h>

static char directory[64];

static inline void remove_directory(void)
{
    (void)rmdir(directory);
}

/* Creates the directory at the first call. It is removed at exit, if it is empty. */
static inline void make_directory(void)
{
    if (directory[0])
        return;
    (void)snprintf(directory, sizeof directory, "%s/sfp-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    REQUIRE(mkdtemp(directory) && atexit(remove_directory) == 0);
}

#endif
