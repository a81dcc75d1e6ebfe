/* The naming schemes of published ViTs, one small table each.
 *
 * A file is recognised by one tensor that every file of its kind contains. The text before its name ("module.base_encoder.",
 * "teacher.backbone.", "visual.") is the prefix of all other names. If a file contains several ViTs, the one that its authors
 * evaluate is used: the teacher, the base encoder, the model itself and not its running average. */
#include "model/vit_names.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name, file)             \
    {                               \
        name, {file}, SFP__VIT_SAME \
    }
#define ROW_QKV(name, q, k, v)         \
    {                                  \
        name, {q, k, v}, SFP__VIT_SAME \
    }
#define ROW_AS(name, file, how)      \
    {                                \
        name, {file}, SFP__VIT_##how \
    }
#define PAIR(name, file) ROW(name ".weight", file ".weight"), ROW(name ".bias", file ".bias")
#define QKV_PAIR(q, k, v) \
    ROW_QKV("attn.qkv.weight", q ".weight", k ".weight", v ".weight"), ROW_QKV("attn.qkv.bias", q ".bias", k ".bias", v ".bias")
#define END \
    {       \
        0   \
    }

static const sfp__vit_rename timm[] = {END};

static const sfp__vit_rename hf_vit[] = {PAIR("patch_embed.proj", "embeddings.patch_embeddings.projection"),
                                         ROW("cls_token", "embeddings.cls_token"),
                                         ROW("pos_embed", "embeddings.position_embeddings"),
                                         PAIR("norm", "layernorm"),
                                         PAIR("head", "../classifier"),
                                         END};
