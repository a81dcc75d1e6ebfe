/* streamfp verify: recompute a golden case and compare.
 *
 * A case is a folder: config.json names the backbone's file, batch.safetensors holds x and y, state0.safetensors the classifier
 * (last.weight, last.bias), expect.safetensors what must come out. Checked here are the backbone's parts:
 *
 *   query            feature of x in the unprompted backbone              (b, D)
 *   embed            patch embeddings, no class token, no position        (b, L, D)
 *   logits           classifier on the feature with prefix_k_l, prefix_v_l given          (b, classes)
 *   grad_prefix_*_l  gradient of the mean cross-entropy to these prefixes (b, rows, D)
 *
 * Error of a tensor: |found - expected| / |expected|, Euclidean over all elements; a NaN anywhere fails. Tolerances are those
 * of the reference: 1e-3 for gradients, 1e-4 for the rest. */
#include "cli/command.h"
#include "cli/json_out.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/pool.h"
#include "io/safetensors.h"
#include "model/vit.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define TOLERANCE_VALUE 1e-4
#define TOLERANCE_GRADIENT 1e-3
#define MAX_PREFIX_ROWS 4096
#define MAX_CLASSES 1000000

static const sfp_opt options[] = {
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

typedef struct golden_case {
    const char *dir;
    sfp_safetensors *batch, *state, *expect;
    sfp_vit *vit;
    sfp_vit_plan *query_plan, *prefix_plan;
    int b, classes;
    float *x;                                   /* (b, 3, S, S) */
    int64_t *y;                                 /* (b) */
    float *last_w, *last_b;                     /* (classes, D), (classes) */
    float *query, *embed, *logits;              /* (b, D), (b, L, D), (b, classes) */
    float *feature;                             /* (b, D), with prefixes */
    int rows[SFP_VIT_MAX_DEPTH];                /* of layer l's prefix; 0: none */
    float *prefix_k[SFP_VIT_MAX_DEPTH], *prefix_v[SFP_VIT_MAX_DEPTH]; /* (b, rows, D) */
    float *grad_k[SFP_VIT_MAX_DEPTH], *grad_v[SFP_VIT_MAX_DEPTH];     /* (b, rows, D) */
    bool *checked;                              /* (tensors of expect): compared, or an input */
    int tensors, failures;
} golden_case;

typedef struct verify_run {
    sfp_pool *pool;
    bool json;
    sfp_json_out out;
} verify_run;

/* ---------------------------------------------------------------- reading */

static sfp_status path_in(const char *dir, const char *name, char *buf, size_t size, sfp_error *err)
{
    int need = snprintf(buf, size, "%s/%s", dir, name);
    if (need < 0 || (size_t)need >= size)
        return sfp__fail(err, SFP_ELIMIT, "%s/%s: the path is too long", dir, name);
    return SFP_OK;
}

static sfp_status open_part(const golden_case *g, const char *name, sfp_safetensors **out, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_status s = path_in(g->dir, name, path, sizeof path, err);
    return s == SFP_OK ? sfp__safetensors_open(path, out, err) : s;
}

/* A tensor of exactly this shape, as floats; *out is newly allocated. */
static sfp_status read_floats(const sfp_safetensors *st, const char *name, const int64_t *shape, int ndim, float **out, sfp_error *err)
{
    const sfp_tensor *t;
    const char *file = sfp__safetensors_path(st);
    sfp_status s = sfp__safetensors_need(st, name, &t, err);
    if (s == SFP_OK)
        s = sfp__tensor_expect(file, t, shape, ndim, err);
    if (s != SFP_OK)
        return s;
    float *values = sfp__malloc(t->count * sizeof *values);
    if (!values)
        return sfp__fail_nomem(err, t->count * sizeof *values);
    s = sfp__tensor_to_f32(file, t, values, err);
    if (s != SFP_OK) {
        sfp__free(values);
        return s;
    }
    *out = values;
    return SFP_OK;
}

/* One number of config.json against what the backbone was loaded with. */
static sfp_status same_number(const char *file, json_t *config, const char *key, double found, sfp_error *err)
{
    json_t *value = json_object_get(config, key);
    if (!value)
        return SFP_OK;
    if (!json_is_number(value))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s' is not a number", file, key);
    double expected = json_number_value(value);
    if (fabs(found - expected) > 1e-6 * fabs(expected))
        return sfp__fail(err, SFP_ESHAPE, "%s: '%s' is %g, but the backbone was loaded with %g", file, key, expected, found);
    return SFP_OK;
}

static sfp_status load_backbone(golden_case *g, sfp_error *err)
{
    char file[PATH_MAX], weights[PATH_MAX];
    json_error_t where;
    sfp_status s = path_in(g->dir, "config.json", file, sizeof file, err);
    if (s != SFP_OK)
        return s;
    json_t *config = json_load_file(file, JSON_REJECT_DUPLICATES, &where);
    if (!config)
        return sfp__fail(err, SFP_EFORMAT, "%s:%d: %s", file, where.line, where.text);
    const char *name = json_string_value(json_object_get(config, "backbone"));
    if (!name) {
        s = sfp__fail(err, SFP_EFORMAT, "%s: no text 'backbone', expected the weights' file", file);
        goto done;
    }
    s = name[0] == '/' ? path_in("", name + 1, weights, sizeof weights, err) : path_in(g->dir, name, weights, sizeof weights, err);
    if (s != SFP_OK || (s = sfp__vit_load(weights, NULL, &g->vit, err)) != SFP_OK)
        goto done;
    const sfp_vit_config *c = sfp__vit_config(g->vit);
    const struct {
        const char *key;
        double found;
    } numbers[] = {{"img_size", c->img_size}, {"patch_size", c->patch_size}, {"embed_dim", c->dim}, {"depth", c->depth},
                   {"num_heads", c->heads},   {"ln_eps", (double)c->ln_eps}};
    for (size_t i = 0; s == SFP_OK && i < sizeof numbers / sizeof *numbers; i++)
        s = same_number(file, config, numbers[i].key, numbers[i].found, err);
done:
    json_decref(config);
    return s;
}

static sfp_status read_labels(golden_case *g, sfp_error *err)
{
    const sfp_tensor *t;
    const char *file = sfp__safetensors_path(g->batch);
    int64_t shape[1] = {g->b};
    sfp_status s = sfp__safetensors_need(g->batch, "y", &t, err);
    if (s == SFP_OK)
        s = sfp__tensor_expect(file, t, shape, 1, err);
    if (s != SFP_OK)
        return s;
    g->y = sfp__malloc((size_t)g->b * sizeof *g->y);
    if (!g->y)
        return sfp__fail_nomem(err, (size_t)g->b * sizeof *g->y);
    s = sfp__tensor_to_i64(file, t, g->y, err);
    for (int i = 0; s == SFP_OK && i < g->b; i++)
        if (g->y[i] < 0 || g->y[i] >= g->classes)
            s = sfp__fail(err, SFP_EFORMAT, "%s: tensor 'y' holds %lld at %d, expected 0 to %d", file, (long long)g->y[i], i, g->classes - 1);
    return s;
}

static sfp_status read_prefixes(golden_case *g, sfp_error *err)
{
    const sfp_vit_config *c = sfp__vit_config(g->vit);
    sfp_status s = SFP_OK;
    for (int l = 0; s == SFP_OK && l < c->depth; l++) {
        char k_name[32], v_name[32];
        (void)snprintf(k_name, sizeof k_name, "prefix_k_%d", l);
        (void)snprintf(v_name, sizeof v_name, "prefix_v_%d", l);
        const sfp_tensor *t = sfp__safetensors_find(g->expect, k_name);
        if (!t)
            continue;
        if (t->ndim != 3 || t->shape[1] < 1 || t->shape[1] > MAX_PREFIX_ROWS) {
            char shape[160];
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected (%d, 1 to %d, %d)", sfp__safetensors_path(g->expect),
                             k_name, sfp__shape_text(t->shape, t->ndim, shape, sizeof shape), g->b, MAX_PREFIX_ROWS, c->dim);
        }
        g->rows[l] = (int)t->shape[1];
        int64_t shape[3] = {g->b, g->rows[l], c->dim};
        size_t floats = (size_t)g->b * (size_t)g->rows[l] * (size_t)c->dim;
        if ((s = read_floats(g->expect, k_name, shape, 3, &g->prefix_k[l], err)) != SFP_OK ||
            (s = read_floats(g->expect, v_name, shape, 3, &g->prefix_v[l], err)) != SFP_OK)
            break;
        g->grad_k[l] = sfp__calloc(floats, sizeof(float));
        g->grad_v[l] = sfp__calloc(floats, sizeof(float));
        if (!g->grad_k[l] || !g->grad_v[l])
            s = sfp__fail_nomem(err, floats * sizeof(float));
    }
    return s;
}

