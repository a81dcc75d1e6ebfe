/* Compares the gradients of the training step, for every learnable tensor, with central differences (docs/method.md, sections 2,
 * 3 and 6).
 *
 * The differences are those of an oracle in double (test_trainer_oracle.h), so only the engine has float noise and the tolerance
 * can be tight. Two checks connect them: the loss of the oracle must equal that of the engine, and differences of the engine's
 * loss along each gradient must give its length, as far as float permits.
 *
 * Queries are constants of the differentiation (docs/method.md, section 2): they depend on no parameter. */
#include "learner/trainer.h"

#include "test.h"
#include "test_trainer_oracle.h"
#include "vit_make.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { CLASSES = 6, MAX_SAMPLES = 9 };

typedef struct shape {
    const char *name;
    int S, D, H, depth;
    int pool, tasks, length, first, last;
    bool attune, residual;
    int topk;
    float mu;
    sfp__prefix_kind prefix;
    int task;    /* number of task boundaries crossed, with training before each */
    int c, r;    /* numbers of samples of the coreset and of the replay */
    bool masked; /* the loss of the coreset uses only the first classes */
    bool uneven; /* a different weight per sample */
    int steps;   /* number of steps at which gradients are checked */
    sfp__fp_kind kind;
} shape;

/* clang-format off */
static const shape shapes[] = {
    /* name                          S   D  H dep pool J Lp f l  att    res  k  mu    prefix                task c r masked uneven steps kind */
    {"plain",                        16, 32, 2, 3, 6, 1, 4, 0, 2, false, false, 3, 0, SFP__PREFIX_PROJECTED, 0, 4, 0, false, false, 1, SFP__FP_CODA},
    {"attuned, replay, three steps", 16, 32, 2, 3, 6, 1, 4, 0, 2, true, false, 3, 0, SFP__PREFIX_PROJECTED, 0, 3, 2, false, false, 3, SFP__FP_CODA},
    {"residual, topk 2, task 1",     16, 32, 4, 4, 7, 3, 4, 0, 1, true, true, 2, 0, SFP__PREFIX_PROJECTED, 1, 3, 2, false, false, 2, SFP__FP_CODA},
    {"topk 1, layers 1 and 2",       24, 36, 3, 4, 6, 2, 2, 1, 2, true, false, 1, 0, SFP__PREFIX_PROJECTED, 1, 3, 0, true, false, 2, SFP__FP_CODA},
    {"penalty in one term, task 2",  16, 40, 4, 3, 9, 3, 4, 0, 2, true, false, 3, 0.1f, SFP__PREFIX_PROJECTED, 2, 4, 0, true, false, 1, SFP__FP_CODA},
    {"penalty in two terms, task 1", 16, 48, 3, 3, 8, 2, 4, 0, 2, true, true, 3, 0.3f, SFP__PREFIX_PROJECTED, 1, 3, 3, false, true, 2, SFP__FP_CODA},
    {"penalty without attunement",   16, 32, 2, 3, 8, 2, 6, 0, 1, false, false, 3, 0.2f, SFP__PREFIX_PROJECTED, 1, 3, 2, false, true, 2, SFP__FP_CODA},
    {"raw prefix, attuned, task 1",  16, 32, 2, 3, 8, 2, 4, 1, 2, true, false, 3, 0.1f, SFP__PREFIX_RAW, 1, 3, 2, false, false, 2, SFP__FP_CODA},
    {"raw prefix, not attuned",      32, 32, 4, 3, 4, 1, 4, 0, 2, false, false, 3, 0, SFP__PREFIX_RAW, 0, 2, 1, false, true, 1, SFP__FP_CODA},
    {"more components than chunks",  16, 32, 2, 3, 74, 2, 2, 2, 2, true, false, 3, 0.05f, SFP__PREFIX_PROJECTED, 1, 4, 5, false, true, 1, SFP__FP_CODA},
    {"l2p, attuned, task 1",         16, 32, 2, 3, 9, 2, 4, 0, 2, true, false, 3, 0, SFP__PREFIX_PROJECTED, 1, 3, 2, false, true, 2, SFP__FP_L2P},
    {"l2p of three, raw, penalty",   16, 40, 4, 3, 3, 1, 4, 0, 0, false, false, 3, 0.1f, SFP__PREFIX_RAW, 0, 4, 0, true, false, 1, SFP__FP_L2P},
    {"dualprompt, task 2",           16, 32, 2, 4, 50, 3, 4, 0, 3, false, false, 3, 0, SFP__PREFIX_PROJECTED, 2, 3, 4, false, true, 1, SFP__FP_DUALPROMPT},
    {"dualprompt, attuned, penalty", 16, 32, 4, 4, 50, 3, 4, 1, 3, true, true, 3, 0.1f, SFP__PREFIX_PROJECTED, 1, 3, 3, false, false, 2, SFP__FP_DUALPROMPT},
};
/* clang-format on */

