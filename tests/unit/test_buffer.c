/* The buffer as a whole: budget, slots, the contents of updated slots, refused batches, restoring, and the absence of allocations
 * after creation. test_buffer_draw.c tests the distribution of the draws. */
#include "buffer/buffer.h"

#include "buffer_batch.h"
#include "test.h"

TEST(defaults_are_those_of_the_paper)
{
    sfp__buffer_options opt = sfp__buffer_options_defaults();
    assert_int_equal(opt.slots, 102);
    assert_true(opt.drop == SFP__DROP_ALG2 && opt.ssd.every == 3 && opt.ssd.window == 32);
    assert_string_equal(opt.method, "streamfp");
    for (const sfp__buffer_method *const *m = sfp__buffer_methods; *m; m++)
        assert_ptr_equal(sfp__buffer_method_find((*m)->name), *m);
    assert_null(sfp__buffer_method_find("no such"));
    assert_null(sfp__buffer_method_find(NULL));
    assert_true(sfp__buffer_method_find("streamfp")->needs == SFP__NEED_SCORE);
    assert_true(sfp__buffer_method_find("er")->needs == 0);
}

TEST(invalid_options_are_refused)
{
    sfp__buffer *b = NULL;
    sfp__buffer_options good = sfp__buffer_options_defaults();
    good.dim = 8;
    good.image_bytes = 12;
    sfp__buffer_options opt;
#define BAD(field, value, status, text) \
    opt = good;                         \
    opt.field = value;                  \
    REFUSED(sfp__buffer_create(&opt, 4, &b, &err), status, text);
    BAD(method, "lru", SFP_ENOTFOUND, "buffer method 'lru' is unknown")
    assert_string_equal(err.message, "buffer method 'lru' is unknown");
    BAD(method, NULL, SFP_ENOTFOUND, "")
    BAD(slots, -1, SFP_EINVAL, "")
    BAD(dim, 0, SFP_EINVAL, "")
    assert_int_equal(sfp__buffer_create(&good, 0, &b, &err), SFP_EINVAL);
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2, SIZE_MAX / 102};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        BAD(image_bytes, huge[i], SFP_ELIMIT, "")
    }
#undef BAD
    assert_null(b);
    sfp__buffer_free(NULL);
}

TEST(samples_fill_free_slots_in_order)
{
    static const char *const names[] = {"streamfp", "er"};
    for (int k = 0; k < 2; k++) {
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make(names[k], 10, 5, 30, 7);
        sfp__rng rng = sfp__rng_init(1, 2), untouched = rng;
        sfp__buffer_change change;
        for (int t = 0; t < 2; t++) {
            test_batch batch = batch_make(5, 5, 30, (uint64_t)(100 + 5 * t), (uint64_t)t);
            MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
            assert_int_equal(change.stored, 5);
            assert_int_equal(change.nu, 0);
            assert_int_equal(b->filled, 5 * t + 5);
            assert_int_equal(b->seen, 5 * t + 5);
            for (int i = 0; i < 5; i++) /* slots are copies */
                memset(batch.image[i], 0, 30);
            memset(batch.query, 0, 5 * 5 * sizeof *batch.query);
        }
        for (int i = 0; i < 10; i++)
            check_slot(b, i, (uint64_t)(100 + i), (uint64_t)(i / 5));
        assert_true(same_rng(&rng, &untouched)); /* no draw was needed */
    }
}

/* sfp__buffer_update equals sfp__buffer_decide with n_left numbers for nu, then nu for the batch, then nu for the slots, where
 * slots are scored after free ones are filled. Every slot holds the sample of the plan, and the generator has advanced
 * accordingly. */
