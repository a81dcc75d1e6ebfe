/* Prints the results of a command on standard output: as text or, with --json, as one JSON object on one line. A command calls
 * the functions for both forms; those for the other form do nothing. In text form, calls on `json` are allowed and print
 * nothing. */
#ifndef SFP_CLI_OUTPUT_H
#define SFP_CLI_OUTPUT_H

#include "io/json_write.h"

typedef struct sfp__out {
    bool text;
    int width; /* columns of the label in a row */
    sfp__json json;
} sfp__out;

void sfp__out_begin(sfp__out *o, bool json, int width);
void sfp__out_end(sfp__out *o);

/* These three functions print nothing with --json. */
void sfp__out_printf(const sfp__out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the line "LABEL  VALUE"; control characters in the value become '?'. */
void sfp__out_row(const sfp__out *o, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Prints a cell of this width as sfp__put_cell does. */
void sfp__out_cell(const sfp__out *o, const char *text, int width);

/* Prints a row of the text or a member of the JSON object. */
void sfp__out_string(sfp__out *o, const char *key, const char *label, const char *value);

#endif
