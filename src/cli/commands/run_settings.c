#include "cli/commands/run.h"

#include "cli/commands/run.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "learner/settings.h"
#include "learner/settings_list.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

sfp_status sfp__run_preset(sfp_args *a, sfp_error *err)
{
    static const struct {
        int preset;
        const char *key, *value;
    } list[] = {{1, "coreset", "paper"}, {1, "normalise", "none"}, {1, "head", "linear"},
                {2, "attune-residual", "on"}, {2, "head", "mix"}};
    int which = sfp__args_choice(a, "preset");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].preset == which)
            TRY(sfp__args_set(a, list[i].key, list[i].value, SFP_RANK_PRESET, "preset", err));
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------------- idle */

#define FALLS_BEHIND "it needs clock virtual or real (give --rate LAMBDA; on a live stream --clock real)"
#define KEY(type, key, values, fallback, help, place, least, most) key " "
#define OF_THE_LEARNER \
    SFP_SETTINGS_SELECT(KEY) SFP_SETTINGS_BUFFER(KEY) SFP_SETTINGS_FINGERPRINT(KEY) SFP_SETTINGS_HEAD(KEY) "steps lr"
#define OF_THE_BUFFER "buffer-size buffer-bytes keep drop-rule nu"

/* Facts: boundaries (of tasks, that are known), live (unknown until the stream is open), weighs (the selector), keeps (the
 * buffer). */
static const sfp_idle rules[] = {
    {"controller", "method", "method {method}", "a head on its own has no coreset, replay or steps to follow the load"},
    {"triage", "method", "method {method}", "a head on its own learns from all it sees, there is nothing to choose"},
    {"init-state", "method", "method {method}", "a head on its own starts from nothing"},
    {OF_THE_LEARNER, "method", "method {method}", "a head on its own has no coreset, buffer, steps or fingerprints"},
    {"drift span", "boundaries=on", "tasks {tasks}", "it is for a stream without task boundaries (tasks free)"},
    {"drift span", "pool-kind=l2p", "pool-kind {pool-kind}", "all components learn from the beginning"},
    {"span", "pool-kind=dualprompt", "pool-kind {pool-kind}", "experts open one at a time"},
    {"pool", "pool-kind=dualprompt&boundaries=on", "pool-kind {pool-kind}", "there is an expert a task"},
    {"attune-topk attune-residual", "attune=off", "attune {attune}", "nothing is attuned"},
    {"head-feed", "head!=mix", "head {head}", "it is of head mix"},
    /* triage and the controller take as many as sigma says */
    {"sigma", "select=none&triage=off&controller=off", "select {select}", "the whole batch is trained on"},
    {"coreset learnloss-order", "triage=off&controller=off&sigma>=1", "sigma {sigma}", "the whole batch is trained on"},
    {"coreset", "select!=streamfp", "select {select}", "it is of select streamfp"},
    {"learnloss-order", "select!=learnloss", "select {select}", "it is of select learnloss"},
    {"weighted", "weighs=off", "select {select}", "it needs a selector that gives weights (craig, gradmatch)"},
    {OF_THE_BUFFER, "keeps=nothing", "buffer {buffer}", "nothing is kept"},
    {"replay", "keeps=nothing&replay!=0", "buffer {buffer}", "nothing is kept"}, /* 0 says the same */
    {"buffer " OF_THE_BUFFER, "replay=0&controller=off&keeps!=nothing", "replay {replay}", "nothing is rehearsed"},
    {"drop-rule nu", "buffer!=streamfp", "buffer {buffer}", "it is of buffer streamfp"},
    {"keep", "keeps=pixels", "buffer {buffer}", "it works on pixels"},
    {"rate", "clock=off", "clock {clock}", "all is learned from, whenever it comes (rate max)"},
    {"triage controller queue queue-policy", "clock=off|paper", "clock {clock}", FALLS_BEHIND},
    {"costs", "clock=off|real", "clock {clock}",
     "it needs clock virtual or paper (give --rate LAMBDA; a live stream takes none)"},
    {"calibrate", "clock!=paper", "clock {clock}", "it needs clock paper (give --clock paper --rate LAMBDA)"},
    {"calibrate", "costs", "costs {costs}", "what a batch costs is given, so nothing is measured"},
    {"queue queue-policy", "triage=on", "triage {triage}", "what waits is pooled, not queued"},
    {"queue-policy", "queue=0&queue-policy!=block", "queue {queue}",
     "nothing waits, so what comes while the learner is busy is dropped"},
    {"order", "live=on", "data {data}", "classes of a live stream are numbered as they come"},
    {"pending", "live=off", "data {data}", "only pictures of a live stream wait for their label"},
};

