/* The buffer ssd on a model that is small enough for explicit formulas: whole updates against the definition in double, failures,
 * malicious states, contents of slots, quotas, and queries that are computed once. test_learner_ssd.c tests it with a ViT. */
#include "buffer/ssd.h"
#include "compute/pixels.h"

#include "failing_alloc.h"
#include "ssd_world.h"
#include "test.h"

/* ------------------------------------------------- the definition, in double */

typedef struct matching {
    const world *w;
    int32_t label;
    int n;
    double x[MAX_SLOTS][N]; /* X_c */
    int slot[MAX_SLOTS];
    double gr[P], r[D];
    int older;
    double memory[MAX_SLOTS][D]; /* unit */
} matching;

static void add_unit(const double *f, double share, double *to)
{
    double length = 0;
    for (int d = 0; d < D; d++)
        length += f[d] * f[d];
    for (int d = 0; d < D; d++)
        to[d] += share * f[d] / sqrt(length);
}

static bool in_window(const world *w, int32_t label, int *count)
{
    int n = 0;
    for (int t = w->t < 15 ? 0 : w->t - 15; t <= w->t; t++)
        for (int i = 0; i < w->size[t]; i++)
            n += w->label[t][i] == label;
    if (count)
        *count = n;
    return n > 0;
}

/* Computes the definition before the update with batch w->t, which has been drawn. */
static matching matching_of(const world *w, int32_t label)
{
    matching c = {.w = w, .label = label};
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    const float *x = part_of(w, "pixels", NULL);
    int reals = 0;
    (void)in_window(w, label, &reals);
    for (int i = 0; i < w->b->filled; i++) {
        int32_t y = w->b->slot[i].label;
        float normalised[N];
        double wide[N], f[D];
        if (!synthetic[i])
            continue;
        if (y == label) {
            widen(x + i * N, c.x[c.n]);
            c.slot[c.n++] = i;
        } else if (!in_window(w, y, NULL)) {
            sfp__pixels_normalise(w->b->slot[i].image, S, mean, std_, normalised);
            widen(normalised, wide);
            feature_of(&w->m, wide, f);
            add_unit(f, 1, c.memory[c.older++]);
        }
    }
    for (int t = w->t < 15 ? 0 : w->t - 15; t <= w->t; t++)
        for (int i = 0; i < w->size[t]; i++) {
            float normalised[N];
            double wide[N], f[D];
            if (w->label[t][i] != label)
                continue;
            sfp__pixels_normalise(w->image[t][i], S, mean, std_, normalised);
            widen(normalised, wide);
            add_gradient(&w->m, wide, label, 1.0 / reals, c.gr);
            feature_of(&w->m, wide, f);
            add_unit(f, 1.0 / reals, c.r);
        }
    return c;
}

static double distance(const double *a, const double *b)
{
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += (a[d] - b[d]) * (a[d] - b[d]);
    return sqrt(sum);
}

static double matching_loss(const matching *c)
{
    double gs[P] = {0}, s[D] = {0}, f[D], loss = 0;
    for (int i = 0; i < c->n; i++) {
        add_gradient(&c->w->m, c->x[i], c->label, 1.0 / c->n, gs);
        feature_of(&c->w->m, c->x[i], f);
        add_unit(f, 1.0 / c->n, s);
    }
    for (int a = 0; a < P; a++)
        loss += (gs[a] - c->gr[a]) * (gs[a] - c->gr[a]);
    for (int j = 0; j < c->older; j++)
        loss += fabs(distance(s, c->memory[j]) - distance(c->r, c->memory[j]));
    return loss;
}

/* The update with the drawn batch moves the images of the class by SGD along the numeric gradient of the loss. Also checks
 * whether relations are part of the loss, as expected. */
