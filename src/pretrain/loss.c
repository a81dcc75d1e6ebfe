/* The loss of pretraining and its layers: values and gradients, one lane per thread. The terms are described in
 * pretrain_internal.h. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

typedef struct lane {
    float *grad; /* (count) gradients of the parameters */
    double sum[SFP__TERMS];
    float *cls;    /* (n, D) class tokens */
    float *dcls;   /* (n, D) */
    float *patch;  /* (n*L, D) patch tokens */
    float *dpatch; /* (n*L, D) */
    float *pred;   /* (n*L, Dt) output of a layer, then its gradient */
    float *target; /* (n, 1 + L, Dt) */
    float *tcls;   /* (n, Dt) the teacher's class token, not standardised */
    float *logits; /* (n, max(student classes, teacher classes)) */
    float *tlogits;
    float *block; /* the memory of all arrays above */
} lane;

/* y = W x + b. w and b are offsets into the parameters. */
typedef struct layer {
    int out; /* 0: the layer is not used */
    size_t w, b;
} layer;

struct sfp__loss {
    sfp__loss_options opt;
    const sfp__image_set *images;
    const sfp__teacher *teacher;
    int D, T, L, Dt, classes;
    layer label, logits, to_class, to_patch;
    size_t count;
    int lanes;
    lane *lane;
    /* the current pass */
    const sfp__view_batch *batch;
    int b;
    const float *params;
};

const char *sfp__pretrain_term_name(int term)
{
    static const char *const names[SFP__TERMS] = {"label", "class", "patch", "logits"};
    return names[term];
}

/* ------------------------------------------------------------------ layers */

static layer add_layer(sfp__loss *l, int out)
{
    layer a = {.out = out, .w = l->count};
    a.b = a.w + ((size_t)out * (size_t)l->D + 15) / 16 * 16;
    l->count = a.b + ((size_t)out + 15) / 16 * 16;
    return a;
}

static sfp_status lane_init(const sfp__loss *l, size_t n, lane *a, sfp_error *err)
{
    size_t D = (size_t)l->D, L = (size_t)l->L, Dt = (size_t)l->Dt;
    size_t max_classes = (size_t)(l->label.out > l->logits.out ? l->label.out : l->logits.out);
    const size_t count[] = {l->count,         n * D,  n * D,           n * L * D,      n * L * D, n * L * Dt,
                            n * (1 + L) * Dt, n * Dt, n * max_classes, n * max_classes};
    float **const to[] = {&a->grad, &a->cls,    &a->dcls, &a->patch,  &a->dpatch,
                          &a->pred, &a->target, &a->tcls, &a->logits, &a->tlogits};
    enum { ARRAYS = sizeof to / sizeof *to };
    sfp__want list[ARRAYS];
    for (size_t i = 0; i < ARRAYS; i++)
        list[i] = (sfp__want){to[i], count[i], sizeof(float)};
    TRY(sfp__block(&a->block, SFP__LIST(list), err));
    for (size_t i = 0; i < ARRAYS; i++)
        memset(*to[i], 0, count[i] * sizeof(float));
    return SFP_OK;
}

sfp_status sfp__loss_create(const sfp__loss_options *o, const sfp__vit_config *student, const sfp__image_set *images,
                            const sfp__teacher *teacher, int lanes, int max_samples, sfp__loss **out, sfp_error *err)
{
    OWNED_PTR(sfp__loss_free) sfp__loss *l = NULL;
    TRY(sfp__alloc(&l, 1, sizeof *l, err));
    int side = student->img_size / student->patch_size;
    *l = (sfp__loss){.opt = *o, .images = images, .teacher = teacher, .D = student->dim, .L = side * side, .T = side * side + 1};
    l->Dt = teacher ? teacher->dim : 0;
    double *w = l->opt.weight;
    if (!teacher)
        w[SFP__TERM_CLASS] = w[SFP__TERM_PATCH] = 0;
    if (!teacher || !teacher->classes)
        w[SFP__TERM_LOGITS] = 0;
    if (images->classes < 2)
        w[SFP__TERM_LABEL] = 0;
    if (w[SFP__TERM_LABEL] > 0)
        l->label = add_layer(l, images->classes);
    if (teacher && w[SFP__TERM_LOGITS] > 0)
        l->logits = add_layer(l, teacher->classes);
    if (w[SFP__TERM_CLASS] > 0 && l->Dt != l->D)
        l->to_class = add_layer(l, l->Dt);
    if (w[SFP__TERM_PATCH] > 0)
        l->to_patch = add_layer(l, l->Dt);
    if (!(w[SFP__TERM_LABEL] + w[SFP__TERM_CLASS] + w[SFP__TERM_PATCH] + w[SFP__TERM_LOGITS] > 0))
        return sfp__fail(err, SFP_EINVAL, "the loss has no term: expected labels or a teacher, and a weight of the loss above 0");
    TRY(sfp__alloc(&l->lane, (size_t)lanes, sizeof *l->lane, err));
    l->lanes = lanes;
    for (int i = 0; i < lanes; i++)
        TRY(lane_init(l, (size_t)max_samples, &l->lane[i], err));
    *out = TAKE(l);
    return SFP_OK;
}

