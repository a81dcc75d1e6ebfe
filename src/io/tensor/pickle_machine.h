/* The stack machine that reads a pickle: what pickle_machine.c (containers, the stack), pickle_scalar.c (numbers, strings)
 * and pickle_object.c (objects) share. */
#ifndef SFP_IO_TENSOR_PICKLE_MACHINE_H
#define SFP_IO_TENSOR_PICKLE_MACHINE_H

#include "io/tensor/pickle_internal.h"

typedef struct sfp__pickle_machine {
    sfp_pickle *p;
    const char *label;
    sfp_error *err;
    sfp_pickle_limits limits;
    const uint8_t *bytes, *at, *end;
    size_t offset; /* of the opcode being done */
    sfp_pickle_value *stack;
    size_t depth, stack_room;
    size_t *marks; /* (limits.depth) heights of the stack */
    int mark_count;
    sfp_pickle_value *memo;
    size_t memo_count, memo_room; /* entries set; room */
    size_t items;
} sfp__pickle_machine;

typedef enum operand {
    NO_OPERAND,
    INT_1, /* so many bytes, little-endian */
    INT_2,
    INT_4,
    INT_8,
    LINE,    /* up to '\n' */
    LINES_2, /* two of them */
    DATA_1,  /* a length of so many bytes, then the bytes */
    DATA_4,
    DATA_8,
} operand;

typedef struct sfp__pickle_argument {
    uint64_t integer;
    const uint8_t *data, *second;
    size_t size, second_size;
} sfp__pickle_argument;

typedef struct sfp__pickle_opcode {
    const char *name;
    operand operand;
    sfp_status (*run)(sfp__pickle_machine *m, const struct sfp__pickle_opcode *op, const sfp__pickle_argument *a);
    int variant; /* what tells apart the opcodes of one function */
} sfp__pickle_opcode;

/* "FILE: byte 17: APPEND: MESSAGE" */
#define FAIL(m, status, ...) sfp__pickle_fail_at(m, sfp__fail((m)->err, status, __VA_ARGS__))
sfp_status sfp__pickle_fail_at(const sfp__pickle_machine *m, sfp_status status);

sfp_status sfp__pickle_push(sfp__pickle_machine *m, sfp_pickle_value v);
/* So many values above the last mark, or a failure. */
sfp_status sfp__pickle_need(sfp__pickle_machine *m, size_t n);
/* Puts n values of the stack, from `first` on, into a container; the stack stays as it is. */
sfp_status sfp__pickle_put_items(sfp__pickle_machine *m, sfp_pickle_value container, const size_t first, size_t n);

typedef sfp_status sfp__pickle_action(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a);
/* pickle_scalar.c */
sfp__pickle_action sfp__pickle_do_int, sfp__pickle_do_int_line, sfp__pickle_do_long, sfp__pickle_do_float,
    sfp__pickle_do_float_line;
sfp__pickle_action sfp__pickle_do_data, sfp__pickle_do_string_line, sfp__pickle_do_unicode_line;
/* A line with a number, terminated, in buf; and the failure of one that is none. */
sfp_status sfp__pickle_number_line(sfp__pickle_machine *m, const sfp__pickle_argument *a, char *buf, size_t size);
sfp_status sfp__pickle_bad_number(sfp__pickle_machine *m, const char *text);
/* pickle_object.c */
sfp__pickle_action sfp__pickle_do_global, sfp__pickle_do_object, sfp__pickle_do_build, sfp__pickle_do_persistent,
    sfp__pickle_refuse;

#endif
