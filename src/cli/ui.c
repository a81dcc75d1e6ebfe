#include "cli/ui.h"

#include "cli/command.h"

#include "base/monotonic.h"
#include "base/settings.h"
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_AFTER 1.0  /* seconds before a progress line appears on a terminal */
#define REDRAW_EVERY 0.2 /* seconds between two updates of the line */
#define PLAIN_EVERY 30.0 /* seconds between lines elsewhere */

/* Prints characters [from, to) of a text. */
static void put_characters(FILE *out, const char *text, int from, int to)
{
    bool shown;
    for (int at = 0, n; *text && at < to; at++, text += n) {
        n = sfp__utf8_shown(text, &shown);
        if (at >= from)
            (void)fprintf(out, "%.*s", shown ? n : 1, shown ? text : "?");
    }
}

void sfp__put_text(FILE *to, const char *text, int width)
{
    int n = sfp__text_width(text);
    put_characters(to, text, 0, INT_MAX);
    if (n < width)
        (void)fprintf(to, "%*s", width - n, "");
}

void sfp__put_cell(FILE *to, const char *text, int width)
{
    int n = sfp__text_width(text), head = (width - 3) / 2, tail = width - 3 - head;
    if (n <= width) {
        sfp__put_text(to, text, width);
        return;
    }
    put_characters(to, text, 0, head);
    (void)fputs("...", to);
    put_characters(to, text, n - tail, INT_MAX);
}

void sfp__cell_text(const char *text, int width, char *buf, size_t size)
{
    int n = sfp__text_width(text);
    FILE *f = fmemopen(buf, size, "w");
    buf[0] = '\0';
    if (!f)
        return;
    sfp__put_cell(f, text, n < width ? n : width);
    (void)fclose(f);
    buf[size - 1] = '\0';
}

/* Messages contain names of files and tensors, so they are untrusted text too. */
static void put_line(const char *prefix, const char *text)
{
    sfp__status_line_wipe();
    (void)fputs(prefix, stderr);
    sfp__put_text(stderr, text, 0);
    (void)fputc('\n', stderr);
}

static void put_message(const char *prefix, const char *fmt, va_list ap)
{
    char text[2 * SFP_ERROR_MAX];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    put_line(prefix, text);
}

void sfp__info(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_message("", fmt, ap);
    va_end(ap);
}

void sfp__warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_message("streamfp: warning: ", fmt, ap);
    va_end(ap);
}

void sfp__print_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)ctx;
    if (level == SFP_LOG_WARNING)
        sfp__warn("%s", message);
    else
        sfp__info("%s", message);
}

int sfp__print_error(const sfp_error *err)
{
    put_line("streamfp: ", err->message[0] ? err->message : sfp_status_text(err->status));
    return SFP__EXIT_FAILED;
}

int sfp__usage_error(const char *command, const char *fmt, ...)
{
    va_list ap;
    char prefix[64];
    va_start(ap, fmt);
    (void)snprintf(prefix, sizeof prefix, "streamfp%s%.40s: ", command ? " " : "", command ? command : "");
    put_message(prefix, fmt, ap);
    (void)fprintf(stderr, "Try 'streamfp%s%s --help'.\n", command ? " " : "", command ? command : "");
    va_end(ap);
    return SFP__EXIT_USAGE;
}

void sfp__progress_init(sfp__progress *p, const char *unit, uint64_t total)
{
    memset(p, 0, sizeof *p);
    p->unit = unit;
    p->total = total;
    p->begin = sfp__monotonic_seconds();
    p->last = p->begin;
    p->terminal = sfp__status_line_rewrites();
}

