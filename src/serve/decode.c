/* Images from clients are decoded by other processes (sandbox.c). This file sends them the encoded bytes and receives the pixels.
 *
 * A decoder decodes one image at a time. If it ends meanwhile, a second process tries the same image, because something else may have killed the
 * first one. If the second one ends, too, the image is at fault. A decoder is not trusted: only the values of pixels are used without a check.
 * There are two groups of decoders: [0] for requests, [1] for samples that are learned. Those of [1] are started by threads of low priority
 * and inherit it, so that they do not delay requests. */
#include "serve/internal.h"

#include "base/monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DECODERS_MAX = 16, KEPT_BYTES = 48 << 20 };
/* Seconds per image for the two groups; more for samples that are learned, because of their low priority. */
static const double deadline[2] = {60, 300};

typedef struct decoder {
    bool busy;
    pid_t pid; /* 0: not started */
    int channel, memory;
} decoder;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t released[2];
    decoder list[2][DECODERS_MAX];
    int count; /* decoders per group; 0: images are decoded in this process */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER}};

/* ------------------------------------------------------------------- start and end */

/* Keeps only the variables that the dynamic loader and sanitizers need, because others may contain secrets. */
static void choose_environment(char **to, int max)
{
    int n = 0;
    for (char **e = environ; *e && n < max - 1; e++)
        if (strncmp(*e, "LD_", 3) == 0 || strncmp(*e + 1, "SAN_OPTIONS", 11) == 0)
            to[n++] = *e;
    to[n] = NULL;
}

static int spawn(decoder *d, int channel)
{
    char *environment[16], *arguments[] = {(char[]){"streamfp-decoder"}, (char[]){SFP__DECODER}, NULL};
    posix_spawn_file_actions_t actions;
    choose_environment(environment, 16);
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed)
        return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, channel, STDIN_FILENO);
    failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, d->memory, STDOUT_FILENO);
    failed = failed ? failed : posix_spawn(&d->pid, "/proc/self/exe", &actions, NULL, arguments, environment);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Ends a decoder; returns the status of wait(). */