static sfp_status read_case(golden_case *g, sfp_error *err)
{
    struct stat st;
    if (stat(g->dir, &st) != 0)
        return sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", g->dir);
    if (!S_ISDIR(st.st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: found a file, expected the folder of a golden case", g->dir);
    sfp_status s;
    if ((s = load_backbone(g, err)) != SFP_OK || (s = open_part(g, "batch.safetensors", &g->batch, err)) != SFP_OK ||
        (s = open_part(g, "state0.safetensors", &g->state, err)) != SFP_OK ||
        (s = open_part(g, "expect.safetensors", &g->expect, err)) != SFP_OK)
        return s;

    const sfp_vit_config *c = sfp__vit_config(g->vit);
    const sfp_tensor *x, *last;
    if ((s = sfp__safetensors_need(g->batch, "x", &x, err)) != SFP_OK ||
        (s = sfp__safetensors_need(g->state, "last.bias", &last, err)) != SFP_OK)
        return s;
    if (x->ndim < 1 || x->shape[0] < 1 || x->shape[0] > INT_MAX / 2)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'x' holds no pictures", sfp__safetensors_path(g->batch));
    if (last->count < 1 || last->count > MAX_CLASSES)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'last.bias' has %zu elements, expected 1 to %d", sfp__safetensors_path(g->state),
                         last->count, MAX_CLASSES);
    g->b = (int)x->shape[0];
    g->classes = (int)last->count;
    int64_t x_shape[4] = {g->b, 3, c->img_size, c->img_size}, w_shape[2] = {g->classes, c->dim}, b_shape[1] = {g->classes};
    if ((s = read_floats(g->batch, "x", x_shape, 4, &g->x, err)) != SFP_OK ||
        (s = read_floats(g->state, "last.weight", w_shape, 2, &g->last_w, err)) != SFP_OK ||
        (s = read_floats(g->state, "last.bias", b_shape, 1, &g->last_b, err)) != SFP_OK || (s = read_labels(g, err)) != SFP_OK ||
        (s = read_prefixes(g, err)) != SFP_OK)
        return s;

    size_t b = (size_t)g->b, dim = (size_t)c->dim, patches = (size_t)sfp__vit_tokens(g->vit) - 1;
    g->query = sfp__calloc(b * dim, sizeof(float));
    g->feature = sfp__calloc(b * dim, sizeof(float));
    g->embed = sfp__calloc(b * patches * dim, sizeof(float));
    g->logits = sfp__calloc(b * (size_t)g->classes, sizeof(float));
    size_t tensors = sfp__safetensors_count(g->expect);
    g->checked = sfp__calloc(tensors ? tensors : 1, sizeof *g->checked);
    if (!g->query || !g->feature || !g->embed || !g->logits || !g->checked)
        return sfp__fail_nomem(err, b * patches * dim * sizeof(float));
    return SFP_OK;
}

static void free_case(golden_case *g)
{
    sfp__vit_plan_free(g->query_plan);
    sfp__vit_plan_free(g->prefix_plan);
    sfp__vit_free(g->vit);
    sfp_safetensors *files[] = {g->batch, g->state, g->expect};
    for (int i = 0; i < 3; i++)
        if (files[i])
            sfp__safetensors_close(files[i]);
    float *blocks[] = {g->x, g->last_w, g->last_b, g->query, g->embed, g->logits, g->feature};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
    for (int l = 0; l < SFP_VIT_MAX_DEPTH; l++) {
        sfp__free(g->prefix_k[l]);
        sfp__free(g->prefix_v[l]);
        sfp__free(g->grad_k[l]);
        sfp__free(g->grad_v[l]);
    }
    sfp__free(g->y);
    sfp__free(g->checked);
}

/* -------------------------------------------------------------- computing */

/* Mean cross-entropy over the batch: grad_feature = W^t (softmax(z) - onehot(y)) / b, z = W feature + bias. */
static void classifier(void *ctx, int first, int n, const float *feature, float *grad_feature)
{
    golden_case *g = ctx;
    size_t dim = (size_t)sfp__vit_config(g->vit)->dim;
    for (int i = 0; i < n; i++) {
        const float *f = feature + (size_t)i * dim;
        float *grad = grad_feature + (size_t)i * dim;
        float *z = g->logits + (size_t)(first + i) * (size_t)g->classes;
        double max = -INFINITY, sum = 0;
        for (int k = 0; k < g->classes; k++) {
            double v = (double)g->last_b[k];
            for (size_t d = 0; d < dim; d++)
                v += (double)g->last_w[(size_t)k * dim + d] * (double)f[d];
            z[k] = (float)v;
            max = v > max ? v : max;
        }
        for (int k = 0; k < g->classes; k++)
            sum += exp((double)z[k] - max);
        memset(grad, 0, dim * sizeof *grad);
        for (int k = 0; k < g->classes; k++) {
            double r = exp((double)z[k] - max) / sum - (g->y[first + i] == k ? 1.0 : 0.0);
            float scale = (float)(r / (double)g->b);
            for (size_t d = 0; d < dim; d++)
                grad[d] += scale * g->last_w[(size_t)k * dim + d];
        }
    }
}

static sfp_status compute(golden_case *g, sfp_pool *pool, sfp_error *err)
{
    const sfp_vit_config *c = sfp__vit_config(g->vit);
    sfp_vit_plan_options plain = {.mode = SFP_VIT_FORWARD}, prefixed = {.mode = SFP_VIT_GRAD_PREFIX};
    for (int l = 0; l < c->depth; l++)
        prefixed.prefix_rows = g->rows[l] > prefixed.prefix_rows ? g->rows[l] : prefixed.prefix_rows;
    sfp_status s = sfp__vit_plan_create(g->vit, pool, &plain, &g->query_plan, err);
    if (s == SFP_OK)
        s = sfp__vit_plan_create(g->vit, pool, &prefixed, &g->prefix_plan, err);
    if (s != SFP_OK)
        return s;
    sfp_vit_pass query = {.b = g->b, .x = g->x, .feature = g->query, .embed = g->embed};
    s = sfp__vit_run(g->query_plan, &query, err);
    if (s != SFP_OK)
        return s;
    sfp_vit_pass pass = {.b = g->b, .x = g->x, .feature = g->feature, .head = classifier, .head_ctx = g};
    for (int l = 0; l < c->depth; l++) {
        pass.prefix_rows[l] = g->rows[l];
        pass.prefix_k[l] = g->prefix_k[l];
        pass.prefix_v[l] = g->prefix_v[l];
        pass.grad_prefix_k[l] = g->grad_k[l];
        pass.grad_prefix_v[l] = g->grad_v[l];
    }
    return sfp__vit_run(g->prefix_plan, &pass, err);
}

/* -------------------------------------------------------------- comparing */

/* Relative L2 error; NaN when either side holds one. */
static double relative_error(const float *found, const float *expected, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)found[i] - (double)expected[i];
        difference += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    if (difference == 0 && !isnan(size))
        return 0;
    return sqrt(difference / size); /* infinite when zeros were expected */
}

