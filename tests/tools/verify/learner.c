/* The learner's part of a golden case: prefixes, scores, coreset, both losses and every gradient; the state after 1 and 5
 * steps and, after a task boundary, after 10. Updates are compared as differences from the state before them, because
 * optimiser errors show up there. */
#include "verify.h"

#include "base/mem.h"
#include "buffer/buffer.h"
#include "learner/trainer.h"
#include "select/select.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct learner_case {
    sfp__golden *g;
    sfp__verify *r;
    sfp__trainer *trainer;
    sfp__fp *fp;
    int b, mem, D, lo, hi, tasks, task, each, mask_rows;
    float *mem_x; /* (mem, 3, S, S) */
    int64_t *mem_y;
    void *block;                      /* owns all arrays below */
    float *mean_embed, *score, *unit; /* (b, D) (b) (D) */
    const float **xs;                 /* (b + mem) */
    int32_t *label;
    float *weight, *query, *known; /* (b + mem), (b + mem, D) in the order of a step, the same in the order x, mem_x */
    bool *masked;
    uint8_t *allowed; /* (classes) */
    int *work;        /* (6 * b): order, scratch of the selector, coreset */
    float losses[10];
    int steps;
} learner_case;

/* ------------------------------------------------------------------ reading */

static sfp_status config_number(const sfp__golden *g, const char *key, double min, double max, double *out, sfp_error *err)
{
    const sfp__json_value *v = sfp__json_get(g->config, key);
    bool boolean = sfp__json_is(v, SFP__JSON_TRUE) || sfp__json_is(v, SFP__JSON_FALSE);
    double x = boolean ? sfp__json_is(v, SFP__JSON_TRUE) : sfp__json_number(v);
    if (!v || (!sfp__json_is_number(v) && !boolean) || !(x >= min && x <= max))
        return sfp__fail(err, SFP_EFORMAT, "%s/config.json: '%s' is %s, expected %g to %g", g->dir, key,
                         v ? "out of range" : "missing", min, max);
    *out = x;
    return SFP_OK;
}