static void check_step(world *w, int32_t label, bool relations)
{
    matching c = matching_of(w, label);
    float before[2][MAX_SLOTS * N], *x = part_of(w, "pixels", NULL), *u = part_of(w, "momentum", NULL);
    memcpy(before[0], x, (size_t)(w->slots * N) * sizeof *x);
    memcpy(before[1], u, (size_t)(w->slots * N) * sizeof *u);
    assert_true(c.n > 0);
    assert_true(relations == (c.older > 0));
    assert_true(c.older <= SFP__SSD_MEMORY); /* all of them are compared, so no random number matters */
    sfp__buffer_change change;
    MUST(try_batch(w, &change, &err));
    double largest = 0, error = 0, image = 0;
    for (int i = 0; i < c.n; i++)
        for (int k = 0; k < N; k++) {
            double kept = c.x[i][k], side[2], h = 1e-4;
            for (int s = 0; s < 2; s++) {
                c.x[i][k] = kept + (s ? h : -h);
                side[s] = matching_loss(&c);
            }
            c.x[i][k] = kept;
            double g = (side[1] - side[0]) / (2 * h), speed = 0.9 * (double)before[1][c.slot[i] * N + k] + g;
            largest = fmax(largest, fabs(g));
            error = fmax(error, fabs((double)u[c.slot[i] * N + k] - speed));
            double rate = 4e-3 / pow((double)std_[k / (S * S)], 2), after = kept - rate * (double)u[c.slot[i] * N + k];
            image = fmax(image, fabs((double)x[c.slot[i] * N + k] - after));
        }
    assert_true(largest > 1e-3);
    if (!(error <= 1e-3 * largest))
        fail_msg("class %d: the momentum is off by %.3g where the gradient's largest number is %.3g", label, error, largest);
    assert_true(image < 1e-6);
}

TEST(an_optimisation_is_one_step_down_the_matching_loss)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        OWNED_PTR(free_world) world *w = make_world(21, 3, seed); /* 7 per class */
        while (w->t < 17 + 6 * (int)(seed % 3))                   /* later optimisations have momentum */
            (void)offer(w, MAX_B - w->t % 3, 0, 2);
        draw_batch(w, MAX_B, 0, 2);
        check_step(w, w->label[w->t][0], false);
    }
}

TEST(older_classes_add_the_relation_term)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        OWNED_PTR(free_world) world *w = make_world(21, 3, seed);
        offer_until(w, 12, 0, 1);
        offer_until(w, 29, 1, 3); /* class 0 leaves the window */
        draw_batch(w, MAX_B, 1, 3);
        check_step(w, w->label[w->t][0], true);
    }
}

/* An optimisation moves the parameters of the model. It happens at multiples of `every` batches, once the window is full. A new
 * task empties the window. */
TEST(images_are_optimised_on_schedule_once_the_window_is_full)
{
    for (int k = 0; k < 2; k++) {
        const sfp__ssd_timing timing = k ? (sfp__ssd_timing){EVERY, WINDOW} : sfp__buffer_options_defaults().ssd;
        OWNED_PTR(free_world) world *w = make_world_with(21, 3, 4, timing);
        int every = k ? 6 : 3, window = k ? 16 : 32, events = 0, in_task = 0;
        for (int t = 0; t < MAX_T; t++) {
            if (t == 38) {
                sfp__buffer_next_task(w->b);
                in_task = 0;
            }
            sfp__buffer_change change = offer(w, MAX_B, 0, 3);
            in_task++;
            bool due = in_task >= window && in_task % every == 0;
            assert_int_equal(w->m.moves > 0, due);
            assert_int_equal(change.moved > 0, due);
            events += due;
        }
        assert_int_equal(events, k ? 9 : 6); /* 18, 24, 30, 36 and 18 .. 42; 33, 36 and 33 .. 42 */
    }
}

/* The reported movement is the mean absolute change of the pixels that moved, in byte levels. */
TEST(the_movement_of_images_is_reported)
{
    OWNED_PTR(free_world) world *w = make_world(21, 3, 2);
    float before[MAX_SLOTS * N];
    const float *x = part_of(w, "pixels", NULL);
    offer_until(w, 17, 0, 2);
    memcpy(before, x, (size_t)(w->slots * N) * sizeof *x);
    double sum = 0, moved = offer(w, MAX_B, 0, 2).moved;
    int images = 0;
    for (int i = 0; i < w->slots; i++) {
        double image = 0;
        for (int k = 0; k < N; k++)
            image += fabs((double)x[i * N + k] - (double)before[i * N + k]) * (double)std_[k / (S * S)] * 255 / N;
        images += image > 0;
        sum += image;
    }
    assert_true(images > 4 && moved > 0);
    assert_true(fabs(moved - sum / images) < 1e-9 * moved);
}

