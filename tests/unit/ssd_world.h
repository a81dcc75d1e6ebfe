/* The buffer ssd with model callbacks that are formulas, and a stream of small images. Include after <cmocka.h>. */
#ifndef SFP_TESTS_SSD_WORLD_H
#define SFP_TESTS_SSD_WORLD_H

#include "buffer/buffer.h"
#include "compute/pixels.h"

#include "numeric.h"
#include "test.h"

enum { WINDOW = 16, EVERY = 6 }; /* less than published, so that fewer batches are needed */
enum { S = 2, N = 3 * S * S, D = 3, P = 5, MAX_SLOTS = 40, MAX_B = 6, MAX_T = 80 };

static const float mean[3] = {0.4f, 0.5f, 0.6f}, std_[3] = {0.2f, 0.25f, 0.3f};

/* ------------------------------------------------------------------ the model */

/* L(theta, x, y) = (1 + y/10) sum_a sin(theta_a z_a), z = W x / 3; feature_d = sin((Q x)_d / 3) + (d + 1) / 5; embedding Q x;
 * query 1 + cos((Q x)_d / 3). Nothing else depends on queries; those that are flagged as known are checked. */
typedef struct model {
    double theta[P], w[P][N], q[D][N];
    sfp__buffer *b;
    const sfp__buffer_batch *batch;
    int calls, fail_at;          /* index of the call that fails; negative: none */
    bool poison;                 /* the first image of each call has a gradient of NaN */
    bool any_query;              /* wrong queries are not reported */
    int queries, moves, embeds;  /* number of computed queries of images, of parameter moves, of embedded images */
    int has_features[MAX_SLOTS]; /* number of times the features of each slot were computed */
} model;

static double inner(const double *a, const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += a[i] * x[i] / 3;
    return sum;
}

static double of_label(int32_t y)
{
    return 1 + y / 10.0;
}

static void add_gradient(const model *m, const double *x, int32_t y, double share, double *g)
{
    for (int a = 0; a < P; a++) {
        double z = inner(m->w[a], x);
        g[a] += share * of_label(y) * cos(m->theta[a] * z) * z;
    }
}

static void feature_of(const model *m, const double *x, double *f)
{
    for (int d = 0; d < D; d++)
        f[d] = sin(inner(m->q[d], x)) + (d + 1) / 5.0;
}

static sfp_status called(void *ctx, int n, sfp_error *why)
{
    model *m = ctx;
    assert_true(n >= 1);
    return m->calls++ == m->fail_at ? sfp__fail(why, SFP_EIO, "call %d", m->fail_at) : SFP_OK;
}

static void widen(const float *x, double *out)
{
    for (int i = 0; i < N; i++)
        out[i] = (double)x[i];
}

static void one_feature(const model *m, const float *x, float *out)
{
    double f[D], wide[N];
    widen(x, wide);
    feature_of(m, wide, f);
    for (int d = 0; d < D; d++)
        out[d] = (float)f[d];
}

static void query_of(const model *m, const float *x, float *out)
{
    double wide[N];
    widen(x, wide);
    for (int d = 0; d < D; d++)
        out[d] = (float)(1 + cos(inner(m->q[d], wide)));
}

static void check_queries(const model *m, const sfp__image_list *p)
{
    for (int i = 0; i < p->n && !m->any_query; i++) {
        float query[D];
        query_of(m, p->x[i], query);
        if (p->known[i])
            assert_memory_equal(p->query[i], query, sizeof query);
    }
}

static sfp_status gradient_at(void *ctx, const sfp__image_list *p, float *out, float *feature, sfp_error *why)
{
    model *m = ctx;
    double g[P] = {0}, wide[N];
    check_queries(m, p);
    for (int i = 0; i < p->n; i++) {
        widen(p->x[i], wide);
        add_gradient(ctx, wide, p->label[i], 1.0 / p->n, g);
        one_feature(ctx, p->x[i], feature + i * D);
        m->queries += !p->known[i];
        query_of(m, p->x[i], p->query[i]);
        p->known[i] = true;
    }
    for (int a = 0; a < P; a++)
        out[a] = (float)g[a];
    return called(ctx, p->n, why);
}

