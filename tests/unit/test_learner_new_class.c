/* Test, then train: classes that are new nobody could know, so nobody is blamed or praised for them, nor for what is rehearsed.
 */
#include "test.h"
#include "test_learner_fixture.h"

/* Classes one after the other, one a batch: no head had a chance, so no weight moves; when a class comes again, they do. */
TEST(a_new_class_moves_no_weight_of_the_mixed_heads)
{
    OWNED_BY(free_model) model m = tiny_model(1);
    sfp_learner_options o = small_options(&m, 0, 0);
    o.head = SFP_HEAD_MIX;
    o.buffer.method = "none";
    OWNED_PTR(sfp_learner_free) sfp_learner *l = make_learner(&m, &o);
    for (int c = 0; c < 5; c++) {
        sfp_timestamp t = offer(l, c, c + 1, (uint64_t)c);
        assert_true(t.judged > 0);
        assert_int_equal(t.right, 0);
        assert_true(sfp__learner_seen(l, c));
        for (int e = 0; e < SFP_HEAD_EXPERTS; e++)
            assert_true(l->mix.loss[e] == 0);
    }
    (void)offer(l, 3, 5, 9);
    for (int e = 0; e < SFP_HEAD_EXPERTS; e++)
        assert_true(l->mix.loss[e] > 0);
}

TEST(the_linear_head_cannot_name_a_class_before_it_came)
{
    OWNED_BY(free_model) model m = tiny_model(1);
    sfp_learner_options o = small_options(&m, 1, 2);
    OWNED_PTR(sfp_learner_free) sfp_learner *l = make_learner(&m, &o);
    assert_int_equal(offer(l, 0, 2, 0).right, 0);
    int right = 0;
    for (uint64_t t = 1; t < 20; t++)
        right += offer(l, 0, 2, t).right;
    assert_true(right > 0);
}

/* A slot whose query is not known comes first in a step; who is judged does not change by it. */
TEST(rehearsed_samples_are_judged_by_nobody)
{
    OWNED_BY(free_model) model m = tiny_model(1);
    sfp_learner_options o = small_options(&m, 1, 4);
    o.head = SFP_HEAD_MIX;
    o.select = "kcenter"; /* knows the queries of the whole batch */
    sfp_learner *l[2];
    sfp_timestamp t[2];
    for (int i = 0; i < 2; i++) {
        l[i] = make_learner(&m, &o);
        for (uint64_t k = 0; k < 6; k++)
            (void)offer(l[i], 0, 4, k);
        for (int k = 0; i && k < l[i]->buffer->filled; k++)
            l[i]->buffer->slot[k].has_query = false;
        t[i] = offer(l[i], 0, 4, 6);
    }
    assert_true(t[0].replay_count[0] > 0);
    assert_int_equal(t[1].judged, t[0].coreset_count);
    assert_int_equal(t[1].right, t[0].right);
    for (int e = 0; e < SFP_HEAD_EXPERTS; e++)
        assert_true(fabs(l[1]->mix.loss[e] - l[0]->mix.loss[e]) < 1e-5 * fabs(l[0]->mix.loss[e]));
    sfp_learner_free(l[0]);
    sfp_learner_free(l[1]);
}
