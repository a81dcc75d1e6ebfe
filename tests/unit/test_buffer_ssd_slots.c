/* The slots of the buffer ssd on a model small enough to write down: what they hold, quotas, queries that are computed once. */
#include "ssd_world.h"
#include "test.h"

/* The query of a slot, where it is known, is that of its bytes. */
static void check_slot_query(const model *m, const sfp_slot *slot)
{
    float x[N], query[D];
    sfp__pixels_normalise(slot->image, S, mean, std_, x);
    query_of(m, x, query);
    if (slot->has_query && !m->any_query)
        assert_memory_equal(slot->query, query, sizeof query);
}

static int synthetic_of(const world *w, int32_t label)
{
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    int n = 0;
    for (int i = 0; i < w->slots; i++)
        n += synthetic[i] && w->b->slot[i].label == label;
    return n;
}

TEST(pictures_begin_as_samples_up_to_the_quota)
{
    OWNED_PTR(free_world) world *w = make_world(10, 4, 1); /* 2 a class */
    offer_until(w, 5, 0, 4);
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    const float *x = part_of(w, "pixels", NULL);
    for (int32_t y = 0; y < 4; y++)
        assert_int_equal(synthetic_of(w, y), 2);
    for (int i = 0; i < 10; i++) {
        const sfp_slot *slot = &w->b->slot[i];
        assert_memory_equal(slot->image, w->image[slot->id / MOST_B][slot->id % MOST_B], N);
        float want[N] = {0};
        if (synthetic[i])
            sfp__pixels_normalise(slot->image, S, mean, std_, want);
        assert_memory_equal(x + i * N, want, sizeof want);
    }
}

/* What changes is told, synthetic pictures are never replaced, and slots hold what pixels say. */
TEST(slots_hold_the_pictures_and_changes_are_told)
{
    OWNED_PTR(free_world) world *w = make_world(13, 4, 5); /* 3 a class, one more slot */
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    const float *x = part_of(w, "pixels", NULL);
    bool replaced_any = false;
    for (int t = 0; t < 40; t++) {
        uint8_t was[MOST_SLOTS];
        uint64_t id[MOST_SLOTS];
        memcpy(was, synthetic, 13);
        for (int i = 0; i < 13; i++)
            id[i] = w->b->slot[i].id;
        int filled = w->b->filled;
        sfp_buffer_change c = offer(w, MOST_B, 0, t < 20 ? 2 : 4);
        assert_int_equal(c.stored, filled + MOST_B <= 13 ? MOST_B : 13 - filled);
        for (int i = 0; i < c.nu; i++) {
            assert_in_range(c.retained[i], c.stored, MOST_B - 1);
            assert_false(was[c.replaced[i]]);
            assert_int_equal(w->b->slot[c.replaced[i]].id, t * MOST_B + c.retained[i]);
            id[c.replaced[i]] = w->b->slot[c.replaced[i]].id;
            for (int k = 0; k < i; k++)
                assert_int_not_equal(c.replaced[k], c.replaced[i]);
            replaced_any = true;
        }
        for (int i = 0; i < w->b->filled; i++) {
            const sfp_slot *slot = &w->b->slot[i];
            check_slot_query(&w->m, slot);
            if (i < filled)
                assert_int_equal(slot->id, id[i]); /* nothing else was */
            if (!synthetic[i])
                continue;
            uint8_t rgb[N];
            sfp__pixels_to_bytes(x + i * N, S, mean, std_, rgb);
            assert_memory_equal(slot->image, rgb, N);
            assert_int_equal(slot->image_size, N);
        }
    }
    assert_true(replaced_any);
    assert_int_equal(w->b->seen, 40 * MOST_B);
}

/* Every pixel of slot i so near the border of the next byte, up or down in turn, that a step may cross it. */
static void bring_to_the_border(world *w, int i)
{
    float *x = (float *)part_of(w, "pixels", NULL) + i * N;
    sfp__pixels_normalise(w->b->slot[i].image, S, mean, std_, x);
    for (int k = 0; k < N; k++)
        x[k] += (k % 2 ? 0.499f : -0.499f) / 255 / std_[k / (S * S)];
}

