/* streamfp pretrain: trains a ViT on images, from their labels, from a teacher backbone, or from both. */
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/text.h"
#include "pretrain/pretrain.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct shown_progress {
    double last; /* p->seconds when the status line was last shown */
    const char *phase;
    const atomic_int *stop; /* set by signals */
} shown_progress;

/* Priorities in the status line, lowest first. */
enum { PRIORITY_PROBE, PRIORITY_LOSS, PRIORITY_RATE, PRIORITY_EPOCH, PRIORITY_ETA, PRIORITY_DONE };

static const char *unit_of(const char *phase)
{
    return strcmp(phase, "train") == 0 ? "steps" : strcmp(phase, "teacher") == 0 ? "teacher outputs" : "images";
}

static void on_progress(void *ctx, const sfp_pretrain_progress *p)
{
    shown_progress *t = ctx;
    sfp__status_line l = {0};
    double every = sfp__status_line_rewrites() ? 0.5 : 10;
    bool fresh = t->phase != p->phase;
    if (fresh ? p->seconds < 1 : p->seconds - t->last < every)
        return;
    t->phase = p->phase;
    t->last = p->seconds;
    char eta_text[SFP__ETA_MAX];
    double eta = p->fraction > p->start_fraction ? p->seconds * (1 - p->fraction) / (p->fraction - p->start_fraction) : 0;
    sfp__status_line_add(&l, PRIORITY_DONE, "%llu", (unsigned long long)p->done);
    if (p->total)
        sfp__status_line_add(&l, PRIORITY_DONE, "/%llu", (unsigned long long)p->total);
    sfp__status_line_add(&l, PRIORITY_DONE, " %s", unit_of(p->phase));
    if (strcmp(p->phase, "train") == 0) {
        sfp__status_line_add(&l, PRIORITY_EPOCH, "  epoch %.2f", p->epoch);
        for (int i = 0; i < SFP__TERMS; i++)
            if (isfinite(p->loss[i]))
                sfp__status_line_add(&l, PRIORITY_LOSS, "  %s %.4f", sfp__pretrain_term_name(i), p->loss[i]);
        if (isfinite(p->ncm))
            sfp__status_line_add(&l, PRIORITY_PROBE, "  ncm %.3f  knn %.3f", p->ncm, p->knn);
    }
    if (p->images_per_second > 0)
        sfp__status_line_add(&l, PRIORITY_RATE, "  rate %.1f/s", p->images_per_second);
    sfp__status_line_add(&l, PRIORITY_ETA, "  ETA %s", sfp__eta_text(eta, eta_text));
    sfp__status_line_show(&l);
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)ctx;
    if (level == SFP_LOG_WARNING)
        sfp__warn("%s", message);
    else
        sfp__info("%s", message);
}

static int is_stopped(void *ctx)
{
    return atomic_load(((const shown_progress *)ctx)->stop);
}

/* Writes a command line with all options that were set; it would create the same model again. */
static void put_command(const sfp__args *a, sfp__text *t)
{
    sfp__text_put(t, "streamfp pretrain");
    for (size_t i = 0; i < a->count; i++) {
        const char *name = a->opts[i].name, *value = a->values[i].text;
        if (a->values[i].rank > SFP__RANK_DEFAULT && strcmp(name, "json") != 0 && strcmp(name, "resume") != 0)
            sfp__text_printf(t, " --%s %s", name, value ? value : "");
    }
}