TEST(an_update_is_the_plan_with_random_numbers_in_the_documented_order)
{
    enum { MAX_BATCH = 40 };
    sfp__rng shape = sfp__rng_init(5, 5);
    for (int trial = 0; trial < 200; trial++) {
        int m = 1 + (int)sfp__rng_below(&shape, 30), dim = 1 + (int)sfp__rng_below(&shape, 40);
        sfp__buffer_options opt = sfp__buffer_options_defaults();
        opt.slots = m;
        opt.dim = dim;
        opt.image_bytes = 17;
        opt.drop = trial & 1 ? SFP__DROP_ALG2 : SFP__DROP_EQ8;
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = NULL;
        MUST(sfp__buffer_create(&opt, MAX_BATCH, &b, NULL));
        sfp__rng rng = sfp__rng_init((uint64_t)trial, 8);
        uint64_t held[30] = {0}, stored_at[30] = {0}, n_seen = 0;
        for (uint64_t now = 0; now < 12; now++) {
            int n = (int)sfp__rng_below(&shape, MAX_BATCH + 1);
            test_batch batch = batch_make(n, dim, 17, 1000 * (now + 1), now);
            int stored = n_seen < (uint64_t)m ? (m - (int)n_seen < n ? m - (int)n_seen : n) : 0, left = n - stored;
            float slots[30];
            for (int i = 0; i < m; i++) {
                if ((uint64_t)i >= n_seen && i < (int)n_seen + stored) {
                    held[i] = 1000 * (now + 1) + (uint64_t)i - n_seen;
                    stored_at[i] = now;
                }
                double s = 0;
                for (int k = 0; k < dim; k++)
                    s += (double)test_value(held[i], k, 1) * (double)batch.fingerprint[k];
                slots[i] = (float)s;
            }
            double u_nu[MAX_BATCH], u_batch[MAX_BATCH] = {0}, u_buffer[MAX_BATCH] = {0}, dwork[MAX_BATCH];
            int iwork[MAX_BATCH], retained[MAX_BATCH], replaced[MAX_BATCH];
            sfp__rng clone = rng;
            for (int i = 0; i < left; i++)
                u_nu[i] = sfp__rng_double(&clone);
            sfp__buffer_plan plan = {0};
            if (left > 0)
                plan.nu = sfp__buffer_nu(n_seen + (uint64_t)stored, m, n, left, u_nu);
            for (int i = 0; i < plan.nu; i++)
                u_batch[i] = sfp__rng_double(&clone);
            for (int i = 0; i < plan.nu; i++)
                u_buffer[i] = sfp__rng_double(&clone);
            sfp__buffer_decide(n_seen, m, n, batch.score, slots, u_nu, u_batch, u_buffer, opt.drop, iwork, dwork, retained,
                               replaced, &plan);
            sfp__buffer_change change;
            MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
            assert_int_equal(change.stored, stored);
            assert_int_equal(change.stored, plan.stored);
            assert_int_equal(change.nu, plan.nu);
            assert_true(same_rng(&rng, &clone));
            for (int i = 0; i < plan.nu; i++) {
                assert_int_equal(change.retained[i], retained[i]);
                assert_int_equal(change.replaced[i], replaced[i]);
                held[replaced[i]] = 1000 * (now + 1) + (uint64_t)retained[i];
                stored_at[replaced[i]] = now;
            }
            n_seen += (uint64_t)n;
            assert_int_equal(b->seen, n_seen);
            assert_int_equal(b->filled, n_seen < (uint64_t)m ? (int)n_seen : m);
            for (int i = 0; i < b->filled; i++)
                check_slot(b, i, held[i], stored_at[i]);
        }
    }
}

/* The reported change of er is what changed. */
TEST(er_reports_its_changes)
{
    enum { M = 6, B = 9 };
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("er", M, 3, 5, B);
    sfp__rng rng = sfp__rng_init(4, 4);
    uint64_t held[M] = {0}, seen = 0;
    long replacements = 0;
    for (uint64_t now = 0; now < 300; now++) {
        int n = (int)(now % (B + 1));
        test_batch batch = batch_make(n, 3, 5, seen, now);
        sfp__buffer_change change;
        MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
        for (int i = 0; i < change.stored; i++)
            held[seen + (uint64_t)i] = seen + (uint64_t)i;
        unsigned once = 0;
        for (int i = 0; i < change.nu; i++) {
            assert_in_range(change.replaced[i], 0, M - 1);
            assert_in_range(change.retained[i], change.stored, n - 1);
            assert_int_equal(once & 1u << change.replaced[i], 0);
            once |= 1u << change.replaced[i];
            held[change.replaced[i]] = seen + (uint64_t)change.retained[i];
        }
        seen += (uint64_t)n;
        replacements += change.nu;
        assert_int_equal(b->seen, seen);
        for (int i = 0; i < b->filled; i++)
            assert_int_equal(b->slot[i].id, held[i]);
    }
    assert_true(replacements > 10);
}

TEST(none_counts_samples_and_stores_nothing)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("none", 50, 4, 100, 8);
    test_batch batch = batch_make(8, 4, 100, 0, 0);
    sfp__rng rng = sfp__rng_init(1, 1), before = rng;
    sfp__buffer_change change;
    int slots[5];
    assert_int_equal(b->opt.slots, 0);
    assert_string_equal(b->method->name, "none");
    MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
    assert_int_equal(change.stored + change.nu, 0);
    assert_int_equal(b->seen, 8);
    assert_int_equal(b->filled, 0);
    assert_int_equal(sfp__buffer_draw(b, 5, &rng, slots), 0);
    assert_true(same_rng(&rng, &before));
}

