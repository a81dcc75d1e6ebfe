/* streamfp predict: classes or features of pictures.
 *
 * A chunk of files at a time: decoded, resized and normalised on all threads, passed through the backbone, scored by its
 * head, printed. Memory is that of one chunk whatever the number of files (the list of their paths aside). A file that cannot
 * be decoded is named, counted and left out; the exit code tells at the end. */
#include "cli/command.h"
#include "cli/filelist.h"
#include "cli/json_out.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/pool.h"
#include "io/image.h"
#include "io/npy.h"
#include "model/vit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)64 << 20) /* of inputs; the number of files a chunk follows */
#define CHUNK_MAX 128
#define TOPK_MAX 100
#define EVAL_TOP 5

enum { NORMALISE_CHECKPOINT, NORMALISE_NONE, NORMALISE_IMAGENET, NORMALISE_HALF };

static const sfp_opt options[] = {
    SFP_ROW_STRING("backbone", "FILE", NULL, "Weights of the ViT (.safetensors)."),
    SFP_ROW_INT("topk", "K", "5", 1, TOPK_MAX, "Classes to print for a picture."),
    SFP_ROW_STRING("names", "FILE", NULL, "Class names, one a line; else those of the config beside the weights, else numbers."),
    SFP_ROW_STRING("eval", "FILE", NULL, "A CSV list 'file,label' (label: class number or name); counts the right answers instead of "
                                         "printing each."),
    SFP_ROW_STRING("features", "FILE", NULL, "Write the feature of every picture to this .npy file, (pictures, D); the row of a picture "
                                             "that cannot be decoded is NaN."),
    SFP_ROW_CHOICE("resize", "squash|crop", "squash", "squash: to the input size; crop: the short side to 256/224 of it, then the centre."),
    SFP_ROW_CHOICE("normalise", "checkpoint|none|imagenet|half", "checkpoint",
                   "Mean and standard deviation: those of the checkpoint, 0 and 1, ImageNet's, or 0.5 and 0.5."),
    SFP_ROW_FLAG("exif", "Turn pictures by their EXIF orientation."),
    SFP_ROW_FLAG("strict", "Stop at the first picture that cannot be decoded."),
    SFP_ROW_CHOICE("precision", "f32|bf16", "f32", "Of the matrix products; bf16 needs a CPU that has it."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

typedef struct predictor {
    const sfp_args *args;
    sfp_pool *pool;
    sfp_vit *vit;
    sfp_vit_plan *plan;
    sfp_filelist files;
    char **names; /* of --names; else those of the config are used */
    size_t name_count;
    int32_t *labels; /* (files) with --eval */
    float mean[3], std[3];
    sfp_resize resize;
    sfp_image_options image_options;
    bool json, eval, score;
    int topk;

    int chunk; /* files a chunk */
    size_t first; /* file of slot 0 of this chunk */
    int slots;    /* files of this chunk */
    float *x;       /* (chunk, 3, S, S): decoded pictures lie in their slot, then close ranks */
    float *feature; /* (chunk, D) */
    sfp_error *errors; /* (chunk); status SFP_OK: decoded */
    int *slot_of;      /* (chunk): slot of the i-th decoded picture */
    int decoded;
    int32_t *top;   /* (chunk, TOPK_MAX) classes, best first */
    float *top_p;   /* (chunk, TOPK_MAX) their probabilities */
    float *logits;  /* (chunk, classes) */

    FILE *spool; /* rows of --features, in the order of files */
    size_t count, failed, top1, top5;
    double seconds;
    sfp_json_out out;
} predictor;

/* ------------------------------------------------------------------ set-up */

static void choose_normalisation(predictor *p)
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    int how = sfp__args_choice(p->args, "normalise");
    for (int i = 0; i < 3; i++) {
        p->mean[i] = how == NORMALISE_NONE ? 0.0f : how == NORMALISE_IMAGENET ? mean[i] : how == NORMALISE_HALF ? 0.5f : c->mean[i];
        p->std[i] = how == NORMALISE_NONE ? 1.0f : how == NORMALISE_IMAGENET ? std[i] : how == NORMALISE_HALF ? 0.5f : c->std[i];
    }
}

/* NULL: this class has no name */
static const char *class_name(const predictor *p, int k)
{
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    if (p->names)
        return (size_t)k < p->name_count ? p->names[k] : NULL;
    return c->class_names ? c->class_names[k] : NULL;
}

static sfp_status read_names(predictor *p, sfp_error *err)
{
    const char *path = sfp__args_string(p->args, "names");
    int classes = sfp__vit_config(p->vit)->classes;
    if (!path)
        return SFP_OK;
    sfp_status s = sfp__class_names_read(path, &p->names, &p->name_count, err);
    if (s == SFP_OK && p->name_count != (size_t)classes)
        s = sfp__fail(err, SFP_EFORMAT, "%s: %zu names, expected %d, as many as the backbone has classes", path, p->name_count, classes);
    return s;
}

static sfp_status label_of(const predictor *p, const char *list, size_t i, int32_t *out, sfp_error *err)
{
    const char *text = sfp__filelist_label(&p->files, i), *file = sfp__filelist_path(&p->files, i);
    int classes = sfp__vit_config(p->vit)->classes;
    int64_t number;
    if (text[0] == '\0')
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s' has no label, expected 'file,label'", list, file);
    if (sfp__parse_int(text, &number)) {
        if (number < 0 || number >= classes)
            return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is %s, expected 0 to %d", list, file, text, classes - 1);
        *out = (int32_t)number;
        return SFP_OK;
    }
    for (int k = 0; k < classes; k++) {
        const char *name = class_name(p, k);
        if (name && strcmp(name, text) == 0) {
            *out = k;
            return SFP_OK;
        }
    }
    return sfp__fail(err, SFP_EFORMAT, "%s: label of '%s' is '%s', expected a class number or a class name", list, file, text);
}

static sfp_status read_files(predictor *p, sfp_error *err)
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
        return sfp__fail_nomem(err, p->files.count * sizeof *p->labels);
    for (size_t i = 0; s == SFP_OK && i < p->files.count; i++)
        s = label_of(p, list, i, &p->labels[i], err);
    return s;
}

