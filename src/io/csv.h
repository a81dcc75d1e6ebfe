/* What lists have of CSV in common: a field in quotes. How fields make a record is each list's own. */
#ifndef SFP_IO_CSV_H
#define SFP_IO_CSV_H

#include <stddef.h>

/* A quoted field from behind its first quote, doubled quotes single: *n bytes to `to`, which has room for end - at or is `at`
 * itself. Returns the place behind its last quote; NULL: it does not end. */
const char *sfp__csv_quoted(const char *at, const char *end, char *to, size_t *n);

#endif
