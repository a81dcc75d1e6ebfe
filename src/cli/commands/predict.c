/* streamfp predict: classes or features of images, with the public header only.
 *
 * Files are processed in chunks: decoded and resized on all threads, predicted, printed. Apart from the list of paths, memory
 * does not grow with the number of files. A file that is missing or cannot be decoded is reported, counted and skipped; the
 * exit status is then 1. */
#include "cli/commands/predict.h"

#include "cli/engine.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/monotonic.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 20) /* of the inputs of one chunk as floats */
enum { CHUNK_MAX = 128, EVAL_TOP = 5 };

static const sfp__opt options[] = {
    SFP__ROW_STRING("backbone", "FILE|builtin", "builtin",
                    "Weights of the ViT: safetensors, PyTorch (.pth, .bin) or .npz; builtin: the built-in one. Default with "
                    "--state: the backbone of the run."),
    SFP__ROW_STRING(
        "state", "FILE|DIR", NULL,
        "Predict with the learned state of a run: a state.safetensors or a run directory. The input size is that of the "
        "run. Without it the backbone's own head predicts."),
    SFP__ROW_INT("topk", "K", "5", 1, SFP__PREDICT_TOP_MAX, "Number of classes to print per image."),
    SFP__ROW_STRING(
        "names", "FILE", NULL,
        "Class names, one per line. Default: names from the state or from the config beside the weights, else numbers."),
    SFP__ROW_STRING("eval", "FILE", NULL,
                    "A CSV list 'file,label' (label: class name or number); counts correct answers instead of printing each."),
    SFP__ROW_STRING("features", "FILE.npy", NULL,
                    "Write the features of every image to this .npy file, one row each. The row of an image that cannot be "
                    "decoded is NaN and is reported; --json prints the row of every image."),
    SFP__ROW_INT(
        "taps", "K", "1", 0, SFP__PREDICT_TAPS_MAX,
        "--features: the class tokens after the last K blocks, as a run with --taps K learns from; 0: half of the blocks."),
    SFP__ROW_CHOICE("tap-mean", "on|off", "off",
                    "--features: before them the mean of the patch tokens after the last block but one, as in a run."),
    SFP__ROW_INT("merge-tokens", "R", "0", 0, 4096,
                 "--features: each block but the last merges the R most similar pairs of patch tokens, as in a run."),
    SFP__ROW_CHOICE("resize", "squash|crop", "squash",
                    "squash: resize to the input size; crop: resize the short side to 256/224 of it, then cut out the centre."),
    SFP__ROW_CHOICE(
        "decode", "exact|fast", "exact",
        "How large JPEGs are decoded: all pixels, or fewer if the resized image has less than half of them on each side."),
    SFP__ROW_CHOICE(
        "normalise", "backbone|none|imagenet|half", "backbone",
        "Mean and standard deviation of the input: those of the backbone, 0 and 1, those of ImageNet, or 0.5 and 0.5."),
    SFP__ROW_IMG_SIZE_OF_STATE,
    SFP__ROW_FLAG("exif", "Has no effect: images are always turned upright by their EXIF orientation."),
    SFP__ROW_FLAG("strict", "Stop at the first image that is missing or cannot be decoded."),
    SFP__ROW_PRECISION_OF_STATE,
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

/* ------------------------------------------------------------------ opening */

static void predict_done(sfp__predict *p)
{
    sfp__writer_abort(&p->features);
    sfp_predictor_free(p->predictor);
    sfp_source_close(p->rows);
    sfp_engine_close(p->engine);
    sfp__filelist_done(&p->files);
    sfp__strings_done(&p->names);
    sfp__free(p->labels);
    sfp__free(p->block);
}

const char *sfp__predict_class_name(const sfp__predict *p, int label)
{
    if (p->names.count > 0)
        return label < p->names.count ? p->names.s[label] : NULL;
    return sfp_predictor_class_name(p->predictor, label);
}

static sfp_status open_backbone(sfp__predict *p, const sfp_predictor_options *o, sfp_error *err)
{
    const sfp__args *a = p->args;
    sfp_settings *settings = NULL;
    if (sfp_engine_classes(p->engine) == 0 && (p->eval || !sfp__args_string(a, "features")))
        return sfp__fail(
            err, SFP_EUNSUPPORTED,
            "%s: the backbone has no head (no tensor 'head.weight') and so no classes; use --features FILE to write its "
            "features, or --state FILE to predict with a learned state",
            sfp__args_string(a, "backbone"));
    TRY(sfp_settings_create(&settings, err));
    sfp_status status = sfp_settings_set(settings, "resize", sfp__args_text(a, "resize"), err);
    status = status ? status : sfp_settings_set(settings, "decode", sfp__args_text(a, "decode"), err);
    status = status ? status : sfp_settings_set(settings, "normalise", sfp__args_text(a, "normalise"), err);
    status = status ? status : sfp_settings_set(settings, "taps", sfp__args_value(a, "taps"), err);
    status = status ? status : sfp_settings_set(settings, "tap-mean", sfp__args_text(a, "tap-mean"), err);
    status = status ? status : sfp_settings_set(settings, "merge-tokens", sfp__args_value(a, "merge-tokens"), err);
    status = status ? status : sfp_predictor_open_backbone(p->engine, settings, o, &p->predictor, err);
    sfp_settings_free(settings);
    return status;
}

static sfp_status open_state(sfp__predict *p, const char *state, const sfp_predictor_options *o, sfp_error *err)
{
    bool any = false;
    TRY(sfp_predictor_open(p->engine, state, o, &p->predictor, err));
    for (int c = 0; c < sfp_predictor_classes(p->predictor) && !any; c++)
        any = sfp_predictor_class_seen(p->predictor, c);
    return any ? SFP_OK : sfp__fail(err, SFP_EINVAL, "%s: the state has not learned any class, expected at least one", state);
}

static sfp_status open_predictor(sfp__predict *p, sfp_error *err)
{
    const char *state = sfp__args_string(p->args, "state"), *names = sfp__args_string(p->args, "names");
    sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(p->args, "threads");
    if (state)
        TRY(sfp__cli_check_state(state, err));
    TRY(sfp__cli_engine_open(p->args, state, &p->engine, err));
    TRY(state ? open_state(p, state, &o, err) : open_backbone(p, &o, err));
    p->classes = sfp_predictor_classes(p->predictor);
    p->topk = (int)sfp__args_int(p->args, "topk");
    p->topk = p->topk > p->classes ? p->classes : p->topk;
    if (!names)
        return SFP_OK;
    TRY(sfp__class_names_read(names, &p->names, err));
    if (p->names.count != p->classes)
        return sfp__fail(err, SFP_EFORMAT, "%s: the file has %d names, expected %d, the number of classes of the %s", names,
                         p->names.count, p->classes, state ? "state" : "backbone");
    return SFP_OK;
}

/* -------------------------------------------------------------------- files */

static sfp_status label_of(const sfp__predict *p, const char *list, size_t i, int32_t *out, sfp_error *err)
{
    const char *text = sfp__filelist_label(&p->files, i), *file = sfp__filelist_path(&p->files, i);
    uint64_t line = sfp__filelist_line(&p->files, i);
    int64_t number;
    if (text[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s:%" PRIu64 ": '%s' has no label, expected 'file,label'", list, line, file);
    for (int k = 0; k < p->classes; k++) { /* names first: they may be numbers in another order */
        const char *name = sfp__predict_class_name(p, k);
        if (name && strcmp(name, text) == 0) {
            *out = k;
            return SFP_OK;
        }
    }
    if (!sfp__parse_int(text, &number))
        return sfp__fail(err, SFP_EFORMAT, "%s:%" PRIu64 ": label of '%s' is '%s', expected a class number or a class name", list,
                         line, file, text);
    if (number < 0 || number >= p->classes)
        return sfp__fail(err, SFP_EFORMAT, "%s:%" PRIu64 ": label of '%s' is %s, expected 0 to %d", list, line, file, text,
                         p->classes - 1);
    *out = (int32_t)number;
    return SFP_OK;
}

/* Whether the name ends in .npy. A user who forgets the file name after --features would otherwise overwrite the first image. */
static bool is_npy(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".npy") == 0;
}

/* Reads a matrix of features; each row counts as a file with the name PATH[i]. */
static sfp_status read_rows(sfp__predict *p, const char *path, sfp_error *err)
{
    char spec[PATH_MAX + 16], name[PATH_MAX + 32];
    if (p->args->operand_count > 1)
        return sfp__fail_usage(err, "'%s' and other paths exclude each other: its rows are features", path);
    (void)snprintf(spec, sizeof spec, "features:%s", path);
    TRY(sfp_source_open(spec, NULL, &p->rows, err));
    for (int64_t i = 0; i < sfp_source_count(p->rows); i++) {
        (void)snprintf(name, sizeof name, "%s[%" PRId64 "]", path, i);
        TRY(sfp__filelist_add(&p->files, name, "", err));
    }
    return SFP_OK;
}

static sfp_status read_files(sfp__predict *p, sfp_error *err)
{
    const char *list = sfp__args_string(p->args, "eval");
    for (int i = 0; i < p->args->operand_count; i++)
        if (is_npy(p->args->operands[i]))
            return read_rows(p, p->args->operands[i], err);
    for (int i = 0; i < p->args->operand_count; i++)
        TRY(sfp__filelist_add_path(&p->files, p->args->operands[i], err));
    if (!list)
        return SFP_OK;
    TRY(sfp__filelist_add_csv(&p->files, list, err));
    TRY(sfp__alloc(&p->labels, p->files.count, sizeof *p->labels, err));
    for (size_t i = 0; i < p->files.count; i++)
        TRY(label_of(p, list, i, &p->labels[i], err));
    return SFP_OK;
}

static sfp_status reserve(sfp__predict *p, sfp_error *err)
{
    size_t side = (size_t)sfp_engine_image_size(p->engine), n = CHUNK_BYTES / (3 * side * side * sizeof(float));
    n = n < 1 ? 1 : n > CHUNK_MAX ? CHUNK_MAX : n;
    n = n > p->files.count ? p->files.count : n;
    p->capacity = (int)n;
    const sfp__want list[] = {
        {&p->images, n, sizeof *p->images}, {&p->predictions, n, sizeof *p->predictions}, {&p->rankings, n, sizeof *p->rankings}};
    return sfp__block(&p->block, SFP__LIST(list), err);
}

/* -------------------------------------------------------------------- chunks */

/* The best classes of image i and their probabilities; ties go to the lower class. */
static void rank(const sfp__predict *p, int i, sfp__ranking *out)
{
    const float *z = sfp_predictor_scores(p->predictor);
    int want = p->topk > EVAL_TOP ? p->topk : EVAL_TOP, have = 0;
    int32_t *top = out->label;
    double sum = 0;
    out->count = 0;
    if (!z || p->predictions[i].status)
        return;
    z += (size_t)i * (size_t)p->classes;
    for (int k = 0; k < p->classes; k++) {
        if (z[k] == -INFINITY)
            continue;
        int at = have < want ? have++ : want;
        for (; at > 0 && z[k] > z[top[at - 1]]; at--)
            if (at < want)
                top[at] = top[at - 1];
        if (at < want)
            top[at] = k;
    }
    for (int k = 0; have > 0 && k < p->classes; k++)
        sum += exp((double)z[k] - (double)z[top[0]]);
    for (int k = 0; k < have; k++)
        out->probability[k] = (float)(exp((double)z[top[k]] - (double)z[top[0]]) / sum);
    out->count = have;
}

static sfp_status run_images(sfp__predict *p, sfp_error *err)
{
    for (int i = 0; i < p->count; i++)
        p->images[i] = (sfp_image){.format = SFP_IMAGE_FILE, .data = sfp__filelist_path(&p->files, p->first + (size_t)i)};
    return sfp_predictor_run(p->predictor, p->count, p->images, p->predictions, err);
}

/* Predicts rows of features. A row that cannot be read has no data; the predictor then reports it as unreadable. */
static sfp_status run_rows(sfp__predict *p, sfp_error *err)
{
    sfp_status status = SFP_OK;
    int n = 0;
    for (; n < p->count && !sfp__is_machine_error(status); n++) {
        p->images[n] = (sfp_image){.format = SFP_IMAGE_FEATURES};
        status = sfp_source_read(p->rows, (int64_t)p->first + n, NULL, &p->images[n], err);
        if (status && !sfp__is_machine_error(status))
            sfp__warn("%s", err->message);
    }
    status = sfp__is_machine_error(status) ? status : sfp_predictor_run(p->predictor, n, p->images, p->predictions, err);
    for (int i = 0; i < n; i++)
        if (p->images[i].data)
            sfp_source_release(p->rows, &p->images[i]); /* which also clears the image */
    return status;
}

static sfp_status run_chunk(sfp__predict *p, sfp_error *err)
{
    TRY(p->rows ? run_rows(p, err) : run_images(p, err));
    for (int i = 0; i < p->count; i++) {
        rank(p, i, &p->rankings[i]);
        if (p->predictions[i].status == SFP_OK) {
            p->answered++;
            p->scored |= isfinite(sfp__predict_unknown(p, i));
            continue;
        }
        if (sfp__args_flag(p->args, "strict"))
            return sfp__fail(err, p->predictions[i].status, "%s", sfp_predictor_image_error(p->predictor, i));
        if (p->images[i].format != SFP_IMAGE_FEATURES) /* else it was reported when it was read */
            sfp__predict_print_failed(p, i);
        p->failed++;
    }
    sfp__predict_print_chunk(p);
    return sfp__predict_features_put(p, err);
}

static sfp_status run_chunks(sfp__predict *p, sfp__progress *progress, sfp_error *err)
{
    for (; p->first < p->files.count; p->first += (size_t)p->count) {
        size_t left = p->files.count - p->first;
        p->count = left < (size_t)p->capacity ? (int)left : p->capacity;
        TRY(run_chunk(p, err));
        sfp__progress_update(progress, p->first + (size_t)p->count);
    }
    return SFP_OK;
}

static sfp_status run_all(sfp__predict *p, sfp_error *err)
{
    sfp__progress progress;
    sfp__json *json = &p->out.json;
    TRY(sfp__predict_features_open(p, err));
    double begin = sfp__monotonic_seconds();
    sfp__progress_init(&progress, "images", p->files.count);
    sfp__out_begin(&p->out, sfp__args_flag(p->args, "json"), 0);
    if (p->list)
        sfp__json_array(json, "pictures");
    sfp_status s = run_chunks(p, &progress, err);
    sfp__progress_done(&progress);
    if (p->list)
        sfp__json_end(json);
    p->seconds = sfp__monotonic_seconds() - begin;
    if (!s)
        s = sfp__predict_features_commit(p, err);
    if (!s)
        sfp__predict_print_totals(p);
    else
        sfp__json_string(json, "error", err->message);
    sfp__out_end(&p->out);
    if (!s && p->answered && !p->scored && !p->eval && sfp__args_string(p->args, "state"))
        sfp__cli_report_no_scores(sfp__args_string(p->args, "state"));
    return s;
}

/* ------------------------------------------------------------------- command */

/* Returns a message about options that exclude each other; NULL: there are none. */
static const char *conflict(const sfp__args *a)
{
    if (sfp__args_string(a, "eval") && sfp__args_given(a, "topk"))
        return "--topk has no effect with --eval, which prints only top-1 and top-5 accuracy; remove one of them";
    if (!sfp__args_string(a, "features") &&
        (sfp__args_given(a, "taps") || sfp__args_given(a, "tap-mean") || sfp__args_given(a, "merge-tokens")))
        return "--taps, --tap-mean and --merge-tokens have no effect without --features";
    if (!sfp__args_string(a, "state"))
        return NULL;
    if (sfp__args_string(a, "features"))
        return "--features and --state exclude each other: --features writes features of the backbone";
    if (sfp__args_rank(a, "resize") > SFP__RANK_DEFAULT || sfp__args_rank(a, "decode") > SFP__RANK_DEFAULT ||
        sfp__args_rank(a, "normalise") > SFP__RANK_DEFAULT)
        return "--resize, --decode and --normalise exclude --state, which contains those of its run";
    return NULL;
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(predict_done) sfp__predict p = {.args = args, .features.fd = -1};
    const char *features = sfp__args_string(args, "features");
    p.eval = sfp__args_string(args, "eval");
    p.list = sfp__args_flag(args, "json") && !p.eval;
    if (features && !is_npy(features))
        return sfp__fail_usage(err, "--features is '%s', expected NAME.npy", features);
    if (p.eval && args->operand_count > 0)
        return sfp__fail_usage(err, "unexpected argument '%s': with --eval, its file lists the images", args->operands[0]);
    if (!p.eval && args->operand_count == 0)
        return sfp__fail_usage(err, "needs PATH... or --eval FILE");
    if (conflict(args))
        return sfp__fail_usage(err, "%s", conflict(args));
    TRY(open_predictor(&p, err));
    TRY(read_files(&p, err));
    TRY(reserve(&p, err));
    TRY(run_all(&p, err));
    return p.failed ? sfp__fail_quietly(err) : SFP_OK;
}

const sfp__command sfp__cmd_predict = {
    .name = "predict",
    .summary = "classify images by a saved state or a backbone's own head, or write their features",
    .operands = "PATH...",
    .max_operands = SFP__OPERANDS_ANY,
    .text = "PATH is an image (JPEG, PNG or WebP), a directory (searched recursively, in sorted order) or a list (.csv or .txt, "
            "one file "
            "per line, relative to the list); with the state of a run on features, PATH is a .npy file with one row per sample. "
            "Images that are missing or cannot be decoded are reported and skipped; the exit "
            "status is "
            "then 1.\n\n"
            "The output has one line per image, in columns separated by tabs: the file, then class and probability of the best "
            "classes. \"none of these?\" follows if the image is farther from all classes than 95 % of the samples that "
            "were held out while learning (states of ridge and slda); --json prints this share as \"unknown\".",
    .examples = "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --state runs/3 photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop --eval labels.csv --json\n"
                "  streamfp predict --backbone dino_small.safetensors --features features.npy images/\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run,
};