static sfp_status make_room(predictor *p, sfp_error *err)
{
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    size_t input = (size_t)3 * (size_t)c->img_size * (size_t)c->img_size * sizeof *p->x;
    size_t chunk = CHUNK_BYTES / input;
    chunk = chunk < 1 ? 1 : chunk > CHUNK_MAX ? CHUNK_MAX : chunk;
    chunk = chunk > p->files.count ? p->files.count : chunk;
    size_t classes = c->classes > 0 ? (size_t)c->classes : 1;
    p->chunk = (int)chunk;
    p->x = sfp__malloc(chunk * input);
    p->feature = sfp__malloc(chunk * (size_t)c->dim * sizeof *p->feature);
    p->errors = sfp__calloc(chunk, sizeof *p->errors);
    p->slot_of = sfp__calloc(chunk, sizeof *p->slot_of);
    p->top = sfp__calloc(chunk * TOPK_MAX, sizeof *p->top);
    p->top_p = sfp__calloc(chunk * TOPK_MAX, sizeof *p->top_p);
    p->logits = sfp__calloc(chunk * classes, sizeof *p->logits);
    if (!p->x || !p->feature || !p->errors || !p->slot_of || !p->top || !p->top_p || !p->logits)
        return sfp__fail_nomem(err, chunk * input);
    sfp_vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    return sfp__vit_plan_create(p->vit, p->pool, &plan, &p->plan, err);
}

static sfp_status set_up(predictor *p, sfp_error *err)
{
    const sfp_args *a = p->args;
    const char *backbone = sfp__args_string(a, "backbone");
    p->json = sfp__args_flag(a, "json");
    p->eval = sfp__args_string(a, "eval") != NULL;
    p->resize = sfp__args_choice(a, "resize") == 0 ? SFP_RESIZE_SQUASH : SFP_RESIZE_CROP;
    sfp_vit_options vit_options = {.precision = sfp__args_choice(a, "precision") == 0 ? SFP_PRECISION_F32 : SFP_PRECISION_BF16};
    p->image_options = sfp__image_options_defaults();
    p->image_options.exif_orientation = sfp__args_flag(a, "exif");
    sfp_status s = sfp__pool_create((int)sfp__args_int(a, "threads"), &p->pool, err);
    if (s == SFP_OK)
        s = sfp__vit_load(backbone, &vit_options, &p->vit, err);
    if (s != SFP_OK)
        return s;
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    p->score = c->classes > 0;
    p->topk = (int)sfp__args_int(a, "topk");
    p->topk = p->topk > c->classes ? c->classes : p->topk;
    if (!p->score && (p->eval || !sfp__args_string(a, "features")))
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "%s: this backbone has no head (no tensor 'head.weight'), so it has no classes; --features FILE writes its features",
                         backbone);
    choose_normalisation(p);
    if ((s = read_names(p, err)) != SFP_OK || (s = read_files(p, err)) != SFP_OK)
        return s;
    return make_room(p, err);
}

