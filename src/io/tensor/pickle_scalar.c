/* Numbers and strings of a pickle: what an opcode's operand says becomes one value on the stack. */
#include "io/tensor/pickle_machine.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_MAX (INT64_MAX >> 1) /* largest integer that fits a value */
#define LINE_MAX_SHOWN 40

/* ------------------------------------------------------------------ numbers */

static sfp_status push_int(sfp__pickle_machine *m, int64_t n)
{
    if (n >= -SMALL_MAX - 1 && n <= SMALL_MAX)
        return sfp__pickle_push(m, (uint64_t)n * 2 + 1);
    sfp_pickle_value v = 0;
    sfp_status status = sfp__pickle_new_node(m->p, SFP_PICKLE_INT, &v, m->err);
    if (status != SFP_OK)
        return status;
    sfp__pickle_node_of(m->p, v)->integer = n;
    return sfp__pickle_push(m, v);
}

/* variant: 4 for a signed one */
sfp_status sfp__pickle_do_int(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    return push_int(m, op->variant == 4 ? (int64_t)(int32_t)(uint32_t)a->integer : (int64_t)a->integer);
}

sfp_status sfp__pickle_number_line(sfp__pickle_machine *m, const sfp__pickle_argument *a, char *buf, size_t size)
{
    if (a->size == 0 || a->size >= size || memchr(a->data, '\0', a->size))
        return FAIL(m, SFP_EFORMAT, "expected a number on a line of at most %zu bytes", size - 1);
    memcpy(buf, a->data, a->size);
    buf[a->size] = '\0';
    return SFP_OK;
}

sfp_status sfp__pickle_bad_number(sfp__pickle_machine *m, const char *text)
{
    char shown[LINE_MAX_SHOWN];
    return FAIL(m, SFP_EFORMAT, "expected a number, found '%s'", sfp__printable(text, shown, sizeof shown));
}

/* "12", "-3", Python 2's "3L"; INT has "00" and "01" for False and True. variant: 1 for LONG */
sfp_status sfp__pickle_do_int_line(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    char text[64], *end;
    sfp_status status = sfp__pickle_number_line(m, a, text, sizeof text);
    if (status != SFP_OK)
        return status;
    if (!op->variant && (strcmp(text, "00") == 0 || strcmp(text, "01") == 0))
        return sfp__pickle_push(m, 2 * (text[1] == '1' ? SFP_PICKLE_NODE_TRUE : SFP_PICKLE_NODE_FALSE));
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return sfp__pickle_bad_number(m, text);
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end > text && op->variant && *end == 'L')
        end++;
    if (end == text || *end != '\0')
        return sfp__pickle_bad_number(m, text);
    if (errno == ERANGE)
        return FAIL(m, SFP_ELIMIT, "the number does not fit 64 bits");
    return push_int(m, n);
}

/* Two's complement, little-endian, any length: what fits 64 bits is taken. */
sfp_status sfp__pickle_do_long(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    uint8_t sign = a->size && a->data[a->size - 1] & 0x80 ? 0xff : 0;
    uint64_t n = sign ? UINT64_MAX : 0;
    for (size_t i = 8; i < a->size; i++)
        if (a->data[i] != sign)
            return FAIL(m, SFP_ELIMIT, "the number does not fit 64 bits");
    for (size_t i = a->size < 8 ? a->size : 8; i-- > 0;)
        n = n << 8 | a->data[i];
    if (a->size > 8 && (n >> 63) != (sign & 1))
        return FAIL(m, SFP_ELIMIT, "the number does not fit 64 bits");
    return push_int(m, (int64_t)n);
}

static sfp_status push_float(sfp__pickle_machine *m, double x)
{
    sfp_pickle_value v = 0;
    sfp_status status = sfp__pickle_new_node(m->p, SFP_PICKLE_FLOAT, &v, m->err);
    if (status != SFP_OK)
        return status;
    sfp__pickle_node_of(m->p, v)->number = x;
    return sfp__pickle_push(m, v);
}

sfp_status sfp__pickle_do_float_line(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    char text[64], *end;
    sfp_status status = sfp__pickle_number_line(m, a, text, sizeof text);
    if (status != SFP_OK)
        return status;
    double x = strtod(text, &end);
    if (end == text || *end != '\0')
        return sfp__pickle_bad_number(m, text);
    return push_float(m, x);
}

