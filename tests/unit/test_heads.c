/* The closed-form heads: each against its definition over the whole stream in double, and the properties that every head must
 * have. The file is long because these properties are tested for each head together with the definitions. */
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

/* Creates Gaussian clusters around random means, at `offset` from the origin; label[k] is the label of cluster k. */
static stream make_stream(uint64_t seed, int n, int d, int clusters, const int32_t *label, double spread, double offset)
{
    sfp__rng rng = sfp__rng_init(seed, 7);
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

static sfp__head *make_head(const char *kind, int d, int width)
{
    sfp__head_options opt = sfp__head_options_defaults(d, 2);
    opt.ranpac_width = width;
    opt.seed = 11;
    sfp__head *h = NULL;
    MUST(sfp__head_create(kind, &opt, &h, &err));
    return h;
}

static void learn(sfp__head *h, const stream *s, int from, int to)
{
    if (to > from)
        MUST(sfp__head_update(h, to - from, s->x + from * s->d, s->label + from, NULL, &err));
}

static float *score(sfp__head *h, const stream *s, int n, int classes)
{
    float *out = filled((size_t)n * (size_t)classes, NAN);
    MUST(sfp__head_scores(h, n, s->x, true, classes, out, &err));
    return out;
}

/* Checks that each row is a distribution over the labels of the first n samples of the stream, -INFINITY elsewhere and never
 * NaN. */
static void check_distributions(const float *logp, int rows, int classes, const int32_t *label, int n)
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

enum { STATE_MAX = 24 };

/* Returns the highest label seen + 1. */
static int labels_of(const sfp__head *h)
{
    int64_t n = 0;
    for (int r = 0; r < h->rows; r++)
        n = h->label[r] >= n ? h->label[r] + 1 : n;
    return (int)n;
}

typedef struct state {
    int count;
    sfp__tensor t[STATE_MAX]; /* names and data are copies */
} state;

static sfp_status keep(void *ctx, const sfp__tensor *t, sfp_error *why)
{
    (void)why;
    state *s = ctx;
    assert_true(s->count < STATE_MAX);
    sfp__tensor *to = &s->t[s->count++];
    *to = *t;
    to->name = memcpy(kept_malloc(strlen(t->name) + 1), t->name, strlen(t->name) + 1);
    to->data = kept_malloc(t->bytes ? t->bytes : 1);
    memcpy((void *)(uintptr_t)to->data, t->data ? t->data : "", t->bytes);
    return SFP_OK;
}

static const sfp__tensor *find(void *ctx, const char *name)
{
    state *s = ctx;
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->t[i].name, name) == 0)
            return &s->t[i];
    return NULL;
}

static sfp_status read_head(sfp__head *h, state *from, const char *file, bool answers, sfp_error *why)
{
    return sfp__head_visit(
        h, &(sfp__visitor){.prefix = "head.x", .find = find, .ctx = from, .file = file, .inference_only = answers}, why);
}

static state save_for(sfp__head *h, bool answers)
{
    state s = {0};
    MUST(sfp__head_visit(h, &(sfp__visitor){.prefix = "head.x", .put = keep, .ctx = &s, .inference_only = answers}, &err));
    return s;
}

static state save(sfp__head *h)
{
    return save_for(h, false);
}

static void check_same_state(const state *a, const state *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_string_equal(a->t[i].name, b->t[i].name);
        assert_int_equal(a->t[i].bytes, b->t[i].bytes);
        check_same(a->t[i].name, a->t[i].data, b->t[i].data, a->t[i].bytes);
    }
}

static void check_saves_as(sfp__head *h, const state *want)
{
    state now = save(h);
    check_same_state(want, &now);
}

/* --------------------------------------------------------- every head, by rows */