static void tear_down(predictor *p)
{
    if (p->spool)
        (void)fclose(p->spool);
    sfp__vit_plan_free(p->plan);
    sfp__vit_free(p->vit);
    sfp__pool_free(p->pool);
    sfp__names_free(p->names, p->name_count);
    sfp__filelist_done(&p->files);
    sfp__free(p->labels);
    sfp__free(p->x);
    sfp__free(p->feature);
    sfp__free(p->errors);
    sfp__free(p->slot_of);
    sfp__free(p->top);
    sfp__free(p->top_p);
    sfp__free(p->logits);
}

/* ------------------------------------------------------------------- chunk */

static size_t input_floats(const predictor *p)
{
    size_t side = (size_t)sfp__vit_config(p->vit)->img_size;
    return 3 * side * side;
}

static void decode_one(void *ctx, int slot, int worker)
{
    predictor *p = ctx;
    int side = sfp__vit_config(p->vit)->img_size;
    sfp_image raw = {0}, fitted = {0};
    sfp_error *err = &p->errors[slot];
    (void)worker;
    memset(err, 0, sizeof *err);
    sfp_status s = sfp__image_load(sfp__filelist_path(&p->files, p->first + (size_t)slot), &p->image_options, &raw, err);
    if (s == SFP_OK) {
        s = sfp__image_fit(&raw, side, p->resize, &fitted, err);
        if (s == SFP_OK)
            sfp__vit_normalise(fitted.rgb, side, p->mean, p->std, p->x + (size_t)slot * input_floats(p));
        sfp__image_done(&fitted);
    }
    sfp__image_done(&raw);
    err->status = s; /* tells whether the slot counts, whatever the callee wrote */
}

/* Decoded pictures move together at the front, so that the batch has no holes. */
static void close_ranks(predictor *p)
{
    size_t n = input_floats(p);
    p->decoded = 0;
    for (int slot = 0; slot < p->slots; slot++) {
        if (p->errors[slot].status != SFP_OK)
            continue;
        if (p->decoded != slot)
            memmove(p->x + (size_t)p->decoded * n, p->x + (size_t)slot * n, n * sizeof *p->x);
        p->slot_of[p->decoded++] = slot;
    }
}

/* Probabilities of the best classes of picture i; ties by lower class. */
static void score_one(void *ctx, int i, int worker)
{
    predictor *p = ctx;
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    const float *z = p->logits + (size_t)i * (size_t)c->classes;
    int32_t *top = p->top + (size_t)i * TOPK_MAX;
    float *top_p = p->top_p + (size_t)i * TOPK_MAX;
    int want = p->topk > EVAL_TOP ? p->topk : EVAL_TOP, have = 0;
    want = want > c->classes ? c->classes : want;
    (void)worker;
    for (int k = 0; k < c->classes; k++) {
        int at = have < want ? have++ : want;
        for (; at > 0 && z[k] > z[top[at - 1]]; at--)
            if (at < want)
                top[at] = top[at - 1];
        if (at < want)
            top[at] = k;
    }
    double sum = 0;
    for (int k = 0; k < c->classes; k++)
        sum += exp((double)z[k] - (double)z[top[0]]);
    for (int k = 0; k < want; k++)
        top_p[k] = (float)(exp((double)z[top[k]] - (double)z[top[0]]) / sum);
}

static void print_text(const predictor *p, int i)
{
    const int32_t *top = p->top + (size_t)i * TOPK_MAX;
    const float *top_p = p->top_p + (size_t)i * TOPK_MAX;
    sfp__put_text(stdout, sfp__filelist_path(&p->files, p->first + (size_t)p->slot_of[i]), 0);
    for (int k = 0; k < p->topk; k++) {
        const char *name = class_name(p, top[k]);
        (void)fputs(k == 0 ? ": " : ", ", stdout);
        if (name)
            sfp__put_text(stdout, name, 0);
        else
            (void)printf("%d", top[k]);
        (void)printf(" %.1f %%", 100.0 * (double)top_p[k]);
    }
    (void)fputc('\n', stdout);
}

