/* The settings as they were given: which of them mean nothing beside the others, what is noted of them in the result, and whether
 * a run that is to go on was made with the same. */
#include "base/settings.h"
#include "base/mem.h"
#include "learner/settings_list.h"
#include "run/run_internal.h"
#include "stream/source.h"

#include <string.h>
#include <sys/stat.h>

/* ---------------------------------------------------------------------- idle */

#define FALLS_BEHIND "it needs clock virtual or real (give --rate LAMBDA; on a live stream --clock real)"
#define KEY(type, key, values, default_value, help, place, min, max, ...) key " "
#define OF_THE_LEARNER \
    SFP_SETTINGS_SELECT(KEY) SFP_SETTINGS_BUFFER(KEY) SFP_SETTINGS_FINGERPRINT(KEY) SFP_SETTINGS_HEAD(KEY) "steps lr"
#define OF_THE_BUFFER "buffer-size buffer-bytes buffer-format drop-rule nu"

/* Facts: boundaries (of tasks, that are known), live (unknown until the stream is open), weighs (the selector), keeps (the
 * buffer). */
static const sfp__no_effect_rule rules[] = {
    {"controller", "method", "method {method}", "a head on its own has no coreset, replay or steps to follow the load"},
    {"triage", "method", "method {method}", "a head on its own learns from all it sees, there is nothing to choose"},
    {"init-state", "method", "method {method}", "a head on its own starts from nothing"},
    {OF_THE_LEARNER, "method", "method {method}", "a head on its own has no coreset, buffer, steps or fingerprints"},
    {"drift grow-by", "boundaries=on", "tasks {tasks}", "it is for a stream without task boundaries (tasks free)"},
    {"drift grow-by", "pool-kind=l2p", "pool-kind {pool-kind}", "all components learn from the beginning"},
    {"grow-by", "pool-kind=dualprompt", "pool-kind {pool-kind}", "experts open one at a time"},
    {"pool", "pool-kind=dualprompt&boundaries=on", "pool-kind {pool-kind}", "there is an expert a task"},
    {"attune-topk attune-residual", "attune=off", "attune {attune}", "nothing is attuned"},
    {"head-feed", "head!=mix", "head {head}", "it is of head mix"},
    /* triage and the controller take as many as sigma says */
    {"sigma", "select=none&triage=off&controller=off", "select {select}", "the whole batch is trained on"},
    {"coreset-rounding learnloss-order", "triage=off&controller=off&sigma>=1", "sigma {sigma}", "the whole batch is trained on"},
    {"coreset-rounding", "select!=streamfp", "select {select}", "it is of select streamfp"},
    {"learnloss-order", "select!=learnloss", "select {select}", "it is of select learnloss"},
    {"weighted", "weighs=off", "select {select}", "it needs a selector that gives weights (craig, gradmatch)"},
    {OF_THE_BUFFER, "keeps=nothing", "buffer {buffer}", "nothing is kept"},
    {"replay", "keeps=nothing&replay!=0", "buffer {buffer}", "nothing is kept"}, /* 0 says the same */
    {"buffer " OF_THE_BUFFER, "replay=0&controller=off&keeps!=nothing", "replay {replay}", "nothing is rehearsed"},
    {"drop-rule nu", "buffer!=streamfp", "buffer {buffer}", "it is of buffer streamfp"},
    {"buffer-format", "keeps=pixels", "buffer {buffer}", "it works on pixels"},
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
    {"label-queue", "live=off", "data {data}", "only images of a live stream wait for their label"},
};

