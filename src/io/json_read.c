/* A value is parsed into one block: a copy of the text, in which strings are decoded in place (they never become longer), and arrays
 * for as many values as the text can have at most, because each but the root follows a comma or an opening bracket. Entries of
 * containers that are still open are a stack at the end of the array; when a container ends, its entries move to the front. */
#include "io/json_read.h"

#include "base/text.h"
#include "io/file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 100 };

typedef struct parser {
    const char *label;
    sfp_error *err;
    char *text; /* (size + 1) terminated */
    size_t size, at;
    size_t line, line_begin;
    int depth;
    sfp__json_value *values;        /* the root, then the entries of all containers that have ended: [0, front) */
    const sfp__json_value **by_key; /* the same places, for objects sorted by key */
    size_t front, back;             /* the stack is [back, capacity), the newest entry first */
} parser;

__attribute__((format(printf, 2, 3))) static sfp_status fail(const parser *p, const char *fmt, ...)
{
    char what[SFP__NAME_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return sfp__fail(p->err, SFP_EFORMAT, "%s: line %zu, column %zu: %s", p->label, p->line, p->at - p->line_begin + 1, what);
}

static void skip_blanks(parser *p)
{
    for (; p->text[p->at] && strchr(" \t\r\n", p->text[p->at]); p->at++)
        if (p->text[p->at] == '\n') {
            p->line++;
            p->line_begin = p->at + 1;
        }
}

static sfp_status fail_expected(const parser *p, const char *expected)
{
    unsigned char c = (unsigned char)p->text[p->at];
    if (p->at >= p->size)
        return fail(p, "text ends, expected %s", expected);
    return c > ' ' && c < 0x7f ? fail(p, "'%c' found, expected %s", c, expected)
                               : fail(p, "byte 0x%02x found, expected %s", c, expected);
}

/* ------------------------------------------------------------------- scalars */

static sfp_status parse_hex(parser *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = p->text[p->at] ? strchr(digits, p->text[p->at]) : NULL;
        if (!digit)
            return fail_expected(p, "four hexadecimal digits after \\u");
        *out = *out << 4 | (uint32_t)((digit - digits) & 15);
    }
    return SFP_OK;
}

