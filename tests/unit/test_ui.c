/* Text of others on a terminal: it steers nothing and keeps its columns; the line of a run's progress. */
#include "cli/run_progress.h"
#include "cli/ui.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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

static void control_characters_do_not_reach_a_terminal(void **unused)
{
    (void)unused;
    put_text("a\x1b[2J\n\x7f", "a?[2J??");
    put_text("\xc2\x9b"
             "31m\xc2\x80\xc2\x9f\xc2\xa0",
             "?31m??\xc2\xa0"); /* U+009B is a whole ESC [ */
    put_text("\x9b"
             "31m",
             "?31m");
    put_text("K\xc3\xa4se \xe4\xb8\xad\xf0\x9f\x98\x80", "K\xc3\xa4se \xe4\xb8\xad\xf0\x9f\x98\x80");
    put_text("\xc3", "?"); /* cut */
    put_text("\xf0\x9f\x98", "???");
    put_text("\xff\xc0\xaf", "???");
}

static void cells_are_cut_between_characters(void **unused)
{
    (void)unused;
    put_cell("\xc3\xa4\xc3\xb6", 4, "\xc3\xa4\xc3\xb6  ");
    put_cell("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f", 6, "\xc3\xa4...\xc3\xbc\xc3\x9f");
    put_cell("\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b\xc2\x9b", 5, "?...?");
}

static void check_line(const sfp_run_progress *p, const char *want)
{
    FILE *f = begin();
    sfp__put_run_progress(f, p);
    end(f, want);
}

static void the_line_of_a_run(void **unused)
{
    (void)unused;
    sfp_run_progress p = {.task = 1,
                          .tasks = 3,
                          .task_name = "photo",
                          .offered = 50,
                          .total = 200,
                          .rate = 12.34,
                          .lag = NAN,
                          .loss = NAN,
                          .accuracy = NAN,
                          .seconds = 30};
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 1:30");
    p.from = 40; /* of the 30 seconds none is of those before */
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 7:30");
    p.from = 50;
    check_line(&p, "task 2 of 3 (photo)  50/200  12.3/s  ETA 0:00");
    p.task_name = "task 7";
    p.from = p.total = 0;
    p.lag = 0.5;
    p.loss = 1;
    p.accuracy = 0.25;
    check_line(&p, "50 samples  12.3/s  lag 0.50 s  loss 1.000  accuracy 0.250");
    p.total = p.offered;
    check_line(&p, "task 2 of 3  50/50  12.3/s  lag 0.50 s  loss 1.000  accuracy 0.250  ETA 0:00");
    p.task_name = "\x1b]0;mine\x07\xc2\x9b"
                  "2J\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
                  "\xa4\xc3\xa4";
    p.lag = p.loss = p.accuracy = NAN;
    check_line(
        &p, "task 2 of 3 (?]0;mine??...\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4)"
            "  50/50  12.3/s  ETA 0:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
        cmocka_unit_test(cells_are_cut_between_characters),
        cmocka_unit_test(the_line_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
