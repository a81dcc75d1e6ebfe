/* The ViT against its oracle (vit_oracle.h): a forward pass in double, written as direct loops over the formulas
 * (docs/method.md, section 1). The engine's outputs must equal the oracle's. Its gradients must equal central differences of
 * the oracle along random directions, tensor by tensor. */
#include "model/vit.h"

#include "test.h"
#include "vit_make.h"
#include "vit_oracle.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { B = 3, MAX_TENSORS = 10 + 12 * 8, MAX_DEPTH = 4, MAX_ROWS = 5 };

/* ----------------------------------------------------------------- oracle */

/* A batch of B images. */
typedef struct oracle {
    vit_oracle vit;
    int rows[MAX_DEPTH];
    const double *pk[MAX_DEPTH], *pv[MAX_DEPTH]; /* (B, rows, D) */
    const double *x;                             /* (B, 3, S, S) */
    int sample;                                  /* sample of the current pass */
    /* outputs; NULL: not computed */
    double *feature, *embed, *tokens[MAX_DEPTH], *class_attention, *normed;
} oracle;

static int prefix_of(void *ctx, int l, const double *tokens, const double **k, const double **v)
{
    const oracle *o = ctx;
    size_t at = (size_t)(o->sample * o->rows[l] * o->vit.c.dim);
    (void)tokens;
    if (o->rows[l]) {
        *k = o->pk[l] + at;
        *v = o->pv[l] + at;
    }
    return o->rows[l];
}

static double *row_of(double *x, int sample, int floats_)
{
    return x ? x + (size_t)sample * (size_t)floats_ : NULL;
}

static void oracle_sample(oracle *o, int sample)
{
    const sfp__vit_config *c = &o->vit.c;
    int side = c->img_size / c->patch_size, T = side * side + 1, D = c->dim;
    vit_oracle_pass pass = {.x = o->x + (size_t)sample * 3 * (size_t)(c->img_size * c->img_size),
                            .prefix = prefix_of,
                            .ctx = o,
                            .feature = row_of(o->feature, sample, D),
                            .embed = row_of(o->embed, sample, (T - 1) * D),
                            .class_attention = row_of(o->class_attention, sample, c->heads * T),
                            .normed = row_of(o->normed, sample, T * D)};
    for (int l = 0; l < c->depth; l++)
        pass.tokens[l] = row_of(o->tokens[l], sample, T * D);
    o->sample = sample;
    vit_oracle_forward(&o->vit, &pass);
}

/* ------------------------------------------------------------------- cases */

/* A tensor that the loss depends on: its value in double, which the oracle reads, and the engine's gradient. */
typedef struct tensor {
    char name[64];
    size_t count;
    double *value;
    float *grad;
} tensor;

typedef struct shape {
    const char *name;
    int S, P, D, H, F, depth;
    int rows[MAX_DEPTH];
    bool all_directions; /* each tensor separately; else all tensors of a kind at once (large models) */
    bool clip;           /* QuickGELU, a norm before the blocks, no patch bias */
} shape;

static const shape shapes[] = {
    {"one block, one head", 12, 4, 12, 1, 20, 1, {2}, true, false},
    {"two blocks, prefix in the last alone", 16, 8, 16, 2, 40, 2, {0, 5}, true, false},
    {"three blocks, different rows", 20, 4, 24, 3, 50, 3, {1, 0, 4}, true, false},
    {"four blocks, narrow MLP", 24, 8, 40, 4, 18, 4, {0, 3, 1, 0}, true, false},
    {"no prefix", 8, 8, 20, 2, 80, 2, {0, 0}, true, false},
    {"as CLIP, one block", 12, 4, 12, 1, 20, 1, {2}, true, true},
    {"as CLIP, three blocks", 16, 8, 24, 3, 50, 3, {1, 0, 4}, true, true},
    {"50 tokens, heads of 16", 28, 4, 32, 2, 64, 2, {4, 4}, false, false},
    {"weights wider than a panel", 16, 8, 384, 6, 1536, 2, {4, 2}, false, false},
};

typedef struct fixture {
    sfp__vit_config config;
    sfp__vit *vit;
    sfp__thread_pool *pool;
    float *x, *pk[MAX_DEPTH], *pv[MAX_DEPTH],
        *direction; /* (B, T, D) direction of the loss; (B, D) if the loss depends on features only */
    oracle o;
    tensor tensors[MAX_TENSORS];
    int count, weights; /* tensors [0, weights) are weights */
    bool nonlinear;     /* whether the loss is nonlinear */
    sfp__vit_weights grad;
    sfp__vit_prompt prompts[MAX_DEPTH];
} fixture;