static const sfp__vit_rename hf_vit_block[] = {
    PAIR("norm1", "layernorm_before"),
    QKV_PAIR("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    PAIR("attn.proj", "attention.output.dense"),
    PAIR("norm2", "layernorm_after"),
    PAIR("mlp.fc1", "intermediate.dense"),
    PAIR("mlp.fc2", "output.dense"),
    END};

static const sfp__vit_rename hf_clip[] = {PAIR("patch_embed.proj", "embeddings.patch_embedding"),
                                          ROW("cls_token", "embeddings.class_embedding"),
                                          ROW("pos_embed", "embeddings.position_embedding.weight"),
                                          PAIR("norm_pre", "pre_layrnorm"), /* sic */
                                          PAIR("norm", "post_layernorm"),
                                          END};
static const sfp__vit_rename hf_clip_block[] = {PAIR("norm1", "layer_norm1"),
                                                QKV_PAIR("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                                                PAIR("attn.proj", "self_attn.out_proj"), PAIR("norm2", "layer_norm2"), END};

static const sfp__vit_rename clip[] = {PAIR("patch_embed.proj", "conv1"),
                                       ROW("cls_token", "class_embedding"),
                                       ROW("pos_embed", "positional_embedding"),
                                       PAIR("norm_pre", "ln_pre"),
                                       PAIR("norm", "ln_post"),
                                       END};
static const sfp__vit_rename clip_block[] = {PAIR("norm1", "ln_1"),
                                             ROW("attn.qkv.weight", "attn.in_proj_weight"),
                                             ROW("attn.qkv.bias", "attn.in_proj_bias"),
                                             PAIR("attn.proj", "attn.out_proj"),
                                             PAIR("norm2", "ln_2"),
                                             PAIR("mlp.fc1", "mlp.c_fc"),
                                             PAIR("mlp.fc2", "mlp.c_proj"),
                                             END};

#define ATTENTION "MultiHeadDotProductAttention_1/"
static const sfp__vit_rename jax[] = {ROW_AS("patch_embed.proj.weight", "embedding/kernel", HWIO),
                                      ROW("patch_embed.proj.bias", "embedding/bias"),
                                      ROW("cls_token", "cls"),
                                      ROW("pos_embed", "Transformer/posembed_input/pos_embedding"),
                                      ROW("norm.weight", "Transformer/encoder_norm/scale"),
                                      ROW("norm.bias", "Transformer/encoder_norm/bias"),
                                      ROW_AS("head.weight", "head/kernel", INPUT_FIRST),
                                      ROW("head.bias", "head/bias"),
                                      END};
static const sfp__vit_rename jax_block[] = {
    ROW("norm1.weight", "LayerNorm_0/scale"),
    ROW("norm1.bias", "LayerNorm_0/bias"),
    {"attn.qkv.weight", {ATTENTION "query/kernel", ATTENTION "key/kernel", ATTENTION "value/kernel"}, SFP__VIT_INPUT_FIRST},
    ROW_QKV("attn.qkv.bias", ATTENTION "query/bias", ATTENTION "key/bias", ATTENTION "value/bias"),
    ROW_AS("attn.proj.weight", ATTENTION "out/kernel", OUTPUT_LAST),
    ROW("attn.proj.bias", ATTENTION "out/bias"),
    ROW("norm2.weight", "LayerNorm_2/scale"),
    ROW("norm2.bias", "LayerNorm_2/bias"),
    ROW_AS("mlp.fc1.weight", "MlpBlock_3/Dense_0/kernel", INPUT_FIRST),
    ROW("mlp.fc1.bias", "MlpBlock_3/Dense_0/bias"),
    ROW_AS("mlp.fc2.weight", "MlpBlock_3/Dense_1/kernel", INPUT_FIRST),
    ROW("mlp.fc2.bias", "MlpBlock_3/Dense_1/bias"),
    END};

/* Tried in this order, because the signature of OpenAI's CLIP is the end of Hugging Face's. */
static const sfp__vit_layout layouts[] = {
    {.name = "plain ViT, timm names",
     .why = "blocks.N.attn.qkv, patch_embed.proj, one class token",
     .signature = "patch_embed.proj.weight",
     .blocks = "blocks.",
     .after = ".",
     .names = timm,
     .block_names = timm},
    {.name = "Hugging Face ViT",
     .why = "embeddings.patch_embeddings.projection; separate query, key, value",
     .signature = "embeddings.patch_embeddings.projection.weight",
     .blocks = "encoder.layer.",
     .after = ".",
     .names = hf_vit,
     .block_names = hf_vit_block,
     .ln_eps = 1e-12f},
    {.name = "Hugging Face CLIP, image tower",
     .why = "embeddings.class_embedding, pre_layrnorm; separate q_proj, k_proj, v_proj",
     .signature = "embeddings.class_embedding",
     .blocks = "encoder.layers.",
     .after = ".",
     .names = hf_clip,
     .block_names = hf_clip_block,
     .ln_eps = 1e-5f,
     .quick_gelu = true,
     .loose = true,
     .note = "CLIP was trained with mean 0.481 0.458 0.408, std 0.269 0.261 0.276"},
    {.name = "CLIP image tower",
     .why = "class_embedding, ln_pre, transformer.resblocks.N",
     .signature = "class_embedding",
     .blocks = "transformer.resblocks.",
     .after = ".",
     .names = clip,
     .block_names = clip_block,
     .ln_eps = 1e-5f,
     .quick_gelu = true,
     .loose = true,
     .note = "CLIP was trained with mean 0.481 0.458 0.408, std 0.269 0.261 0.276"},
    {.name = "ViT of Google's JAX code",
     .why = "Transformer/encoderblock_N, embedding/kernel",
     .signature = "embedding/kernel",
     .blocks = "Transformer/encoderblock_",
     .after = "/",
     .names = jax,
     .block_names = jax_block,
     .loose = true,
     .note = "these were trained with mean 0.5, std 0.5"},
};

/* The origin of files with timm's names: recognised by a part of the prefix and a tensor that the file contains; the first match
 * is used. */
static const struct {
    const char *word, *tensor, *family, *note;
} families[] = {
    {"base_encoder.", NULL, "MoCo v3", "MoCo v3's own ViT-Small (D 384) has 12 heads"},
    {"momentum_encoder.", NULL, "MoCo v3, its momentum encoder", NULL},
    {"", "masked_embed", "iBOT", NULL},
    {"teacher.", NULL, "DINO or iBOT, the teacher", NULL},
    {"student.", NULL, "DINO or iBOT, the student", NULL},
    {"backbone.", NULL, "DINO", NULL},
    {"trunk.", NULL, "open_clip", NULL},
    {"model_ema.", NULL, "DeiT or timm, the running average", NULL},
    {"model.", NULL, "DeiT or timm, a training checkpoint", NULL},
    {"", NULL, "timm", NULL},
};

/* Parts of a prefix that make another ViT of the same file preferable. */
static const char *const second_choice[] = {"momentum", "student", "ema"};

static bool ends_with_name(const char *name, const char *end, size_t *prefix)
{
    size_t n = strlen(name), m = strlen(end);
    if (n < m || strcmp(name + n - m, end) != 0 || (n > m && name[n - m - 1] != '.' && name[n - m - 1] != '/'))
        return false;
    *prefix = n - m;
    return true;
}

static bool file_has(const sfp__tensor_file *f, const char *end)
{
    size_t prefix;
    for (size_t i = 0; i < f->count; i++)
        if (ends_with_name(f->tensors[i].name, end, &prefix))
            return true;
    return false;
}

/* Finds the best prefix of a layout's signature; false: the file does not contain the signature. */
static bool find_prefix(const sfp__tensor_file *f, const sfp__vit_layout *layout, sfp__vit_names *out)
{
    bool found = false, second = true;
    out->others = -1;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        size_t n;
        if (!ends_with_name(name, layout->signature, &n) || n >= sizeof out->prefix) /* no known layout has such a long name */
            continue;
        char prefix[SFP__VIT_PREFIX_MAX];
        memcpy(prefix, name, n);
        prefix[n] = '\0';
        bool is_second_choice = false;
        for (size_t k = 0; k < sizeof second_choice / sizeof *second_choice; k++)
            is_second_choice = is_second_choice || strstr(prefix, second_choice[k]);
        out->others++;
        if (!found || (second && !is_second_choice)) {
            memcpy(out->prefix, prefix, n + 1);
            second = is_second_choice;
        }
        found = true;
    }
    return found;
}

sfp_status sfp__vit_names_find(const sfp__tensor_file *f, sfp__vit_names *out, sfp_error *err)
{
    sfp__vit_names n = {0};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!find_prefix(f, &layouts[i], &n))
            continue;
        n.layout = &layouts[i];
        n.family = i == 0 ? NULL : n.layout->name;
        for (size_t k = 0; !n.family; k++)
            if (strstr(n.prefix, families[k].word) && (!families[k].tensor || file_has(f, families[k].tensor))) {
                n.family = families[k].family;
                n.family_note = families[k].note;
            }
        *out = n;
        return SFP_OK;
    }
    return sfp__fail(err, SFP_ENOTFOUND,
                     "%s: tensor 'patch_embed.proj.weight' is missing (timm, DeiT, DINO, iBOT, MoCo v3), and so are CLIP's "
                     "'class_embedding', Hugging Face's 'embeddings.patch_embeddings.projection.weight' and JAX's "
                     "'embedding/kernel'; expected the weights of a ViT",
                     f->path);
}

