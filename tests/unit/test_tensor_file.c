/* Weight files of all formats, built byte by byte: their tensors are read, and every fault is refused by name. */
#include "io/tensor/tensor_file.h"

#include "test.h"
#include "zip_make.h"

/* ------------------------------------------------------------------ pickles */

typedef struct view {
    const char *kind, *key;
    int64_t elements, offset;
    int ndim;
    int64_t shape[3], stride[3];
} view;

/* Appends the bytes of `program`, in which %t stands for a text, %i for an integer (int64_t), %s for literal bytes and %v for
 * a tensor (const view *). */
static void add(made *m, const char *program, ...)
{
    va_list ap;
    va_start(ap, program);
    for (const char *p = program, *s; *p; p++) {
        if (*p != '%') {
            put(m, p, 1);
            continue;
        }
        const view *v;
        switch (*++p) {
        case 't':
            s = va_arg(ap, const char *);
            put(m, "X", 1);
            put_number(m, strlen(s), 4);
            put(m, s, strlen(s));
            break;
        case 'i':
            put(m, "\x8a\x08", 2);
            put_number(m, (uint64_t)va_arg(ap, int64_t), 8);
            break;
        case 's':
            s = va_arg(ap, const char *);
            put(m, s, strlen(s));
            break;
        default:
            v = va_arg(ap, const view *);
            add(m, "ctorch._utils\n_rebuild_tensor_v2\n((%tctorch\n%s\n%t%t%itQ%i", "storage", v->kind, v->key, "cpu",
                v->elements, v->offset);
            for (int k = 0; k < 2; k++) {
                add(m, "(");
                for (int i = 0; i < v->ndim; i++)
                    add(m, "%i", k ? v->stride[i] : v->shape[i]);
                add(m, "t");
            }
            add(m, "\211ccollections\nOrderedDict\n)RtR");
        }
    }
    va_end(ap);
}

static const view plain = {"FloatStorage", "0", 6, 0, 2, {2, 3}, {3, 1}};
static const float numbers[6] = {0, 1, 2, 3, 4, 5};

/* {"a": plain, "model": {"t": transposed, "p": parameter, 7: scalar}, "epoch": 3, "args": Namespace} */
static made good_program(void)
{
    made m = {0};
    const view turned = {"FloatStorage", "0", 6, 0, 2, {3, 2}, {1, 3}}, scalar = {"FloatStorage", "0", 6, 4, 0, {0}, {0}};
    add(&m, "\200\2}(%t%v%tccollections\nOrderedDict\n)R(%t%v", "a", &plain, "model", "t", &turned);
    add(&m, "%tctorch._utils\n_rebuild_parameter\n(%v\210ccollections\nOrderedDict\n)RtR", "p", &plain);
    add(&m, "K\7%vu}%tNsb%tK\3%tcargparse\nNamespace\n)\201}bu.", &scalar, "_metadata", "epoch", "args");
    return m;
}

static made one_tensor(const view *v)
{
    made m = {0};
    add(&m, "\200\2}%t%vs.", "w", v);
    return m;
}

/* Returns a PyTorch file with a program and one storage. */
static zip_made torch_file(const made *program, const void *storage, size_t size, bool deflated)
{
    zip_made z = {0};
    zip_add(&z, "net/data.pkl", program->bytes, program->size, deflated);
    zip_add(&z, "net/data/0", storage, size, deflated);
    zip_add(&z, "net/version", "3\n", 2, false);
    zip_end(&z);
    return z;
}

static zip_made zip_of(const char *name, const void *data, size_t size, bool deflated)
{
    zip_made z = {0};
    zip_add(&z, name, data, size, deflated);
    zip_end(&z);
    return z;
}

/* ------------------------------------------------------------------- checks */

/* Opens a copy of exact size, so that a sanitizer detects a read beyond it. */
static sfp_status open_copy(made file, sfp__tensor_file **f)
{
    void *copy = kept_malloc(file.size ? file.size : 1);
    memcpy(copy, file.bytes, file.size);
    return sfp__tensor_file_open_memory("w.pth", copy, file.size, f, &err);
}