/* Decodes the rest of \uXXXX, or of a pair of surrogates, to UTF-8. */
static sfp_status parse_escaped_code(parser *p, char **to)
{
    uint32_t c, low;
    TRY(parse_hex(p, &c));
    if (c >= 0xd800 && c < 0xdc00 && p->text[p->at] == '\\' && p->text[p->at + 1] == 'u') {
        p->at += 2;
        TRY(parse_hex(p, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return fail(p, "\\u%04x does not follow \\u%04x, expected a pair of surrogates", (unsigned)low, (unsigned)c);
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c == 0 || (c >= 0xd800 && c < 0xe000))
        return fail(p, "\\u%04x is not a character", (unsigned)c);
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes that follow the first */
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (char)(first[more] | c >> 6 * more);
    while (more-- > 0)
        *(*to)++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return SFP_OK;
}

/* Parses a string, whose quote is the next character, in place. */
static sfp_status parse_string(parser *p, const char **out, size_t *length)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char *begin = p->text + p->at + 1, *to = begin;
    p->at++;
    while (p->text[p->at] != '"') {
        unsigned char c = (unsigned char)p->text[p->at];
        uint32_t code;
        int n = 1;
        if (c < ' ')
            return p->at >= p->size ? fail(p, "text ends in a string")
                                    : fail(p, "byte 0x%02x in a string, expected an escape", c);
        if (c >= 0x80 && ((n = sfp__utf8_next(p->text + p->at, &code)), code == SFP__UTF8_BAD))
            return fail(p, "byte 0x%02x in a string is not UTF-8", c);
        if (c != '\\') {
            memmove(to, p->text + p->at, (size_t)n);
            to += n;
            p->at += (size_t)n;
            continue;
        }
        const char *escape = p->text[++p->at] ? strchr(escapes, p->text[p->at]) : NULL;
        if (escape)
            *to++ = meanings[escape - escapes];
        else if (p->text[p->at] != 'u')
            return fail_expected(p, "an escape: \", \\, /, b, f, n, r, t or u");
        p->at++;
        if (!escape)
            TRY(parse_escaped_code(p, &to));
    }
    p->at++;
    *to = '\0';
    *length = (size_t)(to - begin);
    *out = begin;
    return SFP_OK;
}

static size_t digits_at(const parser *p, size_t at)
{
    return strspn(p->text + at, "0123456789");
}

static sfp_status parse_number(parser *p, sfp__json_value *out)
{
    const char *begin = p->text + p->at;
    size_t n, at = p->at + (*begin == '-');
    n = p->text[at] == '0' ? 1 : digits_at(p, at);
    *out = (sfp__json_value){.type = SFP__JSON_INTEGER};
    if (n > 0 && p->text[at + n] == '.') {
        at += n + 1;
        n = digits_at(p, at);
        out->type = SFP__JSON_REAL;
    }
    if (n > 0 && (p->text[at + n] == 'e' || p->text[at + n] == 'E')) {
        at += n + 1;
        at += p->text[at] == '-' || p->text[at] == '+';
        n = digits_at(p, at);
        out->type = SFP__JSON_REAL;
    }
    if (n == 0) {
        p->at = at;
        return fail_expected(p, "a digit");
    }
    errno = 0;
    if (out->type == SFP__JSON_INTEGER)
        out->integer = strtoll(begin, NULL, 10);
    else
        out->real = strtod(begin, NULL);
    if (out->type == SFP__JSON_INTEGER ? errno == ERANGE : !isfinite(out->real))
        return fail(p, "the number is too big");
    p->at = at + n;
    return SFP_OK;
}

static sfp_status parse_word(parser *p, sfp__json_value *out)
{
    static const struct {
        const char *word;
        sfp__json_type type;
    } words[] = {{"true", SFP__JSON_TRUE}, {"false", SFP__JSON_FALSE}, {"null", SFP__JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(p->text + p->at, words[i].word, strlen(words[i].word)) == 0) {
            p->at += strlen(words[i].word);
            *out = (sfp__json_value){.type = words[i].type};
            return SFP_OK;
        }
    return fail_expected(p, "a value");
}

/* ---------------------------------------------------------------- containers */

static int compare_keys(const void *a, const void *b)
{
    const sfp__json_value *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* Moves the newest `count` values of the stack to the front as the entries of `out`. */
static sfp_status take_entries(parser *p, size_t count, sfp__json_value *out)
{
    sfp__json_value *first = p->values + p->front, *newest = p->values + p->back;
    for (size_t i = 0; i < count / 2; i++) {
        sfp__json_value swapped = newest[i];
        newest[i] = newest[count - 1 - i];
        newest[count - 1 - i] = swapped;
    }
    memmove(first, newest, count * sizeof *first);
    out->count = count;
    out->first = first;
    out->by_key = p->by_key + p->front;
    p->front += count;
    p->back += count;
    if (out->type == SFP__JSON_ARRAY)
        return SFP_OK;
    for (size_t i = 0; i < count; i++)
        out->by_key[i] = first + i;
    qsort(out->by_key, count, sizeof *out->by_key, compare_keys);
    for (size_t i = 1; i < count; i++)
        if (strcmp(out->by_key[i - 1]->key, out->by_key[i]->key) == 0) {
            char key[SFP__NAME_MAX];
            return fail(p, "the object that ends here has the duplicate key '%.60s'",
                        sfp__printable(out->by_key[i]->key, key, sizeof key));
        }
    return SFP_OK;
}

static sfp_status parse_value(parser *p, sfp__json_value *out);

static sfp_status parse_container(parser *p, sfp__json_value *out)
{
    bool object = p->text[p->at++] == '{';
    char close = object ? '}' : ']';
    size_t count = 0;
    if (++p->depth > DEPTH_MAX)
        return fail(p, "values are nested more than %d deep", DEPTH_MAX);
    skip_blanks(p);
    for (bool more = p->text[p->at] != close; more; count++) {
        sfp__json_value entry;
        const char *key = NULL;
        size_t length;
        skip_blanks(p);
        if (object) {
            if (p->text[p->at] != '"')
                return fail_expected(p, "a key in quotes");
            TRY(parse_string(p, &key, &length));
            skip_blanks(p);
            if (p->text[p->at] != ':')
                return fail_expected(p, "':'");
            p->at++;
            skip_blanks(p);
        }
        TRY(parse_value(p, &entry));
        entry.key = key;
        p->values[--p->back] = entry;
        skip_blanks(p);
        more = p->text[p->at] == ',';
        p->at += more;
        if (!more && p->text[p->at] != close)
            return fail_expected(p, object ? "',' or '}'" : "',' or ']'");
    }
    p->depth--;
    *out = (sfp__json_value){.type = object ? SFP__JSON_OBJECT : SFP__JSON_ARRAY};
    TRY(take_entries(p, count, out));
    p->at++;
    return SFP_OK;
}

static sfp_status parse_value(parser *p, sfp__json_value *out)
{
    char c = p->text[p->at];
    if (c == '{' || c == '[')
        return parse_container(p, out);
    if (c == '-' || (c >= '0' && c <= '9'))
        return parse_number(p, out);
    if (c != '"')
        return parse_word(p, out);
    *out = (sfp__json_value){.type = SFP__JSON_STRING};
    return parse_string(p, &out->text, &out->count);
}

sfp_status sfp__json_parse(const char *label, const char *text, size_t size, sfp__json_value **out, sfp_error *err)
{
    OWNED void *block = NULL;
    parser p = {.label = label, .err = err, .size = size, .line = 1, .front = 1};
    size_t capacity = 2; /* the root is on no stack, but has a place */
    for (size_t i = 0; i < size; i++)
        capacity += text[i] == ',' || text[i] == '[' || text[i] == '{';
    const sfp__want list[] = {
        {&p.values, capacity, sizeof *p.values}, {&p.by_key, capacity, sizeof *p.by_key}, {&p.text, size + 1, 1}};
    if (sfp__block(&block, SFP__LIST(list), NULL) != SFP_OK)
        return sfp__fail(err, SFP_ENOMEM, "%s: out of memory", label);
    memcpy(p.text, text, size);
    p.text[size] = '\0';
    p.back = capacity;
    skip_blanks(&p);
    TRY(parse_value(&p, p.values));
    skip_blanks(&p);
    if (p.at != size)
        return fail_expected(&p, "the end of the text");
    p.values->key = NULL;
    *out = TAKE(block); /* begins with the root */
    return SFP_OK;
}

sfp_status sfp__json_read(const char *path, size_t max_bytes, sfp__json_value **out, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, max_bytes, &bytes, &size, err));
    return sfp__json_parse(path, (const char *)bytes, size, out, err);
}

/* -------------------------------------------------------------------- values */

size_t sfp__json_size(const sfp__json_value *v)
{
    return sfp__json_is(v, SFP__JSON_OBJECT) || sfp__json_is(v, SFP__JSON_ARRAY) ? v->count : 0;
}

const sfp__json_value *sfp__json_at(const sfp__json_value *v, size_t i)
{
    return i < sfp__json_size(v) ? &v->first[i] : NULL;
}

const sfp__json_value *sfp__json_get(const sfp__json_value *v, const char *key)
{
    const sfp__json_value wanted = {.key = key}, *place = &wanted;
    const sfp__json_value **found =
        sfp__json_is(v, SFP__JSON_OBJECT) ? bsearch(&place, v->by_key, v->count, sizeof *v->by_key, compare_keys) : NULL;
    return found ? *found : NULL;
}

const char *sfp__json_text(const sfp__json_value *v)
{
    return sfp__json_is(v, SFP__JSON_STRING) ? v->text : NULL;
}

int64_t sfp__json_integer(const sfp__json_value *v)
{
    return sfp__json_is(v, SFP__JSON_INTEGER) ? v->integer : 0;
}

double sfp__json_number(const sfp__json_value *v)
{
    return sfp__json_is(v, SFP__JSON_REAL) ? v->real : (double)sfp__json_integer(v);
}

const char *sfp__json_type_name(const sfp__json_value *v)
{
    static const char *const names[] = {
        [SFP__JSON_OBJECT] = "an object",   [SFP__JSON_ARRAY] = "an array",  [SFP__JSON_STRING] = "a string",
        [SFP__JSON_INTEGER] = "an integer", [SFP__JSON_REAL] = "a fraction", [SFP__JSON_TRUE] = "a boolean",
        [SFP__JSON_FALSE] = "a boolean",    [SFP__JSON_NULL] = "null",
    };
    return v ? names[v->type] : "nothing";
}

bool sfp__json_whole(const sfp__json_value *from, const char *key, int64_t low, int64_t high, int64_t *out)
{
    const sfp__json_value *v = sfp__json_get(from, key);
    if (!sfp__json_is(v, SFP__JSON_INTEGER) || v->integer < low || v->integer > high)
        return false;
    *out = v->integer;
    return true;
}

bool sfp__json_real_at(const sfp__json_value *from, const char *key, double *out)
{
    const sfp__json_value *v = sfp__json_get(from, key);
    if (sfp__json_is_number(v))
        *out = sfp__json_number(v);
    return sfp__json_is_number(v);
}

/* ------------------------------------------------------------------- members */

sfp_status sfp__json_bad(const sfp__json_in *in, const char *key, const char *expected)
{
    char name[SFP__NAME_MAX];
    return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is not %s", in->label, sfp__printable(key, name, sizeof name), expected);
}

/* Finds a member of any type. */
static sfp_status need(const sfp__json_in *in, const sfp__json_value *from, const char *key, const sfp__json_value **out)
{
    *out = sfp__json_get(from, key);
    return *out ? SFP_OK : sfp__fail(in->err, SFP_EFORMAT, "%s: key '%s' is missing", in->label, key);
}

sfp_status sfp__json_need(const sfp__json_in *in, const sfp__json_value *from, const char *key, sfp__json_type type,
                          const sfp__json_value **out)
{
    static const char *const expected[] = {"an object", "an array", "a string", "a whole number"};
    const sfp__json_value *v = NULL;
    TRY(need(in, from, key, &v));
    if (v->type != type)
        return sfp__json_bad(in, key, expected[type]);
    *out = v;
    return SFP_OK;
}

sfp_status sfp__json_need_int(const sfp__json_in *in, const sfp__json_value *from, const char *key, int64_t low, int64_t high,
                              int64_t *out)
{
    const sfp__json_value *v = NULL;
    TRY(sfp__json_need(in, from, key, SFP__JSON_INTEGER, &v));
    int64_t n = sfp__json_integer(v);
    if (n < low || n > high)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is %lld, expected %lld to %lld", in->label, key, (long long)n,
                         (long long)low, (long long)high);
    *out = n;
    return SFP_OK;
}

