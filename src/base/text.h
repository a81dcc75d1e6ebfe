/* Text: names made safe to print, a growing string, UTF-8, lists of strings. */
#ifndef SFP_BASE_TEXT_H
#define SFP_BASE_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a name in a message; a longer name is shortened and ends in "...". */
#define SFP__NAME_MAX 160

/* Copies `s` to buf, with all bytes but printable ASCII as \xNN, shortened to `size`; returns buf. Used for names that are read
 * from files: a message must not move the cursor of a terminal or break a log line. */
const char *sfp__printable(const char *s, char *buf, size_t size);

/* A growing string. `failed` remains set, so that one check suffices after several calls. */
typedef struct sfp__text {
    char *s; /* terminated; NULL: empty */
    size_t length, capacity;
    bool failed; /* out of memory */
} sfp__text;

void sfp__text_put(sfp__text *t, const char *s);
void sfp__text_putn(sfp__text *t, const char *s, size_t n);
void sfp__text_fill(sfp__text *t, char c, size_t n);
void sfp__text_printf(sfp__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sfp__text_done(sfp__text *t);
/* Formats a new string, allocated with sfp__malloc, and stores it in *out. */
sfp_status sfp__text_new(char **out, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Returns the length of the byte order mark at the start of a text, as spreadsheets write it: 3, or 0 without one. */
size_t sfp__text_bom_length(const char *s, size_t n);

/* Decodes the character at s, which must not be empty. Returns its number of bytes and stores its code in *code. For a byte that
 * does not begin a valid character (surrogates and overlong forms are invalid) returns 1, with *code SFP__UTF8_BAD. */
#define SFP__UTF8_BAD UINT32_MAX
#define SFP__UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, written in place of an invalid byte */
int sfp__utf8_next(const char *s, uint32_t *code);
/* Returns whether the text has no invalid byte. */
bool sfp__utf8_valid(const char *s);
/* Returns the number of bytes of the character at s, which must not be empty. *shown: a terminal may print it, because it is UTF-8
 * and not a control character (U+0080 to U+009F are also control characters). */
int sfp__utf8_shown(const char *s, bool *shown);
/* The number of characters, not of bytes. */
int sfp__text_width(const char *text);

/* Writes the name of a task for people, in about `width` characters, to buf (SFP__TITLE_SIZE); returns buf. A task that is named by
 * numbers of classes, "class 3" or "classes 4-6", gets the names of its classes: "cup, fork, +1" (one more). Other tasks keep their
 * names, as do those with an unnamed class or with classes whose names are their numbers. */
#define SFP__TITLE_SIZE 256
typedef const char *sfp__class_name_fn(const void *ctx, int label); /* NULL or "": the class has no name */
const char *sfp__task_title(const char *task_name, int width, sfp__class_name_fn *class_name, const void *ctx,
                            char buf[SFP__TITLE_SIZE]);

/* A list of strings, which it owns. */
typedef struct sfp__strings {
    char **s; /* (count); NULL: an entry that sfp__strings_resize created */
    int count;
    size_t capacity;
} sfp__strings;

/* Appends a copy of `text` (NULL: an entry without a string). */
sfp_status sfp__strings_add(sfp__strings *list, const char *text, sfp_error *err);
/* Extends the list to at least `count` entries; new ones are NULL. */
sfp_status sfp__strings_resize(sfp__strings *list, int count, sfp_error *err);
/* Returns the index of the first entry that equals `text`; -1: none. */
int sfp__strings_find(const sfp__strings *list, const char *text);
void sfp__strings_done(sfp__strings *list);

#endif
