/* A JSON writer, to a text in memory or directly to a file, so that a result about a million images needs no memory. It writes commas, quotes and
 * brackets itself.
 *
 *     sfp__json j = {.text = &t};
 *     sfp__json_object(&j, NULL);               the root
 *     sfp__json_int(&j, "task", 3);
 *     sfp__json_array(&j, "loss");
 *     sfp__json_exact(&j, NULL, 0.25);
 *     sfp__json_end_all(&j);                    {"task":3,"loss":[0.25]} */
#ifndef SFP_IO_JSON_WRITE_H
#define SFP_IO_JSON_WRITE_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SFP__JSON_DEPTH 16

/* The separators between the members of an object or array. A NULL form means {"", ",", ":", ""}: all on one line. */
typedef struct sfp__json_form {
    const char *first, *between; /* before the first member, before each other member */
    const char *colon;
    const char *last; /* before the closing bracket */
} sfp__json_form;

typedef struct sfp__json {
    sfp__text *text; /* the output: either text or file; neither: nothing is written */
    FILE *file;
    bool one_line; /* everything is written on one line: forms are ignored */
    int depth;
    struct {
        bool array, any;
        const sfp__json_form *form;
    } level[SFP__JSON_DEPTH];
} sfp__json;

/* Begins to write to a file and opens the root object. */
void sfp__json_begin(sfp__json *j, FILE *to);
/* Closes all open objects and arrays, so that even a failed command prints a complete object, and ends the line. */
void sfp__json_end_all(sfp__json *j);

/* `key` is NULL for the root and inside an array. */
void sfp__json_object(sfp__json *j, const char *key);
void sfp__json_array(sfp__json *j, const char *key);
void sfp__json_object_as(sfp__json *j, const char *key, const sfp__json_form *form);
void sfp__json_array_as(sfp__json *j, const char *key, const sfp__json_form *form);
void sfp__json_end(sfp__json *j); /* closes the innermost object or array */

void sfp__json_string(sfp__json *j, const char *key, const char *value); /* NULL: null */
void sfp__json_bool(sfp__json *j, const char *key, bool value);
void sfp__json_int(sfp__json *j, const char *key, int64_t value);
void sfp__json_uint(sfp__json *j, const char *key, uint64_t value);

/* Numbers for programs: the shortest digits that are read back as the same number. In all functions below NaN and infinities
 * become null. */
void sfp__json_exact(sfp__json *j, const char *key, double value);
void sfp__json_exact_float(sfp__json *j, const char *key, float value);
/* Numbers for people: 9 or 7 digits (0.485, not 0.485000014). */
void sfp__json_real(sfp__json *j, const char *key, double value);
void sfp__json_float(sfp__json *j, const char *key, float value);
/* A value formatted with printf, of less than 64 bytes; it must be valid JSON. */
void sfp__json_printf(sfp__json *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A value that is JSON already. */
void sfp__json_raw(sfp__json *j, const char *key, const char *json);

/* Appends a quoted JSON string to a text. Invalid UTF-8 bytes become U+FFFD. */
void sfp__text_json(sfp__text *t, const char *s);

#endif
