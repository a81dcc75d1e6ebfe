#include "compute/param.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

sfp__adam sfp__adam_defaults(void)
{
    return (sfp__adam){.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

static sfp_status resize(sfp__param *p, int capacity, sfp_error *err)
{
    size_t floats = (size_t)capacity * p->width, old = (size_t)p->capacity * p->width * sizeof(float);
    sfp__param q = *p;
    const sfp__want list[] = {{&q.data, floats, sizeof *q.data}, /* must be first: its address is that of the block */
                              {&q.grad, floats, sizeof *q.grad},
                              {&q.m, floats, sizeof *q.m},
                              {&q.v, floats, sizeof *q.v},
                              {&q.steps, (size_t)capacity, sizeof *q.steps}};
    void *block;
    TRY(sfp__block_cleared(&block, SFP__LIST(list), err));
    if (p->capacity) {
        memcpy(q.data, p->data, old);
        memcpy(q.grad, p->grad, old);
        memcpy(q.m, p->m, old);
        memcpy(q.v, p->v, old);
        memcpy(q.steps, p->steps, (size_t)p->capacity * sizeof *q.steps);
    }
    sfp__free(p->data);
    q.capacity = capacity;
    *p = q;
    return SFP_OK;
}

sfp_status sfp__param_init(sfp__param *p, const char *name, int ndim, const int64_t *shape, sfp_error *err)
{
    *p = (sfp__param){.ndim = ndim, .rows = (int)shape[0], .width = 1};
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < ndim; i++) {
        p->shape[i] = shape[i];
        p->width *= i ? (size_t)shape[i] : 1;
    }
    p->hi = p->rows;
    return resize(p, p->rows ? p->rows : 16, err);
}

void sfp__param_done(sfp__param *p)
{
    sfp__free(p->data);
    *p = (sfp__param){0};
}

sfp_status sfp__param_grow(sfp__param *p, int rows, sfp_error *err)
{
    if (rows > p->capacity)
        TRY(resize(p, rows > 2 * p->capacity ? rows : 2 * p->capacity, err));
    p->rows = rows;
    p->hi = rows;
    p->shape[0] = rows;
    return SFP_OK;
}

void sfp__param_shrink(sfp__param *p, int rows)
{
    sfp__param_reset_adam(p, rows, p->rows);
    memset(p->data + (size_t)rows * p->width, 0, (size_t)(p->rows - rows) * p->width * sizeof *p->data);
    p->rows = rows;
    p->hi = rows;
    p->shape[0] = rows;
}

void sfp__param_zero_grad(sfp__param *p)
{
    memset(p->grad, 0, (size_t)p->rows * p->width * sizeof *p->grad);
}

void sfp__param_reset_adam(sfp__param *p, int first, int end)
{
    size_t at = (size_t)first * p->width, n = (size_t)(end - first) * p->width;
    memset(p->m + at, 0, n * sizeof *p->m);
    memset(p->v + at, 0, n * sizeof *p->v);
    memset(p->steps + first, 0, (size_t)(end - first) * sizeof *p->steps);
}

void sfp__adam_step(const sfp__adam *a, sfp__param *p)
{
    for (int r = p->lo; r < p->hi; r++) {
        uint32_t t = ++p->steps[r];
        double c1 = 1 - pow((double)a->beta1, t), c2 = 1 - pow((double)a->beta2, t);
        float size = (float)((double)a->lr / c1), root = (float)(1 / sqrt(c2));
        float *x = p->data + (size_t)r * p->width, *m = p->m + (size_t)r * p->width, *v = p->v + (size_t)r * p->width;
        const float *g = p->grad + (size_t)r * p->width;
        for (size_t i = 0; i < p->width; i++) {
            m[i] = a->beta1 * m[i] + (1 - a->beta1) * g[i];
            v[i] = a->beta2 * v[i] + (1 - a->beta2) * g[i] * g[i];
            x[i] -= size * m[i] / (sqrtf(v[i]) * root + a->eps);
        }
    }
}
