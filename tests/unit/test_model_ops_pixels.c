/* Compares pixel gradients, and the mixed derivative that the buffer ssd computes with them, with an oracle in double
 * (test_trainer_oracle.h).
 *
 * Queries are constants (docs/method.md, section 2), also those of the image that is differentiated: the oracle keeps them
 * constant while pixels change. */
#include "learner/learner.h"

#include "buffer/ssd.h"
#include "model/vit.h"

#include "test.h"
#include "test_learner_fixture.h"
#include "test_trainer_oracle.h"

enum { IMAGES = 3, CLASSES = 6 };

/* ------------------------------------------------------------------ fixture */

typedef struct kind {
    const char *name;
    bool attune, residual;
    int topk, tasks, boundaries;
    sfp__prefix_kind prefix;
    sfp__fp_kind pool;
} kind;

static const kind kinds[] = {
    {"attuned", true, false, 3, 0, 0, SFP__PREFIX_PROJECTED, SFP__FP_CODA},
    {"plain", false, false, 3, 0, 0, SFP__PREFIX_PROJECTED, SFP__FP_CODA},
    {"residual, second task", true, true, 3, 2, 1, SFP__PREFIX_PROJECTED, SFP__FP_CODA},
    {"raw prefix, topk 2", true, false, 2, 0, 0, SFP__PREFIX_RAW, SFP__FP_CODA},
    {"l2p", false, false, 3, 2, 0, SFP__PREFIX_PROJECTED, SFP__FP_L2P},
    {"dualprompt, second task", false, false, 3, 2, 1, SFP__PREFIX_PROJECTED, SFP__FP_DUALPROMPT},
};

typedef struct scene {
    const kind *k;
    world m;
    sfp__learner *l;
    const sfp__model_ops *model;
    oracle o;
    size_t pixels;
    float *image[IMAGES];
    const float *x[IMAGES];
    double *wide[IMAGES];
    int32_t label[IMAGES];
    float weight[IMAGES];
    bool replayed[IMAGES];
    sfp__rng rng;
} scene;

static scene *set_up(const kind *k)
{
    scene *f = kept_malloc(sizeof *f);
    *f = (scene){.k = k, .m = tiny_model(2), .rng = sfp__rng_init(8, 1)};
    sfp__learner_options o = small_options(&f->m, k->tasks, CLASSES);
    o.buffer.method = "ssd";
    o.fp.attune = k->attune;
    o.fp.attune_residual = k->residual;
    o.fp.attune_topk = k->topk;
    o.fp.prefix = k->prefix;
    o.fp.kind = k->pool;
    o.adam.lr = 0.02f; /* steps that change the values noticeably */
    f->l = make_learner(&f->m, &o);
    f->pixels = f->l->pixels;
    for (uint64_t t = 0; t < 3; t++)
        (void)offer(f->l, 0, CLASSES, t);
    for (int i = 0; i < k->boundaries; i++)
        MUST(sfp__learner_next_task(f->l, &err));
    f->model = sfp__learner_model_ops(f->l);
    for (int i = 0; i < IMAGES; i++) {
        f->x[i] = f->image[i] = normals(&f->rng, f->pixels, 1);
        f->wide[i] = to_doubles(f->x[i], f->pixels);
        f->label[i] = (int32_t)i;
        f->weight[i] = 1.0f / IMAGES;
        f->replayed[i] = true;
    }
    oracle_init(&f->o, f->m.vit, f->l->fp);
    oracle_batch(&f->o, IMAGES, f->x);
    f->o.label = f->label;
    f->o.weight = f->weight;
    f->o.replayed = f->replayed;
    (void)oracle_loss(&f->o);
    return f;
}

static void tear_down(scene *f)
{
    sfp__learner_free(f->l);
    free_world(&f->m);
}
DEFINE_OWNED_PTR(scene, tear_down)

/* Returns the loss of the oracle at the pixels in f->wide. */
static double loss_at(scene *f)
{
    oracle *o = &f->o;
    int D = o->vit.c.dim;
    oracle_attune(o);
    for (int i = 0; i < IMAGES; i++) {
        oracle_image image = {o, i, doubles((size_t)(ORACLE_PARTS * o->fp.length * D))};
        const vit_oracle_pass pass = {.x = f->wide[i], .prefix = oracle_prefix, .ctx = &image, .feature = o->feature + i * D};
        vit_oracle_forward(&o->vit, &pass);
    }
    return oracle_head_loss(o);
}