static void print_line(verify_run *r, golden_case *g, const char *name, double error, double tolerance)
{
    bool ok = error <= tolerance; /* false for NaN */
    g->tensors++;
    g->failures += !ok;
    if (r->json) {
        sfp__json_object(&r->out, NULL);
        sfp__json_string(&r->out, "name", name);
        sfp__json_real(&r->out, "error", error);
        sfp__json_real(&r->out, "tolerance", tolerance);
        sfp__json_bool(&r->out, "ok", ok);
        sfp__json_end(&r->out);
    } else {
        (void)printf("  %-16s  %9.2e  %7.0e  %s%s%s\n", name, error, tolerance,
                     ok ? sfp__color_good(stdout) : sfp__color_bad(stdout), ok ? "ok" : "FAIL", sfp__color_off(stdout));
    }
}

static void mark(golden_case *g, const char *name)
{
    for (size_t i = 0; i < sfp__safetensors_count(g->expect); i++)
        if (strcmp(sfp__safetensors_at(g->expect, i)->name, name) == 0)
            g->checked[i] = true;
}

static sfp_status compare(verify_run *r, golden_case *g, const char *name, const float *found, const int64_t *shape, int ndim,
                          double tolerance, sfp_error *err)
{
    float *expected = NULL;
    sfp_status s = read_floats(g->expect, name, shape, ndim, &expected, err);
    if (s != SFP_OK)
        return s;
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    print_line(r, g, name, relative_error(found, expected, n), tolerance);
    mark(g, name);
    sfp__free(expected);
    return SFP_OK;
}

