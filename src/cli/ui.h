/* Talk: everything a command says on standard error, and how. Data goes to standard output and is not said here. */
#ifndef SFP_CLI_UI_H
#define SFP_CLI_UI_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* "streamfp: ..." on standard error; a progress line in the way is wiped first. */
void sfp__say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says err's message; returns SFP_EXIT_FAILED, so that `return sfp__say_error(&err);` ends a command. */
int sfp__say_error(const sfp_error *err);
/* Says what is wrong with the command line and where help is; returns SFP_EXIT_USAGE. */
int sfp__say_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text that came from a file: control characters and bytes that are no UTF-8 become '?', so that it cannot steer a terminal; padded to `width` columns. */
void sfp__put_text(FILE *to, const char *text, int width);
/* The same in exactly `width` columns: of a longer one beginning and end are shown. */
void sfp__put_cell(FILE *to, const char *text, int width);
/* The same into `buf`, without padding. */
void sfp__cell_text(const char *text, int width, char *buf, size_t size);
/* Characters, not bytes. */
int sfp__text_width(const char *text);

/* Colour only on a terminal and without NO_COLOR; both return "" otherwise. */
const char *sfp__color_good(FILE *to);
const char *sfp__color_bad(FILE *to);
const char *sfp__color_off(FILE *to);

/* Seconds of a clock that never goes back. */
double sfp__seconds(void);

/* Progress: a line (line.h) that a terminal shows first after a second; elsewhere now and then. */
typedef struct sfp_progress {
    const char *what; /* "images" */
    uint64_t total;   /* 0: not known */
    double begin, last;
    bool terminal, shown;
} sfp_progress;

void sfp__progress_init(sfp_progress *p, const char *what, uint64_t total);
void sfp__progress_tell(sfp_progress *p, uint64_t done);
void sfp__progress_done(sfp_progress *p);

#endif