static tensor *add_tensor(fixture *f, const char *name, const float *value, size_t count, float *grad)
{
    assert_true(f->count < MAX_TENSORS);
    tensor *t = &f->tensors[f->count++];
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->count = count;
    t->value = to_doubles(value, count);
    t->grad = grad;
    return t;
}

static fixture set_up(const shape *s, uint64_t seed)
{
    fixture made = {.config = VIT_EPS(1e-3f, s->S, s->P, s->D, s->depth, s->H, s->F, 0, 1, .classes = 5, .quick_gelu = s->clip,
                                      .pre_norm = s->clip, .no_patch_bias = s->clip)},
            *f = &made;
    const sfp__vit_config *c = &f->config;
    /* weights of about 1/sqrt(D): attention is neither uniform nor one-hot, so every part matters */
    float scale = s->D < 100 ? 0.25f : 0.05f;
    MUST(sfp__vit_random(c, seed, scale, &f->vit, &err));
    MUST(sfp__thread_pool_create(2, &f->pool, &err));
    MUST(sfp__vit_weights_create(c, &f->grad, &err));
    const sfp__vit_weights *w = &f->vit->weights;
    f->o.vit.c = *c;
#define COPY_FIELD(field, name, ndim, ...) \
    if (w->field)                          \
        f->o.vit.field = add_tensor(f, name, w->field, oracle_product(ndim, (const int[]){__VA_ARGS__}), f->grad.field)->value;
    SFP__VIT_GLOBAL_LIST(COPY_FIELD)
    if (c->pre_norm) {
        SFP__VIT_PRE_LIST(COPY_FIELD)
    }
#undef COPY_FIELD
    for (int l = 0; l < s->depth; l++) {
        char full[64];
#define COPY_FIELD(field, name, ndim, ...)                                                                                 \
    (void)snprintf(full, sizeof full, "blocks.%d.%s", l, name);                                                            \
    f->o.vit.blocks[l].field =                                                                                             \
        add_tensor(f, full, w->blocks[l].field, oracle_product(ndim, (const int[]){__VA_ARGS__}), f->grad.blocks[l].field) \
            ->value;
        SFP__VIT_BLOCK_LIST(COPY_FIELD)
#undef COPY_FIELD
    }
    f->weights = f->count;
    sfp__rng rng = sfp__rng_init(seed, 1);
    size_t pixels = (size_t)B * 3 * (size_t)(s->S * s->S);
    f->x = normals(&rng, pixels, 1);
    f->o.x = add_tensor(f, "pixels", f->x, pixels, filled(pixels, NAN))->value;
    for (int l = 0; l < s->depth; l++) {
        size_t n = (size_t)(B * s->rows[l] * s->D);
        f->o.rows[l] = s->rows[l];
        if (n == 0)
            continue;
        char name[64];
        f->pk[l] = normals(&rng, n, 1);
        f->pv[l] = normals(&rng, n, 1);
        (void)snprintf(name, sizeof name, "prefix keys %d", l);
        f->o.pk[l] = add_tensor(f, name, f->pk[l], n, filled(n, NAN))->value;
        (void)snprintf(name, sizeof name, "prefix values %d", l);
        f->o.pv[l] = add_tensor(f, name, f->pv[l], n, filled(n, NAN))->value;
    }
    f->direction = normals(&rng, (size_t)(B * (s->S / s->P * (s->S / s->P) + 1) * s->D), 1);
    f->o.feature = doubles((size_t)(B * s->D));
    return made;
}

static void tear_down(fixture *f)
{
    sfp__vit_weights_done(&f->config, &f->grad);
    sfp__vit_free(f->vit);
    sfp__thread_pool_free(f->pool);
}

/* Returns the loss of a sample's feature (or of one of its tokens): r.f, or sin(r.f) + |f|^2 / 2. grad: NULL or its gradient. */
static double loss_of(const fixture *f, const double *feature, int sample, double *grad)
{
    int D = f->config.dim;
    const float *r = f->direction + sample * D;
    double s = 0, norm = 0;
    for (int i = 0; i < D; i++) {
        s += (double)r[i] * feature[i];
        norm += feature[i] * feature[i] / 2;
    }
    for (int i = 0; grad && i < D; i++)
        grad[i] = f->nonlinear ? cos(s) * (double)r[i] + feature[i] : (double)r[i];
    return f->nonlinear ? sin(s) + norm : s;
}

