#include "io/json_write.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void putn(sfp__json *j, const char *s, size_t n)
{
    if (j->file)
        (void)fwrite(s, 1, n, j->file);
    else if (j->text)
        sfp__text_putn(j->text, s, n);
}

static void put(sfp__json *j, const char *s)
{
    putn(j, s, strlen(s));
}

static void quote(sfp__json *j, const char *s)
{
    put(j, "\"");
    for (int n; *s; s += n) {
        uint32_t c;
        char escaped[8];
        n = sfp__utf8_next(s, &c);
        if (c == '"' || c == '\\') {
            putn(j, (const char[]){'\\', (char)c}, 2);
        } else if (c < 0x20 || c == 0x7f) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
            put(j, escaped);
        } else if (c == SFP__UTF8_BAD) {
            put(j, SFP__UTF8_REPLACEMENT);
        } else {
            putn(j, s, (size_t)n);
        }
    }
    put(j, "\"");
}

/* ------------------------------------------------------------------- nesting */

/* Writes the separator before a value and, in objects, the key. */
static void begin_value(sfp__json *j, const char *key)
{
    if (j->depth == 0)
        return;
    int d = j->depth - 1;
    const sfp__json_form *form = j->level[d].form;
    assert(j->level[d].array == (key == NULL));
    put(j, j->level[d].any ? (form ? form->between : ",") : form ? form->first : "");
    j->level[d].any = true;
    if (key) {
        quote(j, key);
        put(j, form ? form->colon : ":");
    }
}

static void begin(sfp__json *j, const char *key, bool array, const sfp__json_form *form)
{
    begin_value(j, key);
    assert(j->depth < SFP__JSON_DEPTH);
    j->level[j->depth].array = array;
    j->level[j->depth].any = false;
    j->level[j->depth].form = j->one_line ? NULL : form;
    j->depth++;
    put(j, array ? "[" : "{");
}

void sfp__json_object_as(sfp__json *j, const char *key, const sfp__json_form *form)
{
    begin(j, key, false, form);
}

void sfp__json_array_as(sfp__json *j, const char *key, const sfp__json_form *form)
{
    begin(j, key, true, form);
}

void sfp__json_object(sfp__json *j, const char *key)
{
    begin(j, key, false, NULL);
}

void sfp__json_array(sfp__json *j, const char *key)
{
    begin(j, key, true, NULL);
}

void sfp__json_begin(sfp__json *j, FILE *to)
{
    *j = (sfp__json){.file = to};
    sfp__json_object(j, NULL);
}

void sfp__json_end(sfp__json *j)
{
    assert(j->depth > 0);
    j->depth--;
    put(j, j->level[j->depth].form ? j->level[j->depth].form->last : "");
    put(j, j->level[j->depth].array ? "]" : "}");
}

void sfp__json_end_all(sfp__json *j)
{
    while (j->depth > 0)
        sfp__json_end(j);
    put(j, "\n");
}

/* -------------------------------------------------------------------- values */

void sfp__json_string(sfp__json *j, const char *key, const char *value)
{
    begin_value(j, key);
    if (value)
        quote(j, value);
    else
        put(j, "null");
}

void sfp__json_printf(sfp__json *j, const char *key, const char *fmt, ...)
{
    char text[64];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sfp__json_raw(j, key, text);
}

void sfp__json_raw(sfp__json *j, const char *key, const char *json)
{
    begin_value(j, key);
    put(j, json);
}

void sfp__json_bool(sfp__json *j, const char *key, bool value)
{
    sfp__json_printf(j, key, value ? "true" : "false");
}

void sfp__json_int(sfp__json *j, const char *key, int64_t value)
{
    sfp__json_printf(j, key, "%" PRId64, value);
}

void sfp__json_uint(sfp__json *j, const char *key, uint64_t value)
{
    sfp__json_printf(j, key, "%" PRIu64, value);
}

/* Writes x with the smallest number of digits in min..max that is read back as the same float or double. */
static void put_number(sfp__json *j, double x, bool is_float, int min, int max)
{
    char text[40] = "null";
    for (int n = min; isfinite(x) && n <= max; n++) {
        (void)snprintf(text, sizeof text, "%.*g", n, x);
        if (is_float ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x)
            break;
    }
    put(j, text);
}

void sfp__json_exact(sfp__json *j, const char *key, double value)
{
    begin_value(j, key);
    put_number(j, value, false, 15, 17);
}

void sfp__json_exact_float(sfp__json *j, const char *key, float value)
{
    begin_value(j, key);
    put_number(j, (double)value, true, 6, 9);
}

void sfp__json_real(sfp__json *j, const char *key, double value)
{
    begin_value(j, key);
    put_number(j, value, false, 9, 9);
}

void sfp__json_float(sfp__json *j, const char *key, float value)
{
    begin_value(j, key);
    put_number(j, (double)value, true, 7, 7);
}

void sfp__text_json(sfp__text *t, const char *s)
{
    quote(&(sfp__json){.text = t}, s);
}
