/* Camel's buffer keeps the coreset of buffer and batch together, by the definition of camel. */
#include "buffer/buffer.h"

#include "buffer_model_ops.h"
#include "test.h"

enum { MAX_POINTS = 32, DIM = 4 };

typedef struct merged {
    int n;
    uint64_t id[MAX_POINTS];
    int32_t label[MAX_POINTS];
    double x[MAX_POINTS][DIM]; /* unit length */
} merged;

static void merge_one(merged *m, uint64_t id, int32_t label, const float *query)
{
    double length = 0;
    for (int k = 0; k < DIM; k++)
        length += (double)query[k] * (double)query[k];
    m->id[m->n] = id;
    m->label[m->n] = label;
    for (int k = 0; k < DIM; k++)
        m->x[m->n][k] = (double)query[k] / sqrt(length);
    m->n++;
}

static double distance(const merged *m, int i, int j)
{
    double s = 0;
    for (int k = 0; k < DIM; k++)
        s += pow(m->x[i][k] - m->x[j][k], 2);
    return sqrt(s);
}

/* Returns F(S) = sum_i (d_max - min_{j in S, y_j = y_i} |x_i - x_j|); uncovered i count 0. */
static double value(const merged *m, const bool *in, double d_max)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++) {
        double near = INFINITY;
        for (int j = 0; j < m->n; j++)
            if (in[j] && m->label[j] == m->label[i])
                near = fmin(near, distance(m, i, j));
        sum += isinf(near) ? 0 : d_max - near;
    }
    return sum;
}

static void greedy(const merged *m, int count, bool *in)
{
    double d_max = 0;
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < i; j++)
            d_max = fmax(d_max, distance(m, i, j));
    memset(in, 0, (size_t)m->n * sizeof *in);
    for (int k = 0; k < count; k++) {
        double best = -INFINITY;
        int pick = -1;
        for (int j = 0; j < m->n; j++) {
            if (in[j])
                continue;
            in[j] = true;
            double f = value(m, in, d_max);
            in[j] = false;
            if (f > best + 1e-9) { /* the two samples of a class of two are equal: the lower index wins */
                best = f;
                pick = j;
            }
        }
        in[pick] = true;
    }
}

/* All queries are known and normally distributed, so no two sets have equal values. */
static test_batch random_batch(sfp__rng *rng, int b, int classes, uint64_t first)
{
    test_batch x = batch_make(b, DIM, 4, first, first);
    for (int i = 0; i < b; i++) {
        x.label[i] = (int32_t)sfp__rng_below(rng, (uint32_t)classes);
        x.has_query[i] = true;
        for (int k = 0; k < DIM; k++)
            x.query[i * DIM + k] = (float)sfp__rng_normal(rng);
    }
    return x;
}

TEST(the_merged_set_is_reduced_as_defined)
{
    sfp__rng rng = sfp__rng_init(1, 1);
    for (int round = 0; round < 500; round++) {
        int m = 1 + (int)sfp__rng_below(&rng, 10), max_batch = 1 + (int)sfp__rng_below(&rng, 12),
            classes = 1 + (int)sfp__rng_below(&rng, 4);
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("camel", m, DIM, 4, max_batch);
        uint64_t next = 1;
        for (int t = 0; t < 4; t++) {
            test_batch x = random_batch(&rng, 1 + (int)sfp__rng_below(&rng, (uint32_t)max_batch), classes, next);
            next += (uint64_t)x.view.b;
            merged all = {0};
            bool in[MAX_POINTS];
            for (int i = 0; i < b->filled; i++)
                merge_one(&all, b->slot[i].id, b->slot[i].label, b->slot[i].query);
            for (int i = 0; i < x.view.b; i++)
                merge_one(&all, x.id[i], x.label[i], x.query + i * DIM);
            greedy(&all, all.n < m ? all.n : m, in);
            buffer_image before = image_of(b);
            sfp__buffer_change c = {0};
            MUST(sfp__buffer_update(b, &x.view, NULL, &c, NULL)); /* no random number */
            check_change(&before, &x, &c, b);
            for (int i = 0; i < all.n; i++) {
                bool there = false;
                for (int s = 0; s < b->filled; s++)
                    there = there || b->slot[s].id == all.id[i];
                if (there != in[i])
                    fail_msg("round %d, batch %d: sample %d of %d is %s, expected otherwise", round, t, i, all.n,
                             there ? "in" : "out");
            }
        }
    }
}

/* Of equal samples those in the buffer are kept. */
TEST(ties_keep_the_stored_sample)
{
    sfp__rng rng = sfp__rng_init(2, 1);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("camel", 6, DIM, 4, 6);
    test_batch x = random_batch(&rng, 6, 2, 10), y = random_batch(&rng, 6, 2, 20);
    memcpy(y.query, x.query, 6 * DIM * sizeof *x.query);
    memcpy(y.label, x.label, 6 * sizeof *x.label);
    sfp__buffer_change c = {0};
    MUST(sfp__buffer_update(b, &x.view, NULL, &c, NULL));
    assert_int_equal(c.stored, 6);
    MUST(sfp__buffer_update(b, &y.view, NULL, &c, NULL));
    assert_int_equal(c.nu, 0);
}

TEST(samples_with_queries_that_are_not_finite_are_replaced_first)
{
    sfp__rng rng = sfp__rng_init(3, 1);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("camel", 6, DIM, 4, 6);
    test_batch x = random_batch(&rng, 6, 2, 10), y = random_batch(&rng, 4, 2, 20);
    for (int i = 1; i < 5; i++)
        x.query[i * DIM + i % DIM] = i % 2 ? NAN : INFINITY;
    y.query[3 * DIM] = NAN;
    MUST(sfp__buffer_update(b, &x.view, NULL, NULL, NULL));
    MUST(sfp__buffer_update(b, &y.view, NULL, NULL, NULL));
    int bad = 0;
    for (int i = 0; i < 6; i++) {
        uint64_t id = b->slot[i].id;
        bad += (id > 10 && id < 15) || id == 23;
    }
    assert_int_equal(bad, 1); /* 2 + 3 samples are finite, 6 slots are needed */
}

TEST(failed_updates_change_nothing)
{
    sfp__rng rng = sfp__rng_init(4, 1);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("camel", 6, DIM, 4, 6);
    test_batch x = random_batch(&rng, 6, 2, 10), y = random_batch(&rng, 6, 2, 20);
    test_model_ops t = {.fail_at = -1};
    MUST(sfp__buffer_update(b, &x.view, NULL, NULL, NULL));
    buffer_image before = image_of(b);
    y.has_query[2] = false;
    REFUSED(sfp__buffer_update(b, &y.view, NULL, NULL, &err), SFP_EINVAL, "sample 2");
    check_same_image(&before, b);
    y.has_query[2] = true;
    check_failed_allocations(b, &x, &y, &t);
}
