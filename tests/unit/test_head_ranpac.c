/* RanPAC against the normal equations of its ridge, in double. */
#include "learner/heads/head.h"

#include "test.h"
#include "test_head_common.h"

enum { D = 7, K = 4, SEED = 11 };

/* phi (n, width) in double; the projection is the first stream of the seed, row by row. */
static double *projections(const stream *s, int n, int width)
{
    sfp_rng rng = sfp__rng_init(SEED, 1);
    float *r = normals(&rng, (size_t)(D * width), 1);
    double *phi = kept_malloc((size_t)(n * width) * sizeof *phi);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) {
            double sum = 0;
            for (int j = 0; j < D; j++)
                sum += (double)s->x[i * D + j] * (double)r[j * width + k];
            phi[i * width + k] = fmax(sum, 0);
        }
    return phi;
}

/* W (width, K) = (Phi^T Phi + lambda I)^-1 Phi^T Y over the samples with use[i], by elimination. */
static double *ridge(const stream *s, const double *phi, const bool *use, int n, int width, double lambda)
{
    int w = width + K;
    double *a = kept_calloc((size_t)(width * w), sizeof *a), *x = kept_malloc((size_t)(width * K) * sizeof *x);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < width && use[i]; j++) {
            for (int k = 0; k < width; k++)
                a[j * w + k] += phi[i * width + j] * phi[i * width + k];
            a[j * w + width + s->label[i]] += phi[i * width + j];
        }
    for (int j = 0; j < width; j++)
        a[j * w + j] += lambda;
    for (int p = 0; p < width; p++) /* positive definite: no pivoting needed */
        for (int i = p + 1; i < width; i++) {
            double f = a[i * w + p] / a[p * w + p];
            for (int k = p; k < w && f != 0; k++)
                a[i * w + k] -= f * a[p * w + k];
        }
    for (int c = 0; c < K; c++)
        for (int i = width - 1; i >= 0; i--) {
            double sum = a[i * w + width + c];
            for (int k = i + 1; k < width; k++)
                sum -= a[i * w + k] * x[k * K + c];
            x[i * K + c] = sum / a[i * w + i];
        }
    return x;
}

static double predict(const double *phi, const double *w, int width, int i, int c)
{
    double sum = 0;
    for (int k = 0; k < width; k++)
        sum += phi[i * width + k] * w[k * K + c];
    return sum;
}

static const void *tensor(state *s, const char *name)
{
    char full[64];
    (void)snprintf(full, sizeof full, "head.x.%s", name);
    return find(s, full)->data;
}

/* Width 24 folds after 64 samples, then whenever 160 are not folded: the numbers of samples below lie on all sides of that. */
TEST(scores_are_those_of_the_ridge_solved_at_once)
{
    const int counts[] = {1, 5, 31, 39, 40, 63, 64, 65, 100, 230, 400, 777};
    bool use[777];
    memset(use, 1, sizeof use);
    stream s = make_stream(1, 777, D, K, NULL, 0.9, 0.3);
    for (int c = 0; c < K; c++)
        s.label[c] = c;
    double *phi = projections(&s, s.n, 24);
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ranpac", D, 24);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int n = counts[k];
        learn(h, &s, k ? counts[k - 1] : 0, n);
        float *got = score(h, &s, 50, K), *want = filled(50 * K, -INFINITY);
        state now = save(h);
        const double *strength = tensor(&now, "strength");
        double *w = ridge(&s, phi, use, n, 24, strength[0]);
        int seen = n < K ? n : K;
        for (int i = 0; i < 50; i++) {
            double sum = 0;
            for (int c = 0; c < seen; c++)
                sum += exp(strength[1] * predict(phi, w, 24, i, c));
            for (int c = 0; c < seen; c++)
                want[i * K + c] = (float)(strength[1] * predict(phi, w, 24, i, c) - log(sum));
            check_near("log-probabilities", got + i * K, want + i * K, (size_t)seen, 2e-3);
        }
        check_distributions(got, 50, K, s.label, n);
    }
}

/* lambda has the least squared error on the held-out samples of a ridge fitted to all others; with the base empty, and with a
 * base. `neighbours`: only better than a tenth and ten times of it (the search goes downhill when there are many unknowns). */
static void check_choice(int width, int n, double spread, bool neighbours)
{
    stream s = make_stream((uint64_t)n, n, D, K, NULL, spread, 0.3);
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ranpac", D, width);
    learn(h, &s, 0, n);
    MUST(sfp__head_refresh(h, NULL));
    state now = save(h);
    const double *strength = tensor(&now, "strength");
    const int64_t *slot = tensor(&now, "slot"), *counter = tensor(&now, "counter");
    const float *query = tensor(&now, "query");
    assert_int_equal(counter[1], 2 * n);
    bool *use = kept_malloc((size_t)n * sizeof *use);
    int held = 0;
    for (int i = 0; i < n; i++) {
        use[i] = true;
        for (size_t k = 0; k < find(&now, "head.x.slot")->count; k++)
            if (slot[k] >= 0 && memcmp(query + k * D, s.x + i * D, D * sizeof *query) == 0)
                use[i] = false;
        held += !use[i];
        assert_true(use[i] || i % 10 == 9); /* every tenth */
    }
    assert_int_equal(held, n / 10 < 128 ? n / 10 : 128);
    double *phi = projections(&s, n, width), chosen = INFINITY, least = INFINITY;
    for (int e = neighbours ? -1 : -5; e <= (neighbours ? 1 : 5); e++) {
        double *w = ridge(&s, phi, use, n, width, strength[0] * pow(10, e)), error = 0;
        for (int i = 0; i < n; i++)
            for (int c = 0; c < K && !use[i]; c++)
                error += pow(predict(phi, w, width, i, c) - (s.label[i] == c), 2);
        if (e == 0)
            chosen = error;
        least = fmin(least, error);
    }
    if (!(chosen <= least * 1.002))
        fail_msg("width %d, n %d: lambda %g has held-out error %g, another has %g", width, n, strength[0], chosen, least);
    assert_true(strength[1] > 3 && strength[1] < 81);
}

