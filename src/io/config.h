/* The JSON configuration of a weights file: heads, mean, std, eps, activation, class names.
 *
 * Keys of this project and of the golden files: num_heads, img_size, patch_size, mean, std, ln_eps, ... Keys of timm's
 * config.json: pretrained_cfg.mean/std, input_size. Keys of Hugging Face: num_attention_heads, layer_norm_eps, hidden_act,
 * image_mean/image_std, id2label. Members without a value remain unset (0, NULL or has_x false). */
#ifndef SFP_IO_CONFIG_H
#define SFP_IO_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The metadata key under which a safetensors file contains such a configuration. */
#define SFP__CONFIG_META "streamfp.config"

typedef struct sfp__model_config {
    int heads;    /* 0: unset */
    int img_size; /* 0: unset */
    int patch_size;
    float ln_eps; /* 0: unset */
    bool has_mean, has_std;
    float mean[3], std[3];
    char activation[16]; /* "gelu", "quick_gelu" or "": unset */
    char **class_names;  /* (class_count); NULL: unset */
    size_t class_count;
} sfp__model_config;

/* Unknown keys are ignored. A recognised key with a wrong type or range is an error that names the key. */
sfp_status sfp__model_config_parse(const char *label, const char *text, size_t size, sfp__model_config *out, sfp_error *err);
/* Finds the configuration of a weights file. The first of these is used: STEM.json beside it; `inside`, the text in the weights
 * file itself (NULL: none); config.json beside it. Hugging Face's preprocessor_config.json may add mean and std to the latter.
 * *from describes the place for messages; NULL: no configuration was found, which is not an error. */
sfp_status sfp__model_config_find(const char *weights_path, const char *inside, sfp__model_config *out, const char **from,
                                  sfp_error *err);
void sfp__model_config_done(sfp__model_config *c);

#endif
