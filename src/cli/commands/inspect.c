/* streamfp inspect: shows the contents of a tensor file, and how the program would load it.
 *
 * Any tensor file can be inspected. States and checkpoints are recognised by their metadata (inspect_saved.c). For other files
 * that are not a ViT, the reason is the message of the loader, so that inspect and predict never disagree. */
#include "cli/command.h"
#include "cli/commands/inspect_saved.h"
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/tensor/tensor_file.h"
#include "model/vit.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const sfp__opt options[] = {
    SFP__ROW_FLAG("stats", "Read every tensor and print its minimum, maximum, mean and number of NaN."),
    SFP__ROW_FLAG("brief", "Omit the table of tensors."),
    SFP__ROW_IMG_SIZE,
    SFP__ROW_JSON,
};

typedef struct inspected {
    const char *path, *format;
    sfp__tensor_file *set;
    sfp__inspect_saved saved;    /* saved.what is not "": the file is a state or a checkpoint */
    sfp__vit *vit;               /* NULL: not a ViT */
    char why_not[SFP_ERROR_MAX]; /* the reason why it is not a ViT */
} inspected;

typedef struct tensor_stats {
    double min, max, mean; /* of the finite elements; NAN: there are none */
    size_t nan, inf;
} tensor_stats;

/* Loads the file as a ViT with this input size (0: that of the file), or sets in->why_not. It is an error if the ViT cannot have
 * this input size. */
static sfp_status load_vit(inspected *in, int img_size, sfp_error *err)
{
    sfp_error why = {0};
    const sfp__vit_options o = {.img_size = img_size}, own = {0};
    sfp_status s = sfp__vit_load(in->path, &o, &in->vit, &why);
    if (s == SFP_OK)
        return SFP_OK;
    if (sfp__is_machine_error(s) || (img_size && sfp__vit_load(in->path, &own, &in->vit, NULL) == SFP_OK)) {
        *err = why;
        return s;
    }
    (void)memcpy(in->why_not, why.message, sizeof in->why_not);
    return SFP_OK;
}

