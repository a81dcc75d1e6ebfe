/* streamfp pretrain: train a ViT on pictures, from their labels, from a teacher backbone, or both. */
#include "cli/command.h"
#include "cli/line.h"
#include "cli/stop.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "base/text.h"
#include "pretrain/noted.h"
#include "pretrain/pretrain.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define NEEDS_TEACHER "it is about what a teacher says (give --teacher FILE|builtin)"

static const sfp_opt options[] = {
    SFP_ROW_STRING("data", "KIND:PATH", NULL, "The pictures to learn from. Kinds: see 'streamfp data'."),
    SFP_ROW_STRING("test", "KIND:PATH", NULL, "The pictures to score on; default: the data set's own test part, else every 20th picture."),
    SFP_ROW_STRING("teacher", "FILE|builtin", NULL, "A backbone to learn from: its class token, patch tokens and logits for fixed views."),
    SFP_ROW_STRING("teacher-cache", "FILE", NULL, "Where the teacher's outputs are kept; default: OUT/teacher.cache."),
    SFP_ROW_INT("img-size", "N", "64", 4, 1024, "Side of the input in pixels."),
    SFP_ROW_INT("patch", "N", "8", 1, 256, "Side of a patch in pixels."),
    SFP_ROW_INT("dim", "N", "192", 8, 4096, "Width of the ViT."),
    SFP_ROW_INT("depth", "N", "8", 1, 64, "Blocks."),
    SFP_ROW_INT("heads", "N", "0", 0, 256, "Attention heads; 0: width / 64, at least 1."),
    SFP_ROW_INT("hidden", "N", "0", 0, 65536, "Hidden width of the MLPs; 0: 4 times the width."),
    SFP_ROW_STRING("init", "FILE|builtin", NULL, "Start from these weights instead of random ones; positions are resized to --img-size."),
    SFP_ROW_INT("picture-size", "N", "0", 0, 4096, "Side of the pictures that views are cut from; 0: as --img-size."),
    SFP_ROW_INT("teacher-grid", "N", "0", 0, 255, "Patch tokens of the teacher kept along a side, a multiple of the student's: one cache for students "
                                                   "of several sizes. 0: as many as the student has."),
    SFP_ROW_INT("epochs", "N", "20", 1, 100000, "Times every picture is seen."),
    SFP_ROW_REAL("seconds", "S", "0", 0, 1e9, "Train for so many seconds instead of --epochs: the schedule follows the time spent."),
    SFP_ROW_INT("batch", "N", "64", 1, 65536, "Pictures a step."),
    SFP_ROW_REAL("lr", "X", "1e-3", 1e-9, 10, "The largest learning rate: after the warm-up, before the cosine."),
    SFP_ROW_REAL("weight-decay", "X", "0.05", 0, 10, "Decoupled, on matrices only."),
    SFP_ROW_REAL("warmup", "F", "0.05", 0, 0.9, "Part of the training in which the learning rate rises."),
    SFP_ROW_REAL("clip", "X", "1", 0, 1e9, "The most the gradient's norm may be; 0: any."),
    SFP_ROW_REAL("beta2", "X", "0.98", 0.5, 0.99999, "AdamW's second moment keeps so much."),
    SFP_ROW_REAL("ema", "X", "0.998", 0, 0.999999, "The average of the weights, which is what is written, keeps so much a step."),
    SFP_ROW_INT("views", "V", "2", 1, 1000, "Fixed views a picture that the teacher sees; without a teacher every epoch has new ones."),
    SFP_ROW_REAL("crop", "F", "0.35", 0.01, 1, "The least part of a picture's area that a view shows."),
    SFP_ROW_REAL("jitter", "X", "0.3", 0, 1, "Brightness, contrast and saturation change by a factor in 1 +- X."),
    SFP_ROW_REAL("mixup", "A", "0", 0, 10, "Pictures are mixed in pairs by a part from Beta(A, A); 0: not."),
    SFP_ROW_REAL("smoothing", "F", "0.1", 0, 0.9, "Label smoothing."),
    SFP_ROW_REAL("weight-label", "X", "0.5", 0, 1e6, "Weight of the cross-entropy with the labels."),
    SFP_ROW_REAL("weight-class", "X", "1", 0, 1e6, "Weight of the distance to the teacher's class token."),
    SFP_ROW_REAL("weight-patch", "X", "1", 0, 1e6, "Weight of the distance to the teacher's patch tokens."),
    SFP_ROW_REAL("weight-logits", "X", "1", 0, 1e6, "Weight of the divergence from the teacher's class probabilities."),
    SFP_ROW_REAL("temperature", "X", "1", 0.01, 100, "Logits of teacher and student are divided by it."),
    SFP_ROW_INT("seed", "N", "1", 0, INT64_MAX, "Of everything that is drawn."),
    SFP_ROW_CHOICE("dtype", "f16|f32", "f16", "Of the model's file."),
    SFP_ROW_REAL("checkpoint-every", "S", "60", 0, 1e9, "Seconds of training between checkpoints."),
    SFP_ROW_REAL("score-every", "S", "300", 0, 1e9, "Seconds of training between scores; 0: at the end only."),
    SFP_ROW_INT("score-pictures", "N", "2000", 1, 1000000, "The most pictures scored, and the most that class means come from."),
    SFP_ROW_STRING("out", "DIR", NULL, "Where the model goes: model.safetensors, config.json, log.jsonl, report.html, checkpoint.safetensors; a finished "
                                       "training in it is replaced."),
    SFP_ROW_FLAG("resume", "Go on from the checkpoint in OUT, or the one before it when that is damaged; from the beginning when there is none. What "
                           "decides a step must be as it was: all options but epochs, seconds, test, init, dtype, threads and those of checkpoints and scores."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

typedef struct talk {
    double last;
    const char *phase;
} talk;

/* What goes last from a terminal that is too narrow. */
enum { WORTH_SCORE, WORTH_LOSS, WORTH_RATE, WORTH_EPOCH, WORTH_ETA, WORTH_PLACE };

static void on_progress(void *ctx, const sfp_pretrain_progress *p)
{
    talk *t = ctx;
    sfp_line l = {0};
    double every = sfp__line_rewrites() ? 0.5 : 10;
    bool fresh = t->phase != p->phase;
    if (fresh ? p->seconds < 1 : p->seconds - t->last < every)
        return;
    t->phase = p->phase;
    t->last = p->seconds;
    double eta = p->fraction > p->from ? fmin(p->seconds * (1 - p->fraction) / (p->fraction - p->from), 1e8) : 0;
    sfp__line_add(&l, WORTH_PLACE, "%s %5.1f %%", p->phase, 100 * p->fraction);
    if (strcmp(p->phase, "train") == 0) {
        sfp__line_add(&l, WORTH_EPOCH, "  epoch %.2f", p->epoch);
        for (int i = 0; i < SFP_TERMS; i++)
            if (isfinite(p->loss[i]))
                sfp__line_add(&l, WORTH_LOSS, "  %s %.4f", sfp__pretrain_term_name(i), p->loss[i]);
        if (isfinite(p->ncm))
            sfp__line_add(&l, WORTH_SCORE, "  ncm %.3f knn %.3f", p->ncm, p->knn);
    }
    if (p->images_per_second > 0)
        sfp__line_add(&l, WORTH_RATE, "  %.1f img/s", p->images_per_second);
    sfp__line_add(&l, WORTH_ETA, "  ETA %d:%02d", (int)eta / 60, (int)eta % 60);
    sfp__line_show(&l);
}

static void on_say(void *ctx, const char *message)
{
    (void)ctx;
    sfp__say("%s", message);
}

/* The options as given: what makes the same model again. */
static char *command_of(const sfp_args *a)
{
    sfp_text t = {0};
    sfp__text_put(&t, "streamfp pretrain");
    for (size_t i = 0; i < a->count; i++) {
        const char *name = a->opts[i].name, *value = sfp__args_text(a, name);
        if (sfp__args_rank(a, name) <= SFP_RANK_DEFAULT || strcmp(name, "json") == 0 || strcmp(name, "resume") == 0)
            continue;
        sfp__text_put(&t, " --");
        sfp__text_put(&t, name);
        sfp__text_put(&t, " ");
        sfp__text_put(&t, value ? value : "");
    }
    if (t.failed)
        sfp__text_done(&t);
    return t.s;
}

static void read_numbers(const sfp_args *a, sfp_pretrain_options *o)
{
    for (size_t i = 0; i < sfp__pretrain_number_count; i++) {
        const sfp_pretrain_number *n = &sfp__pretrain_numbers[i];
        void *to = (char *)o + n->offset;
        if (n->real)
            *(double *)to = sfp__args_real(a, n->name);
        else
            *(int *)to = (int)sfp__args_int(a, n->name);
    }
}

/* Options that would do nothing beside the others are refused. */
static sfp_status check_idle(const sfp_args *a, const sfp_pretrain_options *o, sfp_error *err)
{
    const bool untaught = !o->teacher, unlabelled = !(o->weight_label > 0), no_logits = !(o->weight_logits > 0);
    const struct {
        const char *key;
        bool idle;
        const char *with, *why;
    } list[] = {{"epochs", o->seconds > 0, "seconds", "the training ends when the seconds are over; give one of the two"},
                {"teacher-cache", untaught, "no teacher", NEEDS_TEACHER},
                {"teacher-grid", untaught, "no teacher", NEEDS_TEACHER},
                {"views", untaught, "no teacher", "every epoch has new views; " NEEDS_TEACHER},
                {"weight-class", untaught, "no teacher", NEEDS_TEACHER},
                {"weight-patch", untaught, "no teacher", NEEDS_TEACHER},
                {"weight-logits", untaught, "no teacher", NEEDS_TEACHER},
                {"temperature", untaught, "no teacher", NEEDS_TEACHER},
                {"temperature", no_logits, "weight-logits 0", "only logits are divided by it"},
                {"smoothing", unlabelled, "weight-label 0", "the labels are not learned from"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].idle && sfp__args_given(a, list[i].key))
            return sfp__args_no_effect(a, list[i].key, list[i].with, list[i].why, err);
    return SFP_OK;
}

static sfp_status read_options(const sfp_args *a, sfp_pretrain_options *o, sfp_error *err)
{
    *o = (sfp_pretrain_options){.data = sfp__args_string(a, "data"),
                                .test = sfp__args_string(a, "test"),
                                .teacher = sfp__args_string(a, "teacher"),
                                .teacher_cache = sfp__args_string(a, "teacher-cache"),
                                .init = sfp__args_string(a, "init"),
                                .out = sfp__args_string(a, "out"),
                                .seed = (uint64_t)sfp__args_int(a, "seed"),
                                .half = sfp__args_choice(a, "dtype") == 0,
                                .resume = sfp__args_flag(a, "resume")};
    if (!o->data || !o->out)
        return sfp__fail(err, SFP_EINVAL, "--%s is missing", o->data ? "out DIR" : "data KIND:PATH");
    read_numbers(a, o);
    sfp_status s = check_idle(a, o, err);
    if (s)
        return s;
    if (!o->heads)
        o->heads = o->dim >= 64 ? o->dim / 64 : 1;
    if (!o->hidden)
        o->hidden = 4 * o->dim;
    if (o->img_size % o->patch_size != 0)
        return sfp__fail(err, SFP_EINVAL, "--img-size %d is not a multiple of --patch %d", o->img_size, o->patch_size);
    if (o->dim % o->heads != 0)
        return sfp__fail(err, SFP_EINVAL, "--dim %d is not a multiple of %d heads", o->dim, o->heads);
    return SFP_OK;
}

static void print_json(const sfp_pretrain_result *r)
{
    sfp_json j;
    sfp__json_begin(&j, stdout);
    sfp__json_bool(&j, "finished", r->finished);
    sfp__json_int(&j, "steps", (int64_t)r->steps);
    sfp__json_real(&j, "epochs", r->epochs);
    sfp__json_int(&j, "pictures", (int64_t)r->pictures);
    sfp__json_int(&j, "parameters", (int64_t)r->parameters);
    sfp__json_real(&j, "seconds", r->seconds);
    sfp__json_real(&j, "images_per_second", r->images_per_second);
    sfp__json_object(&j, "loss");
    for (int i = 0; i < SFP_TERMS; i++)
        sfp__json_real(&j, sfp__pretrain_term_name(i), r->loss[i]);
    sfp__json_end(&j);
    sfp__json_real(&j, "ncm", r->ncm);
    sfp__json_real(&j, "knn", r->knn);
    sfp__json_end_all(&j);
}

static void print_table(const sfp_pretrain_result *r, const char *out)
{
    (void)printf("  %-24s %10llu (%.2f epochs of %llu pictures)\n", "steps", (unsigned long long)r->steps, r->epochs,
                 (unsigned long long)r->pictures);
    (void)printf("  %-24s %10.1f s, %.1f img/s\n", "time", r->seconds, r->images_per_second);
    for (int i = 0; i < SFP_TERMS; i++)
        if (isfinite(r->loss[i]))
            (void)printf("  loss, %-18s %10.4f\n", sfp__pretrain_term_name(i), r->loss[i]);
    if (isfinite(r->ncm))
        (void)printf("  %-24s %9.1f %%\n  %-24s %9.1f %%\n", "nearest class mean", 100 * r->ncm, "nearest neighbours", 100 * r->knn);
    (void)printf("  %-24s %s/model.safetensors (%.2f million weights)\n", "model", out, 1e-6 * (double)r->parameters);
}

static int run(const sfp_args *a)
{
    sfp_error err = {0};
    sfp_pretrain_options o;
    if (read_options(a, &o, &err))
        return sfp__say_usage("pretrain", "%s", err.message);
    sfp_thread_pool *pool = NULL;
    sfp_pretrain_result r = {0};
    talk t = {0};
    const sfp_pretrain_hooks hooks = {.ctx = &t, .progress = on_progress, .say = on_say, .stop = sfp__stop_on_signals()};
    char *command = command_of(a);
    o.command = command;
    sfp_status s = sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &pool, &err);
    if (!s)
        s = sfp__pretrain(&o, pool, &hooks, &r, &err);
    sfp__line_wipe();
    int code = s ? sfp__command_failed(a, &err) : r.finished ? SFP_EXIT_OK : SFP_EXIT_FAILED;
    if (!s && !r.finished)
        sfp__say("stopped; go on with --resume --out %s", o.out);
    if (!s && sfp__args_flag(a, "json"))
        print_json(&r);
    else if (!s)
        print_table(&r, o.out);
    sfp__thread_pool_free(pool);
    sfp__free(command);
    return code;
}

const sfp_command sfp__cmd_pretrain = {
    .name = "pretrain",
    .summary = "train a backbone on pictures, from labels or from a teacher",
    .text = "Trains all weights of a ViT with AdamW on flips, crops and colour changes of labelled or unlabelled pictures. With --teacher it "
            "learns to reproduce that backbone's class token, patch tokens and class probabilities; what the teacher says of a fixed number "
            "of views a picture is computed once and kept in a file. The model that is written is an average of the weights over time.\n\n"
            "Ctrl-C finishes the step and writes a checkpoint; --resume goes on from it, and a training by --epochs ends in the same bytes as "
            "one that was never interrupted. The exit code is 0 when the training ended.",
    .examples = "  streamfp pretrain --data folder:photos --out mine\n"
                "  streamfp pretrain --data tar:tiny-imagenet --teacher deit_tiny.safetensors --seconds 3600 --out small\n"
                "  streamfp pretrain --data folder:photos --out mine --resume\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
