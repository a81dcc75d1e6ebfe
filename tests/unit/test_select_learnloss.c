/* The loss-prediction network: its loss against the definition, its gradients against central differences, that it learns to
 * rank, and its saved state. */
#include "select/lossnet.h"
#include "select/select.h"

#include "select_case.h"
#include "test.h"

TEST(the_ranking_loss_equals_its_definition)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    for (int round = 0; round < 3000; round++) {
        int n = (int)sfp__rng_below(&rng, 12);
        float p[12], l[12], grad[12];
        double want = 0, slope[12] = {0};
        for (int i = 0; i < n; i++) {
            p[i] = (float)sfp__rng_normal(&rng);
            l[i] = (float)sfp__rng_below(&rng, 5);
        }
        for (int i = 0; i < n / 2; i++) {
            int larger = l[i] > l[n - 1 - i] ? i : n - 1 - i, smaller = n - 1 - larger;
            double margin = 1 - ((double)p[larger] - (double)p[smaller]);
            want += fmax(0, margin) / (n / 2);
            slope[larger] = margin > 0 ? -1.0 / (n / 2) : 0;
            slope[smaller] = -slope[larger];
        }
        assert_true(fabs(sfp__lossnet_rank_loss(n, p, l, grad) - want) < 1e-5);
        for (int i = 0; i < n; i++)
            assert_true(fabs((double)grad[i] - slope[i]) < 1e-6);
    }
}

static double loss_of(const sfp__lossnet *net, int n, const float *taps, const float *loss)
{
    static float hidden[16 * SFP__LOSSNET_JOINED], predicted[16], grad[16];
    sfp__lossnet_fwd(net, n, taps, hidden, predicted);
    return sfp__lossnet_rank_loss(n, predicted, loss, grad);
}

TEST(gradients_equal_central_differences)
{
    enum { N = 9, D = 5 };
    sfp__rng rng = sfp__rng_init(2, 0);
    OWNED_BY(sfp__lossnet_done) sfp__lossnet net = {0};
    MUST(sfp__lossnet_init(&net, D, &rng, NULL));
    float *taps = case_rows(&rng, N, SFP__TAPS * D, CASE_NORMAL), *loss = case_rows(&rng, N, 1, CASE_NORMAL);
    static float hidden[N * SFP__LOSSNET_JOINED], predicted[N], grad[N];
    sfp__lossnet_fwd(&net, N, taps, hidden, predicted);
    (void)sfp__lossnet_rank_loss(N, predicted, loss, grad);
    sfp__lossnet_bwd(&net, N, taps, hidden, grad);
    int checked = 0, kinks = 0;
    for (int k = 0; k < SFP__LOSSNET_PARAMS; k++) {
        sfp__param *p = &net.param[k];
        for (size_t i = 0; i < (size_t)p->rows * p->width; i += 1 + (size_t)sfp__rng_below(&rng, 7)) {
            float was = p->data[i], step = 1e-2f;
            p->data[i] = was + step;
            double above = loss_of(&net, N, taps, loss);
            p->data[i] = was - step;
            double below = loss_of(&net, N, taps, loss);
            p->data[i] = was;
            double middle = loss_of(&net, N, taps, loss), slope = (above - below) / (2 * (double)step);
            checked++;
            if (fabs(above + below - 2 * middle) > 1e-6) { /* the function is piecewise linear: skip steps that contain a kink */
                kinks++;
                continue;
            }
            if (fabs(slope - (double)p->grad[i]) > 2e-4)
                fail_msg("gradient of %s[%zu] is %g, expected %g", p->name, i, (double)p->grad[i], slope);
        }
    }
    print_message("%d numbers, %d of them at a bend\n", checked, kinks);
    assert_true(checked > 500 && kinks < checked / 5);
}

/* If the loss is a function of the token means, the predictions have the order of the losses after some steps. */
TEST(it_learns_to_rank_and_chooses_the_highest)
{
    enum { B = 16, D = 6 };
    const sfp__selector *s = sfp__selector_find("learnloss");
    sfp__rng rng = sfp__rng_init(3, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    sfp__select_env env = {.rng = &rng, .arena = &arena};
    MUST(s->open(D, B, 5, &env.state, NULL));
    int out[B], count = 0, right = 0, order[B];
    float loss[B];
    for (int step = 0; step < 3000; step++) {
        select_case c = make_case(&rng, B, D, 2, CASE_NORMAL);
        for (int i = 0; i < B; i++) {
            loss[i] = c.taps[i * SFP__TAPS * D] + 0.5f * c.taps[i * SFP__TAPS * D + 2 * D];
            order[i] = i;
        }
        if (step < 2900) {
            s->learn(env.state, &c.batch, B, order, loss);
        } else {
            const sfp__select_options opt = {.sigma = 0.25};
            MUST(s->pick(&c.batch, &opt, &env, out, NULL, &count, NULL));
            assert_int_equal(count, B / 4);
            int above = 0;
            for (int i = 0; i < B; i++)
                above += loss[i] > loss[out[0]];
            right += above < 3;
        }
    }
    print_message("the first pick is among the three highest in %d of 100\n", right);
    assert_true(right > 80);

    /* samples that are not finite are neither chosen nor learned from */
    float bad[B], before[SFP__LOSSNET_JOINED];
    sfp__state_tensor part;
    int parts = s->state_tensors(env.state, 0, &part);
    assert_int_equal(parts, 4 * SFP__LOSSNET_PARAMS);
    for (int i = 0; i < B; i++)
        bad[i] = i ? NAN : 1;
    select_case c = make_case(&rng, B, D, 2, CASE_NORMAL);
    memcpy(before, part.data, sizeof(float) * 8);
    s->learn(env.state, &c.batch, B, order, bad);
    assert_memory_equal(before, part.data, sizeof(float) * 8);
    s->close(env.state);
}

TEST(the_saved_state_is_complete)
{
    enum { B = 10, D = 3 };
    const sfp__selector *s = sfp__selector_find("learnloss");
    void *a = NULL, *b = NULL;
    sfp__rng rng = sfp__rng_init(4, 0);
    MUST(s->open(D, B, 1, &a, NULL));
    MUST(s->open(D, B, 2, &b, NULL));
    int order[B], parts = 0;
    float *loss = case_rows(&rng, B, 1, CASE_NORMAL);
    for (int i = 0; i < B; i++)
        order[i] = i;
    select_case c = make_case(&rng, B, D, 2, CASE_NORMAL);
    s->learn(a, &c.batch, B, order, loss);
    for (int k = 0; k == 0 || k < parts; k++) {
        sfp__state_tensor from, to;
        parts = s->state_tensors(a, k, &from);
        (void)s->state_tensors(b, k, &to);
        assert_string_equal(from.name, to.name);
        size_t n = 4;
        for (int i = 0; i < from.ndim; i++)
            n *= (size_t)from.shape[i];
        memcpy(to.data, from.data, n);
    }
    for (int step = 0; step < 3; step++) {
        s->learn(a, &c.batch, B, order, loss);
        s->learn(b, &c.batch, B, order, loss);
    }
    for (int k = 0; k < parts; k++) {
        sfp__state_tensor one, two;
        (void)s->state_tensors(a, k, &one);
        (void)s->state_tensors(b, k, &two);
        size_t n = 4;
        for (int i = 0; i < one.ndim; i++)
            n *= (size_t)one.shape[i];
        assert_memory_equal(one.data, two.data, n);
    }
    s->close(a);
    s->close(b);
    s->close(NULL);
}
