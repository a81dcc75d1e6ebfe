#include "cli/run_idle.h"

#include "base/mem.h"
#include "learner/settings_list.h"

#include <string.h>

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

sfp_status sfp__run_check_idle(const sfp_args *a, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err)
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
