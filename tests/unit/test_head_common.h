/* What the tests of the heads share: a random stream, a saved state in memory, and the checks that every head must pass.
 * Include after <cmocka.h>. */
#ifndef SFP_TESTS_HEAD_COMMON_H
#define SFP_TESTS_HEAD_COMMON_H

#include "learner/heads/head.h"
#include "learner/heads/head_kind.h"

#include "failing_alloc.h"
#include "numeric.h"
#include "test.h"

/* ------------------------------------------------------------------- stream */

typedef struct stream {
    int n, d;
    float *x;       /* (n, d) */
    int32_t *label; /* (n) */
} stream;

/* Gaussian clusters around random means, at `offset` from the origin; label[k] is the label of cluster k. */
static UNUSED stream make_stream(uint64_t seed, int n, int d, int clusters, const int32_t *label, double spread, double offset)
{
    sfp_rng rng = sfp__rng_init(seed, 7);
    stream s = {.n = n, .d = d, .x = floats((size_t)n * (size_t)d), .label = kept_malloc((size_t)n * sizeof *s.label)};
    float *mean = normals(&rng, (size_t)clusters * (size_t)d, 1);
    for (int i = 0; i < n; i++) {
        int k = (int)sfp__rng_below(&rng, (uint32_t)clusters);
        s.label[i] = label ? label[k] : k;
        for (int j = 0; j < d; j++)
            s.x[i * d + j] = (float)(offset + (double)mean[k * d + j] + spread * sfp__rng_normal(&rng));
    }
    return s;
}

static UNUSED sfp_head *make_head(const char *kind, int d, int width)
{
    sfp_head_options opt = sfp__head_options_defaults(d, 2);
    opt.ranpac_width = width;
    opt.seed = 11;
    sfp_head *h = NULL;
    MUST(sfp__head_create(kind, &opt, &h, &err));
    return h;
}

static UNUSED void learn(sfp_head *h, const stream *s, int from, int to)
{
    if (to > from && sfp__head_update(h, to - from, s->x + from * s->d, s->label + from, &err) != SFP_OK)
        fail_msg("%s", err.message);
}

static UNUSED float *score(sfp_head *h, const stream *s, int n, int classes)
{
    float *out = filled((size_t)n * (size_t)classes, NAN);
    MUST(sfp__head_scores(h, n, s->x, classes, out, &err));
    return out;
}

static UNUSED int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Each row is a distribution over the labels of the stream's first n samples, and -INFINITY elsewhere; never NaN. */
static UNUSED void check_distributions(const float *logp, int rows, int classes, const int32_t *label, int n)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < classes; c++) {
            bool seen = false;
            for (int i = 0; i < n; i++)
                seen |= label[i] == c;
            float v = logp[r * classes + c];
            if (seen ? !isfinite(v) : v != -INFINITY)
                fail_msg("row %d, class %d (%s) is %g", r, c, seen ? "seen" : "not seen", (double)v);
            sum += exp((double)v);
        }
        if (!(fabs(sum - 1) < 1e-5))
            fail_msg("row %d sums to %g", r, sum);
    }
}

/* -------------------------------------------------------------------- state */

enum { STATE_MAX = 16 };

/* The highest label seen + 1. */
static UNUSED int labels_of(const sfp_head *h)
{
    int64_t n = 0;
    for (int r = 0; r < h->rows; r++)
        n = h->label[r] >= n ? h->label[r] + 1 : n;
    return (int)n;
}

typedef struct state {
    int count;
    sfp_tensor t[STATE_MAX]; /* names and data are copies */
} state;

static UNUSED sfp_status keep(void *ctx, const sfp_tensor *t, sfp_error *why)
{
    (void)why;
    state *s = ctx;
    assert_true(s->count < STATE_MAX);
    sfp_tensor *to = &s->t[s->count++];
    *to = *t;
    to->name = memcpy(kept_malloc(strlen(t->name) + 1), t->name, strlen(t->name) + 1);
    to->data = kept_malloc(t->bytes ? t->bytes : 1);
    memcpy((void *)(uintptr_t)to->data, t->data ? t->data : "", t->bytes);
    return SFP_OK;
}