TEST(a_buffer_without_slots_works)
{
    static const char *const names[] = {"streamfp", "er"};
    for (int k = 0; k < 2; k++) {
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make(names[k], 0, 4, 100, 8);
        test_batch batch = batch_make(8, 4, 100, 0, 0);
        sfp__rng rng = sfp__rng_init(1, 1);
        sfp__buffer_change change;
        MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
        assert_int_equal(change.stored + change.nu, 0);
        assert_int_equal(b->seen, 8);
    }
}

/* Everything that a refused batch must not change. */
static void check_refused(sfp__buffer *b, const sfp__buffer_batch *batch, sfp_status want, const char *message)
{
    sfp__rng rng = sfp__rng_init(1, 1), before = rng;
    sfp__buffer_change change = {.stored = 41, .nu = 42};
    int filled = b->filled;
    uint64_t seen = b->seen;
    REFUSED(sfp__buffer_update(b, batch, &rng, &change, &err), want, message);
    assert_true(!*message || strcmp(err.message, message) == 0);
    assert_true(same_rng(&rng, &before));
    assert_int_equal(change.stored, 41);
    assert_int_equal(change.nu, 42);
    assert_int_equal(b->filled, filled);
    assert_int_equal(b->seen, seen);
    for (int i = 0; i < filled; i++)
        check_slot(b, i, (uint64_t)(500 + i), 3);
}

TEST(a_refused_batch_changes_nothing)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 6, 4, 20, 8);
    test_batch first = batch_make(5, 4, 20, 500, 3), batch = batch_make(8, 4, 20, 900, 4);
    sfp__rng rng = sfp__rng_init(1, 1);
    MUST(sfp__buffer_update(b, &first.view, &rng, NULL, NULL));
    sfp__buffer_batch bad;
#define BAD(field, value, message) \
    bad = batch.view;              \
    bad.field = value;             \
    check_refused(b, &bad, SFP_EINVAL, message);
    BAD(b, 9, "buffer 'streamfp': batch size is 9, expected 0 to 8")
    BAD(b, -1, "")
    BAD(score, NULL, "buffer 'streamfp': the batch lacks scores, mean embeddings or the fingerprint, which this method needs")
    BAD(mean_embed, NULL, "")
    BAD(fingerprint, NULL, "")
    BAD(label, NULL, "")
#undef BAD
    batch.image[7] = NULL; /* the last sample, after valid ones */
    check_refused(b, &batch.view, SFP_EINVAL, "buffer 'streamfp': sample 7 of the batch (id 907) has no image");
}

TEST(a_method_without_scores_accepts_a_batch_without_them)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("er", 4, 4, 20, 8);
    test_batch batch = batch_make(4, 4, 20, 500, 3);
    sfp__rng rng = sfp__rng_init(1, 1);
    for (int i = 0; i < 4; i++)
        b->slot[i].query[0] = b->slot[i].mean_embed[0] = 9;
    sfp__buffer_batch bare = batch.view;
    bare.score = bare.mean_embed = bare.fingerprint = bare.query = NULL;
    bare.has_query = NULL;
    MUST(sfp__buffer_update(b, &bare, &rng, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        const sfp__slot *s = &b->slot[i];
        assert_false(s->has_query);
        assert_true(s->query[0] == 0 && s->mean_embed[0] == 0);
        assert_int_equal(s->id, 500 + i);
    }
}

TEST(an_empty_batch_changes_nothing)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 4, 4, 20, 8);
    sfp__buffer_batch empty = {0};
    sfp__buffer_change change = {.stored = 9, .nu = 9};
    MUST(sfp__buffer_update(b, &empty, NULL, &change, NULL));
    assert_int_equal(change.stored + change.nu, 0);
    assert_int_equal(b->seen, 0);
}

