/* The learner's options by name: one table for the command line, configuration files and the public interface. To add an option,
 * add a row to settings_list.h. */
#ifndef SFP_LEARNER_SETTINGS_H
#define SFP_LEARNER_SETTINGS_H

#include "learner/learner.h"

typedef enum sfp__setting_type {
    SFP_SETTING_INT,
    SFP_SETTING_SEED, /* uint64_t */
    SFP_SETTING_REAL, /* double */
    SFP_SETTING_FLOAT,
    SFP_SETTING_CHOICE, /* an enum: index into the words */
    SFP_SETTING_FLAG,   /* on, off */
    SFP_SETTING_FLIP,   /* a choice of two words stored as bool: the second is true */
    SFP_SETTING_SELECTOR,
    SFP_SETTING_BUFFER,  /* a buffer method */
    SFP_SETTING_LAYERS,  /* "0-4" */
    SFP_SETTING_TASKS,   /* a number, or "free" */
    SFP_SETTING_CLASSES, /* a number; a run counts the classes of its stream instead */
    SFP_SETTING_NORM,    /* mean and std: backbone, none, imagenet, half */
} sfp__setting_type;

typedef struct sfp__setting_info {
    const char *key, *values, *default_value, *help;
} sfp__setting_info;

typedef struct sfp__setting {
    sfp__setting_info info; /* values: "exact|paper" for choices, "N" or "R" for numbers */
    sfp__setting_type type;
    size_t offset; /* into sfp__learner_options */
    double min, max;
} sfp__setting;

extern const sfp__setting sfp__settings[];
extern const int sfp__settings_count;

/* Names of the selectors and of the buffer methods, from 0 until NULL. */
const char *sfp__selector_name(int i);
const char *sfp__buffer_method_name(int i);

/* The setting of that key; NULL: there is none. */
const sfp__setting *sfp__settings_find(const char *key);
/* The value in *o as files store it, which sfp__settings_apply accepts; "" for SFP_SETTING_NORM. Returns buf. */
const char *sfp__setting_saved_text(const sfp__setting *s, const sfp__learner_options *o, char *buf, size_t size);
/* Writes one value into *o. */
sfp_status sfp__settings_apply(sfp__learner_options *o, const sfp__vit_config *vit, const char *key, const char *value,
                               sfp_error *err);
/* Checks one value without a backbone. */
sfp_status sfp__settings_check(const char *key, const char *value, sfp_error *err);

#endif
