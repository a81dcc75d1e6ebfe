/* Fingerprint pools: creation, initial values, and the range of active components. Composing and gradients are in compose.c, the
 * parts that depend on the kind of pool in pool_*.c. */
#include "fingerprint/fingerprint.h"

#include "base/mem.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

sfp__fp_options sfp__fp_options_defaults(void)
{
    return (sfp__fp_options){
        .pool = 100, .length = 8, .first_layer = 0, .last_layer = 4, .tasks = 1, .attune = true, .attune_topk = 3};
}

/* ---------------------------------------------------------------------- kinds */

static const sfp__pool_kind *const kinds[] = {
    [SFP__FP_CODA] = &sfp__pool_coda, [SFP__FP_L2P] = &sfp__pool_l2p, [SFP__FP_DUALPROMPT] = &sfp__pool_dualprompt};

/* The number of components that are concatenated to a prefix; at most the size of the pool. */
static int count_parts(const sfp__fp_options *o)
{
    int parts = kinds[o->kind]->parts;
    return parts < o->pool ? parts : o->pool;
}

int sfp__fp_prefix_rows(const sfp__fp_options *o)
{
    return count_parts(o) * (o->length / 2);
}

int sfp__fp_pool_layer(const sfp__fp_options *o)
{
    return o->first_layer + kinds[o->kind]->shared_layers;
}

void sfp__fp_task_components(const sfp__fp_options *o, int task, int *frozen_end, int *active_end)
{
    int each = kinds[o->kind]->whole ? o->pool : o->pool / o->tasks;
    *frozen_end = kinds[o->kind]->whole ? 0 : task * each;
    *active_end = *frozen_end + each;
}

static bool is_shared(const sfp__fp *f, int l)
{
    return l < f->kind->shared_layers;
}

int sfp__fp_layer_rows(const sfp__fp *f, int l)
{
    return is_shared(f, l) ? 1 : f->opt.pool;
}

int sfp__fp_layer_frozen_end(const sfp__fp *f, int l)
{
    return is_shared(f, l) ? 0 : f->frozen_end;
}

int sfp__fp_layer_active_end(const sfp__fp *f, int l)
{
    return is_shared(f, l) ? 1 : f->active_end;
}

/* ------------------------------------------------------------- initial values */

/* Subtracts from y its projection on the `count` orthonormal rows of basis. */
static void project_out(size_t n, const double *basis, int count, double *y)
{
    for (int i = 0; i < count; i++) {
        const double *b = basis + (size_t)i * n;
        double s = 0;
        for (size_t j = 0; j < n; j++)
            s += b[j] * y[j];
        for (size_t j = 0; j < n; j++)
            y[j] -= s * b[j];
    }
}

static double norm_of(size_t n, const double *y)
{
    double s = 0;
    for (size_t j = 0; j < n; j++)
        s += y[j] * y[j];
    return sqrt(s);
}

/* Adds the part of y that is orthogonal to the basis as a new unit row, which is also stored in y. Returns false if the basis is
 * full or y lies in its space. */
static bool extend_basis(size_t n, double *basis, int *count, double *y)
{
    double before = norm_of(n, y);
    if ((size_t)*count >= n || before == 0)
        return false;
    for (int twice = 0; twice < 2; twice++)
        project_out(n, basis, *count, y);
    double after = norm_of(n, y);
    if (after < 1e-10 * before)
        return false;
    for (size_t j = 0; j < n; j++)
        basis[(size_t)*count * n + j] = y[j] /= after;
    ++*count;
    return true;
}

/* Initialises rows [frozen_end, active_end) of p: each is a normal draw, made orthogonal to all rows before it, with unit length.
 * If those rows already span the space, it is the normalised draw itself. Rows from `active_end` on are 0. */
