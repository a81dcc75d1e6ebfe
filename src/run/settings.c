/* The settings of a run: options that have no effect together with others, the settings that a result records, and their
 * comparison when a run resumes. */
#include "base/settings.h"
#include "base/mem.h"
#include "run/options.h"
#include "run/run_internal.h"
#include "stream/source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ----------------------------------------------------------------- no effect */

#define NEEDS_LAG "it needs clock virtual or real (use --rate LAMBDA; on a live stream --clock real)"
#define TRAINS "; to train fingerprints, use --preset paper without --method"
#define OF_THE_BUFFER "buffer-size drop-rule"

/* The rules. They also use facts that are not settings: boundaries (the stream has known tasks), free (it is known to be task-free), live (unknown
 * until the stream is open), features (the backbone has no network), weighs (the selector has weights), keeps (the buffer has slots). */
static const sfp__no_effect_rule rules[] = {
    {"<trained>", "method", "method {method}", "a closed-form head has no coreset, buffer, steps or fingerprints" TRAINS},
    {"<closed-form>", "!method", "preset {preset}", "only closed-form heads use it; use --method NAME"},
    {"<dataset>", "live=on", "data {data}", "a live stream has no use for it"},
    {"<live>", "live=off", "data {data}", "only live streams use it"},
    {"init-state", "method=ranpac", "method {method}", "only a head that is a function of sums starts from a state"},
    {"ridge", "method=ncm|slda|ranpac", "method {method}", "only ridge uses it"},
    {"half-life", "method=ranpac&half-life!=off", "method {method}", "only heads from sums have one: ncm, slda and ridge"},
    {"drift grow-by", "boundaries=on", "tasks {tasks}", "it needs a task-free stream (tasks free)"},
    {"drift grow-by", "pool-kind=l2p", "pool-kind {pool-kind}", "all components are active from the start"},
    {"grow-by", "pool-kind=dualprompt", "pool-kind {pool-kind}", "one expert is activated at a time"},
    {"pool", "pool-kind=dualprompt&boundaries=on", "pool-kind {pool-kind}", "there is one expert per task"},
    {"attune-topk attune-residual", "attune=off", "attune {attune}", "nothing is attuned"},
    {"sigma", "select=none", "select {select}", "the whole batch is trained on"},
    {"weighted", "weighs=off", "select {select}", "it needs a selector with weights (camel, craig, gradmatch)"},
    {OF_THE_BUFFER, "keeps=off", "buffer {buffer}", "nothing is kept"},
    {"replay", "keeps=off&replay!=0", "buffer {buffer}", "nothing is kept"}, /* replay 0 is consistent */
    {"buffer " OF_THE_BUFFER, "replay=0&keeps=on", "replay {replay}", "nothing is replayed"},
    {"drop-rule", "buffer!=streamfp", "buffer {buffer}", "only buffer streamfp uses it"},
    {"rate", "clock=off", "clock {clock}", "no sample is dropped, and there is no arrival rate (rate max)"},
    {"queue queue-policy", "allocate!=fixed", "allocate {allocate}", "adaptive allocation decides what is processed"},
    {"allocate", "clock=off&allocate=adaptive", "clock {clock}",
     "without an arrival rate all samples are processed (use --rate LAMBDA; on a live stream --clock real)"},
    {"allocate", "clock=paper&allocate!=fixed", "clock {clock}", "this clock keeps batches before the stream begins"},
    {"queue queue-policy", "clock=off|paper", "clock {clock}", NEEDS_LAG},
    {"costs", "clock=off|real", "clock {clock}", "it needs clock virtual or paper (use --rate LAMBDA; not on a live stream)"},
    {"calibrate", "clock!=paper", "clock {clock}", "it needs clock paper (use --clock paper --rate LAMBDA)"},
    {"calibrate", "costs", "costs {costs}", "processing times are given, so none is measured"},
    {"queue-policy", "queue=0&queue-policy!=block", "queue {queue}",
     "without a queue, batches that arrive while the learner is busy are dropped"},
    {"cache", "clock=real", "clock {clock}", "this clock measures the time that passes, which must be that of the real passes"},
    {"cache-size", "!cache", "no cache", "nothing is stored; use --cache DIR"},
    {"resize decode normalise taps tap-mean merge-tokens cache", "features=on", "data {data}",
     "its features are learned from as they are"},
};

sfp__clock_kind sfp__run_clock(const sfp__run_options *o, bool live)
{
    if (o->clock != SFP__CLOCK_DEFAULT && !(live && o->clock_of_preset))
        return o->clock;
    return !(o->rate > 0) ? SFP__CLOCK_OFF : live ? SFP__CLOCK_REAL : SFP__CLOCK_VIRTUAL;
}