static int stop_decoder(decoder *d)
{
    int status = 0;
    if (d->pid > 0) {
        (void)kill(d->pid, SIGKILL); /* has no effect on the status of a process that has already ended */
        while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    if (d->channel >= 0)
        (void)close(d->channel);
    if (d->memory >= 0)
        (void)close(d->memory);
    d->pid = 0;
    return status;
}

/* Waits for the reply. Returns 1 on success, 0 if the decoder has ended, -1 if there is no reply in time. */
static int receive(const decoder *d, sfp__decode_reply *r, double until)
{
    struct pollfd p = {.fd = d->channel, .events = POLLIN};
    for (;;) {
        double left = until - sfp__monotonic_seconds();
        if (left <= 0)
            return -1;
        int ready = poll(&p, 1, (int)(left * 1000) + 1);
        if (ready == 1)
            break;
        if (ready < 0 && errno != EINTR)
            return 0;
    }
    return recv(d->channel, r, sizeof *r, 0) == (ssize_t)sizeof *r;
}

static sfp_status start_decoder(decoder *d, sfp_error *err)
{
    sfp__decode_reply hello = {0};
    int ends[2];
    *d = (decoder){.busy = true, .channel = -1, .memory = memfd_create("images", MFD_CLOEXEC)};
    if (d->memory < 0 || ftruncate(d->memory, (off_t)SFP__DECODE_SHARED) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        sfp_status status = sfp__fail_errno(err, SFP_ENOMEM, "cannot start a decoder of images");
        (void)stop_decoder(d);
        return status;
    }
    d->channel = ends[0];
    errno = spawn(d, ends[1]);
    if (errno) {
        d->pid = 0;
        (void)sfp__fail_errno(err, SFP_ENOMEM, "cannot start a decoder of images (/proc/self/exe)");
    }
    (void)close(ends[1]);
    if (d->pid && receive(d, &hello, sfp__monotonic_seconds() + deadline[1]) == 1 && hello.status == SFP_OK)
        return SFP_OK;
    if (d->pid)
        (void)sfp__fail(err, SFP_ENOMEM, "a decoder of images does not start: %.*s", (int)sizeof hello.message - 1,
                        hello.message);
    (void)stop_decoder(d);
    return SFP_ENOMEM;
}

static decoder *take_decoder(int group)
{
    decoder *found = NULL;
    pthread_mutex_lock(&pool.lock);
    while (!found) {
        for (int i = 0; i < pool.count; i++) { /* prefers one whose process is running */
            decoder *d = &pool.list[group][i];
            if (!d->busy && (!found || (d->pid && !found->pid)))
                found = d;
        }
        if (!found)
            pthread_cond_wait(&pool.released[group], &pool.lock);
    }
    found->busy = true;
    pthread_mutex_unlock(&pool.lock);
    return found;
}

static void release_decoder(decoder *d, int group)
{
    pthread_mutex_lock(&pool.lock);
    d->busy = false;
    pthread_cond_signal(&pool.released[group]);
    pthread_mutex_unlock(&pool.lock);
}

/* ------------------------------------------------------------------------ an image */

static bool move_bytes(int fd, void *bytes, size_t size, size_t at, bool out)
{
    for (size_t done = 0; done < size;) {
        uint8_t *p = (uint8_t *)bytes + done;
        ssize_t n = out ? pwrite(fd, p, size - done, (off_t)(at + done)) : pread(fd, p, size - done, (off_t)(at + done));
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Takes the pixels of a reply, or the reason why there are none. */
static sfp_status take_reply(const decoder *d, const char *label, const sfp__decode_request *q, sfp__decode_reply *r,
                             sfp__image *out, sfp_error *err)
{
    r->message[sizeof r->message - 1] = '\0';
    for (char *c = r->message; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    if (r->status == SFP_ENOMEM) /* the memory limit of the decoder, not of the machine */
        return sfp__fail(err, SFP_ELIMIT, "%s: decoding needs more memory than an image may have", label);
    if (r->status)
        return sfp__fail(err, r->status == SFP_ELIMIT ? SFP_ELIMIT : SFP_EFORMAT, "%s%s", label, r->message);
    OWNED_BY(sfp__image_done) sfp__image im = {0};
    TRY(sfp__image_alloc(label, r->width, r->height, q->options.max_pixels, &im, err));
    size_t bytes = 3 * (size_t)im.width * (size_t)im.height;
    if (!move_bytes(d->memory, im.rgb, bytes, SFP__DECODE_BYTES_MAX, false))
        return sfp__fail_errno(err, SFP_EFORMAT, "%s: the pixels of its decoder cannot be read", label);
    if (q->size + bytes > KEPT_BYTES) /* frees the memory of large images */
        (void)fallocate(d->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)SFP__DECODE_SHARED);
    *out = TAKE(im);
    return SFP_OK;
}

static sfp_status decode_by(decoder *d, int group, const char *label, void *bytes, const sfp__decode_request *q, sfp__image *out,
                            sfp_error *err)
{
    for (int attempt = 0;; attempt++) {
        sfp__decode_reply r;
        if (!d->pid && start_decoder(d, err)) /* something may have killed the new process, too: try again */
            TRY(start_decoder(d, err));
        if (!move_bytes(d->memory, bytes, q->size, 0, true))
            return sfp__fail_errno(err, SFP_ENOMEM, "%s: no memory for a decoder", label);
        int got = send(d->channel, q, sizeof *q, MSG_NOSIGNAL) == (ssize_t)sizeof *q
                      ? receive(d, &r, sfp__monotonic_seconds() + deadline[group])
                      : 0;
        sfp_status status = got == 1 ? take_reply(d, label, q, &r, out, err) : SFP_EFORMAT;
        if (got == 1 && !r.worn)
            return status;
        int ended = stop_decoder(d), number = WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
        if (got == 1)
            return status;
        if (got < 0 || number == SIGXCPU)
            return sfp__fail(err, SFP_EFORMAT, "%s: decoding took too long", label);
        if (attempt == 1)
            return sfp__fail(err, SFP_EFORMAT, "%s: the decoder was ended at this image (signal %d%s)", label, number,
                             number == SIGSYS ? ": a forbidden system call" : "");
    }
}

static sfp_status decode(int group, const char *label, const void *bytes, size_t size, const sfp__image_options *opt,
                         sfp__image *out, sfp_error *err)
{
    size_t most = opt->max_bytes < SFP__DECODE_BYTES_MAX ? opt->max_bytes : SFP__DECODE_BYTES_MAX;
    if (size > most)
        return sfp__fail(err, SFP_ELIMIT, "%s: image has %zu bytes, expected at most %zu", label, size, most);
    sfp__decode_request q = {.size = size, .options = *opt};
    if (q.options.max_pixels > SFP__DECODE_PIXELS_MAX)
        q.options.max_pixels = SFP__DECODE_PIXELS_MAX;
    decoder *d = take_decoder(group);
    sfp_status status = decode_by(d, group, label, (void *)(uintptr_t)bytes, &q, out, err);
    release_decoder(d, group);
    return status;
}

/* Samples that a run learns also come from clients, so they are decoded by other processes, too. */
static sfp_status decode_for_run(const char *label, const void *bytes, size_t size, const sfp__image_options *opt,
                                 sfp__image *out, sfp_error *err)
{
    return decode(1, label, bytes, size, opt, out, err);
}

sfp_status sfp__decoders_start(sfp_log_fn log, sfp_error *err)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (sfp__landlock_version() == 0)
        log(NULL, SFP_LOG_INFO, "this kernel has no Landlock: decoders of images are confined by seccomp alone");
    TRY(start_decoder(&pool.list[0][0], err)); /* fails now on a machine where decoders cannot work */
    pool.list[0][0].busy = false;
    pool.count = processors < 2 ? 2 : processors > DECODERS_MAX ? DECODERS_MAX : (int)processors;
    sfp__image_set_decoder(decode_for_run);
    return SFP_OK;
}

void sfp__decoders_stop(void)
{
    sfp__image_set_decoder(NULL);
    for (int i = 0; i < 2 * pool.count; i++)
        if (pool.list[i % 2][i / 2].pid)
            (void)stop_decoder(&pool.list[i % 2][i / 2]);
    pool.count = 0;
}

/* --------------------------------------------------------------- images of requests */

enum { SMALL_PIXELS = 4 << 20, LARGE_PIXELS = 50000000, REQUEST_PIXELS = 100000000 };

/* Bounds the memory of decoded images. A thread may hold up to SMALL_PIXELS; to hold more it needs large_lock, so only one thread does. */
static pthread_mutex_t large_lock;
static _Thread_local int64_t held; /* pixels that this thread holds */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_lock(void)
{
    pthread_mutexattr_t recursive; /* a request may have several images */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&large_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void sfp__decoded_done(sfp__decoded *d)
{
    sfp__free(d->pixels);
    held -= (int64_t)d->image.width * d->image.height;
    if (d->large)
        pthread_mutex_unlock(&large_lock);
    *d = (sfp__decoded){0};
}

static sfp_status decode_within(const void *bytes, size_t size, int64_t most, sfp__image *out, sfp_error *err)
{
    sfp__image_options limits = sfp__image_options_defaults();
    limits.max_pixels = (size_t)most;
    return pool.count ? decode(0, "image", bytes, size, &limits, out, err)
                      : sfp__image_decode("image", bytes, size, &limits, out, err);
}

sfp_status sfp__serve_decode(const void *bytes, size_t size, sfp__decoded *out, sfp_error *err)
{
    sfp__image image = {0};
    sfp_error why = {0};
    pthread_once(&once, make_lock);
    sfp_status status = held < SMALL_PIXELS ? decode_within(bytes, size, SMALL_PIXELS - held, &image, &why) : SFP_ELIMIT;
    bool large = status == SFP_ELIMIT;
    if (large) {
        int64_t left = REQUEST_PIXELS - held;
        pthread_mutex_lock(&large_lock);
        status = left > 0 ? decode_within(bytes, size, left < LARGE_PIXELS ? left : LARGE_PIXELS, &image, &why) : SFP_ELIMIT;
        if (status == SFP_ELIMIT && left < LARGE_PIXELS)
            (void)snprintf(why.message, sizeof why.message, "the images have more than %d pixels together", REQUEST_PIXELS);
    }
    if (status && large)
        pthread_mutex_unlock(&large_lock);
    if (status)
        return sfp__fail(err, status, "%s", why.message);
    held += (int64_t)image.width * image.height;
    *out = (sfp__decoded){.image = {.format = SFP_IMAGE_RGB, .width = image.width, .height = image.height, .data = image.rgb},
                          .pixels = image.rgb,
                          .large = large};
    return SFP_OK;
}