static void print_result(const sfp_pretrain_result *r, const char *out, bool json)
{
    sfp__out o;
    sfp__json *j = &o.json;
    sfp__out_begin(&o, json, 0);
    sfp__json_bool(j, "finished", r->finished);
    sfp__json_uint(j, "steps", r->steps);
    sfp__json_real(j, "epochs", r->epochs);
    sfp__json_uint(j, "pictures", r->images);
    sfp__out_printf(&o, "  %-24s %10llu (%.2f epochs of %llu images)\n", "steps", (unsigned long long)r->steps, r->epochs,
                    (unsigned long long)r->images);
    sfp__json_uint(j, "parameters", r->parameters);
    sfp__json_real(j, "seconds", r->seconds);
    sfp__json_real(j, "images_per_second", r->images_per_second);
    sfp__out_printf(&o, "  %-24s %10.1f s, %.1f img/s\n", "time", r->seconds, r->images_per_second);
    sfp__json_object(j, "loss");
    for (int i = 0; i < SFP__TERMS; i++) {
        sfp__json_real(j, sfp__pretrain_term_name(i), r->loss[i]);
        if (isfinite(r->loss[i]))
            sfp__out_printf(&o, "  loss, %-18s %10.4f\n", sfp__pretrain_term_name(i), r->loss[i]);
    }
    sfp__json_end(j);
    sfp__json_real(j, "ncm", r->ncm);
    sfp__json_real(j, "knn", r->knn);
    if (isfinite(r->ncm))
        sfp__out_printf(&o, "  %-24s %9.1f %%\n  %-24s %9.1f %%\n", "nearest class mean", 100 * r->ncm, "nearest neighbours",
                        100 * r->knn);
    sfp__out_printf(&o, "  %-24s %s/model.safetensors (%.2f million weights)\n", "model", out, 1e-6 * (double)r->parameters);
    sfp__out_end(&o);
}

/* The values that were given, as settings of the library. */
static sfp_status read_settings(const sfp__args *a, sfp_settings *s, sfp_error *err)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *name = a->opts[i].name;
        if (a->values[i].rank > SFP__RANK_DEFAULT && strcmp(name, "json") != 0)
            TRY(sfp_settings_set(s, name, sfp__args_value(a, name), err));
    }
    return SFP_OK;
}

static void free_settings(sfp_settings **s)
{
    sfp_settings_free(*s);
}

static sfp_status run(const sfp__args *a, sfp_error *err)
{
    OWNED_BY(free_settings) sfp_settings *settings = NULL;
    OWNED_BY(sfp__text_done) sfp__text command = {0};
    shown_progress t = {.stop = sfp__stop_on_signals()};
    sfp_pretrain_options o = SFP_PRETRAIN_OPTIONS_INIT;
    sfp_pretrain_result r = SFP_PRETRAIN_RESULT_INIT;
    const char *out = sfp__args_string(a, "out");
    TRY(sfp_pretrain_settings_create(&settings, err));
    TRY(read_settings(a, settings, err));
    put_command(a, &command);
    TRY(sfp__check_memory(!command.failed, err));
    o.command = command.s;
    o.progress = on_progress;
    o.log = on_log;
    o.cancelled = is_stopped;
    o.ctx = &t;
    sfp_status s = sfp_pretrain(settings, &o, &r, err);
    sfp__status_line_wipe();
    TRY(s);
    if (!r.finished)
        sfp__info("stopped; continue with the same command and --resume");
    print_result(&r, out, sfp__args_flag(a, "json"));
    return r.finished ? SFP_OK : sfp__fail_quietly(err);
}

const sfp__command sfp__cmd_pretrain = {
    .name = "pretrain",
    .summary = "train a backbone on images, from labels or from a teacher",
    .text = "Trains all weights of a ViT with AdamW on crops of labelled or unlabelled images, with random flips and colours. "
            "With --teacher, the ViT learns to reproduce the class token, patch tokens and class probabilities of that backbone. "
            "The teacher's outputs for a fixed number of views per image are computed once and cached in a file. The written "
            "model is a moving average of the weights.\n\n"
            "Ctrl-C completes the current step and writes a checkpoint, from which --resume continues. With --epochs, a resumed "
            "run writes the same bytes as an uninterrupted one. The exit status is 0 if the run has ended.",
    .examples = "  streamfp pretrain --data folder:photos --out mine\n"
                "  streamfp pretrain --data tar:tiny-imagenet --teacher deit_tiny.safetensors --seconds 3600 --out small\n"
                "  streamfp pretrain --data folder:photos --out mine --resume\n",
    .opts = sfp__pretrain_rows,
    .opt_count = SFP__PRETRAIN_ROWS,
    .run = run,
};