static UNUSED const sfp_tensor *find(void *ctx, const char *name)
{
    state *s = ctx;
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->t[i].name, name) == 0)
            return &s->t[i];
    return NULL;
}

static UNUSED sfp_status read_head(sfp_head *h, state *from, const char *file, bool answers, sfp_error *why)
{
    return sfp__head_visit(h, &(sfp_visitor){.prefix = "head.x", .find = find, .ctx = from, .file = file, .answers = answers},
                           why);
}

static UNUSED state save(sfp_head *h)
{
    state s = {0};
    MUST(sfp__head_visit(h, &(sfp_visitor){.prefix = "head.x", .put = keep, .ctx = &s}, &err));
    return s;
}

static UNUSED void check_same_state(const state *a, const state *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_string_equal(a->t[i].name, b->t[i].name);
        assert_int_equal(a->t[i].bytes, b->t[i].bytes);
        check_same(a->t[i].name, a->t[i].data, b->t[i].data, a->t[i].bytes);
    }
}

/* ----------------------------------------------------- checks for every head */

/* Samples one by one, in one batch, in odd pieces, with scores asked for at the same moments: the same bytes. */
static UNUSED void check_cuts(const char *kind, int width, const stream *s, int classes)
{
    state first = {0};
    float *first_scores = NULL;
    const int cuts[] = {1, 7, 64};
    for (size_t k = 0; k < 3; k++) {
        OWNED_PTR(sfp__head_free) sfp_head *h = make_head(kind, s->d, width);
        for (int half = 0; half < 2; half++) {
            int from = half ? s->n / 2 : 0, to = half ? s->n : s->n / 2;
            for (int i = from; i < to; i += cuts[k])
                learn(h, s, i, i + cuts[k] < to ? i + cuts[k] : to);
            MUST(sfp__head_refresh(h, NULL));
        }
        float *scores = score(h, s, 20, classes);
        state now = save(h);
        if (k == 0) {
            first = now;
            first_scores = scores;
        } else {
            check_same_state(&first, &now);
            check_same("scores", scores, first_scores, 20 * (size_t)classes * sizeof *scores);
        }
    }
}

/* A head saved after `at` samples and loaded into a new one goes on to the same bytes. */
static UNUSED void check_resume(const char *kind, int width, const stream *s, int at, int classes)
{
    OWNED_PTR(sfp__head_free) sfp_head *a = make_head(kind, s->d, width), *b = make_head(kind, s->d, width);
    for (int i = 0; i < at; i += 20) { /* scores in between: what they derive must not be needed */
        learn(a, s, i, i + 20 < at ? i + 20 : at);
    }
    learn(b, s, 0, s->n < 5 ? s->n : 5); /* is forgotten by the load */
    state saved = save(a);
    MUST(read_head(b, &saved, "file", false, &err));
    assert_int_equal(labels_of(a), labels_of(b));
    for (int i = at; i <= s->n; i += 20) {
        float *x = score(a, s, 20, classes), *y = score(b, s, 20, classes);
        check_same("scores after loading", y, x, 20 * (size_t)classes * sizeof *x);
        if (i < s->n) {
            learn(a, s, i, i + 20 < s->n ? i + 20 : s->n);
            learn(b, s, i, i + 20 < s->n ? i + 20 : s->n);
        }
    }
    state x = save(a), y = save(b);
    check_same_state(&x, &y);
}

/* Every tensor missing, of another type, of another shape, or not finite: told by name, and the head stays as it was. */
static UNUSED void check_bad_states(const char *kind, int width, const stream *s)
{
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head(kind, s->d, width);
    learn(h, s, 0, s->n);
    state good = save(h);
    for (int i = 0; i < good.count; i++)
        for (int how = 0; how < 4; how++) {
            sfp_tensor *t = &good.t[i], before = *t;
            uint64_t word = 0;
            if (how == 0)
                t->name = "other";
            if (how == 1)
                t->dtype = SFP_DTYPE_U8;
            if (how == 2)
                t->shape[t->ndim++] = 1;
            if (how == 3) { /* NaN, or a number that fits nothing */
                if (t->bytes < 8)
                    continue;
                memcpy(&word, t->data, 8);
                memset((void *)(uintptr_t)t->data, 0xff, 8);
                if (t->dtype == SFP_DTYPE_I64 && strstr(t->name, "setup"))
                    memcpy((void *)(uintptr_t)t->data, &word, 8); /* any seed is a seed */
                if (t->dtype == SFP_DTYPE_I64 && strstr(t->name, "slot"))
                    memset((void *)(uintptr_t)t->data, 0x7f, 8);
            }
            bool harmless = how == 3 && strstr(t->name, "setup");
            sfp_status status = read_head(h, &good, "some.safetensors", false, &err);
            if (how == 3)
                memcpy((void *)(uintptr_t)t->data, &word, 8);
            *t = before;
            if (!harmless && (status == SFP_OK || !strstr(err.message, "some.safetensors") || !strstr(err.message, "head.x")))
                fail_msg("%s, change %d: status %d, '%s'", t->name, how, (int)status, err.message);
            state now = save(h);
            check_same_state(&good, &now);
        }
}