static sfp_status check_idle(const sfp_args *a, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err)
{
    const sfp_buffer_method *buffer = sfp__buffer_method_find(o->learner.buffer.method);
    bool boundaries = stream ? stream->tasks : o->tasks && strcmp(o->tasks, "free") != 0;
    /* as far as the options tell: a live stream's is real instead of virtual, which use the same */
    sfp_clock_kind clock = o->clock != SFP_CLOCK_DEFAULT ? o->clock : o->rate > 0 ? SFP_CLOCK_VIRTUAL : SFP_CLOCK_OFF;
    const sfp_fact facts[] = {
        {"clock", sfp__clock_name(clock)},
        {"tasks", o->tasks},
        {"boundaries", boundaries ? "on" : "off"},
        {"live", !stream        ? NULL
                 : stream->live ? "on"
                                : "off"},
        {"weighs", sfp__selector_find(o->learner.select)->weighs ? "on" : "off"},
        {"keeps", buffer->keeps_nothing             ? "nothing"
                  : buffer->needs & SFP_NEED_PIXELS ? "pixels"
                                                    : "images"},
    };
    return sfp__args_check_idle(a, SFP_LIST(rules), SFP_LIST(facts), err);
}

/* ----------------------------------------------------------------- settings */

/* Layers that the user named must be there; the default is as many of them as the backbone has (sfp__learner_options_defaults). */
static sfp_status layer_settings(const sfp_args *a, const char *value, sfp_run_options *o, sfp_error *err)
{
    const sfp_vit_config *c = &o->vit->config;
    sfp_fp_options *fp = &o->learner.fp;
    int last = fp->last_layer; /* of the default, as it fits */
    TRY(sfp__settings_apply(&o->learner, c, "prompt-layers", value, err));
    if (sfp__args_rank(a, "prompt-layers") > SFP_RANK_PRESET && fp->last_layer >= c->depth)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected layers up to %d: this backbone has %d blocks", value, c->depth - 1,
                             c->depth);
    if (fp->last_layer >= c->depth) {
        if (!o->method && fp->kind != SFP_FP_L2P)
            sfp__say("prompt-layers: this backbone has %d blocks, so layers 0-%d get prefixes instead of %s", c->depth, last,
                     value);
        fp->last_layer = last;
    }
    if (fp->kind == SFP_FP_L2P && sfp__args_given(a, "prompt-layers") && fp->last_layer > fp->first_layer)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected one layer (%d-%d) with pool-kind l2p", value, fp->first_layer,
                             fp->first_layer);
    return SFP_OK;
}

static sfp_status learner_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    for (int i = 0; i < sfp__settings_count; i++) {
        const sfp_setting *s = &sfp__settings[i];
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

static sfp_status clock_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    const char *rate = sfp__args_string(a, "rate");
    bool most = strcmp(rate, "max") == 0;
    if (!most && (!sfp__parse_real(rate, &o->rate) || !(o->rate > 0)))
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is '%s', expected samples a second, or max", rate);
    int clock = sfp__args_choice(a, "clock");
    o->clock = clock < 0 ? SFP_CLOCK_DEFAULT : (sfp_clock_kind)clock;
    if (most && clock >= 0 && sfp__args_rank(a, "rate") > SFP_RANK_DEFAULT)
        o->clock = SFP_CLOCK_OFF; /* --rate max = off */
    if ((o->clock == SFP_CLOCK_PAPER || o->clock == SFP_CLOCK_VIRTUAL) && !(o->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL, "clock %s: this clock needs a rate (--rate samples/s)",
                             sfp__args_text(a, "clock"));
    return SFP_OK;
}

sfp_status sfp__run_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    const char *every = sfp__args_string(a, "eval-every");
    int64_t n = 0;
    sfp__args_store(a, o);
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
    return o->resume ? SFP_OK : check_idle(a, o, NULL, err);
}