static sfp_status compare_all(verify_run *r, golden_case *g, sfp_error *err)
{
    const sfp_vit_config *c = sfp__vit_config(g->vit);
    int64_t query[2] = {g->b, c->dim}, embed[3] = {g->b, sfp__vit_tokens(g->vit) - 1, c->dim}, logits[2] = {g->b, g->classes};
    sfp_status s;
    if ((s = compare(r, g, "query", g->query, query, 2, TOLERANCE_VALUE, err)) != SFP_OK ||
        (s = compare(r, g, "embed", g->embed, embed, 3, TOLERANCE_VALUE, err)) != SFP_OK ||
        (s = compare(r, g, "logits", g->logits, logits, 2, TOLERANCE_VALUE, err)) != SFP_OK)
        return s;
    for (int l = 0; l < c->depth; l++) {
        char name[32];
        int64_t shape[3] = {g->b, g->rows[l], c->dim};
        for (int v = 0; g->rows[l] > 0 && v < 2; v++) {
            (void)snprintf(name, sizeof name, "prefix_%c_%d", v ? 'v' : 'k', l);
            mark(g, name); /* an input */
            (void)snprintf(name, sizeof name, "grad_prefix_%c_%d", v ? 'v' : 'k', l);
            s = compare(r, g, name, v ? g->grad_v[l] : g->grad_k[l], shape, 3, TOLERANCE_GRADIENT, err);
            if (s != SFP_OK)
                return s;
        }
    }
    return SFP_OK;
}

