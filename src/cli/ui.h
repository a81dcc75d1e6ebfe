/* Messages and progress on standard error. Standard output is for data only. */
#ifndef SFP_CLI_UI_H
#define SFP_CLI_UI_H

#include "base/error.h"
#include "base/text.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Every message is one line. All functions erase the status line first and print control characters as '?'.
 *
 * Prints a note, which reports a normal event and has no prefix. */
void sfp__info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "streamfp: warning: FACT; CONSEQUENCE": data was skipped, excluded or changed. */
void sfp__warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The sfp_log_fn of the commands: sfp__info or sfp__warn. */
void sfp__print_log(void *ctx, sfp_log_level level, const char *message);
/* "streamfp: " and the message of err. Returns SFP__EXIT_FAILED, so that a command can end with `return
 * sfp__print_error(&err);`. */
int sfp__print_error(const sfp_error *err);
/* "streamfp COMMAND: ..." for a wrong command line, and a line that points to --help. Returns SFP__EXIT_USAGE. */
int sfp__usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints untrusted text, padded to `width` columns. Control characters and bytes that are not UTF-8 become '?', so that the text
 * cannot control the terminal. */
void sfp__put_text(FILE *to, const char *text, int width);
/* Like sfp__put_text, in exactly `width` columns: the middle of a longer text is replaced by "...". */
void sfp__put_cell(FILE *to, const char *text, int width);
/* Like sfp__put_cell, but writes to `buf` and does not pad. */
void sfp__cell_text(const char *text, int width, char *buf, size_t size);

/* The progress of a command: "DONE/TOTAL UNIT  rate R/s  ETA 1:05" in the status line. A terminal shows it after one second;
 * elsewhere a line is printed every 30 seconds. */
typedef struct sfp__progress {
    const char *unit; /* "images" */
    uint64_t total;   /* 0: unknown */
    double begin, last;
    bool terminal, shown;
} sfp__progress;

void sfp__progress_init(sfp__progress *p, const char *unit, uint64_t total);
void sfp__progress_update(sfp__progress *p, uint64_t done);
void sfp__progress_done(sfp__progress *p);
/* Writes the time left as "1:05" or, from one hour on, "2:01:05". Returns buf. */
enum { SFP__ETA_MAX = 24 };
const char *sfp__eta_text(double seconds, char buf[SFP__ETA_MAX]);

/* The status line shows progress on standard error. A terminal rewrites it in place. It is never wider than the terminal: parts
 * that do not fit are omitted, those with the lowest priority first. Elsewhere, and on a terminal that cannot rewrite lines, each
 * state is printed as a normal line. There is only one status line. */
enum { SFP__STATUS_LINE_PARTS = 16, SFP__STATUS_LINE_PART = 128 };

typedef struct sfp__status_line {
    struct {
        int priority;
        char text[SFP__STATUS_LINE_PART];
    } part[SFP__STATUS_LINE_PARTS]; /* in the order in which they are shown */
    int count;
} sfp__status_line;

/* Adds a part; its text includes the blanks before it. Parts after the first SFP__STATUS_LINE_PARTS are ignored. */
void sfp__status_line_add(sfp__status_line *l, int priority, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Writes the parts that fit into `columns`, in their order. A part is omitted if one with a higher priority is omitted. */
void sfp__status_line_fit(const sfp__status_line *l, int columns, char *buf, size_t size);

/* true: standard error is a terminal that can rewrite lines. */
bool sfp__status_line_rewrites(void);
/* The current width of the terminal; if it is unknown, COLUMNS from the environment, else 80. */
int sfp__status_line_columns(void);

/* Replaces the status line. */
void sfp__status_line_show(const sfp__status_line *l);
/* Erases the status line; call it before other output to standard error. */
void sfp__status_line_wipe(void);
#define SFP__STATUS_LINE_WIPE "\r\033[K"

/* Handles Ctrl-C for commands that run for hours. The first SIGINT or SIGTERM sets the returned flag, so that the command
 * completes its current timestamp or step and writes a checkpoint; a message reports it. The second exits immediately. */
const atomic_int *sfp__stop_on_signals(void);
/* The first signal also cancels this run, at once if it has already arrived. Call it with NULL before the run is closed. */
void sfp__cancel_on_signals(sfp_run *run);

#endif