static void check_values(const sfp__tensor_file *f, const char *name, const char *shape, const float *want)
{
    const sfp__tensor *t = NULL;
    char found[SFP__SHAPE_MAX];
    float x[16];
    MUST(sfp__tensor_file_need(f, name, &t, &err));
    assert_string_equal(sfp__shape_text(t->shape, t->ndim, found, sizeof found), shape);
    MUST(sfp__tensor_to_f32("w", t, x, &err));
    for (size_t i = 0; i < t->count; i++)
        if (x[i] != want[i])
            fail_msg("%s[%zu] is %g, expected %g", name, i, (double)x[i], (double)want[i]);
}

static void check_refused(made file, sfp_status status, const char *message)
{
    sfp__tensor_file *f = NULL;
    REFUSED(open_copy(file, &f), status, message);
    assert_int_equal(strncmp(err.message, "w.pth: ", 7), 0);
    assert_null(f);
}

static void refuse_program(made program, size_t storage, sfp_status status, const char *message)
{
    static const uint8_t zeros[64];
    check_refused(torch_file(&program, zeros, storage, false).file, status, message);
}

static void refuse_view(view v, size_t storage, const char *message)
{
    refuse_program(one_tensor(&v), storage, SFP_EFORMAT, message);
}

/* -------------------------------------------------------------------- tests */

static void check_good(const sfp__tensor_file *f)
{
    static const float turned[6] = {0, 3, 1, 4, 2, 5}, four[1] = {4};
    assert_int_equal(f->count, 4);
    check_values(f, "a", "(2, 3)", numbers);
    check_values(f, "model.t", "(3, 2)", turned);
    check_values(f, "model.p", "(2, 3)", numbers);
    check_values(f, "model.7", "()", four);
    assert_null(sfp__tensor_file_find(f, "epoch"));
    assert_int_equal(f->meta_count, 0);
}

TEST(a_pytorch_file_has_the_tensors_of_its_dicts)
{
    made program = good_program();
    for (int deflated = 0; deflated < 2; deflated++) {
        zip_made z = torch_file(&program, numbers, sizeof numbers, deflated);
        OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
        MUST(open_copy(z.file, &f));
        assert_string_equal(f->format, "PyTorch");
        check_good(f);
    }
}

static made old_file(const made *program, const char *key, uint64_t elements)
{
    made m = {0};
    put(&m, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);
    put(&m, "\x80\x02M\xe9\x03.\x80\x02}.", 10);
    put(&m, program->bytes, program->size);
    add(&m, "\200\2]%ta.", key);
    put_number(&m, elements, 8);
    put(&m, numbers, sizeof numbers);
    return m;
}

TEST(an_old_pytorch_file_without_zip_has_the_same_tensors)
{
    made program = good_program(), m = old_file(&program, "0", 6);
    sfp__tensor_file *f = NULL;
    MUST(open_copy(m, &f));
    assert_string_equal(f->format, "PyTorch before 1.6");
    check_good(f);
    sfp__tensor_file_close(f);
    check_refused((made){m.bytes, .size = m.size - 1}, SFP_EFORMAT,
                  "storage '0' has 6 elements of F32, but only 23 bytes follow");
    check_refused((made){m.bytes, .size = m.size - 30}, SFP_EFORMAT, "storage '0'");
    check_refused((made){m.bytes, .size = 20}, SFP_EFORMAT, "pickle");
    m = old_file(&program, "1", 6);
    check_refused(m, SFP_EFORMAT, "storage '1' belongs to no tensor");
    m = old_file(&program, "0", 5);
    check_refused(m, SFP_EFORMAT, "has 5 elements, expected 6");
    m = old_file(&program, "0", UINT64_MAX / 2);
    check_refused(m, SFP_EFORMAT, "but only 24 bytes follow");
}

