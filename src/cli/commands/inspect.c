/* streamfp inspect: what a weights file holds, and what it would be loaded as.
 *
 * Any file of tensors can be looked into; states and checkpoints are told by what they say of themselves (inspect_saved.c). When
 * it is not a ViT either the reason is the loader's own message, so that inspect never claims something that predict would not
 * accept. */
#include "cli/backbone.h"
#include "cli/command.h"
#include "cli/commands/inspect_saved.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/tensor/tensor_file.h"
#include "model/vit.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const sfp_opt options[] = {
    SFP_ROW_FLAG("stats", "Read every tensor and add its minimum, maximum, mean and count of NaN."),
    SFP_ROW_FLAG("brief", "Leave the table of tensors out."),
    SFP_ROW_IMG_SIZE,
    SFP_ROW_JSON,
};

typedef struct inspected {
    const char *path, *format;
    sfp_tensor_file *set;
    sfp_inspect_saved saved; /* a state or a checkpoint; or */
    sfp_vit *vit;            /* a ViT; or why not */
    char why_not[SFP_ERROR_MAX];
} inspected;

typedef struct tensor_stats {
    double min, max, mean; /* over the finite elements; NaN when there are none */
    size_t nan, inf;
} tensor_stats;

/* A ViT at this input size (0: the file's own), or why it is none. One that cannot have that size is an error. */
static sfp_status load_vit(inspected *in, int img_size, sfp_error *err)
{
    sfp_error why = {0};
    const sfp_vit_options o = {.img_size = img_size}, own = {0};
    sfp_status s = sfp__vit_load(in->path, &o, &in->vit, &why);
    if (s == SFP_OK)
        return SFP_OK;
    if (s == SFP_ENOMEM || (img_size && sfp__vit_load(in->path, &own, &in->vit, NULL) == SFP_OK)) {
        *err = why;
        return s;
    }
    (void)memcpy(in->why_not, why.message, sizeof in->why_not);
    return SFP_OK;
}

static sfp_status open_file(inspected *in, const char *path, int img_size, sfp_error *err)
{
    bool builtin = strcmp(path, SFP_VIT_BUILTIN) == 0;
    in->path = path;
    TRY(builtin ? sfp__vit_builtin_open(&in->set, err) : sfp__tensor_file_open(path, &in->set, err));
    in->format = in->set->format;
    if (strcmp(in->format, "npy") == 0) {
        (void)snprintf(in->why_not, sizeof in->why_not, "a single array, expected a set of named tensors");
        return SFP_OK;
    }
    if (!builtin && strcmp(in->format, "safetensors") == 0)
        sfp__inspect_saved_init(in->set, &in->saved);
    return in->saved.what[0] ? SFP_OK : load_vit(in, img_size, err);
}

static void close_file(inspected *in)
{
    sfp__inspect_saved_done(&in->saved);
    sfp__vit_free(in->vit);
    sfp__tensor_file_close(in->set);
}

/* ------------------------------------------------------------------- stats */

#define STATS_CHUNK 65536
#define VALUE_SHOWN 2000 /* characters of the metadata: a checkpoint has the whole result of its run there */

/* Converts a piece at a time: the largest tensor costs no memory. */
static sfp_status measure(const inspected *in, const sfp_tensor *t, tensor_stats *out, sfp_error *err)
{
    float *values = sfp__malloc(STATS_CHUNK * sizeof *values);
    if (!values)
        return sfp__fail_nomem(err);
    size_t element = sfp__dtype_size(t->dtype), finite = 0;
    double sum = 0;
    sfp_status s = SFP_OK;
    tensor_stats r = {.min = INFINITY, .max = -INFINITY, .mean = NAN};
    for (size_t at = 0; s == SFP_OK && at < t->count; at += STATS_CHUNK) {
        sfp_tensor piece = *t;
        size_t n = t->count - at < STATS_CHUNK ? t->count - at : STATS_CHUNK;
        piece.data = (const char *)t->data + at * element;
        piece.count = n;
        piece.bytes = n * element;
        piece.ndim = 1;
        piece.shape[0] = (int64_t)n;
        s = sfp__tensor_to_f32(in->path, &piece, values, err);
        for (size_t i = 0; s == SFP_OK && i < n; i++) {
            double v = (double)values[i];
            if (isnan(v)) {
                r.nan++;
            } else if (isinf(v)) {
                r.inf++;
            } else {
                r.min = v < r.min ? v : r.min;
                r.max = v > r.max ? v : r.max;
                sum += v;
                finite++;
            }
        }
    }
    sfp__free(values);
    if (s != SFP_OK)
        return s;
    if (finite)
        r.mean = sum / (double)finite;
    else
        r.min = r.max = NAN;
    *out = r;
    return SFP_OK;
}

/* -------------------------------------------------------------------- text */

