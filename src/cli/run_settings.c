#include "cli/run_settings.h"

#include "learner/settings.h"

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
        if (list[i].preset != which)
            continue;
        sfp_status s = sfp__args_set(a, list[i].key, list[i].value, SFP_RANK_PRESET, "preset", err);
        if (s)
            return s;
    }
    return SFP_OK;
}

static const sfp_opt *option_of(const sfp_args *a, const char *key)
{
    size_t i = 0;
    while (i + 1 < a->count && strcmp(a->opts[i].name, key) != 0) /* it is in the table */
        i++;
    return &a->opts[i];
}

/* As the learner and result.json spell it; NULL: unset. */
static const char *value_of(const sfp_args *a, const sfp_opt *o)
{
    return o->type == SFP_OPT_FLAG ? (sfp__args_flag(a, o->name) ? "on" : "off") : sfp__args_text(a, o->name);
}

static const char *default_of(const sfp_opt *o)
{
    return o->type == SFP_OPT_FLAG && !o->fallback ? "off" : o->fallback;
}

static bool is_default(const sfp_args *a, const char *key)
{
    const char *value = value_of(a, option_of(a, key)), *fallback = default_of(option_of(a, key));
    return value && fallback ? strcmp(value, fallback) == 0 : value == fallback;
}

/* By the user, and something else than the default. */
static bool was_given(const sfp_args *a, const char *key)
{
    return sfp__args_rank(a, key) > SFP_RANK_PRESET && !is_default(a, key);
}

static bool is_among(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* ----------------------------------------------------------------- settings */

static sfp_status learner_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    for (int i = 0; i < sfp__settings_count; i++) {
        const sfp_setting *s = &sfp__settings[i];
        if (s->type == SFP_SETTING_TASKS || s->type == SFP_SETTING_CLASSES)
            continue; /* the stream's matter */
        const char *value = value_of(a, option_of(a, s->info.key));
        if (value && sfp__settings_apply(&o->learner, sfp__vit_config(o->vit), s->info.key, value, err))
            return sfp__args_blame(a, s->info.key, err);
    }
    return SFP_OK;
}

/* The clock as far as the options tell: a live stream's is real instead of virtual, which use the same. */
static sfp_clock_kind likely_clock(const sfp_run_options *o)
{
    return o->clock != SFP_CLOCK_DEFAULT ? o->clock : o->rate > 0 ? SFP_CLOCK_VIRTUAL : SFP_CLOCK_OFF;
}

#define ON(clock) (1u << SFP_CLOCK_##clock)
#define FALLS_BEHIND "clock virtual or real (give --rate LAMBDA; on a live stream --clock real)"

/* An option that the clock at hand would quietly ignore is refused, unless it says no more than its default. */
static sfp_status check_clock_options(const sfp_args *a, const sfp_run_options *o, sfp_error *err)
{
    static const struct {
        const char *key;
        unsigned clocks; /* that use it */
        const char *give;
    } list[] = {{"triage", ON(VIRTUAL) | ON(REAL), FALLS_BEHIND},
                {"controller", ON(VIRTUAL) | ON(REAL), FALLS_BEHIND},
                {"queue", ON(VIRTUAL) | ON(REAL), FALLS_BEHIND},
                {"queue-policy", ON(VIRTUAL) | ON(REAL), FALLS_BEHIND},
                {"costs", ON(PAPER) | ON(VIRTUAL), "clock virtual or paper (give --rate LAMBDA; a live stream takes none)"},
                {"calibrate", ON(PAPER), "clock paper (give --clock paper --rate LAMBDA)"}};
    static const char *const clocks[] = {"paper", "virtual", "real", "off"};
    sfp_clock_kind clock = likely_clock(o);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if ((list[i].clocks & 1u << clock) || !was_given(a, list[i].key))
            continue;
        (void)sfp__fail(err, SFP_EINVAL, "%s has no effect with clock %s: it needs %s", list[i].key, clocks[clock], list[i].give);
        return sfp__args_blame(a, list[i].key, err);
    }
    return SFP_OK;
}

/* Of two options that say different things one would be quietly ignored. */
static sfp_status check_pairs(const sfp_args *a, sfp_error *err)
{
    static const struct {
        const char *key, *with, *why;
    } list[] = {{"calibrate", "costs", "what a batch costs is given, so nothing is measured"},
                {"controller", "method", "a head on its own has no coreset, replay or steps to follow the load"},
                {"init-state", "method", "a head on its own starts from nothing"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!was_given(a, list[i].key) || !was_given(a, list[i].with))
            continue;
        (void)sfp__fail(err, SFP_EINVAL, "%s has no effect with %s: %s", list[i].key, list[i].with, list[i].why);
        return sfp__args_blame(a, list[i].key, err);
    }
    return SFP_OK;
}

