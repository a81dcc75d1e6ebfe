/* A directory for the files of a fuzz target, in memory if possible: writing and syncing is then fast. */
#ifndef SFP_TESTS_FUZZ_DIRECTORY_H
#define SFP_TESTS_FUZZ_DIRECTORY_H

#include "fuzz.h"

#include <ftw.h>
#include <string.h>

static char directory[64];

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level > 0 ? remove(path) : 0;
}

/* Removes everything in a directory. */
static inline void clear_directory(const char *path)
{
    REQUIRE(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

static inline void remove_directory(void)
{
    clear_directory(directory);
    (void)rmdir(directory);
}

/* Creates the directory at the first call. It is removed at exit. */
static inline void make_directory(void)
{
    if (directory[0])
        return;
    (void)snprintf(directory, sizeof directory, "%s/sfp-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    REQUIRE(mkdtemp(directory) && atexit(remove_directory) == 0);
}

#endif