/* Samples one by one, in one batch and in uneven parts, with scores computed at the same points, give the same bytes. */
static void check_cuts(const char *kind, int width, const stream *s, int classes)
{
    state first = {0};
    float *first_scores = NULL;
    const int cuts[] = {1, 7, 64};
    for (size_t k = 0; k < 3; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make_head(kind, s->d, width);
        for (int half = 0; half < 2; half++) {
            int from = half ? s->n / 2 : 0, to = half ? s->n : s->n / 2;
            for (int i = from; i < to; i += cuts[k])
                learn(h, s, i, i + cuts[k] < to ? i + cuts[k] : to);
            MUST(sfp__head_refresh(h, false, NULL));
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

/* A head saved after `at` samples and loaded into a new one continues with the same bytes. */
static void check_resume(const char *kind, int width, const stream *s, int at, int classes)
{
    OWNED_PTR(sfp__head_free) sfp__head *a = make_head(kind, s->d, width), *b = make_head(kind, s->d, width);
    for (int i = 0; i < at; i += 20) { /* solutions in between: their derived data must not be needed */
        learn(a, s, i, i + 20 < at ? i + 20 : at);
        MUST(sfp__head_refresh(a, i % 40 == 0, NULL));
    }
    learn(b, s, 0, s->n < 5 ? s->n : 5); /* is overwritten by loading */
    state saved = save(a);
    MUST(read_head(b, &saved, "file", false, &err));
    assert_int_equal(labels_of(a), labels_of(b));
    for (int i = at; i <= s->n; i += 20) {
        float *x = score(a, s, 20, classes), *y = score(b, s, 20, classes);
        check_same("scores after loading", y, x, 20 * (size_t)classes * sizeof *x);
        MUST(sfp__head_scores(a, 20, s->x, false, classes, x, &err));
        MUST(sfp__head_scores(b, 20, s->x, false, classes, y, &err));
        check_same("scores of the learner's own solution", y, x, 20 * (size_t)classes * sizeof *x);
        if (i < s->n) {
            learn(a, s, i, i + 20 < s->n ? i + 20 : s->n);
            learn(b, s, i, i + 20 < s->n ? i + 20 : s->n);
        }
    }
    state same = save(a);
    check_saves_as(b, &same);
}

/* Each tensor missing, of another type or shape, or not finite is reported by name, and the head is unchanged. */
static void check_bad_states(const char *kind, int width, const stream *s)
{
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head(kind, s->d, width);
    learn(h, s, 0, s->n);
    state good = save(h);
    for (int i = 0; i < good.count; i++)
        for (int how = 0; how < 4; how++) {
            sfp__tensor *t = &good.t[i], before = *t;
            uint64_t word = 0;
            if (how == 0)
                t->name = "other";
            if (how == 1)
                t->dtype = SFP__DTYPE_U8;
            if (how == 2)
                t->shape[t->ndim++] = 1;
            if (how == 3) { /* NaN, or an invalid number */
                if (t->bytes < 8)
                    continue;
                memcpy(&word, t->data, 8);
                memset((void *)(uintptr_t)t->data, 0xff, 8);
                if (t->dtype == SFP__DTYPE_I64 && strstr(t->name, "setup"))
                    memcpy((void *)(uintptr_t)t->data, &word, 8); /* any seed is valid */
                if (t->dtype == SFP__DTYPE_I64 && strstr(t->name, "slot"))
                    memset((void *)(uintptr_t)t->data, 0x7f, 8);
            }
            bool harmless = how == 3 && strstr(t->name, "setup");
            sfp_status status = read_head(h, &good, "some.safetensors", false, &err);
            if (how == 3)
                memcpy((void *)(uintptr_t)t->data, &word, 8);
            *t = before;
            if (!harmless && (status == SFP_OK || !strstr(err.message, "some.safetensors") || !strstr(err.message, "head.x")))
                fail_msg("%s, change %d: status %d, '%s'", t->name, how, (int)status, err.message);
            check_saves_as(h, &good);
        }
}

/* A head saved only for inference gives the same bytes, regardless of its earlier contents, and cannot learn. Each tensor that is
 * missing or not finite is reported by name, each failed allocation is reported, and the head is unchanged. */
static void check_answers(const char *kind, int width, const stream *s, int classes)
{
    for (int learned = 0; learned <= s->n; learned += s->n) {
        OWNED_PTR(sfp__head_free) sfp__head *a = make_head(kind, s->d, width), *b = NULL;
        sfp__head_options opt = sfp__head_options_defaults(s->d, 1);
        opt.ranpac_width = width;
        opt.seed = 999;
        MUST(sfp__head_create(kind, &opt, &b, NULL));
        learn(a, s, 0, learned);
        learn(b, s, 0, 3);
        state saved = save_for(a, true), untouched = save(b);
        for (int i = 0; i < saved.count; i++) {
            sfp__tensor *t = &saved.t[i], before = *t;
            t->name = "other";
            if (!strstr(before.name, "unknown.mean")) /* states of earlier versions have no score for unknown classes */
                REFUSED(read_head(b, &saved, "some.file", true, &err), SFP_ENOTFOUND, "some.file: tensor 'head.x.");
            *t = before;
            if (t->dtype == SFP__DTYPE_I64 || t->bytes == 0)
                continue;
            uint64_t word;
            memcpy(&word, t->data, 8);
            memset((void *)(uintptr_t)t->data, 0xff, 8);
            REFUSED(read_head(b, &saved, "some.file", true, &err), SFP_EFORMAT, "as element 0, expected a finite number");
            memcpy((void *)(uintptr_t)t->data, &word, 8);
        }
        check_saves_as(b, &untouched);
        assert_true(FAIL_EACH_ALLOCATION(read_head(b, &saved, "file", true, alloc_err), (check_saves_as(b, &untouched), true)) >
                    0);
        const float *x = score(a, s, 20, classes), *y = score(b, s, 20, classes);
        check_same("scores of a head loaded for inference", y, x, 20 * (size_t)classes * sizeof *x);
        REFUSED(sfp__head_update(b, 1, s->x, s->label, NULL, &err), SFP_EUNSUPPORTED, "loaded only for prediction");
        state again = save_for(b, true); /* it can be saved again for inference */
        check_same_state(&saved, &again);
    }
}

/* Each allocation fails in turn: it is reported, nothing is lost, and the same call then succeeds. */
static void check_torture(const char *kind, int width, const stream *s, int classes)
{
    sfp__head_options opt = sfp__head_options_defaults(s->d, 1);
    opt.ranpac_width = width;
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL, *reference = NULL;
    float *out = floats((size_t)classes), *expected;
    long failures = 0;
    MUST(sfp__head_create(kind, &opt, &reference, NULL));
    learn(reference, s, 0, s->n);
    expected = score(reference, s, 1, classes);
    state saved = save(reference);
    failures += FAIL_EACH_ALLOCATION(sfp__head_create(kind, &opt, &h, alloc_err), !h);
    failures += FAIL_EACH_ALLOCATION(sfp__head_update(h, s->n, s->x, s->label, NULL, alloc_err), labels_of(h) == 0);
    failures += FAIL_EACH_ALLOCATION(sfp__head_scores(h, 1, s->x, true, classes, out, alloc_err), true);
    failures += FAIL_EACH_ALLOCATION(read_head(h, &saved, "file", false, alloc_err), true);
    assert_true(failures > 4);
    check_same("scores", out, expected, (size_t)classes * sizeof *out);
    check_saves_as(h, &saved);
}

/* One sample, one class, constant and zero features, huge and tiny ones, labels with gaps, no samples. */
static void check_degenerate(const char *kind, int width)
{
    print_message("%s of width %d\n", kind, width);
    enum { D = 6, N = 90, CLASSES = 50 };
    const int32_t skipping[] = {3, 40, 7}, one[] = {5};
    float out[CLASSES], x[D] = {0};

    OWNED_PTR(sfp__head_free) sfp__head *nothing = make_head(kind, D, width);
    assert_int_equal(labels_of(nothing), 0);
    MUST(sfp__head_refresh(nothing, true, NULL));
    MUST(sfp__head_scores(nothing, 1, x, true, CLASSES, out, NULL));
    for (int c = 0; c < CLASSES; c++)
        assert_true(out[c] == -INFINITY);
    state empty = save(nothing); /* it can also be saved and loaded */
    MUST(read_head(nothing, &empty, "file", false, &err));

    int32_t bad = -1; /* refused with its name; nothing changes */
    assert_int_equal(sfp__head_update(nothing, 1, x, &bad, NULL, &err), SFP_EINVAL);
    bad = INT32_MAX;
    assert_int_equal(sfp__head_update(nothing, 1, x, &bad, NULL, &err), SFP_EINVAL);
    x[2] = NAN;
    bad = 0;
    REFUSED(sfp__head_update(nothing, 1, x, &bad, NULL, &err), SFP_EINVAL, "value 2 of query 0");
    assert_int_equal(sfp__head_scores(nothing, 1, x, true, CLASSES, out, &err), SFP_EINVAL);
    MUST(sfp__head_update(nothing, 0, NULL, NULL, NULL, &err));
    assert_int_equal(labels_of(nothing), 0);

    const double scales[] = {0, 1e-20, 1e-3, 1, 1e5, 1e11}; /* scales of features; 0: all are equal */
    for (int many = 0; many < 2; many++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            for (int constant = 0; constant < 2; constant++) {
                stream s = make_stream(k, N, D, many ? 3 : 1, many ? skipping : one, 0.3, 0);
                for (int i = 0; i < N * D; i++)
                    s.x[i] = constant ? (float)scales[k] : s.x[i] * (float)scales[k];
                OWNED_PTR(sfp__head_free) sfp__head *h = make_head(kind, D, width);
                for (int i = 0; i < N; i++) {
                    learn(h, &s, i, i + 1);
                    if (i > 4 && i % 20 != 0)
                        continue;
                    float *p = score(h, &s, 10, CLASSES);
                    check_distributions(p, 10, CLASSES, s.label, i + 1);
                    if (!many)
                        assert_true(p[5] == 0);
                }
                float *few = score(h, &s, 10, 8); /* fewer classes are requested than seen */
                for (int i = 0; i < 10 * 8; i++)
                    assert_true(!isnan(few[i]));
                assert_int_equal(labels_of(h), many ? 41 : 6);
            }
}

/* A head and the stream that it is tested on. */
typedef struct trial {
    const char *kind;
    int width, n, d, clusters; /* width is that of ranpac */
    double spread, offset;
    int at[8]; /* numbers of samples at which it is saved; ends with 0 */
    int few;   /* a number of samples at which nothing is folded yet */
} trial;

static stream stream_of(const trial *t, uint64_t seed, const int32_t *label)
{
    print_message("%s of width %d\n", t->kind, t->width);
    return make_stream(seed, t->n, t->d, t->clusters, label, t->spread, t->offset);
}

TEST(division_into_batches_changes_nothing)
{
    static const trial list[] = {{"ncm", 8, 200, 9, 4, 1.5, 3, {0}, 0},
                                 {"slda", 8, 250, 10, 5, 1.5, 3, {0}, 0},
                                 {"ridge", 8, 250, 10, 5, 1.5, 3, {0}, 0},
                                 {"ranpac", 24, 600, 7, 4, 1.5, 0.5, {0}, 0},
                                 {"ranpac", 150, 600, 7, 4, 1.5, 0.5, {0}, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        stream s = stream_of(&list[i], 2, NULL);
        check_cuts(list[i].kind, list[i].width, &s, list[i].clusters);
    }
}

TEST(a_loaded_head_continues_with_the_same_bytes)
{
    static const int32_t label[] = {0, 12, 5, 33, 1, 2, 3, 4, 6, 7, 8, 9};
    static const trial list[] = {{"ncm", 8, 200, 9, 12, 1.5, 3, {20, 113}, 200},
                                 {"slda", 8, 250, 10, 12, 1.5, 3, {20, 113}, 250},
                                 {"ridge", 8, 250, 10, 12, 1.5, 3, {20, 113, 240}, 250},
                                 {"ranpac", 24, 500, 7, 12, 1.5, 0.5, {1, 20, 57, 64, 113, 230, 401}, 50}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const trial *t = &list[i];
        stream s = stream_of(t, 3, label);
        for (int k = 0; t->at[k]; k++)
            check_resume(t->kind, t->width, &s, t->at[k], 34);
        check_bad_states(t->kind, t->width, &s);
        s.n = t->few;
        check_answers(t->kind, t->width, &s, 34);
        if (t->few < t->n)
            check_bad_states(t->kind, t->width, &s);
    }
}

/* A fold keeps held-out samples, so two of them in the same place would fill the memory of a learner that goes on. */
TEST(a_reservoir_of_ranpac_that_no_stream_fills_is_refused)
{
    const trial t = {"ranpac", 24, 500, 7, 4, 1.5, 0.5, {0}, 0};
    stream s = stream_of(&t, 3, NULL);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head(t.kind, t.d, t.width);
    learn(h, &s, 0, s.n);
    state good = save(h);
    for (int i = 0; i < good.count; i++) {
        if (!strstr(good.t[i].name, "slot"))
            continue;
        int64_t *slot = (int64_t *)(uintptr_t)good.t[i].data;
        assert_true(good.t[i].count > 1 && slot[0] >= 0 && slot[1] >= 0 && slot[0] != slot[1]);
        slot[1] = slot[0];
    }
    REFUSED(read_head(h, &good, "some.safetensors", false, &err), SFP_EFORMAT, "inconsistent");
}

TEST(degenerate_streams_give_finite_scores)
{
    check_degenerate("ncm", 8);
    check_degenerate("slda", 8);
    check_degenerate("ridge", 8);
    check_degenerate("ranpac", 8);
    check_degenerate("ranpac", 200); /* never folds */
}

TEST(each_failed_allocation_is_reported)
{
    static const trial list[] = {{"ncm", 8, 60, 9, 20, 1, 0, {0}, 0},
                                 {"slda", 8, 60, 10, 20, 1, 0, {0}, 0},
                                 {"ridge", 8, 60, 10, 20, 1, 0, {0}, 0},
                                 {"ranpac", 16, 90, 7, 20, 1, 0, {0}, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        stream s = stream_of(&list[i], 4, NULL);
        check_torture(list[i].kind, list[i].width, &s, 20);
    }
}

TEST(unknown_kinds_and_invalid_options_are_refused)
{
    sfp__head *h = NULL;
    sfp__head_options opt = sfp__head_options_defaults(4, 2);
    REFUSED(sfp__head_create("knn", &opt, &h, &err), SFP_EINVAL, "unknown head 'knn'");
    opt.dim = 0;
    assert_int_equal(sfp__head_create("ncm", &opt, &h, &err), SFP_EINVAL);
    opt = sfp__head_options_defaults(4, 2);
    opt.slda_shrink = NAN;
    assert_int_equal(sfp__head_create("slda", &opt, &h, &err), SFP_EINVAL);
    assert_null(h);
    sfp__head_free(NULL);
}

/* --------------------------------------------------------------- nearest class mean */

/* Returns the squared distance of sample i to the mean of class c, in double. */
static double distance(const stream *s, int i, int c)
{
    double sum = 0;
    for (int j = 0; j < s->d; j++) {
        double mean = 0;
        int count = 0;
        for (int k = 0; k < s->n; k++)
            if (s->label[k] == c) {
                mean += (double)s->x[k * s->d + j];
                count++;
            }
        double e = (double)s->x[i * s->d + j] - mean / count;
        sum += e * e;
    }
    return sum;
}

TEST(ncm_scores_equal_those_of_the_class_means)
{
    enum { N = 200, D = 9, K = 4 };
    stream s = make_stream(1, N, D, K, NULL, 1.5, 3);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ncm", D, 8);
    assert_string_equal(sfp__head_kind_name(h), "ncm");
    learn(h, &s, 0, N);
    float *got = score(h, &s, N, K), *want = floats(N * K);
    double within = 0;
    for (int i = 0; i < N; i++)
        within += distance(&s, i, s.label[i]);
    double tau = within / ((N - K) * D);
    for (int i = 0; i < N; i++) {
        double z[K], sum = 0;
        int nearest = 0;
        for (int c = 0; c < K; c++) {
            double d = distance(&s, i, c);
            z[c] = -d / (2 * tau);
            sum += exp(z[c]);
            nearest = z[c] > z[nearest] ? c : nearest;
        }
        for (int c = 0; c < K; c++)
            want[i * K + c] = (float)(z[c] - log(sum));
        assert_int_equal(best_of(got + i * K, K), nearest);
    }
    check_near("log-probabilities", got, want, N * K, 1e-6);
    check_distributions(got, N, K, s.label, N);
}

TEST(a_singular_covariance_without_shrinkage_gives_finite_scores)
{
    enum { LD = 10 };
    stream s = make_stream(6, 8, LD, 2, NULL, 1, 0);
    sfp__head_options opt = sfp__head_options_defaults(LD, 2);
    opt.slda_shrink = 0;
    opt.shrinkage_oas = false;
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
    MUST(sfp__head_create("slda", &opt, &h, NULL));
    learn(h, &s, 0, s.n);
    check_distributions(score(h, &s, s.n, 2), s.n, 2, s.label, s.n);
}

/* ------------------------------------------- RanPAC: the normal equations of its ridge */

enum { RD = 7, RK = 4, SEED = 11 };

/* Computes phi (n, width) in double; the projection is the first stream of the seed, row by row. */
static double *projections(const stream *s, int n, int width)
{
    sfp__rng rng = sfp__rng_init(SEED, 1);
    float *r = normals(&rng, (size_t)(RD * width), 1);
    double *phi = kept_malloc((size_t)(n * width) * sizeof *phi);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) {
            double sum = 0;
            for (int j = 0; j < RD; j++)
                sum += (double)s->x[i * RD + j] * (double)r[j * width + k];
            phi[i * width + k] = fmax(sum, 0);
        }
    return phi;
}

/* Computes W (width, RK) = (Phi^T Phi + lambda I)^-1 Phi^T Y over the samples with use[i], by elimination. */
static double *ridge(const stream *s, const double *phi, const bool *use, int n, int width, double lambda)
{
    double *a = kept_calloc((size_t)(width * width), sizeof *a), *x = kept_calloc((size_t)(width * RK), sizeof *x);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < width && use[i]; j++) {
            for (int k = 0; k < width; k++)
                a[j * width + k] += phi[i * width + j] * phi[i * width + k];
            x[j * RK + s->label[i]] += phi[i * width + j];
        }
    for (int j = 0; j < width; j++)
        a[j * width + j] += lambda;
    solve_dense(width, a, RK, x, RK, 1);
    return x;
}

static double predict(const double *phi, const double *w, int width, int i, int c)
{
    double sum = 0;
    for (int k = 0; k < width; k++)
        sum += phi[i * width + k] * w[k * RK + c];
    return sum;
}

static const void *tensor(state *s, const char *name)
{
    char full[64];
    (void)snprintf(full, sizeof full, "head.x.%s", name);
    return find(s, full)->data;
}

/* Width 24 folds after 64 samples, then whenever 160 are not folded; the numbers of samples below are around these limits. */
TEST(ranpac_scores_equal_those_of_a_direct_ridge_solution)
{
    const int counts[] = {1, 5, 31, 39, 40, 63, 64, 65, 100, 230, 400, 777};
    bool use[777];
    memset(use, 1, sizeof use);
    stream s = make_stream(1, 777, RD, RK, NULL, 0.9, 0.3);
    for (int c = 0; c < RK; c++)
        s.label[c] = c;
    double *phi = projections(&s, s.n, 24);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ranpac", RD, 24);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int n = counts[k];
        learn(h, &s, k ? counts[k - 1] : 0, n);
        float *got = score(h, &s, 50, RK), *want = filled(50 * RK, -INFINITY);
        state now = save(h);
        const double *strength = tensor(&now, "strength");
        double *w = ridge(&s, phi, use, n, 24, strength[0]);
        int seen = n < RK ? n : RK;
        for (int i = 0; i < 50; i++) {
            double sum = 0;
            for (int c = 0; c < seen; c++)
                sum += exp(strength[1] * predict(phi, w, 24, i, c));
            for (int c = 0; c < seen; c++)
                want[i * RK + c] = (float)(strength[1] * predict(phi, w, 24, i, c) - log(sum));
            check_near("log-probabilities", got + i * RK, want + i * RK, (size_t)seen, 2e-3);
        }
        check_distributions(got, 50, RK, s.label, n);
    }
}

/* lambda has the smallest squared error on the held-out samples of a ridge fitted to all others, with an empty base and with a
 * base. `neighbours`: only smaller than at a tenth and at ten times of it (with many unknowns the search goes downhill). */
static void check_choice(int width, int n, double spread, bool neighbours)
{
    stream s = make_stream((uint64_t)n, n, RD, RK, NULL, spread, 0.3);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ranpac", RD, width);
    learn(h, &s, 0, n);
    MUST(sfp__head_refresh(h, false, NULL));
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
            if (slot[k] >= 0 && memcmp(query + k * RD, s.x + i * RD, RD * sizeof *query) == 0)
                use[i] = false;
        held += !use[i];
        assert_true(use[i] || i % 10 == 9); /* every tenth */
    }
    assert_int_equal(held, n / 10 < 128 ? n / 10 : 128);
    double *phi = projections(&s, n, width), chosen = INFINITY, min_error = INFINITY;
    for (int e = neighbours ? -1 : -5; e <= (neighbours ? 1 : 5); e++) {
        double *w = ridge(&s, phi, use, n, width, strength[0] * pow(10, e)), error = 0;
        for (int i = 0; i < n; i++)
            for (int c = 0; c < RK && !use[i]; c++)
                error += pow(predict(phi, w, width, i, c) - (s.label[i] == c), 2);
        if (e == 0)
            chosen = error;
        min_error = fmin(min_error, error);
    }
    if (!(chosen <= min_error * 1.002))
        fail_msg("width %d, n %d: lambda %g has held-out error %g, another has %g", width, n, strength[0], chosen, min_error);
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
    stream s = make_stream(1, 200, RD, RK, NULL, 2, 0);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ranpac", RD, 24);
    const int at[] = {30, 39, 40, 79, 80, 150, 170}, next[] = {40, 40, 80, 80, 160, 160, 340};
    for (int k = 0; k < 7; k++) {
        learn(h, &s, k ? at[k - 1] : 0, at[k]);
        MUST(sfp__head_refresh(h, false, NULL));
        state now = save(h);
        assert_int_equal(((const int64_t *)tensor(&now, "counter"))[1], next[k]);
        assert_true(((const double *)tensor(&now, "strength"))[0] > 0);
    }
}

TEST(the_reservoir_is_uniform_over_the_stream)
{
    int n = 12000, late = 0; /* 1200 candidates, 128 kept: half of them from the second half, +- 4 standard deviations */
    stream s = make_stream(1, n, RD, RK, NULL, 2, 0);
    for (int i = 0; i < n; i++)
        s.x[i * RD] = (float)i; /* encodes its position in the stream */
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ranpac", RD, 4);
    learn(h, &s, 0, n);
    state now = save(h);
    const int64_t *slot = tensor(&now, "slot");
    const float *query = tensor(&now, "query");
    bool taken[128] = {false};
    for (size_t k = 0; k < find(&now, "head.x.slot")->count; k++)
        if (slot[k] >= 0) {
            assert_false(taken[slot[k]]);
            taken[slot[k]] = true;
            late += query[k * RD] >= (float)n / 2;
        }
    for (int k = 0; k < 128; k++)
        assert_true(taken[k]);
    assert_in_range(late, 64 - 23, 64 + 23);
}

TEST(another_seed_gives_another_projection)
{
    stream s = make_stream(1, 50, RD, RK, NULL, 2, 0);
    OWNED_PTR(sfp__head_free) sfp__head *a = make_head("ranpac", RD, 24), *b = NULL, *wider = NULL;
    sfp__head_options opt = sfp__head_options_defaults(RD, 2);
    opt.ranpac_width = 24;
    opt.seed = 12;
    MUST(sfp__head_create("ranpac", &opt, &b, NULL));
    learn(a, &s, 0, 50);
    learn(b, &s, 0, 50);
    float *x = score(a, &s, 20, RK), *y = score(b, &s, 20, RK);
    assert_memory_not_equal(x, y, 20 * RK * sizeof *x);
    state saved = save(a); /* the seed is part of the state */
    MUST(read_head(b, &saved, "file", false, NULL));
    y = score(b, &s, 20, RK);
    check_same("scores", x, y, 20 * RK * sizeof *x);
    opt.ranpac_width = 25;
    MUST(sfp__head_create("ranpac", &opt, &wider, NULL));
    REFUSED(read_head(wider, &saved, "file", false, &err), SFP_ESHAPE, "width of the projection is 24, expected 25");
}

TEST(a_step_allocates_nothing)
{
    stream s = make_stream(1, 900, RD, RK, NULL, 2, 0);
    OWNED_PTR(sfp__head_free) sfp__head *h = make_head("ranpac", RD, 24);
    float out[20 * RK];
    learn(h, &s, 0, 20);
    unsigned long before = sfp__mem_count();
    for (int i = 20; i < s.n; i += 20) {
        learn(h, &s, i, i + 20);
        MUST(sfp__head_scores(h, 20, s.x, false, RK, out, NULL));
    }
    assert_true(sfp__mem_count() == before);
}
