/* streamfp suspects and streamfp queue: samples of a run with a watched directory that a person should review. Images are read again from their
 * paths; one that does not exist any more or cannot be decoded is reported, counted and skipped. */
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, PATH_WIDTH = 48 };

static const sfp__opt options[] = {
    SFP__ROW_INT("limit", "N", "20", 1, 100000, "Maximum number of samples to print, the most important first."),
    SFP__ROW_STRING("backbone", "FILE|builtin", NULL, "Weights of the ViT. Default: the backbone of the run."),
    SFP__ROW_STRING("cache", "DIR", NULL, "Feature cache, so that images are not computed twice. Default: that of the run."),
    SFP__ROW_PRECISION_OF_STATE,
    SFP__ROW_IMG_SIZE_OF_STATE,
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

typedef struct sample {
    uint64_t id;
    char *name, *path, *label; /* label: the one with which the sample was learned; NULL: it was not learned */
} sample;

typedef struct review {
    const sfp__args *args;
    bool learned; /* true: judges learned samples (suspects); false: ranks samples without a label (queue) */
    sfp_engine *engine;
    sfp_predictor *predictor;
    sfp_result *result;
    sample *samples; /* (count); read_samples removes those that cannot be read */
    size_t count, capacity;
    uint64_t unreadable;
    int classes;
    size_t dim;
    /* (count) */
    int32_t *labels;
    sfp_prediction *judged;
    float *unknown;
    float *features; /* of the queue: (count, dim) */
    /* (limit) */
    int32_t *suspects;
    sfp_queued *queue;
    int found;
} review;

static void sample_done(sample *s)
{
    sfp__free(s->name);
    sfp__free(s->path);
    sfp__free(s->label);
}

static void review_done(review *r)
{
    for (size_t i = 0; i < r->count; i++)
        sample_done(&r->samples[i]);
    sfp__free(r->samples);
    sfp__free(r->labels);
    sfp__free(r->judged);
    sfp__free(r->unknown);
    sfp__free(r->features);
    sfp__free(r->suspects);
    sfp__free(r->queue);
    sfp_predictor_free(r->predictor);
    sfp_engine_close(r->engine);
    sfp_result_free(r->result);
}

/* ----------------------------------------------------------------- reading */

static sfp_status add_sample(void *ctx, const sfp_sample_info *s, sfp_error *err)
{
    review *r = ctx;
    if (!s->name || (r->learned ? !s->learned : s->label != NULL))
        return SFP_OK;
    if (!s->path)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "%s: its samples are not files of a watched directory, expected a run with --data watch:PATH",
                         r->args->operands[0]);
    TRY(sfp__check_memory(sfp__grow(&r->samples, sizeof *r->samples, r->count, r->count + 1, &r->capacity), err));
    sample *to = &r->samples[r->count++];
    *to = (sample){.id = s->id, .name = sfp__strdup(s->name), .path = sfp__strdup(s->path)};
    to->label = s->learned ? sfp__strdup(s->learned) : NULL;
    return sfp__check_memory(to->name && to->path && (!s->learned || to->label), err);
}

static sfp_status open_run(review *r, sfp_error *err)
{
    const char *dir = r->args->operands[0];
    sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
    const sfp_sample_filter filter = {
        .size = sizeof filter, .by_standing = !r->learned, .standing = SFP_WAITING, .unlabelled = !r->learned};
    TRY(sfp__cli_check_state(dir, err));
    TRY(sfp_run_list(dir, &filter, add_sample, r, err)); /* says so if it is not the directory of a live run */
    TRY(sfp_result_read(dir, &r->result, err));
    TRY(sfp__cli_engine_open(r->args, dir, &r->engine, err));
    o.threads = (int32_t)sfp__args_int(r->args, "threads");
    o.sums = r->learned;
    o.cache = sfp__args_string(r->args, "cache");
    if (!o.cache)
        o.cache = sfp_result_string(r->result, "config.cache");
    if (o.cache && !*o.cache)
        o.cache = NULL;
    TRY(sfp_predictor_open(r->engine, dir, &o, &r->predictor, err));
    r->classes = sfp_predictor_classes(r->predictor);
    r->dim = (size_t)sfp_predictor_feature_dim(r->predictor);
    return SFP_OK;
}

static int32_t label_of(const review *r, const char *name)
{
    for (int c = 0; name && c < r->classes; c++) {
        const char *known = sfp_predictor_class_name(r->predictor, c);
        if (known && strcmp(known, name) == 0)
            return c;
    }
    return -1;
}