sfp_status sfp__json_need_uint(const sfp__json_in *in, const sfp__json_value *from, const char *key, uint64_t *out)
{
    const sfp__json_value *v = NULL;
    TRY(sfp__json_need(in, from, key, SFP__JSON_INTEGER, &v));
    if (sfp__json_integer(v) < 0)
        return sfp__json_bad(in, key, "0 or more");
    *out = (uint64_t)sfp__json_integer(v);
    return SFP_OK;
}

sfp_status sfp__json_to_real(const sfp__json_in *in, const sfp__json_value *v, const char *key, double low, double high,
                             double *out)
{
    double x = NAN;
    if (!sfp__json_is(v, SFP__JSON_NULL)) {
        if (!sfp__json_is_number(v))
            return sfp__json_bad(in, key, "a number or null");
        x = sfp__json_number(v);
        if (!(x >= low && x <= high))
            return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is %g, expected %g to %g", in->label, key, x, low, high);
    }
    *out = x;
    return SFP_OK;
}

sfp_status sfp__json_need_real(const sfp__json_in *in, const sfp__json_value *from, const char *key, double low, double high,
                               double *out)
{
    const sfp__json_value *v = NULL;
    TRY(need(in, from, key, &v));
    return sfp__json_to_real(in, v, key, low, high, out);
}

sfp_status sfp__json_need_text(const sfp__json_in *in, const sfp__json_value *from, const char *key, char *out, size_t size)
{
    const sfp__json_value *v = NULL;
    TRY(sfp__json_need(in, from, key, SFP__JSON_STRING, &v));
    size_t n = v->count;
    if (n >= size)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu bytes, expected less than %zu", in->label, key, n, size);
    memcpy(out, sfp__json_text(v), n + 1);
    return SFP_OK;
}

sfp_status sfp__json_need_array(const sfp__json_in *in, const sfp__json_value *from, const char *key, size_t low, size_t high,
                                const sfp__json_value **out)
{
    const sfp__json_value *v = NULL;
    TRY(sfp__json_need(in, from, key, SFP__JSON_ARRAY, &v));
    size_t n = sfp__json_size(v);
    if (low == high && n != low)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu", in->label, key, n, low);
    if (n < low || n > high)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu to %zu", in->label, key, n, low, high);
    *out = v;
    return SFP_OK;
}