/* Changes all pixels by t * d, d (IMAGES, pixels). */
static void move_pixels(scene *f, const double *d, double t)
{
    for (int i = 0; i < IMAGES; i++)
        for (size_t k = 0; k < f->pixels; k++)
            f->wide[i][k] = (double)f->x[i][k] + t * d[(size_t)i * f->pixels + k];
}

/* Sets the trained values of the oracle to their values plus t * v, where v is flattened as in buffer/model_ops.h. */
static void move_values(scene *f, const float *v, double t)
{
    int count;
    sfp__param **p = sfp__fp_params(f->l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t first = (size_t)p[i]->lo * p[i]->width, n = (size_t)(p[i]->hi - p[i]->lo) * p[i]->width;
        for (size_t k = 0; k < n; k++)
            f->o.value[i][first + k] = (double)p[i]->data[first + k] + t * (double)*v++;
    }
}

static sfp__image_list images_of(const scene *f)
{
    return (sfp__image_list){.n = IMAGES, .x = f->x, .label = f->label};
}

/* Computes the pixel gradients of the loss, dx (IMAGES, pixels). */
static sfp_status try_pixels(const scene *f, const sfp__image_list *p, const float *v, float h, float *dx)
{
    float *to[IMAGES];
    memset(dx, 0, IMAGES * f->pixels * sizeof *dx);
    for (int i = 0; i < IMAGES; i++)
        to[i] = dx + (size_t)i * f->pixels;
    return f->model->pixels(f->model->ctx, p, v, h, 1, to, &err);
}

static void pixels_of(const scene *f, const float *v, float h, float *dx)
{
    const sfp__image_list p = images_of(f);
    MUST(try_pixels(f, &p, v, h, dx));
}

/* Computes the pixel gradients of <dfeature, feature>. */
static void feature_pixels_of(const scene *f, const sfp__image_list *p, const float *dfeature, float *dx)
{
    float *to[IMAGES];
    memset(dx, 0, IMAGES * f->pixels * sizeof *dx);
    for (int i = 0; i < IMAGES; i++)
        to[i] = dx + (size_t)i * f->pixels;
    MUST(f->model->feature_pixels(f->model->ctx, p, dfeature, to, &err));
}

static double *unit_direction(scene *f)
{
    size_t n = IMAGES * f->pixels;
    double *d = doubles(n), sum = 0;
    for (size_t i = 0; i < n; i++) {
        d[i] = sfp__rng_normal(&f->rng);
        sum += d[i] * d[i];
    }
    for (size_t i = 0; i < n; i++)
        d[i] /= sqrt(sum);
    return d;
}

static double along(const scene *f, const float *dx, const double *d)
{
    double sum = 0;
    for (size_t i = 0; i < IMAGES * f->pixels; i++)
        sum += (double)dx[i] * d[i];
    return sum;
}

/* ------------------------------------------------------------------ pixel gradients */

enum { DIRECTIONS = 6 };

/* Compares dx with central differences of the loss, or of <dfeature, feature>. */
static void check_directions(scene *f, const float *dx, const float *dfeature)
{
    double size = sqrt(dot(dx, dx, IMAGES * f->pixels) / (double)(IMAGES * f->pixels));
    assert_true(size > 1e-5);
    for (int k = 0; k < DIRECTIONS; k++) {
        double *d = unit_direction(f), side[2];
        for (int s = 0; s < 2; s++) {
            move_pixels(f, d, s ? 1e-4 : -1e-4);
            side[s] = loss_at(f);
            for (int c = 0; dfeature && c < IMAGES * f->l->D; c++)
                side[s] = (c ? side[s] : 0) + (double)dfeature[c] * f->o.feature[c];
        }
        double want = (side[1] - side[0]) / 2e-4, got = along(f, dx, d);
        if (!(fabs(got - want) <= 1e-4 * size))
            fail_msg("%s: the gradient gives %.9g, the central difference %.9g (size %.3g)", f->k->name, got, want, size);
    }
}

TEST(pixel_gradients_equal_those_of_the_loss_and_of_the_features)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int features = 0; features < 2; features++) {
            OWNED_PTR(tear_down) scene *f = set_up(&kinds[i]);
            const sfp__image_list p = {.n = IMAGES, .x = f->x}; /* no loss, no labels */
            float *dfeature = features ? normals(&f->rng, IMAGES * (size_t)f->l->D, 1) : NULL, *dx = floats(IMAGES * f->pixels);
            if (features)
                feature_pixels_of(f, &p, dfeature, dx);
            else
                pixels_of(f, NULL, 0, dx);
            check_directions(f, dx, dfeature);
        }
}