/* Length of the part of a name that stands for its family: "grad_masked" of "grad_masked.last.bias". */
static size_t family(const char *name)
{
    return strcspn(name, ".");
}

/* What expect.safetensors holds beyond the backbone's parts: named, a family at a time, so that nobody takes it for checked. */
static void list_unchecked(verify_run *r, const golden_case *g)
{
    size_t total = sfp__safetensors_count(g->expect), column = 0;
    if (r->json)
        sfp__json_array(&r->out, "not_checked");
    for (size_t i = 0; i < total; i++) {
        const char *name = sfp__safetensors_at(g->expect, i)->name;
        if (g->checked[i])
            continue;
        if (r->json) {
            sfp__json_string(&r->out, NULL, name);
            continue;
        }
        size_t n = family(name), members = 0;
        bool earlier = false;
        for (size_t k = 0; k < total; k++) {
            const char *other = sfp__safetensors_at(g->expect, k)->name;
            if (g->checked[k] || family(other) != n || memcmp(other, name, n) != 0)
                continue;
            earlier = earlier || k < i;
            members++;
        }
        if (earlier)
            continue;
        char text[160];
        if (members > 1)
            (void)snprintf(text, sizeof text, "%.*s.* (%zu)", (int)(n > 100 ? 100 : n), name, members);
        else
            (void)snprintf(text, sizeof text, "%.100s", name);
        if (column == 0)
            (void)printf("  not checked:");
        else if (column + strlen(text) > 90)
            (void)printf("\n              ");
        column = column + strlen(text) > 90 ? 1 + strlen(text) : column + 1 + strlen(text);
        (void)fputc(' ', stdout);
        sfp__put_text(stdout, text, 0);
    }
    if (r->json)
        sfp__json_end(&r->out);
    else if (column)
        (void)fputc('\n', stdout);
}