typedef struct fixture {
    const shape *s;
    sfp__vit *vit;
    sfp__thread_pool *pool;
    sfp__trainer *trainer;
    sfp__fp *fp;
    oracle o;
    float *image[MAX_SAMPLES], *query;
    const float *x[MAX_SAMPLES];
    int32_t label[MAX_SAMPLES];
    float weight[MAX_SAMPLES];
    bool masked[MAX_SAMPLES], replayed[MAX_SAMPLES];
    uint8_t allowed[CLASSES];
    sfp__train_batch batch;
    sfp__rng rng;
} fixture;

static void ok(const shape *s, sfp_status status, const sfp_error *why)
{
    if (status != SFP_OK)
        fail_msg("%s: %s", s->name, why->message);
}

static fixture *set_up(const shape *s, uint64_t seed)
{
    fixture *f = kept_malloc(sizeof *f);
    *f = (fixture){.s = s, .rng = sfp__rng_init(seed, 1)};
    const sfp__vit_config c = VIT(s->S, 8, s->D, s->depth, s->H, 2 * s->D, 0, 1);
    sfp__trainer_options t = {.fp = sfp__fp_options_defaults(), .adam = sfp__adam_defaults(), .max_batch = MAX_SAMPLES};
    t.fp.kind = s->kind;
    t.fp.pool = s->pool;
    t.fp.tasks = s->tasks;
    t.fp.length = s->length;
    t.fp.first_layer = s->first;
    t.fp.last_layer = s->last;
    t.fp.attune = s->attune;
    t.fp.attune_residual = s->residual;
    t.fp.attune_topk = s->topk;
    t.fp.ortho_mu = s->mu;
    t.fp.prefix = s->prefix;
    t.fp.classes = CLASSES;
    t.fp.seed = seed;
    t.adam.lr = 0.02f; /* steps that change the values noticeably */
    /* with weights of about 1/sqrt(D) attention is neither uniform nor one-hot */
    ok(s, sfp__vit_random(&c, seed, 0.2f, &f->vit, &err), &err);
    ok(s, sfp__thread_pool_create(2, &f->pool, &err), &err);
    ok(s, sfp__trainer_create(f->vit, f->pool, &t, &f->trainer, &err), &err);
    f->fp = sfp__trainer_fp(f->trainer);
    int n = s->c + s->r;
    for (int i = 0; i < n; i++) {
        f->x[i] = f->image[i] = normals(&f->rng, 3 * (size_t)(s->S * s->S), 1);
        f->masked[i] = s->masked && i < s->c;
        f->replayed[i] = i >= s->c;
        f->label[i] = (int32_t)sfp__rng_below(&f->rng, f->masked[i] ? CLASSES / 2 : CLASSES);
        f->weight[i] = i < s->c ? 1 / (float)s->c : 1 / (float)s->r;
        if (s->uneven)
            f->weight[i] *= (float)(0.3 + sfp__rng_double(&f->rng));
    }
    memset(f->allowed, 1, CLASSES / 2);
    f->query = filled((size_t)(MAX_SAMPLES * s->D), NAN);
    f->batch = (sfp__train_batch){.n = n,
                                  .x = f->x,
                                  .label = f->label,
                                  .weight = f->weight,
                                  .masked = f->masked,
                                  .allowed = f->allowed,
                                  .replayed = f->replayed,
                                  .query = f->query,
                                  .queries = n,
                                  .terms = s->r ? 2 : 1};
    oracle_init(&f->o, f->vit, f->fp);
    oracle_batch(&f->o, n, f->x);
    f->o.label = f->label;
    f->o.weight = f->weight;
    f->o.masked = f->masked;
    f->o.allowed = f->allowed;
    f->o.replayed = f->replayed;
    f->o.terms = f->batch.terms;
    return f;
}

static void tear_down(fixture *f)
{
    sfp__trainer_free(f->trainer);
    sfp__vit_free(f->vit);
    sfp__thread_pool_free(f->pool);
}
DEFINE_OWNED_PTR(fixture, tear_down)

static sfp__train_result gradients(fixture *f)
{
    sfp__train_result result = {0};
    ok(f->s, sfp__trainer_gradients(f->trainer, &f->batch, &result, &err), &err);
    return result;
}