static double oracle_loss(fixture *f)
{
    double loss = 0;
    for (int i = 0; i < B; i++) {
        oracle_sample(&f->o, i);
        if (!f->o.normed)
            loss += loss_of(f, f->o.feature + i * f->config.dim, i, NULL);
    }
    for (int i = 0; f->o.normed && i < B * f->vit->tokens; i++)
        loss += loss_of(f, f->o.normed + i * f->config.dim, i, NULL);
    return loss;
}

static void head(void *ctx, int first, int n, const float *feature, float *grad)
{
    const fixture *f = ctx;
    int D = f->config.dim;
    for (int i = 0; i < n; i++) {
        double in[512] = {0}, g[512];
        for (int k = 0; k < D; k++)
            in[k] = (double)feature[i * D + k];
        (void)loss_of(f, in, first + i, g);
        for (int k = 0; k < D; k++)
            grad[i * D + k] = (float)g[k];
    }
}

static void token_head(void *ctx, int lane, int first, int n, const float *tokens, float *grad)
{
    const fixture *f = ctx;
    int T = f->vit->tokens;
    assert_true(lane >= 0 && lane < sfp__thread_pool_size(f->pool));
    head(ctx, first * T, n * T, tokens, grad);
}

static const tensor *find(const fixture *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

/* Returns a pass over the fixture's batch with all prefixes and, with a backward mode, all gradients. */
static sfp__vit_pass make_pass(fixture *f, int mode)
{
    sfp__vit_pass p = {.b = B, .x = f->x, .prompts = f->prompts, .head = mode ? head : NULL, .head_ctx = f};
    for (int l = 0; l < f->config.depth; l++) {
        f->prompts[l] = (sfp__vit_prompt){.rows = f->o.rows[l], .k = f->pk[l], .v = f->pv[l]};
        char name[64];
        (void)snprintf(name, sizeof name, "prefix keys %d", l);
        const tensor *k = find(f, name);
        (void)snprintf(name, sizeof name, "prefix values %d", l);
        const tensor *v = find(f, name);
        if (k && v && mode) {
            f->prompts[l].grad_k = k->grad;
            f->prompts[l].grad_v = v->grad;
        }
    }
    if (mode & SFP__VIT_GRAD_WEIGHTS)
        p.grad_w = &f->grad;
    if (mode & SFP__VIT_GRAD_INPUT)
        p.grad_x = find(f, "pixels")->grad;
    return p;
}

static void run(fixture *f, const sfp__vit_pass *pass, int mode, bool all_tokens, int microbatch)
{
    sfp__vit_plan_options opt = {.mode = mode, .prefix_rows = MAX_ROWS, .microbatch_size = microbatch, .all_tokens = all_tokens};
    opt.token_head = pass->token_head || pass->normed;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    MUST(sfp__vit_plan_create(f->vit, f->pool, &opt, &plan, &err));
    MUST(sfp__vit_run(plan, pass, &err));
}

/* ------------------------------------------------------------------- tests */

static void check_oracle(const shape *s, const char *what, const float *got, const double *want, size_t n)
{
    float *w = floats(n);
    char text[128];
    for (size_t i = 0; i < n; i++)
        w[i] = (float)want[i];
    (void)snprintf(text, sizeof text, "%s: %s", s->name, what);
    check_near(text, got, w, n, 2e-5);
}

TEST(outputs_equal_the_oracle)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int mode = 0; mode < 2; mode++)
            for (int all = 0; all < 2; all++) {
                const shape *s = &shapes[i];
                if (!s->all_directions && mode != all)
                    continue; /* large models in two of the four modes */
                OWNED_BY(tear_down) fixture f = set_up(s, 100 + i);
                int side = s->S / s->P, L = side * side, T = L + 1, D = s->D;
                size_t nf = (size_t)(B * D), ne = (size_t)(B * L * D), nt = (size_t)(B * T * D), na = (size_t)(B * s->H * T);
                sfp__vit_pass p = make_pass(&f, mode ? SFP__VIT_GRAD_PREFIX : SFP__VIT_FORWARD);
                float *tokens[MAX_DEPTH] = {0};
                p.tokens = tokens;
                p.feature = floats(nf);
                p.embed = floats(ne);
                p.class_attention = floats(na);
                f.o.embed = doubles(ne);
                f.o.class_attention = doubles(na);
                for (int l = 0; l < s->depth - !all; l++) {
                    tokens[l] = floats(nt);
                    f.o.tokens[l] = doubles(nt);
                }
                run(&f, &p, mode ? SFP__VIT_GRAD_PREFIX : SFP__VIT_FORWARD, all, 2);
                (void)oracle_loss(&f);
                check_oracle(s, "embed", p.embed, f.o.embed, ne);
                for (int l = 0; l < s->depth - !all; l++)
                    check_oracle(s, "tokens", tokens[l], f.o.tokens[l], nt);
                check_oracle(s, "class attention", p.class_attention, f.o.class_attention, na);
                check_oracle(s, "feature", p.feature, f.o.feature, nf);
            }
}

