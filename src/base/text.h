/* Small text tools: names from files made safe to print, a growing string, UTF-8, lists of strings. */
#ifndef SFP_BASE_TEXT_H
#define SFP_BASE_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Space for a name in a message; longer ones end in "...". */
#define SFP_NAME_MAX 160

/* `s` with everything but printable ASCII as \xNN, cut to `size`; returns buf. For names that a file gave: a message must
 * not move the cursor of a terminal or break a log line. */
const char *sfp__printable(const char *s, char *buf, size_t size);

/* A string that grows; `failed` is kept until the end so that a chain of puts needs one check. */
typedef struct sfp__text {
    char *s; /* terminated when not NULL */
    size_t length, capacity;
    bool failed; /* out of memory */
} sfp__text;

void sfp__text_put(sfp__text *t, const char *s);
void sfp__text_putn(sfp__text *t, const char *s, size_t n);
void sfp__text_fill(sfp__text *t, char c, size_t n);
void sfp__text_printf(sfp__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sfp__text_done(sfp__text *t);
/* A new string to *out, sfp__malloc'ed. */
sfp_status sfp__text_new(char **out, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Bytes of the byte order mark that a text begins with, as spreadsheets write it: 3, or 0 without one. */
size_t sfp__text_mark(const char *s, size_t n);

/* Bytes of the character at s, which is terminated and not empty, and its code. A byte that begins no character (surrogates and
 * overlong forms are none): 1, with *code SFP_UTF8_BAD. */
#define SFP_UTF8_BAD UINT32_MAX
#define SFP_UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, what a bad byte is shown as */
int sfp__utf8_next(const char *s, uint32_t *code);
/* Characters alone, no bad byte? */
bool sfp__utf8_valid(const char *s);

/* A list of strings that owns them. */
typedef struct sfp__strings {
    char **s; /* (count); entries may be NULL where sfp__strings_resize made them */
    int count;
    size_t capacity;
} sfp__strings;

/* A copy of `text` (NULL: an entry without one) at the end. */
sfp_status sfp__strings_add(sfp__strings *list, const char *text, sfp_error *err);
/* At least `count` entries; new ones are NULL. */
sfp_status sfp__strings_resize(sfp__strings *list, int count, sfp_error *err);
/* The first entry that is `text`; -1: none. */
int sfp__strings_find(const sfp__strings *list, const char *text);
void sfp__strings_done(sfp__strings *list);

#endif
