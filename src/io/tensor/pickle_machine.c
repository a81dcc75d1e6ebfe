/* The stack machine of a pickle.
 *
 * One table has for every opcode its name, its operand and its function; an opcode without a row is unknown. Opcodes that name or
 * create objects check the list of allowed names. The machine does not recurse and executes nothing. Memory is bounded by the
 * input: every opcode pushes at most one value, and a memo index must be below the number of bytes.
 *
 * The file is long because the machine and its values belong together: two files would share every structure. */
#include "io/tensor/pickle.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNSET UINT64_MAX
#define SMALL_MAX (INT64_MAX >> 1) /* largest integer that is stored in a value */
#define LINE_MAX_SHOWN 40
#define GLOBAL_MAX 200 /* maximum bytes of an allowed name */

typedef struct machine {
    sfp__pickle *p;
    const char *label;
    sfp_error *err;
    sfp__pickle_limits limits;
    const uint8_t *bytes, *at, *end;
    size_t offset; /* of the current opcode */
    sfp__pickle_value *stack;
    size_t depth, stack_capacity;
    size_t *marks; /* (limits.depth) stack heights at the open marks */
    int mark_count;
    sfp__pickle_value *memo;
    size_t memo_count, memo_capacity; /* number of entries set; capacity */
    size_t items;
} machine;

typedef enum operand {
    NO_OPERAND,
    INT_1 = 1, /* an integer of this many bytes, little-endian */
    INT_2 = 2,
    INT_4 = 4,
    INT_8 = 8,
    DATA_1 = 16 + 1, /* a length of this many bytes, then the data */
    DATA_4 = 16 + 4,
    DATA_8 = 16 + 8,
    LINE = 32, /* text up to '\n' */
    LINES_2,   /* two lines */
} operand;

typedef struct argument {
    uint64_t integer;
    const uint8_t *data, *second;
    size_t size, second_size;
} argument;

typedef struct opcode {
    const char *name;
    operand operand;
    sfp_status (*run)(machine *m, const struct opcode *op, const argument *a);
    int variant; /* distinguishes the opcodes that share a function */
} opcode;

#define ACTION(name) \
    static sfp_status name(machine *m, __attribute__((unused)) const opcode *op, __attribute__((unused)) const argument *a)

static const opcode opcodes[256];

static const char *op_name(const machine *m)
{
    return opcodes[m->bytes[m->offset]].name;
}

/* "FILE: byte 17: APPEND: MESSAGE" */
#define FAIL(m, status, ...) fail_at(m, sfp__fail((m)->err, status, __VA_ARGS__))
static sfp_status fail_at(const machine *m, sfp_status status)
{
    return sfp__fail_prefix(m->err, status, "%s: pickle, byte %zu: %s", m->label, m->offset, op_name(m));
}

/* ---------------------------------------------------------------- the stack */

static sfp_status count_items(machine *m, size_t n)
{
    if (n > m->limits.items - m->items)
        return FAIL(m, SFP_ELIMIT, "more than %zu values", m->limits.items);
    m->items += n;
    return SFP_OK;
}

static sfp_status push(machine *m, sfp__pickle_value v)
{
    TRY(count_items(m, 1));
    if (!sfp__grow(&m->stack, sizeof *m->stack, m->depth, m->depth + 1, &m->stack_capacity))
        return sfp__fail_nomem(m->err);
    m->stack[m->depth++] = v;
    return SFP_OK;
}