TEST(tensors_must_be_inside_their_storage)
{
    refuse_view((view){"FloatStorage", "0", 6, 1, 2, {2, 3}, {3, 1}}, 24,
                "is (2, 3) at element 1, but its storage '0' has 6 elements");
    refuse_view((view){"FloatStorage", "0", 6, 0, 2, {2, 3}, {4, 1}}, 24, "has 6 elements");
    refuse_view((view){"FloatStorage", "0", 6, -1, 1, {2}, {1}}, 24, "size, stride or offset");
    refuse_view((view){"FloatStorage", "0", 6, 0, 1, {-2}, {1}}, 24, "size, stride or offset");
    refuse_view((view){"FloatStorage", "0", 6, 0, 1, {2}, {-1}}, 24, "size, stride or offset");
    refuse_view((view){"FloatStorage", "0", 6, 0, 2, {1 << 20, 1 << 20}, {0, 0}}, 24, "has 6 elements");
    refuse_view((view){"FloatStorage", "0", 6, 0, 2, {INT64_MAX, INT64_MAX}, {1, 1}}, 24, "has 6 elements");
    refuse_view((view){"FloatStorage", "0", 6, 0, 2, {2, 2}, {INT64_MAX, INT64_MAX}}, 24, "has 6 elements");
    refuse_view((view){"FloatStorage", "0", 6, 0, 1, {6}, {1}}, 20,
                "storage 'net/data/0' has 20 bytes, expected 6 elements of F32");
    refuse_view((view){"FloatStorage", "0", INT64_MAX, 0, 1, {6}, {1}}, 24,
                "has 24 bytes, expected 9223372036854775807 elements");
    refuse_view((view){"FloatStorage", "9", 6, 0, 1, {6}, {1}}, 24, "storage 'net/data/9' is missing");
    refuse_program(one_tensor(&(view){"CharStorage", "0", 6, 0, 1, {6}, {1}}), 24, SFP_EUNSUPPORTED,
                   "has type 'torch.CharStorage'");
}

#define PROGRAM(literal) \
    ((made){.bytes = memcpy(kept_malloc(sizeof(literal)), literal, sizeof(literal)), .size = sizeof(literal) - 1})

TEST(malformed_tensors_are_refused_by_name)
{
    refuse_program(PROGRAM("cos\nsystem\n(S'true'\ntR."), 8, SFP_EUNSUPPORTED,
                   "byte 0: GLOBAL: name is 'os.system', expected a name that weights need");
    refuse_program(PROGRAM("\x80\x04\x8c\x02os\x8c\x06system\x93."), 8, SFP_EUNSUPPORTED,
                   "STACK_GLOBAL: name is 'os.system', expected a name that weights need");
    refuse_program(PROGRAM("c__torch_\nx\n."), 8, SFP_EUNSUPPORTED, "name is '__torch_.x', expected");
    refuse_program(PROGRAM("ctorch.FloatStorage\n\n."), 8, SFP_EUNSUPPORTED, "expected a name that weights need");
    refuse_program(PROGRAM("c\x1b[2J\nx\n."), 8, SFP_EUNSUPPORTED, "name is '\\x1b[2J.x'");
    refuse_program(PROGRAM("K\x01)R."), 8, SFP_EUNSUPPORTED, "REDUCE: callee is an integer");
    refuse_program(PROGRAM("ctorch\nSize\nNR."), 8, SFP_EFORMAT, "are None, expected a tuple");
    refuse_program(PROGRAM("]}b."), 8, SFP_EFORMAT, "BUILD: state is for a list");
    refuse_program(PROGRAM("Q."), 8, SFP_EFORMAT, "BINPERSID");
    refuse_program(PROGRAM("NQ."), 8, SFP_EFORMAT, "not a tensor storage");
    refuse_program(PROGRAM("(ios\nsystem\n."), 8, SFP_EUNSUPPORTED, "INST: the pickle creates or calls Python objects");
    refuse_program(PROGRAM("N."), 8, SFP_EFORMAT, "contains None, expected a dict of tensors");
    refuse_program(PROGRAM("}q\0U\4selfh\0s."), 8, SFP_ELIMIT, "in a cycle");
    refuse_program(PROGRAM("ccollections\nOrderedDict\n(((U\1aK\1tltR."), 8, SFP_EUNSUPPORTED,
                   "REDUCE: 'collections.OrderedDict' is created from a list, expected one that is filled afterwards");
    refuse_program(PROGRAM("(U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\6(U\0011K\0K\6ttQ."), 24, SFP_EUNSUPPORTED,
                   "a storage is a view of another one");
    refuse_program(PROGRAM("}U\1actorch._utils\n_rebuild_tensor_v2\n)Rs."), 8, SFP_EFORMAT, "tensor 'a' has no storage");
}