const char *sfp__eta_text(double seconds, char buf[SFP__ETA_MAX])
{
    long s = seconds > 0 ? (long)(fmin(seconds, 1e8) + 0.5) : 0;
    if (s >= 3600)
        (void)snprintf(buf, SFP__ETA_MAX, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(buf, SFP__ETA_MAX, "%ld:%02ld", s / 60, s % 60);
    return buf;
}

void sfp__progress_update(sfp__progress *p, uint64_t done)
{
    double now = sfp__monotonic_seconds(), past = now - p->begin;
    double wait = !p->terminal ? PLAIN_EVERY : p->shown ? REDRAW_EVERY : FIRST_AFTER;
    if (now - p->last < wait || done == 0 || past <= 0)
        return;
    p->last = now;
    p->shown = true;
    char eta[SFP__ETA_MAX];
    double rate = (double)done / past;
    sfp__status_line l = {0};
    sfp__status_line_add(&l, 3, "%llu", (unsigned long long)done);
    if (p->total)
        sfp__status_line_add(&l, 3, "/%llu", (unsigned long long)p->total);
    sfp__status_line_add(&l, 2, " %s", p->unit);
    sfp__status_line_add(&l, 0, "  rate %.1f/s", rate);
    if (p->total > done)
        sfp__status_line_add(&l, 1, "  ETA %s", sfp__eta_text((double)(p->total - done) / rate, eta));
    sfp__status_line_show(&l);
}

void sfp__progress_done(sfp__progress *p)
{
    (void)p;
    sfp__status_line_wipe();
}

/* ------------------------------------------------------------------- status line */

/* Not 0: the terminal shows a status line. The signal handler also reads it and sets it to 0. */
static volatile sig_atomic_t line_open;

void sfp__status_line_add(sfp__status_line *l, int priority, const char *fmt, ...)
{
    if (l->count == SFP__STATUS_LINE_PARTS)
        return;
    va_list ap;
    va_start(ap, fmt);
    l->part[l->count].priority = priority;
    (void)vsnprintf(l->part[l->count++].text, SFP__STATUS_LINE_PART, fmt, ap);
    va_end(ap);
}

/* An upper bound of the columns that a text needs: a character from U+1000 on, such as a Chinese one, counts as two. */
static int columns_of(const char *text)
{
    int n = sfp__text_width(text);
    for (; *text; text++)
        n += (unsigned char)*text >= 0xe1;
    return n;
}

void sfp__status_line_fit(const sfp__status_line *l, int columns, char *buf, size_t size)
{
    bool shown[SFP__STATUS_LINE_PARTS] = {false}, full = false;
    for (int left = columns; !full;) {
        int best = -1;
        for (int i = 0; i < l->count; i++)
            if (!shown[i] && (best < 0 || l->part[i].priority > l->part[best].priority))
                best = i;
        full = best < 0 || columns_of(l->part[best].text) > left;
        if (!full) {
            shown[best] = true;
            left -= columns_of(l->part[best].text);
        }
    }
    buf[0] = '\0';
    for (int i = 0; i < l->count; i++)
        if (shown[i])
            (void)strncat(buf, l->part[i].text, size - strlen(buf) - 1);
}

bool sfp__status_line_rewrites(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO) == 1;
}

int sfp__status_line_columns(void)
{
    struct winsize w;
    int64_t n;
    const char *given = getenv("COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return given && sfp__parse_int(given, &n) && n > 0 && n < 10000 ? (int)n : 80;
}

void sfp__status_line_show(const sfp__status_line *l)
{
    char text[SFP__STATUS_LINE_PARTS * SFP__STATUS_LINE_PART], out[sizeof text + sizeof SFP__STATUS_LINE_WIPE];
    bool rewrites = sfp__status_line_rewrites();
    /* the last column stays empty, because some terminals start a new row after writing to it */
    sfp__status_line_fit(l, rewrites ? sfp__status_line_columns() - 1 : INT_MAX, text, sizeof text);
    (void)snprintf(out, sizeof out, "%s%s%s", rewrites ? SFP__STATUS_LINE_WIPE : "", text, rewrites ? "" : "\n");
    line_open = rewrites; /* a signal may arrive before or after the write; one call writes the whole line, */
    (void)fwrite(out, 1, strlen(out), stderr); /* so that the handler never sees a part of it */
    line_open = rewrites;
}

void sfp__status_line_wipe(void)
{
    if (line_open)
        (void)fputs(SFP__STATUS_LINE_WIPE, stderr);
    line_open = 0;
}

/* --------------------------------------------------------------------- stopping */

static atomic_int stop;
static _Atomic(sfp_run *) stopped_run; /* NULL: none */

/* Stopping may take seconds, so the user must see immediately that Ctrl-C has an effect. */
static void print_stopping(void)
{
    static const char text[] = SFP__STATUS_LINE_WIPE "stopping after a checkpoint; press Ctrl-C again to exit immediately\n";
    size_t skip = line_open ? 0 : sizeof SFP__STATUS_LINE_WIPE - 1;
    int before = errno;
    ssize_t unused = write(STDERR_FILENO, text + skip, sizeof text - 1 - skip);
    (void)unused;
    errno = before;
    line_open = 0;
}

static void on_signal(int number)
{
    if (atomic_exchange(&stop, 1))
        _exit(128 + number); /* the last checkpoint is intact */
    sfp_run *run = atomic_load(&stopped_run);
    if (run)
        sfp_run_cancel(run);
    print_stopping();
}

void sfp__cancel_on_signals(sfp_run *run)
{
    atomic_store(&stopped_run, run);
    if (run && atomic_load(&stop))
        sfp_run_cancel(run);
}

const atomic_int *sfp__stop_on_signals(void)
{
    /* the handler has a stack of its own, because some libraries use the stack pointer for other data */
    static char stack[64 * 1024];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    /* a read that restarts loses nothing */
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void)sigaltstack(&alternate, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    return &stop;
}
