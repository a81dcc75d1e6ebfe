/* Reading a text file line by line, and the fields of CSV.
 *
 *     OWNED_BY(sfp__lines_done) sfp__lines l = {0};
 *     TRY(sfp__lines_open(path, "one class name per line", &l, err));
 *     for (char *line;;) {
 *         TRY(sfp__lines_next(&l, &line, err));
 *         if (!line)
 *             break; */
#ifndef SFP_IO_LINES_H
#define SFP_IO_LINES_H

#include "io/file.h"

#define SFP__LINE_MAX 65536 /* maximum bytes of a line, with the terminator */

typedef struct sfp__lines {
    const char *path, *expected; /* for messages */
    uint64_t number;             /* number of the last line read, from 1 */
    FILE *f;
    char *line; /* (SFP__LINE_MAX) */
} sfp__lines;

/* Opens a regular file, which may be empty, or a pipe passed by a shell. Both strings must outlive the reader. */
sfp_status sfp__lines_open(const char *path, const char *expected, sfp__lines *out, sfp_error *err);
/* Reads the next line; NULL: no more lines. The line is terminated and has no line end, trailing blanks or byte order mark. It is
 * valid until the next call, and the caller may change it. A NUL byte or a line that is too long is an error: "PATH:3: found a
 * zero byte, expected ...". */
sfp_status sfp__lines_next(sfp__lines *l, char **line, sfp_error *err);
void sfp__lines_done(sfp__lines *l);

/* Copies a quoted CSV field that begins after its first quote; doubled quotes become single. `to` receives *n bytes and must have
 * space for end - at bytes; it may equal `at`. Returns the position after the closing quote; NULL: the quote is not closed. */
const char *sfp__csv_quoted(const char *at, const char *end, char *to, size_t *n);

/* Extracts the field at *at in place: terminates it, removes quotes and halves doubled ones. *at moves past the comma; NULL after
 * the last field. Returns false if a quote is not closed. */
bool sfp__csv_field(char **at, char **field);

#endif