static void print_json(predictor *p, int i)
{
    const int32_t *top = p->top + (size_t)i * TOPK_MAX;
    const float *top_p = p->top_p + (size_t)i * TOPK_MAX;
    sfp__json_object(&p->out, NULL);
    sfp__json_string(&p->out, "file", sfp__filelist_path(&p->files, p->first + (size_t)p->slot_of[i]));
    sfp__json_array(&p->out, "top");
    for (int k = 0; k < p->topk; k++) {
        sfp__json_object(&p->out, NULL);
        sfp__json_int(&p->out, "class", top[k]);
        if (class_name(p, top[k]))
            sfp__json_string(&p->out, "name", class_name(p, top[k]));
        sfp__json_float(&p->out, "probability", top_p[k]);
        sfp__json_end(&p->out);
    }
    sfp__json_end(&p->out);
    sfp__json_end(&p->out);
}

static void count_right(predictor *p, int i)
{
    const sfp_vit_config *c = sfp__vit_config(p->vit);
    const int32_t *top = p->top + (size_t)i * TOPK_MAX;
    int32_t label = p->labels[p->first + (size_t)p->slot_of[i]];
    p->top1 += top[0] == label;
    for (int k = 0; k < EVAL_TOP && k < c->classes; k++)
        p->top5 += top[k] == label;
}

/* Rows go to the spool in the order of files, one for each of them. */
static sfp_status spool_features(predictor *p, sfp_error *err)
{
    int dim = sfp__vit_config(p->vit)->dim, next = 0;
    const float nan_row = NAN;
    bool good = true;
    for (int slot = 0; slot < p->slots; slot++) {
        if (next < p->decoded && p->slot_of[next] == slot) {
            good = good && fwrite(p->feature + (size_t)next * (size_t)dim, sizeof(float), (size_t)dim, p->spool) == (size_t)dim;
            next++;
        } else {
            for (int k = 0; k < dim; k++)
                good = good && fwrite(&nan_row, sizeof nan_row, 1, p->spool) == 1;
        }
    }
    return good ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot write", sfp__args_string(p->args, "features"));
}

static sfp_status run_chunk(predictor *p, sfp_error *err)
{
    sfp__pool_run(p->pool, p->slots, decode_one, p);
    for (int slot = 0; slot < p->slots; slot++) {
        if (p->errors[slot].status == SFP_OK)
            continue;
        if (sfp__args_flag(p->args, "strict"))
            return sfp__fail(err, p->errors[slot].status, "%s", p->errors[slot].message);
        (void)sfp__say_error(&p->errors[slot]);
        p->failed++;
    }
    close_ranks(p);
    if (p->decoded > 0) {
        sfp_vit_pass pass = {.b = p->decoded, .x = p->x, .feature = p->feature};
        sfp_status s = sfp__vit_run(p->plan, &pass, err);
        if (s == SFP_OK && p->score)
            s = sfp__vit_head(p->vit, p->decoded, p->feature, p->logits, err);
        if (s != SFP_OK)
            return s;
        if (p->score)
            sfp__pool_run(p->pool, p->decoded, score_one, p);
    }
    p->count += (size_t)p->decoded;
    for (int i = 0; p->score && i < p->decoded; i++) {
        if (p->eval)
            count_right(p, i);
        else if (p->json)
            print_json(p, i);
        else
            print_text(p, i);
    }
    return p->spool ? spool_features(p, err) : SFP_OK;
}

/* ------------------------------------------------------------------ result */

/* The spool becomes OUT.npy through a map, so that a file larger than memory can be written. */
static sfp_status write_features(predictor *p, sfp_error *err)
{
    const char *path = sfp__args_string(p->args, "features");
    size_t dim = (size_t)sfp__vit_config(p->vit)->dim, bytes = p->files.count * dim * sizeof(float);
    if (fflush(p->spool) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(p->spool), 0);
    if (map == MAP_FAILED)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot map %zu bytes", path, bytes);
    sfp_tensor t = {.name = "features", .dtype = SFP_DTYPE_F32, .ndim = 2, .count = p->files.count * dim, .bytes = bytes, .data = map};
    t.shape[0] = (int64_t)p->files.count;
    t.shape[1] = (int64_t)dim;
    sfp_status s = sfp__npy_write(path, &t, err);
    (void)munmap(map, bytes);
    return s;
}

