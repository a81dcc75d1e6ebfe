/* Damage that leaves a file its form: one bit of its last number is another. Include after <cmocka.h>. */
#ifndef SFP_TESTS_FLIP_LAST_BYTE_H
#define SFP_TESTS_FLIP_LAST_BYTE_H

#include "test.h"

static inline void flip_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int byte = getc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(putc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

#endif