static sfp_status options_from(learner_case *c, sfp__trainer_options *o, sfp_error *err)
{
    const sfp__golden *g = c->g;
    double pool = 0, tasks = 0, task = 0, length = 0, attune = 0, residual = 0, topk = 0, mu = 0, lr = 0, lo = 0, hi = 0;
    const struct {
        const char *key;
        double min, max, *to;
    } list[] = {{"pool", 1, 65536, &pool},          {"tasks", 1, 65536, &tasks},       {"task", 0, 65535, &task},
                {"length", 2, 256, &length},        {"attune", 0, 1, &attune},         {"attune_residual", 0, 1, &residual},
                {"attune_topk", 1, 3, &topk},       {"ortho_mu", 0, 1e6, &mu},         {"lr", 0, 1e3, &lr},
                {"classes_lo", 0, g->classes, &lo}, {"classes_hi", 0, g->classes, &hi}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        TRY(config_number(g, list[i].key, list[i].min, list[i].max, list[i].to, err));
    const sfp__json_value *layers = sfp__json_get(g->config, "layers");
    size_t n = sfp__json_size(layers);
    if (n < 1)
        return sfp__fail(err, SFP_EFORMAT, "%s/config.json: 'layers' is not a list of layers", g->dir);
    o->fp = sfp__fp_options_defaults();
    o->fp.first_layer = (int)sfp__json_integer(sfp__json_at(layers, 0));
    o->fp.last_layer = o->fp.first_layer + (int)n - 1;
    o->fp.pool = (int)pool;
    o->fp.tasks = (int)tasks;
    o->fp.length = (int)length;
    o->fp.attune = attune > 0;
    o->fp.attune_residual = residual > 0;
    o->fp.attune_topk = (int)topk;
    o->fp.ortho_mu = (float)mu;
    o->fp.classes = g->classes;
    o->adam = sfp__adam_defaults();
    o->adam.lr = (float)lr;
    o->max_batch = c->b + c->mem;
    c->tasks = (int)tasks;
    c->task = (int)task;
    c->each = (int)pool / (int)tasks;
    c->lo = (int)lo;
    c->hi = (int)hi;
    return SFP_OK;
}

/* Loads all learnable values from a state file, with the component range of `task` and a fresh Adam. */
static sfp_status load_state(learner_case *c, const sfp__tensor_file *st, int task, sfp_error *err)
{
    int count;
    sfp__param **params = sfp__fp_params(c->fp, &count);
    for (int i = 0; i < count; i++) {
        OWNED float *values = NULL;
        TRY(sfp__verify_floats(st, params[i]->name, params[i]->shape, params[i]->ndim, &values, err));
        memcpy(params[i]->data, values, (size_t)params[i]->rows * params[i]->width * sizeof *values);
        sfp__param_reset_adam(params[i], 0, params[i]->rows);
    }
    return sfp__fp_restore(c->fp, task, task * c->each, (task + 1) * c->each, err);
}

static sfp_status prepare(learner_case *c, sfp_error *err)
{
    sfp__golden *g = c->g;
    const sfp__vit_config *v = &g->vit->config;
    const sfp__tensor *mem;
    TRY(sfp__tensor_file_need(g->batch, "mem_x", &mem, err));
    if (mem->ndim != 4 || mem->shape[0] < 1 || mem->shape[0] > 100000)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'mem_x' holds no images", g->batch->path);
    c->b = g->b;
    c->mem = (int)mem->shape[0];
    c->D = v->dim;
    sfp__trainer_options o = {0};
    TRY(sfp__verify_floats(g->batch, "mem_x", (int64_t[]){c->mem, 3, v->img_size, v->img_size}, 4, &c->mem_x, err));
    TRY(sfp__verify_labels(g->batch, "mem_y", c->mem, g->classes, &c->mem_y, err));
    TRY(options_from(c, &o, err));
    TRY(sfp__trainer_create(g->vit, c->r->pool, &o, &c->trainer, err));
    c->fp = sfp__trainer_fp(c->trainer);
    size_t n = (size_t)(c->b + c->mem), b = (size_t)c->b, D = (size_t)c->D;
    const sfp__want list[] = {{&c->mean_embed, b * D, sizeof(float)}, {&c->score, b, sizeof(float)},
                              {&c->unit, D, sizeof(float)},           {&c->xs, n, sizeof *c->xs},
                              {&c->label, n, sizeof *c->label},       {&c->weight, n, sizeof *c->weight},
                              {&c->query, n * D, sizeof(float)},      {&c->known, n * D, sizeof(float)},
                              {&c->masked, n, sizeof *c->masked},     {&c->allowed, (size_t)g->classes, 1},
                              {&c->work, 6 * b, sizeof *c->work}};
    TRY(sfp__block_cleared(&c->block, SFP__LIST(list), err));
    for (int i = c->lo; i < c->hi; i++)
        c->allowed[i] = 1;
    return load_state(c, g->state, c->task, err);
}

static void case_done(learner_case *c)
{
    sfp__trainer_free(c->trainer);
    sfp__free(c->mem_x);
    sfp__free(c->mem_y);
    sfp__free(c->block);
}

/* ---------------------------------------------------------------- computing */

static size_t pixels(const learner_case *c)
{
    size_t side = (size_t)c->g->vit->config.img_size;
    return 3 * side * side;
}

/* Puts sample i of x, or of mem_x, at place `at` of a step. */
static void place(learner_case *c, int at, int i, bool mem, float weight, bool masked)
{
    c->xs[at] = (mem ? c->mem_x : c->g->x) + (size_t)i * pixels(c);
    c->label[at] = (int32_t)(mem ? c->mem_y[i] : c->g->y[i]);
    c->weight[at] = weight;
    c->masked[at] = masked;
    memcpy(c->query + (size_t)at * (size_t)c->D, c->known + (size_t)(mem ? c->b + i : i) * (size_t)c->D,
           (size_t)c->D * sizeof(float));
}

static sfp__train_batch batch_of(learner_case *c, int n, int queries, int terms)
{
    return (sfp__train_batch){.n = n,
                              .x = c->xs,
                              .label = c->label,
                              .weight = c->weight,
                              .masked = c->masked,
                              .allowed = c->allowed,
                              .query = c->query,
                              .queries = queries,
                              .terms = terms};
}

/* Computes the scores of x and a coreset of half of it. The window of the reference has two halves of floor(c/2): it is ours without
 * the last sample of an odd c. Returns the size of the coreset. */
static int pick(learner_case *c, int *picked)
{
    const sfp__select_options half = {.sigma = 0.5};
    sfp__fp_mean_unit(c->fp, c->unit);
    for (int i = 0; i < c->b; i++) {
        double s = 0;
        for (int k = 0; k < c->D; k++)
            s += (double)c->mean_embed[(size_t)i * (size_t)c->D + (size_t)k] * (double)c->unit[k];
        c->score[i] = (float)s;
    }
    int *order = c->work;
    sfp__rank_descending(c->b, c->score, order);
    int n = sfp__coreset_window(c->b, order, &half, picked);
    return n > 1 ? n / 2 * 2 : n;
}

static sfp_status check_selection(learner_case *c, sfp_error *err)
{
    sfp__golden *g = c->g;
    const sfp__tensor *t;
    int *picked = c->work + 5 * c->b, n = pick(c, picked);
    OWNED int64_t *want = NULL;
    TRY(sfp__verify_compare(c->r, g, "similarity", c->score, (int64_t[]){c->b}, 1, SFP_VERIFY_VALUE, err));
    TRY(sfp__tensor_file_need(g->expect, "coreset_half", &t, err));
    TRY(sfp__verify_labels(g->expect, "coreset_half", (int)t->count, c->b, &want, err));
    bool same = n == (int)t->count;
    for (int i = 0; same && i < n; i++)
        same = picked[i] == want[i];
    sfp__verify_line(c->r, "coreset_half", same ? 0 : INFINITY, 0);
    sfp__verify_mark(g, "coreset_half");
    OWNED double *pi = NULL;
    OWNED float *pif = NULL;
    TRY(sfp__alloc(&pi, (size_t)c->b, sizeof *pi, err));
    TRY(sfp__alloc(&pif, (size_t)c->b, sizeof *pif, err));
    sfp__rank_probability(c->b, c->score, c->work, pi);
    for (int i = 0; i < c->b; i++)
        pif[i] = (float)pi[i];
    return sfp__verify_compare(c->r, g, "rank_probability", pif, (int64_t[]){c->b}, 1, SFP_VERIFY_VALUE, err);
}

static sfp_status check_prefixes(learner_case *c, sfp_error *err)
{
    TRY(sfp__fp_prepare(c->fp, err));
    const sfp__fp_view *v = &c->fp->view;
    size_t b = (size_t)c->b, D = (size_t)c->D, half = (size_t)v->length / 2 * D, pool = (size_t)c->fp->opt.pool;
    float *alpha, *norm, *work, *e, *part;
    const sfp__want list[] = {{&alpha, b * pool, sizeof(float)},
                              {&norm, b * pool, sizeof(float)},
                              {&work, b * D, sizeof(float)},
                              {&e, 2 * b * half, sizeof(float)},
                              {&part, b * half, sizeof(float)}};
    OWNED void *block = NULL;
    TRY(sfp__block(&block, SFP__LIST(list), err));
    for (int l = 0; l < v->layers; l++) {
        sfp__fp_compose(v, l, c->b, c->known, (int)pool, alpha, norm, work, e);
        for (int side = 0; side < 2; side++) {
            char name[32];
            (void)snprintf(name, sizeof name, "prefix_%c_%d", side ? 'v' : 'k', v->layer[l]);
            for (size_t i = 0; i < b; i++)
                memcpy(part + i * half, e + i * 2 * half + (size_t)side * half, half * sizeof *part);
            TRY(sfp__verify_compare(c->r, c->g, name, part, (int64_t[]){c->b, v->length / 2, c->D}, 3, SFP_VERIFY_VALUE, err));
        }
    }
    return SFP_OK;
}

static sfp_status check_gradients(learner_case *c, const char *tag, int n, int terms, sfp_error *err)
{
    sfp__train_batch batch = batch_of(c, n, 0, terms);
    sfp__train_result result;
    char name[96];
    int count;
    TRY(sfp__trainer_gradients(c->trainer, &batch, &result, err));
    (void)snprintf(name, sizeof name, "loss_%s", tag);
    float loss = (float)result.loss;
    TRY(sfp__verify_compare(c->r, c->g, name, &loss, (int64_t[]){1}, 1, SFP_VERIFY_VALUE, err));
    sfp__param **params = sfp__fp_params(c->fp, &count);
    for (int i = 0; i < count; i++) {
        const sfp__param *p = params[i];
        (void)snprintf(name, sizeof name, "grad_%s.%s", tag, p->name);
        TRY(sfp__verify_compare(c->r, c->g, name, p->grad, p->shape, p->ndim, SFP_VERIFY_GRADIENT, err));
    }
    return SFP_OK;
}

/* Compares the change of the values since `from` with the expected change. */
static sfp_status check_update(learner_case *c, int step, const sfp__tensor_file *from, sfp_error *err)
{
    int count;
    sfp__param **params = sfp__fp_params(c->fp, &count);
    for (int i = 0; i < count; i++) {
        const sfp__param *p = params[i];
        char name[96];
        OWNED float *before = NULL, *want = NULL, *found = NULL;
        size_t n = (size_t)p->rows * p->width;
        (void)snprintf(name, sizeof name, "step%d.%s", step, p->name);
        TRY(sfp__verify_floats(from, p->name, p->shape, p->ndim, &before, err));
        TRY(sfp__verify_floats(c->g->expect, name, p->shape, p->ndim, &want, err));
        TRY(sfp__alloc(&found, n, sizeof *found, err));
        for (size_t k = 0; k < n; k++) {
            found[k] = p->data[k] - before[k];
            want[k] -= before[k];
        }
        sfp__verify_line(c->r, name, sfp__verify_error(found, want, n), SFP_VERIFY_UPDATE);
        sfp__verify_mark(c->g, name);
    }
    return SFP_OK;
}

/* Five timestamps on the same batch and the same replayed samples, as in the reference. */
static sfp_status five_steps(learner_case *c, const sfp__tensor_file *from, sfp_error *err)
{
    int first = c->steps;
    for (int k = 0; k < 5; k++) {
        int *picked = c->work + 5 * c->b, n = pick(c, picked);
        for (int i = 0; i < n; i++)
            place(c, i, picked[i], false, 1.0f / (float)n, false);
        for (int i = 0; i < c->mem; i++)
            place(c, n + i, i, true, 1.0f / (float)c->mem, false);
        sfp__train_batch batch = batch_of(c, n + c->mem, 0, 2);
        sfp__train_result result = {0};
        TRY(sfp__trainer_step(c->trainer, &batch, &result, err));
        c->losses[c->steps++] = (float)result.loss;
        if ((k == 0 && first == 0) || k == 4)
            TRY(check_update(c, c->steps, from, err));
    }
    return SFP_OK;
}

static sfp_status check_logits(learner_case *c, const char *name, sfp_error *err)
{
    for (int i = 0; i < c->b; i++)
        place(c, i, i, false, 1.0f / (float)c->b, false);
    sfp__train_batch batch = batch_of(c, c->b, c->b, 1); /* the pass itself computes the queries */
    sfp__train_result result = {0};
    TRY(sfp__trainer_gradients(c->trainer, &batch, &result, err));
    return sfp__verify_compare(c->r, c->g, name, result.logits, (int64_t[]){c->b, c->g->classes}, 2, SFP_VERIFY_VALUE, err);
}

sfp_status sfp__verify_learner(sfp__verify *r, sfp__golden *g, sfp_error *err)
{
    OWNED_BY(case_done) learner_case whole = {.g = g, .r = r};
    learner_case *c = &whole;
    TRY(prepare(c, err));
    for (int i = 0; i < c->b + c->mem; i++)
        c->xs[i] = (i < c->b ? g->x : c->mem_x) + (size_t)(i < c->b ? i : i - c->b) * pixels(c);
    TRY(sfp__trainer_embed(c->trainer, c->b, c->xs, c->mean_embed, err));
    TRY(sfp__trainer_queries(c->trainer, c->b + c->mem, c->xs, c->known, err));
    TRY(check_prefixes(c, err));
    TRY(check_selection(c, err));
    TRY(check_logits(c, "logits", err));
    for (int i = 0; i < c->b; i++)
        place(c, i, i, false, 1.0f / (float)c->b, true);
    TRY(check_gradients(c, "masked", c->b, 1, err));
    for (int i = 0; i < c->b; i++)
        place(c, i, i, false, 1.0f / (float)c->b, false);
    for (int i = 0; i < c->mem; i++)
        place(c, c->b + i, i, true, 1.0f / (float)c->mem, false);
    TRY(check_gradients(c, "replay", c->b + c->mem, 2, err));
    TRY(five_steps(c, g->state, err));
    if (sfp__tensor_file_find(g->expect, "step10.last.bias")) {
        OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *boundary = NULL;
        TRY(sfp__verify_open(g, "state_boundary.safetensors", &boundary, err));
        TRY(load_state(c, boundary, c->task + 1, err));
        TRY(five_steps(c, boundary, err));
    }
    TRY(sfp__verify_compare(c->r, g, "losses", c->losses, (int64_t[]){c->steps}, 1, SFP_VERIFY_VALUE, err));
    return check_logits(c, "logits_after", err);
}