static void print_head(const inspected *in)
{
    size_t bytes = 0, elements = 0;
    for (size_t i = 0; i < in->set->count; i++) {
        bytes += in->set->tensors[i].bytes;
        elements += in->set->tensors[i].count;
    }
    (void)printf("file          %s\n", in->path);
    (void)printf("format        %s, %zu tensor%s, %zu elements, %zu bytes\n", in->format, in->set->count,
                 in->set->count == 1 ? "" : "s", elements, bytes);
    if (in->saved.what[0]) {
        sfp__inspect_saved_text(&in->saved);
        return;
    }
    if (!in->vit) {
        (void)printf("recognised    not a ViT: ");
        sfp__put_text(stdout, in->why_not, 0);
        (void)printf("\n");
        return;
    }
    const sfp_vit_config *c = &in->vit->config;
    (void)printf("recognised    %s\n", in->vit->recognised);
    if (in->vit->ignored[0])
        (void)printf("ignored       %s\n", in->vit->ignored);
    (void)printf("architecture  S %d, P %d, D %d, depth %d, H %d, F %d\n", c->img_size, c->patch_size, c->dim, c->depth, c->heads,
                 c->hidden);
    (void)printf("tokens        %d (class token and %d patches)\n", in->vit->tokens, in->vit->tokens - 1);
    if (c->classes)
        (void)printf("classes       %d%s\n", c->classes, c->class_names ? ", with names" : "");
    else
        (void)printf("classes       none: no head\n");
    (void)printf("parameters    %zu without the head\n", sfp__vit_parameters(in->vit));
    (void)printf("ln_eps        %g\n", (double)c->ln_eps);
    (void)printf("activation    %s\n", c->quick_gelu ? "quick_gelu" : "gelu");
    (void)printf("mean, std     %g %g %g, %g %g %g\n", (double)c->mean[0], (double)c->mean[1], (double)c->mean[2],
                 (double)c->std[0], (double)c->std[1], (double)c->std[2]);
}

static sfp_status print_tensors(const inspected *in, bool stats, sfp_error *err)
{
    int width = 4;
    for (size_t i = 0; i < in->set->count; i++) {
        int n = (int)strnlen(in->set->tensors[i].name, 60);
        width = n > width ? n : width;
    }
    (void)printf("\n%-*s  %-5s  %-*s", width, "name", "dtype", stats ? 20 : 0, "shape");
    if (stats)
        (void)printf("  %12s  %12s  %12s  %s", "min", "max", "mean", "nan");
    (void)printf("\n");
    for (size_t i = 0; i < in->set->count; i++) {
        const sfp_tensor *t = &in->set->tensors[i];
        char shape[160];
        sfp__put_text(stdout, t->name, width);
        (void)sfp__shape_text(t->shape, t->ndim, shape, sizeof shape);
        (void)printf("  %-5s  %-*s", sfp__dtype_name(t->dtype), stats ? 20 : 0, shape);
        if (stats) {
            tensor_stats m;
            sfp_status s = measure(in, t, &m, err);
            if (s != SFP_OK)
                return s;
            (void)printf("  %12.5g  %12.5g  %12.5g  %zu", m.min, m.max, m.mean, m.nan);
            if (m.inf)
                (void)printf(" (and %zu infinite)", m.inf);
        }
        (void)printf("\n");
    }
    return SFP_OK;
}

static void print_meta(const inspected *in)
{
    size_t n = in->set->meta_count;
    if (n > 0)
        (void)printf("\nmetadata\n");
    for (size_t i = 0; i < n; i++) {
        const char *key = in->set->meta[i].key, *value = in->set->meta[i].value;
        (void)printf("  ");
        sfp__put_text(stdout, key, 0);
        (void)printf(": ");
        if (sfp__text_width(value) > VALUE_SHOWN)
            sfp__put_cell(stdout, value, VALUE_SHOWN);
        else
            sfp__put_text(stdout, value, 0);
        (void)printf("\n");
    }
}

/* -------------------------------------------------------------------- json */

static void triple(sfp_json *j, const char *key, const float v[3])
{
    sfp__json_array(j, key);
    for (int i = 0; i < 3; i++)
        sfp__json_float(j, NULL, v[i]);
    sfp__json_end(j);
}

