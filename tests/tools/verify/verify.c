/* streamfp-verify [--threads N] DIR|FILE...: recomputes golden cases and compares.
 *
 * Prints one line per tensor: name, relative error, tolerance, ok or FAIL. Tensors that are not checked are listed. Given a directory
 * of cases, it prints one line per case and one line per failed tensor. The exit status is 0 if all hold.
 *
 * A case is a directory: config.json names the backbone's file, batch.safetensors has the samples, state0.safetensors the
 * learnable state, expect.safetensors the expected results. A file is a list of buffer updates.
 *
 * The error of a tensor is |found - expected| / |expected|, Euclidean over all elements; any NaN fails. Tolerances are those
 * of the reference: 1e-3 for gradients, 1e-2 for updates, indices exact, 1e-4 for the rest. */
#include "verify.h"
#include "cli/command.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json_read.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CLASSES 1000000

static const sfp__opt options[] = {
    SFP__ROW_THREADS,
};

/* ---------------------------------------------------------------- reading */

sfp_status sfp__verify_open(const sfp__golden *g, const char *name, sfp__tensor_file **out, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__path_print(path, sizeof path, err, "%s/%s", g->dir, name));
    return sfp__safetensors_open(path, out, err);
}

sfp_status sfp__verify_floats(const sfp__tensor_file *st, const char *name, const int64_t *shape, int ndim, float **out,
                              sfp_error *err)
{
    const sfp__tensor *t;
    OWNED float *values = NULL;
    TRY(sfp__tensor_file_need(st, name, &t, err));
    TRY(sfp__tensor_expect(st->path, t, shape, ndim, err));
    TRY(sfp__alloc(&values, t->count, sizeof *values, err));
    TRY(sfp__tensor_to_f32(st->path, t, values, err));
    *out = TAKE(values);
    return SFP_OK;
}

sfp_status sfp__verify_labels(const sfp__tensor_file *st, const char *name, int n, int classes, int64_t **out, sfp_error *err)
{
    const sfp__tensor *t;
    OWNED int64_t *values = NULL;
    TRY(sfp__tensor_file_need(st, name, &t, err));
    TRY(sfp__tensor_expect(st->path, t, (int64_t[]){n}, 1, err));
    TRY(sfp__alloc(&values, (size_t)n, sizeof *values, err));
    TRY(sfp__tensor_to_i64(st->path, t, values, err));
    for (int i = 0; i < n; i++)
        if (values[i] < 0 || values[i] >= classes)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' holds %lld at %d, expected 0 to %d", st->path, name,
                             (long long)values[i], i, classes - 1);
    *out = TAKE(values);
    return SFP_OK;
}

/* Checks that a number of config.json equals that of the loaded backbone. */
static sfp_status same_number(const char *file, const sfp__json_value *config, const char *key, double found, sfp_error *err)
{
    const sfp__json_value *value = sfp__json_get(config, key);
    if (!value)
        return SFP_OK;
    if (!sfp__json_is_number(value))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s' is not a number", file, key);
    double expected = sfp__json_number(value);
    if (fabs(found - expected) > 1e-6 * fabs(expected))
        return sfp__fail(err, SFP_ESHAPE, "%s: '%s' is %g, but the backbone was loaded with %g", file, key, expected, found);
    return SFP_OK;
}