/* Whoever goes on gives what was given then, idle or not. */
sfp_status sfp__run_opened(void *ctx, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err)
{
    return o->resume ? SFP_OK : check_idle(ctx, o, stream, err);
}

/* ------------------------------------------------------------ the result's config */

static bool is_noted(const sfp_opt *o)
{
    return o->type != SFP_OPT_GROUP && o->resume != SFP_NOT_NOTED;
}

/* A number that is its default by another spelling is noted as the default is: 0.50 differs from 0.5 in nothing. */
static sfp_status note(const sfp_opt *o, const char *value, sfp_result *r, sfp_error *err)
{
    const char *fallback = sfp__opt_default(o);
    TRY(sfp__result_config(r, o->name, fallback && sfp__same_number(value, fallback) ? fallback : value, err));
    return sfp__result_default(r, o->name, fallback ? fallback : "", err);
}

sfp_status sfp__run_note_config(void *ctx, sfp_result *r, sfp_error *err)
{
    const sfp_args *a = ctx;
    for (size_t i = 0; i < a->count; i++) {
        const char *value = is_noted(&a->opts[i]) ? sfp__args_value(a, a->opts[i].name) : NULL;
        if (value)
            TRY(note(&a->opts[i], value, r, err));
    }
    return SFP_OK;
}

/* Files may have been moved, or be named from another directory: [KIND:]PATH is the same when the file is, or when there is nothing
 * any more where it was. */
static bool same_file(const char *was, const char *now)
{
    size_t kind = strcspn(now, ":");
    struct stat a, b;
    if (now[kind] && strncmp(was, now, kind + 1) != 0)
        return false;
    kind = now[kind] ? kind + 1 : 0;
    if (stat(now + kind, &b) != 0)
        return false;
    return stat(was + kind, &a) != 0 || (a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

static bool same_value(const sfp_opt *o, const char *was, const char *now)
{
    if (!was || !now)
        return was == now;
    bool file = o->type == SFP_OPT_STRING && (strncmp(o->arg, "FILE", 4) == 0 || strcmp(o->arg, "KIND:PATH") == 0);
    bool word = o->fallback && strcmp(was, o->fallback) == 0; /* "builtin" is no file that went away */
    return strcmp(was, now) == 0 || sfp__same_number(was, now) || (file && !word && same_file(was, now));
}

sfp_status sfp__run_same_config(void *ctx, const sfp_result *then, bool live, sfp_error *err)
{
    const sfp_args *a = ctx;
    for (size_t i = 0; i < a->count; i++) {
        const sfp_opt *o = &a->opts[i];
        if (!is_noted(o) || o->resume == SFP_RESUME_ANY || (live && o->resume == SFP_RESUME_LIVE))
            continue;
        const char *was = sfp__result_value(then, o->name), *now = sfp__args_value(a, o->name);
        if (!was)
            was = sfp__opt_default(o); /* a program that did not have the option yet did as its default says */
        if (same_value(o, was, now))
            continue;
        if (!was)
            return sfp__fail(err, SFP_EINVAL, "was made without %s, now it is %s", o->name, now);
        if (!now)
            return sfp__fail(err, SFP_EINVAL, "was made with %s %s, now there is none", o->name, was);
        return sfp__fail(err, SFP_EINVAL, "was made with %s %s, now it is %s", o->name, was, now);
    }
    return SFP_OK;
}
