/* streamfp convert: writes weights of any supported layout as safetensors with timm's names.
 *
 * The file contains the weights as they were loaded: renamed, with joined q, k and v, resized position embeddings and the config
 * in its metadata. So it needs no other file and is opened without a copy. */
#include "cli/command.h"
#include "cli/output.h"

#include "model/vit.h"

#include <string.h>
#include <sys/stat.h>

static const sfp__opt options[] = {
    SFP__ROW_CHOICE("dtype", "f32|f16|bf16", "f32",
                    "Data type of the written weights; the 16-bit types halve the file size and round the weights."),
    SFP__ROW_IMG_SIZE,
    SFP__ROW_JSON,
};

/* true: the name has the suffix of another format; convert writes only safetensors. */
static bool has_other_suffix(const char *to)
{
    static const char *const others[] = {".pth", ".pt", ".bin", ".npz", ".npy", ".onnx"};
    const char *dot = strrchr(to, '.');
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++)
        if (strcmp(dot, others[i]) == 0)
            return true;
    return false;
}

/* true: both names are of one file, also through links. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    static const sfp__dtype types[] = {SFP__DTYPE_F32, SFP__DTYPE_F16, SFP__DTYPE_BF16};
    const char *from = args->operands[0], *to = args->operands[1], *name = strrchr(from, '/');
    sfp__dtype dtype = types[sfp__args_choice(args, "dtype")];
    const sfp__vit_options opt = {.img_size = (int)sfp__args_int(args, "img-size")};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    sfp__out o;
    if (has_other_suffix(to))
        return sfp__fail_usage(err, "output file is '%s', expected NAME.safetensors", to);
    if (is_same_file(from, to))
        return sfp__fail_usage(err, "output file is '%s', which is the input file; choose another name", to);
    TRY(sfp__vit_load(from, &opt, &v, err));
    const sfp__meta meta[] = {{"format", "pt"}, {"source", name ? name + 1 : from}, {"recognised", v->recognised}};
    TRY(sfp__vit_save(&v->config, &v->weights, dtype, meta, sizeof meta / sizeof *meta, to, err));
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 8);
    sfp__json_string(&o.json, "from", from);
    sfp__json_string(&o.json, "to", to);
    sfp__json_string(&o.json, "dtype", sfp__dtype_name(dtype));
    sfp__out_string(&o, "recognised", "read", v->recognised);
    sfp__json_string(&o.json, "ignored", v->ignored);
    if (v->ignored[0])
        sfp__out_row(&o, "ignored", "%s", v->ignored);
    sfp__json_int(&o.json, "parameters", (int64_t)sfp__vit_parameters(v));
    sfp__out_row(&o, "wrote", "%s, %zu parameters as %s", to, sfp__vit_parameters(v), sfp__dtype_name(dtype));
    sfp__out_end(&o);
    return SFP_OK;
}

const sfp__command sfp__cmd_convert = {
    .name = "convert",
    .summary = "convert weights of any supported layout to safetensors with timm names",
    .operands = "IN OUT.safetensors",
    .min_operands = 2,
    .max_operands = 2,
    .text =
        "Reads a ViT from safetensors, PyTorch (.pth, .pt, .bin) or NumPy (.npz) with the names of timm, DeiT, DINO, iBOT, MoCo "
        "v3, CLIP's image encoder, Hugging Face or Google's JAX code, and writes it as safetensors with timm names. The metadata "
        "contains the number of heads, layer-norm eps, activation, mean, std and class names. The features do not change.\n\n"
        "No code in pickles is executed: a file that contains anything but tensors is refused.",
    .examples = "  streamfp convert dino_deitsmall16_pretrain.pth dino_small.safetensors\n"
                "  streamfp convert ViT-B-16.pt clip_b16.safetensors --dtype f16\n"
                "  streamfp convert deit_tiny.pth deit_tiny_96.safetensors --img-size 96\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run,
};
