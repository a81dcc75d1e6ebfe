/* A folder of its own for a test, or for all of a program, and files in it. Include after <cmocka.h>. */
#ifndef SFP_TESTS_TEMP_FOLDER_H
#define SFP_TESTS_TEMP_FOLDER_H

#include <ftw.h>
#include <sys/stat.h>

#include "test.h"

static char folder[64];

static inline void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/sfp-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Whatever is in it goes too. */
static inline void remove_folder(void)
{
    assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* FOLDER/name, in one of a few buffers. */
static inline const char *in_folder(const char *name)
{
    static char path[4][4500];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* Writes FOLDER/name and makes the folders on the way. */
static inline void put_bytes(const char *name, const void *bytes, size_t size)
{
    char path[4500];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *p = path + strlen(folder) + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0777);
            *p = '/';
        }
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void put_text(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

/* For tests around one file: its path, and a teardown that fails when anything lies beside it, such as a temporary file. */
static inline void make_folder_for(const char *name, char *path, size_t size)
{
    make_folder();
    (void)snprintf(path, size, "%s/%s", folder, name);
}

static inline void remove_file_and_folder(const char *path)
{
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

#endif