/* With the same batch repeatedly, the loss of each class in it decreases considerably in total. (Momentum may raise it once.) */
TEST(optimisation_lowers_the_matching_loss)
{
    OWNED_PTR(free_world) world *w = make_world(8, 2, 3);
    double first = 0, last = 0;
    for (int t = 0; t < MAX_T; t++) {
        draw_batch(w, MAX_B, 0, 2);
        memcpy(w->image[w->t], w->image[0], sizeof w->image[0]);
        memcpy(w->label[w->t], w->label[0], sizeof w->label[0]);
        if (t > 18 && t % 6 == 0) {
            matching c = matching_of(w, w->label[0][0]);
            double loss = matching_loss(&c);
            first = last == 0 ? loss : first;
            last = loss;
        }
        MUST(try_batch(w, NULL, &err));
        w->t++;
    }
    if (!(first > 0 && last < 0.75 * first))
        fail_msg("the loss was %.4g and is %.4g", first, last);
}

/* ---------------------------------------------------------------------- slots */

/* The query of a slot, if known, is that of its bytes. */
static void check_slot_query(const model *m, const sfp__slot *slot)
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

TEST(synthetic_images_start_as_samples_up_to_the_quota)
{
    OWNED_PTR(free_world) world *w = make_world(10, 4, 1); /* 2 per class */
    offer_until(w, 5, 0, 4);
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    const float *x = part_of(w, "pixels", NULL);
    for (int32_t y = 0; y < 4; y++)
        assert_int_equal(synthetic_of(w, y), 2);
    for (int i = 0; i < 10; i++) {
        const sfp__slot *slot = &w->b->slot[i];
        assert_memory_equal(slot->image, w->image[slot->id / MAX_B][slot->id % MAX_B], N);
        float want[N] = {0};
        if (synthetic[i])
            sfp__pixels_normalise(slot->image, S, mean, std_, want);
        assert_memory_equal(x + i * N, want, sizeof want);
    }
}

/* Changes are reported, synthetic images are never replaced, and the bytes of slots match their pixels. */
TEST(slots_match_the_images_and_changes_are_reported)
{
    OWNED_PTR(free_world) world *w = make_world(13, 4, 5); /* 3 per class and one more slot */
    const uint8_t *synthetic = part_of(w, "synthetic", NULL);
    const float *x = part_of(w, "pixels", NULL);
    bool replaced_any = false;
    for (int t = 0; t < 40; t++) {
        uint8_t was[MAX_SLOTS];
        uint64_t id[MAX_SLOTS];
        memcpy(was, synthetic, 13);
        for (int i = 0; i < 13; i++)
            id[i] = w->b->slot[i].id;
        int filled = w->b->filled;
        sfp__buffer_change c = offer(w, MAX_B, 0, t < 20 ? 2 : 4);
        assert_int_equal(c.stored, filled + MAX_B <= 13 ? MAX_B : 13 - filled);
        for (int i = 0; i < c.nu; i++) {
            assert_in_range(c.retained[i], c.stored, MAX_B - 1);
            assert_false(was[c.replaced[i]]);
            assert_int_equal(w->b->slot[c.replaced[i]].id, t * MAX_B + c.retained[i]);
            id[c.replaced[i]] = w->b->slot[c.replaced[i]].id;
            for (int k = 0; k < i; k++)
                assert_int_not_equal(c.replaced[k], c.replaced[i]);
            replaced_any = true;
        }
        for (int i = 0; i < w->b->filled; i++) {
            const sfp__slot *slot = &w->b->slot[i];
            check_slot_query(&w->m, slot);
            if (i < filled)
                assert_int_equal(slot->id, id[i]); /* no other slot was changed */
            if (!synthetic[i])
                continue;
            uint8_t rgb[N];
            sfp__pixels_to_bytes(x + i * N, S, mean, std_, rgb);
            assert_memory_equal(slot->image, rgb, N);
        }
    }
    assert_true(replaced_any);
    assert_int_equal(w->b->seen, 40 * MAX_B);
}

/* Moves every pixel of slot i so close to the border of the next byte, up or down in turn, that a step may cross it. */
static void bring_to_the_border(world *w, int i)
{
    float *x = (float *)part_of(w, "pixels", NULL) + i * N;
    sfp__pixels_normalise(w->b->slot[i].image, S, mean, std_, x);
    for (int k = 0; k < N; k++)
        x[k] += (k % 2 ? 0.499f : -0.499f) / 255 / std_[k / (S * S)];
}

