/* The stack machine of a pickle.
 *
 * One table says of every opcode what it is called, what operand follows it and
 * what to do; what has no row is unknown. Numbers and strings are made in
 * pickle_scalar.c; opcodes that name or make objects are in pickle_object.c,
 * which asks the allow-list. The machine does not recurse and runs nothing.
 * Memory is bounded by the input: every opcode pushes at most one value, and a memo number must be below the number of bytes. */
#include "io/tensor/pickle_machine.h"

#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNSET UINT64_MAX

static const sfp__pickle_opcode opcodes[256];

static const char *op_name(const sfp__pickle_machine *m)
{
    return opcodes[m->bytes[m->offset]].name;
}

/* "FILE: byte 17: APPEND: MESSAGE" */
sfp_status sfp__pickle_fail_at(const sfp__pickle_machine *m, sfp_status status)
{
    return sfp__fail_prefix(m->err, status, "%s: pickle, byte %zu: %s", m->label, m->offset, op_name(m));
}

/* ---------------------------------------------------------------- the stack */

static sfp_status count_items(sfp__pickle_machine *m, size_t n)
{
    if (n > m->limits.items - m->items)
        return FAIL(m, SFP_ELIMIT, "more than %zu values", m->limits.items);
    m->items += n;
    return SFP_OK;
}

sfp_status sfp__pickle_push(sfp__pickle_machine *m, sfp_pickle_value v)
{
    sfp_status status = count_items(m, 1);
    if (status != SFP_OK)
        return status;
    if (!sfp__grow(&m->stack, sizeof *m->stack, m->depth, m->depth + 1, &m->stack_room))
        return sfp__fail_nomem(m->err);
    m->stack[m->depth++] = v;
    return SFP_OK;
}

