/* The learner's settings as files of a learner save them. To add one, add a member to sfp__learner_options and a row to
 * settings_list.h. */
#ifndef SFP_LEARNER_SETTINGS_H
#define SFP_LEARNER_SETTINGS_H

#include "base/settings.h"
#include "learner/learner.h"

/* Rows whose values are stored in sfp__learner_options. The numbers tasks and classes are settings only of a learner; a run takes them from its
 * stream. */
extern const sfp__opt sfp__learner_rows[];
extern const size_t sfp__learner_row_count;

/* Names of the selectors and of the buffer methods, from 0 until NULL. */
const char *sfp__selector_name(int i);
const char *sfp__buffer_method_name(int i);

/* Parses a value and writes it to *o; SFP_EINVAL with the key. The key must be that of a row. */
sfp_status sfp__learner_set(sfp__learner_options *o, const char *key, const char *text, sfp_error *err);
/* Sets mean and standard deviation by the index of a word of the setting normalise. */
void sfp__learner_normalise(sfp__learner_options *o, const sfp__vit_config *vit, int word);
/* Whether a learner with these options has the setting. */
bool sfp__learner_has(const sfp__learner_options *o, const sfp__opt *row);

#endif
