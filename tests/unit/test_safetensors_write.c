/* The writer: round trips, and that a failed write changes nothing. */
#include "io/tensor/safetensors.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "temp_directory.h"
#include "test.h"

AROUND_ONE_FILE("w.safetensors")

static int files_in_dir(void)
{
    int n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static sfp__tensor bytes_tensor(const char *name, int64_t n, const void *data)
{
    return (sfp__tensor){
        .name = name, .dtype = SFP__DTYPE_U8, .ndim = 1, .shape = {n}, .count = (size_t)n, .bytes = (size_t)n, .data = data};
}

TEST(written_tensors_are_read_back)
{
    float f[6] = {1, 2, 3, 4, 5, 6};
    int64_t scalar = -7;
    uint8_t three[3] = {1, 2, 3};
    sfp__tensor tensors[] = {
        {.name = "w", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {2, 3}, .count = 6, .bytes = 24, .data = f},
        {.name = "step", .dtype = SFP__DTYPE_I64, .ndim = 0, .count = 1, .bytes = 8, .data = &scalar},
        {.name = "none", .dtype = SFP__DTYPE_F16, .ndim = 2, .shape = {0, 9}, .count = 0, .bytes = 0, .data = NULL},
        bytes_tensor("odd \"name\"\\\n\x01\x7f \xe2\x82\xac", 3, three),
    };
    sfp__meta meta[] = {{"classes", "[\"a\",\"b\"]"}, {"empty", ""}, {"tab\t", "\xc3\xa9"}};
    MUST(sfp__safetensors_write(path, tensors, 4, meta, 3, &err));
    assert_int_equal(files_in_dir(), 1);

    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(path, &st, &err));
    assert_int_equal(st->count, 4);
    for (size_t i = 0; i < 4; i++) {
        const sfp__tensor *want = &tensors[i], *got = sfp__tensor_file_find(st, want->name);
        assert_non_null(got);
        assert_int_equal(got->dtype, want->dtype);
        MUST(sfp__tensor_expect(path, got, want->shape, want->ndim, &err));
        if (want->bytes)
            assert_memory_equal(got->data, want->data, want->bytes);
    }
    assert_int_equal(st->meta_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(sfp__tensor_file_meta(st, meta[i].key), meta[i].value);
    /* the padded header aligns the first tensor to 8 bytes */
    const sfp__tensor *w = &st->tensors[0];
    assert_int_equal((uintptr_t)w->data % 8, 0);
    assert_memory_equal(w->data, f, 24);
}

TEST(a_file_without_tensors_is_written)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_write(path, NULL, 0, NULL, 0, NULL));
    MUST(sfp__safetensors_open(path, &st, NULL));
    assert_int_equal(st->count, 0);
}

TEST(many_tensors_are_all_found)
{
    enum { N = 2000 };
    sfp__tensor *tensors = kept_calloc(N, sizeof *tensors);
    uint8_t data[7] = {0};
    for (int i = 0; i < N; i++)
        tensors[i] = bytes_tensor(kept_print("t.%d", i * 7919 % N), i % 8, data);
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_write(path, tensors, N, NULL, 0, NULL));
    MUST(sfp__safetensors_open(path, &st, NULL));
    for (int i = 0; i < N; i++) {
        const sfp__tensor *t = sfp__tensor_file_find(st, tensors[i].name);
        assert_non_null(t);
        assert_true(t->bytes == (size_t)(i % 8));
    }
}

static void check_refused(const sfp__tensor *tensors, size_t count, const sfp__meta *meta, size_t meta_count, sfp_status status,
                          const char *message)
{
    REFUSED(sfp__safetensors_write(path, tensors, count, meta, meta_count, &err), status, message);
}

