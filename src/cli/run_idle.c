#include "cli/run_idle.h"

#include "learner/settings_list.h"

#include <stdio.h>
#include <string.h>

typedef struct scene {
    const sfp_run_options *o;
    const sfp_run_stream *stream; /* NULL: not open yet */
} scene;

/* -------------------------------------------------------------- what is the case */

static bool is_method(const scene *s)
{
    return s->o->method;
}

static bool has_tasks(const scene *s)
{
    return s->stream ? s->stream->tasks : s->o->tasks && strcmp(s->o->tasks, "free") != 0;
}

static bool is_live(const scene *s)
{
    return s->stream && s->stream->live;
}

static bool is_not_live(const scene *s)
{
    return s->stream && !s->stream->live;
}

static bool is_l2p(const scene *s)
{
    return s->o->learner.fp.kind == SFP_FP_L2P;
}

static bool is_dualprompt(const scene *s)
{
    return s->o->learner.fp.kind == SFP_FP_DUALPROMPT;
}

static bool has_expert_a_task(const scene *s)
{
    return is_dualprompt(s) && has_tasks(s);
}

static bool is_not_attuned(const scene *s)
{
    return !s->o->learner.fp.attune;
}

static bool is_not_mixed(const scene *s)
{
    return s->o->learner.head != SFP_HEAD_MIX;
}

static bool selects(const scene *s, const char *name)
{
    return strcmp(s->o->learner.select, name) == 0;
}

static bool selects_all(const scene *s)
{
    return selects(s, "none") && !s->o->triage && !s->o->controller; /* both take as many as sigma says */
}

static bool chooses_all(const scene *s)
{
    return s->o->learner.coreset.sigma >= 1 && !s->o->triage && !s->o->controller;
}

static bool selects_no_window(const scene *s)
{
    return !selects(s, "streamfp");
}

static bool predicts_no_loss(const scene *s)
{
    return !selects(s, "learnloss");
}

static bool gives_no_weights(const scene *s)
{
    return !sfp__selector_find(s->o->learner.select)->weighs;
}

static const sfp_buffer_method *buffer(const scene *s)
{
    return sfp__buffer_method_find(s->o->learner.buffer.method);
}

static bool keeps_nothing(const scene *s)
{
    return buffer(s)->keeps_nothing;
}

static bool rehearses_nothing(const scene *s)
{
    return keeps_nothing(s) && s->o->learner.replay > 0; /* 0 says the same */
}

static bool rehearses_never(const scene *s)
{
    return s->o->learner.replay == 0 && !s->o->controller && !keeps_nothing(s); /* buffer none says the same */
}

static bool draws_no_slots(const scene *s)
{
    return strcmp(s->o->learner.buffer.method, "streamfp") != 0;
}

static bool keeps_pixels(const scene *s)
{
    return buffer(s)->needs & SFP_NEED_PIXELS;
}

/* As far as the options tell: a live stream's is real instead of virtual, which use the same. */
static sfp_clock_kind clock_of(const scene *s)
{
    const sfp_run_options *o = s->o;
    return o->clock != SFP_CLOCK_DEFAULT ? o->clock : o->rate > 0 ? SFP_CLOCK_VIRTUAL : SFP_CLOCK_OFF;
}

static bool is_off(const scene *s)
{
    return clock_of(s) == SFP_CLOCK_OFF;
}

static bool is_not_paper(const scene *s)
{
    return clock_of(s) != SFP_CLOCK_PAPER;
}

static bool never_lags(const scene *s)
{
    return clock_of(s) == SFP_CLOCK_OFF || clock_of(s) == SFP_CLOCK_PAPER;
}

static bool takes_no_costs(const scene *s)
{
    return clock_of(s) == SFP_CLOCK_OFF || clock_of(s) == SFP_CLOCK_REAL;
}

static bool has_costs(const scene *s)
{
    return s->o->costs;
}

static bool pools_what_waits(const scene *s)
{
    return s->o->triage;
}

static bool drops_at_once(const scene *s)
{
    return s->o->queue == 0 && s->o->policy != SFP_QUEUE_BLOCK;
}

/* ---------------------------------------------------------------------- the table */

#define FALLS_BEHIND "it needs clock virtual or real (give --rate LAMBDA; on a live stream --clock real)"
#define KEY(type, key, values, fallback, help, place, least, most) key,

