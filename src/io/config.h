/* The JSON beside a weights file: heads, mean, std, eps, activation, names.
 *
 * Understood keys: this project's and the golden files' (num_heads, img_size, patch_size, mean, std, ln_eps, ...), timm's
 * config.json (pretrained_cfg.mean/std, input_size) and Hugging Face's (num_attention_heads, layer_norm_eps, hidden_act,
 * image_mean/image_std, id2label). Absent keys stay at "unset" (0 / NULL / has_x false). */
#ifndef SFP_IO_CONFIG_H
#define SFP_IO_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Under this key a safetensors file carries such a JSON in its metadata. */
#define SFP_CONFIG_META "streamfp.config"

typedef struct sfp__model_config {
    int heads;    /* 0: not given */
    int img_size; /* 0: not given */
    int patch_size;
    float ln_eps; /* 0: not given */
    bool has_mean, has_std;
    float mean[3], std[3];
    char activation[16]; /* "" or "gelu", "quick_gelu" */
    char **class_names;  /* NULL or class_count names */
    size_t class_count;
} sfp__model_config;

/* Unknown keys are ignored; known ones of a wrong type or range fail with their name. */
sfp_status sfp__model_config_parse(const char *label, const char *text, size_t size, sfp__model_config *out, sfp_error *err);
/* The config of a weights file: STEM.json beside it; else `inside`, the text that the file itself carries (NULL: none); else
 * config.json beside it, where mean and std may also stand in Hugging Face's preprocessor_config.json. *from says which, in
 * words; NULL: there is none, which is no error. */
sfp_status sfp__model_config_find(const char *weights_path, const char *inside, sfp__model_config *out, const char **from,
                                  sfp_error *err);
void sfp__model_config_done(sfp__model_config *c);

#endif
