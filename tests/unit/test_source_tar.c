/* WebDataset shards, and the same data from a pipe: grouping, labels, places, damage. */
#include "source_files.h"
#include "test.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <pthread.h>
#include <zlib.h>

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_tar;

typedef struct tar {
    uint8_t b[1 << 17];
    size_t n;
} tar;

static tar now; /* the archive being written */

static void tar_header(const char *name, size_t size, char type)
{
    uint8_t *h = now.b + now.n;
    memset(h, 0, 512);
    (void)snprintf((char *)h, 100, "%s", name);
    memcpy(h + 100, "0000644\0000000000\0000000000\0", 24);
    (void)snprintf((char *)h + 124, 12, "%011lo", (unsigned long)size);
    memcpy(h + 136, "00000000000\0        ", 20);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += h[i];
    (void)snprintf((char *)h + 148, 8, "%06o", sum);
    h[155] = ' ';
    now.n += 512;
}

static void tar_bytes(const char *name, const void *bytes, size_t size, char type)
{
    tar_header(name, size, type);
    memset(now.b + now.n, 0, (size + 511) / 512 * 512);
    memcpy(now.b + now.n, bytes, size);
    now.n += (size + 511) / 512 * 512;
}

static void tar_file(const char *name, const char *text)
{
    tar_bytes(name, text, strlen(text), '0');
}

static void tar_end(const char *name)
{
    memset(now.b + now.n, 0, 1024);
    now.n += 1024;
    if (name)
        put_bytes(name, now.b, now.n);
}

/* Writes a complete tar of these files: rows {name, text}. */
#define TAR(name, ...)                                               \
    do {                                                             \
        const char *const rows_[][2] = {__VA_ARGS__};                \
        now.n = 0;                                                   \
        for (size_t i_ = 0; i_ < sizeof rows_ / sizeof *rows_; i_++) \
            tar_file(rows_[i_][0], rows_[i_][1]);                    \
        tar_end(name);                                               \
    } while (0)

static void three_samples(const char *name)
{
    TAR(name, {"000.jpg", "the 1st image"}, {"000.cls", "10\n"}, {"001.cls", "9"}, {"001.png", "second"},
        {"x/002.input.webp", "third"});
}

TEST(samples_are_grouped_by_key)
{
    now.n = 0;
    tar_bytes("a/", "", 0, '5');
    tar_file("a/1.jpg", "one");
    tar_file("a/1.json", "{\"label\": \"from json\", \"other\": [1]}");
    tar_file("a/1.txt", "from txt\n");
    tar_file("a/2.json", "{\"caption\": \"no label\"}");
    tar_file("a/2.jpeg", "two");
    tar_file("a/2.mask.png", "not the image");
    tar_file("b/2.cls", "lonely label");
    tar_file("a/3.md", "ignored");
    tar_file("a/3.json", "7");
    tar_file("a/3.cls", " cls wins ");
    tar_file("a/3.txt", "from txt");
    tar_file("a/3.jpg", "three");
    tar_file("a/4.jpg", "");
    tar_end("t.tar");
    sfp_source *s = open_source(kind, "t.tar");
    assert_true(s->keeps_order);
    CHECK_LABELS(s, "from txt", "-", "cls wins", "-");
    check_bytes(s, 0, "one", 3);
    check_bytes(s, 1, "two", 3);
    check_bytes(s, 2, "three", 5);
    check_not_loaded(s, 3, SFP_EFORMAT, "t.tar: a/4.jpg", "is empty");
    assert_int_equal(s->skipped, 1);
    assert_non_null(strstr(s->warning, "1 samples without an image"));
    check_name(s, 1, "a/2.jpeg");
    check_bounds(s);
}