/* ---------------------------------------------------------- the mixed derivative */

/* Computes (grad_x L(theta + hv) - grad_x L(theta - hv)) / 2h with |hv| = reach, as in ssd.c. */
static void mixed(const scene *f, const float *v, double reach, float *dx)
{
    size_t n = IMAGES * f->pixels;
    float *other = floats(n);
    double h = reach / sqrt(dot(v, v, f->model->params));
    pixels_of(f, v, (float)h, dx);
    pixels_of(f, v, (float)-h, other);
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)((double)(dx[i] - other[i]) / (2 * h));
}

/* Returns d/dt d/dh L(x + td, theta + hv) from four losses in double. */
static double mixed_oracle(scene *f, const float *v, const double *d)
{
    double sum = 0, h = 1e-3 / sqrt(dot(v, v, f->model->params)), t = 1e-3;
    for (int s = 0; s < 4; s++) {
        move_values(f, v, s & 1 ? h : -h);
        move_pixels(f, d, s & 2 ? t : -t);
        sum += (s == 0 || s == 3 ? 1 : -1) * loss_at(f);
    }
    move_values(f, v, 0);
    return sum / (4 * h * t);
}

/* Computes the relative error of the engine's mixed derivative over random directions, for each reach. */
static void mixed_errors(scene *f, const float *v, int reaches, const double *reach, double *error)
{
    double *d[DIRECTIONS], want[DIRECTIONS];
    float *dx = floats(IMAGES * f->pixels);
    for (int k = 0; k < DIRECTIONS; k++) {
        d[k] = unit_direction(f);
        want[k] = mixed_oracle(f, v, d[k]);
    }
    for (int r = 0; r < reaches; r++) {
        double sum = 0, size = 0;
        mixed(f, v, reach[r], dx);
        for (int k = 0; k < DIRECTIONS; k++) {
            double got = along(f, dx, d[k]);
            sum += (got - want[k]) * (got - want[k]);
            size += want[k] * want[k];
        }
        error[r] = sqrt(sum / size);
    }
}

/* Computes v = 2 (gs - gr) as in gradient matching: the images against three others. */
static float *matching_v(scene *f)
{
    float *v = floats(f->model->params), *gr = floats(f->model->params), *other[IMAGES];
    const float *x[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        x[i] = other[i] = normals(&f->rng, f->pixels, 1);
    sfp__image_list p = images_of(f);
    MUST(f->model->gradient_at(f->model->ctx, &p, v, NULL, &err));
    p.x = x;
    MUST(f->model->gradient_at(f->model->ctx, &p, gr, NULL, &err));
    assert_true(sfp__ssd_gap(f->model->params, v, gr, v) > 0);
    return v;
}

/* SFP__SSD_REACH lies where neither float's noise, which grows with 1/reach, nor the curvature, with reach^2, is seen. Measured:
 *
 *     reach   1e-5         1e-4          1e-3          1e-2          0.1           1              10
 *     error   0.008-0.12   4e-4 - 0.02   6e-5 - 2e-3   1e-5 - 2e-4   6e-5 - 5e-4   0.004 - 0.05   0.1 - 0.5 */
TEST(the_mixed_derivative_is_right_and_its_step_well_chosen)
{
    const double reach[] = {1e-5, 1e-4, 1e-3, SFP__SSD_REACH, 1e-1, 1, 10};
    enum { REACHES = sizeof reach / sizeof *reach, CHOSEN = 3 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        OWNED_PTR(tear_down) scene *f = set_up(&kinds[i]);
        double error[REACHES];

        for (int which = 0; which < 2; which++) {
            float *v = which ? normals(&f->rng, f->model->params, 1) : matching_v(f);
            mixed_errors(f, v, REACHES, reach, error);
            if (!(error[CHOSEN] <= 5e-4))
                fail_msg("%s, v %d: the mixed derivative is off by %.3g of its size", f->k->name, which, error[CHOSEN]);
            assert_true(error[0] > 10 * error[CHOSEN]);
            assert_true(error[REACHES - 1] > 10 * error[CHOSEN]);
        }
    }
}

/* |g(X) - gr|^2 along its gradient with constant queries, computed only by the engine: the chain from pixels to the loss as a
 * whole. */
TEST(the_matching_loss_decreases_along_its_gradient)
{
    OWNED_PTR(tear_down) scene *f = set_up(&kinds[0]);

    size_t n = IMAGES * f->pixels, D = (size_t)f->l->D, params = f->model->params;
    float *v = matching_v(f), *dx = floats(n), *query = floats(IMAGES * D), *g = floats(params), *gr = floats(params);
    float *moved[IMAGES];
    mixed(f, v, SFP__SSD_REACH, dx);
    const sfp__image_list p = images_of(f);
    MUST(f->model->gradient_at(f->model->ctx, &p, g, NULL, &err));
    for (size_t k = 0; k < params; k++)
        gr[k] = g[k] - v[k] / 2;
    MUST(sfp__trainer_queries(f->l->trainer, IMAGES, f->x, query, &err));
    for (int i = 0; i < IMAGES; i++)
        moved[i] = floats(f->pixels);
    double length = sqrt(dot(dx, dx, n)), t = 0.02, side[2];
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < IMAGES; i++)
            for (size_t k = 0; k < f->pixels; k++)
                moved[i][k] = (float)((double)f->x[i][k] + (s ? t : -t) * (double)dx[(size_t)i * f->pixels + k] / length);
        const sfp__train_batch step = {
            .n = IMAGES, .x = (const float *const *)moved, .label = f->label, .weight = f->weight, .query = query};
        sfp__train_result result = {0};
        MUST(sfp__trainer_gradients(f->l->trainer, &step, &result, &err));
        int count;
        sfp__param **params_ = sfp__fp_params(f->l->fp, &count);
        for (size_t at = 0, i = 0; i < (size_t)count; i++) {
            size_t floats_ = (size_t)(params_[i]->hi - params_[i]->lo) * params_[i]->width;
            memcpy(g + at, params_[i]->grad + (size_t)params_[i]->lo * params_[i]->width, floats_ * sizeof *g);
            at += floats_;
        }
        side[s] = sfp__ssd_gap(params, g, gr, g);
    }
    double slope = (side[1] - side[0]) / (2 * t);
    if (!(fabs(slope - length) <= 0.01 * length))
        fail_msg("the loss rises by %.6g along its gradient, whose length is %.6g", slope, length);
}

