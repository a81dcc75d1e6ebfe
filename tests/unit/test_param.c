/* Learnable tensors and Adam, against PyTorch's formula for a single number in double. */
#include "compute/param.h"

#include "numeric.h"
#include "test.h"

/* torch.optim.Adam, amsgrad off, no weight decay. */
typedef struct scalar {
    double x, m, v;
    int t;
} scalar;

static void scalar_step(scalar *s, double g, double lr, double b1, double b2, double eps)
{
    s->t++;
    s->m = b1 * s->m + (1 - b1) * g;
    s->v = b2 * s->v + (1 - b2) * g * g;
    double c1 = 1 - pow(b1, s->t), c2 = 1 - pow(b2, s->t);
    s->x -= lr / c1 * s->m / (sqrt(s->v) / sqrt(c2) + eps);
}

static void init(sfp__param *p, int rows, int width)
{
    const int64_t shape[] = {rows, width};
    MUST(sfp__param_init(p, "x", 2, shape, &err));
}

enum { ROWS = 5, WIDTH = 7 };

TEST(adam_equals_pytorchs)
{
    OWNED_BY(sfp__param_done) sfp__param p = {0};
    sfp__rng rng = sfp__rng_init(1, 0);
    sfp__adam a = sfp__adam_defaults();
    scalar want[ROWS * WIDTH] = {0};
    init(&p, ROWS, WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++)
        want[i].x = (double)(p.data[i] = (float)sfp__rng_normal(&rng));
    for (int t = 0; t < 200; t++) {
        for (int i = 0; i < ROWS * WIDTH; i++) {
            /* magnitudes from 1e-9 (where eps matters) to 1e3, with alternating signs */
            p.grad[i] = (float)(pow(10, i % 13 - 9) * sfp__rng_normal(&rng));
            scalar_step(&want[i], (double)p.grad[i], 1e-3, 0.9, 0.999, 1e-8);
        }
        sfp__adam_step(&a, &p);
        for (int i = 0; i < ROWS * WIDTH; i++) /* a step changes a value by at most about lr, 1e-3 */
            if (!(fabs((double)p.data[i] - want[i].x) <= 2e-7 * (1 + fabs(want[i].x)) * (t + 1)))
                fail_msg("step %d, element %d: %.9g, expected %.9g", t + 1, i, (double)p.data[i], want[i].x);
    }
}

TEST(the_first_step_is_lr_for_every_gradient)
{
    OWNED_BY(sfp__param_done) sfp__param p = {0};
    sfp__adam a = {.lr = 0.25f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    init(&p, 1, 3);
    p.grad[0] = 1e-3f, p.grad[1] = -40, p.grad[2] = 0;
    sfp__adam_step(&a, &p);
    assert_true(fabsf(p.data[0] + 0.25f) < 1e-5f && fabsf(p.data[1] - 0.25f) < 1e-6f && p.data[2] == 0);
}

/* Rows that start later behave like the first ones: the same gradients give the same values. */
TEST(each_row_counts_its_own_steps)
{
    OWNED_BY(sfp__param_done) sfp__param p = {0};
    sfp__rng rng = sfp__rng_init(2, 0);
    sfp__adam a = sfp__adam_defaults();
    enum { STEPS = 12, LATER = 5 };
    float grads[STEPS][WIDTH], path[STEPS][WIDTH];
    for (int t = 0; t < STEPS; t++)
        for (int i = 0; i < WIDTH; i++)
            grads[t][i] = (float)sfp__rng_normal(&rng);
    init(&p, 3, WIDTH);
    p.lo = 0, p.hi = 1;
    for (int t = 0; t < STEPS + LATER; t++) {
        if (t == LATER) { /* row 0 continues or freezes, row 1 starts */
            p.hi = 2;
            p.lo = 1;
        }
        for (int i = 0; i < WIDTH; i++) {
            p.grad[i] = t < STEPS ? grads[t][i] : NAN;
            p.grad[WIDTH + i] = t >= LATER ? grads[t - LATER][i] : NAN; /* frozen: not even read */
            p.grad[2 * WIDTH + i] = NAN;
        }
        float frozen[WIDTH];
        memcpy(frozen, p.data, sizeof frozen);
        sfp__adam_step(&a, &p);
        if (t < LATER)
            memcpy(path[t], p.data, sizeof path[t]);
        else
            check_same("a frozen row", p.data, frozen, sizeof frozen);
        if (t >= LATER && t - LATER < LATER)
            check_same("the later row", p.data + WIDTH, path[t - LATER], sizeof path[0]);
    }
    assert_int_equal(p.steps[0], LATER);
    assert_int_equal(p.steps[1], STEPS);
    assert_int_equal(p.steps[2], 0);
    for (int i = 0; i < WIDTH; i++)
        assert_true(p.data[2 * WIDTH + i] == 0 && p.m[2 * WIDTH + i] == 0 && p.v[2 * WIDTH + i] == 0);
}

TEST(reset_forgets_moments_and_steps_of_its_rows_alone)
{
    OWNED_BY(sfp__param_done) sfp__param p = {0};
    sfp__rng rng = sfp__rng_init(3, 0);
    sfp__adam a = sfp__adam_defaults();
    init(&p, ROWS, WIDTH);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < ROWS * WIDTH; i++)
            p.grad[i] = (float)sfp__rng_normal(&rng);
        sfp__adam_step(&a, &p);
    }
    float *m = copied(p.m, ROWS * WIDTH), *v = copied(p.v, ROWS * WIDTH), *x = copied(p.data, ROWS * WIDTH);
    sfp__param_reset_adam(&p, 1, 3);
    for (int r = 0; r < ROWS; r++) {
        bool reset = r == 1 || r == 2;
        assert_int_equal(p.steps[r], reset ? 0 : 3);
        for (int i = r * WIDTH; i < (r + 1) * WIDTH; i++)
            assert_true(p.m[i] == (reset ? 0 : m[i]) && p.v[i] == (reset ? 0 : v[i]) && p.data[i] == x[i]);
    }
}

TEST(growing_keeps_existing_rows)
{
    OWNED_BY(sfp__param_done) sfp__param p = {0};
    sfp__adam a = sfp__adam_defaults();
    init(&p, 0, WIDTH); /* rows are added later */
    assert_int_equal(p.rows, 0);
    for (int rows = 1; rows <= 70; rows += 3) {
        int before = p.rows;
        float *x = copied(p.data, (size_t)before * WIDTH), *m = copied(p.m, (size_t)before * WIDTH);
        MUST(sfp__param_grow(&p, rows, &err));
        check_same("values", p.data, x, (size_t)before * WIDTH * sizeof *x);
        check_same("moments", p.m, m, (size_t)before * WIDTH * sizeof *m);
        for (int i = before * WIDTH; i < rows * WIDTH; i++)
            assert_true(p.data[i] == 0 && p.m[i] == 0 && p.v[i] == 0);
        for (int r = before; r < rows; r++)
            assert_int_equal(p.steps[r], 0);
        assert_int_equal(p.hi, rows);
        assert_int_equal(p.shape[0], rows);
        for (int i = 0; i < rows * WIDTH; i++)
            p.grad[i] = (float)(i + 1);
        sfp__adam_step(&a, &p);
    }
    assert_int_equal(p.steps[0], 24);
    assert_int_equal(p.steps[69], 1);
    sfp__param_zero_grad(&p);
    for (int i = 0; i < 70 * WIDTH; i++)
        assert_true(p.grad[i] == 0);
}
