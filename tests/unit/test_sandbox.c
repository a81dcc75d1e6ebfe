/* Decoders of the service: processes that are confined, give the same pixels, and may end.
 *
 * Decoders are this program, started again. Here, not in the product, they obey a few words in place of images. */
#include "serve/internal.h"
#include "serve/serve.h"

#include "test.h"
#include "test_image_encode.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

static bool is_word(const char *word, const void *bytes, size_t size)
{
    return size == strlen(word) && memcmp(word, bytes, size) == 0;
}

/* What a decoder does that a stranger has taken over. */
static sfp_status obey(const char *label, const void *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                       sfp_error *e)
{
    void *p = MAP_FAILED;
    if (is_word("abort", bytes, size))
        abort();
    if (is_word("open", bytes, size))
        (void)open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (is_word("connect", bytes, size))
        (void)socket(AF_INET, SOCK_STREAM, 0);
    if (is_word("fork", bytes, size))
        (void)fork();
    if (is_word("execute", bytes, size))
        p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_word("kill", bytes, size))
        (void)kill(getppid(), 0);
    if (is_word("memory", bytes, size))
        p = mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_word("memory", bytes, size) && p == MAP_FAILED)
        return sfp__fail_nomem(e);
    for (volatile int n = 0; is_word("time", bytes, size);)
        n = !n;
    if (is_word("lie", bytes, size)) {
        *out = (sfp__image){.width = 1000000, .height = 1000000};
        return SFP_OK;
    }
    if (is_word("\033[2J", bytes, size))
        return sfp__fail(e, SFP_ENOMEM + 1000, ": %.*s", (int)size, (const char *)bytes);
    sfp__image_set_decoder(NULL);
    sfp_status status = sfp__image_decode(label, bytes, size, opt, out, e);
    sfp__image_set_decoder(obey);
    return status;
}

__attribute__((constructor)) static void decode_if_asked(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], SFP__DECODER) != 0)
        return;
    (void)setrlimit(RLIMIT_CPU, &(struct rlimit){1, 3});
    sfp__image_set_decoder(obey);
    sfp__decoder_main();
    _exit(0);
}

static void ignore_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)ctx;
    (void)level;
    (void)message;
}

static void start_decoders(void)
{
    assert_int_equal(sfp__decoders_start(ignore_log, &err), SFP_OK);
}

/* Kills the children of this process; returns how many there were. */
static int kill_children(void)
{
    DIR *d = opendir("/proc");
    int count = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[300];
        int pid = 0, parent = 0;
        (void)snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = *e->d_name >= '1' && *e->d_name <= '9' ? fopen(path, "r") : NULL;
        if (f && fscanf(f, "%d (%*[^)]) %*c %d", &pid, &parent) == 2 && parent == getpid()) {
            assert_int_equal(kill(pid, SIGKILL), 0);
            count++;
        }
        if (f)
            (void)fclose(f);
    }
    (void)closedir(d);
    return count;
}

static void assert_same_pixels(blob b)
{
    sfp__image here = {0};
    sfp__decoded apart = {0};
    assert_int_equal(sfp__serve_decode(b.bytes, b.size, &apart, &err), SFP_OK);
    assert_int_equal(sfp__image_decode("image", b.bytes, b.size, NULL, &here, &err), SFP_OK);
    assert_int_equal(apart.image.width, here.width);
    assert_int_equal(apart.image.height, here.height);
    assert_memory_equal(apart.pixels, here.rgb, 3 * (size_t)here.width * (size_t)here.height);
    sfp__decoded_done(&apart);
    sfp__image_done(&here);
}

