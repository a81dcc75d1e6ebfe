/* Lines of a text file, one after another, and the fields of CSV.
 *
 *     OWNED_BY(sfp__lines_done) sfp__lines l = {0};
 *     TRY(sfp__lines_open(path, "one class name a line", &l, err));
 *     for (char *line;;) {
 *         TRY(sfp__lines_next(&l, &line, err));
 *         if (!line)
 *             break; */
#ifndef SFP_IO_LINES_H
#define SFP_IO_LINES_H

#include "io/file.h"

#define SFP_LINE_MAX 65536 /* bytes of a line */

typedef struct sfp__lines {
    const char *path, *expected; /* for messages */
    uint64_t number;             /* of the line that was read last, from 1 */
    FILE *f;
    char *line; /* (SFP_LINE_MAX) */
} sfp__lines;

/* A regular file, perhaps empty, or a pipe that a shell hands over; both texts must outlive it. */
sfp_status sfp__lines_open(const char *path, const char *expected, sfp__lines *out, sfp_error *err);
/* The next line, for the caller to change until the one after: terminated, without its end, blanks before that and a byte order
 * mark before the first. NULL behind the last. A NUL byte in it or too many bytes: "PATH:3: found a zero byte, expected ...". */
sfp_status sfp__lines_next(sfp__lines *l, char **line, sfp_error *err);
void sfp__lines_done(sfp__lines *l);

/* A quoted field from behind its first quote, doubled quotes single: *n bytes to `to`, which has space for end - at or is `at`
 * itself. Returns the place behind its last quote; NULL: it does not end. */
const char *sfp__csv_quoted(const char *at, const char *end, char *to, size_t *n);

/* Cuts the field at *at off in place: terminated, quotes gone, doubled ones single. *at moves behind the comma, to NULL after the
 * last field. False when a quote is not closed. */
bool sfp__csv_field(char **at, char **field);

#endif
