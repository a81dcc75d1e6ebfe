/* The arena: blocks do not overlap, a second round allocates nothing, and a failed allocation is NULL. */
#include "test.h"

TEST(blocks_are_aligned_and_do_not_overlap)
{
    OWNED_BY(sfp__arena_done) sfp__arena a = {0};
    for (int round = 0; round < 3; round++) {
        unsigned char *piece[40];
        unsigned long before = sfp__mem_count();
        sfp__arena_reset(&a);
        for (int i = 0; i < 40; i++) {
            piece[i] = sfp__arena_take(&a, (size_t)i, 7);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % SFP__ALIGN, 0);
            memset(piece[i], i, (size_t)i * 7);
        }
        for (int i = 0; i < 40; i++)
            for (int k = 0; k < i * 7; k++)
                assert_int_equal(piece[i][k], i);
        if (round == 2)
            assert_int_equal(sfp__mem_count(), before);
    }
}

TEST(a_failed_allocation_is_null)
{
    OWNED_BY(sfp__arena_done) sfp__arena a = {0};
    assert_null(sfp__arena_take(&a, SIZE_MAX, 2));
    assert_null(sfp__arena_take(&a, SIZE_MAX, 1));
    sfp__mem_fail_at(0);
    assert_null(sfp__arena_take(&a, 10, 10));
    sfp__mem_fail_at(-1);
    assert_non_null(sfp__arena_take(&a, 10, 10));
    assert_non_null(sfp__arena_take(&a, 1000, 10));
    sfp__mem_fail_at(0); /* joining the blocks fails: the next call tries again */
    sfp__arena_reset(&a);
    sfp__mem_fail_at(-1);
    assert_non_null(sfp__arena_take(&a, 10, 10));
}