void sfp__loss_free(sfp__loss *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->lanes; i++)
        sfp__free(l->lane[i].block);
    sfp__free(l->lane);
    sfp__free(l);
}

size_t sfp__loss_count(const sfp__loss *l)
{
    return l->count;
}

void sfp__loss_init(const sfp__loss *l, uint64_t seed, float *params)
{
    const layer *layers[] = {&l->label, &l->logits, &l->to_class, &l->to_patch};
    memset(params, 0, l->count * sizeof *params);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        sfp__rng r = sfp__draw(seed, SFP__DRAW_WEIGHTS, i, 0);
        double edge = sqrt(6.0 / (l->D + layers[i]->out));
        for (size_t k = 0; k < (size_t)layers[i]->out * (size_t)l->D; k++)
            params[layers[i]->w + k] = (float)(edge * (2 * sfp__rng_double(&r) - 1));
    }
}

void sfp__loss_decays(const sfp__loss *l, uint8_t *decays)
{
    const layer *layers[] = {&l->label, &l->logits, &l->to_class, &l->to_patch};
    memset(decays, 0, l->count);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        memset(decays + layers[i]->w, 1, (size_t)layers[i]->out * (size_t)l->D);
}

static bool is_used(const sfp__loss *l, int term)
{
    return l->opt.weight[term] > 0;
}

bool sfp__loss_all_tokens(const sfp__loss *l)
{
    return is_used(l, SFP__TERM_PATCH);
}

const float *sfp__loss_label_head(const sfp__loss *l, const float *params, const float **bias)
{
    *bias = l->label.out ? params + l->label.b : NULL;
    return l->label.out ? params + l->label.w : NULL;
}

/* y (m, out) = x W^T + b */
static void layer_fwd(const sfp__loss *l, const layer *a, int m, const float *x, float *y)
{
    for (int i = 0; i < m; i++)
        memcpy(y + (size_t)i * (size_t)a->out, l->params + a->b, (size_t)a->out * sizeof *y);
    sfp__gemm_plain(false, true, m, a->out, l->D, x, l->D, l->params + a->w, l->D, 1.0f, y, a->out);
}

/* dx (m, D) = dy W + beta dx. Adds the gradients of the layer to those of the lane. */
static void layer_bwd(const sfp__loss *l, lane *n, const layer *a, int m, const float *x, const float *dy, float beta, float *dx)
{
    sfp__gemm_plain(true, false, a->out, l->D, m, dy, a->out, x, l->D, 1.0f, n->grad + a->w, l->D);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < a->out; k++)
            n->grad[a->b + (size_t)k] += dy[(size_t)i * (size_t)a->out + (size_t)k];
    sfp__gemm_plain(false, false, m, l->D, a->out, dy, a->out, l->params + a->w, l->D, beta, dx, l->D);
}

/* ------------------------------------------------------------------- terms */

/* Replaces z by softmax(z / temperature). Returns log(sum exp(z / temperature - *top)), where *top is the maximum. */
static double softmax(int n, float *z, double temperature, double *top)
{
    double max = -INFINITY, sum = 0;
    for (int k = 0; k < n; k++)
        max = fmax(max, (double)z[k] / temperature);
    for (int k = 0; k < n; k++)
        sum += (double)(z[k] = (float)exp((double)z[k] / temperature - max));
    for (int k = 0; k < n; k++)
        z[k] = (float)((double)z[k] / sum);
    *top = max;
    return log(sum);
}

/* Adds `share` times the smoothed label of an image to t (classes). Returns the added mass; 0: the image has no label. */
static double add_label(const sfp__loss *l, int64_t image, double share, float *t)
{
    int32_t label = l->images->label[image];
    int C = l->label.out;
    if (label < 0 || share <= 0)
        return 0;
    for (int k = 0; k < C; k++)
        t[k] += (float)(share * l->opt.smoothing / C);
    t[label] += (float)(share * (1 - l->opt.smoothing));
    return share;
}

/* Returns the cross-entropy with t, whose sum is `mass`; replaces z by `scale` times the gradient. */
static double cross_entropy(int n, float *z, const float *t, double mass, double temperature, double scale)
{
    double linear = 0, top, sum;
    for (int k = 0; k < n; k++)
        linear += (double)t[k] * (double)z[k] / temperature;
    sum = softmax(n, z, temperature, &top);
    for (int k = 0; k < n; k++)
        z[k] = (float)(scale * (mass * (double)z[k] - (double)t[k]));
    return mass * (sum + top) - linear;
}

