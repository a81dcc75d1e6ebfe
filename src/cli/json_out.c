#include "cli/json_out.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 sequence at s, 0 when it is none: file names may hold anything. */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    int n = s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] > 0xf4 || n == 0)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] >= 0xa0, beyond = s[0] == 0xf4 && s[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}

static void quoted(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = utf8_length(s);
        if (n == 0) {
            (void)fputs("\\ufffd", to);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            (void)fprintf(to, "\\%c", *s);
        } else if (*s < 0x20) {
            (void)fprintf(to, "\\u%04x", *s);
        } else {
            (void)fwrite(s, 1, (size_t)n, to);
        }
        s += n;
    }
    (void)fputc('"', to);
}

/* What stands before a value: a comma, and in objects the key. */
static void lead(sfp_json_out *j, const char *key)
{
    int d = j->depth - 1;
    assert(d >= 0 && j->in_array[d] == (key == NULL));
    if (j->any[d])
        (void)fputc(',', j->to);
    j->any[d] = true;
    if (key) {
        quoted(j->to, key);
        (void)fputc(':', j->to);
    }
}

static void open_level(sfp_json_out *j, bool array)
{
    assert(j->depth < SFP_JSON_DEPTH);
    j->in_array[j->depth] = array;
    j->any[j->depth] = false;
    j->depth++;
    (void)fputc(array ? '[' : '{', j->to);
}

void sfp__json_begin(sfp_json_out *j, FILE *to)
{
    memset(j, 0, sizeof *j);
    j->to = to;
    open_level(j, false);
}

void sfp__json_end(sfp_json_out *j)
{
    assert(j->depth > 0);
    j->depth--;
    (void)fputc(j->in_array[j->depth] ? ']' : '}', j->to);
}

void sfp__json_end_all(sfp_json_out *j)
{
    while (j->depth > 0)
        sfp__json_end(j);
    (void)fputc('\n', j->to);
}

void sfp__json_object(sfp_json_out *j, const char *key)
{
    lead(j, key);
    open_level(j, false);
}

void sfp__json_array(sfp_json_out *j, const char *key)
{
    lead(j, key);
    open_level(j, true);
}

void sfp__json_string(sfp_json_out *j, const char *key, const char *value)
{
    lead(j, key);
    if (value)
        quoted(j->to, value);
    else
        (void)fputs("null", j->to);
}

void sfp__json_int(sfp_json_out *j, const char *key, int64_t value)
{
    lead(j, key);
    (void)fprintf(j->to, "%" PRId64, value);
}

static void put_real(sfp_json_out *j, const char *key, double value, int digits)
{
    lead(j, key);
    if (isfinite(value))
        (void)fprintf(j->to, "%.*g", digits, value);
    else
        (void)fputs("null", j->to);
}

void sfp__json_real(sfp_json_out *j, const char *key, double value)
{
    put_real(j, key, value, 9);
}

void sfp__json_exact(sfp_json_out *j, const char *key, double value)
{
    char text[32];
    int digits = 15;
    for (; digits < 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_real(j, key, value, digits);
}

void sfp__json_float(sfp_json_out *j, const char *key, float value)
{
    put_real(j, key, (double)value, 7);
}

void sfp__json_bool(sfp_json_out *j, const char *key, bool value)
{
    lead(j, key);
    (void)fputs(value ? "true" : "false", j->to);
}
