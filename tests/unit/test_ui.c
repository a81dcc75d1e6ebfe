/* Foreign text on a terminal: control characters are replaced and columns stay aligned. Also the progress line. */
#include "cli/commands/run.h"
#include "cli/ui.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "test.h"

static char text[512];

static FILE *begin(void)
{
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_non_null(f);
    return f;
}

static void end(FILE *f, const char *want)
{
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
}

static void put_text(const char *given, const char *want)
{
    FILE *f = begin();
    sfp__put_text(f, given, 0);
    end(f, want);
}

static void put_cell(const char *given, int width, const char *want)
{
    FILE *f = begin();
    sfp__put_cell(f, given, width);
    end(f, want);
    assert_int_equal(sfp__text_width(text), width);
}

TEST(control_characters_do_not_reach_a_terminal)
{
    put_text("a\x1b[2J\n\x7f", "a?[2J??");
    put_text("\xc2\23331m\xc2\x80\xc2\x9f\xc2\xa0", "?31m??\xc2\xa0"); /* U+009B is equivalent to ESC [ */
    put_text("\23331m", "?31m");
    put_text("K\xc3\xa4se \xe4\xb8\xad\xf0\x9f\x98\x80", "K\xc3\xa4se \xe4\xb8\xad\xf0\x9f\x98\x80");
    put_text("\xc3", "?"); /* truncated */
    put_text("\xf0\x9f\x98", "???");
    put_text("\xff\xc0\xaf", "???");
}

TEST(cells_are_cut_between_characters)
{
    put_cell("\xc3\xa4\xc3\xb6", 4, "\xc3\xa4\xc3\xb6  ");
    put_cell("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f", 6, "\xc3\xa4...\xc3\xbc\xc3\x9f");
    put_cell("\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b", 5, "?...?");
}

static void check_columns(const sfp_run_progress *p, int columns, const char *want)
{
    sfp__status_line l;
    sfp__run_progress_line(p, &l);
    sfp__status_line_fit(&l, columns, text, sizeof text);
    assert_string_equal(text, want);
    assert_true(sfp__text_width(text) <= columns);
}

static void check_line(const sfp_run_progress *p, const char *want)
{
    check_columns(p, INT_MAX, want);
}

TEST(the_line_of_a_run)
{
    sfp_run_progress p = {.task = 1, .tasks = 3, .task_name = "photo", .offered = 50, .total = 200, .rate = 12.34, .seconds = 30};
    p.lag = p.loss = p.accuracy = NAN;
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 1:30");
    p.offered_before = 40; /* the first 40 samples belong to an earlier process: this one processed 10 in 30 s */
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 7:30");
    p.offered_before = 50;
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 0:00");
    p.task_name = "task 7";
    p.offered_before = p.total = 0;
    p.lag = 0.5;
    p.loss = 1;
    p.accuracy = 0.25;
    check_line(&p, "50 samples  12.3/s  lag 0.50 s  loss 1.000  accuracy 0.250");
    p.total = p.offered;
    check_line(&p, "task 2 of 3  50/50  12.3/s  lag 0.50 s  loss 1.000  accuracy 0.250  ETA 0:00");
    p.task_name = "\x1b]0;"
                  "mine\x07\xc2\2332J\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
                  "\xa4\xc3\xa4\xc3"
                  "\xa4\xc3\xa4";
    p.lag = p.loss = p.accuracy = NAN;
    check_line(
        &p, "task 2 of 3 (?]0;mine??...\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4)"
            "  50/50  12.3/s  ETA 0:00");
}

TEST(the_line_of_a_measurement)
{
    sfp_run_progress p = {.task_name = "", .offered = 100, .total = 500, .seconds = 20};
    p.rate = p.lag = p.loss = p.accuracy = NAN;
    check_line(&p, "measuring the processing time: 100/500 batches  ETA 1:20");
}