static sfp_status reserve(review *r, sfp_error *err)
{
    size_t limit = (size_t)sfp__args_int(r->args, "limit");
    TRY(sfp__alloc(&r->labels, r->count + 1, sizeof *r->labels, err));
    TRY(sfp__alloc(&r->judged, r->count + CHUNK, sizeof *r->judged, err));
    TRY(sfp__alloc(&r->unknown, r->count + 1, sizeof *r->unknown, err));
    TRY(sfp__alloc(&r->features, (r->learned ? CHUNK : r->count + CHUNK) * r->dim, sizeof *r->features, err));
    TRY(sfp__alloc(&r->suspects, limit, sizeof *r->suspects, err));
    return sfp__alloc(&r->queue, limit, sizeof *r->queue, err);
}

/* Computes the features of samples [from, from + n) and moves the readable ones to positions from `at` on. *read: their number. */
static sfp_status read_chunk(review *r, size_t from, int n, size_t at, int *read, sfp_error *err)
{
    sfp_image images[CHUNK] = {0};
    sfp_prediction *answers = r->judged + at;
    float *to = r->features + (r->learned ? 0 : at * r->dim);
    for (int i = 0; i < n; i++)
        images[i] = (sfp_image){.format = SFP_IMAGE_FILE, .data = r->samples[from + (size_t)i].path};
    TRY(sfp_predictor_run(r->predictor, n, images, answers, err));
    *read = 0;
    for (int i = 0; i < n; i++) {
        sample *s = &r->samples[from + (size_t)i], now = *s;
        if (answers[i].status) {
            sfp__warn("%s; the sample is skipped", sfp_predictor_image_error(r->predictor, i));
            r->unreadable++;
            continue;
        }
        size_t place = at + (size_t)*read;
        *s = r->samples[place]; /* swap with an unreadable one, which is freed at the end */
        r->samples[place] = now;
        r->labels[place] = label_of(r, now.label);
        r->unknown[place] = sfp_predictor_unknown(r->predictor)[i];
        answers[*read] = answers[i];
        memcpy(to + (size_t)(*read)++ * r->dim, sfp_predictor_features(r->predictor) + (size_t)i * r->dim, r->dim * sizeof *to);
    }
    return SFP_OK;
}

static sfp_status judge(review *r, size_t at, int n, sfp_error *err)
{
    if (!r->learned || n == 0)
        return SFP_OK;
    TRY(sfp_predictor_judge(r->predictor, n, r->features, r->labels + at, r->judged + at, err));
    memcpy(r->unknown + at, sfp_predictor_unknown(r->predictor), (size_t)n * sizeof *r->unknown);
    return SFP_OK;
}

static sfp_status read_samples(review *r, sfp__progress *progress, sfp_error *err)
{
    size_t total = r->count, at = 0;
    for (size_t from = 0; from < total; from += CHUNK) {
        int read, n = total - from < CHUNK ? (int)(total - from) : CHUNK;
        TRY(read_chunk(r, from, n, at, &read, err));
        TRY(judge(r, at, read, err));
        at += (size_t)read;
        sfp__progress_update(progress, from + (size_t)n);
    }
    while (r->count > at)
        sample_done(&r->samples[--r->count]);
    return SFP_OK;
}

static sfp_status choose(review *r, sfp_error *err)
{
    int limit = (int)sfp__args_int(r->args, "limit"), n = (int)r->count;
    if (!r->learned)
        return sfp_predictor_queue(r->predictor, n, r->features, limit, r->queue, &r->found, err);
    r->found = sfp_suspects(n, r->labels, r->judged, limit, r->suspects);
    return SFP_OK;
}

/* ---------------------------------------------------------------- printing */

static const char *name_of(const review *r, int32_t label)
{
    const char *name = label < 0 ? NULL : sfp_predictor_class_name(r->predictor, label);
    return name ? name : "-";
}

static const char *const reason_names[] = {
    [SFP_REASON_UNCERTAIN] = "uncertain", [SFP_REASON_UNLIKE] = "unlike", [SFP_REASON_DIVERSE] = "diverse"};