/* Both groups of decoders, and this process. */
TEST_AROUND(decoders_give_the_same_pixels, start_decoders, sfp__decoders_stop)
{
    blob b[] = {make_jpeg(61, 40, false), make_jpeg(640, 480, true), make_png(33, 70), make_webp(50, 41, false, true),
                make_png(2100, 2100)}; /* more than 4 megapixels are decoded one at a time */
    sfp__image apart[5] = {0};
    for (int i = 0; i < 5; i++) {
        assert_same_pixels(b[i]);
        assert_int_equal(sfp__image_decode("image", b[i].bytes, b[i].size, NULL, &apart[i], &err), SFP_OK);
    }
    sfp__decoders_stop();
    for (int i = 0; i < 5; i++) {
        sfp__image here = {0};
        assert_int_equal(sfp__image_decode("image", b[i].bytes, b[i].size, NULL, &here, &err), SFP_OK);
        assert_int_equal(here.width, apart[i].width);
        assert_int_equal(here.height, apart[i].height);
        assert_memory_equal(here.rgb, apart[i].rgb, 3 * (size_t)here.width * (size_t)here.height);
        sfp__image_done(&here);
        sfp__image_done(&apart[i]);
    }
}

TEST_AROUND(messages_name_the_image, start_decoders, sfp__decoders_stop)
{
    sfp__image im = {0};
    blob b = make_png(8, 8);
    assert_int_equal(sfp__image_decode("a/b.png", "not an image", 12, NULL, &im, &err), SFP_EFORMAT);
    assert_string_equal(err.message, "a/b.png: not a JPEG, PNG or WebP image");
    assert_int_equal(sfp__image_decode("a/b.png", b.bytes, b.size - 30, NULL, &im, &err), SFP_EFORMAT);
    assert_memory_equal(err.message, "a/b.png: PNG", 12);
    assert_int_equal(sfp__image_decode("a/b.png", b.bytes, b.size, &(sfp__image_options){.max_bytes = 50}, &im, &err),
                     SFP_ELIMIT);
    assert_int_equal(sfp__image_decode("a/b.png", "\033[2J", 4, NULL, &im, &err), SFP_EFORMAT);
    assert_string_equal(err.message, "a/b.png: ?[2J");
}

TEST_AROUND(decoders_that_were_killed_are_replaced, start_decoders, sfp__decoders_stop)
{
    blob b = make_png(9, 7);
    assert_int_equal(kill_children(), 1);
    assert_same_pixels(b);
    assert_int_equal(kill_children(), 2);
    assert_same_pixels(b);
}

static void assert_refused(const char *word, sfp_status status, const char *message)
{
    sfp__decoded out = {0};
    assert_int_equal(sfp__serve_decode(word, strlen(word), &out, &err), status);
    assert_string_equal(err.message, message);
}

TEST_AROUND(an_image_that_ends_its_decoder_is_refused, start_decoders, sfp__decoders_stop)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* the sanitizer has its own end for a program that aborts */
#endif
    sfp__decoded out = {0};
    assert_int_equal(sfp__serve_decode("abort", 5, &out, &err), SFP_EFORMAT);
    assert_memory_equal(err.message, "image: the decoder was ended at this image (signal ", 51);
    assert_same_pixels(make_png(9, 7));
}

TEST_AROUND(a_forbidden_system_call_ends_a_decoder, start_decoders, sfp__decoders_stop)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* no filter: a sanitizer needs these system calls */
#endif
    static const char *const words[] = {"open", "connect", "fork", "execute", "kill"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_refused(words[i], SFP_EFORMAT, "image: the decoder was ended at this image (signal 31: a forbidden system call)");
    assert_same_pixels(make_png(9, 7));
}

TEST_AROUND(memory_is_limited, start_decoders, sfp__decoders_stop)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* no limit: a sanitizer maps terabytes */
#endif
    assert_refused("memory", SFP_ELIMIT, "image: decoding needs more memory than an image may have");
}

TEST_AROUND(time_is_limited, start_decoders, sfp__decoders_stop)
{
    assert_refused("time", SFP_EFORMAT, "image: decoding took too long");
    assert_same_pixels(make_png(9, 7));
}

TEST_AROUND(large_numbers_of_a_decoder_are_refused, start_decoders, sfp__decoders_stop)
{
    sfp__decoded out = {0};
    assert_true(sfp__serve_decode("lie", 3, &out, &err) != SFP_OK);
    assert_same_pixels(make_png(9, 7));
}
