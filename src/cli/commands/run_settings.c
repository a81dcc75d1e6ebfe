#include "cli/commands/run.h"

#include "cli/ui.h"

#include "learner/settings.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

sfp_status sfp__run_preset(sfp__args *a, sfp_error *err)
{
    static const struct {
        int preset;
        const char *key, *value;
    } list[] = {{1, "coreset", "paper"},
                {1, "normalise", "none"},
                {1, "head", "linear"},
                {2, "attune-residual", "on"},
                {2, "head", "mix"}};
    int which = sfp__args_choice(a, "preset");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].preset == which)
            TRY(sfp__args_set(a, list[i].key, list[i].value, SFP_RANK_PRESET, "preset", err));
    }
    return SFP_OK;
}

/* ----------------------------------------------------------------- settings */

/* Layers that the user named must be there; the default is as many of them as the backbone has (sfp__learner_options_defaults).
 */
static sfp_status layer_settings(const sfp__args *a, const char *value, sfp__run_options *o, sfp_error *err)
{
    const sfp__vit_config *c = &o->vit->config;
    sfp__fp_options *fp = &o->learner.fp;
    int last = fp->last_layer; /* of the default, as it fits */
    TRY(sfp__settings_apply(&o->learner, c, "prompt-layers", value, err));
    if (sfp__args_rank(a, "prompt-layers") > SFP_RANK_PRESET && fp->last_layer >= c->depth)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected layers up to %d: this backbone has %d blocks", value, c->depth - 1,
                             c->depth);
    if (fp->last_layer >= c->depth) {
        if (!o->method && fp->kind != SFP_FP_L2P)
            sfp__info("prompt-layers: this backbone has %d blocks, so layers 0-%d get prefixes instead of %s", c->depth, last,
                      value);
        fp->last_layer = last;
    }
    if (fp->kind == SFP_FP_L2P && sfp__args_given(a, "prompt-layers") && fp->last_layer > fp->first_layer)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected one layer (%d-%d) with pool-kind l2p", value, fp->first_layer,
                             fp->first_layer);
    return SFP_OK;
}

static sfp_status learner_settings(const sfp__args *a, sfp__run_options *o, sfp_error *err)
{
    for (int i = 0; i < sfp__settings_count; i++) {
        const sfp__setting *s = &sfp__settings[i];
        if (s->type == SFP_SETTING_TASKS || s->type == SFP_SETTING_CLASSES)
            continue; /* the stream's matter */
        const char *value = sfp__args_value(a, s->info.key);
        if (value && s->type == SFP_SETTING_LAYERS)
            TRY(layer_settings(a, value, o, err));
        else if (value)
            TRY(sfp__settings_apply(&o->learner, &o->vit->config, s->info.key, value, err));
    }
    return SFP_OK;
}

static sfp_status clock_settings(const sfp__args *a, sfp__run_options *o, sfp_error *err)
{
    const char *rate = sfp__args_string(a, "rate");
    bool most = strcmp(rate, "max") == 0;
    if (!most && (!sfp__parse_real(rate, &o->rate) || !(o->rate > 0)))
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is '%s', expected samples a second, or max", rate);
    int clock = sfp__args_choice(a, "clock");
    o->clock = clock < 0 ? SFP_CLOCK_DEFAULT : (sfp__clock_kind)clock;
    if (most && clock >= 0 && sfp__args_rank(a, "rate") > SFP_RANK_DEFAULT)
        o->clock = SFP_CLOCK_OFF; /* --rate max = off */
    if ((o->clock == SFP_CLOCK_PAPER || o->clock == SFP_CLOCK_VIRTUAL) && !(o->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL, "clock %s: this clock needs a rate (--rate samples/s)",
                             sfp__args_text(a, "clock"));
    return SFP_OK;
}

sfp_status sfp__run_settings(const sfp__args *a, sfp__run_options *o, sfp_error *err)
{
    const char *every = sfp__args_string(a, "eval-every");
    int64_t n = 0;
    sfp__args_store(a, o);
    o->given = a;
    o->tasks = sfp__args_string(a, "tasks");
    if (!o->tasks && sfp__args_rank(a, "data") <= SFP_RANK_DEFAULT)
        o->tasks = "5";
    TRY(clock_settings(a, o, err));
    if (strcmp(every, "task") != 0 && (!sfp__parse_int(every, &n) || n < 1 || n > INT_MAX))
        return sfp__fail_key(err, "eval-every", SFP_EINVAL, "eval-every is '%s', expected task, or a number of timestamps",
                             every);
    o->eval_every = (int)n;
    if (o->resume && !sfp__args_string(a, "out"))
        return sfp__fail_key(err, "resume", SFP_EINVAL, "--resume needs the directory of the run (--out DIR)");
    o->drop_short = sfp__args_choice(a, "preset") == 1;
    TRY(learner_settings(a, o, err));
    return o->resume ? SFP_OK
                     : sfp__run_check_no_effect(o, NULL, err); /* whoever goes on gives what was given then, idle or not */
}