static void print_sample(const review *r, sfp__out *o, int k)
{
    size_t i = (size_t)(r->learned ? r->suspects[k] : r->queue[k].index);
    const sample *s = &r->samples[i];
    const sfp_prediction *p = &r->judged[i];
    sfp__json *j = &o->json;
    sfp__json_object(j, NULL);
    sfp__json_uint(j, "id", s->id);
    sfp__json_string(j, "name", s->name);
    sfp__json_string(j, "file", s->path);
    sfp__out_cell(o, s->name, PATH_WIDTH);
    if (r->learned) {
        sfp__json_string(j, "label", s->label);
        sfp__json_string(j, "suggested", name_of(r, p->label));
        sfp__json_float(j, "margin", p->probability - p->own);
        sfp__out_printf(o, "  %.2f  ", (double)(p->probability - p->own));
        sfp__out_cell(o, s->label, 20);
        sfp__out_printf(o, "  ");
    } else {
        sfp__json_string(j, "reason", reason_names[r->queue[k].reason]);
        sfp__json_float(j, "score", r->queue[k].score);
        sfp__json_string(j, "predicted", p->label < 0 ? NULL : name_of(r, p->label));
        sfp__json_float(j, "probability", p->probability);
        sfp__out_printf(o, "  %.2f  %-9s  ", (double)r->queue[k].score, reason_names[r->queue[k].reason]);
    }
    sfp__json_float(j, "unknown", r->unknown[i]);
    sfp__json_end(j);
    sfp__out_cell(o, name_of(r, p->label), 20);
    sfp__out_printf(o, "\n");
}

static void print_all(const review *r)
{
    sfp__out o;
    uint64_t right = 0;
    sfp__out_begin(&o, sfp__args_flag(r->args, "json"), 10);
    if (r->found > 0)
        sfp__out_printf(&o, r->learned ? "%-*s  doubt %-20s  %s\n" : "%-*s  score reason     %s%s\n", PATH_WIDTH, "sample",
                        r->learned ? "label" : "answer", r->learned ? "answer without it" : "");
    sfp__json_array(&o.json, "samples");
    for (int k = 0; k < r->found; k++)
        print_sample(r, &o, k);
    sfp__json_end(&o.json);
    for (size_t i = 0; i < r->count; i++)
        right += r->judged[i].label == r->labels[i];
    sfp__json_uint(&o.json, r->learned ? "judged" : "waiting", r->count);
    if (r->learned) {
        sfp__json_uint(&o.json, "right", right);
        sfp__out_printf(&o, "%llu of %zu learned samples have the right answer without them\n", (unsigned long long)right,
                        r->count);
    } else {
        sfp__out_printf(&o, "%zu samples wait for a label\n", r->count);
    }
    sfp__json_uint(&o.json, "unreadable", r->unreadable);
    if (r->unreadable)
        sfp__out_printf(&o, "%llu could not be read\n", (unsigned long long)r->unreadable);
    sfp__out_end(&o);
}

/* ---------------------------------------------------------------- commands */

static sfp_status run(const sfp__args *args, bool learned, sfp_error *err)
{
    OWNED_BY(review_done) review r = {.args = args, .learned = learned};
    sfp__progress progress;
    TRY(open_run(&r, err));
    TRY(reserve(&r, err));
    sfp__progress_init(&progress, "images", r.count);
    sfp_status status = read_samples(&r, &progress, err);
    sfp__progress_done(&progress);
    TRY(status);
    TRY(choose(&r, err));
    print_all(&r);
    return r.unreadable ? sfp__fail_quietly(err) : SFP_OK;
}

static sfp_status run_suspects(const sfp__args *args, sfp_error *err)
{
    return run(args, true, err);
}

static sfp_status run_queue(const sfp__args *args, sfp_error *err)
{
    return run(args, false, err);
}

#define DIRECTORY                                                                                                              \
    "DIR is the --out directory of a run with a watched directory, running or not; its state is read. Images are read again, " \
    "or their features come from the feature cache of the run. An image that is missing or cannot be decoded is reported and " \
    "skipped; the exit status is then 1."

const sfp__command sfp__cmd_suspects = {
    .name = "suspects",
    .summary = "list learned samples whose labels the learner doubts most",
    .operands = "DIR",
    .min_operands = 1,
    .max_operands = 1,
    .text = "Computes for each learned sample what the learner would answer if it had not learned this sample; this is exact and "
            "does not need another run. Lists the samples whose answer differs from their label, beginning with the largest "
            "difference between the two probabilities. Correct a wrong label with 'streamfp correct'. Needs the method ncm, slda "
            "or ridge, without --half-life.\n\n" DIRECTORY,
    .examples = "  streamfp suspects runs/live --limit 10\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run_suspects,
};

const sfp__command sfp__cmd_queue = {
    .name = "queue",
    .summary = "list the unlabelled samples whose labels would teach most",
    .operands = "DIR",
    .min_operands = 1,
    .max_operands = 1,
    .text = "Lists the samples that should be labelled first: those about which the learner is uncertain, that differ from known "
            "samples, and that differ from each other. Needs a closed-form head.\n\n" DIRECTORY,
    .examples = "  streamfp queue runs/live --limit 10 --json\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run_queue,
};