static sfp_status open_spool(predictor *p, sfp_error *err)
{
    char name[4096];
    const char *path = sfp__args_string(p->args, "features");
    if (!path)
        return SFP_OK;
    int need = snprintf(name, sizeof name, "%s.tmp.XXXXXX", path);
    if (need < 0 || (size_t)need >= sizeof name)
        return sfp__fail(err, SFP_ELIMIT, "%s: the path is too long", path);
    int fd = mkstemp(name);
    if (fd < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    (void)unlink(name);
    p->spool = fdopen(fd, "w+");
    if (!p->spool) {
        (void)close(fd);
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    }
    return SFP_OK;
}

static void print_summary(predictor *p)
{
    double rate = p->seconds > 0 ? (double)p->count / p->seconds : 0;
    if (p->json) {
        if (p->eval) {
            sfp__json_int(&p->out, "top1_count", (int64_t)p->top1);
            sfp__json_int(&p->out, "top5_count", (int64_t)p->top5);
        }
        sfp__json_int(&p->out, "count", (int64_t)p->count);
        sfp__json_int(&p->out, "failed", (int64_t)p->failed);
        sfp__json_real(&p->out, "seconds", p->seconds);
        sfp__json_real(&p->out, "images_per_second", rate);
    } else if (p->eval) {
        double n = p->count ? (double)p->count : 1;
        (void)printf("top-1 %zu of %zu (%.1f %%), top-%d %zu of %zu (%.1f %%), %.1f images/s\n", p->top1, p->count,
                     100.0 * (double)p->top1 / n, EVAL_TOP, p->top5, p->count, 100.0 * (double)p->top5 / n, rate);
    }
    if (p->failed)
        sfp__say("%zu of %zu pictures could not be decoded", p->failed, p->failed + p->count);
}

static sfp_status run_all(predictor *p, sfp_error *err)
{
    sfp_progress progress;
    sfp_status s = open_spool(p, err);
    if (s != SFP_OK)
        return s;
    bool list = p->json && p->score && !p->eval;
    double begin = sfp__seconds();
    sfp__progress_init(&progress, "pictures", p->files.count);
    if (p->json)
        sfp__json_begin(&p->out, stdout);
    if (list)
        sfp__json_array(&p->out, "pictures");
    while (s == SFP_OK && p->first < p->files.count) {
        size_t left = p->files.count - p->first;
        p->slots = left < (size_t)p->chunk ? (int)left : p->chunk;
        s = run_chunk(p, err);
        p->first += (size_t)p->slots;
        sfp__progress_tell(&progress, p->first);
    }
    sfp__progress_done(&progress);
    if (list)
        sfp__json_end(&p->out);
    p->seconds = sfp__seconds() - begin;
    if (s == SFP_OK && p->spool)
        s = write_features(p, err);
    if (s == SFP_OK)
        print_summary(p);
    else if (p->json)
        sfp__json_string(&p->out, "error", err->message);
    if (p->json)
        sfp__json_end_all(&p->out);
    return s;
}

static int run(const sfp_args *args)
{
    predictor p = {.args = args};
    sfp_error err = {0};
    if (!sfp__args_string(args, "backbone"))
        return sfp__say_usage(args->command, "needs --backbone FILE");
    if (sfp__args_string(args, "eval") && args->operand_count > 0)
        return sfp__say_usage(args->command, "'%s': --eval names the pictures, expected no others", args->operands[0]);
    if (!sfp__args_string(args, "eval") && args->operand_count == 0)
        return sfp__say_usage(args->command, "needs PATH... or --eval FILE");
    sfp_status s = set_up(&p, &err);
    if (s == SFP_OK)
        s = run_all(&p, &err);
    int code = s != SFP_OK ? sfp__say_error(&err) : p.failed ? SFP_EXIT_FAILED : SFP_EXIT_OK;
    tear_down(&p);
    return code;
}

const sfp_command sfp__cmd_predict = {
    .name = "predict",
    .summary = "classify pictures with a backbone that has a head, or write their features",
    .operands = "PATH...",
    .max_operands = SFP_OPERANDS_ANY,
    .text = "A PATH is a picture (JPEG, PNG, WebP), a folder (all pictures in it and below, sorted) or a list (.csv or .txt: a file "
            "a line, relative to the list). A picture that cannot be decoded is named and left out; the exit code is then 1.",
    .examples = "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop photo.jpg holiday/\n"
                "  streamfp predict --backbone deit_tiny_patch16_224.safetensors --resize crop --eval labels.csv --json\n"
                "  streamfp predict --backbone dino_small.safetensors --features features.npy pictures/\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