/* The one big-endian operand. */
sfp_status sfp__pickle_do_float(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    uint64_t bits = __builtin_bswap64(a->integer);
    double x;
    memcpy(&x, &bits, sizeof x);
    return push_float(m, x);
}

/* ------------------------------------------------------------------ strings */

/* Text of n bytes; text NULL: the caller fills *storage and may then shorten it. */
static sfp_status push_text(sfp__pickle_machine *m, sfp_pickle_type type, const void *text, size_t n, char **storage)
{
    sfp_pickle_value v = 0;
    char *s = sfp__pickle_new_text(m->p, n);
    if (!s)
        return sfp__fail_nomem(m->err);
    sfp_status status = sfp__pickle_new_node(m->p, type, &v, m->err);
    if (status != SFP_OK)
        return status;
    if (text && n)
        memcpy(s, text, n);
    sfp__pickle_node_of(m->p, v)->text = s;
    sfp__pickle_node_of(m->p, v)->count = n;
    if (storage)
        *storage = s;
    return sfp__pickle_push(m, v);
}

/* variant: the type */
sfp_status sfp__pickle_do_data(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    return push_text(m, (sfp_pickle_type)op->variant, a->data, a->size, NULL);
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n hexadecimal digits at s */
static bool hex(const uint8_t *s, const uint8_t *end, int n, uint32_t *out)
{
    uint32_t v = 0;
    if (end - s < n)
        return false;
    for (int i = 0; i < n; i++) {
        int d = hex_digit(s[i]);
        if (d < 0)
            return false;
        v = v << 4 | (uint32_t)d;
    }
    *out = v;
    return true;
}

/* Protocol 0's 'text' as repr() wrote it. Names need only the plain escapes. */
sfp_status sfp__pickle_do_string_line(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    static const char escapes[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    const uint8_t *s = a->data, *end = a->data + a->size;
    char *out;
    (void)op;
    if (a->size < 2 || (s[0] != '\'' && s[0] != '"') || end[-1] != s[0])
        return FAIL(m, SFP_EFORMAT, "expected a quoted string on one line");
    sfp_status status = push_text(m, SFP_PICKLE_TEXT, NULL, a->size - 2, &out);
    if (status != SFP_OK)
        return status;
    size_t n = 0;
    for (s++, end--; s < end; s++) {
        uint32_t code;
        if (*s != '\\') {
            out[n++] = (char)*s;
            continue;
        }
        if (++s < end && *s == 'x' && hex(s + 1, end, 2, &code)) {
            out[n++] = (char)code;
            s += 2;
            continue;
        }
        const char *e = escapes;
        while (s < end && *e && (uint8_t)e[0] != *s)
            e += 2;
        if (s >= end || !*e)
            return FAIL(m, SFP_EFORMAT, "the string has an escape that is not known");
        out[n++] = e[1];
    }
    out[n] = '\0';
    sfp__pickle_node_of(m->p, m->stack[m->depth - 1])->count = n;
    return SFP_OK;
}

/* UTF-8 of a code point; at most 4 bytes */
static size_t put_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (int i = more; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> (more + 1) & 0xff) | c);
    return (size_t)more + 1;
}

/* Protocol 0's unicode: Latin-1 with \uXXXX and \UXXXXXXXX. A byte becomes at most two, an escape of six at most three. */
sfp_status sfp__pickle_do_unicode_line(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    const uint8_t *s = a->data, *end = a->data + a->size;
    char *out;
    size_t n = 0;
    (void)op;
    sfp_status status = push_text(m, SFP_PICKLE_TEXT, NULL, 2 * a->size, &out);
    if (status != SFP_OK)
        return status;
    while (s < end) {
        uint32_t code = *s;
        int digits = *s == '\\' && end - s > 1 ? (s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0) : 0;
        if (digits && (!hex(s + 2, end, digits, &code) || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
            return FAIL(m, SFP_EFORMAT, "the string has a \\u escape that is no character");
        s += digits ? 2 + digits : 1;
        n += put_utf8(code, out + n);
    }
    out[n] = '\0';
    sfp__pickle_node_of(m->p, m->stack[m->depth - 1])->count = n;
    return SFP_OK;
}