sfp_status sfp__run_check_no_effect(const sfp__run_options *o, const sfp__run_stream *stream, sfp_error *err)
{
    const sfp__buffer_method *buffer = sfp__buffer_method_find(o->learner.buffer.method);
    bool boundaries = stream ? stream->tasks : o->tasks && strcmp(o->tasks, "free") != 0;
    /* as far as the options tell: a live stream's is real instead of virtual, which use the same */
    sfp__clock_kind clock = o->clock != SFP_CLOCK_DEFAULT ? o->clock : o->rate > 0 ? SFP_CLOCK_VIRTUAL : SFP_CLOCK_OFF;
    const sfp__fact facts[] = {
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
    return o->given ? sfp__args_check_no_effect(o->given, SFP_LIST(rules), SFP_LIST(facts), err) : SFP_OK;
}

/* ------------------------------------------------------------ the result's config */

static bool is_noted(const sfp__opt *o)
{
    return o->type != SFP_OPT_GROUP && o->resume != SFP_NOT_SAVED;
}

enum { WORD_MAX = 64 };

/* A number that equals its default is recorded as the default is written: 0.50 as 0.5. */
static sfp_status record(const sfp__opt *o, const char *value, sfp_result *r, sfp_error *err)
{
    const char *key = sfp__opt_saved_name(o);
    char word[WORD_MAX], default_word[WORD_MAX];
    const char *default_value = sfp__opt_saved_value(o, sfp__opt_default(o), default_word, sizeof default_word);
    value = sfp__opt_saved_value(o, value, word, sizeof word);
    TRY(sfp__result_config(r, key, default_value && sfp__same_number(value, default_value) ? default_value : value, err));
    return sfp__result_default(r, key, default_value ? default_value : "", err);
}

sfp_status sfp__settings_record(const sfp__args *a, sfp_result *r, sfp_error *err)
{
    for (size_t i = 0; a && i < a->count; i++) {
        const char *value = is_noted(&a->opts[i]) ? sfp__args_value(a, a->opts[i].name) : NULL;
        if (value)
            TRY(record(&a->opts[i], value, r, err));
    }
    return SFP_OK;
}

/* Files may have been moved, or be named from another directory: [KIND:]PATH is the same when the file is, or when there is
 * nothing any more where it was. */
static bool same_file(bool source, const char *was, const char *now)
{
    const char *was_path = strchr(was, ':'), *now_path = strchr(now, ':');
    struct stat a, b;
    if (source) { /* its kind may be named by an alias */
        if (!was_path || !now_path || sfp__source_kind_find(was) != sfp__source_kind_find(now))
            return false;
        if (strcmp(was_path, now_path) == 0)
            return true;
        was = was_path + 1;
        now = now_path + 1;
    }
    if (stat(now, &b) != 0)
        return false;
    return stat(was, &a) != 0 || (a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

static bool same_value(const sfp__opt *o, const char *was, const char *now)
{
    if (!was || !now)
        return was == now;
    bool source = o->type == SFP_OPT_STRING && strcmp(o->arg, "KIND:PATH") == 0;
    bool file = source || (o->type == SFP_OPT_STRING && strncmp(o->arg, "FILE", 4) == 0);
    bool word = o->default_value && strcmp(was, o->default_value) == 0; /* "builtin" is not the name of a file */
    return strcmp(was, now) == 0 || sfp__same_number(was, now) || (file && !word && same_file(source, was, now));
}

/* The value that a result records, in the words of today; that of a program without this option is the default. */
static const char *recorded(const sfp__opt *o, const sfp_result *r, char *buf, size_t size)
{
    const char *value = sfp__result_value(r, sfp__opt_saved_name(o));
    int word = value && o->saved_values ? sfp__word_index(o->saved_values, value) : -1;
    if (!value)
        return sfp__opt_default(o);
    return word < 0 ? value : sfp__word_at(o->arg, word, buf, size);
}

sfp_status sfp__settings_same(const sfp__args *a, const sfp_result *then, bool live, sfp_error *err)
{
    for (size_t i = 0; a && i < a->count; i++) {
        const sfp__opt *o = &a->opts[i];
        if (!is_noted(o) || o->resume == SFP_RESUME_ANY || (live && o->resume == SFP_RESUME_LIVE))
            continue;
        char word[WORD_MAX];
        const char *was = recorded(o, then, word, sizeof word), *now = sfp__args_value(a, o->name);
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