static void label_term(const sfp__loss *l, lane *a, int first, int n)
{
    const sfp__view_batch *m = l->batch;
    int C = l->label.out;
    layer_fwd(l, &l->label, n, a->cls, a->logits);
    for (int i = 0; i < n; i++) {
        float *z = a->logits + (size_t)i * (size_t)C, *t = a->tlogits;
        memset(t, 0, (size_t)C * sizeof *t);
        double mass = add_label(l, m->image[first + i], (double)m->share, t) +
                      add_label(l, m->image[l->b - 1 - first - i], 1 - (double)m->share, t);
        a->sum[SFP__TERM_LABEL] += cross_entropy(C, z, t, mass, 1, l->opt.weight[SFP__TERM_LABEL] / l->b);
    }
    layer_bwd(l, a, &l->label, n, a->cls, a->logits, 1.0f, a->dcls);
}

/* The teacher's outputs for a sample of the batch. */
static const uint16_t *entry_of(const sfp__loss *l, int sample)
{
    return l->batch->entries + (size_t)sample * sfp__teacher_entry_floats(l->teacher);
}

/* The teacher's head is linear, so its logits of a mixed sample are those of the mixed class token. */
static void logits_term(const sfp__loss *l, lane *a, int first, int n)
{
    const sfp__view_batch *m = l->batch;
    double temperature = l->opt.temperature;
    int C = l->logits.out, Dt = l->Dt;
    for (int i = 0; i < n; i++) {
        float *own = a->tcls + (size_t)i * (size_t)Dt, *mate = a->pred;
        int k = l->b - 1 - first - i;
        sfp__teacher_class(l->teacher, entry_of(l, first + i), own);
        if (m->share >= 1)
            continue;
        sfp__teacher_class(l->teacher, entry_of(l, k), mate);
        for (int c = 0; c < Dt; c++)
            own[c] = m->share * own[c] + (1 - m->share) * mate[c];
    }
    (void)sfp__vit_head(l->teacher->vit, n, a->tcls, a->tlogits,
                        NULL); /* the teacher has a head, else the weight of this term is 0 */
    layer_fwd(l, &l->logits, n, a->cls, a->logits);
    for (int i = 0; i < n; i++) {
        float *z = a->logits + (size_t)i * (size_t)C, *t = a->tlogits + (size_t)i * (size_t)C;
        double top, entropy = 0;
        (void)softmax(C, t, temperature, &top);
        for (int k = 0; k < C; k++)
            entropy -= t[k] > 0 ? (double)t[k] * log((double)t[k]) : 0;
        double value = cross_entropy(C, z, t, 1, temperature, temperature * l->opt.weight[SFP__TERM_LOGITS] / l->b) - entropy;
        a->sum[SFP__TERM_LOGITS] += temperature * temperature * value;
    }
    layer_bwd(l, a, &l->logits, n, a->cls, a->logits, 1.0f, a->dcls);
}

/* Returns the sum of smooth L1 (quadratic below 1) of x - t over n numbers; replaces x by `scale` times the gradient. */
static double smooth_l1(size_t n, float *x, const float *t, float scale)
{
    float sum = 0;
    for (size_t k = 0; k < n; k++) {
        float d = x[k] - t[k], size = fabsf(d);
        sum += size < 1 ? 0.5f * d * d : size - 0.5f;
        x[k] = scale * (d > 1 ? 1 : d < -1 ? -1 : d);
    }
    return (double)sum;
}

/* Returns 1 - cos(x, t) of n numbers; replaces x by `scale` times the gradient. */
static double cosine_distance(int n, float *x, const float *t, double scale)
{
    double xx = (double)sfp__dot(n, x, x), tt = (double)sfp__dot(n, t, t), xt = (double)sfp__dot(n, x, t);
    double size = sqrt(fmax(xx * tt, 1e-12)), cosine = xt / size;
    float own = (float)(scale * cosine / fmax(xx, 1e-12)), other = (float)(-scale / size);
    for (int k = 0; k < n; k++)
        x[k] = own * x[k] + other * t[k];
    return 1 - cosine;
}