/* Values above the last mark (or at all). */
static size_t available(const sfp__pickle_machine *m)
{
    return m->depth - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

sfp_status sfp__pickle_need(sfp__pickle_machine *m, size_t n)
{
    if (available(m) < n)
        return FAIL(m, SFP_EFORMAT, "needs %zu value%s on the stack, found %zu", n, n == 1 ? "" : "s", available(m));
    return SFP_OK;
}

/* Takes the last mark away; *first is where its values begin. */
static sfp_status take_mark(sfp__pickle_machine *m, size_t *first)
{
    if (m->mark_count == 0)
        return FAIL(m, SFP_EFORMAT, "there is no MARK");
    *first = m->marks[--m->mark_count];
    return SFP_OK;
}

/* Puts n values from the stack into a container. */
sfp_status sfp__pickle_put_items(sfp__pickle_machine *m, sfp_pickle_value container, const size_t first, size_t n)
{
    sfp_status status = count_items(m, n);
    sfp_pickle_node *c = sfp__pickle_node_of(m->p, container);
    if (status != SFP_OK)
        return status;
    if (!sfp__grow(&c->item, sizeof *c->item, c->count, c->count + n, &c->room))
        return sfp__fail_nomem(m->err);
    for (size_t i = 0; i < n; i++) {
        sfp_pickle_value v = m->stack[first + i];
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

static sfp_status unsupported(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    return FAIL(m, SFP_EUNSUPPORTED, "is not supported, expected lists, tuples, dicts, strings and numbers");
}

static sfp_status do_proto(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    if (a->integer > 5)
        return FAIL(m, SFP_EUNSUPPORTED, "protocol is %llu, expected 0 to 5", (unsigned long long)a->integer);
    return SFP_OK;
}

/* A frame is only a hint to read ahead; it must lie in the file. */
static sfp_status do_frame(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    if (a->integer > (uint64_t)(m->end - m->at))
        return FAIL(m, SFP_EFORMAT, "frame is %llu bytes, found %zu", (unsigned long long)a->integer, (size_t)(m->end - m->at));
    return SFP_OK;
}

static sfp_status do_mark(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    if (m->mark_count == m->limits.depth)
        return FAIL(m, SFP_ELIMIT, "nested deeper than %d", m->limits.depth);
    m->marks[m->mark_count++] = m->depth;
    return SFP_OK;
}

static sfp_status do_pop(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    if (available(m) == 0 && m->mark_count > 0) { /* Python's POP takes a mark too */
        m->mark_count--;
        return SFP_OK;
    }
    sfp_status status = sfp__pickle_need(m, 1);
    if (status == SFP_OK)
        m->depth--;
    return status;
}

static sfp_status do_pop_mark(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    return take_mark(m, &m->depth);
}

static sfp_status do_dup(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    sfp_status status = sfp__pickle_need(m, 1);
    return status == SFP_OK ? sfp__pickle_push(m, m->stack[m->depth - 1]) : status;
}

static sfp_status do_constant(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    return sfp__pickle_push(m, 2 * (uint64_t)op->variant);
}

/* variant: the type */
static sfp_status do_empty(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    sfp_pickle_value v = 0;
    sfp_status status = sfp__pickle_new_node(m->p, (sfp_pickle_type)op->variant, &v, m->err);
    return status == SFP_OK ? sfp__pickle_push(m, v) : status;
}

/* A container of the values from `first` on, in their place. */
static sfp_status collect(sfp__pickle_machine *m, sfp_pickle_type type, size_t first)
{
    size_t n = m->depth - first;
    sfp_pickle_value v = 0;
    if (type == SFP_PICKLE_DICT && n % 2)
        return FAIL(m, SFP_EFORMAT, "a key has no value");
    sfp_status status = sfp__pickle_new_node(m->p, type, &v, m->err);
    if (status == SFP_OK)
        status = sfp__pickle_put_items(m, v, first, n);
    if (status != SFP_OK)
        return status;
    m->depth = first;
    return sfp__pickle_push(m, v);
}

/* LIST, TUPLE, DICT: what lies above the mark. variant: the type */
static sfp_status do_collect(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    size_t first = 0;
    sfp_status status = take_mark(m, &first);
    return status == SFP_OK ? collect(m, (sfp_pickle_type)op->variant, first) : status;
}

/* variant: how many */
static sfp_status do_tuple(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    size_t n = (size_t)op->variant;
    sfp_status status = sfp__pickle_need(m, n);
    return status == SFP_OK ? collect(m, SFP_PICKLE_TUPLE, m->depth - n) : status;
}

/* Puts what is above `first` into the container below it. */
static sfp_status extend(sfp__pickle_machine *m, sfp_pickle_type type, size_t first)
{
    size_t n = m->depth - first;
    size_t base = m->mark_count ? m->marks[m->mark_count - 1] : 0;
    if (first <= base)
        return FAIL(m, SFP_EFORMAT, "there is no container on the stack");
    sfp_pickle_value c = m->stack[first - 1];
    sfp_pickle_type found = sfp__pickle_type(m->p, c);
    if (found != type)
        return FAIL(m, SFP_EFORMAT, "expected %s on the stack, found %s", sfp__pickle_type_name(type),
                    sfp__pickle_type_name(found));
    if (type == SFP_PICKLE_DICT && n % 2)
        return FAIL(m, SFP_EFORMAT, "a key has no value");
    sfp_status status = sfp__pickle_put_items(m, c, first, n);
    if (status == SFP_OK)
        m->depth = first;
    return status;
}

/* APPEND, SETITEM. variant: the type */
static sfp_status do_put_one(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    size_t n = op->variant == SFP_PICKLE_DICT ? 2 : 1;
    sfp_status status = sfp__pickle_need(m, n + 1);
    return status == SFP_OK ? extend(m, (sfp_pickle_type)op->variant, m->depth - n) : status;
}

/* APPENDS, SETITEMS. variant: the type */
static sfp_status do_put_many(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)a;
    size_t first = 0;
    sfp_status status = take_mark(m, &first);
    return status == SFP_OK ? extend(m, (sfp_pickle_type)op->variant, first) : status;
}

/* --------------------------------------------------------------------- memo */

static sfp_status memo_put(sfp__pickle_machine *m, uint64_t key)
{
    size_t size = (size_t)(m->end - m->bytes);
    sfp_status status = sfp__pickle_need(m, 1);
    if (status != SFP_OK)
        return status;
    if (key >= size || key >= m->limits.memo) /* Python counts from 0 up, so no honest number is that large */
        return FAIL(m, SFP_ELIMIT, "memo number is %llu, expected one below %zu", (unsigned long long)key,
                    size < m->limits.memo ? size : m->limits.memo);
    size_t had = m->memo_room;
    if (!sfp__grow(&m->memo, sizeof *m->memo, had, (size_t)key + 1, &m->memo_room))
        return sfp__fail_nomem(m->err);
    for (size_t i = had; i < m->memo_room; i++)
        m->memo[i] = UNSET;
    m->memo_count += m->memo[key] == UNSET;
    m->memo[key] = m->stack[m->depth - 1];
    return SFP_OK;
}

static sfp_status memo_get(sfp__pickle_machine *m, uint64_t key)
{
    if (key >= m->memo_room || m->memo[key] == UNSET)
        return FAIL(m, SFP_EFORMAT, "memo number %llu was never put", (unsigned long long)key);
    return sfp__pickle_push(m, m->memo[key]);
}

/* variant: 1 to put, 0 to get */
static sfp_status do_memo(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    return op->variant ? memo_put(m, a->integer) : memo_get(m, a->integer);
}

static sfp_status do_memo_line(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    char text[24], *end;
    sfp_status status = sfp__pickle_number_line(m, a, text, sizeof text);
    if (status != SFP_OK)
        return status;
    errno = 0;
    unsigned long long key = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE)
        return sfp__pickle_bad_number(m, text);
    return op->variant ? memo_put(m, key) : memo_get(m, key);
}

/* The next number, which is how many there are. */
static sfp_status do_memoize(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    return memo_put(m, m->memo_count);
}

/* -------------------------------------------------------------------- table */

static sfp_status do_stop(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    if (m->mark_count || m->depth != 1)
        return FAIL(m, SFP_EFORMAT, "expected one value on the stack, found %zu%s", m->depth, m->mark_count ? " and a MARK" : "");
    m->p->root = m->stack[0];
    m->p->used = (size_t)(m->at - m->bytes);
    return SFP_OK;
}

static const sfp__pickle_opcode opcodes[256] = {
    ['('] = {"MARK", NO_OPERAND, do_mark, 0},
    ['.'] = {"STOP", NO_OPERAND, do_stop, 0},
    ['0'] = {"POP", NO_OPERAND, do_pop, 0},
    ['1'] = {"POP_MARK", NO_OPERAND, do_pop_mark, 0},
    ['2'] = {"DUP", NO_OPERAND, do_dup, 0},
    [0x80] = {"PROTO", INT_1, do_proto, 0},
    [0x95] = {"FRAME", INT_8, do_frame, 0},

    ['N'] = {"NONE", NO_OPERAND, do_constant, SFP_PICKLE_NODE_NONE},
    [0x88] = {"NEWTRUE", NO_OPERAND, do_constant, SFP_PICKLE_NODE_TRUE},
    [0x89] = {"NEWFALSE", NO_OPERAND, do_constant, SFP_PICKLE_NODE_FALSE},

    ['I'] = {"INT", LINE, sfp__pickle_do_int_line, 0},
    ['L'] = {"LONG", LINE, sfp__pickle_do_int_line, 1},
    ['K'] = {"BININT1", INT_1, sfp__pickle_do_int, 1},
    ['M'] = {"BININT2", INT_2, sfp__pickle_do_int, 2},
    ['J'] = {"BININT", INT_4, sfp__pickle_do_int, 4},
    [0x8a] = {"LONG1", DATA_1, sfp__pickle_do_long, 0},
    [0x8b] = {"LONG4", DATA_4, sfp__pickle_do_long, 0},
    ['F'] = {"FLOAT", LINE, sfp__pickle_do_float_line, 0},
    ['G'] = {"BINFLOAT", INT_8, sfp__pickle_do_float, 0},

    ['S'] = {"STRING", LINE, sfp__pickle_do_string_line, 0},
    ['V'] = {"UNICODE", LINE, sfp__pickle_do_unicode_line, 0},
    ['U'] = {"SHORT_BINSTRING", DATA_1, sfp__pickle_do_data, SFP_PICKLE_TEXT},
    ['T'] = {"BINSTRING", DATA_4, sfp__pickle_do_data, SFP_PICKLE_TEXT},
    [0x8c] = {"SHORT_BINUNICODE", DATA_1, sfp__pickle_do_data, SFP_PICKLE_TEXT},
    ['X'] = {"BINUNICODE", DATA_4, sfp__pickle_do_data, SFP_PICKLE_TEXT},
    [0x8d] = {"BINUNICODE8", DATA_8, sfp__pickle_do_data, SFP_PICKLE_TEXT},
    ['C'] = {"SHORT_BINBYTES", DATA_1, sfp__pickle_do_data, SFP_PICKLE_BYTES},
    ['B'] = {"BINBYTES", DATA_4, sfp__pickle_do_data, SFP_PICKLE_BYTES},
    [0x8e] = {"BINBYTES8", DATA_8, sfp__pickle_do_data, SFP_PICKLE_BYTES},
    [0x96] = {"BYTEARRAY8", DATA_8, sfp__pickle_do_data, SFP_PICKLE_BYTES},

    [']'] = {"EMPTY_LIST", NO_OPERAND, do_empty, SFP_PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", NO_OPERAND, do_empty, SFP_PICKLE_TUPLE},
    ['}'] = {"EMPTY_DICT", NO_OPERAND, do_empty, SFP_PICKLE_DICT},
    ['l'] = {"LIST", NO_OPERAND, do_collect, SFP_PICKLE_LIST},
    ['t'] = {"TUPLE", NO_OPERAND, do_collect, SFP_PICKLE_TUPLE},
    ['d'] = {"DICT", NO_OPERAND, do_collect, SFP_PICKLE_DICT},
    [0x85] = {"TUPLE1", NO_OPERAND, do_tuple, 1},
    [0x86] = {"TUPLE2", NO_OPERAND, do_tuple, 2},
    [0x87] = {"TUPLE3", NO_OPERAND, do_tuple, 3},
    ['a'] = {"APPEND", NO_OPERAND, do_put_one, SFP_PICKLE_LIST},
    ['e'] = {"APPENDS", NO_OPERAND, do_put_many, SFP_PICKLE_LIST},
    ['s'] = {"SETITEM", NO_OPERAND, do_put_one, SFP_PICKLE_DICT},
    ['u'] = {"SETITEMS", NO_OPERAND, do_put_many, SFP_PICKLE_DICT},

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

    ['c'] = {"GLOBAL", LINES_2, sfp__pickle_do_global, 0},
    [0x93] = {"STACK_GLOBAL", NO_OPERAND, sfp__pickle_do_global, 1},
    ['R'] = {"REDUCE", NO_OPERAND, sfp__pickle_do_object, 0},
    [0x81] = {"NEWOBJ", NO_OPERAND, sfp__pickle_do_object, 0},
    ['b'] = {"BUILD", NO_OPERAND, sfp__pickle_do_build, 0},
    ['Q'] = {"BINPERSID", NO_OPERAND, sfp__pickle_do_persistent, 0},
    ['P'] = {"PERSID", NO_OPERAND, sfp__pickle_refuse, 0},
    ['i'] = {"INST", NO_OPERAND, sfp__pickle_refuse, 0},
    ['o'] = {"OBJ", NO_OPERAND, sfp__pickle_refuse, 0},
    [0x92] = {"NEWOBJ_EX", NO_OPERAND, sfp__pickle_refuse, 0},
    [0x82] = {"EXT1", NO_OPERAND, sfp__pickle_refuse, 0},
    [0x83] = {"EXT2", NO_OPERAND, sfp__pickle_refuse, 0},
    [0x84] = {"EXT4", NO_OPERAND, sfp__pickle_refuse, 0},
};

/* n bytes, little-endian */
static bool take_int(sfp__pickle_machine *m, int n, uint64_t *out)
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

static bool take_data(sfp__pickle_machine *m, int length_bytes, sfp__pickle_argument *out)
{
    uint64_t n = 0;
    if (!take_int(m, length_bytes, &n) || n > (uint64_t)(m->end - m->at))
        return false;
    out->data = m->at;
    out->size = (size_t)n;
    m->at += n;
    return true;
}

static bool take_line(sfp__pickle_machine *m, const uint8_t **data, size_t *size)
{
    const uint8_t *stop = m->at < m->end ? memchr(m->at, '\n', (size_t)(m->end - m->at)) : NULL;
    if (!stop)
        return false;
    *data = m->at;
    *size = (size_t)(stop - m->at);
    m->at = stop + 1;
    if (*size && (*data)[*size - 1] == '\r') /* written in text mode */
        --*size;
    return true;
}

static sfp_status take_operand(sfp__pickle_machine *m, operand kind, sfp__pickle_argument *out)
{
    bool ok = true;
    switch (kind) {
    case NO_OPERAND:
        break;
    case INT_1:
        ok = take_int(m, 1, &out->integer);
        break;
    case INT_2:
        ok = take_int(m, 2, &out->integer);
        break;
    case INT_4:
        ok = take_int(m, 4, &out->integer);
        break;
    case INT_8:
        ok = take_int(m, 8, &out->integer);
        break;
    case DATA_1:
        ok = take_data(m, 1, out);
        break;
    case DATA_4:
        ok = take_data(m, 4, out);
        break;
    case DATA_8:
        ok = take_data(m, 8, out);
        break;
    case LINE:
        ok = take_line(m, &out->data, &out->size);
        break;
    case LINES_2:
        ok = take_line(m, &out->data, &out->size) && take_line(m, &out->second, &out->second_size);
        break;
    }
    return ok ? SFP_OK : FAIL(m, SFP_EFORMAT, "the file ends within it");
}

static sfp_status run(sfp__pickle_machine *m)
{
    sfp_status status = SFP_OK;
    for (uint8_t code = 0; status == SFP_OK && code != '.';) {
        if (m->at == m->end)
            return sfp__fail(m->err, SFP_EFORMAT, "%s: pickle ends without STOP, after %zu bytes", m->label,
                             (size_t)(m->end - m->bytes));
        m->offset = (size_t)(m->at - m->bytes);
        code = *m->at++;
        const sfp__pickle_opcode *op = &opcodes[code];
        if (!op->run)
            return sfp__fail(m->err, SFP_EFORMAT, "%s: pickle, byte %zu: opcode 0x%02x is not known: no pickle, or a damaged one",
                             m->label, m->offset, code);
        sfp__pickle_argument a = {0};
        status = take_operand(m, op->operand, &a);
        if (status == SFP_OK)
            status = op->run(m, op, &a);
    }
    return status;
}

sfp_status sfp__pickle_parse(const char *label, const void *bytes, size_t size, const sfp_pickle_limits *limits, sfp_pickle **out,
                             sfp_error *err)
{
    sfp__pickle_machine m = {
        .label = label, .err = err, .bytes = bytes, .at = bytes, .limits = limits ? *limits : sfp__pickle_limits_defaults()};
    sfp_status status = SFP_OK;
    m.end = m.at + size;
    if (m.limits.depth < 1 || m.limits.depth > 200) /* a level is kept in a byte */
        return sfp__fail(err, SFP_EINVAL, "%s: limit of nesting is %d, expected 1..200", label, m.limits.depth);
    if (size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: is empty, expected a pickle", label);
    if (size > m.limits.bytes)
        return sfp__fail(err, SFP_ELIMIT, "%s: pickle is %zu bytes, expected at most %zu", label, size, m.limits.bytes);
    m.marks = sfp__calloc((size_t)m.limits.depth, sizeof *m.marks);
    if (!m.marks)
        status = sfp__fail_nomem(err);
    if (status == SFP_OK)
        status = sfp__pickle_create(&m.p, err);
    if (status == SFP_OK)
        status = run(&m);
    sfp__free(m.stack);
    sfp__free(m.marks);
    sfp__free(m.memo);
    if (status != SFP_OK) {
        sfp__pickle_free(m.p);
        return status;
    }
    *out = m.p;
    return SFP_OK;
}