static sfp_status load_backbone(sfp__golden *g, sfp_error *err)
{
    char file[PATH_MAX], weights[PATH_MAX];
    TRY(sfp__path_print(file, sizeof file, err, "%s/config.json", g->dir));
    TRY(sfp__json_read(file, 1 << 20, &g->config, err));
    const char *name = sfp__json_text(sfp__json_get(g->config, "backbone"));
    if (!name)
        return sfp__fail(err, SFP_EFORMAT, "%s: no text 'backbone', expected the weights' file", file);
    bool absolute = name[0] == '/';
    TRY(sfp__path_print(weights, sizeof weights, err, "%s%s%s", absolute ? "" : g->dir, absolute ? "" : "/", name));
    TRY(sfp__vit_load(weights, NULL, &g->vit, err));
    const sfp__vit_config *c = &g->vit->config;
    const struct {
        const char *key;
        double found;
    } numbers[] = {{"img_size", c->img_size}, {"patch_size", c->patch_size}, {"embed_dim", c->dim},
                   {"depth", c->depth},       {"num_heads", c->heads},       {"ln_eps", (double)c->ln_eps}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(same_number(file, g->config, numbers[i].key, numbers[i].found, err));
    return SFP_OK;
}

static sfp_status read_case(sfp__golden *g, sfp_error *err)
{
    TRY(load_backbone(g, err));
    TRY(sfp__verify_open(g, "batch.safetensors", &g->batch, err));
    TRY(sfp__verify_open(g, "state0.safetensors", &g->state, err));
    TRY(sfp__verify_open(g, "expect.safetensors", &g->expect, err));

    const sfp__vit_config *c = &g->vit->config;
    const sfp__tensor *x, *last;
    TRY(sfp__tensor_file_need(g->batch, "x", &x, err));
    TRY(sfp__tensor_file_need(g->state, "last.bias", &last, err));
    if (x->ndim < 1 || x->shape[0] < 1 || x->shape[0] > INT_MAX / 2)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'x' holds no images", g->batch->path);
    if (last->count < 1 || last->count > MAX_CLASSES)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'last.bias' has %zu elements, expected 1 to %d", g->state->path,
                         last->count, MAX_CLASSES);
    g->b = (int)x->shape[0];
    g->classes = (int)last->count;
    TRY(sfp__verify_floats(g->batch, "x", (int64_t[]){g->b, 3, c->img_size, c->img_size}, 4, &g->x, err));
    TRY(sfp__verify_labels(g->batch, "y", g->b, g->classes, &g->y, err));
    TRY(sfp__alloc(&g->query, (size_t)g->b * (size_t)c->dim, sizeof *g->query, err));
    return sfp__alloc(&g->checked, g->expect->count, sizeof *g->checked, err);
}

static void golden_done(sfp__golden *g)
{
    sfp__vit_free(g->vit);
    sfp__free(g->config);
    sfp__tensor_file_close(g->batch);
    sfp__tensor_file_close(g->state);
    sfp__tensor_file_close(g->expect);
    sfp__free(g->x);
    sfp__free(g->query);
    sfp__free(g->y);
    sfp__free(g->checked);
}

/* -------------------------------------------------------------- comparing */

double sfp__verify_error(const float *found, const float *expected, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)found[i] - (double)expected[i];
        difference += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    if (difference == 0 && !isnan(size))
        return 0;
    return sqrt(difference / size); /* infinite if zeros were expected */
}

void sfp__verify_line(sfp__verify *r, const char *name, double error, double tolerance)
{
    bool ok = error <= tolerance; /* false for NaN */
    r->tensors++;
    r->failures += !ok;
    if (!ok || !r->brief)
        (void)printf("  %-40s  %9.2e  %7.0e  %s\n", name, error, tolerance, ok ? "ok" : "FAIL");
}

void sfp__verify_mark(sfp__golden *g, const char *name)
{
    for (size_t i = 0; i < g->expect->count; i++)
        if (strcmp(g->expect->tensors[i].name, name) == 0)
            g->checked[i] = true;
}

sfp_status sfp__verify_compare(sfp__verify *r, sfp__golden *g, const char *name, const float *found, const int64_t *shape,
                               int ndim, double tolerance, sfp_error *err)
{
    OWNED float *expected = NULL;
    TRY(sfp__verify_floats(g->expect, name, shape, ndim, &expected, err));
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    sfp__verify_line(r, name, sfp__verify_error(found, expected, n), tolerance);
    sfp__verify_mark(g, name);
    return SFP_OK;
}

/* Length of the part of a name that identifies its family: "grad_masked" of "grad_masked.last.bias". */
static size_t family(const char *name)
{
    return strcspn(name, ".");
}

