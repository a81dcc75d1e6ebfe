/* The settings of a run as one table, and the way from their values to the options of a run. */
#ifndef SFP_RUN_OPTIONS_H
#define SFP_RUN_OPTIONS_H

#include "base/settings.h"
#include "run/run.h"

/* All settings, under headings in the order of `streamfp run --help`. */
extern const sfp__opt sfp__run_table[];
extern const size_t sfp__run_table_count;

/* Sets all values to their defaults and to those of the default preset. */
sfp_status sfp__run_args_init(sfp__args *a, sfp_error *err);

/* Sets the values of the preset in use, where no other value was given. */
sfp_status sfp__run_set_preset(sfp__args *a, sfp_error *err);

/* Sets one value; `origin` names it in messages. The values of the preset are set anew where no other value was given,
 * because some of them depend on other settings. */
sfp_status sfp__run_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err);

/* Records in the result the value that the preset gives to each option, even if the user has set another one. The options themselves must have
 * been recorded before. */
sfp_status sfp__run_record_preset(const sfp__args *a, sfp_result *r, sfp_error *err);

/* Writes the values of the table into *o, which has a backbone and threads; `a` must outlive it. own_source: the caller has a
 * source, so that the settings data and tasks have no default. note (SFP_ERROR_MAX) becomes a message for the user, "": none.
 * Fails with SFP_EINVAL and a key also if a setting has no effect beside the others. */
sfp_status sfp__run_options_read(const sfp__args *a, bool own_source, sfp__run_options *o, char *note, sfp_error *err);

/* sfp__run_options_read without the settings of the learner and without the check for settings of no effect. */
sfp_status sfp__run_options_store(const sfp__args *a, bool own_source, sfp__run_options *o, sfp_error *err);

/* Refuses settings that the user has given although closed-form heads do not have them. */
sfp_status sfp__run_check_method(const sfp__args *a, sfp_error *err);

/* Returns whether this setting has no effect beside the others, and writes the name of the setting that takes away its effect. The kind
 * of the stream is that of the setting data; whether a dataset has tasks is known only once it is open. */
bool sfp__run_has_no_effect(const sfp__args *a, const char *key, char *beside, size_t size);

/* Writes the settings of a learner alone to *o, which has the defaults for this backbone. A default of prompt-layers is reduced to
 * the layers that the backbone has. */
sfp_status sfp__run_learner_options(const sfp__args *a, const sfp__vit_config *vit, sfp__learner_options *o, char *note,
                                    sfp_error *err);

#endif
