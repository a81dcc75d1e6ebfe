#include "io/tensor/tensor_file.h"

#include <sys/stat.h>

#include "temp_directory.h"
#include "test.h"

/* Returns a file of version `version`.0 with this header and data_size bytes, allocated with its exact size. */
static uint8_t *make(int version, const char *header, size_t data_size, size_t *size)
{
    size_t n = strlen(header), start = version == 1 ? 10 : 12;
    *size = start + n + data_size;
    uint8_t *bytes = kept_calloc(1, *size);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[8] = (uint8_t)n;
    bytes[9] = (uint8_t)(n >> 8);
    memcpy(bytes + start, header, n);
    for (size_t i = 0; i < data_size; i++)
        bytes[start + n + i] = (uint8_t)(i + 1);
    return bytes;
}

static void check_accepted(int version, const char *header, size_t data_size, sfp__dtype dtype, int ndim, const int64_t *shape)
{
    size_t size;
    uint8_t *bytes = make(version, header, data_size, &size);
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *npy = NULL;
    if (sfp__npy_open_memory("x.npy", bytes, size, &npy, &err) != SFP_OK)
        fail_msg("%s: %s", header, err.message);
    const sfp__tensor *t = &npy->tensors[0];
    assert_int_equal(t->dtype, dtype);
    MUST(sfp__tensor_expect("x.npy", t, shape, ndim, &err));
    assert_int_equal(t->bytes, data_size);
    assert_string_equal(t->name, "array");
    if (data_size)
        assert_int_equal(*(const uint8_t *)t->data, 1);
}

#define NPY(descr, shape) "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }"

TEST(headers_written_by_numpy_are_accepted)
{
    for (int version = 1; version <= 3; version++) {
        check_accepted(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n", 24, SFP__DTYPE_F32, 2,
                       (int64_t[]){2, 3});
        check_accepted(version, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n", 16, SFP__DTYPE_I64, 1,
                       (int64_t[]){2});
        check_accepted(version, NPY("<f8", "()"), 8, SFP__DTYPE_F64, 0, NULL);
        check_accepted(version, NPY("|u1", "(0, 5)"), 0, SFP__DTYPE_U8, 2, (int64_t[]){0, 5});
        check_accepted(version, "{\"shape\":(1L,2L),\"fortran_order\":False,\"descr\":\"<f2\"}", 4, SFP__DTYPE_F16, 2,
                       (int64_t[]){1, 2});
        check_accepted(version, "{'descr': '<i4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1)}", 4, SFP__DTYPE_I32, 8,
                       (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    }
}

TEST(lengths_are_checked)
{
    sfp__tensor_file *npy;
    uint8_t lies[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff};
    REFUSED_EXACTLY(sfp__npy_open_memory("x", lies, 12, &npy, &err), SFP_EFORMAT,
                    "x: npy header length is 4294967295, but only 0 bytes follow it");
    REFUSED_EXACTLY(sfp__npy_open_memory("x", lies, 11, &npy, &err), SFP_EFORMAT, "x: npy ends within its header");
    REFUSED(sfp__npy_open_memory("x", "PK\3\4 a zip file", 16, &npy, &err), SFP_EFORMAT, "not an npy file");
}

TEST(every_truncation_is_refused)
{
    size_t size;
    uint8_t *whole = make(2, NPY("<f4", "(2, 3)"), 24, &size);
    for (size_t n = 0; n < size; n++) {
        uint8_t *part = kept_malloc(n ? n : 1);
        memcpy(part, whole, n);
        sfp__tensor_file *npy;
        assert_int_equal(sfp__npy_open_memory("x", part, n, &npy, NULL), SFP_EFORMAT);
    }
}

AROUND_ONE_FILE("x.npy")

TEST(written_arrays_are_read_back)
{
    double data[24];
    for (int i = 0; i < 24; i++)
        data[i] = i;
    const sfp__dtype types[] = {SFP__DTYPE_F64, SFP__DTYPE_F32, SFP__DTYPE_F16, SFP__DTYPE_I64, SFP__DTYPE_I32, SFP__DTYPE_U8};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (int ndim = 0; ndim <= 4; ndim++) {
            sfp__tensor t = {.name = "t", .dtype = types[i], .ndim = ndim, .shape = {2, 3, 1, 2}, .data = data};
            assert_true(sfp__shape_count(t.shape, ndim, types[i], &t.count, &t.bytes));
            MUST(sfp__npy_write(path, &t, &err));
            OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *npy = NULL;
            MUST(sfp__npy_open(path, &npy, &err));
            const sfp__tensor *got = &npy->tensors[0];
            assert_int_equal(got->dtype, types[i]);
            MUST(sfp__tensor_expect(path, got, t.shape, ndim, &err));
            assert_memory_equal(got->data, data, t.bytes);
            assert_int_equal((uintptr_t)got->data % 64, 0); /* aligned as NumPy does */
            assert_string_equal(got->name, "array");
        }
    }
}

TEST(types_that_npy_lacks_are_refused_when_writing)
{
    uint16_t data[1] = {0};
    sfp__tensor t = {.name = "t", .dtype = SFP__DTYPE_BF16, .ndim = 1, .shape = {1}, .count = 1, .bytes = 2, .data = data};
    REFUSED(sfp__npy_write(path, &t, &err), SFP_EUNSUPPORTED, "element type is BF16, which npy does not have");
    t.dtype = SFP__DTYPE_F32;
    REFUSED(sfp__npy_write(path, &t, &err), SFP_EINVAL, "tensor has 2 bytes, which do not match its shape");
}

TEST(paths_that_are_not_files_fail_cleanly)
{
    sfp__tensor_file *npy = NULL;
    REFUSED(sfp__npy_open(directory, &npy, &err), SFP_EINVAL, "is a directory");
    assert_int_equal(sfp__npy_open("/tmp/sfp_no_such_file", &npy, &err), SFP_ENOTFOUND);
    assert_null(npy);
}
