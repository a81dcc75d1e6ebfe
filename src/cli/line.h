/* The line on standard error that tells how far something is. On a terminal it is rewritten in place and never wider than that:
 * what would make it wrap is left out, the least important first. Elsewhere, and on a terminal that cannot, it is a plain line
 * like any other. There is one at a time. */
#ifndef SFP_CLI_LINE_H
#define SFP_CLI_LINE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { SFP_LINE_PARTS = 16, SFP_LINE_PART = 128 };

typedef struct sfp_line {
    struct {
        int worth;
        char text[SFP_LINE_PART];
    } part[SFP_LINE_PARTS]; /* in the order in which they are shown */
    int count;
} sfp_line;

/* Adds a part, with the blanks before it; more than SFP_LINE_PARTS are left out. */
void sfp__line_add(sfp_line *l, int worth, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The parts of most worth that take `columns` together, in their order; never one that is worth less than one left out. */
void sfp__line_fit(const sfp_line *l, int columns, char *buf, size_t size);

/* Is standard error a terminal that rewrites lines? */
bool sfp__line_rewrites(void);
/* As the terminal is now; where it does not say, COLUMNS, else 80. */
int sfp__line_columns(void);

/* Instead of the line that is there. */
void sfp__line_show(const sfp_line *l);
/* Before anything else is written there. */
void sfp__line_wipe(void);
#define SFP_LINE_WIPE "\r\033[K"
/* Not 0: there is one to wipe. For signal handlers, which may set it to 0. */
extern volatile sig_atomic_t sfp__line_open;

#endif
