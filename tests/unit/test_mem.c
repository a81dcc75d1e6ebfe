/* Memory: alignment, overflow, and two facilities for tests: counting allocations and making them fail. */
#include "test.h"

TEST(blocks_are_aligned_and_whole)
{
    static const size_t sizes[] = {1, 63, 64, 65, 1000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = sfp__malloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % SFP__ALIGN, 0);
        memset(p, 0xa5, sizes[i]);
        sfp__free(p);
    }
    sfp__free(NULL);
}

TEST(sizes_zero_and_too_large_give_null)
{
    volatile size_t none = 0, huge = SIZE_MAX; /* volatile: the compiler would warn about constants */
    assert_null(sfp__malloc(none));
    assert_null(sfp__malloc(huge));
    assert_null(sfp__malloc(huge - SFP__ALIGN));
    assert_null(sfp__malloc((size_t)PTRDIFF_MAX));
    assert_null(sfp__calloc(huge / 2, 3)); /* the product wraps around to a small number */
    assert_null(sfp__calloc((size_t)1 << 33, (size_t)1 << 33));
    assert_null(sfp__calloc(none, 8));
}

TEST(calloc_clears)
{
    for (int round = 0; round < 4; round++) { /* later rounds reuse freed memory */
        unsigned char *p = sfp__calloc(77, 13);
        assert_non_null(p);
        for (size_t i = 0; i < 77 * 13; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, 77 * 13);
        sfp__free(p);
    }
}

TEST(realloc_keeps_the_common_part)
{
    static const unsigned char ten[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    unsigned char *p = sfp__realloc(NULL, 0, 10);
    assert_non_null(p);
    memcpy(p, ten, 10);
    p = sfp__realloc(p, 10, 500);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % SFP__ALIGN, 0);
    assert_memory_equal(p, ten, 10);
    p = sfp__realloc(p, 500, 4);
    assert_non_null(p);
    assert_memory_equal(p, ten, 4);
    sfp__mem_fail_at(0);
    assert_null(sfp__realloc(p, 4, 1000));
    sfp__mem_fail_at(-1);
    assert_memory_equal(p, ten, 4); /* a failed realloc does not change the old block */
    sfp__free(p);
}

TEST(a_growing_array_keeps_its_elements)
{
    int *array = NULL;
    size_t capacity = 0;
    unsigned long before = sfp__mem_count();
    assert_true(sfp__grow(&array, sizeof *array, 0, 0, &capacity));
    assert_null(array);
    for (int i = 0; i < 1000; i++) {
        assert_true(sfp__grow(&array, sizeof *array, (size_t)i, (size_t)i + 1, &capacity));
        array[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
    assert_true(sfp__mem_count() - before < 10); /* the capacity doubles */
    assert_true(sfp__grow(&array, sizeof *array, 1000, 100000, &capacity));
    assert_int_equal(capacity, 100000);
    int *same = array;
    assert_false(sfp__grow(&array, sizeof *array, 1000, SIZE_MAX / 2, &capacity)); /* the size in bytes overflows size_t */
    sfp__mem_fail_at(0);
    assert_false(sfp__grow(&array, sizeof *array, 1000, 100001, &capacity));
    sfp__mem_fail_at(-1);
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, 100000);
    assert_int_equal(array[999], 999);
    sfp__free(array);
}

TEST(strdup_copies_the_terminator)
{
    OWNED char *s = sfp__strdup("blocks.0"), *empty = sfp__strdup("");
    assert_string_equal(s, "blocks.0");
    assert_string_equal(empty, "");
}

TEST(overflow_is_detected)
{
    size_t out = 0;
    assert_true(sfp__mul_size(1u << 16, 1u << 16, &out));
    assert_true(out == (size_t)1 << 32);
    assert_false(sfp__mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(sfp__add_size(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_false(sfp__add_size(SIZE_MAX, 1, &out));
}

TEST(the_kth_allocation_fails_and_only_that_one)
{
    for (long k = 0; k < 5; k++) {
        sfp__mem_fail_at(k);
        for (long i = 0; i < 8; i++) {
            OWNED void *p = i % 2 ? sfp__calloc(3, 3) : sfp__malloc(9);
            assert_int_equal(p == NULL, i == k);
        }
    }
    sfp__mem_fail_at(2);
    sfp__mem_fail_at(-1);
    for (int i = 0; i < 5; i++) {
        OWNED void *p = sfp__malloc(1);
        assert_non_null(p);
    }
}

TEST(every_allocation_is_counted)
{
    unsigned long before = sfp__mem_count();
    void *a = sfp__malloc(1), *b = sfp__calloc(1, 1), *c = sfp__strdup("x"), *d = sfp__realloc(NULL, 0, 1);
    assert_int_equal(sfp__mem_count() - before, 4);
    sfp__free(a);
    sfp__free(b);
    sfp__free(c);
    sfp__free(d);
    assert_int_equal(sfp__mem_count() - before, 4);
}
