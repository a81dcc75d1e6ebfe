#include "cli/backbone.h"

#include "cli/ui.h"
#include "io/file.h"

#include "learner/state/state.h"
#include "model/vit.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* Opens the backbone for images of side `side`; 0: the size in the file. */
static sfp_status open_at(const sfp__args *a, int side, sfp__vit **out, sfp_error *err)
{
    const sfp__vit_options o = {.precision = sfp__args_choice(a, "precision") == 1 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32,
                                .img_size = side};
    const char *file = sfp__args_string(a, "backbone");
    if (strcmp(file, SFP_VIT_BUILTIN) != 0 || sfp__vit_has_builtin())
        return sfp__vit_load(file, &o, out, err);
    sfp__warn("this program was built without models/builtin.safetensors; a seeded random ViT is used instead, so nothing is "
              "pretrained (use --backbone FILE for a pretrained one)");
    const sfp__vit_config c = {.img_size = 32,
                               .patch_size = 8,
                               .channels = 3,
                               .dim = 128,
                               .depth = 6,
                               .heads = 4,
                               .hidden = 512,
                               .ln_eps = 1e-6f,
                               .mean = {0.5f, 0.5f, 0.5f},
                               .std = {0.25f, 0.25f, 0.25f}};
    return sfp__vit_random(&c, 1, 0.08f, out, err);
}

sfp_status sfp__backbone_open(const sfp__args *a, sfp__vit **out, sfp_error *err)
{
    return open_at(a, (int)sfp__args_int(a, "img-size"), out, err);
}

/* false: the backbone cannot have this size, so the state belongs to another backbone, which opening the state reports. */
static bool can_have(const sfp__vit *v, int side)
{
    return sfp__vit_path(v) && side % v->config.patch_size == 0;
}

sfp_status sfp__backbone_open_for(const sfp__args *a, const char *state, sfp__vit **out, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL, *resized = NULL;
    char path[PATH_MAX];
    int side = 0;
    TRY(sfp__backbone_open(a, &v, err));
    if (state && sfp__args_int(a, "img-size") == 0) {
        TRY(sfp__state_path(state, path, sizeof path, err));
        TRY(sfp__state_img_size(path, &side, err));
    }
    if (side && side != v->config.img_size && can_have(v, side)) {
        TRY(open_at(a, side, &resized, err));
        sfp__info("input size is %d as in %s; the size of the backbone is %d", side, path, v->config.img_size);
    }
    *out = resized ? TAKE(resized) : TAKE(v);
    return SFP_OK;
}

/* ----------------------------------------------------------------------------- engine */

static sfp_status open_engine(const sfp__args *a, int side, sfp_engine **out, sfp_error *err)
{
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(a, "threads");
    o.image_size = side;
    o.precision = sfp__args_choice(a, "precision") == 1 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32;
    o.log = sfp__print_log;
    return sfp_engine_open(sfp__args_string(a, "backbone"), &o, out, err);
}

sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err)
{
    sfp_engine *own = NULL, *resized = NULL;
    int side = 0;
    TRY(open_engine(a, (int)sfp__args_int(a, "img-size"), &own, err));
    if (state && sfp__args_int(a, "img-size") == 0) {
        sfp_status status = sfp_state_image_size(state, &side, err);
        if (status) {
            sfp_engine_close(own);
            return status;
        }
    }
    /* a size that the backbone cannot have is that of another backbone: opening the state reports it */
    if (side && side != sfp_engine_image_size(own) && open_engine(a, side, &resized, NULL) == SFP_OK &&
        sfp_engine_image_size(resized) == side) {
        sfp__info("input size is %d as in %s; the size of the backbone is %d", side, state, sfp_engine_image_size(own));
        sfp_engine_close(own);
        *out = resized;
        return SFP_OK;
    }
    sfp_engine_close(resized);
    *out = own;
    return SFP_OK;
}