/* Prints the case; *ok tells whether all tensors held. */
static sfp_status verify_case(verify_run *r, const char *dir, bool *ok, sfp_error *err)
{
    golden_case g = {.dir = dir};
    sfp_status s = read_case(&g, err);
    if (s == SFP_OK)
        s = compute(&g, r->pool, err);
    if (s == SFP_OK) {
        if (r->json)
            sfp__json_array(&r->out, "tensors");
        else
            (void)printf("%s\n", dir);
        s = compare_all(r, &g, err);
        if (r->json)
            sfp__json_end(&r->out);
    }
    if (s == SFP_OK)
        list_unchecked(r, &g);
    *ok = s == SFP_OK && g.failures == 0 && g.tensors > 0;
    if (s == SFP_OK && !r->json)
        (void)printf("  %d of %d tensors hold\n", g.tensors - g.failures, g.tensors);
    free_case(&g);
    return s;
}

static int run(const sfp_args *args)
{
    verify_run r = {.json = sfp__args_flag(args, "json")};
    sfp_error err = {0};
    if (sfp__pool_create((int)sfp__args_int(args, "threads"), &r.pool, &err) != SFP_OK)
        return sfp__say_error(&err);
    bool all = true;
    if (r.json) {
        sfp__json_begin(&r.out, stdout);
        sfp__json_array(&r.out, "cases");
    }
    for (int i = 0; i < args->operand_count; i++) {
        bool ok = false;
        if (r.json) {
            sfp__json_object(&r.out, NULL);
            sfp__json_string(&r.out, "case", args->operands[i]);
        }
        memset(&err, 0, sizeof err);
        if (verify_case(&r, args->operands[i], &ok, &err) != SFP_OK) {
            (void)sfp__say_error(&err);
            if (r.json)
                sfp__json_string(&r.out, "error", err.message);
        }
        if (r.json) {
            sfp__json_bool(&r.out, "ok", ok);
            sfp__json_end(&r.out);
        }
        all = all && ok;
    }
    if (r.json) {
        sfp__json_end(&r.out);
        sfp__json_bool(&r.out, "ok", all);
        sfp__json_end_all(&r.out);
    }
    sfp__pool_free(r.pool);
    return all ? SFP_EXIT_OK : SFP_EXIT_FAILED;
}

const sfp_command sfp__cmd_verify = {
    .name = "verify",
    .summary = "recompute golden cases and compare",
    .operands = "DIR...",
    .min_operands = 1,
    .max_operands = SFP_OPERANDS_ANY,
    .text = "Recomputes what the backbone contributes to a golden case: query, embed, logits with the prefixes given, and the "
            "gradients to these prefixes. One line a tensor: name, relative error (Euclidean), tolerance, ok or FAIL. Tensors that "
            "are not checked are named.\n\n"
            "The exit code is 0 when all hold.",
    .examples = "  streamfp verify golden/plain golden/deit_tiny\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
