/* streamfp predict: classes or features of images.
 *
 * A chunk of files at a time: decoded and resized on all threads, answered, printed. Memory is that of one chunk whatever the
 * number of files (the list of their paths aside). A file that is not there or cannot be decoded is named, counted and left
 * out; the exit code tells at the end. */
#include "cli/commands/predict.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/monotonic.h"

#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 20) /* of inputs; the number of files a chunk follows */
#define CHUNK_MAX 128

static const sfp__opt options[] = {
    SFP_ROW_STRING("backbone", "FILE|builtin", "builtin",
                   "Weights of the ViT: safetensors, PyTorch (.pth, .bin) or .npz; builtin: the one in the box."),
    SFP_ROW_STRING("state", "FILE|DIR", NULL,
                   "Answer from what a run has learned: a state.safetensors, or the folder of a run that has one, at the input "
                   "size of the run; else by the backbone's own head."),
    SFP_ROW_INT("topk", "K", "5", 1, SFP_PREDICT_TOP_MAX, "Classes to print for an image."),
    SFP_ROW_STRING("names", "FILE", NULL,
                   "Class names, one a line; else those of the state or of the config beside the weights, else numbers."),
    SFP_ROW_STRING("eval", "FILE", NULL,
                   "A CSV list 'file,label' (label: class name or number); counts the right answers instead of "
                   "printing each."),
    SFP_ROW_STRING("features", "FILE.npy", NULL,
                   "Write the backbone's feature of every image to this .npy file, (images, D); the row of an "
                   "image that cannot be decoded is NaN and named; --json tells the row of every image."),
    SFP_ROW_CHOICE("resize", "squash|crop", "squash",
                   "squash: to the input size; crop: the short side to 256/224 of it, then the centre."),
    SFP_ROW_CHOICE("normalise", "checkpoint|none|imagenet|half", "checkpoint",
                   "Mean and standard deviation: those of the checkpoint, 0 and 1, ImageNet's, or 0.5 and 0.5."),
    SFP_ROW_IMG_SIZE,
    SFP_ROW_FLAG("exif", "Turn images by their EXIF orientation."),
    SFP_ROW_FLAG("strict", "Stop at the first image that is not there or cannot be decoded."),
    SFP_ROW_CHOICE("precision", "f32|bf16", "f32", "Of the matrix products; bf16 needs a CPU that has it."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

/* ------------------------------------------------------------------ set-up */

static sfp_status label_of(const sfp__predict *p, const char *list, size_t i, int32_t *out, sfp_error *err)
{
    const char *text = sfp__filelist_label(&p->files, i), *file = sfp__filelist_path(&p->files, i);
    int64_t number;
    if (text[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s' has no label, expected 'file,label'", list, file);
    for (int k = 0; k < p->answer.classes; k++) { /* names first: they may be numbers in another order */
        const char *name = sfp__image_classifier_class_name(&p->answer, k);
        if (name && strcmp(name, text) == 0) {
            *out = k;
            return SFP_OK;
        }
    }
    if (!sfp__parse_int(text, &number))
        return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is '%s', expected a class number or a class name", list, file,
                         text);
    if (number < 0 || number >= p->answer.classes)
        return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is %s, expected 0 to %d", list, file, text, p->answer.classes - 1);
    *out = (int32_t)number;
    return SFP_OK;
}

static sfp_status read_files(sfp__predict *p, sfp_error *err)
{
    const char *list = sfp__args_string(p->args, "eval");
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

static size_t image_bytes(const sfp__predict *p)
{
    size_t side = (size_t)p->answer.vit->config.img_size;
    return 3 * side * side;
}

static sfp_status reserve(sfp__predict *p, sfp_error *err)
{
    sfp__chunk *c = &p->chunk;
    size_t input = image_bytes(p) * sizeof(float), n = CHUNK_BYTES / input;
    n = n < 1 ? 1 : n > CHUNK_MAX ? CHUNK_MAX : n;
    n = n > p->files.count ? p->files.count : n;
    c->capacity = (int)n;
    const sfp__want list[] = {{&c->rgb, n, image_bytes(p)},
                              {&c->errors, n, sizeof *c->errors},
                              {&c->slot_of, n, sizeof *c->slot_of},
                              {&c->image, n, sizeof *c->image}};
    TRY(sfp__block(&c->block, SFP_LIST(list), err));
    return sfp__image_classifier_reserve(&p->answer, c->capacity, err);
}

static void predict_done(sfp__predict *p)
{
    if (p->tally.spool)
        (void)fclose(p->tally.spool);
    sfp__image_classifier_close(&p->answer);
    sfp__filelist_done(&p->files);
    sfp__free(p->labels);
    sfp__free(p->chunk.block);
}

/* ------------------------------------------------------------------- chunk */

static void decode_one(void *ctx, int slot, int worker)
{
    sfp__predict *p = ctx;
    OWNED_BY(sfp__image_done) sfp__image raw = {0}, fitted = {0};
    sfp_error *err = &p->chunk.errors[slot];
    (void)worker;
    memset(err, 0, sizeof *err);
    sfp_status s = sfp__image_load(sfp__filelist_path(&p->files, p->chunk.first + (size_t)slot), &p->image_options, &raw, err);
    if (!s)
        s = sfp__image_fit(&raw, p->answer.vit->config.img_size, p->answer.resize, &fitted, err);
    if (!s)
        memcpy(p->chunk.rgb + (size_t)slot * image_bytes(p), fitted.rgb, image_bytes(p));
    err->status = s; /* tells whether the slot counts, whatever the callee wrote */
}

static sfp_status run_chunk(sfp__predict *p, sfp_error *err)
{
    sfp__chunk *c = &p->chunk;
    sfp__thread_pool_run(p->answer.pool, c->slots, decode_one, p);
    c->decoded = 0;
    for (int slot = 0; slot < c->slots; slot++) {
        if (c->errors[slot].status == SFP_OK) {
            c->slot_of[c->decoded] = slot;
            c->image[c->decoded++] = c->rgb + (size_t)slot * image_bytes(p);
            continue;
        }
        if (sfp__args_flag(p->args, "strict"))
            return sfp__fail(err, c->errors[slot].status, "%s", c->errors[slot].message);
        sfp__predict_report_failed(p, slot);
        p->tally.failed++;
    }
    TRY(sfp__image_classifier_run(&p->answer, c->decoded, c->image, err));
    p->tally.count += (size_t)c->decoded;
    sfp__predict_tell(p);
    return sfp__predict_spool_chunk(p, err);
}

static sfp_status run_chunks(sfp__predict *p, sfp__progress *progress, sfp_error *err)
{
    sfp__chunk *c = &p->chunk;
    for (; c->first < p->files.count; c->first += (size_t)c->slots) {
        size_t left = p->files.count - c->first;
        c->slots = left < (size_t)c->capacity ? (int)left : c->capacity;
        TRY(run_chunk(p, err));
        sfp__progress_update(progress, c->first + (size_t)c->slots);
    }
    return SFP_OK;
}

static sfp_status run_all(sfp__predict *p, sfp_error *err)
{
    sfp__progress progress;
    sfp__json *json = &p->tally.out.json;
    TRY(sfp__predict_spool_open(p, err));
    double begin = sfp__monotonic_seconds();
    sfp__progress_init(&progress, "images", p->files.count);
    sfp__out_begin(&p->tally.out, sfp__args_flag(p->args, "json"), 0);
    if (p->list)
        sfp__json_array(json, "pictures");
    sfp_status s = run_chunks(p, &progress, err);
    sfp__progress_done(&progress);
    if (p->list)
        sfp__json_end(json);
    p->tally.seconds = sfp__monotonic_seconds() - begin;
    if (!s)
        s = sfp__predict_spool_finish(p, err);
    if (!s)
        sfp__predict_summary(p);
    else
        sfp__json_string(json, "error", err->message);
    sfp__out_end(&p->tally.out);
    return s;
}

/* What does not go together; NULL: fine. */
static const char *conflict(const sfp__args *a)
{
    if (sfp__args_string(a, "eval") && sfp__args_given(a, "topk"))
        return "--topk is about what is printed of an image, and --eval counts (top-1 and top-5); expected one of the two";
    if (!sfp__args_string(a, "state"))
        return NULL;
    if (sfp__args_string(a, "features"))
        return "--features writes what the backbone gives, expected no --state";
    if (sfp__args_rank(a, "resize") > SFP_RANK_DEFAULT || sfp__args_rank(a, "normalise") > SFP_RANK_DEFAULT)
        return "--resize and --normalise are those of the run with --state, expected neither";
    return NULL;
}

/* What is written is .npy: a name that promises something else may be that of an image, with FILE forgotten. */
static bool is_npy(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".npy") == 0;
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(predict_done) sfp__predict p = {.args = args};
    const char *features = sfp__args_string(args, "features");
    p.eval = sfp__args_string(args, "eval");
    p.list = sfp__args_flag(args, "json") && !p.eval;
    if (features && !is_npy(features))
        return sfp__fail_usage(err, "'%s' is to be written by --features, expected NAME.npy", features);
    if (p.eval && args->operand_count > 0)
        return sfp__fail_usage(err, "'%s': --eval names the images, expected no others", args->operands[0]);
    if (!p.eval && args->operand_count == 0)
        return sfp__fail_usage(err, "needs PATH... or --eval FILE");
    if (conflict(args))
        return sfp__fail_usage(err, "%s", conflict(args));
    p.image_options = sfp__image_options_defaults();
    p.image_options.exif_orientation = sfp__args_flag(args, "exif");
    TRY(sfp__image_classifier_open(&p.answer, args, err));
    TRY(read_files(&p, err));
    TRY(reserve(&p, err));
    TRY(run_all(&p, err));
    return p.tally.failed ? sfp__fail_quietly(err) : SFP_OK;
}

const sfp__command sfp__cmd_predict = {
    .name = "predict",
    .summary = "classify images by a saved state or a backbone's own head, or write their features",
    .operands = "PATH...",
    .max_operands = SFP_OPERANDS_ANY,
    .text =
        "A PATH is an image (JPEG, PNG, WebP), a folder (all images in it and below, sorted) or a list (.csv or .txt: a file "
        "a line, relative to the list). An image that is not there or cannot be decoded is named and left out; the exit code is "
        "then 1.\n\n"
        "What is printed is one line per image, in columns separated by tabs: the file, then class and probability of the best "
        "classes in "
        "turn.",
    .examples = "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --state runs/3 photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop --eval labels.csv --json\n"
                "  streamfp predict --backbone dino_small.safetensors --features features.npy images/\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