static void step(fixture *f)
{
    sfp__train_result result = {0};
    ok(f->s, sfp__trainer_step(f->trainer, &f->batch, &result, &err), &err);
    f->batch.queries = 0; /* all queries are known now */
}

/* ------------------------------------------------------------- differences */

/* Returns the central difference of the oracle's loss when parameter i moves along d. */
static double difference(oracle *o, int i, const double *d, double h)
{
    double loss[2], *kept = doubles(o->count[i]);
    memcpy(kept, o->value[i], o->count[i] * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (size_t k = 0; k < o->count[i]; k++)
            o->value[i][k] = kept[k] + (side ? h : -h) * d[k];
        if (i >= o->params - 2) { /* the linear head: features are unchanged */
            loss[side] = oracle_head_loss(o);
        } else {
            loss[side] = oracle_loss(o);
        }
    }
    memcpy(o->value[i], kept, o->count[i] * sizeof *kept);
    return (loss[1] - loss[0]) / (2 * h);
}

enum { ALONG, RANDOM_1, RANDOM_2, LARGEST, ANY, DIRECTIONS };

static double length_of(const float *x, size_t n)
{
    return sqrt(dot(x, x, n));
}

static double worst; /* largest ratio of error to the float tolerance over all checks */

static void check_param(fixture *f, int i)
{
    if (RACES_ONLY)
        return;
    int count;
    const sfp__param *p = sfp__fp_params(f->fp, &count)[i];
    size_t first = (size_t)p->lo * p->width, end = (size_t)p->hi * p->width, n = end - first;
    double length = length_of(p->grad, f->o.count[i]), *d = doubles(f->o.count[i]);
    bool gate = strncmp(p->name, "prompt.attune.gate", 18) == 0;
    if ((length > 1e-9) == (gate && f->s->topk == 1)) /* the softmax of one element is 1, regardless of the gate */
        fail_msg("%s: %s: the gradient's length is %.3g", f->s->name, p->name, length);
    length = fmax(length, 1e-9);
    size_t largest = first;
    for (size_t k = first; k < end; k++)
        largest = fabsf(p->grad[k]) > fabsf(p->grad[largest]) ? k : largest;
    for (int kind = 0; kind < DIRECTIONS; kind += SAMPLE_EVERY) {
        double size = kind == ALONG ? length : length / sqrt((double)n);
        memset(d, 0, f->o.count[i] * sizeof *d);
        size_t one = kind == LARGEST ? largest : first + sfp__rng_below(&f->rng, (uint32_t)n);
        if (kind == LARGEST || kind == ANY) {
            d[one] = 1;
            size = fmax(size, fabs((double)p->grad[one]));
        }
        for (size_t k = first; k < end && kind <= RANDOM_2; k++)
            d[k] = kind == ALONG ? (double)p->grad[k] / length : sfp__rng_normal(&f->rng) / sqrt((double)n);
        double got = 0;
        for (size_t k = 0; k < f->o.count[i]; k++)
            got += d[k] * (double)p->grad[k];
        double want = difference(&f->o, i, d, 1e-4), error = fabs(got - want), allowed = 5e-5 * size + 2e-10;
        worst = fmax(worst, error / allowed);
        if (!(error <= allowed))
            fail_msg("%s: %s, direction %d: the gradient gives %.9g, the central difference %.9g (size %.3g)", f->s->name,
                     p->name, kind, got, want, size);
    }
}

/* Checks that frozen and unused rows have no gradient, and that all trained rows have one, unless no sample chose them. */
static void check_rows(const fixture *f, const sfp__param *p)
{
    for (int r = 0; r < p->rows; r++) {
        bool any = false;
        for (size_t k = 0; k < p->width; k++)
            any = any || p->grad[(size_t)r * p->width + k] != 0;
        bool learns = r >= p->lo && r < p->hi;
        if (f->s->kind == SFP__FP_CODA ? any != learns : any && !learns)
            fail_msg("%s: %s: row %d of [%d, %d) %s a gradient", f->s->name, p->name, r, p->lo, p->hi, any ? "has" : "has not");
    }
}

