#include "cli/engine.h"

#include "base/error.h"
#include "cli/ui.h"

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