/* A buffer restored from the slots of another continues exactly as that one. */
TEST(a_restored_buffer_continues_identically)
{
    static const char *const names[] = {"streamfp", "er"};
    for (int k = 0; k < 2; k++) {
        OWNED_PTR(sfp__buffer_free)
        sfp__buffer *a = buffer_make(names[k], 12, 6, 10, 7), *b = buffer_make(names[k], 12, 6, 10, 7);
        sfp__rng rng = sfp__rng_init(2, 2);
        int drawn_a[5], drawn_b[5];
        uint64_t id = 0;
        for (uint64_t now = 0; now < 9; now++, id += 7) {
            test_batch batch = batch_make(7, 6, 10, id, now);
            MUST(sfp__buffer_update(a, &batch.view, &rng, NULL, NULL));
            (void)sfp__buffer_draw(a, 5, &rng, drawn_a);
        }
        for (int i = 0; i < 12; i++) {
            const sfp__slot *from = &a->slot[i];
            sfp__slot *to = &b->slot[i];
            to->label = from->label;
            to->id = from->id;
            to->stored_at = from->stored_at;
            to->has_query = from->has_query;
            memcpy(to->image, from->image, 10);
            memcpy(to->query, from->query, 6 * sizeof(float));
            memcpy(to->mean_embed, from->mean_embed, 6 * sizeof(float));
        }
        MUST(sfp__buffer_restore(b, 12, a->seen, NULL));
        sfp__rng other = rng;
        for (uint64_t now = 9; now < 40; now++, id += 7) {
            test_batch batch = batch_make(7, 6, 10, id, now);
            MUST(sfp__buffer_update(a, &batch.view, &rng, NULL, NULL));
            MUST(sfp__buffer_update(b, &batch.view, &other, NULL, NULL));
            assert_int_equal(sfp__buffer_draw(a, 5, &rng, drawn_a), 5);
            assert_int_equal(sfp__buffer_draw(b, 5, &other, drawn_b), 5);
            assert_memory_equal(drawn_a, drawn_b, sizeof drawn_a);
        }
        for (int i = 0; i < 12; i++)
            check_slot(b, i, a->slot[i].id, a->slot[i].stored_at);
    }
}

TEST(an_impossible_checkpoint_is_refused)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 5, 4, 20, 8);
    assert_int_equal(sfp__buffer_restore(b, 6, 10, &err), SFP_EINVAL);
    assert_int_equal(sfp__buffer_restore(b, -1, 10, &err), SFP_EINVAL);
    REFUSED_EXACTLY(sfp__buffer_restore(b, 3, 2, &err), SFP_EINVAL,
                    "buffer: 3 of 5 slots are filled after 2 samples, expected at most the number of slots and of samples");
    assert_int_equal(b->filled, 0);
    MUST(sfp__buffer_restore(b, 1, 2, &err));
    assert_int_equal(b->filled, 1);
    assert_int_equal(b->seen, 2);
}

/* Compares <mean_embed, fingerprint> with sums in double, for every length around the width of the partial sums. */
TEST(slots_are_scored_by_their_mean_embedding)
{
    for (int dim = 1; dim <= 70; dim++) {
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 5, dim, 3, 3);
        test_batch batch = batch_make(3, dim, 3, 40, 0);
        sfp__rng rng = sfp__rng_init(1, 1);
        float score[5] = {0, 0, 0, 55, 55};
        MUST(sfp__buffer_update(b, &batch.view, &rng, NULL, NULL));
        sfp__buffer_score(b, batch.fingerprint, score);
        for (int i = 0; i < 3; i++) {
            double want = 0;
            for (int k = 0; k < dim; k++)
                want += (double)test_value((uint64_t)(40 + i), k, 1) * (double)batch.fingerprint[k];
            assert_true(fabs((double)score[i] - want) < 1e-5);
        }
        assert_true(score[3] == 55); /* only filled slots are scored */
    }
}

/* After ten thousand updates of every size the counter is right, the number of slots and bytes is within the limits, and nothing
 * was allocated. */
TEST(ten_thousand_updates_keep_the_budget_and_allocate_nothing)
{
    enum { M = 16, D = 20, BYTES = 60, B = 12, KINDS = 24 };
    test_batch batch[KINDS];
    for (int k = 0; k < KINDS; k++)
        batch[k] = batch_make(k % (B + 1), D, BYTES, (uint64_t)k * 100, 0);
    for (const sfp__buffer_method *const *method = sfp__buffer_methods; *method; method++) {
        if ((*method)->needs & ~(unsigned)SFP__NEED_SCORE)
            continue;
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make((*method)->name, M, D, BYTES, B);
        sfp__rng rng = sfp__rng_init(6, 6);
        uint64_t seen = 0;
        int slots[10];
        unsigned long before = sfp__mem_count();
        for (int t = 0; t < 10000; t++) {
            sfp__buffer_change change;
            batch[t % KINDS].view.now = (uint64_t)t;
            if (sfp__buffer_update(b, &batch[t % KINDS].view, &rng, &change, NULL) != SFP_OK)
                fail_msg("update %d", t);
            seen += (uint64_t)batch[t % KINDS].view.b;
            int n = sfp__buffer_draw(b, 10, &rng, slots);
            assert_true(n == (b->filled < 10 ? b->filled : 10));
            assert_true(b->filled <= M && b->seen == seen);
            assert_true(change.nu <= M);
        }
        assert_int_equal(sfp__mem_count(), before);
        assert_int_equal(b->filled, (*method)->keeps_nothing ? 0 : M);
    }
}
