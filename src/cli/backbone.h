/* Opens the backbone of --backbone: a file, or "builtin". */
#ifndef SFP_CLI_BACKBONE_H
#define SFP_CLI_BACKBONE_H

#include "base/settings.h"
#include "model/vit.h"

/* Uses the options --backbone, --precision and --img-size. */
sfp_status sfp__backbone_open(const sfp__args *a, sfp__vit **out, sfp_error *err);
/* Opens the backbone for a state (FILE or DIR; NULL: none). Without --img-size, uses the input size at which the state was
 * learned, and prints a note if that is not the size of the backbone. */
sfp_status sfp__backbone_open_for(const sfp__args *a, const char *state, sfp__vit **out, sfp_error *err);

/* Like sfp__backbone_open_for, but opens an engine of the public header with --threads threads; its messages are printed. */
sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err);

#endif