static UNUSED state save_answer(sfp_head *h)
{
    state s = {0};
    MUST(sfp__head_visit(h, &(sfp_visitor){.prefix = "head.x", .put = keep, .ctx = &s, .answers = true}, &err));
    return s;
}

/* Scores of the head itself and of its frozen copy, (20, classes) each. */
static UNUSED void both_scores(sfp_head *h, const stream *s, int classes, float **own, float **frozen)
{
    sfp_head_scorer *scorer = NULL;
    MUST(sfp__head_freeze(h, &scorer, NULL));
    size_t work = sfp__head_scorer_work(scorer);
    double *room = kept_calloc(work ? work : 1, sizeof *room);
    *own = score(h, s, 20, classes);
    *frozen = floats(20 * (size_t)classes);
    sfp__head_scorer_scores(scorer, 20, s->x, classes, room, *frozen);
    sfp__head_scorer_free(scorer);
}

static UNUSED void check_saves_as(sfp_head *h, const state *want)
{
    state now = save(h);
    check_same_state(want, &now);
}

/* What is saved for answers alone answers to the same bytes, whatever the head was before, and learns no more; every tensor that
 * is missing or not finite is told by name, every allocation that fails is told, and the head stays as it was. */
static UNUSED void check_answers(const char *kind, int width, const stream *s, int classes)
{
    for (int learned = 0; learned <= s->n; learned += s->n) {
        OWNED_PTR(sfp__head_free) sfp_head *a = make_head(kind, s->d, width), *b = NULL;
        sfp_head_options opt = sfp__head_options_defaults(s->d, 1);
        opt.ranpac_width = width;
        opt.seed = 999;
        MUST(sfp__head_create(kind, &opt, &b, NULL));
        learn(a, s, 0, learned);
        learn(b, s, 0, 3);
        state saved = save_answer(a), untouched = save(b);
        for (int i = 0; i < saved.count; i++) {
            sfp_tensor *t = &saved.t[i], before = *t;
            t->name = "other";
            assert_int_equal(read_head(b, &saved, "some.file", true, &err), SFP_ENOTFOUND);
            *t = before;
            assert_non_null(strstr(err.message, "some.file: tensor 'head.x."));
            if (t->dtype == SFP_DTYPE_I64 || t->bytes == 0)
                continue;
            uint64_t word;
            memcpy(&word, t->data, 8);
            memset((void *)(uintptr_t)t->data, 0xff, 8);
            assert_int_equal(read_head(b, &saved, "some.file", true, &err), SFP_EFORMAT);
            memcpy((void *)(uintptr_t)t->data, &word, 8);
            assert_non_null(strstr(err.message, "as element 0, expected a finite number"));
        }
        check_saves_as(b, &untouched);
        assert_true(FAIL_EACH_ALLOCATION(read_head(b, &saved, "file", true, told), (check_saves_as(b, &untouched), true)) > 0);
        float *x, *y, *frozen_x, *frozen_y;
        both_scores(a, s, classes, &x, &frozen_x);
        both_scores(b, s, classes, &y, &frozen_y);
        check_same("scores of what was loaded to answer", y, x, 20 * (size_t)classes * sizeof *x);
        check_same("... and of its copy", frozen_y, frozen_x, 20 * (size_t)classes * sizeof *x);
        REFUSED(sfp__head_update(b, 1, s->x, s->label, &err), SFP_EUNSUPPORTED, "loaded to answer");
        state again = save_answer(b); /* it can be saved again */
        check_same_state(&saved, &again);
    }
}