static sfp_status features(void *ctx, int n, const int *sample, float *out, sfp_error *why)
{
    model *m = ctx;
    for (int i = 0; i < n; i++) {
        float x[N];
        int at = sample[i] - m->batch->b;
        assert_in_range(at, 0, m->b->filled - 1);
        assert_int_equal(m->has_features[at]++, 0);
        sfp__pixels_normalise(m->b->slot[at].image, S, mean, std_, x);
        one_feature(m, x, out + i * D);
        query_of(m, x, m->b->slot[at].query);
        m->b->slot[at].has_query = true;
    }
    return called(ctx, n, why);
}

/* Checks that all queries passed to the pixel callbacks are known. */
static void check_all_known(const model *m, const sfp__image_list *p)
{
    for (int i = 0; i < p->n; i++)
        assert_true(p->known[i]);
    check_queries(m, p);
}

static sfp_status pixels(void *ctx, const sfp__image_list *p, const float *v, float h, float scale, float *const *dx,
                         sfp_error *why)
{
    model *m = ctx;
    m->moves++;
    check_all_known(m, p);
    for (int i = 0; i < p->n; i++) {
        double wide[N], d[N] = {0};
        widen(p->x[i], wide);
        for (int a = 0; a < P; a++) {
            double theta = m->theta[a] + (double)h * (double)v[a], slope = cos(theta * inner(m->w[a], wide)) * theta;
            for (int k = 0; k < N; k++)
                d[k] += slope * m->w[a][k] / 3 * of_label(p->label[i]) / p->n;
        }
        for (int k = 0; k < N; k++)
            dx[i][k] += m->poison && i == 0 && k == 5 ? NAN : scale * (float)d[k];
    }
    return called(ctx, p->n, why);
}

static sfp_status feature_pixels(void *ctx, const sfp__image_list *p, const float *dfeature, float *const *dx, sfp_error *why)
{
    const model *m = ctx;
    check_all_known(m, p);
    for (int i = 0; i < p->n; i++) {
        double wide[N];
        widen(p->x[i], wide);
        for (int k = 0; k < N; k++) {
            double sum = 0;
            for (int d = 0; d < D; d++)
                sum += (double)dfeature[i * D + d] * cos(inner(m->q[d], wide)) * m->q[d][k] / 3;
            dx[i][k] += (float)sum;
        }
    }
    return called(ctx, p->n, why);
}

static sfp_status embed_at(void *ctx, int n, const float *const *x, float *out, sfp_error *why)
{
    model *m = ctx;
    m->embeds += n;
    for (int i = 0; i < n; i++) {
        double wide[N];
        widen(x[i], wide);
        for (int d = 0; d < D; d++)
            out[i * D + d] = (float)inner(m->q[d], wide);
    }
    return called(ctx, n, why);
}

/* ------------------------------------------------------------------ the world */

typedef struct world {
    model m;
    sfp__model_ops model;
    sfp__buffer *b;
    sfp__rng rng;
    int slots, t;
    uint8_t image[MAX_T][MAX_B][N]; /* images of all batches so far */
    int32_t label[MAX_T][MAX_B];
    int size[MAX_T];
} world;

static sfp__buffer_options options(int slots)
{
    sfp__buffer_options o = sfp__buffer_options_defaults();
    o.method = "ssd";
    o.ssd = (sfp__ssd_timing){EVERY, WINDOW};
    o.slots = slots;
    o.dim = D;
    o.image_bytes = N;
    memcpy(o.mean, mean, sizeof mean);
    memcpy(o.std, std_, sizeof std_);
    return o;
}

static world *make_world_with(int slots, int classes, uint64_t seed, sfp__ssd_timing timing)
{
    world *w = kept_calloc(1, sizeof *w);
    sfp__rng rng = sfp__rng_init(seed, 9);
    w->slots = slots;
    w->rng = sfp__rng_init(seed, 1);
    w->m.fail_at = -1;
    for (int a = 0; a < P; a++) {
        w->m.theta[a] = sfp__rng_normal(&rng);
        for (int k = 0; k < N; k++)
            w->m.w[a][k] = sfp__rng_normal(&rng);
    }
    for (int d = 0; d < D; d++)
        for (int k = 0; k < N; k++)
            w->m.q[d][k] = sfp__rng_normal(&rng);
    w->model = (sfp__model_ops){.ctx = &w->m,
                                .dim = D,
                                .classes = classes,
                                .side = S,
                                .params = P,
                                .features = features,
                                .gradient_at = gradient_at,
                                .pixels = pixels,
                                .feature_pixels = feature_pixels,
                                .embed_at = embed_at};
    sfp__buffer_options o = options(slots);
    o.ssd = timing;
    MUST(sfp__buffer_create(&o, MAX_B, &w->b, &err));
    w->m.b = w->b;
    return w;
}