/* Checks that the slope of the engine's loss along the gradient equals the length of the gradient. */
static void check_own_slope(fixture *f, int i)
{
    int count;
    sfp__param *p = sfp__fp_params(f->fp, &count)[i];
    size_t n = (size_t)p->rows * p->width;
    float *kept = copied(p->data, n), *g = copied(p->grad, n);
    double length = length_of(g, n), h = fmin(0.02, 0.005 / length), loss[2];
    for (int side = 0; side < 2; side++) {
        for (size_t k = 0; k < n; k++)
            p->data[k] = (float)((double)kept[k] + (side ? h : -h) * (double)g[k] / length);
        sfp__fp_changed(f->fp);
        loss[side] = gradients(f).loss;
    }
    memcpy(p->data, kept, n * sizeof *kept);
    sfp__fp_changed(f->fp);
    (void)gradients(f);
    check_same(p->name, p->grad, g, n * sizeof *g);
    double slope = (loss[1] - loss[0]) / (2 * h);
    if (!(fabs(slope - length) <= 5e-3 * length + 1e-6 / h))
        fail_msg("%s: %s: the loss rises by %.6g along the gradient, whose length is %.6g", f->s->name, p->name, slope, length);
}

/* ------------------------------------------------------------------- tests */

/* Crosses the task boundaries of the case, with training before each. */
static void reach_task(fixture *f)
{
    for (int t = 0; t < f->s->task; t++) {
        step(f);
        step(f);
        ok(f->s, sfp__fp_next_task(f->fp, &err), &err);
    }
}

/* Computes the gradients at the current values, and sets the oracle to the same values. */
static double take_gradients(fixture *f)
{
    double got = gradients(f).loss;
    oracle_take(&f->o, f->fp);
    double want = oracle_loss(&f->o);
    if (!(fabs(got - want) <= 1e-5 * fabs(want)))
        fail_msg("%s: the loss is %.9g, the oracle's %.9g", f->s->name, got, want);
    return got;
}

TEST(gradients_equal_central_differences)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        OWNED_PTR(tear_down) fixture *f = set_up(&shapes[i], 700 + i);

        reach_task(f);
        bool l2p = f->s->kind == SFP__FP_L2P; /* all are trained */
        int each = f->s->kind == SFP__FP_DUALPROMPT ? 1 : l2p ? f->s->pool : f->s->pool / f->s->tasks;
        assert_int_equal(f->fp->frozen_end, l2p ? 0 : f->s->task * each);
        assert_int_equal(f->fp->active_end, l2p ? each : (f->s->task + 1) * each);
        for (int k = 0; k < f->s->steps; k++) {
            (void)take_gradients(f);
            int count;
            sfp__param **params = sfp__fp_params(f->fp, &count);
            static const int dropped[] = {[SFP__FP_CODA] = 0, [SFP__FP_L2P] = 1, [SFP__FP_DUALPROMPT] = 1}; /* A */
            int general = f->s->kind == SFP__FP_DUALPROMPT ? 2 : 0;                                         /* without K */
            assert_int_equal(count, (3 - dropped[f->s->kind]) * f->o.layers - general + (f->s->attune ? 4 : 2));
            for (int p = 0; p < count; p++) {
                if (p < count - (f->s->attune ? 4 : 2))
                    check_rows(f, params[p]);
                check_param(f, p);
            }
            /* not if the loss is discontinuous between kept gates */
            for (int p = 0; p < count && f->s->topk == 3; p++)
                check_own_slope(f, p);
            step(f);
        }
    }
    print_message("worst error: %.2f of the tolerance\n", worst);
}

/* Masked samples contribute no gradient to classes that do not compete; other samples do. */
TEST(classes_that_do_not_compete_have_no_gradient)
{
    OWNED_PTR(tear_down) fixture *f = set_up(&shapes[3], 40);

    assert_true(f->s->masked && f->s->r == 0);
    (void)take_gradients(f);
    const sfp__param *w = &f->fp->linear_w, *b = &f->fp->linear_b;
    for (int c = 0; c < CLASSES; c++) {
        assert_int_equal(b->grad[c] != 0, c < CLASSES / 2);
        assert_int_equal(length_of(w->grad + (size_t)c * w->width, w->width) > 0, c < CLASSES / 2);
    }
    f->label[1] = CLASSES - 1; /* not a class of the task: refused, not trained with a probability of 0 */
    sfp__train_result result;
    assert_int_equal(sfp__trainer_gradients(f->trainer, &f->batch, &result, &err), SFP_EINVAL);
}

/* A gate that used only the active components would have another gradient. */
TEST(the_gate_learns_from_frozen_components_too)
{
    OWNED_PTR(tear_down) fixture *f = set_up(&shapes[2], 41);

    reach_task(f);
    (void)take_gradients(f);
    int gate = 3 * f->o.layers, count;
    const sfp__param *p = sfp__fp_params(f->fp, &count)[gate];
    double length = length_of(p->grad, f->o.count[gate]), *d = to_doubles(p->grad, f->o.count[gate]);
    for (size_t k = 0; k < f->o.count[gate]; k++)
        d[k] /= length;
    double all = difference(&f->o, gate, d, 1e-4);
    double *w = doubles(f->o.count[gate]), *b = doubles(3);
    memcpy(w, f->o.value[gate], f->o.count[gate] * sizeof *w);
    memcpy(b, f->o.value[gate + 1], 3 * sizeof *b);
    f->o.frozen_gate_w = w;
    f->o.frozen_gate_b = b;
    double learning_only = difference(&f->o, gate, d, 1e-4);
    assert_true(fabs(all - length) < 1e-4 * length);
    if (fabs(learning_only - length) < 0.02 * length)
        fail_msg("frozen components make no difference: %.9g and %.9g", learning_only, length);
}