static sfp_status init_rows(sfp__param *p, int frozen_end, int active_end, sfp__rng *rng, sfp_error *err)
{
    size_t n = p->width, max = (size_t)active_end < n ? (size_t)active_end : n;
    double *basis, *y, *draw;
    OWNED void *block = NULL;
    const sfp__want list[] = {{&basis, max * n, sizeof *basis}, {&y, n, sizeof *y}, {&draw, n, sizeof *draw}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    for (int k = 0, count = 0; k < active_end; k++) {
        float *row = p->data + (size_t)k * n;
        if (k < frozen_end) {
            for (size_t j = 0; j < n; j++)
                y[j] = (double)row[j];
            (void)extend_basis(n, basis, &count, y);
            continue;
        }
        for (size_t j = 0; j < n; j++)
            y[j] = draw[j] = sfp__rng_normal(rng);
        if (!extend_basis(n, basis, &count, y)) {
            double length = norm_of(n, draw);
            for (size_t j = 0; j < n; j++)
                y[j] = draw[j] / length;
        }
        for (size_t j = 0; j < n; j++)
            row[j] = (float)y[j];
    }
    memset(p->data + (size_t)active_end * n, 0, (size_t)(p->rows - active_end) * n * sizeof *p->data);
    return SFP_OK;
}

static void init_rows_uniform(sfp__param *p, int first, int end, int dim, sfp__rng *rng)
{
    double scale = 1 / sqrt((double)dim);
    for (size_t i = (size_t)first * p->width; i < (size_t)end * p->width; i++)
        p->data[i] = (float)((2 * sfp__rng_double(rng) - 1) * scale);
}

/* Returns the tensors of layer number l that have one row per component, and their number. */
static int component_params(sfp__fp *f, int l, sfp__param *out[3])
{
    sfp__param *all[] = {&f->layer[l].p, &f->layer[l].k, &f->layer[l].a};
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i]->data)
            out[n++] = all[i];
    return n;
}

/* Initialises components [frozen_end, active_end); shared components are initialised once, with the first ones. */
static sfp_status init_components(sfp__fp *f, int frozen_end, int active_end, sfp_error *err)
{
    for (int l = 0; l < f->layers; l++) {
        sfp__param *all[3];
        int n = is_shared(f, l) && frozen_end > 0 ? 0 : component_params(f, l, all);
        for (int i = 0; i < n; i++)
            TRY(init_rows(all[i], frozen_end, is_shared(f, l) ? 1 : active_end, &f->rng, err));
    }
    return SFP_OK;
}

static void set_active(sfp__fp *f, int frozen_end, int active_end)
{
    f->prepared = false;
    f->frozen_end = frozen_end;
    f->active_end = active_end;
    for (int l = 0; l < f->layers; l++) {
        sfp__param *all[3];
        for (int i = 0, n = component_params(f, l, all); i < n; i++) {
            all[i]->lo = sfp__fp_layer_frozen_end(f, l);
            all[i]->hi = sfp__fp_layer_active_end(f, l);
        }
    }
}

/* -------------------------------------------------------- creating and freeing */

static sfp_status check_options(const sfp__vit_config *c, sfp__fp_options *o, sfp_error *err)
{
    if ((unsigned)o->kind >= sizeof kinds / sizeof *kinds)
        return sfp__fail_key(err, "pool-kind", SFP_EINVAL, "pool-kind is number %d, expected 0 to %zu", (int)o->kind,
                             sizeof kinds / sizeof *kinds - 1);
    const sfp__pool_kind *kind = kinds[o->kind];
    if (kind->check)
        TRY(kind->check(o, err));
    if (o->length < 2 || o->length % 2 || o->length > 256)
        return sfp__fail_key(err, "prompt-length", SFP_EINVAL, "prompt-length is %d, expected an even number from 2 to 256",
                             o->length);
    if (o->pool < 1 || o->pool > 65536)
        return sfp__fail_key(err, "pool", SFP_EINVAL, "pool is %d, expected 1 to 65536", o->pool);
    if (o->first_layer < 0 || o->last_layer < o->first_layer || o->last_layer >= c->depth ||
        o->last_layer - o->first_layer >= SFP__FP_MAX_LAYERS)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL, "prompt-layers is %d-%d, expected at most %d layers within 0-%d",
                             o->first_layer, o->last_layer, SFP__FP_MAX_LAYERS, c->depth - 1);
    if (o->tasks < 0 || (o->tasks > o->pool && !kind->whole))
        return sfp__fail_key(err, "pool", SFP_EINVAL, "pool is %d, expected at least %d: one component for each of the %d tasks",
                             o->pool, o->tasks, o->tasks);
    if (o->span < 0 || o->span > o->pool)
        return sfp__fail_key(err, "grow-by", SFP_EINVAL, "grow-by is %d, expected 1 to the pool's %d components", o->span,
                             o->pool);
    if (o->span == 0)
        o->span = o->pool >= 10 ? o->pool / 10 : 1;
    if (o->classes < 0 || o->classes > 1 << 20)
        return sfp__fail(err, SFP_EINVAL, "number of classes is %d, expected 0 to %d", o->classes, 1 << 20);
    if (!(o->ortho_mu >= 0) || !isfinite(o->ortho_mu))
        return sfp__fail_key(err, "ortho-mu", SFP_EINVAL, "ortho-mu is %g, expected a number from 0", (double)o->ortho_mu);
    return SFP_OK;
}