static world *make_world(int slots, int classes, uint64_t seed)
{
    return make_world_with(slots, classes, seed, (sfp__ssd_timing){EVERY, WINDOW});
}

static void free_world(world *w)
{
    sfp__buffer_free(w->b);
}
DEFINE_OWNED_PTR(world, free_world)

/* Draws the next batch of b samples with labels in [lo, hi); it is in the world, not yet in the buffer. */
static void draw_batch(world *w, int b, int lo, int hi)
{
    sfp__rng rng = sfp__rng_init(300, (uint64_t)w->t);
    w->size[w->t] = b;
    for (int i = 0; i < b; i++) {
        w->label[w->t][i] = lo + (int32_t)sfp__rng_below(&rng, (uint32_t)(hi - lo));
        for (int k = 0; k < N; k++)
            w->image[w->t][i][k] = (uint8_t)(60 + sfp__rng_below(&rng, 130));
    }
}

/* The queries of every other sample are known when the batch arrives. */
static bool query_is_known(int i)
{
    return i % 2 == 0;
}

static sfp_status try_batch(world *w, sfp__buffer_change *change, sfp_error *why)
{
    static const float embed[MAX_B * D];
    const uint8_t *image[MAX_B];
    uint64_t id[MAX_B];
    float query[MAX_B * D];
    bool has_query[MAX_B];
    for (int i = 0; i < MAX_B; i++) {
        float x[N];
        has_query[i] = query_is_known(i);
        sfp__pixels_normalise(w->image[w->t][i], S, mean, std_, x);
        query_of(&w->m, x, query + i * D);
        image[i] = w->image[w->t][i];
        id[i] = (uint64_t)(w->t * MAX_B + i);
    }
    const sfp__buffer_batch batch = {.b = w->size[w->t],
                                     .now = (uint64_t)w->t,
                                     .label = w->label[w->t],
                                     .id = id,
                                     .image = image,
                                     .mean_embed = embed,
                                     .query = query,
                                     .has_query = has_query,
                                     .model = &w->model};
    w->m.batch = &batch;
    w->m.calls = w->m.queries = w->m.moves = w->m.embeds = 0;
    memset(w->m.has_features, 0, sizeof w->m.has_features);
    return sfp__buffer_update(w->b, &batch, &w->rng, change, why);
}

static sfp__buffer_change offer(world *w, int b, int lo, int hi)
{
    sfp__buffer_change change = {0};
    draw_batch(w, b, lo, hi);
    if (try_batch(w, &change, &err) != SFP_OK)
        fail_msg("batch %d: %s", w->t, err.message);
    w->t++;
    return change;
}

/* Updates the buffer with full batches of these classes until there were t. */
static void offer_until(world *w, int t, int lo, int hi)
{
    while (w->t < t)
        (void)offer(w, MAX_B, lo, hi);
}

static void *part_of(const world *w, const char *name, size_t *bytes)
{
    static const size_t size[] = {
        [SFP__STATE_F32] = 4, [SFP__STATE_F64] = 8, [SFP__STATE_I32] = 4, [SFP__STATE_I64] = 8, [SFP__STATE_U8] = 1};
    sfp__state_tensors_fn parts = w->b->method->state_tensors;
    void *state = w->b->state;
    sfp__state_tensor p = {0};
    for (int i = 0; i < parts(state, i, &p); i++) {
        size_t n = size[p.type];
        for (int k = 0; k < p.ndim; k++)
            n *= (size_t)p.shape[k];
        if (bytes)
            *bytes = n;
        if (strcmp(p.name, name) == 0)
            return p.data;
    }
    fail_msg("no part '%s'", name);
    return NULL;
}

#endif