static const struct {
    bool (*now)(const scene *s);
    const char *with; /* the option that makes it so */
    const char *why;
    const char *keys[64]; /* idle then; end with NULL */
} rules[] = {
    {is_method, "method", "a head on its own has no coreset, replay or steps to follow the load", {"controller"}},
    {is_method, "method", "a head on its own learns from all it sees, there is nothing to choose", {"triage"}},
    {is_method, "method", "a head on its own starts from nothing", {"init-state"}},
    {is_method,
     "method",
     "a head on its own has no coreset, buffer, steps or fingerprints",
     {SFP_SETTINGS_SELECT(KEY) SFP_SETTINGS_BUFFER(KEY) SFP_SETTINGS_FINGERPRINT(KEY) SFP_SETTINGS_HEAD(KEY) "steps", "lr"}},
    {has_tasks, "tasks", "it is for a stream without task boundaries (tasks free)", {"drift", "span"}},
    {is_l2p, "pool-kind", "all components learn from the beginning", {"drift", "span"}},
    {is_dualprompt, "pool-kind", "experts open one at a time", {"span"}},
    {has_expert_a_task, "pool-kind", "there is an expert a task", {"pool"}},
    {is_not_attuned, "attune", "nothing is attuned", {"attune-topk", "attune-residual"}},
    {is_not_mixed, "head", "it is of head mix", {"head-feed"}},
    {selects_all, "select", "the whole batch is trained on", {"sigma"}},
    {chooses_all, "sigma", "the whole batch is trained on", {"coreset", "learnloss-order"}},
    {selects_no_window, "select", "it is of select streamfp", {"coreset"}},
    {predicts_no_loss, "select", "it is of select learnloss", {"learnloss-order"}},
    {gives_no_weights, "select", "it needs a selector that gives weights (craig, gradmatch)", {"weighted"}},
    {keeps_nothing, "buffer", "nothing is kept", {"buffer-size", "buffer-bytes", "keep", "drop-rule", "nu"}},
    {rehearses_nothing, "buffer", "nothing is kept", {"replay"}},
    {rehearses_never, "replay", "nothing is rehearsed", {"buffer", "buffer-size", "buffer-bytes", "keep", "drop-rule", "nu"}},
    {draws_no_slots, "buffer", "it is of buffer streamfp", {"drop-rule", "nu"}},
    {keeps_pixels, "buffer", "it works on pixels", {"keep"}},
    {is_off, "clock", "all is learned from, whenever it comes (rate max)", {"rate"}},
    {never_lags, "clock", FALLS_BEHIND, {"triage", "controller", "queue", "queue-policy"}},
    {takes_no_costs, "clock", "it needs clock virtual or paper (give --rate LAMBDA; a live stream takes none)", {"costs"}},
    {is_not_paper, "clock", "it needs clock paper (give --clock paper --rate LAMBDA)", {"calibrate"}},
    {has_costs, "costs", "what a batch costs is given, so nothing is measured", {"calibrate"}},
    {pools_what_waits, "triage", "what waits is pooled, not queued", {"queue", "queue-policy"}},
    {drops_at_once, "queue", "nothing waits, so what comes while the learner is busy is dropped", {"queue-policy"}},
    {is_live, "data", "classes of a live stream are numbered as they come", {"order"}},
    {is_not_live, "data", "only pictures of a live stream wait for their label", {"pending"}},
};

/* "clock off": the option that makes another idle, with what it is in effect. */
static const char *in_effect(const sfp_args *a, const scene *s, const char *key, char *buf, size_t size)
{
    const char *value = sfp__args_value(a, key);
    if (strcmp(key, "clock") == 0)
        value = sfp__clock_name(clock_of(s));
    else if (strcmp(key, "tasks") == 0)
        value = s->o->tasks;
    (void)snprintf(buf, size, "%s %s", key, value ? value : "of the data set itself");
    return buf;
}

sfp_status sfp__run_check_idle(const sfp_args *a, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err)
{
    const scene s = {o, stream};
    char with[SFP_ERROR_MAX / 2];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].now(&s))
            continue;
        for (const char *const *key = rules[i].keys; *key; key++)
            if (sfp__args_given(a, *key))
                return sfp__args_no_effect(a, *key, in_effect(a, &s, rules[i].with, with, sizeof with), rules[i].why, err);
    }
    return SFP_OK;
}
