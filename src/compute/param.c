#include "compute/param.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

sfp_adam sfp__adam_defaults(void)
{
    return (sfp_adam){.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

static sfp_status resize(sfp_param *p, int capacity, sfp_error *err)
{
    size_t old = (size_t)p->capacity * p->width * sizeof(float), bytes = (size_t)capacity * p->width * sizeof(float);
    float **arrays[] = {&p->data, &p->grad, &p->m, &p->v};
    float *fresh[4] = {NULL};
    uint32_t *steps = sfp__calloc((size_t)capacity, sizeof *steps);
    bool ok = steps != NULL;
    for (int i = 0; i < 4; i++)
        ok = (fresh[i] = sfp__calloc(1, bytes)) != NULL && ok;
    if (!ok) {
        for (int i = 0; i < 4; i++)
            sfp__free(fresh[i]);
        sfp__free(steps);
        return sfp__fail_nomem(err);
    }
    for (int i = 0; i < 4; i++) {
        if (old)
            memcpy(fresh[i], *arrays[i], old);
        sfp__free(*arrays[i]);
        *arrays[i] = fresh[i];
    }
    if (p->capacity)
        memcpy(steps, p->steps, (size_t)p->capacity * sizeof *steps);
    sfp__free(p->steps);
    p->steps = steps;
    p->capacity = capacity;
    return SFP_OK;
}

sfp_status sfp__param_init(sfp_param *p, const char *name, int ndim, const int64_t *shape, sfp_error *err)
{
    *p = (sfp_param){.ndim = ndim, .rows = (int)shape[0], .width = 1};
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < ndim; i++) {
        p->shape[i] = shape[i];
        p->width *= i ? (size_t)shape[i] : 1;
    }
    p->hi = p->rows;
    sfp_status s = resize(p, p->rows ? p->rows : 16, err);
    if (s)
        sfp__param_done(p);
    return s;
}

void sfp__param_done(sfp_param *p)
{
    sfp__free(p->data);
    sfp__free(p->grad);
    sfp__free(p->m);
    sfp__free(p->v);
    sfp__free(p->steps);
    p->data = p->grad = p->m = p->v = NULL;
    p->steps = NULL;
    p->rows = p->capacity = 0;
}

sfp_status sfp__param_grow(sfp_param *p, int rows, sfp_error *err)
{
    if (rows > p->capacity) {
        sfp_status s = resize(p, rows > 2 * p->capacity ? rows : 2 * p->capacity, err);
        if (s)
            return s;
    }
    p->rows = rows;
    p->hi = rows;
    p->shape[0] = rows;
    return SFP_OK;
}

void sfp__param_shrink(sfp_param *p, int rows)
{
    sfp__param_reset_adam(p, rows, p->rows);
    memset(p->data + (size_t)rows * p->width, 0, (size_t)(p->rows - rows) * p->width * sizeof *p->data);
    p->rows = rows;
    p->hi = rows;
    p->shape[0] = rows;
}

void sfp__param_zero_grad(sfp_param *p)
{
    memset(p->grad, 0, (size_t)p->rows * p->width * sizeof *p->grad);
}

void sfp__param_reset_adam(sfp_param *p, int first, int end)
{
    size_t at = (size_t)first * p->width, n = (size_t)(end - first) * p->width;
    memset(p->m + at, 0, n * sizeof *p->m);
    memset(p->v + at, 0, n * sizeof *p->v);
    memset(p->steps + first, 0, (size_t)(end - first) * sizeof *p->steps);
}

void sfp__adam_step(const sfp_adam *a, sfp_param *p)
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
