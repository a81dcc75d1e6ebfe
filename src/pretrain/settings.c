#include "pretrain/pretrain.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "option."
#define AT(member) SFP_AT(sfp__pretrain_options, member)

const sfp__opt sfp__pretrain_rows[SFP_PRETRAIN_ROWS] = {
    SFP_ROW_STRING("data", "KIND:PATH", NULL, "The images to learn from. Kinds: see 'streamfp data'.", AT(data.train)),
    SFP_ROW_STRING("test", "KIND:PATH", NULL,
                   "The images to score on; default: the data set's own test part, else every 20th image.", AT(data.test),
                   .resume = SFP_RESUME_ANY),
    SFP_ROW_STRING("teacher", "FILE|builtin", NULL,
                   "A backbone to learn from: its class token, patch tokens and logits for fixed views.", AT(teacher.weights)),
    SFP_ROW_STRING("teacher-cache", "FILE", NULL, "Where the teacher's outputs are kept; default: OUT/teacher.cache.",
                   AT(teacher.cache), .resume = SFP_RESUME_ANY),
    SFP_ROW_INT("img-size", "N", "64", 4, 1024, "Side of the input in pixels.", AT(student.img_size)),
    SFP_ROW_INT("patch", "N", "8", 1, 256, "Side of a patch in pixels.", AT(student.patch_size)),
    SFP_ROW_INT("dim", "N", "192", 8, 4096, "Width of the ViT.", AT(student.dim)),
    SFP_ROW_INT("depth", "N", "8", 1, 64, "Blocks.", AT(student.depth)),
    SFP_ROW_INT("heads", "N", "0", 0, 256, "Attention heads; 0: width / 64, at least 1.", AT(student.heads)),
    SFP_ROW_INT("hidden", "N", "0", 0, 65536, "Hidden width of the MLPs; 0: 4 times the width.", AT(student.hidden)),
    SFP_ROW_STRING("init", "FILE|builtin", NULL,
                   "Start from these weights instead of random ones; positions are resized to --img-size.", AT(student.init),
                   .resume = SFP_RESUME_ANY),
    SFP_ROW_INT("picture-size", "N", "0", 0, 4096, "Side of the images that views are cut from; 0: as --img-size.",
                AT(data.size)),
    SFP_ROW_INT("teacher-grid", "N", "0", 0, 255,
                "Patch tokens of the teacher kept along a side, a multiple of the student's: one cache for students "
                "of several sizes. 0: as many as the student has.",
                AT(teacher.grid)),
    SFP_ROW_INT("epochs", "N", "20", 1, 100000, "Times every image is seen.", AT(plan.epochs), .resume = SFP_RESUME_ANY),
    SFP_ROW_REAL("seconds", "S", "0", 0, 1e9,
                 "Train for so many seconds instead of --epochs: the schedule follows the time spent.", AT(plan.seconds),
                 .resume = SFP_RESUME_ANY),
    SFP_ROW_INT("batch", "N", "64", 1, 65536, "Images per step.", AT(plan.batch)),
    SFP_ROW_REAL("lr", "X", "1e-3", 1e-9, 10, "The largest learning rate: after the warm-up, before the cosine.", AT(adam.lr)),
    SFP_ROW_REAL("weight-decay", "X", "0.05", 0, 10, "Decoupled, on matrices only.", AT(adam.weight_decay)),
    SFP_ROW_REAL("warmup", "F", "0.05", 0, 0.9, "Part of the training in which the learning rate rises.", AT(adam.warmup)),
    SFP_ROW_REAL("clip", "X", "1", 0, 1e9, "The most the gradient's norm may be; 0: any.", AT(adam.clip)),
    SFP_ROW_REAL("beta2", "X", "0.98", 0.5, 0.99999, "AdamW's second moment keeps so much.", AT(adam.beta2)),
    SFP_ROW_REAL("ema", "X", "0.998", 0, 0.999999, "The average of the weights, which is what is written, keeps so much a step.",
                 AT(adam.ema)),
    SFP_ROW_INT("views", "V", "2", 1, 1000,
                "Fixed views per image that the teacher sees; without a teacher every epoch has new ones.", AT(teacher.views)),
    SFP_ROW_REAL("crop", "F", "0.35", 0.01, 1, "The least part of an image's area that a view shows.", AT(view.crop_least)),
    SFP_ROW_REAL("jitter", "X", "0.3", 0, 1, "Brightness, contrast and saturation change by a factor in 1 +- X.",
                 AT(view.jitter)),
    SFP_ROW_REAL("mixup", "A", "0", 0, 10, "Images are mixed in pairs by a part from Beta(A, A); 0: not.", AT(view.mixup)),
    SFP_ROW_REAL("smoothing", "F", "0.1", 0, 0.9, "Label smoothing.", AT(loss.smoothing)),
    SFP_ROW_REAL("weight-label", "X", "0.5", 0, 1e6, "Weight of the cross-entropy with the labels.",
                 AT(loss.weight[SFP_TERM_LABEL])),
    SFP_ROW_REAL("weight-class", "X", "1", 0, 1e6, "Weight of the distance to the teacher's class token.",
                 AT(loss.weight[SFP_TERM_CLASS])),
    SFP_ROW_REAL("weight-patch", "X", "1", 0, 1e6, "Weight of the distance to the teacher's patch tokens.",
                 AT(loss.weight[SFP_TERM_PATCH])),
    SFP_ROW_REAL("weight-logits", "X", "1", 0, 1e6, "Weight of the divergence from the teacher's class probabilities.",
                 AT(loss.weight[SFP_TERM_LOGITS])),
    SFP_ROW_REAL("temperature", "X", "1", 0.01, 100, "Logits of teacher and student are divided by it.", AT(loss.temperature)),
    SFP_ROW_INT("seed", "N", "1", 0, INT64_MAX, "Of everything that is drawn.", AT(plan.seed)),
    SFP_ROW_CHOICE("dtype", "f16|f32", "f16", "Of the model's file.", .resume = SFP_RESUME_ANY),
    SFP_ROW_REAL("checkpoint-every", "S", "60", 0, 1e9, "Seconds of training between checkpoints.", AT(output.checkpoint_seconds),
                 .resume = SFP_RESUME_ANY),
    SFP_ROW_REAL("score-every", "S", "300", 0, 1e9, "Seconds of training between scores; 0: at the end only.",
                 AT(output.score_seconds), .resume = SFP_RESUME_ANY),
    SFP_ROW_INT("score-pictures", "N", "2000", 1, 1000000, "The most images scored, and the most that class means come from.",
                AT(output.max_scored_images), .resume = SFP_RESUME_ANY),
    SFP_ROW_STRING(
        "out", "DIR", NULL,
        "Where the model goes: model.safetensors, config.json, log.jsonl, report.html, checkpoint.safetensors; a finished "
        "training in it is replaced.",
        AT(output.dir), .resume = SFP_NOT_SAVED),
    SFP_ROW_FLAG("resume",
                 "Go on from the checkpoint in OUT, or the one before it when that is damaged; from the beginning when there is "
                 "none. What "
                 "decides a step must be as it was: all options but epochs, seconds, test, init, dtype, threads and those of "
                 "checkpoints and scores.",
                 AT(output.resume), .resume = SFP_NOT_SAVED),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

bool sfp__pretrain_decides(const sfp__opt *row)
{
    bool number = row->type == SFP_OPT_REAL || (row->type == SFP_OPT_INT && row->size == sizeof(int));
    return number && row->size > 0 && row->resume == SFP_RESUME_SAME;
}

static sfp__saved_option *add(sfp__saved_option *list, size_t *n, const char *name)
{
    sfp__saved_option *option = &list[(*n)++];
    *option = (sfp__saved_option){0};
    (void)snprintf(option->key, sizeof option->key, PREFIX "%s", name);
    return option;
}

static void add_text(sfp__saved_option *list, size_t *n, const char *name, const char *text)
{
    if (!text || sfp__utf8_valid(text)) /* metadata is UTF-8: another name goes without a note */
        add(list, n, name)->text = text ? text : "";
}

size_t sfp__pretrain_saved_options(const sfp__pretrain_options *o, sfp__saved_option *out)
{
    size_t n = 0;
    for (const sfp__opt *p = sfp__pretrain_rows; p < sfp__pretrain_rows + SFP_PRETRAIN_ROWS; p++) {
        const void *at = (const char *)o + p->offset;
        if (!sfp__pretrain_decides(p))
            continue;
        sfp__saved_option *option = add(out, &n, p->name);
        if (p->type == SFP_OPT_REAL)
            (void)snprintf(option->number, sizeof option->number, "%.12g", *(const double *)at);
        else
            (void)snprintf(option->number, sizeof option->number, "%d", *(const int *)at);
    }
    (void)snprintf(add(out, &n, "seed")->number, sizeof out->number, "%" PRIu64, o->plan.seed);
    add_text(out, &n, "teacher", o->teacher.weights);
    add_text(out, &n, "data", o->data.train);
    return n;
}

sfp_status sfp__pretrain_check_saved_options(const sfp__tensor_file *f, const sfp__pretrain_options *o, sfp_error *err)
{
    sfp__saved_option list[SFP_PRETRAIN_SAVED_OPTIONS_MAX];
    const char *path = f->path;
    bool reported = false;
    for (size_t i = 0, n = sfp__pretrain_saved_options(o, list); i < n; i++) {
        const char *was = sfp__tensor_file_meta(f, list[i].key), *now = list[i].text ? list[i].text : list[i].number;
        const char *name = list[i].key + strlen(PREFIX);
        char shown[SFP_NAME_MAX];
        reported = reported || was;
        if (!was || strcmp(was, now) == 0)
            continue;
        if (!*was)
            return sfp__fail(err, SFP_EINVAL, "%s: was made without %s, now it is %s", path, name, now);
        (void)sfp__printable(was, shown, sizeof shown);
        if (!*now)
            return sfp__fail(err, SFP_EINVAL, "%s: was made with %s %s, now there is none", path, name, shown);
        return sfp__fail(err, SFP_EINVAL, "%s: was made with %s %s, now it is %s", path, name, shown, now);
    }
    return sfp__fail(err, SFP_EINVAL, "%s: was made with other %s; give the same ones, or another --out", path,
                     reported ? "images, labels or teacher's weights than are there now" : "options or data");
}