static void class_term(const sfp__loss *l, lane *a, int n)
{
    int D = l->D, Dt = l->Dt;
    double scale = l->opt.weight[SFP__TERM_CLASS] / l->b;
    float *pred = a->pred;
    if (l->to_class.out)
        layer_fwd(l, &l->to_class, n, a->cls, pred);
    else
        memcpy(pred, a->cls, (size_t)n * (size_t)D * sizeof *pred);
    for (int i = 0; i < n; i++)
        a->sum[SFP__TERM_CLASS] +=
            cosine_distance(Dt, pred + (size_t)i * (size_t)Dt, a->target + (size_t)i * (size_t)l->T * (size_t)Dt, scale);
    if (l->to_class.out)
        layer_bwd(l, a, &l->to_class, n, a->cls, pred, 1.0f, a->dcls);
    else
        for (size_t k = 0; k < (size_t)n * (size_t)D; k++)
            a->dcls[k] += pred[k];
}

/* Writes the gradient of the patch tokens into grad (n, T, D). */
static void patch_term(const sfp__loss *l, lane *a, int n, float *grad)
{
    size_t Dt = (size_t)l->Dt, L = (size_t)l->L, D = (size_t)l->D;
    float scale = (float)(l->opt.weight[SFP__TERM_PATCH] / (l->b * (double)(L * Dt)));
    layer_fwd(l, &l->to_patch, n * l->L, a->patch, a->pred);
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t t = 0; t < L; t++)
            a->sum[SFP__TERM_PATCH] +=
                smooth_l1(Dt, a->pred + (i * L + t) * Dt, a->target + (i * (1 + L) + 1 + t) * Dt, scale) / (double)(L * Dt);
    layer_bwd(l, a, &l->to_patch, n * l->L, a->patch, a->pred, 0.0f, a->dpatch);
    for (size_t i = 0; i < (size_t)n; i++)
        memcpy(grad + (i * (1 + L) + 1) * D, a->dpatch + i * L * D, L * D * sizeof *grad);
}

/* -------------------------------------------------------------------- pass */

void sfp__loss_begin(sfp__loss *l, const sfp__view_batch *batch, int b, const float *params)
{
    l->batch = batch;
    l->b = b;
    l->params = params;
    for (int i = 0; i < l->lanes; i++) {
        memset(l->lane[i].grad, 0, l->count * sizeof(float));
        memset(l->lane[i].sum, 0, sizeof l->lane[i].sum);
    }
}

static void make_targets(const sfp__loss *l, lane *a, int first, int n)
{
    const sfp__view_batch *m = l->batch;
    size_t floats = (size_t)l->T * (size_t)l->Dt;
    memset(a->target, 0, (size_t)n * floats * sizeof *a->target);
    for (int i = 0; i < n; i++) {
        float *t = a->target + (size_t)i * floats;
        int k = l->b - 1 - first - i;
        sfp__teacher_add(l->teacher, entry_of(l, first + i), m->mirrored[first + i], m->share, t);
        if (m->share < 1)
            sfp__teacher_add(l->teacher, entry_of(l, k), m->mirrored[k], 1 - m->share, t);
    }
}

void sfp__loss_tokens(void *loss, int lane_index, int first, int n, const float *tokens, float *grad)
{
    const sfp__loss *l = loss;
    lane *a = &l->lane[lane_index];
    size_t D = (size_t)l->D, T = sfp__loss_all_tokens(l) ? (size_t)l->T : 1;
    memset(grad, 0, (size_t)n * T * D * sizeof *grad);
    memset(a->dcls, 0, (size_t)n * D * sizeof *a->dcls);
    for (size_t i = 0; i < (size_t)n; i++) {
        memcpy(a->cls + i * D, tokens + i * T * D, D * sizeof *tokens);
        memcpy(a->patch + i * (T - 1) * D, tokens + (i * T + 1) * D, (T - 1) * D * sizeof *tokens);
    }
    if (is_used(l, SFP__TERM_LABEL))
        label_term(l, a, first, n);
    if (is_used(l, SFP__TERM_LOGITS))
        logits_term(l, a, first, n);
    if (is_used(l, SFP__TERM_CLASS) || is_used(l, SFP__TERM_PATCH))
        make_targets(l, a, first, n);
    if (is_used(l, SFP__TERM_CLASS))
        class_term(l, a, n);
    if (is_used(l, SFP__TERM_PATCH))
        patch_term(l, a, n, grad);
    for (size_t i = 0; i < (size_t)n; i++)
        memcpy(grad + i * T * D, a->dcls + i * D, D * sizeof *grad);
}

void sfp__loss_end(const sfp__loss *l, double value[SFP__TERMS], float *grad)
{
    for (int t = 0; t < SFP__TERMS; t++) {
        value[t] = is_used(l, t) ? 0 : NAN;
        for (int i = 0; i < l->lanes; i++)
            value[t] += l->lane[i].sum[t] / l->b;
    }
    for (size_t k = 0; k < l->count; k++) {
        grad[k] = 0;
        for (int i = 0; i < l->lanes; i++)
            grad[k] += l->lane[i].grad[k];
    }
}
