/* Falsifies golden cases, one tensor at a time, to show that `streamfp-verify` can fail.
 *
 *     perturb list DIR
 *         prints the names of the tensors in DIR/expect.safetensors
 *     perturb one DIR NAME OUT.safetensors
 *         writes a copy in which the relative Euclidean error of NAME is 10 times its tolerance. For states after steps
 *         (stepN.*) the error is relative to their update from state0, or from state_boundary for step10. In a list of
 *         indices, one is changed */
#include "base/mem.h"
#include "base/rng.h"
#include "io/tensor/safetensors.h"
#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sfp_status open_file(const char *dir, const char *name, sfp__tensor_file **out, sfp_error *err)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return sfp__safetensors_open(path, out, err);
}

static double tolerance_of(const char *name)
{
    if (strncmp(name, "step", 4) == 0)
        return SFP_VERIFY_UPDATE;
    return strncmp(name, "grad_", 5) == 0 ? SFP_VERIFY_GRADIENT : SFP_VERIFY_VALUE;
}

/* Computes the length that the error is relative to: that of the values or, for stepN.X, that of the update of X. */
static sfp_status reference_length(const char *dir, const sfp__tensor *t, const float *value, double *length, sfp_error *err)
{
    OWNED float *from = NULL;
    const char *name = strchr(t->name, '.');
    TRY(sfp__alloc(&from, t->count, sizeof *from, err));
    if (strncmp(t->name, "step", 4) == 0 && name) {
        OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *before = NULL;
        const sfp__tensor *b;
        const char *file = strncmp(t->name, "step10.", 7) == 0 ? "state_boundary.safetensors" : "state0.safetensors";
        TRY(open_file(dir, file, &before, err));
        TRY(sfp__tensor_file_need(before, name + 1, &b, err));
        TRY(sfp__tensor_expect(file, b, t->shape, t->ndim, err));
        TRY(sfp__tensor_to_f32(file, b, from, err));
    }
    double sum = 0;
    for (size_t i = 0; i < t->count; i++)
        sum += ((double)value[i] - (double)from[i]) * ((double)value[i] - (double)from[i]);
    *length = sqrt(sum);
    return SFP_OK;
}

static sfp_status perturb_floats(const char *dir, const sfp__tensor *t, void *data, sfp_error *err)
{
    OWNED float *value = NULL;
    double length = 0;
    TRY(sfp__alloc(&value, t->count, sizeof *value, err));
    TRY(sfp__tensor_to_f32("expect.safetensors", t, value, err));
    TRY(reference_length(dir, t, value, &length, err));
    if (!(length > 0))
        return sfp__fail(err, SFP_EINVAL, "%s: tensor is all 0 (or has no update)", t->name);
    sfp__rng rng = sfp__rng_init(1, 0);
    double each = 10 * tolerance_of(t->name) * length / sqrt((double)t->count);
    for (size_t i = 0; i < t->count; i++) {
        double wrong = (double)value[i] + (sfp__rng_below(&rng, 2) ? each : -each);
        if (t->dtype == SFP__DTYPE_F32)
            ((float *)data)[i] = (float)wrong;
        else
            ((double *)data)[i] = wrong;
    }
    return SFP_OK;
}

static sfp_status one(const char *dir, const char *name, const char *out, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    OWNED void *data = NULL;
    const sfp__tensor *found, *scores; /* as many scores as samples */
    TRY(open_file(dir, "expect.safetensors", &st, err));
    TRY(sfp__tensor_file_need(st, name, &found, err));
    sfp__tensor *t = &st->tensors[found - st->tensors];
    TRY(sfp__alloc(&data, t->bytes, 1, err));
    if (t->dtype == SFP__DTYPE_I64) {
        memcpy(data, t->data, t->bytes);
        TRY(sfp__tensor_file_need(st, "similarity", &scores, err));
        ((int64_t *)data)[0] = (((int64_t *)data)[0] + 1) % (int64_t)scores->count;
    } else if (t->dtype == SFP__DTYPE_F32 || t->dtype == SFP__DTYPE_F64) {
        TRY(perturb_floats(dir, t, data, err));
    } else {
        return sfp__fail(err, SFP_EUNSUPPORTED, "'%s' is neither of floats nor of indices", name);
    }
    t->data = data;
    return sfp__safetensors_write(out, st->tensors, st->count, NULL, 0, err);
}

static sfp_status list(const char *dir, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    TRY(open_file(dir, "expect.safetensors", &st, err));
    for (size_t i = 0; i < st->count; i++)
        (void)puts(st->tensors[i].name);
    return SFP_OK;
}

int main(int argc, char **argv)
{
    sfp_error err = {0};
    sfp_status s;
    if (argc == 3 && strcmp(argv[1], "list") == 0)
        s = list(argv[2], &err);
    else if (argc == 5 && strcmp(argv[1], "one") == 0)
        s = one(argv[2], argv[3], argv[4], &err);
    else
        s = sfp__fail(&err, SFP_EINVAL, "usage: perturb list DIR | perturb one DIR NAME OUT.safetensors");
    if (s)
        (void)fprintf(stderr, "perturb: %s\n", err.message);
    return s ? 1 : 0;
}