TEST(lambda_is_the_best_on_held_out_samples)
{
    check_choice(24, 50, 2, false); /* dual */
    check_choice(200, 90, 0.5, false);
    check_choice(24, 330, 2, false); /* primal */
    check_choice(24, 330, 0.3, false);
    check_choice(530, 330, 2, true); /* primal, downhill */
}

TEST(lambda_is_chosen_again_when_the_stream_has_doubled)
{
    stream s = make_stream(1, 200, D, K, NULL, 2, 0);
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ranpac", D, 24);
    const int at[] = {30, 39, 40, 79, 80, 150, 170}, next[] = {40, 40, 80, 80, 160, 160, 340};
    for (int k = 0; k < 7; k++) {
        learn(h, &s, k ? at[k - 1] : 0, at[k]);
        MUST(sfp__head_refresh(h, NULL));
        state now = save(h);
        assert_int_equal(((const int64_t *)tensor(&now, "counter"))[1], next[k]);
        assert_true(((const double *)tensor(&now, "strength"))[0] > 0);
    }
}

TEST(the_reservoir_is_uniform_over_the_stream)
{
    int n = 12000, late = 0; /* 1200 offered, 128 kept: half of them from the second half, +- 4 standard deviations */
    stream s = make_stream(1, n, D, K, NULL, 2, 0);
    for (int i = 0; i < n; i++)
        s.x[i * D] = (float)i; /* tells when it came */
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ranpac", D, 4);
    learn(h, &s, 0, n);
    state now = save(h);
    const int64_t *slot = tensor(&now, "slot");
    const float *query = tensor(&now, "query");
    bool taken[128] = {false};
    for (size_t k = 0; k < find(&now, "head.x.slot")->count; k++)
        if (slot[k] >= 0) {
            assert_false(taken[slot[k]]);
            taken[slot[k]] = true;
            late += query[k * D] >= (float)n / 2;
        }
    for (int k = 0; k < 128; k++)
        assert_true(taken[k]);
    assert_in_range(late, 64 - 23, 64 + 23);
}

TEST(another_seed_is_another_projection)
{
    stream s = make_stream(1, 50, D, K, NULL, 2, 0);
    sfp_head *a = make_head("ranpac", D, 24), *b = NULL;
    sfp_head_options opt = sfp__head_options_defaults(D, 2);
    opt.ranpac_width = 24;
    opt.seed = 12;
    MUST(sfp__head_create("ranpac", &opt, &b, NULL));
    learn(a, &s, 0, 50);
    learn(b, &s, 0, 50);
    float *x = score(a, &s, 20, K), *y = score(b, &s, 20, K);
    assert_memory_not_equal(x, y, 20 * K * sizeof *x);
    state saved = save(a); /* the seed is part of the state */
    MUST(read_head(b, &saved, "file", false, NULL));
    y = score(b, &s, 20, K);
    check_same("scores", x, y, 20 * K * sizeof *x);
    sfp__head_free(b);
    opt.ranpac_width = 25;
    MUST(sfp__head_create("ranpac", &opt, &b, NULL));
    REFUSED(read_head(b, &saved, "file", false, &err), SFP_ESHAPE, "width 24, expected 25");
    sfp__head_free(a);
    sfp__head_free(b);
}

TEST(a_step_allocates_nothing)
{
    stream s = make_stream(1, 900, D, K, NULL, 2, 0);
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ranpac", D, 24);
    float out[20 * K];
    learn(h, &s, 0, 20);
    unsigned long before = sfp__mem_count();
    for (int i = 20; i < s.n; i += 20) {
        learn(h, &s, i, i + 20);
        MUST(sfp__head_scores(h, 20, s.x, K, out, NULL));
    }
    assert_true(sfp__mem_count() == before);
}

TEST(cuts_in_batches_leave_no_trace)
{
    stream s = make_stream(2, 600, D, K, NULL, 1.5, 0.5);
    check_cuts("ranpac", 24, &s, K);
    check_cuts("ranpac", 150, &s, K);
}

TEST(a_loaded_head_goes_on_to_the_same_bytes)
{
    const int32_t label[] = {0, 12, 5, 33, 1, 2, 3, 4, 6, 7, 8, 9};
    const int at[] = {1, 20, 57, 64, 113, 230, 401};
    stream s = make_stream(3, 500, D, 12, label, 1.5, 0.5);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        check_resume("ranpac", 24, &s, at[k], 34);
    check_bad_states("ranpac", 24, &s);
    s.n = 50; /* nothing folded yet */
    check_answers("ranpac", 24, &s, 34);
    check_bad_states("ranpac", 24, &s);
}

TEST(degenerate_streams_give_numbers)
{
    check_degenerate("ranpac", 8);
    check_degenerate("ranpac", 200); /* never folds */
}

TEST(each_failing_allocation_is_survived)
{
    stream s = make_stream(4, 90, D, 20, NULL, 1, 0);
    check_torture("ranpac", 16, &s, 20);
}