TEST(sharing_and_names_are_bounded)
{
    made m = {0};
    add(&m, "\200\2}(");
    for (int i = 0; i < 60; i++) /* 60 tensors of one storage of 64 KB: more than twice the file size plus the allowance */
        add(&m, "%t%v", kept_print("%d", i), &(view){"FloatStorage", "0", 16384, 0, 1, {16384}, {1}});
    add(&m, "u.");
    check_refused(torch_file(&m, kept_calloc(65536, 1), 65536, false).file, SFP_ELIMIT, "more than twice as large as the file");
    char name[1026];
    memset(name, 'x', 1025);
    name[1025] = '\0';
    m = (made){0};
    add(&m, "\200\2}%tNs.", name);
    refuse_program(m, 8, SFP_ELIMIT, "a name in the pickle has 1025 bytes");
    m = (made){0};
    add(&m, "\200\2}(%t%v%t%vu.", "w", &plain, "w", &plain);
    refuse_program(m, 24, SFP_EFORMAT, "tensor 'w' is a duplicate");
}

/* ------------------------------------------------------------------- archives */

static void change(zip_made *z, size_t at, uint8_t value, sfp_status status, const char *message)
{
    uint8_t before = z->file.bytes[at];
    z->file.bytes[at] = value;
    check_refused(z->file, status, message);
    z->file.bytes[at] = before;
}

TEST(a_damaged_archive_is_refused)
{
    made program = good_program();
    zip_made z = torch_file(&program, numbers, sizeof numbers, false);
    size_t n = z.file.size, end = n - 22, entry = end - z.directory.size;
    for (size_t cut = 4; cut < n; cut += cut < 100 ? 1 : 37) {
        sfp__tensor_file *f = NULL;
        assert_int_not_equal(open_copy((made){z.file.bytes, .size = cut}, &f), SFP_OK);
    }
    change(&z, end + 10, 99, SFP_EFORMAT, "lists 99 members");
    change(&z, end + 19, 0x7f, SFP_EFORMAT, "zip directory is");
    change(&z, entry, 'X', SFP_EFORMAT, "damaged at its member 0");
    change(&z, entry + 8, 1, SFP_EUNSUPPORTED, "is encrypted");
    change(&z, entry + 10, 12, SFP_EUNSUPPORTED, "has compression method 12");
    change(&z, entry + 24, 1, SFP_EFORMAT, "is stored in");
    change(&z, entry + 42, 9, SFP_EFORMAT, "where no member begins");
    change(&z, entry + 46, 'm', SFP_EFORMAT, "another name");
    change(&z, entry + 46, '/', SFP_EFORMAT, "not a relative path");
    change(&z, entry + 46, 0, SFP_EFORMAT, "not a relative path");
    change(&z, 60, 0xff, SFP_EFORMAT, "CRC");
}