static sfp_status open_file(inspected *in, const char *path, int img_size, sfp_error *err)
{
    bool builtin = strcmp(path, SFP__VIT_BUILTIN) == 0;
    in->path = path;
    TRY(builtin ? sfp__vit_builtin_open(&in->set, err) : sfp__tensor_file_map(path, &in->set, err));
    in->format = in->set->format;
    if (strcmp(in->format, "npy") == 0) {
        (void)snprintf(in->why_not, sizeof in->why_not, "the file has a single array, expected named tensors");
        return SFP_OK;
    }
    if (!builtin && strcmp(in->format, "safetensors") == 0)
        TRY(sfp__inspect_saved_init(in->set, &in->saved, err));
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
#define VALUE_SHOWN 2000 /* characters of a metadata value: a checkpoint contains the whole result of its run */

/* Converts the tensor in chunks, so that large tensors need no additional memory. */
static sfp_status compute_stats(const inspected *in, const sfp__tensor *t, tensor_stats *out, sfp_error *err)
{
    OWNED float *values = NULL;
    size_t element = sfp__dtype_size(t->dtype), finite = 0;
    double sum = 0;
    tensor_stats r = {.min = INFINITY, .max = -INFINITY, .mean = NAN};
    TRY(sfp__alloc(&values, STATS_CHUNK, sizeof *values, err));
    for (size_t at = 0; at < t->count; at += STATS_CHUNK) {
        sfp__tensor piece = *t;
        size_t n = t->count - at < STATS_CHUNK ? t->count - at : STATS_CHUNK;
        piece.data = (const char *)t->data + at * element;
        piece.count = n;
        piece.bytes = n * element;
        piece.ndim = 1;
        piece.shape[0] = (int64_t)n;
        TRY(sfp__tensor_to_f32(in->path, &piece, values, err));
        for (size_t i = 0; i < n; i++) {
            double v = (double)values[i];
            r.nan += isnan(v) != 0;
            r.inf += isinf(v) != 0;
            if (!isfinite(v))
                continue;
            r.min = v < r.min ? v : r.min;
            r.max = v > r.max ? v : r.max;
            sum += v;
            finite++;
        }
    }
    if (finite)
        r.mean = sum / (double)finite;
    else
        r.min = r.max = NAN;
    *out = r;
    return SFP_OK;
}

/* --------------------------------------------------------------------- output */

static void put_triple(sfp__json *j, const char *key, const float v[3])
{
    sfp__json_array(j, key);
    for (int i = 0; i < 3; i++)
        sfp__json_float(j, NULL, v[i]);
    sfp__json_end(j);
}

static void put_vit(sfp__out *o, const sfp__vit *v)
{
    const sfp__vit_config *c = &v->config;
    const char *activation = c->quick_gelu ? "quick_gelu" : "gelu";
    sfp__json *j = &o->json;
    sfp__out_string(o, "recognised", "recognised", v->recognised);
    sfp__json_string(j, "ignored", v->ignored);
    if (v->ignored[0])
        sfp__out_row(o, "ignored", "%s", v->ignored);
    sfp__json_object(j, "architecture");
    sfp__json_int(j, "img_size", c->img_size);
    sfp__json_int(j, "patch_size", c->patch_size);
    sfp__json_int(j, "embed_dim", c->dim);
    sfp__json_int(j, "depth", c->depth);
    sfp__json_int(j, "num_heads", c->heads);
    sfp__json_int(j, "hidden", c->hidden);
    sfp__json_int(j, "classes", c->classes);
    sfp__json_int(j, "tokens", v->tokens);
    sfp__json_float(j, "ln_eps", c->ln_eps);
    sfp__json_string(j, "activation", activation);
    sfp__json_bool(j, "pre_norm", c->pre_norm);
    put_triple(j, "mean", c->mean);
    put_triple(j, "std", c->std);
    sfp__json_end(j);
    sfp__json_uint(j, "parameters", sfp__vit_parameters(v));
    sfp__out_row(o, "architecture", "S %d, P %d, D %d, depth %d, H %d, F %d", c->img_size, c->patch_size, c->dim, c->depth,
                 c->heads, c->hidden);
    sfp__out_row(o, "tokens", "%d (class token and %d patches)", v->tokens, v->tokens - 1);
    if (c->classes)
        sfp__out_row(o, "classes", "%d%s", c->classes, c->class_names ? ", with names" : "");
    else
        sfp__out_row(o, "classes", "none (no head)");
    sfp__out_row(o, "parameters", "%zu without the head", sfp__vit_parameters(v));
    sfp__out_row(o, "ln_eps", "%g", (double)c->ln_eps);
    sfp__out_row(o, "activation", "%s", activation);
    sfp__out_row(o, "mean, std", "%g %g %g, %g %g %g", (double)c->mean[0], (double)c->mean[1], (double)c->mean[2],
                 (double)c->std[0], (double)c->std[1], (double)c->std[2]);
}

static void put_summary(sfp__out *o, const inspected *in)
{
    size_t bytes = 0, elements = 0, count = in->set->count;
    for (size_t i = 0; i < count; i++) {
        bytes += in->set->tensors[i].bytes;
        elements += in->set->tensors[i].count;
    }
    sfp__json_string(&o->json, "file", in->path);
    sfp__json_string(&o->json, "format", in->format);
    sfp__out_printf(o, "file          %s\n", in->path);
    sfp__out_row(o, "format", "%s, %zu tensor%s, %zu elements, %zu bytes", in->format, count, count == 1 ? "" : "s", elements,
                 bytes);
    sfp__json_bool(&o->json, "vit", in->vit);
    if (in->saved.what[0]) {
        sfp__inspect_saved_print(o, &in->saved);
    } else if (in->vit) {
        put_vit(o, in->vit);
    } else {
        sfp__json_string(&o->json, "not_a_vit", in->why_not);
        sfp__out_row(o, "recognised", "not a ViT: %s", in->why_not);
    }
    sfp__json_uint(&o->json, "tensor_count", count);
}

static sfp_status put_stats(sfp__out *o, const inspected *in, const sfp__tensor *t, sfp_error *err)
{
    tensor_stats m;
    TRY(compute_stats(in, t, &m, err));
    sfp__out_printf(o, "  %12.5g  %12.5g  %12.5g  %zu", m.min, m.max, m.mean, m.nan);
    if (m.inf)
        sfp__out_printf(o, " (and %zu infinite)", m.inf);
    sfp__json_real(&o->json, "min", m.min);
    sfp__json_real(&o->json, "max", m.max);
    sfp__json_real(&o->json, "mean", m.mean);
    sfp__json_uint(&o->json, "nan", m.nan);
    sfp__json_uint(&o->json, "inf", m.inf);
    return SFP_OK;
}

static sfp_status put_tensors(sfp__out *o, const inspected *in, bool stats, sfp_error *err)
{
    int width = 4, shape_width = stats ? 20 : 0;
    for (size_t i = 0; i < in->set->count; i++) {
        int n = (int)strnlen(in->set->tensors[i].name, 60);
        width = n > width ? n : width;
    }
    sfp__out_printf(o, "\n%-*s  %-5s  %-*s", width, "name", "dtype", shape_width, "shape");
    if (stats)
        sfp__out_printf(o, "  %12s  %12s  %12s  %s", "min", "max", "mean", "nan");
    sfp__out_printf(o, "\n");
    sfp__json_array(&o->json, "tensors");
    for (size_t i = 0; i < in->set->count; i++) {
        const sfp__tensor *t = &in->set->tensors[i];
        char shape[160];
        if (o->text)
            sfp__put_text(stdout, t->name, width);
        sfp__out_printf(o, "  %-5s  %-*s", sfp__dtype_name(t->dtype), shape_width,
                        sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "name", t->name);
        sfp__json_string(&o->json, "dtype", sfp__dtype_name(t->dtype));
        sfp__json_array(&o->json, "shape");
        for (int d = 0; d < t->ndim; d++)
            sfp__json_int(&o->json, NULL, t->shape[d]);
        sfp__json_end(&o->json);
        if (stats)
            TRY(put_stats(o, in, t, err));
        sfp__json_end(&o->json);
        sfp__out_printf(o, "\n");
    }
    sfp__json_end(&o->json);
    return SFP_OK;
}

static void put_text_meta(const sfp__out *o, const inspected *in)
{
    size_t n = o->text ? in->set->meta_count : 0;
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

static void put_json_meta(sfp__out *o, const inspected *in)
{
    if (strcmp(in->format, "safetensors") != 0)
        return;
    sfp__json_object(&o->json, "metadata");
    for (size_t i = 0; i < in->set->meta_count; i++)
        sfp__json_string(&o->json, in->set->meta[i].key, in->set->meta[i].value);
    sfp__json_end(&o->json);
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(close_file) inspected in = {0};
    char path[PATH_MAX];
    bool stats = sfp__args_flag(args, "stats"), tensors = !sfp__args_flag(args, "brief");
    int side = (int)sfp__args_int(args, "img-size");
    sfp_status s = SFP_OK;
    sfp__out o;
    if (stats && !tensors)
        return sfp__fail_usage(err, "--stats and --brief exclude each other: --brief omits the table to which --stats adds");
    TRY(sfp__cli_check_state(args->operands[0], err));
    TRY(sfp__state_path(args->operands[0], path, sizeof path, err));
    TRY(open_file(&in, path, side, err));
    if (side && !in.vit)
        return sfp__fail(err, SFP_EINVAL, "%s: not a backbone (%s); remove --img-size", path,
                         in.saved.what[0] ? in.saved.what : in.why_not);
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 13);
    put_summary(&o, &in);
    put_json_meta(&o, &in);
    if (tensors)
        s = put_tensors(&o, &in, stats, err);
    put_text_meta(&o, &in);
    sfp__out_end(&o);
    return s;
}

const sfp__command sfp__cmd_inspect = {
    .name = "inspect",
    .summary = "show the contents of a weights file, a state or a checkpoint",
    .operands = "FILE|DIR",
    .min_operands = 1,
    .max_operands = 1,
    .text =
        "Reads and checks a .safetensors, PyTorch (.pth, .pt, .bin), .npz or .npy file. Prints its layout, the architecture (S "
        "input side, P patch side, D width, H heads, F hidden width), the number of parameters, the tensors and the metadata. "
        "For a state or a checkpoint, prints the fingerprints, tasks, classes and class names. Given a run directory, shows "
        "its state. For any other file, prints the reason why it is not a ViT.",
    .examples = "  streamfp inspect deit_tiny_patch16_224.safetensors --brief\n"
                "  streamfp inspect state.safetensors --stats --json\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run,
};