static sfp_status add_param(sfp__fp *f, sfp__param *p, const char *name, int ndim, const int64_t *shape, sfp_error *err)
{
    TRY(sfp__param_init(p, name, ndim, shape, err));
    f->params[f->param_count++] = p;
    return SFP_OK;
}

static sfp_status create_params(sfp__fp *f, sfp_error *err)
{
    const sfp__fp_options *o = &f->opt;
    for (int l = 0; l < f->layers; l++) {
        sfp__fp_layer *y = &f->layer[l];
        int rows = sfp__fp_layer_rows(f, l);
        const struct {
            bool wanted;
            sfp__param *p;
            char c;
            int ndim;
            int64_t shape[3];
        } list[] = {{true, &y->p, 'p', 3, {rows, o->length, f->D}},
                    {!is_shared(f, l), &y->k, 'k', 2, {rows, f->D}},
                    {f->kind->attention, &y->a, 'a', 2, {rows, f->D}}};
        for (int i = 0; i < 3; i++) {
            char name[40];
            (void)snprintf(name, sizeof name, "prompt.%c_%c_%d", is_shared(f, l) ? 'g' : 'e', list[i].c, y->at);
            if (list[i].wanted)
                TRY(add_param(f, list[i].p, name, list[i].ndim, list[i].shape, err));
        }
    }
    if (o->attune) {
        TRY(add_param(f, &f->gate_w, "prompt.attune.gate.weight", 2, (const int64_t[]){SFP__ATTUNE_MAPS, f->D}, err));
        TRY(add_param(f, &f->gate_b, "prompt.attune.gate.bias", 1, (const int64_t[]){SFP__ATTUNE_MAPS}, err));
    }
    TRY(add_param(f, &f->linear_w, "last.weight", 2, (const int64_t[]){o->classes, f->D}, err));
    return add_param(f, &f->linear_b, "last.bias", 1, (const int64_t[]){o->classes}, err);
}

sfp_status sfp__fp_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__fp_options *opt, int max_batch, sfp__fp **out,
                          sfp_error *err)
{
    sfp__fp_options o = *opt;
    TRY(check_options(&vit->config, &o, err));
    OWNED_PTR(sfp__fp_free) sfp__fp *f = NULL;
    TRY(sfp__alloc(&f, 1, sizeof *f, err));
    f->opt = o;
    f->kind = kinds[o.kind];
    f->parts = count_parts(&o);
    f->vit = vit;
    f->threads = threads;
    f->D = vit->config.dim;
    f->max_batch = max_batch;
    f->rng = sfp__rng_init(o.seed, 1);
    for (int l = o.first_layer; l <= o.last_layer; l++)
        f->layer[f->layers++].at = l;
    TRY(create_params(f, err));
    int frozen_end = 0, active_end = f->kind->whole ? o.pool : o.span;
    if (o.tasks)
        sfp__fp_task_components(&o, 0, &frozen_end, &active_end);
    TRY(init_components(f, frozen_end, active_end, err));
    set_active(f, frozen_end, active_end);
    if (o.attune) {
        init_rows_uniform(&f->gate_w, 0, SFP__ATTUNE_MAPS, f->D, &f->rng);
        init_rows_uniform(&f->gate_b, 0, SFP__ATTUNE_MAPS, f->D, &f->rng);
    }
    init_rows_uniform(&f->linear_w, 0, o.classes, f->D, &f->rng);
    init_rows_uniform(&f->linear_b, 0, o.classes, f->D, &f->rng);
    TRY(sfp__fp_buffers_create(f, err));
    *out = TAKE(f);
    return SFP_OK;
}

void sfp__fp_free(sfp__fp *f)
{
    if (!f)
        return;
    sfp__attune_free(f->attune);
    while (f->held > 0)
        sfp__vit_unhold(f->vit, f->layer[--f->held].at, SFP__VIT_QKV);
    for (int i = 0; i < f->param_count; i++)
        sfp__param_done(f->params[i]);
    sfp__free(f->block);
    sfp__free(f);
}

/* ---------------------------------------------------------- active components */

sfp_status sfp__fp_next_task(sfp__fp *f, sfp_error *err)
{
    int frozen_end = 0, active_end = 0;
    if (f->task + 1 >= f->opt.tasks)
        return sfp__fail(err, SFP_EINVAL, "task is %d, expected at most %d", f->task + 2, f->opt.tasks);
    sfp__fp_task_components(&f->opt, f->task + 1, &frozen_end, &active_end);
    if (active_end > f->active_end)
        TRY(init_components(f, frozen_end, active_end, err));
    f->task++;
    set_active(f, frozen_end, active_end);
    for (int i = 0; i < f->param_count; i++)
        sfp__param_reset_adam(f->params[i], 0, f->params[i]->rows);
    return SFP_OK;
}