/* Each allocation fails in turn: told, nothing lost, and the same call succeeds afterwards. */
static UNUSED void check_torture(const char *kind, int width, const stream *s, int classes)
{
    sfp_head_options opt = sfp__head_options_defaults(s->d, 1);
    opt.ranpac_width = width;
    OWNED_PTR(sfp__head_free) sfp_head *h = NULL, *reference = NULL;
    float *out = floats((size_t)classes), *expected;
    long failures = 0;
    MUST(sfp__head_create(kind, &opt, &reference, NULL));
    learn(reference, s, 0, s->n);
    expected = score(reference, s, 1, classes);
    state saved = save(reference);
    failures += FAIL_EACH_ALLOCATION(sfp__head_create(kind, &opt, &h, told), !h);
    failures += FAIL_EACH_ALLOCATION(sfp__head_update(h, s->n, s->x, s->label, told), labels_of(h) == 0);
    failures += FAIL_EACH_ALLOCATION(sfp__head_scores(h, 1, s->x, classes, out, told), true);
    failures += FAIL_EACH_ALLOCATION(read_head(h, &saved, "file", false, told), true);
    assert_true(failures > 4);
    check_same("scores", out, expected, (size_t)classes * sizeof *out);
    state now = save(h);
    check_same_state(&saved, &now);
}

/* One sample, one class, constant and zero features, huge and tiny ones, labels that skip numbers, nothing at all. */
static UNUSED void check_degenerate(const char *kind, int width)
{
    enum { D = 6, N = 90, CLASSES = 50 };
    const int32_t skipping[] = {3, 40, 7}, one[] = {5};
    float out[CLASSES], x[D] = {0};

    sfp_head *h = make_head(kind, D, width); /* nothing learned */
    assert_int_equal(labels_of(h), 0);
    MUST(sfp__head_refresh(h, NULL));
    MUST(sfp__head_scores(h, 1, x, CLASSES, out, NULL));
    for (int c = 0; c < CLASSES; c++)
        assert_true(out[c] == -INFINITY);
    state empty = save(h); /* can be saved and loaded too */
    MUST(read_head(h, &empty, "file", false, &err));

    int32_t bad = -1; /* refused, named, nothing changed */
    assert_int_equal(sfp__head_update(h, 1, x, &bad, &err), SFP_EINVAL);
    bad = INT32_MAX;
    assert_int_equal(sfp__head_update(h, 1, x, &bad, &err), SFP_EINVAL);
    x[2] = NAN;
    bad = 0;
    REFUSED(sfp__head_update(h, 1, x, &bad, &err), SFP_EINVAL, "value 2 of query 0");
    assert_int_equal(sfp__head_scores(h, 1, x, CLASSES, out, &err), SFP_EINVAL);
    MUST(sfp__head_update(h, 0, NULL, NULL, &err));
    assert_int_equal(labels_of(h), 0);
    sfp__head_free(h);

    const double scales[] = {0, 1e-20, 1e-3, 1, 1e5, 1e11}; /* of features; 0: all the same */
    for (int many = 0; many < 2; many++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            for (int constant = 0; constant < 2; constant++) {
                stream s = make_stream(k, N, D, many ? 3 : 1, many ? skipping : one, 0.3, 0);
                for (int i = 0; i < N * D; i++)
                    s.x[i] = constant ? (float)scales[k] : s.x[i] * (float)scales[k];
                h = make_head(kind, D, width);
                for (int i = 0; i < N; i++) {
                    learn(h, &s, i, i + 1);
                    if (i > 4 && i % 20 != 0)
                        continue;
                    float *p = score(h, &s, 10, CLASSES);
                    check_distributions(p, 10, CLASSES, s.label, i + 1);
                    if (!many)
                        assert_true(p[5] == 0);
                }
                float *few = score(h, &s, 10, 8); /* asked for fewer classes than there are */
                for (int i = 0; i < 10 * 8; i++)
                    assert_true(!isnan(few[i]));
                assert_int_equal(labels_of(h), many ? 41 : 6);
                sfp__head_free(h);
            }
}

#endif