/* Checks grad . direction against the oracle's central difference along it, for tensors [from, to). */
static void check_direction(fixture *f, const shape *s, int from, int to, sfp__rng *rng)
{
    if (RACES_ONLY)
        return;
    const double h = 1e-5;
    double got = 0, loss[2], size = 0;
    double *kept[MAX_TENSORS] = {0}, *direction[MAX_TENSORS] = {0};
    for (int i = from; i < to; i++) {
        tensor *t = &f->tensors[i];
        direction[i] = doubles(t->count);
        kept[i] = doubles(t->count);
        memcpy(kept[i], t->value, t->count * sizeof *t->value);
        double sd = 1 / sqrt((double)t->count);
        for (size_t k = 0; k < t->count; k++) {
            direction[i][k] = sd * sfp__rng_normal(rng);
            got += direction[i][k] * (double)t->grad[k];
            size += (double)t->grad[k] * (double)t->grad[k] * sd * sd;
        }
    }
    for (int side = 0; side < 2; side++) {
        for (int i = from; i < to; i++)
            for (size_t k = 0; k < f->tensors[i].count; k++)
                f->tensors[i].value[k] = kept[i][k] + (side ? h : -h) * direction[i][k];
        loss[side] = oracle_loss(f);
    }
    double want = (loss[1] - loss[0]) / (2 * h);
    for (int i = from; i < to; i++) {
        memcpy(f->tensors[i].value, kept[i], f->tensors[i].count * sizeof(double));
    }
    /* size: expected magnitude of the product for a random direction */
    if (!(fabs(got - want) <= 1e-4 * sqrt(size) + 1e-8))
        fail_msg("%s (%s loss): along %s%s the gradient gives %.9g, the central difference %.9g (size %.3g)", s->name,
                 f->nonlinear ? "nonlinear" : "linear", f->tensors[from].name, to > from + 1 ? " and more" : "", got, want,
                 sqrt(size));
}

static void check_gradients(fixture *f, const shape *s, int from, int to, sfp__rng *rng)
{
    if (!s->all_directions) {
        check_direction(f, s, from, to, rng);
        return;
    }
    for (int i = from; i < to; i += SAMPLE_EVERY)
        check_direction(f, s, i, i + 1, rng);
}

TEST(gradients_equal_central_differences_of_the_oracle)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int nonlinear = 0; nonlinear < 2; nonlinear++) {
            const shape *s = &shapes[i];
            OWNED_BY(tear_down) fixture f = set_up(s, 200 + i);
            sfp__rng rng = sfp__rng_init(200 + i, 2);
            f.nonlinear = nonlinear;
            int mode = SFP__VIT_GRAD_PREFIX | SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT;
            sfp__vit_pass p = make_pass(&f, mode);
            run(&f, &p, mode, false, 0);
            check_gradients(&f, s, 0, f.weights, &rng);
            check_gradients(&f, s, f.weights, f.count, &rng);
            for (size_t k = 0; k < (size_t)(f.config.classes * s->D); k++) /* the head is the caller's */
                assert_true(f.grad.head_w[k] == 0);
        }
}

