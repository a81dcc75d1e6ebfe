/* Makes golden cases wrong, one tensor at a time: what shows that `streamfp-verify` can fail.
 *
 *     perturb list DIR
 *         the names of the tensors in DIR/expect.safetensors
 *     perturb one DIR NAME OUT.safetensors
 *         a copy of it in which NAME is wrong by 10 times its tolerance, as relative Euclidean error. States after steps
 *         (stepN.*) are wrong by that much of their update, which is from state0, or from state_boundary for step10; of
 *         indices one is changed */
#include "base/mem.h"
#include "base/rng.h"
#include "io/tensor/safetensors.h"
#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *text)
{
    (void)fprintf(stderr, "perturb: %s\n", text);
    return 1;
}

static sfp_status open_file(const char *dir, const char *name, sfp_tensor_file **out, sfp_error *err)
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

/* What the error is relative to: the values, or for stepN.X the update of X. */
static sfp_status reference_length(const char *dir, const sfp_tensor *t, const float *value, double *length, sfp_error *err)
{
    sfp_tensor_file *before = NULL;
    float *from = sfp__calloc(t->count, sizeof *from);
    sfp_status s = from ? SFP_OK : sfp__fail_nomem(err);
    const char *name = strchr(t->name, '.');
    if (!s && strncmp(t->name, "step", 4) == 0 && name) {
        const sfp_tensor *b;
        const char *file = strncmp(t->name, "step10.", 7) == 0 ? "state_boundary.safetensors" : "state0.safetensors";
        if (!(s = open_file(dir, file, &before, err)) && !(s = sfp__tensor_file_need(before, name + 1, &b, err)) &&
            !(s = sfp__tensor_expect(file, b, t->shape, t->ndim, err)))
            s = sfp__tensor_to_f32(file, b, from, err);
    }
    double sum = 0;
    for (size_t i = 0; !s && i < t->count; i++)
        sum += ((double)value[i] - (double)from[i]) * ((double)value[i] - (double)from[i]);
    *length = sqrt(sum);
    sfp__free(from);
    sfp__tensor_file_close(before);
    return s;
}

static sfp_status perturb_floats(const char *dir, sfp_tensor *t, void *data, sfp_error *err)
{
    float *value = sfp__malloc(t->count * sizeof *value);
    double length = 0;
    sfp_status s = value ? sfp__tensor_to_f32("expect.safetensors", t, value, err) : sfp__fail_nomem(err);
    if (!s)
        s = reference_length(dir, t, value, &length, err);
    if (!s && !(length > 0))
        s = sfp__fail(err, SFP_EINVAL, "%s: is all 0 (or did not move)", t->name);
    sfp_rng rng = sfp__rng_init(1, 0);
    double each = 10 * tolerance_of(t->name) * length / sqrt((double)t->count);
    for (size_t i = 0; !s && i < t->count; i++) {
        double wrong = (double)value[i] + (sfp__rng_below(&rng, 2) ? each : -each);
        if (t->dtype == SFP_DTYPE_F32)
            ((float *)data)[i] = (float)wrong;
        else
            ((double *)data)[i] = wrong;
    }
    sfp__free(value);
    return s;
}

static int one(const char *dir, const char *name, const char *out, sfp_error *err)
{
    sfp_tensor_file *st = NULL;
    if (open_file(dir, "expect.safetensors", &st, err))
        return fail(err->message);
    size_t count = st->count;
    sfp_tensor *all = sfp__calloc(count, sizeof *all), *t = NULL;
    void *data = NULL;
    sfp_status s = all ? SFP_OK : sfp__fail_nomem(err);
    for (size_t i = 0; !s && i < count; i++) {
        all[i] = *&st->tensors[i];
        if (strcmp(all[i].name, name) == 0)
            t = &all[i];
    }
    if (!s && !t)
        s = sfp__fail(err, SFP_ENOTFOUND, "there is no tensor '%s'", name);
    if (!s && !(data = sfp__malloc(t->bytes)))
        s = sfp__fail_nomem(err);
    if (!s && t->dtype == SFP_DTYPE_I64) {
        const sfp_tensor *scores; /* as many as there are samples */
        memcpy(data, t->data, t->bytes);
        if (!(s = sfp__tensor_file_need(st, "similarity", &scores, err)))
            ((int64_t *)data)[0] = (((int64_t *)data)[0] + 1) % (int64_t)scores->count;
    } else if (!s && (t->dtype == SFP_DTYPE_F32 || t->dtype == SFP_DTYPE_F64)) {
        s = perturb_floats(dir, t, data, err);
    } else if (!s) {
        s = sfp__fail(err, SFP_EUNSUPPORTED, "'%s' is neither of floats nor of indices", name);
    }
    if (!s) {
        t->data = data;
        s = sfp__safetensors_write(out, all, count, NULL, 0, err);
    }
    sfp__free(data);
    sfp__free(all);
    sfp__tensor_file_close(st);
    return s ? fail(err->message) : 0;
}

static int list(const char *dir, sfp_error *err)
{
    sfp_tensor_file *st = NULL;
    if (open_file(dir, "expect.safetensors", &st, err))
        return fail(err->message);
    for (size_t i = 0; i < st->count; i++)
        (void)puts(st->tensors[i].name);
    sfp__tensor_file_close(st);
    return 0;
}

int main(int argc, char **argv)
{
    sfp_error err = {0};
    if (argc == 3 && strcmp(argv[1], "list") == 0)
        return list(argv[2], &err);
    if (argc == 5 && strcmp(argv[1], "one") == 0)
        return one(argv[2], argv[3], argv[4], &err);
    return fail("usage: perturb list DIR | perturb one DIR NAME OUT.safetensors");
}