/* A picture whose bytes stay keeps query and mean embedding, though its pixels move; one whose bytes change loses them. */
TEST(only_bytes_that_change_cost_query_and_embedding)
{
    int kept = 0, lost = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        OWNED_PTR(free_world) world *w = make_world(21, 3, seed);
        const uint8_t *synthetic = part_of(w, "synthetic", NULL);
        const float *x = part_of(w, "pixels", NULL);
        sfp_slot before[MOST_SLOTS];
        uint8_t image[MOST_SLOTS][N];
        float pixels_before[MOST_SLOTS][N], query[MOST_SLOTS][D];
        offer_until(w, 17, 0, 3);
        for (int i = 0; i < w->b->filled; i++) {
            sfp_slot *slot = &w->b->slot[i];
            float picture[N];
            if (synthetic[i] && i % 2)
                bring_to_the_border(w, i);
            sfp__pixels_normalise(slot->image, S, mean, std_, picture);
            query_of(&w->m, picture, slot->query);
            slot->has_query = true;
            slot->mean_embed[0] = 7; /* not what embedding gives */
            before[i] = *slot;
            memcpy(image[i], slot->image, N);
            memcpy(query[i], slot->query, sizeof query[i]);
            memcpy(pixels_before[i], x + i * N, sizeof pixels_before[i]);
        }
        (void)offer(w, MOST_B, 0, 3);
        int changed = 0;
        for (int i = 0; i < w->b->filled; i++) {
            const sfp_slot *slot = &w->b->slot[i];
            if (!synthetic[i] || slot->id != before[i].id || memcmp(x + i * N, pixels_before[i], sizeof *pixels_before) == 0)
                continue;
            if (memcmp(slot->image, image[i], N) == 0) {
                assert_true(slot->has_query && slot->mean_embed[0] == 7);
                assert_memory_equal(slot->query, query[i], sizeof query[i]);
                kept++;
                continue;
            }
            const float zeros[D] = {0};
            float picture[N], embed[D];
            const float *one = picture;
            changed++;
            sfp__pixels_normalise(slot->image, S, mean, std_, picture);
            MUST(embed_at(&w->m, 1, &one, embed, NULL));
            w->m.embeds--; /* ours */
            assert_memory_equal(slot->mean_embed, embed, sizeof embed);
            assert_memory_equal(slot->query, zeros, sizeof zeros);
            assert_false(slot->has_query);
        }
        assert_int_equal(w->m.embeds, changed);
        lost += changed;
    }
    assert_true(kept > 20 && lost > 20);
}

static bool in_batch(const world *w, int32_t label)
{
    for (int i = 0; i < w->size[w->t]; i++)
        if (w->label[w->t][i] == label)
            return true;
    return false;
}

/* In an optimisation: of a synthetic picture one, of a real sample one in its life, unless it came with it or was there before.
 * The parameters move twice a class. */
TEST(queries_are_computed_once)
{
    OWNED_PTR(free_world) world *w = make_world(21, 3, 4);
    bool known[MOST_T][MOST_B] = {{false}};
    int late = 0;
    for (int t = 0; t < 60; t++) {
        int want = 0, classes = 0;
        draw_batch(w, MOST_B, t < 20 ? 0 : 1, t < 20 ? 2 : 3);
        for (int i = 0; i < MOST_B; i++)
            known[t][i] = query_comes(i);
        for (int32_t y = 0; y < 3 && t % 6 == 5; y++) {
            if (!in_batch(w, y) || synthetic_of(w, y) == 0)
                continue;
            classes++;
            want += synthetic_of(w, y);
            for (int k = t < 15 ? 0 : t - 15; k <= t; k++)
                for (int i = 0; i < MOST_B; i++)
                    if (w->label[k][i] == y && !known[k][i]) {
                        known[k][i] = true;
                        want++;
                    }
        }
        MUST(try_batch(w, NULL, &err));
        assert_int_equal(w->m.queries, want);
        assert_int_equal(w->m.moves, 2 * classes);
        for (int i = 0; i < w->b->filled; i++) {
            const sfp_slot *slot = &w->b->slot[i];
            if ((int)slot->id / MOST_B == t) { /* it has just come, with what is known by now */
                assert_int_equal(slot->has_query, known[t][slot->id % MOST_B]);
                late += slot->has_query && !query_comes((int)slot->id % MOST_B);
            }
            check_slot_query(&w->m, slot);
        }
        w->t++;
    }
    assert_true(late > 0);
}

TEST(more_classes_shrink_the_quota_and_free_the_surplus)
{
    OWNED_PTR(free_world) world *w = make_world(12, 1, 2);
    for (int classes = 1; classes <= 14; classes++) {
        uint8_t picture[12][N];
        for (int i = 0; i < 12; i++)
            memcpy(picture[i], w->b->slot[i].image, N);
        w->ask.classes = classes;
        sfp_buffer_change c = offer(w, MOST_B, 0, classes);
        int total = 0;
        for (int32_t y = 0; y < classes; y++) {
            assert_true(synthetic_of(w, y) <= 12 / classes);
            total += synthetic_of(w, y);
        }
        if (classes == 1)
            assert_int_equal(total, MOST_B);
        if (classes == 3)
            assert_int_equal(synthetic_of(w, 0), 4);
        if (classes > 12)
            assert_int_equal(total, 0);
        for (int i = 0; i < 12 && w->t % 6 != 0; i++) { /* what was freed stays as it is, unless a sample took its place */
            bool taken = i >= w->b->filled - c.stored;
            for (int k = 0; k < c.nu; k++)
                taken = taken || c.replaced[k] == i;
            if (!taken)
                assert_memory_equal(w->b->slot[i].image, picture[i], N);
        }
    }
}
