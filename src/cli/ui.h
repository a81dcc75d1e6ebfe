/* Talk: everything a command says on standard error, and how. Data goes to standard output and is not said here. */
#ifndef SFP_CLI_UI_H
#define SFP_CLI_UI_H

#include "base/error.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* "streamfp: ..." on standard error; a progress line in the way is wiped first. */
void sfp__info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says err's message; returns SFP_EXIT_FAILED, so that `return sfp__print_error(&err);` ends a command. */
int sfp__print_error(const sfp_error *err);
/* Says what is wrong with the command line and where help is; returns SFP_EXIT_USAGE. */
int sfp__usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text that came from a file: control characters and bytes that are no UTF-8 become '?', so that it cannot steer a terminal;
 * padded to `width` columns. */
void sfp__put_text(FILE *to, const char *text, int width);
/* The same in exactly `width` columns: of a longer one beginning and end are shown. */
void sfp__put_cell(FILE *to, const char *text, int width);
/* The same into `buf`, without padding. */
void sfp__cell_text(const char *text, int width, char *buf, size_t size);
/* Characters, not bytes. */
int sfp__text_width(const char *text);

/* Progress: a line (line.h) that a terminal shows first after a second; elsewhere now and then. */
typedef struct sfp__progress {
    const char *what; /* "images" */
    uint64_t total;   /* 0: not known */
    double begin, last;
    bool terminal, shown;
} sfp__progress;

void sfp__progress_init(sfp__progress *p, const char *what, uint64_t total);
void sfp__progress_update(sfp__progress *p, uint64_t done);
void sfp__progress_done(sfp__progress *p);

/* The line on standard error that tells how far something is. On a terminal it is rewritten in place and never wider than that:
 * what would make it wrap is left out, the least important first. Elsewhere, and on a terminal that cannot, it is a plain line
 * like any other. There is one at a time. */
enum { SFP_STATUS_LINE_PARTS = 16, SFP_STATUS_LINE_PART = 128 };

typedef struct sfp__status_line {
    struct {
        int priority;
        char text[SFP_STATUS_LINE_PART];
    } part[SFP_STATUS_LINE_PARTS]; /* in the order in which they are shown */
    int count;
} sfp__status_line;

/* Adds a part, with the blanks before it; more than SFP_STATUS_LINE_PARTS are left out. */
void sfp__status_line_add(sfp__status_line *l, int priority, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The parts of most worth that take `columns` together, in their order; never one that is worth less than one left out. */
void sfp__status_line_fit(const sfp__status_line *l, int columns, char *buf, size_t size);

/* Is standard error a terminal that rewrites lines? */
bool sfp__status_line_rewrites(void);
/* As the terminal is now; where it does not say, COLUMNS, else 80. */
int sfp__status_line_columns(void);

/* Instead of the line that is there. */
void sfp__status_line_show(const sfp__status_line *l);
/* Before anything else is written there. */
void sfp__status_line_wipe(void);
#define SFP_STATUS_LINE_WIPE "\r\033[K"

/* Ctrl-C for commands that work for hours: the first asks to finish the step and write a checkpoint, and says so; the second
 * leaves at once. */
/* From now on SIGINT and SIGTERM set what is returned. */
const volatile sig_atomic_t *sfp__stop_on_signals(void);

#endif