TEST(gradients_of_a_loss_over_all_tokens_equal_the_oracles)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        OWNED_BY(tear_down) fixture f = set_up(s, 250 + i);
        sfp__rng rng = sfp__rng_init(250 + i, 2);
        f.nonlinear = true;
        int mode = SFP__VIT_GRAD_PREFIX | SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT;
        size_t nt = (size_t)(B * f.vit->tokens * s->D), nf = (size_t)(B * s->D);
        sfp__vit_pass p = make_pass(&f, mode);
        p.token_head = token_head;
        p.normed = floats(nt);
        p.feature = floats(nf);
        f.o.normed = doubles(nt);
        run(&f, &p, mode, false, i % 2 ? 1 : 2);
        (void)oracle_loss(&f);
        check_oracle(s, "normed", p.normed, f.o.normed, nt);
        check_oracle(s, "feature", p.feature, f.o.feature, nf);
        check_gradients(&f, s, 0, f.weights, &rng);
        check_gradients(&f, s, f.weights, f.count, &rng);
    }
}

/* The learner's case: gradients of prefixes only, in all layers or in some. They must equal those of the full backward pass. */
TEST(prefix_gradients_do_not_depend_on_other_requested_gradients)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        OWNED_BY(tear_down) fixture f = set_up(s, 300 + i);
        sfp__rng rng = sfp__rng_init(300 + i, 2);
        f.nonlinear = true;
        sfp__vit_pass p = make_pass(&f, SFP__VIT_GRAD_PREFIX);
        run(&f, &p, SFP__VIT_GRAD_PREFIX, false, 0);
        if (f.count > f.weights + 1)
            check_gradients(&f, s, f.weights + 1, f.count, &rng);
        for (int only = 0; only < s->depth; only++)
            for (int all = 0; all < 2; all++) {
                size_t n = (size_t)(B * s->rows[only] * s->D);
                if (n == 0)
                    continue;
                sfp__vit_pass one = p;
                sfp__vit_prompt alone[MAX_DEPTH];
                for (int l = 0; l < s->depth; l++)
                    alone[l] = (sfp__vit_prompt){.rows = p.prompts[l].rows, .k = p.prompts[l].k, .v = p.prompts[l].v};
                alone[only].grad_k = filled(n, NAN);
                alone[only].grad_v = filled(n, NAN);
                one.prompts = alone;
                run(&f, &one, SFP__VIT_GRAD_PREFIX, all, 0);
                check_near("keys of one layer", alone[only].grad_k, p.prompts[only].grad_k, n, 5e-5);
                check_near("values of one layer", alone[only].grad_v, p.prompts[only].grad_v, n, 5e-5);
            }
    }
}

TEST(all_tokens_and_class_only_give_the_same)
{
    int mode = SFP__VIT_GRAD_PREFIX | SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        OWNED_BY(tear_down) fixture a = set_up(&shapes[i], 400 + i), b = set_up(&shapes[i], 400 + i);
        a.nonlinear = b.nonlinear = true;
        sfp__vit_pass pa = make_pass(&a, mode), pb = make_pass(&b, mode);
        size_t nf = (size_t)(B * shapes[i].D);
        pa.feature = floats(nf), pb.feature = floats(nf);
        run(&a, &pa, mode, false, 0);
        run(&b, &pb, mode, true, 0);
        check_near("feature", pb.feature, pa.feature, nf, 1e-5);
        for (int t = 0; t < a.count; t++) {
            char text[128];
            (void)snprintf(text, sizeof text, "%s: %s", shapes[i].name, a.tensors[t].name);
            check_near(text, b.tensors[t].grad, a.tensors[t].grad, a.tensors[t].count, 1e-4);
        }
    }
}

TEST(weight_gradients_are_accumulated)
{
    OWNED_BY(tear_down) fixture f = set_up(&shapes[2], 500);
    sfp__vit_pass p = make_pass(&f, SFP__VIT_GRAD_WEIGHTS);
    run(&f, &p, SFP__VIT_GRAD_WEIGHTS, false, 1);
    float *once[MAX_TENSORS];
    for (int t = 0; t < f.weights; t++)
        once[t] = copied(f.tensors[t].grad, f.tensors[t].count);
    run(&f, &p, SFP__VIT_GRAD_WEIGHTS, false, 1);
    for (int t = 0; t < f.weights; t++) {
        for (size_t k = 0; k < f.tensors[t].count; k++)
            once[t][k] *= 2;
        check_near(f.tensors[t].name, f.tensors[t].grad, once[t], f.tensors[t].count, 1e-6);
    }
}