/* Finds the first setting without effect; only: NULL, or the only one that is considered. */
static sfp__no_effect find_no_effect(const sfp__run_options *o, const sfp__run_stream *stream, const char *only)
{
    const sfp__buffer_method *buffer = sfp__buffer_method_find(sfp__args_text(o->given, "buffer"));
    bool boundaries = stream ? stream->tasks : o->tasks && strcmp(o->tasks, "free") != 0;
    /* before the stream is open, DEFAULT may still become real instead of virtual; both use the same settings. The clock of a
     * preset is unknown until then. */
    const char *clock = !stream && o->clock_of_preset ? NULL : sfp__clock_name(sfp__run_clock(o, stream && stream->live));
    const sfp__fact facts[] = {
        {"clock", clock},
        {"tasks", o->tasks},
        {"boundaries", boundaries ? "on" : "off"},
        {"free", stream && !stream->tasks ? "on" : NULL},
        {"live", !stream        ? NULL
                 : stream->live ? "on"
                                : "off"},
        {"features", o->vit && o->vit->config.rows ? "on" : "off"},
        {"weighs", sfp__selector_find(sfp__args_text(o->given, "select"))->weighs ? "on" : "off"},
        {"keeps", buffer->keeps_nothing ? "off" : "on"},
    };
    return sfp__args_find_no_effect(o->given, SFP__LIST(rules), SFP__LIST(facts), only);
}

sfp_status sfp__run_check_no_effect(const sfp__run_options *o, const sfp__run_stream *stream, sfp_error *err)
{
    const sfp__no_effect found = o->given ? find_no_effect(o, stream, NULL) : (sfp__no_effect){0};
    return found.key ? sfp__args_fail_no_effect(o->given, &found, err) : SFP_OK;
}

sfp_status sfp__run_check_method(const sfp__args *a, sfp_error *err)
{
    return sfp__args_check_no_effect(a, 1, rules, 0, NULL, err); /* the first rule */
}

bool sfp__run_has_no_effect(const sfp__args *a, const char *key, char *beside, size_t size)
{
    sfp__run_options o = {0};
    if (sfp__run_options_store(a, false, &o, NULL) != SFP_OK)
        return false;
    const sfp__source_kind *kind = o.data ? sfp__source_kind_find(o.data) : NULL;
    const bool live = kind && kind->live;
    const sfp__run_stream stream = {.live = live, .tasks = !live && (!o.tasks || strcmp(o.tasks, "free") != 0)};
    const sfp__no_effect found = find_no_effect(&o, &stream, key);
    (void)snprintf(beside, size, "%s", found.beside);
    return found.key;
}

/* ---------------------------------------------------------- settings in results */

static bool is_recorded(const sfp__opt *o)
{
    return o->type != SFP__OPT_GROUP && o->resume != SFP__NOT_SAVED;
}

sfp_status sfp__settings_record(const sfp__args *a, sfp_result *r, sfp_error *err)
{
    for (size_t i = 0; a && i < a->count; i++) {
        const char *key = a->opts[i].name, *otherwise = sfp__opt_default(&a->opts[i]);
        const char *value = is_recorded(&a->opts[i]) ? sfp__args_value(a, key) : NULL;
        if (!value)
            continue;
        /* a number that equals its default is recorded in the form of the default: 0.50 as 0.5 */
        TRY(sfp__result_config(r, key, otherwise && sfp__same_number(value, otherwise) ? otherwise : value, err));
        TRY(sfp__result_default(r, key, otherwise ? otherwise : "", err));
    }
    return SFP_OK;
}

/* Files may have been moved, or may be named relative to another directory. Two values [KIND:]PATH are equal if they name the
 * same file, or if no file exists at the old path. */
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
    bool source = o->type == SFP__OPT_STRING && strcmp(o->arg, "KIND:PATH") == 0;
    bool file = source || (o->type == SFP__OPT_STRING && strncmp(o->arg, "FILE", 4) == 0);
    bool word = o->default_value && strcmp(was, o->default_value) == 0; /* "builtin" is not the name of a file */
    return strcmp(was, now) == 0 || sfp__same_number(was, now) || (file && !word && same_file(source, was, now));
}

sfp_status sfp__settings_same(const sfp__args *a, const char *path, const sfp_result *then, bool live, sfp_error *err)
{
    for (size_t i = 0; a && i < a->count; i++) {
        const sfp__opt *o = &a->opts[i];
        if (!is_recorded(o) || o->resume == SFP__RESUME_ANY || (live && o->resume == SFP__RESUME_LIVE))
            continue;
        const char *was = sfp__result_value(then, o->name), *now = sfp__args_value(a, o->name);
        if (same_value(o, was, now))
            continue;
        return sfp__fail(err, SFP_EINVAL, "--%s is %s, expected %s as in %s; use that value, or choose another --out", o->name,
                         now ? now : "not set", was ? was : "none", path);
    }
    return SFP_OK;
}
