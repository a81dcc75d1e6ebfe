/* The cosines between the gradients of tasks (docs/method.md, section 10).
 *
 * During the stream every task trains other components, so the gradients that a step computes for two tasks have no element in
 * common. They are compared with respect to the same parameters here: a second trainer has the values of the learner, and all of
 * its components are active. */
#include "learner/diagnostics.h"

#include "compute/pixels.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

enum { PASS = 16 }; /* images in one pass; their gradients are added */

/* A trainer with the values of the learner, and the arrays of a pass. */
typedef struct probe {
    const sfp__learner *l;
    sfp__trainer *trainer;
    sfp__fp *fp;
    float *x;                           /* (PASS, 3, S, S) */
    const float **xs;                   /* (PASS) */
    float *query;                       /* (PASS, D) */
    float *weight;                      /* (PASS) */
    bool *replayed;                     /* (PASS) */
    size_t component_count, head_count; /* numbers in the gradients of one task */
    float *components, *head;           /* (tasks, component_count), (tasks, head_count) */
    void *block;
} probe;

static void close_probe(probe *p)
{
    sfp__trainer_free(p->trainer);
    sfp__free(p->block);
}

/* Makes all components active and copies all values. */
static sfp_status copy_values(sfp__fp *to, sfp__fp *from, sfp_error *err)
{
    int count = 0;
    sfp__param **source = sfp__fp_params(from, &count), **target = sfp__fp_params(to, &count);
    TRY(sfp__fp_restore(to, 0, 0, from->active_end, err));
    for (int i = 0; i < count; i++)
        memcpy(target[i]->data, source[i]->data, (size_t)source[i]->rows * source[i]->width * sizeof *target[i]->data);
    sfp__fp_changed(to);
    return SFP_OK;
}

static sfp_status open_probe(probe *p, const sfp__learner *l, int tasks, sfp_error *err)
{
    sfp__trainer_options o = {.fp = l->opt.fp, .adam = l->opt.adam, .max_batch = PASS};
    o.fp.tasks = 0;
    o.fp.classes = l->fp->linear_w.rows;
    p->l = l;
    TRY(sfp__trainer_create(l->vit, l->threads, &o, &p->trainer, err));
    p->fp = sfp__trainer_fp(p->trainer);
    TRY(copy_values(p->fp, l->fp, err));
    for (int k = 0; k < p->fp->layers; k++)
        p->component_count += (size_t)p->fp->layer[k].p.hi * p->fp->layer[k].p.width;
    p->head_count = (size_t)p->fp->linear_w.rows * ((size_t)l->D + 1);
    const sfp__want list[] = {{&p->xs, PASS, sizeof *p->xs},
                              {&p->x, PASS * l->pixels, sizeof *p->x},
                              {&p->query, PASS * (size_t)l->D, sizeof *p->query},
                              {&p->weight, PASS, sizeof *p->weight},
                              {&p->components, (size_t)tasks * p->component_count, sizeof *p->components},
                              {&p->head, (size_t)tasks * p->head_count, sizeof *p->head},
                              {&p->replayed, PASS, sizeof *p->replayed}};
    return sfp__block_cleared(&p->block, SFP__LIST(list), err);
}

static float *add_rows(const sfp__param *param, float *to)
{
    size_t n = (size_t)param->hi * param->width;
    for (size_t i = 0; i < n; i++)
        to[i] += param->grad[i];
    return to + n;
}

/* Adds the gradient of the mean loss of n of `all` images to the gradients of a task. */
static sfp_status add_gradient(probe *p, int task, int n, int all, const uint8_t *rgb, const int32_t *label, sfp_error *err)
{
    const sfp__learner *l = p->l;
    for (int i = 0; i < n; i++) {
        float *x = p->x + (size_t)i * l->pixels;
        sfp__pixels_normalise(rgb + (size_t)i * l->rgb_bytes, l->S, l->opt.mean, l->opt.std, x);
        p->xs[i] = x;
        p->weight[i] = 1.0f / (float)all;
        p->replayed[i] = true; /* like a replayed sample, the image may belong to any task */
    }
    const sfp__train_batch batch = {
        .n = n, .x = p->xs, .label = label, .weight = p->weight, .replayed = p->replayed, .query = p->query, .queries = n};
    sfp__train_result result = {0};
    TRY(sfp__trainer_gradients(p->trainer, &batch, &result, err));
    float *to = p->components + (size_t)task * p->component_count;
    for (int k = 0; k < p->fp->layers; k++)
        to = add_rows(&p->fp->layer[k].p, to);
    (void)add_rows(&p->fp->linear_b, add_rows(&p->fp->linear_w, p->head + (size_t)task * p->head_count));
    return SFP_OK;
}

static int images_of(const sfp__diagnostics *d, int task)
{
    int64_t n = d->seen[task];
    return n < 0 ? 0 : n < SFP__DIAGNOSTICS_IMAGES ? (int)n : SFP__DIAGNOSTICS_IMAGES;
}

static double dot(size_t n, const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Writes the cosines between `tasks` vectors of n numbers; those of a zero vector are NAN. */
static void write_cosines(int tasks, size_t n, const float *gradient, double *out)
{
    double length[SFP__DIAGNOSTICS_TASKS];
    for (int i = 0; i < tasks; i++)
        length[i] = sqrt(dot(n, gradient + (size_t)i * n, gradient + (size_t)i * n));
    for (int i = 0; i < tasks; i++)
        for (int k = i; k < tasks; k++) {
            double cosine = dot(n, gradient + (size_t)i * n, gradient + (size_t)k * n) / (length[i] * length[k]);
            cosine = isfinite(cosine) ? fmax(-1, fmin(1, cosine)) : NAN;
            out[i * tasks + k] = out[k * tasks + i] = cosine;
        }
}

sfp_status sfp__gradient_cosines(const sfp__learner *l, const sfp__diagnostics *d, double *fingerprints, double *head,
                                 sfp_error *err)
{
    OWNED_BY(close_probe) probe p = {0};
    if (d->tasks == 0)
        return SFP_OK;
    TRY(open_probe(&p, l, d->tasks, err));
    for (int task = 0; task < d->tasks; task++) {
        int all = images_of(d, task);
        for (int first = 0, n; first < all; first += n) {
            size_t at = (size_t)task * SFP__DIAGNOSTICS_IMAGES + (size_t)first;
            n = all - first < PASS ? all - first : PASS;
            TRY(add_gradient(&p, task, n, all, d->rgb + at * d->rgb_bytes, d->label + at, err));
        }
    }
    write_cosines(d->tasks, p.component_count, p.components, fingerprints);
    write_cosines(d->tasks, p.head_count, p.head, head);
    return SFP_OK;
}