bool sfp__vit_names_of(const sfp__vit_names *n, int block, const char *timm_name, int part, char buf[SFP__VIT_NAME_MAX],
                       sfp__vit_order *order)
{
    const sfp__vit_rename *row = block < 0 ? n->layout->names : n->layout->block_names;
    while (row->timm && strcmp(row->timm, timm_name) != 0)
        row++;
    const char *name = !row->timm ? (part == 0 ? timm_name : NULL) : part < 3 ? row->parts[part] : NULL;
    if (!name)
        return false;
    int prefix = (int)strlen(n->prefix);
    if (strncmp(name, "../", 3) == 0) {
        name += 3;
        prefix -= prefix > 0; /* the dot at its end */
        while (prefix > 0 && n->prefix[prefix - 1] != '.')
            prefix--;
    }
    *order = row->order;
    if (block < 0)
        (void)snprintf(buf, SFP__VIT_NAME_MAX, "%.*s%s", prefix, n->prefix, name);
    else
        (void)snprintf(buf, SFP__VIT_NAME_MAX, "%s%s%d%s%s", n->prefix, n->layout->blocks, block, n->layout->after, name);
    return true;
}

int sfp__vit_names_depth(const sfp__vit_names *n, const sfp__tensor_file *f)
{
    size_t prefix = strlen(n->prefix), blocks = strlen(n->layout->blocks), after = strlen(n->layout->after);
    int count = 0;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        if (strncmp(name, n->prefix, prefix) != 0 || strncmp(name + prefix, n->layout->blocks, blocks) != 0)
            continue;
        const char *digits = name + prefix + blocks;
        char *end;
        if (*digits < '0' || *digits > '9')
            continue;
        unsigned long k = strtoul(digits, &end, 10);
        if (strncmp(end, n->layout->after, after) == 0 && k >= (unsigned long)count)
            count = k < 1000000 ? (int)k + 1 : 1000000; /* far above any limit */
    }
    return count;
}