TEST(a_narrow_terminal_shows_the_most_important_fields)
{
    sfp_run_progress p = {.task = 1, .tasks = 10, .task_name = "photo", .offered = 12345, .total = 60000, .seconds = 60};
    p.rate = 123.4;
    p.lag = 0.5;
    p.loss = 1;
    p.accuracy = 0.25;
    check_line(&p, "task 2 of 10 (photo)  12345/60000  123.4/s  lag 0.50 s  loss 1.000  accuracy 0.250  ETA 3:51");
    check_columns(&p, 91, "task 2 of 10 (photo)  12345/60000  123.4/s  lag 0.50 s  accuracy 0.250  ETA 3:51");
    check_columns(&p, 79, "task 2 of 10 (photo)  12345/60000  123.4/s  accuracy 0.250  ETA 3:51");
    check_columns(&p, 67, "task 2 of 10 (photo)  12345/60000  accuracy 0.250  ETA 3:51");
    check_columns(&p, 58, "task 2 of 10  12345/60000  accuracy 0.250  ETA 3:51");
    check_columns(&p, 45, "task 2 of 10  12345/60000  accuracy 0.250");
    check_columns(&p, 40, "task 2 of 10  12345/60000");
    check_columns(&p, 12, "task 2 of 10");
    check_columns(&p, 11, "");
    p.task_name = "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad"; /* two columns per character */
    check_columns(&p, 59, "task 2 of 10  12345/60000  accuracy 0.250  ETA 3:51");
    check_columns(&p, 60, "task 2 of 10 (\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad)  12345/60000  accuracy 0.250  ETA 3:51");
}

/* ------------------------------------------------------------- on a terminal */

typedef struct terminal {
    int master, stderr_before;
} terminal;

static terminal open_terminal(void)
{
    terminal t = {.master = posix_openpt(O_RDWR | O_NOCTTY), .stderr_before = dup(STDERR_FILENO)};
    assert_true(t.master >= 0 && t.stderr_before >= 0);
    assert_int_equal(grantpt(t.master), 0);
    assert_int_equal(unlockpt(t.master), 0);
    int slave = open(ptsname(t.master), O_RDWR | O_NOCTTY); /* NOLINT(concurrency-mt-unsafe): one thread */
    assert_true(slave >= 0 && dup2(slave, STDERR_FILENO) == STDERR_FILENO);
    assert_int_equal(close(slave), 0);
    return t;
}

static void close_terminal(const terminal *t)
{
    assert_int_equal(dup2(t->stderr_before, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(close(t->stderr_before), 0);
    assert_int_equal(close(t->master), 0);
}

static void resize(const terminal *t, int columns)
{
    const struct winsize w = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(t->master, TIOCSWINSZ, &w), 0);
}

/* Checks the text that was written to the terminal since the last call. */
static void shown(const terminal *t, const char *want)
{
    size_t n = 0;
    struct pollfd wait = {.fd = t->master, .events = POLLIN};
    while (n < strlen(want) && poll(&wait, 1, 10000) == 1) { /* the kernel delivers it in pieces */
        ssize_t got = read(t->master, text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    text[n] = '\0';
    assert_string_equal(text, want);
}

static void show(void)
{
    sfp__status_line l = {0};
    sfp__status_line_add(&l, 2, "first");
    sfp__status_line_add(&l, 0, "  minor");
    sfp__status_line_add(&l, 1, "  last");
    sfp__status_line_show(&l);
}

TEST(the_line_is_rewritten_and_follows_the_width)
{
    terminal t = open_terminal();
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    resize(&t, 80);
    show();
    shown(&t, "\r\033[Kfirst  minor  last");
    resize(&t, 18); /* one column too few: the last column stays free */
    show();
    shown(&t, "\r\033[Kfirst  last");
    sfp__info("heard");
    shown(&t, "\r\033[Kheard\r\n");
    resize(&t, 0); /* the terminal does not report its width */
    assert_int_equal(setenv("COLUMNS", "8", 1), 0);
    show();
    shown(&t, "\r\033[Kfirst");
    sfp__status_line_wipe();
    shown(&t, "\r\033[K");
    assert_int_equal(unsetenv("COLUMNS"), 0);
    assert_int_equal(sfp__status_line_columns(), 80);
    close_terminal(&t);
}

TEST(a_dumb_terminal_gets_plain_lines)
{
    terminal t = open_terminal();
    resize(&t, 10);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    show();
    shown(&t, "first  minor  last\r\n");
    assert_int_equal(unsetenv("TERM"), 0);
    show();
    shown(&t, "first  minor  last\r\n");
    sfp__status_line_wipe();
    sfp__info("heard");
    shown(&t, "heard\r\n");
    close_terminal(&t);
}