TEST(parameters_are_restored_to_the_bit)
{
    OWNED_PTR(tear_down) scene *f = set_up(&kinds[2]);

    float *v = normals(&f->rng, f->model->params, 3), *dx = floats(IMAGES * f->pixels), *again = floats(IMAGES * f->pixels);
    values before = take_values(f->l);
    pixels_of(f, NULL, 0, dx);
    pixels_of(f, v, 0.37f, again);
    assert_memory_not_equal(dx, again, IMAGES * f->pixels * sizeof *dx);
    float *first = copied(again, IMAGES * f->pixels); /* the pool was prepared at theta and is outdated now */
    pixels_of(f, v, 0.37f, again);
    check_same("gradient to pixels along v", again, first, IMAGES * f->pixels * sizeof *dx);
    pixels_of(f, NULL, 0, again);
    check_same("gradient to pixels", again, dx, IMAGES * f->pixels * sizeof *dx); /* also the values cached from the parameters */
    values after = take_values(f->l);
    assert_true(same_values(&before, &after));
    const int32_t wrong[IMAGES] = {0, 1, CLASSES};
    sfp__image_list p = {.n = IMAGES, .x = f->x, .label = wrong};
    assert_int_equal(try_pixels(f, &p, v, 0.37f, again), SFP_EINVAL);
    p.n = 0;
    assert_int_equal(try_pixels(f, &p, v, 0.37f, again), SFP_EINVAL);
    after = take_values(f->l);
    assert_true(same_values(&before, &after));
}

/* --------------------------------------------------------------------- queries */

/* Queries of the images, some of which are given. */
typedef struct queries {
    float *all;
    float *at[IMAGES];
    bool known[IMAGES];
} queries;

static queries queries_of(const scene *f)
{
    queries q = {.all = floats(IMAGES * (size_t)f->l->D)};
    MUST(sfp__trainer_queries(f->l->trainer, IMAGES, f->x, q.all, &err));
    for (int i = 0; i < IMAGES; i++)
        q.at[i] = q.all + i * f->l->D;
    return q;
}

