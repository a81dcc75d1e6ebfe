/* streamfp predict: classes or features of pictures.
 *
 * A chunk of files at a time: decoded and resized on all threads, answered, printed. Memory is that of one chunk whatever the
 * number of files (the list of their paths aside). A file that is not there or cannot be decoded is named, counted and left
 * out; the exit code tells at the end. */
#include "cli/commands/predict.h"
#include "cli/backbone.h"
#include "cli/ui.h"

#include "base/mem.h"

#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 20) /* of inputs; the number of files a chunk follows */
#define CHUNK_MAX 128

static const sfp_opt options[] = {
    SFP_ROW_STRING("backbone", "FILE|builtin", "builtin",
                   "Weights of the ViT: safetensors, PyTorch (.pth, .bin) or .npz; builtin: the one in the box."),
    SFP_ROW_STRING("state", "FILE|DIR", NULL,
                   "Answer from what a run has learned: a state.safetensors, or the folder of a run that has one, at the input "
                   "size of the run; else by the backbone's own head."),
    SFP_ROW_INT("topk", "K", "5", 1, SFP_PREDICT_TOP_MAX, "Classes to print for a picture."),
    SFP_ROW_STRING("names", "FILE", NULL,
                   "Class names, one a line; else those of the state or of the config beside the weights, else numbers."),
    SFP_ROW_STRING("eval", "FILE", NULL,
                   "A CSV list 'file,label' (label: class name or number); counts the right answers instead of "
                   "printing each."),
    SFP_ROW_STRING("features", "FILE.npy", NULL,
                   "Write the backbone's feature of every picture to this .npy file, (pictures, D); the row of a "
                   "picture that cannot be decoded is NaN and named; --json tells the row of every picture."),
    SFP_ROW_CHOICE("resize", "squash|crop", "squash",
                   "squash: to the input size; crop: the short side to 256/224 of it, then the centre."),
    SFP_ROW_CHOICE("normalise", "checkpoint|none|imagenet|half", "checkpoint",
                   "Mean and standard deviation: those of the checkpoint, 0 and 1, ImageNet's, or 0.5 and 0.5."),
    SFP_ROW_IMG_SIZE,
    SFP_ROW_FLAG("exif", "Turn pictures by their EXIF orientation."),
    SFP_ROW_FLAG("strict", "Stop at the first picture that is not there or cannot be decoded."),
    SFP_ROW_CHOICE("precision", "f32|bf16", "f32", "Of the matrix products; bf16 needs a CPU that has it."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

/* ------------------------------------------------------------------ set-up */

static sfp_status read_names(sfp_predict *p, sfp_error *err)
{
    const char *path = sfp__args_string(p->args, "names");
    if (!path)
        return SFP_OK;
    sfp_status s = sfp__class_names_read(path, &p->names, &p->name_count, err);
    if (s == SFP_OK && p->name_count != (size_t)p->classes)
        s = sfp__fail(err, SFP_EFORMAT, "%s: %zu names, expected %d, as many as the %s has classes", path, p->name_count,
                      p->classes, p->predictor ? "state" : "backbone");
    return s;
}

static sfp_status label_of(const sfp_predict *p, const char *list, size_t i, int32_t *out, sfp_error *err)
{
    const char *text = sfp__filelist_label(&p->files, i), *file = sfp__filelist_path(&p->files, i);
    int64_t number;
    if (text[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s' has no label, expected 'file,label'", list, file);
    for (int k = 0; k < p->classes; k++) { /* names first: they may be numbers in another order */
        const char *name = sfp__predict_class_name(p, k);
        if (name && strcmp(name, text) == 0) {
            *out = k;
            return SFP_OK;
        }
    }
    if (!sfp__parse_int(text, &number))
        return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is '%s', expected a class number or a class name", list, file,
                         text);
    if (number < 0 || number >= p->classes)
        return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is %s, expected 0 to %d", list, file, text, p->classes - 1);
    *out = (int32_t)number;
    return SFP_OK;
}

static sfp_status read_files(sfp_predict *p, sfp_error *err)
{
    const char *list = sfp__args_string(p->args, "eval");
    sfp_status s = SFP_OK;
    for (int i = 0; s == SFP_OK && i < p->args->operand_count; i++)
        s = sfp__filelist_add_path(&p->files, p->args->operands[i], err);
    if (s != SFP_OK || !list)
        return s;
    s = sfp__filelist_add_csv(&p->files, list, err);
    if (s != SFP_OK)
        return s;
    p->labels = sfp__calloc(p->files.count, sizeof *p->labels);
    if (!p->labels)
        return sfp__fail_nomem(err);
    for (size_t i = 0; s == SFP_OK && i < p->files.count; i++)
        s = label_of(p, list, i, &p->labels[i], err);
    return s;
}

static size_t picture_bytes(const sfp_predict *p)
{
    size_t side = (size_t)p->vit->config.img_size;
    return 3 * side * side;
}

static sfp_status make_room(sfp_predict *p, sfp_error *err)
{
    size_t input = picture_bytes(p) * sizeof(float), chunk = CHUNK_BYTES / input;
    chunk = chunk < 1 ? 1 : chunk > CHUNK_MAX ? CHUNK_MAX : chunk;
    chunk = chunk > p->files.count ? p->files.count : chunk;
    p->chunk = (int)chunk;
    p->rgb = sfp__malloc(chunk * picture_bytes(p));
    p->errors = sfp__calloc(chunk, sizeof *p->errors);
    p->slot_of = sfp__calloc(chunk, sizeof *p->slot_of);
    p->picture = sfp__calloc(chunk, sizeof *p->picture);
    if (!p->rgb || !p->errors || !p->slot_of || !p->picture)
        return sfp__fail_nomem(err);
    return sfp__predict_room(p, err);
}

static sfp_status set_up(sfp_predict *p, sfp_error *err)
{
    const sfp_args *a = p->args;
    p->json = sfp__args_flag(a, "json");
    p->eval = sfp__args_string(a, "eval") != NULL;
    p->list = p->json && !p->eval;
    p->image_options = sfp__image_options_defaults();
    p->image_options.exif_orientation = sfp__args_flag(a, "exif");
    sfp_status s;
    if ((s = sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &p->pool, err)) != SFP_OK ||
        (s = sfp__backbone_open_for(a, sfp__args_string(a, "state"), &p->vit, err)) != SFP_OK ||
        (s = sfp__predict_open(p, err)) != SFP_OK)
        return s;
    p->topk = (int)sfp__args_int(a, "topk");
    p->topk = p->topk > p->classes ? p->classes : p->topk;
    if ((s = read_names(p, err)) != SFP_OK || (s = read_files(p, err)) != SFP_OK)
        return s;
    return make_room(p, err);
}

static void tear_down(sfp_predict *p)
{
    if (p->spool)
        (void)fclose(p->spool);
    sfp__predict_close(p);
    sfp__vit_free(p->vit);
    sfp__thread_pool_free(p->pool);
    sfp__names_free(p->names, p->name_count);
    sfp__filelist_done(&p->files);
    sfp__free(p->labels);
    sfp__free(p->rgb);
    sfp__free(p->errors);
    sfp__free(p->slot_of);
    sfp__free((void *)p->picture);
}

/* ------------------------------------------------------------------- chunk */

static void decode_one(void *ctx, int slot, int worker)
{
    sfp_predict *p = ctx;
    sfp_image raw = {0}, fitted = {0};
    sfp_error *err = &p->errors[slot];
    (void)worker;
    memset(err, 0, sizeof *err);
    sfp_status s = sfp__image_load(sfp__filelist_path(&p->files, p->first + (size_t)slot), &p->image_options, &raw, err);
    if (s == SFP_OK) {
        s = sfp__image_fit(&raw, p->vit->config.img_size, p->resize, &fitted, err);
        if (s == SFP_OK)
            memcpy(p->rgb + (size_t)slot * picture_bytes(p), fitted.rgb, picture_bytes(p));
        sfp__image_done(&fitted);
    }
    sfp__image_done(&raw);
    err->status = s; /* tells whether the slot counts, whatever the callee wrote */
}

static sfp_status run_chunk(sfp_predict *p, sfp_error *err)
{
    sfp__thread_pool_run(p->pool, p->slots, decode_one, p);
    p->decoded = 0;
    for (int slot = 0; slot < p->slots; slot++) {
        if (p->errors[slot].status == SFP_OK) {
            p->slot_of[p->decoded] = slot;
            p->picture[p->decoded++] = p->rgb + (size_t)slot * picture_bytes(p);
            continue;
        }
        if (sfp__args_flag(p->args, "strict"))
            return sfp__fail(err, p->errors[slot].status, "%s", p->errors[slot].message);
        sfp__predict_say_failed(p, slot);
        p->failed++;
    }
    sfp_status s = sfp__predict_answer(p, err);
    if (s != SFP_OK)
        return s;
    p->count += (size_t)p->decoded;
    sfp__predict_tell(p);
    return sfp__predict_spool_chunk(p, err);
}

static sfp_status run_all(sfp_predict *p, sfp_error *err)
{
    sfp_progress progress;
    sfp_status s = sfp__predict_spool_open(p, err);
    if (s != SFP_OK)
        return s;
    double begin = sfp__seconds();
    sfp__progress_init(&progress, "pictures", p->files.count);
    if (p->json)
        sfp__json_begin(&p->out, stdout);
    if (p->list)
        sfp__json_array(&p->out, "pictures");
    while (s == SFP_OK && p->first < p->files.count) {
        size_t left = p->files.count - p->first;
        p->slots = left < (size_t)p->chunk ? (int)left : p->chunk;
        s = run_chunk(p, err);
        p->first += (size_t)p->slots;
        sfp__progress_tell(&progress, p->first);
    }
    sfp__progress_done(&progress);
    if (p->list)
        sfp__json_end(&p->out);
    p->seconds = sfp__seconds() - begin;
    if (s == SFP_OK)
        s = sfp__predict_spool_finish(p, err);
    if (s == SFP_OK)
        sfp__predict_summary(p);
    else if (p->json)
        sfp__json_string(&p->out, "error", err->message);
    if (p->json)
        sfp__json_end_all(&p->out);
    return s;
}

/* What does not go together; NULL: fine. */
static const char *conflict(const sfp_args *a)
{
    if (sfp__args_string(a, "eval") && sfp__args_given(a, "topk"))
        return "--topk is about what is printed of a picture, and --eval counts (top-1 and top-5); expected one of the two";
    if (!sfp__args_string(a, "state"))
        return NULL;
    if (sfp__args_string(a, "features"))
        return "--features writes what the backbone gives, expected no --state";
    if (sfp__args_rank(a, "resize") > SFP_RANK_DEFAULT || sfp__args_rank(a, "normalise") > SFP_RANK_DEFAULT)
        return "--resize and --normalise are those of the run with --state, expected neither";
    return NULL;
}

/* What is written is .npy: a name that promises something else may be that of a picture, with FILE forgotten. */
static bool is_npy(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".npy") == 0;
}

static int run(const sfp_args *args)
{
    sfp_predict p = {.args = args};
    sfp_error err = {0};
    const char *features = sfp__args_string(args, "features");
    if (features && !is_npy(features))
        return sfp__say_usage(args->command, "'%s' is to be written by --features, expected NAME.npy", features);
    if (sfp__args_string(args, "eval") && args->operand_count > 0)
        return sfp__say_usage(args->command, "'%s': --eval names the pictures, expected no others", args->operands[0]);
    if (!sfp__args_string(args, "eval") && args->operand_count == 0)
        return sfp__say_usage(args->command, "needs PATH... or --eval FILE");
    if (conflict(args))
        return sfp__say_usage(args->command, "%s", conflict(args));
    sfp_status s = set_up(&p, &err);
    if (s == SFP_OK)
        s = run_all(&p, &err);
    int code = s != SFP_OK ? sfp__command_failed(args, &err) : p.failed ? SFP_EXIT_FAILED : SFP_EXIT_OK;
    tear_down(&p);
    return code;
}

const sfp_command sfp__cmd_predict = {
    .name = "predict",
    .summary = "classify pictures by a saved state or a backbone's own head, or write their features",
    .operands = "PATH...",
    .max_operands = SFP_OPERANDS_ANY,
    .text =
        "A PATH is a picture (JPEG, PNG, WebP), a folder (all pictures in it and below, sorted) or a list (.csv or .txt: a file "
        "a line, relative to the list). A picture that is not there or cannot be decoded is named and left out; the exit code is "
        "then 1.\n\n"
        "What is printed is a line a picture, in columns separated by tabs: the file, then class and probability of the best "
        "classes in "
        "turn.",
    .examples = "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --state runs/3 photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop --eval labels.csv --json\n"
                "  streamfp predict --backbone dino_small.safetensors --features features.npy pictures/\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