TEST(numbers_sort_and_lists_name_them)
{
    three_samples("t.tar");
    sfp_source *s = open_source(kind, "t.tar");
    CHECK_CLASSES(s, "9", "10");
    assert_string_equal(label_text(s, 0), "10");
    put_text("classes.txt",
             "0\tid0\tzero, nought\n1\tid1\tcrane\n2\tid2\tcrane\n3\ta\n4\tb\n5\tc\n6\td\n7\te\n8\tf\n9\tnine\n10\tten\n");
    s = open_source(kind, "t.tar");
    assert_int_equal(s->classes, 11);
    assert_string_equal(s->class_names[0], "zero, nought");
    assert_string_equal(s->class_names[2], "crane (2)");
    CHECK_FIRST_LABELS(s, "ten", "nine");
    CHECK_REFUSALS(kind, "t.tar",
                   {"classes.txt", "a\nb\n", SFP_EFORMAT, "t.tar: 000.jpg: label is 10, expected 0..1", "classes.txt"},
                   {"classes.txt", "1\ta\n", SFP_EFORMAT, "classes.txt:1: ", "expected 0<tab>NAME"});
}

TEST(shards_follow_each_other)
{
    for (int i = 8; i <= 12; i++) {
        now.n = 0;
        for (int k = 0; k < i - 7; k++)
            tar_file(kept_print("%d.jpg", k), kept_print("%d-%d", i, k));
        tar_end(kept_print("d/s-%d.tar", i));
    }
    static const char *const ways[] = {"d", "d/s-{8..12}.tar"};
    for (int way = 0; way < 2; way++) {
        sfp_source *s = open_source(kind, ways[way]);
        assert_int_equal(s->count, 15);
        int64_t at = 0;
        for (int i = 8; i <= 12; i++) {
            for (int k = 0; k < i - 7; k++) {
                const char *text = kept_print("%d-%d", i, k);
                check_bytes(s, at++, text, strlen(text));
            }
        }
    }
    three_samples("e/s-099.tar");
    three_samples("e/s-100.tar");
    assert_int_equal(open_source(kind, "e/s-{099..100}.tar")->count, 6); /* leading zeros are kept */
    check_refused(kind, "e/s-{099..101}.tar", SFP_ENOTFOUND, "s-101.tar", "cannot open");
    static const char *const bad[] = {"e/s-{9..8}.tar", "e/s-{a..b}.tar",         "e/s-{1..2.tar",
                                      "e/s-{1.2}.tar",  "e/s-{0..999999999}.tar", "e/{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(kind, bad[i], SFP_EINVAL, "not a range", "{000..003}");
}

TEST(a_directory_has_a_training_and_a_test_part)
{
    three_samples("d/train-0.tar");
    check_refused_part(kind, "d", true, SFP_ENOTFOUND, "no val*.tar", "");
    three_samples("d/train-1.tar");
    three_samples("d/val-0.tar");
    assert_int_equal(open_source(kind, "d")->count, 6);
    assert_int_equal(open_part(kind, "d", true)->count, 3);
    put_text("none/x.txt", "x");
    check_refused(kind, "none", SFP_ENOTFOUND, "none", "has no *.tar");
}

TEST(long_and_foreign_names_are_read)
{
    char name[300], pax[400];
    memset(name, 'n', sizeof name);
    memcpy(name + 290, ".jpg", 5);
    now.n = 0;
    tar_bytes("././@LongLink", name, 295, 'L');
    tar_file("cut.jpg", "long");
    int n = snprintf(pax, sizeof pax, "22 path=pax/\xc3\xa9\xc3\xa9.jpg\n");
    pax[0] = (char)('0' + n / 10);
    pax[1] = (char)('0' + n % 10);
    tar_bytes("PaxHeader", pax, (size_t)n, 'x');
    tar_file("other.jpg", "pax");
    tar_end("t.tar");
    sfp_source *s = open_source(kind, "t.tar");
    assert_int_equal(s->count, 2);
    check_bytes(s, 0, "long", 4);
    check_bytes(s, 1, "pax", 3);
    check_name(s, 0, name);
    check_name(s, 1, "pax/\xc3\xa9\xc3\xa9.jpg");
}

TEST(a_truncated_tar_is_reported_wherever_it_ends)
{
    three_samples("t.tar");
    size_t whole = now.n;
    for (size_t n = 1; n < whole - 1024 + 512; n += 37) {
        put_bytes("t.tar", now.b, n);
        check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: ", n >= 512 ? "byte" : "");
    }
    put_bytes("t.tar", now.b, 5 * 1024); /* between two entries */
    check_refused(kind, "t.tar", SFP_EFORMAT, "ends at byte 5120", "it is incomplete");
    put_bytes("t.tar", now.b, 512 + 5);
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: at byte 517: ", "runcated");
    now.n = 0;
    tar_header("big.jpg", 20 << 20, '0'); /* larger than any buffer: only part of it is read */
    memset(now.b + 512, 'x', sizeof now.b - 512);
    put_bytes("t.tar", now.b, sizeof now.b);
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: ", "byte 131072");
    three_samples(NULL);
    put_bytes("t.tar", now.b, 2 * 512 + 512 + 1); /* inside the label */
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: at byte 1537: ", "runcated");
    put_bytes("t.tar", now.b, 2 * 512 + 100); /* inside a header */
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: at byte 1", "runcated");
}

TEST(damage_is_reported)
{
    static const struct {
        struct {
            const char *name, *text; /* NULL: the header claims a huge size */
        } entry[2];
        sfp_status status;
        const char *place, *what;
    } bad[] = {
        {{{0}}, SFP_EFORMAT, "", ""},
        {{{"1.jpg", "x"}, {"1.json", "{\"label\": "}}, SFP_EFORMAT, ": 1.json: ", "line 1"},
        {{{"1.txt", "two\nlines"}}, SFP_EFORMAT, ": 1.txt: ", "one line"},
        {{{"1.json", "[1]"}}, SFP_EFORMAT, ": 1.json: ", "neither a name nor"},
        {{{"huge.jpg", NULL}}, SFP_ELIMIT, ": huge.jpg: ", "at most"},
        {{{"huge.cls", NULL}}, SFP_ELIMIT, ": huge.cls: ", "at most"},
    };
    check_refused(kind, "no.tar", SFP_ENOTFOUND, "no.tar", "cannot open");
    put_text("e.tar", "");
    check_refused(kind, "e.tar", SFP_EFORMAT, "e.tar", "is empty");
    put_text("x.tar", "this is no tar file at all, not even a little");
    check_refused(kind, "x.tar", SFP_EFORMAT, "x.tar: at byte 0", "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        now.n = 0;
        for (int k = 0; k < 2 && bad[i].entry[k].name; k++)
            if (bad[i].entry[k].text)
                tar_file(bad[i].entry[k].name, bad[i].entry[k].text);
            else
                tar_header(bad[i].entry[k].name, 07777777777, '0');
        tar_end("b.tar");
        check_refused(kind, "b.tar", bad[i].status, kept_print("b.tar%s", bad[i].place), bad[i].what);
    }
    three_samples("t.tar");
    now.b[0] ^= 1; /* the checksum is wrong now */
    put_bytes("t.tar", now.b, now.n);
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: at byte 0", "");
    three_samples("s.tar");
    sfp_source *s = open_source(kind, "s.tar");
    assert_int_equal(truncate(in_directory("s.tar"), 600), 0);
    check_bytes(s, 0, "the 1st image", 13);
    check_not_loaded(s, 1, SFP_EIO, "s.tar: 001.png", "ends inside");
}

static size_t pack(uint8_t *packed, size_t capacity)
{
    z_stream z = {.next_in = now.b, .avail_in = (uInt)now.n, .next_out = packed, .avail_out = (uInt)capacity};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return capacity - z.avail_out;
}

TEST(a_compressed_tar_is_refused)
{
    static uint8_t packed[65536];
    three_samples(NULL);
    size_t n = pack(packed, sizeof packed);
    put_bytes("t.tar", packed, n);
    check_refused(kind, "t.tar", SFP_EUNSUPPORTED, "t.tar: archive is compressed (gzip)", "stdin");
}

/* -------------------------------------------------------------------- stdin */

static sfp_source *open_fd(int fd, const char *classes)
{
    sfp_source *s = NULL;
    assert_true(fd >= 0);
    MUST(sfp__tar_stream_open(fd, classes, &s, &err));
    return keep_source(s);
}

static void close_file(void *file)
{
    (void)fclose(file);
}

static sfp_source *open_stream(const char *name, const char *classes)
{
    FILE *f = fopen(in_directory(name), "rb");
    assert_non_null(f);
    kept_until(f, close_file);
    return open_fd(fileno(f), *classes ? in_directory(classes) : "");
}

/* Checks that the stream fails, and that it fails again instead of ending. */
static void check_broken(sfp_source *s, const char *message)
{
    sfp_record r;
    sfp__raw_image p = {0};
    bool end = false;
    for (int i = 0; i < 3; i++) {
        REFUSED(sfp__source_next(s, &r, &p, &end, &err), SFP_EFORMAT, message);
        assert_false(end || s->live->lost);
    }
}

TEST(a_stream_delivers_the_same_samples)
{
    static uint8_t packed[65536];
    three_samples("t.tar");
    put_bytes("t.tar.gz", packed, pack(packed, sizeof packed));
    put_text("names.txt", "\xef\xbb\xbf"
                          "0\n1\n2\n3\n4\n5\n6\n7\n8\nnine\nten\n");
    for (int way = 0; way < 3; way++) {
        sfp_source *s = open_stream(way == 1 ? "t.tar.gz" : "t.tar", way == 2 ? "names.txt" : "");
        assert_int_equal(s->count, -1);
        assert_int_equal(s->classes, way == 2 ? 11 : 0);
        char **names = s->class_names;
        check_next(s, way == 2 ? "ten" : "10", "the 1st image");
        check_next(s, way == 2 ? "nine" : "9", "second");
        check_next(s, "-", "third");
        check_end(s);
        assert_ptr_equal(s->class_names, names);
        assert_int_equal(s->classes, way == 2 ? 11 : 2);
    }
}

TEST(a_broken_stream_delivers_its_samples_and_then_fails)
{
    three_samples(NULL);
    put_bytes("t.tar", now.b, 4 * 512 + 3 * 512 + 2);
    sfp_source *s = open_stream("t.tar", "");
    check_next(s, "10", "the 1st image");
    check_broken(s, "stdin: ");
    assert_non_null(strstr(err.message, "byte"));
    check_refused(&sfp__source_stdin, "missing.txt", SFP_ENOTFOUND, "missing.txt", "cannot open");
}

TEST(a_stream_may_be_several_archives)
{
    TAR(NULL, {"a.jpg", "a"}, {"a.cls", "x"});
    tar_file("b.jpg", "b");
    tar_file("b.cls", "y");
    tar_end("t.tar");
    sfp_source *s = open_stream("t.tar", "");
    CHECK_NEXT(s, {"x", "a"}, {"y", "b"});
    check_end(s);
    check_refused(kind, "t.tar", SFP_EFORMAT, "t.tar: archive continues at byte 3072, after its end mark", "stdin");
}

/* Compresses `now` and appends it to the *n bytes of `packed`. */
static void pack_behind(int filter, uint8_t *packed, size_t capacity, size_t *n)
{
    size_t used = 0;
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    assert_true(a && e);
    assert_int_equal(archive_write_add_filter(a, filter), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    (void)archive_write_set_bytes_in_last_block(a, 1);
    assert_int_equal(archive_write_open_memory(a, packed + *n, capacity - *n, &used), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, now.b, now.n), now.n);
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    archive_entry_free(e);
    *n += used;
}

static void one_sample(const char *image, const char *label, const char *class)
{
    TAR(NULL, {image, image}, {label, class});
}

typedef struct pieces {
    int fd;
    const uint8_t *bytes;
    size_t n, piece;
} pieces;

static void *write_pieces(void *context)
{
    const pieces *p = context;
    for (size_t at = 0, m; at < p->n; at += m) {
        m = p->n - at < p->piece ? p->n - at : p->piece;
        if (write(p->fd, p->bytes + at, m) != (ssize_t)m)
            break;
        if (p->piece < 100)
            (void)usleep(20); /* so that the pieces do not arrive together */
    }
    close(p->fd);
    return NULL;
}

/* Checks the stream of these pieces: a.jpg, b.jpg if expected, then the end or this failure. */
static void check_pieces(const uint8_t *bytes, size_t n, size_t piece, bool b, const char *failure)
{
    int pipes[2];
    pthread_t thread;
    assert_int_equal(pipe(pipes), 0);
    pieces w = {.fd = pipes[1], .bytes = bytes, .n = n, .piece = piece};
    assert_int_equal(pthread_create(&thread, NULL, write_pieces, &w), 0);
    sfp_source *s = open_fd(pipes[0], "");
    check_next(s, "x", "a.jpg");
    if (b)
        check_next(s, "y", "b.jpg");
    if (*failure)
        check_broken(s, failure);
    else
        check_end(s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(pipes[0]);
}

TEST(data_after_a_compressed_archive_is_compressed_alike_or_reported)
{
    static const struct {
        int filter;
        const char *name;
    } packer[] = {
        {ARCHIVE_FILTER_GZIP, "gzip"}, {ARCHIVE_FILTER_BZIP2, "bzip2"}, {ARCHIVE_FILTER_XZ, "xz"}, {ARCHIVE_FILTER_ZSTD, "zstd"}};
    static uint8_t packed[1 << 16];
    for (int k = 0; k < 8; k++) {
        const size_t piece = k % 2 ? 7 : sizeof packed;
        const int filter = packer[k / 2].filter;
        /* for the other filters the library itself reports the data that follows, although it delivers none */
        const bool quiet = k < 4;
        const char *failure;
        size_t one = 0, two, more;
        one_sample("a.jpg", "a.cls", "x");
        pack_behind(filter, packed, sizeof packed, &one);
        check_pieces(packed, one, piece, false, "");
        one_sample("b.jpg", "b.cls", "y");
        two = one;
        pack_behind(filter, packed, sizeof packed, &two);
        check_pieces(packed, two, piece, true, "");
        if (!quiet)
            continue;
        more = two;
        pack_behind(filter == ARCHIVE_FILTER_GZIP ? ARCHIVE_FILTER_ZSTD : ARCHIVE_FILTER_GZIP, packed, sizeof packed, &more);
        failure = kept_print("stdin: input after byte %zu is not %s", two, packer[k / 2].name);
        check_pieces(packed, more, piece, true, failure);
        memset(packed + two, 0, 1000); /* zero padding, as on tapes */
        check_pieces(packed, two + 5, piece, true, "");
        check_pieces(packed, two + 1000, piece, true, "");
        packed[two + 999] = 1;
        check_pieces(packed, two + 1000, piece, true, failure);
        packed[two + 1] = 1;
        check_pieces(packed, two + 2, piece, true, failure);
        memcpy(packed + one, now.b, now.n); /* a plain tar */
        failure = kept_print("stdin: input after byte %zu is not %s", one, packer[k / 2].name);
        check_pieces(packed, one + now.n, piece, false, failure);
    }
}

TEST(a_stream_without_an_end_mark_is_truncated)
{
    now.n = 0;
    tar_file("a.jpg", "a");
    tar_file("a.cls", "x");
    tar_file("b.jpg", "b");
    put_bytes("t.tar", now.b, now.n);
    sfp_source *s = open_stream("t.tar", "");
    check_next(s, "x", "a");
    check_next(s, "-", "b"); /* a complete sample is delivered */
    check_broken(s, "stdin: archive ends without an end mark");
}

TEST(excluded_files_cause_a_warning)
{
    TAR("d/train-0.tar", {"1.depth.png", "depth"}, {"1.jpg", "colour"}, {"1.seg.png", "regions"}, {"1.cls", "x"});
    PUT_TEXTS({"d/more.tar", "anything"}, {"d/train-1.tar.gz", "anything"}, {"d/train-0.tar.idx", "anything"});
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 1);
    check_bytes(s, 0, "colour", 6);
    HOLDS(s->warning, "excluded: 2 further images of a sample",
          "excluded: 1 tar files that are named neither train, val nor test", "excluded: 1 compressed tar files");
}

TEST(a_stream_skips_a_bad_sample_and_continues)
{
    put_text("names.txt", "x\ny\n");
    TAR("t.tar", {"a.jpg", ""}, {"a.cls", "x"}, {"b.jpg", "b"}, {"c.jpg", "c"}, {"c.json", "{"}, {"d.jpg", "d"},
        {"d.cls", "nobody"}, {"e.jpg", ""}, {"f.jpg", "f"}, {"f.cls", "y"});
    sfp_source *s = open_stream("t.tar", "names.txt");
    (void)check_skipped(s, "a", SFP_EFORMAT, "stdin: a.jpg: image is empty");
    check_next(s, "-", "b");
    assert_false(s->live->lost);
    (void)check_skipped(s, "c", SFP_EFORMAT, "stdin: c.json: label: line 1, ");
    (void)check_skipped(s, "d", SFP_EFORMAT, "stdin: d.jpg: label 'nobody' is not in ");
    (void)check_skipped(s, "e", SFP_EFORMAT, "stdin: e.jpg: image is empty");
    check_next(s, "y", "f");
    check_end(s);
}

typedef struct waiter {
    sfp_source *s;
    bool end;
    sfp_status status;
} waiter;

static void *wait_next(void *context)
{
    waiter *w = context;
    sfp_record r;
    sfp__raw_image p = {0};
    w->status = sfp__source_next(w->s, &r, &p, &w->end, &err);
    sfp__raw_image_done(&p);
    return NULL;
}

TEST(a_stream_is_delivered_sample_by_sample_and_can_be_stopped)
{
    static atomic_bool stop;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    sfp_source *s = open_fd(pipes[0], "");
    atomic_store(&stop, false);
    s->live->stop = &stop;
    now.n = 0;
    tar_file("1.jpg", "one");
    tar_file("1.cls", "x");
    assert_int_equal(write(pipes[1], now.b, now.n), now.n);
    check_next(s, "x", "one"); /* although no data follows yet */
    waiter w = {.s = s};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_next, &w), 0);
    (void)usleep(20000); /* in most cases the thread waits for data by then */
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    MUST(w.status);
    assert_true(w.end);
    check_end(s);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(the_shared_shards_are_read)
{
    const char *shared = getenv("STREAMFP_SHARED");
    const char *path = kept_print("%s/data/tiny-imagenet-24k", shared ? shared : "../shared");
    bool exists = false;
    MUST(sfp__path_is_dir(path, &exists, &err));
    if (!exists)
        skip();
    sfp_source *s = open_as(kind, path, (sfp__source_options){.test = true});
    assert_int_equal(s->classes, 200);
    assert_string_equal(s->class_names[0], "goldfish, Carassius auratus");
    for (int64_t i = 0; i < s->count; i += 101) { /* every image starts as a JPEG does */
        sfp__raw_image p = {0};
        MUST(sfp__source_load(s, i, &p, &err));
        assert_true(p.size > 4);
        assert_memory_equal(p.bytes, "\xff\xd8\xff", 3);
        assert_memory_equal(p.bytes + p.size - 2, "\xff\xd9", 2);
        sfp__raw_image_done(&p);
        assert_true(record_of(s, i).label >= 0);
    }
}