/* Unknown queries are computed and stored, known ones are used. */
TEST(queries_of_images_are_computed_once)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        OWNED_PTR(tear_down) scene *f = set_up(&kinds[i]);

        size_t D = (size_t)f->l->D, P = f->model->params, n = IMAGES * f->pixels;
        queries q = queries_of(f);
        float *want = copied(q.all, IMAGES * D), *dfeature = normals(&f->rng, IMAGES * D, 1);
        float *g = floats(P), *feature = floats(IMAGES * D), *dx[2] = {floats(n), floats(n)}, *again = floats(P > n ? P : n);
        sfp__image_list p = images_of(f);
        MUST(f->model->gradient_at(f->model->ctx, &p, g, feature, &err));
        pixels_of(f, NULL, 0, dx[0]);
        feature_pixels_of(f, &p, dfeature, dx[1]);
        p.query = q.at;
        p.known = q.known;
        q.known[1] = true;
        memset(q.at[0], 0, D * sizeof *q.all);
        memset(q.at[2], 0, D * sizeof *q.all);
        MUST(try_pixels(f, &p, NULL, 0, again)); /* not all known: computed and not stored */
        check_near("pixels, unknown", again, dx[0], n, 1e-5);
        MUST(f->model->gradient_at(f->model->ctx, &p, again, NULL, &err));
        check_near("gradient", again, g, P, 1e-4);
        for (int k = 0; k < IMAGES; k++)
            assert_true(q.known[k]);
        check_near("queries", q.all, want, IMAGES * D, 1e-5);
        MUST(try_pixels(f, &p, NULL, 0, again));
        check_near("pixels", again, dx[0], n, 1e-5);
        feature_pixels_of(f, &p, dfeature, again);
        check_near("pixels of features", again, dx[1], n, 1e-5);
        q.known[0] = q.known[2] = true;
        for (int k = 0; k < IMAGES; k++) /* wrong queries show which calls use them */
            for (size_t d = 0; d < D; d++)
                q.at[k][d] = (float)(sfp__rng_normal(&f->rng) * 3);
        MUST(f->model->gradient_at(f->model->ctx, &p, again, NULL, &err));
        assert_true(memcmp(again, g, P * sizeof *g) != 0);
        MUST(try_pixels(f, &p, NULL, 0, again));
        assert_true(memcmp(again, dx[0], n * sizeof *g) != 0);
        feature_pixels_of(f, &p, dfeature, again);
        assert_true(memcmp(again, dx[1], n * sizeof *g) != 0);
    }
}

/* More images than fit in a pass: the mean over all is added to dx. */
TEST(many_images_are_processed_in_one_call)
{
    enum { MANY = 2 * SFP__MODEL_OPS_SLOTS + 3 };
    OWNED_PTR(tear_down) scene *f = set_up(&kinds[0]);

    size_t D = (size_t)f->l->D, n = f->pixels;
    float *x = normals(&f->rng, MANY * n, 1), *v = normals(&f->rng, f->model->params, 1),
          *dfeature = normals(&f->rng, MANY * D, 1);
    float *dx = floats(MANY * n), *one = floats(n), *want = floats(n), *embed = floats(MANY * D), *query = filled(MANY * D, NAN);
    const float *xs[MANY];
    float *to[MANY], *query_at[MANY];
    int32_t label[MANY];
    bool known[MANY] = {false};
    for (int i = 0; i < MANY; i++) {
        xs[i] = x + (size_t)i * n;
        to[i] = dx + (size_t)i * n;
        query_at[i] = query + (size_t)i * D;
        label[i] = i % CLASSES;
    }
    const sfp__image_list p = {.n = MANY, .x = xs, .label = label, .query = query_at, .known = known};
    MUST(f->model->gradient_at(f->model->ctx, &p, v, NULL, &err));
    MUST(f->model->embed_at(f->model->ctx, MANY, xs, embed, &err));
    memset(dx, 0, MANY * n * sizeof *dx);
    MUST(f->model->pixels(f->model->ctx, &p, v, 0.01f, -2, to, &err));
    MUST(f->model->feature_pixels(f->model->ctx, &p, dfeature, to, &err));
    for (int i = 0; i < MANY; i++) {
        const sfp__image_list alone = {.n = 1, .x = &xs[i], .label = &label[i]};
        float *at[] = {one, want};
        assert_true(known[i]);
        memset(one, 0, n * sizeof *one);
        memset(want, 0, n * sizeof *want);
        MUST(f->model->pixels(f->model->ctx, &alone, v, 0.01f, -2, &at[0], &err));
        MUST(f->model->feature_pixels(f->model->ctx, &alone, dfeature + (size_t)i * D, &at[1], &err));
        for (size_t k = 0; k < n; k++)
            want[k] += one[k] / MANY;
        check_near("pixels of many", to[i], want, n, 1e-4);
        MUST(f->model->embed_at(f->model->ctx, 1, &xs[i], one, &err));
        check_near("embedding of many", embed + (size_t)i * D, one, D, 1e-6);
    }
}
