#include "cli/engine.h"

#include "base/error.h"
#include "cli/ui.h"

sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err)
{
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(a, "threads");
    o.image_size = (int32_t)sfp__args_int(a, "img-size");
    o.precision = sfp__args_choice(a, "precision") == 1 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32;
    o.state = state;
    o.log = sfp__print_log;
    return sfp_engine_open(sfp__args_string(a, "backbone"), &o, out, err);
}