static void json_vit(sfp_json *j, const inspected *in)
{
    sfp__json_bool(j, "vit", in->vit != NULL);
    if (in->saved.what[0]) {
        sfp__inspect_saved_json(j, &in->saved);
        return;
    }
    if (!in->vit) {
        sfp__json_string(j, "not_a_vit", in->why_not);
        return;
    }
    const sfp_vit_config *c = &in->vit->config;
    sfp__json_string(j, "recognised", in->vit->recognised);
    sfp__json_string(j, "ignored", in->vit->ignored);
    sfp__json_object(j, "architecture");
    sfp__json_int(j, "img_size", c->img_size);
    sfp__json_int(j, "patch_size", c->patch_size);
    sfp__json_int(j, "embed_dim", c->dim);
    sfp__json_int(j, "depth", c->depth);
    sfp__json_int(j, "num_heads", c->heads);
    sfp__json_int(j, "hidden", c->hidden);
    sfp__json_int(j, "classes", c->classes);
    sfp__json_int(j, "tokens", in->vit->tokens);
    sfp__json_float(j, "ln_eps", c->ln_eps);
    sfp__json_string(j, "activation", c->quick_gelu ? "quick_gelu" : "gelu");
    sfp__json_bool(j, "pre_norm", c->pre_norm);
    triple(j, "mean", c->mean);
    triple(j, "std", c->std);
    sfp__json_end(j);
    sfp__json_int(j, "parameters", (int64_t)sfp__vit_parameters(in->vit));
}

static sfp_status json_tensors(sfp_json *j, const inspected *in, bool stats, sfp_error *err)
{
    sfp__json_array(j, "tensors");
    for (size_t i = 0; i < in->set->count; i++) {
        const sfp_tensor *t = &in->set->tensors[i];
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", t->name);
        sfp__json_string(j, "dtype", sfp__dtype_name(t->dtype));
        sfp__json_array(j, "shape");
        for (int d = 0; d < t->ndim; d++)
            sfp__json_int(j, NULL, t->shape[d]);
        sfp__json_end(j);
        if (stats) {
            tensor_stats m;
            sfp_status s = measure(in, t, &m, err);
            if (s != SFP_OK)
                return s;
            sfp__json_real(j, "min", m.min);
            sfp__json_real(j, "max", m.max);
            sfp__json_real(j, "mean", m.mean);
            sfp__json_int(j, "nan", (int64_t)m.nan);
            sfp__json_int(j, "inf", (int64_t)m.inf);
        }
        sfp__json_end(j);
    }
    sfp__json_end(j);
    return SFP_OK;
}

static sfp_status print_json(const inspected *in, bool tensors, bool stats, sfp_error *err)
{
    sfp_json j;
    sfp_status s = SFP_OK;
    sfp__json_begin(&j, stdout);
    sfp__json_string(&j, "file", in->path);
    sfp__json_string(&j, "format", in->format);
    json_vit(&j, in);
    sfp__json_int(&j, "tensor_count", (int64_t)in->set->count);
    if (strcmp(in->format, "safetensors") == 0) {
        sfp__json_object(&j, "metadata");
        for (size_t i = 0; i < in->set->meta_count; i++) {
            const char *key = in->set->meta[i].key, *value = in->set->meta[i].value;
            sfp__json_string(&j, key, value);
        }
        sfp__json_end(&j);
    }
    if (tensors)
        s = json_tensors(&j, in, stats, err);
    sfp__json_end_all(&j);
    return s;
}

static int run(const sfp_args *args)
{
    inspected in = {0};
    sfp_error err = {0};
    char path[PATH_MAX];
    bool stats = sfp__args_flag(args, "stats"), tensors = !sfp__args_flag(args, "brief");
    int side = (int)sfp__args_int(args, "img-size");
    if (stats && !tensors)
        return sfp__say_usage("inspect",
                              "--stats adds to the table of tensors and --brief leaves it out, expected one of the two");
    sfp_status s = sfp__state_file(args->operands[0], path, sizeof path, &err);
    if (s == SFP_OK)
        s = open_file(&in, path, side, &err);
    if (s == SFP_OK && side && !in.vit)
        s = sfp__fail(&err, SFP_EINVAL, "%s: is no backbone (%s), expected no --img-size", path,
                      in.saved.what[0] ? in.saved.what : in.why_not);
    if (s == SFP_OK && sfp__args_flag(args, "json")) {
        s = print_json(&in, tensors, stats, &err);
    } else if (s == SFP_OK) {
        print_head(&in);
        if (tensors)
            s = print_tensors(&in, stats, &err);
        print_meta(&in);
    }
    close_file(&in);
    return s == SFP_OK ? SFP_EXIT_OK : sfp__command_failed(args, &err);
}

const sfp_command sfp__cmd_inspect = {
    .name = "inspect",
    .summary = "show what a file of weights, a state or a checkpoint holds",
    .operands = "FILE|DIR",
    .min_operands = 1,
    .max_operands = 1,
    .text = "Reads a .safetensors, PyTorch (.pth, .pt, .bin), .npz or .npy file, checks all of it and prints the architecture (S "
            "input side, P patch side, D width, "
            "H heads, F hidden width), what it was recognised as and why, the parameters, the tensors and the metadata. Of a "
            "state or a checkpoint "
            "it says what was learned: fingerprints, tasks, classes and their names; DIR is that of a run, whose state is shown. "
            "A file that "
            "is neither is shown too, with the reason why it is no ViT.",
    .examples = "  streamfp inspect deit_tiny_patch16_224.safetensors --brief\n"
                "  streamfp inspect state.safetensors --stats --json\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