/* If the bytes of an image do not change, its query and mean embedding are kept although its pixels move; otherwise they are
 * replaced. */
TEST(only_changed_bytes_need_a_new_query_and_embedding)
{
    int kept = 0, lost = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        OWNED_PTR(free_world) world *w = make_world(21, 3, seed);
        const uint8_t *synthetic = part_of(w, "synthetic", NULL);
        const float *x = part_of(w, "pixels", NULL);
        sfp__slot before[MAX_SLOTS];
        uint8_t image[MAX_SLOTS][N];
        float pixels_before[MAX_SLOTS][N], query[MAX_SLOTS][D];
        offer_until(w, 17, 0, 3);
        for (int i = 0; i < w->b->filled; i++) {
            sfp__slot *slot = &w->b->slot[i];
            float normalised[N];
            if (synthetic[i] && i % 2)
                bring_to_the_border(w, i);
            sfp__pixels_normalise(slot->image, S, mean, std_, normalised);
            query_of(&w->m, normalised, slot->query);
            slot->has_query = true;
            slot->mean_embed[0] = 7; /* differs from the embedding */
            before[i] = *slot;
            memcpy(image[i], slot->image, N);
            memcpy(query[i], slot->query, sizeof query[i]);
            memcpy(pixels_before[i], x + i * N, sizeof pixels_before[i]);
        }
        (void)offer(w, MAX_B, 0, 3);
        int changed = 0;
        for (int i = 0; i < w->b->filled; i++) {
            const sfp__slot *slot = &w->b->slot[i];
            if (!synthetic[i] || slot->id != before[i].id || memcmp(x + i * N, pixels_before[i], sizeof *pixels_before) == 0)
                continue;
            if (memcmp(slot->image, image[i], N) == 0) {
                assert_true(slot->has_query && slot->mean_embed[0] == 7);
                assert_memory_equal(slot->query, query[i], sizeof query[i]);
                kept++;
                continue;
            }
            const float zeros[D] = {0};
            float normalised[N], embed[D];
            const float *one = normalised;
            changed++;
            sfp__pixels_normalise(slot->image, S, mean, std_, normalised);
            MUST(embed_at(&w->m, 1, &one, embed, NULL));
            w->m.embeds--; /* computed by this test */
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

/* An optimisation computes one query per synthetic image, and one per real sample in its lifetime, unless it was known. The
 * parameters move twice per class. */
TEST(queries_are_computed_once)
{
    OWNED_PTR(free_world) world *w = make_world(40, 4, 4); /* 10 slots remain a reservoir */
    bool known[MAX_T][MAX_B] = {{false}};
    int late = 0;
    for (int t = 0; t < 60; t++) {
        int want = 0, classes = 0;
        draw_batch(w, MAX_B, t < 20 ? 0 : 1, t < 20 ? 2 : 3);
        for (int i = 0; i < MAX_B; i++)
            known[t][i] = query_is_known(i);
        for (int32_t y = 0; y < 3 && t >= WINDOW - 1 && t % EVERY == EVERY - 1; y++) {
            if (!in_batch(w, y) || synthetic_of(w, y) == 0)
                continue;
            classes++;
            want += synthetic_of(w, y);
            for (int k = t < 15 ? 0 : t - 15; k <= t; k++)
                for (int i = 0; i < MAX_B; i++)
                    if (w->label[k][i] == y && !known[k][i]) {
                        known[k][i] = true;
                        want++;
                    }
        }
        MUST(try_batch(w, NULL, &err));
        assert_int_equal(w->m.queries, want);
        assert_int_equal(w->m.moves, 2 * classes);
        for (int i = 0; i < w->b->filled; i++) {
            const sfp__slot *slot = &w->b->slot[i];
            if ((int)slot->id / MAX_B == t) { /* it was just stored, with its query if that is known by now */
                assert_int_equal(slot->has_query, known[t][slot->id % MAX_B]);
                late += slot->has_query && !query_is_known((int)slot->id % MAX_B);
            }
            check_slot_query(&w->m, slot);
        }
        w->t++;
    }
    assert_true(late > 0);
}

TEST(more_classes_shrink_the_quota_and_release_the_surplus)
{
    OWNED_PTR(free_world) world *w = make_world(12, 1, 2);
    for (int classes = 1; classes <= 14; classes++) {
        uint8_t image[12][N];
        for (int i = 0; i < 12; i++)
            memcpy(image[i], w->b->slot[i].image, N);
        w->model.classes = classes;
        sfp__buffer_change c = offer(w, MAX_B, 0, classes);
        int total = 0;
        for (int32_t y = 0; y < classes; y++) {
            assert_true(synthetic_of(w, y) <= 12 / classes);
            total += synthetic_of(w, y);
        }
        if (classes == 1)
            assert_int_equal(total, MAX_B);
        if (classes == 3)
            assert_int_equal(synthetic_of(w, 0), 4);
        if (classes > 12)
            assert_int_equal(total, 0);
        for (int i = 0; i < 12 && w->t % 6 != 0; i++) { /* released images stay unchanged unless a sample replaced them */
            bool taken = i >= w->b->filled - c.stored;
            for (int k = 0; k < c.nu; k++)
                taken = taken || c.replaced[k] == i;
            if (!taken)
                assert_memory_equal(w->b->slot[i].image, image[i], N);
        }
    }
}

/* ------------------------------------------------------------------- failures */

enum { PARTS = 8 };
static const char *const part_names[PARTS] = {"synthetic",    "pixels",  "momentum",     "recent",
                                              "recent.label", "batches", "recent.query", "recent.known"};

typedef struct copy {
    void *part[PARTS];
    size_t bytes[PARTS];
    uint8_t image[MAX_SLOTS][N];
    uint64_t id[MAX_SLOTS], seen;
    float embed[MAX_SLOTS][D];
    sfp__rng rng;
} copy;

static copy copy_of(const world *w)
{
    copy c = {.seen = w->b->seen, .rng = w->rng};
    for (int i = 0; i < PARTS; i++) {
        const void *from = part_of(w, part_names[i], &c.bytes[i]);
        c.part[i] = kept_malloc(c.bytes[i]);
        memcpy(c.part[i], from, c.bytes[i]);
    }
    for (int i = 0; i < w->slots; i++) {
        memcpy(c.image[i], w->b->slot[i].image, N);
        memcpy(c.embed[i], w->b->slot[i].mean_embed, sizeof c.embed[i]);
        c.id[i] = w->b->slot[i].id;
    }
    return c;
}

/* The window is unchanged, except for the row of the current batch; more queries may be known. */
static void check_window(const world *w, const copy *c)
{
    enum { RECENT = 3, LABEL = 4, QUERY = 6, KNOWN = 7 };
    const uint8_t *now[PARTS], *was[PARTS];
    for (int i = 0; i < PARTS; i++) {
        now[i] = part_of(w, part_names[i], NULL);
        was[i] = c->part[i];
    }
    for (size_t k = 0; k < WINDOW * MAX_B; k++) {
        if ((int)k / MAX_B == w->t % WINDOW)
            continue;
        assert_memory_equal(now[RECENT] + k * N, was[RECENT] + k * N, N);
        assert_memory_equal(now[LABEL] + k * sizeof(int32_t), was[LABEL] + k * sizeof(int32_t), sizeof(int32_t));
        assert_true(now[KNOWN][k] >= was[KNOWN][k]);
        if (now[KNOWN][k] == was[KNOWN][k])
            assert_memory_equal(now[QUERY] + k * D * sizeof(float), was[QUERY] + k * D * sizeof(float), D * sizeof(float));
    }
}

static void check_unchanged(const world *w, const copy *c)
{
    for (int i = 0; i < PARTS; i++)
        if (strncmp(part_names[i], "recent", 6) != 0)
            assert_memory_equal(part_of(w, part_names[i], NULL), c->part[i], c->bytes[i]);
    check_window(w, c);
    for (int i = 0; i < w->slots; i++) {
        assert_memory_equal(w->b->slot[i].image, c->image[i], N);
        assert_memory_equal(w->b->slot[i].mean_embed, c->embed[i], sizeof c->embed[i]);
        assert_int_equal(w->b->slot[i].id, c->id[i]);
    }
    assert_int_equal(w->b->seen, c->seen);
    assert_int_equal(w->rng.counter, c->rng.counter);
    assert_int_equal(w->rng.left, c->rng.left);
}

TEST(a_failure_of_any_call_changes_nothing)
{
    OWNED_PTR(free_world) world *w = make_world(21, 3, 7);
    offer_until(w, 12, 0, 1);
    offer_until(w, 29, 1, 3);
    draw_batch(w, MAX_B, 1, 3);
    copy c = copy_of(w);
    sfp_status status;
    int k = 0;
    do {
        w->m.fail_at = k++;
        status = try_batch(w, NULL, &err);
        if (status != SFP_OK) {
            assert_int_equal(status, SFP_EIO);
            check_unchanged(w, &c);
        }
    } while (status != SFP_OK);
    assert_true(k > 8); /* calls of every kind */
    w->m.fail_at = -1;
}

TEST(a_nan_gradient_moves_nothing)
{
    OWNED_PTR(free_world) world *w = make_world(21, 3, 7);
    offer_until(w, 17, 0, 2);
    copy c = copy_of(w);
    w->m.poison = true;
    (void)offer(w, MAX_B, 0, 2);
    const float *was = c.part[1], *x = part_of(w, "pixels", NULL), *u = part_of(w, "momentum", NULL);
    int moved = 0, stayed = 0;
    for (int i = 0; i < 21; i++) {
        bool same = memcmp(x + i * N, was + i * N, N * sizeof *x) == 0;
        moved += !same;
        stayed += same && ((const uint8_t *)c.part[0])[i];
        for (int k = 0; k < N; k++)
            assert_true(isfinite(x[i * N + k]) && isfinite(u[i * N + k]));
    }
    assert_true(moved > 0 && stayed > 0);
}

TEST(other_sides_are_refused)
{
    OWNED_PTR(free_world) world *w = make_world(4, 2, 1);
    const uint8_t bytes[N] = {0}, *image = bytes;
    const int32_t label = 0;
    const uint64_t id = 77;
    sfp__buffer_batch batch = {.b = 1, .label = &label, .id = &id, .image = &image, .model = &w->model};
    w->model.side = 3;
    assert_int_equal(sfp__buffer_update(w->b, &batch, &w->rng, NULL, &err), SFP_EINVAL);
    assert_int_equal(w->b->seen, 0);
    sfp__buffer_options o = options(3);
    sfp__buffer *b = NULL;
    o.image_bytes = 13;
    assert_int_equal(sfp__buffer_create(&o, 2, &b, &err), SFP_EINVAL);
    o.image_bytes = N;
    o.std[1] = 0;
    assert_int_equal(sfp__buffer_create(&o, 2, &b, &err), SFP_EINVAL);
    assert_null(b);
}

TEST(any_state_from_a_file_is_handled)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        OWNED_PTR(free_world) world *w = make_world(9, 3, seed);
        offer_until(w, 4, 0, 3);
        sfp__rng rng = sfp__rng_init(seed, 5);
        w->m.any_query = true;
        for (int i = 0; i < PARTS; i++) {
            size_t bytes = 0;
            uint8_t *p = part_of(w, part_names[i], &bytes);
            for (size_t k = 0; k < bytes && (i != 1 || seed % 2); k++)
                p[k] = (uint8_t)sfp__rng_u32(&rng);
        }
        w->model.classes = 1 + (int)(seed % 4);
        for (int t = 0; t < 14; t++)
            (void)offer(w, MAX_B, 0, 3);
    }
}

/* --------------------------------------------------------------------- memory */

TEST(later_updates_allocate_nothing)
{
    OWNED_PTR(free_world) world *w = make_world(21, 3, 7);
    offer_until(w, 24, 0, 3);
    unsigned long before = sfp__mem_count();
    offer_until(w, 42, 0, 3);
    assert_int_equal(sfp__mem_count(), before);
}

TEST(failed_allocations_are_reported)
{
    sfp__buffer_options o = options(10);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *empty = NULL, *made = NULL;
    o.slots = 0;
    MUST(sfp__buffer_create(&o, 4, &empty, NULL));
    o.slots = 10;
    assert_true(FAIL_EACH_ALLOCATION(sfp__buffer_create(&o, 4, &made, alloc_err), !made) >= 3);
}