sfp_status sfp__fp_activate_components(sfp__fp *f, sfp_error *err)
{
    if (f->active_end == f->opt.pool) {
        set_active(f, 0, f->active_end);
        return SFP_OK;
    }
    int active_end = f->active_end + f->opt.span < f->opt.pool ? f->active_end + f->opt.span : f->opt.pool;
    TRY(init_components(f, f->active_end, active_end, err));
    for (int l = f->kind->shared_layers; l < f->layers; l++) {
        sfp__param *all[3];
        for (int i = 0, n = component_params(f, l, all); i < n; i++)
            sfp__param_reset_adam(all[i], f->active_end, active_end);
    }
    bool all_learn = active_end == f->opt.pool && f->kind->attention; /* else the last one would never be the nearest */
    set_active(f, all_learn ? 0 : f->active_end, active_end);
    return SFP_OK;
}

sfp_status sfp__fp_restore(sfp__fp *f, int task, int frozen_end, int active_end, sfp_error *err)
{
    if (task < 0 || (f->opt.tasks && task >= f->opt.tasks) || frozen_end < 0 || active_end < frozen_end ||
        active_end > f->opt.pool)
        return sfp__fail(err, SFP_EFORMAT, "task %d with active components %d to %d does not match a pool of %d for %d tasks",
                         task, frozen_end, active_end, f->opt.pool, f->opt.tasks);
    if (f->opt.attune && active_end - frozen_end > f->max_learning)
        return sfp__fail(err, SFP_EFORMAT, "number of active components is %d, expected at most %d", active_end - frozen_end,
                         f->max_learning);
    if (f->kind->whole && (frozen_end != 0 || active_end != f->opt.pool))
        return sfp__fail(err, SFP_EFORMAT, "active components are %d to %d, expected all %d", frozen_end, active_end,
                         f->opt.pool);
    f->task = task;
    set_active(f, frozen_end, active_end);
    sfp__fp_changed(f);
    return SFP_OK;
}

sfp_status sfp__fp_add_classes(sfp__fp *f, int classes, sfp_error *err)
{
    int before = f->linear_w.rows;
    if (classes <= before)
        return SFP_OK;
    TRY(sfp__param_grow(&f->linear_w, classes, err));
    sfp_status status = sfp__param_grow(&f->linear_b, classes, err);
    if (status) {
        f->linear_w.rows = f->linear_w.hi = before;
        f->linear_w.shape[0] = before;
        return status;
    }
    init_rows_uniform(&f->linear_w, before, classes, f->D, &f->rng);
    init_rows_uniform(&f->linear_b, before, classes, f->D, &f->rng);
    return SFP_OK;
}

/* ---------------------------------------------------------------------- access */

sfp__param **sfp__fp_params(sfp__fp *f, int *count)
{
    *count = f->param_count;
    return f->params;
}

void sfp__fp_changed(sfp__fp *f)
{
    f->prepared = false;
    if (f->attune)
        sfp__attune_invalidate(f->attune);
}

void sfp__fp_moved(sfp__fp *f)
{
    f->prepared = false;
}

void sfp__fp_zero_grad(sfp__fp *f)
{
    for (int i = 0; i < f->param_count; i++)
        sfp__param_zero_grad(f->params[i]);
}

void sfp__fp_step(sfp__fp *f, const sfp__adam *adam)
{
    f->prepared = false;
    for (int i = 0; i < f->param_count; i++)
        sfp__adam_step(adam, f->params[i]);
}

void sfp__fp_mean_unit(const sfp__fp *f, float *out)
{
    int D = f->D, Lp = f->opt.length, count = 0;
    memset(out, 0, (size_t)D * sizeof *out);
    for (int l = 0; l < f->layers; l++)
        count += sfp__fp_layer_active_end(f, l);
    float *sum = f->row; /* (D) */
    for (int l = 0; l < f->layers; l++)
        for (int k = 0; k < sfp__fp_layer_active_end(f, l); k++) {
            const float *p = f->layer[l].p.data + (size_t)k * f->layer[l].p.width;
            memcpy(sum, p, (size_t)D * sizeof *sum);
            for (int i = 1; i < Lp; i++)
                sfp__axpy(D, 1, p + (size_t)i * (size_t)D, sum);
            float length = fmaxf(sqrtf(sfp__dot(D, sum, sum)), SFP__FP_TINY);
            sfp__axpy(D, 1 / (length * (float)count), sum, out);
        }
}
