#include "cli/backbone.h"

#include "cli/ui.h"

#include "model/vit_builtin.h"

#include <string.h>
#include <sys/stat.h>

sfp_status sfp__backbone_open(const sfp_args *a, sfp_vit **out, sfp_error *err)
{
    const char *file = sfp__args_string(a, "backbone");
    sfp_vit_options o = {.precision = sfp__args_choice(a, "precision") == 1 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32,
                         .img_size = (int)sfp__args_int(a, "img-size")};
    if (strcmp(file, SFP_VIT_BUILTIN) != 0 || sfp__vit_has_builtin())
        return sfp__vit_load(file, &o, out, err);
    sfp__say("backbone: this program was built without models/builtin.safetensors, so a seeded random ViT stands in (nothing is "
             "pretrained); give --backbone FILE for a real one");
    const sfp_vit_config c = {.img_size = 32, .patch_size = 8, .channels = 3, .dim = 128, .depth = 6, .heads = 4, .hidden = 512,
                              .ln_eps = 1e-6f, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
    return sfp__vit_random(&c, 1, 0.08f, out, err);
}

sfp_status sfp__state_file(const char *given, char *buf, size_t size, sfp_error *err)
{
    struct stat st;
    bool folder = stat(given, &st) == 0 && S_ISDIR(st.st_mode);
    int need = snprintf(buf, size, "%s%s", given, folder ? "/state.safetensors" : "");
    if (need < 0 || (size_t)need >= size)
        return sfp__fail(err, SFP_ELIMIT, "%s: the path is too long", given);
    return SFP_OK;
}
