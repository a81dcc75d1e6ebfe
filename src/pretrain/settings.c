/* The options of `streamfp pretrain`. */
#include "pretrain/pretrain.h"

#define AT(member) SFP__AT(sfp__pretrain_options, member)

const sfp__opt sfp__pretrain_rows[SFP__PRETRAIN_ROWS] = {
    SFP__ROW_STRING("data", "KIND:PATH", NULL, "Source of the training images. 'streamfp data' lists the kinds.", AT(data.train)),
    SFP__ROW_STRING("test", "KIND:PATH", NULL,
                    "Source of the test images of the probe. Default: the test part of --data; if it has none, every 20th image.",
                    AT(data.test), .resume = SFP__RESUME_ANY),
    SFP__ROW_STRING("teacher", "FILE|builtin", NULL,
                    "Backbone whose class token, patch tokens and logits for fixed views the student learns to reproduce.",
                    AT(teacher.weights)),
    SFP__ROW_STRING("teacher-cache", "FILE", NULL, "File with the teacher's outputs. Default: OUT/teacher.cache.",
                    AT(teacher.cache), .resume = SFP__RESUME_ANY),
    SFP__ROW_INT("img-size", "N", "64", 4, 1024, "Side of the input in pixels.", AT(student.img_size)),
    SFP__ROW_INT("patch", "N", "8", 1, 256, "Side of a patch in pixels.", AT(student.patch_size)),
    SFP__ROW_INT("dim", "N", "192", 8, 4096, "Width of the tokens.", AT(student.dim)),
    SFP__ROW_INT("depth", "N", "8", 1, 64, "Number of blocks.", AT(student.depth)),
    SFP__ROW_INT("heads", "N", "0", 0, 256, "Number of attention heads. 0: width / 64, at least 1.", AT(student.heads)),
    SFP__ROW_INT("hidden", "N", "0", 0, 65536, "Hidden width of the MLPs. 0: 4 times --dim.", AT(student.hidden)),
    SFP__ROW_STRING("init", "FILE|builtin", NULL,
                    "Initial weights instead of random ones. Position embeddings are resized to --img-size.", AT(student.init),
                    .resume = SFP__RESUME_ANY),
    SFP__ROW_INT("crop-size", "N", "0", 0, 4096, "Side of the images that views are cropped from. 0: as --img-size.",
                 AT(data.size)),
    SFP__ROW_INT("teacher-grid", "N", "0", 0, 255,
                 "Patch tokens per side in the teacher's cache, a multiple of the student's. Students of several sizes can then "
                 "share a cache. 0: as the student.",
                 AT(teacher.grid)),
    SFP__ROW_INT("epochs", "N", "20", 1, 100000, "Number of passes over the images.", AT(plan.epochs), .resume = SFP__RESUME_ANY),
    SFP__ROW_REAL("seconds", "S", "0", 0, 1e9,
                  "Train for S seconds instead of --epochs; the learning-rate schedule then follows the time.", AT(plan.seconds),
                  .resume = SFP__RESUME_ANY),
    SFP__ROW_INT("batch", "N", "64", 1, 65536, "Number of images per step.", AT(plan.batch)),
    SFP__ROW_REAL("lr", "X", "1e-3", 1e-9, 10, "Maximum learning rate, at the end of the warm-up; a cosine schedule follows.",
                  AT(adam.lr)),
    SFP__ROW_REAL("weight-decay", "X", "0.05", 0, 10, "Decoupled weight decay of the weight matrices.", AT(adam.weight_decay)),
    SFP__ROW_REAL("warmup", "F", "0.05", 0, 0.9, "Fraction of the run in which the learning rate rises.", AT(adam.warmup)),
    SFP__ROW_REAL("clip", "X", "1", 0, 1e9, "Maximum norm of the gradient. 0: no clipping.", AT(adam.clip)),
    SFP__ROW_REAL("beta2", "X", "0.98", 0.5, 0.99999, "Decay of AdamW's second moment per step.", AT(adam.beta2)),
    SFP__ROW_REAL("ema", "X", "0.998", 0, 0.999999,
                  "Decay per step of the moving average of the weights, which is the written model.", AT(adam.ema)),
    SFP__ROW_INT("views", "V", "2", 1, 1000,
                 "Number of fixed views per image, for which the teacher's outputs are computed. Without a teacher, every epoch "
                 "has new views.",
                 AT(teacher.views)),
    SFP__ROW_REAL("crop", "F", "0.35", 0.01, 1, "Minimum fraction of an image's area in a view.", AT(view.min_crop)),
    SFP__ROW_REAL("jitter", "X", "0.3", 0, 1, "Brightness, contrast and saturation change by random factors in 1 +- X.",
                  AT(view.jitter)),
    SFP__ROW_REAL("mixup", "A", "0", 0, 10, "Images are mixed in pairs with a share drawn from Beta(A, A). 0: no mixing.",
                  AT(view.mixup)),
    SFP__ROW_REAL("smoothing", "F", "0.1", 0, 0.9, "Label smoothing.", AT(loss.smoothing)),
    SFP__ROW_REAL("weight-label", "X", "0.5", 0, 1e6, "Weight of the cross-entropy with the labels.",
                  AT(loss.weight[SFP__TERM_LABEL])),
    SFP__ROW_REAL("weight-class", "X", "1", 0, 1e6, "Weight of the distance to the teacher's class token.",
                  AT(loss.weight[SFP__TERM_CLASS])),
    SFP__ROW_REAL("weight-patch", "X", "1", 0, 1e6, "Weight of the distance to the teacher's patch tokens.",
                  AT(loss.weight[SFP__TERM_PATCH])),
    SFP__ROW_REAL("weight-logits", "X", "1", 0, 1e6, "Weight of the divergence from the teacher's class probabilities.",
                  AT(loss.weight[SFP__TERM_LOGITS])),
    SFP__ROW_REAL("temperature", "X", "1", 0.01, 100, "Temperature by which the logits of teacher and student are divided.",
                  AT(loss.temperature)),
    SFP__ROW_INT("seed", "N", "1", 0, INT64_MAX, "Seed of all random numbers.", AT(plan.seed)),
    SFP__ROW_CHOICE("dtype", "f16|f32", "f16", "Data type of the weights in model.safetensors.", .resume = SFP__RESUME_ANY),
    SFP__ROW_REAL("checkpoint-every", "S", "60", 0, 1e9, "Seconds of training between checkpoints.",
                  AT(output.checkpoint_seconds), .resume = SFP__RESUME_ANY),
    SFP__ROW_REAL("score-every", "S", "300", 0, 1e9,
                  "Seconds of training between probes of the features on test images. 0: only at the end.",
                  AT(output.probe_seconds), .resume = SFP__RESUME_ANY),
    SFP__ROW_INT("score-images", "N", "2000", 1, 1000000, "Maximum number of test images, and of training images, in a probe.",
                 AT(output.max_probe_images), .resume = SFP__RESUME_ANY),
    SFP__ROW_STRING(
        "out", "DIR", NULL,
        "Output directory for model.safetensors, config.json, log.jsonl, report.html and checkpoint.safetensors. A finished run "
        "in it is replaced.",
        AT(output.dir), .resume = SFP__NOT_SAVED),
    SFP__ROW_FLAG(
        "resume",
        "Resume from the last checkpoint in OUT or, if it is damaged, from the one before. If there is no checkpoint, the "
        "run starts from the beginning. Only these options may change: epochs, seconds, test, init, teacher-cache, dtype, "
        "threads, and those of checkpoints and probes.",
        AT(output.resume), .resume = SFP__NOT_SAVED),
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

#define NEEDS_TEACHER "it applies to a teacher (use --teacher FILE|builtin)"

static const sfp__no_effect_rule no_effect_rules[] = {
    {"epochs", "seconds!=0", "seconds", "the length of the run is --seconds; use one of the two"},
    {"teacher-cache teacher-grid", "!teacher", "no teacher", NEEDS_TEACHER},
    {"views", "!teacher", "no teacher", "every epoch has new views without a teacher (use --teacher FILE|builtin)"},
    {"weight-class weight-patch weight-logits temperature", "!teacher", "no teacher", NEEDS_TEACHER},
    {"temperature", "weight-logits=0", "weight-logits 0", "the temperature applies only to logits"},
    {"smoothing", "weight-label=0", "weight-label 0", "the loss does not use labels"},
};

sfp_status sfp__pretrain_read_options(const sfp__args *a, sfp__pretrain_options *o, sfp_error *err)
{
    *o = (sfp__pretrain_options){.output.half = sfp__args_choice(a, "dtype") == 0};
    sfp__args_store(a, o);
    if (!o->data.train || !o->output.dir)
        return sfp__fail_key(err, o->data.train ? "out" : "data", SFP_EINVAL, "%s is missing, expected %s",
                             o->data.train ? "out" : "data", o->data.train ? "a directory" : "KIND:PATH");
    TRY(sfp__args_check_no_effect(a, SFP__LIST(no_effect_rules), 0, NULL, err));
    if (!o->student.heads)
        o->student.heads = o->student.dim >= 64 ? o->student.dim / 64 : 1;
    if (!o->student.hidden)
        o->student.hidden = 4 * o->student.dim;
    if (o->student.img_size % o->student.patch_size != 0)
        return sfp__fail_key(err, "img-size", SFP_EINVAL, "img-size is %d, expected a multiple of %d, the patch size",
                             o->student.img_size, o->student.patch_size);
    if (o->student.dim % o->student.heads != 0)
        return sfp__fail_key(err, "dim", SFP_EINVAL, "dim is %d, expected a multiple of %d, the number of heads", o->student.dim,
                             o->student.heads);
    return SFP_OK;
}