TEST(tensors_that_could_not_be_read_back_are_refused)
{
    uint8_t data[8] = {0};
    sfp__tensor twice[2] = {bytes_tensor("a", 2, data), bytes_tensor("a", 3, data)}, t = twice[0];
    check_refused(twice, 2, NULL, 0, SFP_EINVAL, "tensor 'a' is a duplicate");
    t.bytes = 3;
    check_refused(&t, 1, NULL, 0, SFP_EINVAL, "tensor 'a' has 3 bytes, which do not match U8 (2,)");
    t = twice[0];
    t.ndim = 9;
    check_refused(&t, 1, NULL, 0, SFP_ELIMIT, "has 9 dimensions");
    t = twice[0];
    t.dtype = SFP__DTYPE_COUNT;
    check_refused(&t, 1, NULL, 0, SFP_EINVAL, "unknown type");
    const struct {
        sfp__tensor t;
        const char *message;
    } named[] = {
        {bytes_tensor("__metadata__", 2, data), "cannot be named '__metadata__'"},
        {bytes_tensor(NULL, 2, data), "tensor name is NULL, expected text"},
        {bytes_tensor("\xff", 2, data), "tensor name '\\xff' is not UTF-8"},
        {bytes_tensor("a", 2, NULL), "(NULL)"},
        {bytes_tensor("a", -1, data), "do not match U8 (-1,)"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        check_refused(&named[i].t, 1, NULL, 0, SFP_EINVAL, named[i].message);
    sfp__meta meta[2] = {{"k", "1"}, {"k", "2"}};
    check_refused(NULL, 0, meta, 2, SFP_EINVAL, "metadata key 'k' is a duplicate");
    meta[0].value = "\xc3";
    check_refused(NULL, 0, meta, 1, SFP_EINVAL, "metadata value '\\xc3' is not UTF-8");
}

static void check_old_file(uint8_t first)
{
    sfp__tensor_file *st;
    MUST(sfp__safetensors_open(path, &st, NULL));
    assert_int_equal(*(const uint8_t *)st->tensors[0].data, first);
    sfp__tensor_file_close(st);
    assert_int_equal(files_in_dir(), 1);
}

TEST(a_full_disk_leaves_the_old_file_and_nothing_else)
{
    size_t size = 1 << 20;
    uint8_t *data = kept_calloc(1, size);
    data[0] = 42;
    sfp__tensor small = bytes_tensor("a", 16, data), large = bytes_tensor("a", (int64_t)size, data);
    MUST(sfp__safetensors_write(path, &small, 1, NULL, 0, NULL));
    data[0] = 43;

    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sfp_status status = sfp__safetensors_write(path, &large, 1, NULL, 0, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);

    assert_int_equal(status, SFP_EIO);
    assert_non_null(strstr(err.message, "cannot write: File too large"));
    check_old_file(42);
    MUST(sfp__safetensors_write(path, &large, 1, NULL, 0, NULL));
    check_old_file(43);
}

TEST(devices_and_directories_and_missing_parents_are_refused)
{
    struct stat before, after;
    assert_int_equal(stat("/dev/full", &before), 0);
    REFUSED(sfp__safetensors_write("/dev/full", NULL, 0, NULL, 0, &err), SFP_EINVAL, "/dev/full: not a regular file");
    assert_int_equal(stat("/dev/full", &after), 0);
    assert_true(S_ISCHR(after.st_mode) && before.st_rdev == after.st_rdev);
    REFUSED(sfp__safetensors_write(directory, NULL, 0, NULL, 0, &err), SFP_EINVAL, "is a directory");
    REFUSED(sfp__safetensors_write("/tmp/sfp_no_such_folder/w", NULL, 0, NULL, 0, &err), SFP_ENOTFOUND, "cannot create");
}

TEST(a_leftover_of_a_killed_process_does_not_matter)
{
    uint8_t data[4] = {9};
    sfp__tensor t = bytes_tensor("a", 4, data);
    const char *left = kept_print("%s.tmp.%ld", path, (long)getpid());
    fclose(fopen(left, "w"));
    MUST(sfp__safetensors_write(path, &t, 1, NULL, 0, NULL));
    assert_int_equal(unlink(left), 0); /* it belonged to another process: still there */
    check_old_file(9);
}