static sfp_status clock_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    const char *rate = sfp__args_string(a, "rate");
    bool most = strcmp(rate, "max") == 0;
    if (!most && (!sfp__parse_real(rate, &o->rate) || !(o->rate > 0))) {
        (void)sfp__fail(err, SFP_EINVAL, "rate is '%s', expected samples a second, or max", rate);
        return sfp__args_blame(a, "rate", err);
    }
    int clock = sfp__args_choice(a, "clock");
    o->clock = clock < 0 ? SFP_CLOCK_DEFAULT : (sfp_clock_kind)clock;
    if (most && clock >= 0 && sfp__args_rank(a, "rate") > SFP_RANK_DEFAULT)
        o->clock = SFP_CLOCK_OFF; /* --rate max = off */
    if ((o->clock == SFP_CLOCK_PAPER || o->clock == SFP_CLOCK_VIRTUAL) && !(o->rate > 0))
        return sfp__fail(err, SFP_EINVAL, "this clock needs a rate (--rate samples/s)");
    o->calibrate = (int)sfp__args_int(a, "calibrate");
    o->costs = sfp__args_string(a, "costs");
    o->queue = (int)sfp__args_int(a, "queue");
    o->policy = (sfp_queue_policy)sfp__args_choice(a, "queue-policy");
    o->triage = sfp__args_flag(a, "triage");
    o->controller = sfp__args_flag(a, "controller");
    o->pending = (int)sfp__args_int(a, "pending");
    return check_clock_options(a, o, err);
}

sfp_status sfp__run_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err)
{
    const char *every = sfp__args_string(a, "eval-every");
    int64_t n = 0;
    o->data = sfp__args_string(a, "data");
    o->test = sfp__args_string(a, "test");
    o->tasks = sfp__args_string(a, "tasks");
    if (!o->tasks && sfp__args_rank(a, "data") <= SFP_RANK_DEFAULT)
        o->tasks = "5";
    o->order = (int)sfp__args_int(a, "order");
    o->method = sfp__args_string(a, "method");
    sfp_status s = clock_settings(a, o, err);
    if (s)
        return s;
    if (strcmp(every, "task") != 0 && (!sfp__parse_int(every, &n) || n < 1 || n > INT_MAX)) {
        (void)sfp__fail(err, SFP_EINVAL, "eval-every is '%s', expected task, or a number of timestamps", every);
        return sfp__args_blame(a, "eval-every", err);
    }
    o->eval_every = (int)n;
    o->eval_limit = sfp__args_int(a, "eval-limit");
    o->resume = sfp__args_flag(a, "resume");
    if (o->resume && !sfp__args_string(a, "out"))
        return sfp__fail(err, SFP_EINVAL, "--resume needs the directory of the run (--out DIR)");
    o->drop_short = sfp__args_choice(a, "preset") == 1;
    o->init_state = sfp__args_string(a, "init-state");
    return (s = check_pairs(a, err)) ? s : learner_settings(a, o, err);
}

/* ------------------------------------------------------------ the result's config */

/* They say how to talk and where to write: not noted, and a run may go on with others. */
static const char *const not_noted[] = {"set", "json", "out", "resume", "config", NULL};
/* Noted, but a run may go on with others too: they change no answer. */
static const char *const may_differ[] = {"threads", "eval-every", "pending", NULL};
/* ... and these when it is live: its clock has no past, and a test set can come any time. */
static const char *const live_may_differ[] = {"rate", "clock", "queue", "queue-policy", "test", "eval-limit", NULL};

static bool is_noted(const sfp_opt *o)
{
    return o->type != SFP_OPT_GROUP && !is_among(o->name, not_noted);
}

sfp_status sfp__run_note_config(void *ctx, sfp_result *r, sfp_error *err)
{
    const sfp_args *a = ctx;
    sfp_status s = SFP_OK;
    for (size_t i = 0; !s && i < a->count; i++) {
        const char *value = is_noted(&a->opts[i]) ? value_of(a, &a->opts[i]) : NULL;
        s = value ? sfp__result_config(r, a->opts[i].name, value, err) : SFP_OK;
    }
    return s;
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

static bool same_number(const char *was, const char *now)
{
    double x, y; /* hold that many digits exactly: longer ones are compared as text */
    return strlen(was) < 16 && strlen(now) < 16 && sfp__parse_real(was, &x) && sfp__parse_real(now, &y) && !(x < y || x > y);
}

static bool same_value(const sfp_opt *o, const char *was, const char *now)
{
    if (!was || !now)
        return was == now;
    bool file = o->type == SFP_OPT_STRING && (strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "KIND:PATH") == 0);
    bool word = o->fallback && strcmp(was, o->fallback) == 0; /* "builtin" is no file that went away */
    return strcmp(was, now) == 0 || same_number(was, now) || (file && !word && same_file(was, now));
}

sfp_status sfp__run_same_config(void *ctx, const sfp_result *then, bool live, sfp_error *err)
{
    const sfp_args *a = ctx;
    for (size_t i = 0; i < a->count; i++) {
        const sfp_opt *o = &a->opts[i];
        if (!is_noted(o) || is_among(o->name, may_differ) || (live && is_among(o->name, live_may_differ)))
            continue;
        const char *was = sfp__result_value(then, o->name), *now = value_of(a, o);
        if (!was)
            was = default_of(o); /* a program that did not have the option yet did as its default says */
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
