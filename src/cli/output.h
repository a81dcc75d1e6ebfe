/* What a command prints on standard output: as text for people or, with --json, as one object on one line. A command says all of
 * it once; each call below tells to which of the two it goes. `json` of a text takes calls too, and writes nothing. */
#ifndef SFP_CLI_OUTPUT_H
#define SFP_CLI_OUTPUT_H

#include "io/json_write.h"

typedef struct sfp__out {
    bool text;
    int width; /* columns of a row's label */
    sfp__json json;
} sfp__out;

void sfp__out_begin(sfp__out *o, bool json, int width);
void sfp__out_end(sfp__out *o);

/* Text alone. */
void sfp__out_printf(const sfp__out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "LABEL  VALUE" and the end of the line; what is in the value cannot steer a terminal. */
void sfp__out_row(const sfp__out *o, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As sfp__put_cell. */
void sfp__out_cell(const sfp__out *o, const char *text, int width);

/* A row of the text and a member of the object. */
void sfp__out_string(sfp__out *o, const char *key, const char *label, const char *value);

#endif
