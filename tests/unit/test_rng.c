/* Random numbers: the published test vectors of Philox, and that derived numbers are uniform, normal and reproducible. Draws
 * are seeded, so a statistical check always passes or always fails; a correct generator fails with probability at most 1e-6. */
#include "base/rng.h"

#include "test.h"

/* kat_vectors of Random123 for philox4x32 with 10 rounds. */
TEST(philox_gives_the_published_vectors)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        sfp__philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

TEST(words_are_philox_of_counter_stream_and_seed)
{
    const uint64_t seed = 0x0123456789abcdefu, stream = 0xfedcba9876543210u;
    sfp__rng r = sfp__rng_init(seed, stream);
    r.counter = 0xffffffffu; /* the next block carries into the upper half */
    for (uint64_t block = 0xffffffffu; block < 0x100000002u; block++) {
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
        const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t want[4];
        sfp__philox(counter, key, want);
        for (int i = 0; i < 4; i++)
            assert_int_equal(sfp__rng_u32(&r), want[i]);
    }
    r = sfp__rng_init(0, 0);
    assert_int_equal(sfp__rng_u32(&r), 0x6627e8d5);
}

TEST(a_saved_state_continues_the_sequence)
{
    sfp__rng a = sfp__rng_init(5, 6);
    for (int i = 0; i < 7; i++)
        (void)sfp__rng_u32(&a);
    unsigned char saved[sizeof a];
    memcpy(saved, &a, sizeof a);
    uint32_t rest[50];
    for (int i = 0; i < 50; i++)
        rest[i] = sfp__rng_u32(&a);
    sfp__rng b;
    memcpy(&b, saved, sizeof b);
    for (int i = 0; i < 50; i++)
        assert_int_equal(sfp__rng_u32(&b), rest[i]);
}

TEST(seeds_and_streams_differ)
{
    static const uint64_t pairs[][2] = {{1, 0}, {2, 0}, {1, 1}, {(uint64_t)1 << 32, 0}, {1, (uint64_t)1 << 32}};
    enum { N = sizeof pairs / sizeof *pairs };
    sfp__rng r[N];
    int equal = 0;
    for (size_t i = 0; i < N; i++)
        r[i] = sfp__rng_init(pairs[i][0], pairs[i][1]);
    for (int k = 0; k < 1000; k++) {
        uint32_t v[N];
        for (size_t i = 0; i < N; i++) {
            v[i] = sfp__rng_u32(&r[i]);
            for (size_t j = 0; j < i; j++)
                equal += v[i] == v[j];
        }
    }
    assert_int_equal(equal, 0);
}

/* Returns the chi-square statistic of counts against equal shares, as a standard normal deviation (Wilson-Hilferty). */
static double chi_square_z(const long *count, int cells, double draws)
{
    double chi = 0, want = draws / cells, f = cells - 1;
    for (int i = 0; i < cells; i++)
        chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
    return (cbrt(chi / f) - (1 - 2 / (9 * f))) / sqrt(2 / (9 * f));
}

TEST(below_is_uniform)
{
    static const uint32_t sizes[] = {2, 3, 7, 10, 100, 1000};
    enum { DRAWS = 400000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        sfp__rng r = sfp__rng_init(11, s);
        long count[1000] = {0};
        for (int i = 0; i < DRAWS; i++) {
            uint32_t v = sfp__rng_below(&r, sizes[s]);
            assert_true(v < sizes[s]);
            count[v]++;
        }
        double z = chi_square_z(count, (int)sizes[s], DRAWS);
        if (fabs(z) > 5)
            fail_msg("below(%u): chi-square is %.1f standard deviations away", sizes[s], z);
    }
}

/* Without rejection, every third value of [0, 3 * 2^30) would have twice the probability. */
TEST(below_has_no_bias_for_large_ranges)
{
    enum { DRAWS = 300000 };
    sfp__rng r = sfp__rng_init(12, 0);
    long count[3] = {0};
    for (int i = 0; i < DRAWS; i++)
        count[sfp__rng_below(&r, 3u << 30) % 3]++;
    double z = chi_square_z(count, 3, DRAWS);
    if (fabs(z) > 5)
        fail_msg("residues %ld %ld %ld", count[0], count[1], count[2]);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sfp__rng_below(&r, 1), 0);
    for (int i = 0; i < 100; i++)
        assert_true(sfp__rng_below(&r, UINT32_MAX) < UINT32_MAX);
}

TEST(doubles_fill_zero_to_one)
{
    enum { DRAWS = 400000, CELLS = 256 };
    sfp__rng r = sfp__rng_init(13, 0);
    long count[CELLS] = {0}, low[CELLS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        double u = sfp__rng_double(&r);
        assert_true(u >= 0 && u < 1);
        count[(int)(u * CELLS)]++;
        double bits = ldexp(u, 53); /* 53 bits, and the lowest ones are random, too */
        assert_true(bits == floor(bits));
        low[(uint64_t)bits % CELLS]++;
    }
    assert_true(fabs(chi_square_z(count, CELLS, DRAWS)) < 5);
    assert_true(fabs(chi_square_z(low, CELLS, DRAWS)) < 5);
}

TEST(normals_have_the_right_moments_and_shape)
{
    enum { DRAWS = 400000, CELLS = 64 };
    sfp__rng r = sfp__rng_init(14, 0);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, last = 0;
    long count[CELLS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        double x = sfp__rng_normal(&r);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        lag += x * last;
        last = x;
        int cell = (int)(0.5 * erfc(-x / sqrt(2.0)) * CELLS);
        count[cell < CELLS ? cell : CELLS - 1]++;
    }
    double n = DRAWS, sd = 1 / sqrt(n); /* variances of x .. x^4: 1, 2, 15, 96 */
    assert_true(fabs(m1 / n) < 5 * sd);
    assert_true(fabs(m2 / n - 1) < 5 * sd * sqrt(2));
    assert_true(fabs(m3 / n) < 5 * sd * sqrt(15));
    assert_true(fabs(m4 / n - 3) < 5 * sd * sqrt(96));
    assert_true(fabs(lag / n) < 5 * sd);
    assert_true(fabs(chi_square_z(count, CELLS, n)) < 5);
}