/* Returns the number of values above the last mark, or on the whole stack without one. */
static size_t available(const machine *m)
{
    return m->depth - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

static sfp_status need(machine *m, size_t n)
{
    if (available(m) < n)
        return FAIL(m, SFP_EFORMAT, "expected %zu value%s on the stack, found %zu", n, n == 1 ? "" : "s", available(m));
    return SFP_OK;
}

/* Removes the last mark; *first receives the stack position of its values. */
static sfp_status pop_mark(machine *m, size_t *first)
{
    if (m->mark_count == 0)
        return FAIL(m, SFP_EFORMAT, "MARK is missing");
    *first = m->marks[--m->mark_count];
    return SFP_OK;
}

/* Appends n values from the stack to a container. */
static sfp_status put_items(machine *m, sfp__pickle_value container, const size_t first, size_t n)
{
    TRY(count_items(m, n));
    sfp__pickle_node *c = sfp__pickle_node_of(m->p, container);
    if (!sfp__grow(&c->item, sizeof *c->item, c->count, c->count + n, &c->capacity))
        return sfp__fail_nomem(m->err);
    for (size_t i = 0; i < n; i++) {
        sfp__pickle_value v = m->stack[first + i];
        int level = sfp__pickle_is_small(v) ? 0 : sfp__pickle_node_of(m->p, v)->level + 1;
        if (level > m->limits.depth)
            return FAIL(m, SFP_ELIMIT, "nested deeper than %d", m->limits.depth);
        if (level > c->level)
            c->level = (uint8_t)level;
        c->item[c->count++] = v;
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ actions */

ACTION(unsupported)
{
    return FAIL(m, SFP_EUNSUPPORTED, "opcode is not supported, expected lists, tuples, dicts, strings and numbers");
}

ACTION(do_proto)
{
    if (a->integer > 5)
        return FAIL(m, SFP_EUNSUPPORTED, "protocol is %llu, expected 0 to 5", (unsigned long long)a->integer);
    return SFP_OK;
}

/* A frame is only a hint to read ahead; it must lie within the file. */
ACTION(do_frame)
{
    if (a->integer > (uint64_t)(m->end - m->at))
        return FAIL(m, SFP_EFORMAT, "frame is %llu bytes, found %zu", (unsigned long long)a->integer, (size_t)(m->end - m->at));
    return SFP_OK;
}

ACTION(do_mark)
{
    if (m->mark_count == m->limits.depth)
        return FAIL(m, SFP_ELIMIT, "nested deeper than %d", m->limits.depth);
    m->marks[m->mark_count++] = m->depth;
    return SFP_OK;
}

ACTION(do_pop)
{
    if (available(m) == 0 && m->mark_count > 0) { /* like in Python, POP also removes a mark */
        m->mark_count--;
        return SFP_OK;
    }
    TRY(need(m, 1));
    m->depth--;
    return SFP_OK;
}

ACTION(do_pop_mark)
{
    return pop_mark(m, &m->depth);
}

ACTION(do_dup)
{
    TRY(need(m, 1));
    return push(m, m->stack[m->depth - 1]);
}

ACTION(do_constant)
{
    return push(m, 2 * (uint64_t)op->variant);
}

/* variant: the type of the container */
ACTION(do_empty)
{
    sfp__pickle_value v = 0;
    TRY(sfp__pickle_new_node(m->p, (sfp__pickle_type)op->variant, &v, m->err));
    return push(m, v);
}

/* Replaces the values from `first` on by a container that holds them. */
static sfp_status collect(machine *m, sfp__pickle_type type, size_t first)
{
    size_t n = m->depth - first;
    sfp__pickle_value v = 0;
    if (type == SFP__PICKLE_DICT && n % 2)
        return FAIL(m, SFP_EFORMAT, "a key has no value");
    TRY(sfp__pickle_new_node(m->p, type, &v, m->err));
    TRY(put_items(m, v, first, n));
    m->depth = first;
    return push(m, v);
}

/* LIST, TUPLE, DICT: collects the values above the mark. variant: the type */
ACTION(do_collect)
{
    size_t first = 0;
    TRY(pop_mark(m, &first));
    return collect(m, (sfp__pickle_type)op->variant, first);
}

/* variant: the number of items */
ACTION(do_tuple)
{
    size_t n = (size_t)op->variant;
    TRY(need(m, n));
    return collect(m, SFP__PICKLE_TUPLE, m->depth - n);
}

/* Appends the values from `first` on to the container below them. */
static sfp_status extend(machine *m, sfp__pickle_type type, size_t first)
{
    size_t n = m->depth - first;
    size_t base = m->mark_count ? m->marks[m->mark_count - 1] : 0;
    if (first <= base)
        return FAIL(m, SFP_EFORMAT, "container is missing on the stack");
    sfp__pickle_value c = m->stack[first - 1];
    sfp__pickle_type found = sfp__pickle_type_of(m->p, c);
    if (found != type)
        return FAIL(m, SFP_EFORMAT, "expected %s on the stack, found %s", sfp__pickle_type_name(type),
                    sfp__pickle_type_name(found));
    if (type == SFP__PICKLE_DICT && n % 2)
        return FAIL(m, SFP_EFORMAT, "a key has no value");
    TRY(put_items(m, c, first, n));
    m->depth = first;
    return SFP_OK;
}

/* APPEND, SETITEM. variant: the type */
ACTION(do_put_one)
{
    size_t n = op->variant == SFP__PICKLE_DICT ? 2 : 1;
    TRY(need(m, n + 1));
    return extend(m, (sfp__pickle_type)op->variant, m->depth - n);
}

/* APPENDS, SETITEMS. variant: the type */
ACTION(do_put_many)
{
    size_t first = 0;
    TRY(pop_mark(m, &first));
    return extend(m, (sfp__pickle_type)op->variant, first);
}

/* ------------------------------------------------------------------ numbers */

static sfp_status push_int(machine *m, int64_t n)
{
    if (n >= -SMALL_MAX - 1 && n <= SMALL_MAX)
        return push(m, (uint64_t)n * 2 + 1);
    sfp__pickle_value v = 0;
    TRY(sfp__pickle_new_node(m->p, SFP__PICKLE_INT, &v, m->err));
    sfp__pickle_node_of(m->p, v)->integer = n;
    return push(m, v);
}

/* variant: 4 for a signed integer */
ACTION(do_int)
{
    return push_int(m, op->variant == 4 ? (int64_t)(int32_t)(uint32_t)a->integer : (int64_t)a->integer);
}

static sfp_status number_line(machine *m, const argument *a, char *buf, size_t size)
{
    if (a->size == 0 || a->size >= size || memchr(a->data, '\0', a->size))
        return FAIL(m, SFP_EFORMAT, "expected a number on a line of at most %zu bytes", size - 1);
    memcpy(buf, a->data, a->size);
    buf[a->size] = '\0';
    return SFP_OK;
}

static sfp_status bad_number(machine *m, const char *text)
{
    char shown[LINE_MAX_SHOWN];
    return FAIL(m, SFP_EFORMAT, "expected a number, found '%s'", sfp__printable(text, shown, sizeof shown));
}

/* "12", "-3", or Python 2's "3L". INT has "00" and "01" for False and True. variant: 1 for LONG */
ACTION(do_int_line)
{
    char text[64], *end;
    TRY(number_line(m, a, text, sizeof text));
    if (!op->variant && (strcmp(text, "00") == 0 || strcmp(text, "01") == 0))
        return push(m, 2 * (text[1] == '1' ? SFP__PICKLE_NODE_TRUE : SFP__PICKLE_NODE_FALSE));
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return bad_number(m, text);
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end > text && op->variant && *end == 'L')
        end++;
    if (end == text || *end != '\0')
        return bad_number(m, text);
    if (errno == ERANGE)
        return FAIL(m, SFP_ELIMIT, "the number does not fit 64 bits");
    return push_int(m, n);
}

/* Two's complement, little-endian, of any length; the number must fit 64 bits. */
ACTION(do_long)
{
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

static sfp_status push_float(machine *m, double x)
{
    sfp__pickle_value v = 0;
    TRY(sfp__pickle_new_node(m->p, SFP__PICKLE_FLOAT, &v, m->err));
    sfp__pickle_node_of(m->p, v)->number = x;
    return push(m, v);
}

ACTION(do_float_line)
{
    char text[64], *end;
    TRY(number_line(m, a, text, sizeof text));
    double x = strtod(text, &end);
    if (end == text || *end != '\0')
        return bad_number(m, text);
    return push_float(m, x);
}

/* The only big-endian operand. */
ACTION(do_float)
{
    uint64_t bits = __builtin_bswap64(a->integer);
    double x;
    memcpy(&x, &bits, sizeof x);
    return push_float(m, x);
}

/* ------------------------------------------------------------------ strings */

/* Pushes a text of n bytes. text NULL: the caller fills *storage and may then shorten the text. */
static sfp_status push_text(machine *m, sfp__pickle_type type, const void *text, size_t n, char **storage)
{
    sfp__pickle_value v = 0;
    char *s = sfp__pickle_new_text(m->p, n);
    if (!s)
        return sfp__fail_nomem(m->err);
    TRY(sfp__pickle_new_node(m->p, type, &v, m->err));
    if (text && n)
        memcpy(s, text, n);
    sfp__pickle_node_of(m->p, v)->text = s;
    sfp__pickle_node_of(m->p, v)->count = n;
    if (storage)
        *storage = s;
    return push(m, v);
}

/* variant: the type */
ACTION(do_data)
{
    return push_text(m, (sfp__pickle_type)op->variant, a->data, a->size, NULL);
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses n hexadecimal digits at s. */
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

/* Protocol 0's 'text', as written by repr(). Names need only the plain escapes. */
ACTION(do_string_line)
{
    static const char escapes[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    const uint8_t *s = a->data, *end = a->data + a->size;
    char *out;
    if (a->size < 2 || (s[0] != '\'' && s[0] != '"') || end[-1] != s[0])
        return FAIL(m, SFP_EFORMAT, "expected a quoted string on one line");
    TRY(push_text(m, SFP__PICKLE_TEXT, NULL, a->size - 2, &out));
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
            return FAIL(m, SFP_EFORMAT, "the string has an unknown escape");
        out[n++] = e[1];
    }
    out[n] = '\0';
    sfp__pickle_node_of(m->p, m->stack[m->depth - 1])->count = n;
    return SFP_OK;
}

/* Encodes a code point as UTF-8; at most 4 bytes. */
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

/* Protocol 0's unicode: Latin-1 with \uXXXX and \UXXXXXXXX. A byte becomes at most two bytes, an escape of six bytes at most
 * three. */
ACTION(do_unicode_line)
{
    const uint8_t *s = a->data, *end = a->data + a->size;
    char *out;
    size_t n = 0;
    TRY(push_text(m, SFP__PICKLE_TEXT, NULL, 2 * a->size, &out));
    while (s < end) {
        uint32_t code = *s;
        int digits = *s == '\\' && end - s > 1 ? (s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0) : 0;
        if (digits && (!hex(s + 2, end, digits, &code) || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
            return FAIL(m, SFP_EFORMAT, "the string has a \\u escape that is not a character");
        s += digits ? 2 + digits : 1;
        n += put_utf8(code, out + n);
    }
    out[n] = '\0';
    sfp__pickle_node_of(m->p, m->stack[m->depth - 1])->count = n;
    return SFP_OK;
}

/* --------------------------------------------------------------------- memo */

static sfp_status memo_put(machine *m, uint64_t key)
{
    size_t size = (size_t)(m->end - m->bytes);
    TRY(need(m, 1));
    if (key >= size || key >= m->limits.memo) /* Python numbers from 0 up, so no valid index is that large */
        return FAIL(m, SFP_ELIMIT, "memo index is %llu, expected less than %zu", (unsigned long long)key,
                    size < m->limits.memo ? size : m->limits.memo);
    size_t had = m->memo_capacity;
    if (!sfp__grow(&m->memo, sizeof *m->memo, had, (size_t)key + 1, &m->memo_capacity))
        return sfp__fail_nomem(m->err);
    for (size_t i = had; i < m->memo_capacity; i++)
        m->memo[i] = UNSET;
    m->memo_count += m->memo[key] == UNSET;
    m->memo[key] = m->stack[m->depth - 1];
    return SFP_OK;
}

static sfp_status memo_get(machine *m, uint64_t key)
{
    if (key >= m->memo_capacity || m->memo[key] == UNSET)
        return FAIL(m, SFP_EFORMAT, "memo index %llu was never set", (unsigned long long)key);
    return push(m, m->memo[key]);
}

/* variant: 1: set, 0: get */
ACTION(do_memo)
{
    return op->variant ? memo_put(m, a->integer) : memo_get(m, a->integer);
}

ACTION(do_memo_line)
{
    char text[24], *end;
    TRY(number_line(m, a, text, sizeof text));
    errno = 0;
    unsigned long long key = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE)
        return bad_number(m, text);
    return op->variant ? memo_put(m, key) : memo_get(m, key);
}

/* Sets the next memo index, which is the number of entries. */
ACTION(do_memoize)
{
    return memo_put(m, m->memo_count);
}

/* ------------------------------------------------------------------ objects
 *
 * Nothing is ever called. A class or function becomes a node with its name, if the list of allowed names contains it. A call
 * becomes a node with the name, the arguments and, later, the state, which the user of the pickle interprets. Without a list all
 * of these opcodes are errors. */

/* Classes whose instances are filled by SETITEMS: they are treated as dicts. */
static const char *const dicts[] = {"collections.OrderedDict", "collections.defaultdict"};

ACTION(refuse)
{
    return FAIL(m, SFP_EUNSUPPORTED, "the pickle creates or calls Python objects, expected plain data only");
}

/* An entry that ends in '*' allows all names with this prefix. */
static bool allowed(const machine *m, const char *name)
{
    for (const char *const *g = m->limits.globals; *g; g++) {
        size_t n = strlen(*g);
        if (n && (*g)[n - 1] == '*' ? strncmp(name, *g, n - 1) == 0 : strcmp(name, *g) == 0)
            return true;
    }
    return false;
}

static sfp_status push_global(machine *m, const void *module, size_t module_size, const void *name, size_t name_size)
{
    char full[GLOBAL_MAX + 1], shown[SFP__NAME_MAX];
    size_t capacity = sizeof full - 1, n = module_size < capacity ? module_size : capacity;
    memcpy(full, module, n);
    if (n < capacity)
        full[n++] = '.';
    size_t more = name_size < capacity - n ? name_size : capacity - n;
    memcpy(full + n, name, more);
    n += more;
    full[n] = '\0';
    if (module_size + 1 + name_size > capacity || strlen(full) != n || !allowed(m, full))
        return FAIL(m, SFP_EUNSUPPORTED, "name is '%s', expected a name that weights need; pickles are never executed",
                    sfp__printable(full, shown, sizeof shown));
    sfp__pickle_value v = 0;
    char *text = sfp__pickle_new_text(m->p, n);
    if (!text)
        return sfp__fail_nomem(m->err);
    TRY(sfp__pickle_new_node(m->p, SFP__PICKLE_GLOBAL, &v, m->err));
    memcpy(text, full, n);
    sfp__pickle_node_of(m->p, v)->text = text;
    sfp__pickle_node_of(m->p, v)->count = n;
    return push(m, v);
}

/* variant: 1: module and name are on the stack */
ACTION(do_global)
{
    if (!m->limits.globals)
        return refuse(m, op, a);
    if (op->variant == 0)
        return push_global(m, a->data, a->size, a->second, a->second_size);
    TRY(need(m, 2));
    size_t module_size = 0, name_size = 0;
    const char *module = sfp__pickle_text(m->p, m->stack[m->depth - 2], &module_size);
    const char *name = sfp__pickle_text(m->p, m->stack[m->depth - 1], &name_size);
    if (!module || !name)
        return FAIL(m, SFP_EFORMAT, "expected the texts of a module and a name on the stack");
    m->depth -= 2;
    return push_global(m, module, module_size, name, name_size);
}

static bool is_dict(const char *name)
{
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++)
        if (strcmp(name, dicts[i]) == 0)
            return true;
    return false;
}

/* REDUCE and NEWOBJ: create an object from a name and its arguments. */
ACTION(do_object)
{
    if (!m->limits.globals)
        return refuse(m, op, a);
    TRY(need(m, 2));
    sfp__pickle_value callee = m->stack[m->depth - 2], args = m->stack[m->depth - 1];
    const char *name = sfp__pickle_global(m->p, callee);
    if (!name)
        return FAIL(m, SFP_EUNSUPPORTED, "callee is %s, expected a class or function",
                    sfp__pickle_type_name(sfp__pickle_type_of(m->p, callee)));
    if (sfp__pickle_type_of(m->p, args) != SFP__PICKLE_TUPLE)
        return FAIL(m, SFP_EFORMAT, "arguments of '%s' are %s, expected a tuple", name,
                    sfp__pickle_type_name(sfp__pickle_type_of(m->p, args)));
    if (!is_dict(name))
        return collect(m, SFP__PICKLE_OBJECT, m->depth - 2);
    /* the factory function of a defaultdict can be ignored; initial items, as Python 2 writes them, cannot */
    for (size_t i = 0; i < sfp__pickle_count(m->p, args); i++)
        if (sfp__pickle_type_of(m->p, sfp__pickle_item(m->p, args, i)) >= SFP__PICKLE_LIST)
            return FAIL(m, SFP_EUNSUPPORTED, "'%s' is created from %s, expected one that is filled afterwards", name,
                        sfp__pickle_type_name(sfp__pickle_type_of(m->p, sfp__pickle_item(m->p, args, i))));
    m->depth -= 2;
    return collect(m, SFP__PICKLE_DICT, m->depth);
}

/* BUILD: sets the state of the object below it. A dict's own attributes (torch's _metadata) are dropped. */
ACTION(do_build)
{
    if (!m->limits.globals)
        return refuse(m, op, a);
    TRY(need(m, 2));
    sfp__pickle_value object = m->stack[m->depth - 2];
    sfp__pickle_type type = sfp__pickle_type_of(m->p, object);
    if (type != SFP__PICKLE_DICT && type != SFP__PICKLE_OBJECT)
        return FAIL(m, SFP_EFORMAT, "state is for %s, expected an object", sfp__pickle_type_name(type));
    if (type == SFP__PICKLE_OBJECT && sfp__pickle_count(m->p, object) == 2)
        TRY(put_items(m, object, m->depth - 1, 1));
    m->depth--;
    return SFP_OK;
}

/* BINPERSID: refers to an object that the file stores outside of the pickle. */
ACTION(do_persistent)
{
    if (!m->limits.globals)
        return refuse(m, op, a);
    TRY(need(m, 1));
    return collect(m, SFP__PICKLE_PERSISTENT, m->depth - 1);
}

/* -------------------------------------------------------------------- table */

ACTION(do_stop)
{
    if (m->mark_count || m->depth != 1)
        return FAIL(m, SFP_EFORMAT, "expected one value on the stack, found %zu%s", m->depth, m->mark_count ? " and a MARK" : "");
    m->p->root = m->stack[0];
    m->p->used = (size_t)(m->at - m->bytes);
    return SFP_OK;
}

static const opcode opcodes[256] = {
    ['('] = {"MARK", NO_OPERAND, do_mark, 0},
    ['.'] = {"STOP", NO_OPERAND, do_stop, 0},
    ['0'] = {"POP", NO_OPERAND, do_pop, 0},
    ['1'] = {"POP_MARK", NO_OPERAND, do_pop_mark, 0},
    ['2'] = {"DUP", NO_OPERAND, do_dup, 0},
    [0x80] = {"PROTO", INT_1, do_proto, 0},
    [0x95] = {"FRAME", INT_8, do_frame, 0},

    ['N'] = {"NONE", NO_OPERAND, do_constant, SFP__PICKLE_NODE_NONE},
    [0x88] = {"NEWTRUE", NO_OPERAND, do_constant, SFP__PICKLE_NODE_TRUE},
    [0x89] = {"NEWFALSE", NO_OPERAND, do_constant, SFP__PICKLE_NODE_FALSE},

    ['I'] = {"INT", LINE, do_int_line, 0},
    ['L'] = {"LONG", LINE, do_int_line, 1},
    ['K'] = {"BININT1", INT_1, do_int, 1},
    ['M'] = {"BININT2", INT_2, do_int, 2},
    ['J'] = {"BININT", INT_4, do_int, 4},
    [0x8a] = {"LONG1", DATA_1, do_long, 0},
    [0x8b] = {"LONG4", DATA_4, do_long, 0},
    ['F'] = {"FLOAT", LINE, do_float_line, 0},
    ['G'] = {"BINFLOAT", INT_8, do_float, 0},

    ['S'] = {"STRING", LINE, do_string_line, 0},
    ['V'] = {"UNICODE", LINE, do_unicode_line, 0},
    ['U'] = {"SHORT_BINSTRING", DATA_1, do_data, SFP__PICKLE_TEXT},
    ['T'] = {"BINSTRING", DATA_4, do_data, SFP__PICKLE_TEXT},
    [0x8c] = {"SHORT_BINUNICODE", DATA_1, do_data, SFP__PICKLE_TEXT},
    ['X'] = {"BINUNICODE", DATA_4, do_data, SFP__PICKLE_TEXT},
    [0x8d] = {"BINUNICODE8", DATA_8, do_data, SFP__PICKLE_TEXT},
    ['C'] = {"SHORT_BINBYTES", DATA_1, do_data, SFP__PICKLE_BYTES},
    ['B'] = {"BINBYTES", DATA_4, do_data, SFP__PICKLE_BYTES},
    [0x8e] = {"BINBYTES8", DATA_8, do_data, SFP__PICKLE_BYTES},
    [0x96] = {"BYTEARRAY8", DATA_8, do_data, SFP__PICKLE_BYTES},

    [']'] = {"EMPTY_LIST", NO_OPERAND, do_empty, SFP__PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", NO_OPERAND, do_empty, SFP__PICKLE_TUPLE},
    ['}'] = {"EMPTY_DICT", NO_OPERAND, do_empty, SFP__PICKLE_DICT},
    ['l'] = {"LIST", NO_OPERAND, do_collect, SFP__PICKLE_LIST},
    ['t'] = {"TUPLE", NO_OPERAND, do_collect, SFP__PICKLE_TUPLE},
    ['d'] = {"DICT", NO_OPERAND, do_collect, SFP__PICKLE_DICT},
    [0x85] = {"TUPLE1", NO_OPERAND, do_tuple, 1},
    [0x86] = {"TUPLE2", NO_OPERAND, do_tuple, 2},
    [0x87] = {"TUPLE3", NO_OPERAND, do_tuple, 3},
    ['a'] = {"APPEND", NO_OPERAND, do_put_one, SFP__PICKLE_LIST},
    ['e'] = {"APPENDS", NO_OPERAND, do_put_many, SFP__PICKLE_LIST},
    ['s'] = {"SETITEM", NO_OPERAND, do_put_one, SFP__PICKLE_DICT},
    ['u'] = {"SETITEMS", NO_OPERAND, do_put_many, SFP__PICKLE_DICT},

    ['p'] = {"PUT", LINE, do_memo_line, 1},
    ['q'] = {"BINPUT", INT_1, do_memo, 1},
    ['r'] = {"LONG_BINPUT", INT_4, do_memo, 1},
    ['g'] = {"GET", LINE, do_memo_line, 0},
    ['h'] = {"BINGET", INT_1, do_memo, 0},
    ['j'] = {"LONG_BINGET", INT_4, do_memo, 0},
    [0x94] = {"MEMOIZE", NO_OPERAND, do_memoize, 0},

    [0x8f] = {"EMPTY_SET", NO_OPERAND, unsupported, 0},
    [0x90] = {"ADDITEMS", NO_OPERAND, unsupported, 0},
    [0x91] = {"FROZENSET", NO_OPERAND, unsupported, 0},
    [0x97] = {"NEXT_BUFFER", NO_OPERAND, unsupported, 0},
    [0x98] = {"READONLY_BUFFER", NO_OPERAND, unsupported, 0},

    ['c'] = {"GLOBAL", LINES_2, do_global, 0},
    [0x93] = {"STACK_GLOBAL", NO_OPERAND, do_global, 1},
    ['R'] = {"REDUCE", NO_OPERAND, do_object, 0},
    [0x81] = {"NEWOBJ", NO_OPERAND, do_object, 0},
    ['b'] = {"BUILD", NO_OPERAND, do_build, 0},
    ['Q'] = {"BINPERSID", NO_OPERAND, do_persistent, 0},
    ['P'] = {"PERSID", NO_OPERAND, refuse, 0},
    ['i'] = {"INST", NO_OPERAND, refuse, 0},
    ['o'] = {"OBJ", NO_OPERAND, refuse, 0},
    [0x92] = {"NEWOBJ_EX", NO_OPERAND, refuse, 0},
    [0x82] = {"EXT1", NO_OPERAND, refuse, 0},
    [0x83] = {"EXT2", NO_OPERAND, refuse, 0},
    [0x84] = {"EXT4", NO_OPERAND, refuse, 0},
};

/* Reads an integer of n bytes, little-endian. */
static bool read_int(machine *m, int n, uint64_t *out)
{
    uint64_t v = 0;
    if (m->end - m->at < n)
        return false;
    for (int i = n; i-- > 0;)
        v = v << 8 | m->at[i];
    m->at += n;
    *out = v;
    return true;
}

static bool read_data(machine *m, int length_bytes, argument *out)
{
    uint64_t n = 0;
    if (!read_int(m, length_bytes, &n) || n > (uint64_t)(m->end - m->at))
        return false;
    out->data = m->at;
    out->size = (size_t)n;
    m->at += n;
    return true;
}

static bool read_line(machine *m, const uint8_t **data, size_t *size)
{
    const uint8_t *stop = m->at < m->end ? memchr(m->at, '\n', (size_t)(m->end - m->at)) : NULL;
    if (!stop)
        return false;
    *data = m->at;
    *size = (size_t)(stop - m->at);
    m->at = stop + 1;
    if (*size && (*data)[*size - 1] == '\r') /* the file was written in text mode */
        --*size;
    return true;
}

static sfp_status read_operand(machine *m, operand kind, argument *out)
{
    bool ok = true;
    if (kind >= LINE)
        ok = read_line(m, &out->data, &out->size) && (kind == LINE || read_line(m, &out->second, &out->second_size));
    else if (kind > INT_8)
        ok = read_data(m, (int)kind - 16, out);
    else if (kind != NO_OPERAND)
        ok = read_int(m, (int)kind, &out->integer);
    return ok ? SFP_OK : FAIL(m, SFP_EFORMAT, "the file ends within the operand");
}

static sfp_status run(machine *m)
{
    for (uint8_t code = 0; code != '.';) {
        if (m->at == m->end)
            return sfp__fail(m->err, SFP_EFORMAT, "%s: pickle ends without STOP, after %zu bytes", m->label,
                             (size_t)(m->end - m->bytes));
        m->offset = (size_t)(m->at - m->bytes);
        code = *m->at++;
        const opcode *op = &opcodes[code];
        if (!op->run)
            return sfp__fail(m->err, SFP_EFORMAT,
                             "%s: pickle, byte %zu: opcode 0x%02x is unknown; the file is damaged or not a pickle", m->label,
                             m->offset, code);
        argument a = {0};
        TRY(read_operand(m, op->operand, &a));
        TRY(op->run(m, op, &a));
    }
    return SFP_OK;
}

static void machine_done(machine *m)
{
    sfp__free(m->stack);
    sfp__free(m->marks);
    sfp__free(m->memo);
    sfp__pickle_free(m->p);
}

sfp_status sfp__pickle_parse(const char *label, const void *bytes, size_t size, const sfp__pickle_limits *limits,
                             sfp__pickle **out, sfp_error *err)
{
    OWNED_BY(machine_done)
    machine m = {
        .label = label, .err = err, .bytes = bytes, .at = bytes, .limits = limits ? *limits : sfp__pickle_limits_defaults()};
    m.end = m.at + size;
    if (m.limits.depth < 1 || m.limits.depth > 200) /* a level is stored in a byte */
        return sfp__fail(err, SFP_EINVAL, "%s: nesting limit is %d, expected 1 to 200", label, m.limits.depth);
    if (size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty, expected a pickle", label);
    if (size > m.limits.bytes)
        return sfp__fail(err, SFP_ELIMIT, "%s: pickle is %zu bytes, expected at most %zu", label, size, m.limits.bytes);
    TRY(sfp__alloc(&m.marks, (size_t)m.limits.depth, sizeof *m.marks, err));
    TRY(sfp__pickle_create(&m.p, err));
    TRY(run(&m));
    *out = TAKE(m.p);
    return SFP_OK;
}
