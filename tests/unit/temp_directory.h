/* A temporary directory for one test or for all tests of a file, and functions that create files in it. Include after
 * <cmocka.h>. */
#ifndef SFP_TESTS_TEMP_DIRECTORY_H
#define SFP_TESTS_TEMP_DIRECTORY_H

#include <ftw.h>
#include <sys/stat.h>

#include "test.h"

static char directory[64];

static inline void make_directory(void)
{
    (void)snprintf(directory, sizeof directory, "/tmp/sfp-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Removes the directory with all its contents. */
static inline void remove_directory(void)
{
    assert_int_equal(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Returns the path DIRECTORY/name, valid until the test ends. */
static inline const char *in_directory(const char *name)
{
    assert_true(directory[0]); /* without make_directory, the path would be in the root directory */
    return kept_print("%s/%s", directory, name);
}

static inline bool file_exists(const char *name)
{
    return access(in_directory(name), F_OK) == 0;
}

/* All bytes of a file and a zero byte behind them, valid until the test ends. */
static inline uint8_t *bytes_of(const char *path, size_t *size)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *size = (size_t)st.st_size;
    uint8_t *bytes = kept_calloc(*size + 1, 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    (void)fclose(f);
    return bytes;
}

static inline char *file_text(const char *path)
{
    size_t size;
    return (char *)bytes_of(path, &size);
}

static inline void check_same_bytes(const char *first, const char *second)
{
    size_t size[2];
    const uint8_t *a = bytes_of(first, &size[0]), *b = bytes_of(second, &size[1]);
    if (size[0] != size[1] || memcmp(a, b, size[0]) != 0)
        fail_msg("%s has other bytes than %s", first, second);
}

/* Creates the parent directories of DIRECTORY/name and returns that path. */
static inline const char *make_parents(const char *name)
{
    char *path = kept_print("%s/%s", directory, name);
    for (char *p = path + strlen(directory) + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0777);
            *p = '/';
        }
    }
    return path;
}

static inline void put_bytes_as(const char *mode, const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(make_parents(name), mode);
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Writes DIRECTORY/name and creates its parent directories. */
static inline void put_bytes(const char *name, const void *bytes, size_t size)
{
    put_bytes_as("wb", name, bytes, size);
}

static inline void put_text(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

/* Writes several files: rows {name, text}. */
#define PUT_TEXTS(...)                                                 \
    do {                                                               \
        const char *const files_[][2] = {__VA_ARGS__};                 \
        for (size_t i_ = 0; i_ < sizeof files_ / sizeof *files_; i_++) \
            put_text(files_[i_][0], files_[i_][1]);                    \
    } while (0)

static inline void append_text(const char *name, const char *text)
{
    put_bytes_as("ab", name, text, strlen(text));
}

static inline void move(const char *from, const char *to)
{
    assert_int_equal(rename(in_directory(from), in_directory(to)), 0);
}

/* For tests of a single file: creates a directory and returns the file's path. The tear-down below fails if any other file,
 * such as a temporary one, is left in the directory. */
static inline void make_directory_for(const char *name, char *path, size_t size)
{
    make_directory();
    (void)snprintf(path, size, "%s/%s", directory, name);
}

static inline void remove_file_and_directory(const char *path)
{
    (void)unlink(path);
    assert_int_equal(rmdir(directory), 0);
}

/* Gives each test of the source file such a single file, `path`. */
#define AROUND_ONE_FILE(name)                        \
    static char path[96];                            \
    static void make_path(void)                      \
    {                                                \
        make_directory_for(name, path, sizeof path); \
    }                                                \
    static void remove_path(void)                    \
    {                                                \
        remove_file_and_directory(path);             \
    }                                                \
    AROUND_EACH(make_path, remove_path)

/* Flips the lowest bit of the last byte: the file stays well-formed, but its last number changes. */
static inline void flip_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int byte = getc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(putc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

#endif
