/* The decoder process: this program, started again, so that it has no data of the service in its memory. It reads encoded bytes from memory that
 * it shares with the service, and writes pixels there. An attacker who uses a bug in an image decoder only controls a process that can compute
 * and reply on one socket. It cannot open files, connect, start programs or read the memory of the service, and limits of memory and time end it.
 *
 * seccomp restricts the system calls. Landlock, if the kernel has it, additionally forbids access to files. A build with sanitizers has neither a
 * seccomp filter nor a limit of memory, because sanitizers map memory and write reports. */
#include "serve/internal.h"

#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL = 0, MEMORY = 1 };               /* descriptors of a decoder */
enum { CPU_SECONDS = 40, RETIRE_SECONDS = 20 }; /* replaced after RETIRE_SECONDS, so only one slow image can reach CPU_SECONDS */
#ifdef SFP__SANITIZED
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif
static const size_t memory_bytes = (size_t)896 << 20; /* a progressive CMYK image of 50 megapixels needs 700 MB */

/* -------------------------------------------------------------------------- limits */

static size_t mapped_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    if (!f || fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        (void)fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Sets a limit, unless a lower one is set already. */
static bool set_limit(int what, rlim_t soft, rlim_t hard)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)what, &now) != 0)
        return false;
    now.rlim_cur = soft < now.rlim_cur ? soft : now.rlim_cur;
    now.rlim_max = hard < now.rlim_max ? hard : now.rlim_max;
    return setrlimit((__rlimit_resource_t)what, &now) == 0;
}

static sfp_status set_limits(sfp_error *err)
{
    bool good = set_limit(RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 5) && set_limit(RLIMIT_CORE, 0, 0) &&
                set_limit(RLIMIT_NPROC, 0, 0) && set_limit(RLIMIT_FSIZE, 0, 0);
    if (!sanitized) {
        size_t bytes = mapped_bytes() + memory_bytes;
        good = good && set_limit(RLIMIT_AS, bytes, bytes);
    }
    return good ? SFP_OK : sfp__fail_errno(err, SFP_ELIBRARY, "cannot limit the memory and time of a decoder");
}

/* ------------------------------------------------------------------------ Landlock */

/* This section uses system calls directly, because the C library has no functions for Landlock. Returns its version; 0: not available. */
int sfp__landlock_version(void)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, 1U);
    return version > 0 ? (int)version : 0;
}

/* Forbids everything that the Landlock of this kernel can forbid: the set of rights is complete, and no rule is added. */
static sfp_status use_landlock(sfp_error *err)
{
    static const int file_rights[] = {13, 14, 15, 15, 16}; /* number of file rights in Landlock version 1, 2, ... */
    int version = sfp__landlock_version();
    if (version == 0)
        return SFP_OK;
    struct {
        uint64_t files, net;
    } rights = {(UINT64_C(1) << file_rights[version < 5 ? version - 1 : 4]) - 1, 3};
    size_t size = version < 4 ? sizeof rights.files : sizeof rights;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &rights, size, 0U);
    long failed = rules < 0 ? -1 : syscall(SYS_landlock_restrict_self, rules, 0U);
    if (rules >= 0)
        (void)close(rules);
    return failed ? sfp__fail_errno(err, SFP_ELIBRARY, "cannot confine a decoder by Landlock") : SFP_OK;
}

/* ------------------------------------------------------------------------- seccomp */

#ifndef SFP__SANITIZED
/* Allows the system calls that decoding needs: memory that is not executable, the clock, the channel, exit. Any other ends the process. */
static int add_rules(scmp_filter_ctx f)
{
    static const int calls[] = {SCMP_SYS(brk),   SCMP_SYS(munmap),        SCMP_SYS(mremap),       SCMP_SYS(madvise),
                                SCMP_SYS(futex), SCMP_SYS(clock_gettime), SCMP_SYS(rt_sigreturn), SCMP_SYS(exit_group)};
    int failed = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        failed |= seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
    failed |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
                               SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    failed |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    failed |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(recvfrom), 1, SCMP_A0(SCMP_CMP_EQ, CHANNEL));
    failed |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 2, SCMP_A0(SCMP_CMP_EQ, CHANNEL), SCMP_A4(SCMP_CMP_EQ, 0));
    return failed;
}

static sfp_status use_seccomp(sfp_error *err)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int failed = !f || add_rules(f) || seccomp_load(f);
    seccomp_release(f);
    return failed
               ? sfp__fail(err, SFP_ELIBRARY, "cannot confine a decoder by seccomp; --sandbox off decodes in the service itself")
               : SFP_OK;
}
#else
static sfp_status use_seccomp(sfp_error *err)
{
    (void)err;
    return SFP_OK;
}
#endif

sfp_status sfp__sandbox_enter(sfp_error *err)
{
    TRY(set_limits(err));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return sfp__fail_errno(err, SFP_ELIBRARY, "cannot confine a decoder");
    TRY(use_landlock(err));
    (void)set_limit(RLIMIT_NOFILE, 0, 0);
    return use_seccomp(err);
}

/* ------------------------------------------------------------------------- process */

static bool is_worn(void)
{
    struct timespec used;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0 || used.tv_sec >= RETIRE_SECONDS;
}

static sfp__decode_reply decode(const sfp__decode_request *q, uint8_t *shared)
{
    sfp__decode_reply r = {0};
    sfp__image image = {0};
    sfp_error err = {0};
    if (q->size > SFP__DECODE_BYTES_MAX || q->options.max_pixels > SFP__DECODE_PIXELS_MAX)
        r.status = SFP_EINVAL;
    else
        r.status = sfp__image_decode("", shared, q->size, &q->options, &image, &err);
    memcpy(r.message, err.message, sizeof r.message);
    if (r.status == SFP_OK) {
        r.width = image.width;
        r.height = image.height;
        if (image.rgb != shared + SFP__DECODE_BYTES_MAX) /* turning the image upright has moved it to other memory */
            memcpy(shared + SFP__DECODE_BYTES_MAX, image.rgb, 3 * (size_t)image.width * (size_t)image.height);
    }
    sfp__image_done(&image);
    r.worn = is_worn();
    return r;
}

static uint8_t *prepare(sfp_error *err)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                  SIGPIPE}; /* only the service ends a decoder: it closes the channel */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)signal(ignored[i], SIG_IGN);
    (void)prctl(PR_SET_NAME, "sfp-decoder");
    void *shared = mmap(NULL, SFP__DECODE_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0);
    (void)close(MEMORY);
    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    if (shared == MAP_FAILED) {
        (void)sfp__fail_errno(err, SFP_ENOMEM, "cannot map the memory of a decoder");
        return NULL;
    }
    sfp__image_set_memory((uint8_t *)shared + SFP__DECODE_BYTES_MAX, 3 * SFP__DECODE_PIXELS_MAX);
    return sfp__sandbox_enter(err) ? NULL : shared;
}

void sfp__decoder_main(void)
{
    sfp_error err = {0};
    sfp__decode_request q;
    uint8_t *shared = prepare(&err);
    sfp__decode_reply r = {.status = err.status};
    memcpy(r.message, err.message, sizeof r.message);
    while (send(CHANNEL, &r, sizeof r, MSG_NOSIGNAL) == (ssize_t)sizeof r && shared &&
           recv(CHANNEL, &q, sizeof q, 0) == (ssize_t)sizeof q)
        r = decode(&q, shared);
}