/* Lists the tensors of expect.safetensors that were not checked, one entry per family. */
static void list_unchecked(sfp__verify *r, const sfp__golden *g)
{
    size_t total = g->expect->count, column = 0;
    for (size_t i = 0; i < total; i++) {
        const char *name = g->expect->tensors[i].name;
        if (g->checked[i])
            continue;
        size_t n = family(name), members = 0;
        bool listed_before = false;
        for (size_t k = 0; k < total; k++) {
            const char *other = g->expect->tensors[k].name;
            if (g->checked[k] || family(other) != n || memcmp(other, name, n) != 0)
                continue;
            listed_before = listed_before || k < i;
            members++;
        }
        if (listed_before || r->brief)
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
    if (column)
        (void)fputc('\n', stdout);
}

/* Checks the tensors of a case and prints one line per tensor. g: a case directory that was read; NULL: path is a list of
 * buffer updates. */
static sfp_status verify_tensors(sfp__verify *r, const char *path, sfp__golden *g, sfp_error *err)
{
    if (!r->brief) {
        sfp__put_text(stdout, path, 0);
        (void)fputc('\n', stdout);
    }
    sfp_status s = g ? sfp__verify_backbone(r, g, err) : sfp__verify_buffer(r, path, err);
    if (!s && g)
        s = sfp__verify_learner(r, g, err);
    return s;
}

static sfp_status verify_directory(sfp__verify *r, const char *dir, sfp_error *err)
{
    OWNED_BY(golden_done) sfp__golden g = {.dir = dir};
    TRY(read_case(&g, err));
    TRY(verify_tensors(r, dir, &g, err));
    list_unchecked(r, &g);
    return SFP_OK;
}

/* Checks and prints a case. *ok: whether all tensors hold. */
static sfp_status verify_case(sfp__verify *r, const char *path, bool *ok, sfp_error *err)
{
    struct stat st;
    r->tensors = r->failures = 0;
    if (stat(path, &st) != 0)
        return sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", path);
    TRY(S_ISDIR(st.st_mode) ? verify_directory(r, path, err) : verify_tensors(r, path, NULL, err));
    *ok = r->failures == 0 && r->tensors > 0;
    sfp__put_text(stdout, r->brief ? path : " ", 0);
    (void)printf("%s %d of %d hold\n", r->brief ? ":" : "", r->tensors - r->failures, r->tensors);
    return SFP_OK;
}

/* Checks one case, with its error output. Returns whether all tensors hold. */
static bool verify_one(sfp__verify *r, const char *path)
{
    bool ok = false;
    sfp_error err = {0};
    if (verify_case(r, path, &ok, &err) != SFP_OK)
        (void)sfp__print_error(&err);
    return ok;
}

/* Returns whether path is a case: a directory with a config.json, or a file named buffer.json. */
static bool is_case(const char *path)
{
    char config[PATH_MAX];
    struct stat st;
    sfp_error unused;
    const char *slash = strrchr(path, '/');
    if (slash && strcmp(slash, "/buffer.json") == 0)
        return true;
    return sfp__path_print(config, sizeof config, &unused, "%s/config.json", path) == SFP_OK && stat(config, &st) == 0;
}

/* Lists the cases of a directory, sorted by name, without its subdirectories. */
static sfp_status list_cases(const char *directory, sfp__strings *cases, sfp_error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(directory, &entries, NULL, alphasort);
    if (n < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot list", directory);
    sfp_status s = SFP_OK;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        sfp_error unused;
        const char *name = entries[i]->d_name;
        if (!s && name[0] != '.' && !sfp__path_print(path, sizeof path, &unused, "%s/%s", directory, name) && is_case(path))
            s = sfp__strings_add(cases, path, err);
        free(entries[i]);
    }
    free(entries);
    return s;
}

/* Checks a case, or all cases of a directory that is not a case itself. */
static bool verify_operand(sfp__verify *r, const char *path)
{
    OWNED_BY(sfp__strings_done) sfp__strings cases = {0};
    sfp_error err = {0};
    struct stat st;
    bool all = true, directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode) && !is_case(path);
    if (directory && list_cases(path, &cases, &err) != SFP_OK) {
        (void)sfp__print_error(&err);
        all = false;
    } else if (cases.count == 0) {
        all = verify_one(r, path);
    }
    r->brief = true;
    for (int i = 0; i < cases.count; i++)
        all = verify_one(r, cases.s[i]) && all;
    r->brief = false;
    return all;
}

static int run(const sfp__args *args)
{
    sfp__verify r = {0};
    sfp_error err = {0};
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    if (sfp__thread_pool_create((int)sfp__args_int(args, "threads"), &pool, &err) != SFP_OK)
        return sfp__print_error(&err);
    r.pool = pool;
    bool all = true;
    for (int i = 0; i < args->operand_count; i++)
        all = verify_operand(&r, args->operands[i]) && all;
    return all ? SFP__EXIT_OK : SFP__EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static const char usage[] = "streamfp-verify [--threads N] DIR|FILE...";
    OWNED_BY(sfp__args_done) sfp__args args = {0};
    sfp_error err = {0};
    int code = SFP__EXIT_USAGE;
    if (sfp__args_init(&args, "verify", options, sizeof options / sizeof *options, &err))
        return sfp__print_error(&err);
    if (sfp__args_parse(&args, argc - 1, argv + 1, &err)) {
        (void)sfp__print_error(&err);
    } else if (args.help) {
        (void)puts(usage);
        code = SFP__EXIT_OK;
    } else if (args.operand_count == 0) {
        sfp__info("expected %s", usage);
    } else {
        code = run(&args);
    }
    return fflush(stdout) == 0 ? code : SFP__EXIT_FAILED;
}
