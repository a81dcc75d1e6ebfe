/* --backbone of the commands that run on one: a file, or "builtin". */
#ifndef SFP_CLI_BACKBONE_H
#define SFP_CLI_BACKBONE_H

#include "base/settings.h"
#include "model/vit.h"

/* By the options --backbone, --precision and --img-size. */
sfp_status sfp__backbone_open(const sfp__args *a, sfp__vit **out, sfp_error *err);
/* ... for answers from a state (FILE or DIR; NULL: none): without --img-size at the size at which it was learned, and it is said
 * when that is not the backbone's own. */
sfp_status sfp__backbone_open_for(const sfp__args *a, const char *state, sfp__vit **out, sfp_error *err);

/* The same as an engine of the public header, with the threads of --threads; state NULL: none. Messages are printed. */
sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err);

#endif
