/* Opens the engine of a command by its options --backbone, --precision, --img-size and --threads. */
#ifndef SFP_CLI_ENGINE_H
#define SFP_CLI_ENGINE_H

#include "base/settings.h"
#include "streamfp.h"

/* state: the file or run directory to predict with; NULL: none. Without --img-size, the input size is that at which the state was
 * learned, and a note is printed if that is not the size of the backbone; the same holds for --precision. Messages of the engine are printed. */
sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err);

/* Fails if `given` is the directory of a run that has a checkpoint but no state yet, and says how to get one. */
sfp_status sfp__cli_check_state(const char *given, sfp_error *err);

/* Says why images have no score for "none of the classes" with this state. */
void sfp__cli_report_no_scores(const char *state);

/* --img-size of a command with --state. */
#define SFP__ROW_IMG_SIZE_OF_STATE                                               \
    SFP__ROW_INT("img-size", "N", "0", 0, SFP__IMG_SIZE_MAX, SFP__IMG_SIZE_HELP, \
                 .default_note = "with a state: the size of the run")

/* --precision of a command with --state. */
#define SFP__ROW_PRECISION_OF_STATE \
    SFP__ROW_CHOICE("precision", SFP__PRECISIONS, "f32", SFP__PRECISION_HELP, .default_note = "with a state: that of the run")

#endif