/* Returns an archive of one member whose sizes and offset are in the 64-bit fields, as in files above 4 GB. */
static made wide_archive(const char *name, const void *data, size_t size, size_t extra)
{
    zip_made z = {0};
    zip_add(&z, name, data, size, false);
    memset(z.directory.bytes + 20, 0xff, 8); /* packed size, size */
    memset(z.directory.bytes + 42, 0xff, 4); /* offset */
    z.directory.bytes[30] = (uint8_t)(4 + extra);
    PUT_NUMBERS(&z.directory, {1, 2}, {extra, 2}, {size, 8}, {size, 8}, {0, extra - 16});
    made m = z.file;
    size_t at = m.size, end = at + z.directory.size;
    put(&m, z.directory.bytes, z.directory.size);
    put(&m, "PK\6\6", 4);
    PUT_NUMBERS(&m, {44, 8}, {0, 12}, {1, 8}, {1, 8}, {z.directory.size, 8}, {at, 8});
    put(&m, "PK\6\7", 4);
    PUT_NUMBERS(&m, {0, 4}, {end, 8}, {1, 4});
    put(&m, "PK\5\6", 4);
    PUT_NUMBERS(&m, {UINT64_MAX, 8}, {UINT64_MAX, 8}, {0, 2});
    return m;
}

TEST(numbers_of_64_bits_are_read_and_checked)
{
    made m = wide_archive("net/data.pkl", "}.", 2, 24);
    sfp__tensor_file *f = NULL;
    MUST(open_copy(m, &f));
    assert_int_equal(f->count, 0);
    sfp__tensor_file_close(f);
    size_t locator = m.size - 22 - 20;
    m.bytes[locator + 8]++;
    check_refused(m, SFP_EFORMAT, "64-bit zip directory is missing at byte");
    m = wide_archive("net/data.pkl", "}.", 2, 17); /* no space for the offset */
    check_refused(m, SFP_EFORMAT, "has damaged sizes");
}

TEST(a_small_archive_must_not_unpack_to_a_large_one)
{
    enum { SIZE = 32 << 20 };
    uint8_t *zeros = kept_calloc(SIZE, 1);
    zip_made z = zip_of("a.npy", zeros, SIZE, true);
    check_refused(z.file, SFP_ELIMIT, "unpack to more than");
    z = zip_of("a.npy", zeros, 4096, true); /* claims half of the size that it unpacks to */
    size_t entry = z.file.size - 22 - z.directory.size;
    change(&z, entry + 25, 8, SFP_EFORMAT, "expected 2048");
}

TEST(an_npz_has_its_arrays_by_name)
{
    static const char npy[] = "\x93NUMPY\x01\x00\x40\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}";
    made m = {0};
    put(&m, npy, sizeof npy - 1);
    while (m.size < 10 + 0x40)
        put(&m, " ", 1);
    put(&m, numbers, sizeof numbers);
    zip_made z = {0};
    zip_add(&z, "layer/a.npy", m.bytes, m.size, false);
    zip_add(&z, "b.npy", m.bytes, m.size, true);
    zip_end(&z);
    sfp__tensor_file *f = NULL;
    MUST(open_copy(z.file, &f));
    assert_string_equal(f->format, "NumPy npz");
    assert_int_equal(f->count, 2);
    check_values(f, "layer/a", "(2, 3)", numbers);
    check_values(f, "b", "(2, 3)", numbers);
    sfp__tensor_file_close(f);
    char deep[1000]; /* a path of any length */
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    MUST(sfp__tensor_file_open_memory(deep, z.file.bytes, z.file.size, &f, &err));
    sfp__tensor_file_close(f);
    z = zip_of("a.npy", m.bytes, m.size - 1, false);
    check_refused(z.file, SFP_EFORMAT, "a.npy: npy contains 23 bytes");
    z = (zip_made){0};
    zip_add(&z, "a.npy", m.bytes, m.size, false);
    zip_add(&z, "readme", "x", 1, false);
    zip_end(&z);
    check_refused(z.file, SFP_EFORMAT, "'readme' is not a .npy file");
    z = zip_of("readme", "x", 1, false);
    check_refused(z.file, SFP_EUNSUPPORTED, "neither PyTorch's data.pkl nor .npy");
}