/* One sum with a weight per sample equals the sum of two mean losses: gradients add. */
TEST(the_two_losses_are_added)
{
    OWNED_PTR(tear_down) fixture *f = set_up(&shapes[5], 43);
    /* each with the penalty */
    int count, c = f->s->c, r = f->s->r;
    sfp__param **params = sfp__fp_params(f->fp, &count);
    sfp__train_result both = gradients(f);
    float *sum[ORACLE_PARAMS];
    for (int i = 0; i < count; i++)
        sum[i] = copied(params[i]->grad, f->o.count[i]);
    double loss = 0;
    for (int part = 0; part < 2; part++) {
        int at = part ? c : 0;
        f->batch.n = part ? r : c;
        f->batch.x = f->x + at;
        f->batch.label = f->label + at;
        f->batch.weight = f->weight + at;
        f->batch.masked = f->masked + at;
        f->batch.query = f->query + at * f->s->D;
        f->batch.queries = 0;
        f->batch.terms = 1;
        loss += gradients(f).loss;
        for (int i = 0; i < count; i++)
            for (size_t k = 0; k < f->o.count[i]; k++)
                sum[i][k] -= params[i]->grad[k];
    }
    assert_true(fabs(loss - both.loss) <= 1e-6 * both.loss);
    f->batch.n = c + r;
    for (int i = 0; i < count; i++) {
        double left = length_of(sum[i], f->o.count[i]), last = length_of(params[i]->grad, f->o.count[i]);
        if (!(left <= 2e-6 * last + 1e-9))
            fail_msg("%s: %.3g is left of %.3g", params[i]->name, left, last);
    }
}

/* Values, loss and features of a step do not depend on which queries it computes, nor on the number of threads. */
TEST(given_queries_and_threads_change_nothing)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        OWNED_PTR(tear_down) fixture *a = set_up(&shapes[1], 44), *b = set_up(&shapes[1], 44);
        OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
        ok(b->s, sfp__thread_pool_create(threads, &pool, &err), &err);
        sfp__trainer_options t = {.fp = b->fp->opt, .adam = sfp__adam_defaults(), .max_batch = MAX_SAMPLES};
        sfp__trainer_free(b->trainer);
        ok(b->s, sfp__trainer_create(b->vit, pool, &t, &b->trainer, &err), &err);
        b->fp = sfp__trainer_fp(b->trainer);
        sfp__train_result first = gradients(a), second = gradients(b);
        assert_true(first.loss == second.loss);
        int count;
        sfp__param **pa = sfp__fp_params(a->fp, &count), **pb = sfp__fp_params(b->fp, &count);
        for (int i = 0; i < count; i++)
            check_same(pa[i]->name, pb[i]->grad, pa[i]->grad, a->o.count[i] * sizeof(float));
        b->batch.queries = 2; /* of 5; the others are given */
        second = gradients(b);
        assert_true(fabs(first.loss - second.loss) <= 1e-6 * first.loss);
        for (int i = 0; i < count; i++)
            check_near(pa[i]->name, pb[i]->grad, pa[i]->grad, a->o.count[i], 1e-4);
        sfp__trainer_free(TAKE(b->trainer)); /* before its threads */
    }
}

TEST(bad_batches_are_refused)
{
    OWNED_PTR(tear_down) fixture *f = set_up(&shapes[1], 45);

    sfp__train_result result;
    const int32_t wrong[] = {-1, CLASSES, INT32_MAX};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int32_t right = f->label[2];
        f->label[2] = wrong[i];
        REFUSED(sfp__trainer_step(f->trainer, &f->batch, &result, &err), SFP_EINVAL, "sample 2");
        f->label[2] = right;
    }
    f->batch.n = MAX_SAMPLES + 1;
    assert_int_equal(sfp__trainer_step(f->trainer, &f->batch, &result, &err), SFP_EINVAL);
    f->batch.n = 0;
    assert_int_equal(sfp__trainer_step(f->trainer, &f->batch, &result, &err), SFP_EINVAL);
}
