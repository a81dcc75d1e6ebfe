/* Runs for the tests of parts 8 and 9: small streams whose result does not depend on the machine. */
#ifndef SFP_TESTS_API_RUN_WORLD_H
#define SFP_TESTS_API_RUN_WORLD_H

#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <zlib.h>

KEEP_BY(keep_source, sfp_source, sfp_source_close)
KEEP_BY(keep_result, sfp_result, sfp_result_free)
KEEP_BY(keep_text, char, sfp_free)

/* The registry of the tests is in their directory. */
static inline void make_run_world(void)
{
    make_directory();
    assert_int_equal(setenv("STREAMFP_REGISTRY", in_directory("runs.db"), 1), 0);
    put_text("costs", "0.3\n0.05\n0.2\n");
}

/* The engine of runs whose engine does not matter. It is opened once. */
static inline sfp_engine *any_engine(void)
{
    static sfp_engine *e;
    if (!e)
        MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
    return e;
}

/* A stream of 130 samples in 2 tasks, which arrive faster than they are processed; the processing times are given. `out` is a
 * name in the directory of the test. */
static inline sfp_settings *run_settings(const char *out)
{
    return TRAINED("data", "synthetic:130", "tasks", "2", "batch", "10", "buffer-size", "20", "seed", "3", "eval-limit", "4",
                   "clock", "virtual", "rate", "80", "queue", "2", "costs", in_directory("costs"), "out", in_directory(out));
}

static inline sfp_run *open_run(sfp_engine *e, const sfp_settings *s, const sfp_run_options *o)
{
    sfp_run *run = NULL;
    MUST(sfp_run_open(e, s, o, &run, &err));
    return run;
}

/* Runs to the end. */
static inline void run_all(sfp_engine *e, const sfp_settings *s)
{
    sfp_run *run = open_run(e, s, NULL);
    MUST(sfp_run_finish(run, &err));
    assert_true(sfp_result_number(sfp_run_result(run), "finished") == 1);
    sfp_run_close(run);
}

/* ------------------------------------------------------------------------- runs that are stopped and resumed */

/* What a run reports, and when it is cancelled. Zeros: it is never cancelled. */
typedef struct watcher {
    const char *expect;                                 /* set `found` if a message contains this text */
    int cancel_after;                                   /* timestamps */
    int cancel_in;                                      /* evaluation, from 1: ... */
    enum { BEFORE, AFTER_SOME, AFTER_LAST, WAYS } when; /* ... before its first image, after some, or after the last */
    sfp_source *source;
    sfp_run *run;
    int timestamps, evaluations;  /* calls: evaluations begin with an image count of 0 */
    int answered_later;           /* calls of an evaluation that was cancelled */
    uint64_t first, from, tested; /* samples of the first call, those of earlier processes, images of the largest evaluation */
    int messages[2];              /* by level */
    char last[SFP_ERROR_MAX];     /* the last message */
    bool found, cancelled;
} watcher;

static UNUSED void watch_progress(void *ctx, const sfp_run_progress *p)
{
    watcher *w = ctx;
    assert_int_equal(p->size, sizeof *p);
    if (p->tasks == 0)
        return; /* a measurement */
    assert_true(p->task >= 0 && p->task < p->tasks && p->task_name && p->seconds >= 0);
    assert_true(p->offered >= p->offered_before && (p->total == 0 || p->offered <= p->total));
    w->answered_later += w->cancelled && p->to_evaluate;
    if (p->to_evaluate) {
        assert_true(p->evaluated <= p->to_evaluate);
        w->evaluations += p->evaluated == 0;
        w->tested = p->to_evaluate > w->tested ? p->to_evaluate : w->tested;
        w->cancelled |= w->cancel_in > 0 && w->evaluations >= w->cancel_in &&
                        (w->when == BEFORE || (p->evaluated > 0 && w->when == AFTER_SOME) || p->evaluated == p->to_evaluate);
    } else {
        w->first = w->first ? w->first : p->offered;
        w->from = p->offered_before;
        w->cancelled |= ++w->timestamps == w->cancel_after;
    }
    if (w->cancelled)
        sfp_run_cancel(w->run);
}

static UNUSED void watch_log(void *ctx, sfp_log_level level, const char *message)
{
    watcher *w = ctx;
    w->messages[level]++;
    w->found |= w->expect && strstr(message, w->expect);
    (void)snprintf(w->last, sizeof w->last, "%s", message);
}

/* Runs until it ends or is cancelled. The result is that of the run in memory; it is kept until the test ends. */
static UNUSED sfp_status try_watched(const sfp_settings *s, watcher *w, const sfp_result **result)
{
    static int number;
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    sfp_result *r = NULL;
    char *json = NULL;
    o.source = w->source;
    o.progress = watch_progress;
    o.log = watch_log;
    o.ctx = w;
    w->run = NULL;
    sfp_status status = sfp_run_open(any_engine(), s, &o, &w->run, &err);
    if (status)
        return status;
    status = sfp_run_finish(w->run, &err);
    MUST(sfp_result_json(sfp_run_result(w->run), 1, &json, NULL));
    const char *name = kept_print("result-%d.json", number++);
    put_text(name, keep_text(json));
    sfp_run_close(w->run);
    MUST(sfp_result_read(in_directory(name), &r, &err));
    *result = keep_result(r);
    return status;
}

static UNUSED const sfp_result *run_watched(const sfp_settings *s, watcher *w)
{
    const sfp_result *r = NULL;
    MUST(try_watched(s, w, &r));
    return r;
}

/* Settings of a run into directory `out`, and whether it resumes. */
static UNUSED sfp_settings *run_into(const char *out, bool resume, const char *const *pairs)
{
    sfp_settings *s = SETTINGS("batch", "10", "seed", "3", "out", in_directory(out), "resume", resume ? "on" : "off");
    for (; pairs[0]; pairs += 2)
        MUST(sfp_settings_set(s, pairs[0], pairs[1], &err));
    return s;
}
#define INTO(out, ...) run_into(out, false, STRINGS(__VA_ARGS__))
#define RESUME(out, ...) run_into(out, true, STRINGS(__VA_ARGS__))
#define PAPER "preset", "paper", "buffer-size", "20", "pool", "10", "prompt-length", "4", "prompt-layers", "0-1"

static UNUSED const sfp_result *run_once(const sfp_settings *s)
{
    return run_watched(s, &(watcher){0});
}

static UNUSED double number_of(const sfp_result *r, const char *key)
{
    return sfp_result_number(r, key);
}

static UNUSED bool is_finished(const sfp_result *r)
{
    return number_of(r, "finished") == 1;
}

static UNUSED void check_numbers(const sfp_result *r, const char *key, double value)
{
    double x = number_of(r, key);
    if (!(x == value || (isnan(x) && isnan(value))))
        fail_msg("%s is %g, expected %g", key, x, value);
}

static UNUSED void run_refused(const sfp_settings *s, const char *words)
{
    const sfp_result *r = NULL;
    watcher w = {0};
    assert_int_not_equal(try_watched(s, &w, &r), SFP_OK);
    HOLDS(err.message, words);
}

/* A copy of a JSON text without the values that depend on the machine or the time. */
static UNUSED char *without_times(const char *json)
{
    char *text = kept_print("%s", json);
    for (const char *const *key = STRINGS("started", "seconds", "samples_per_second", "batch_seconds", "peak_rss_bytes", "rate",
                                          "time", "config", "preset_values", "defaults");
         *key; key++) {
        const char *quoted = kept_print("\"%s\":", *key);
        for (char *at = text; (at = strstr(at, quoted));) {
            int depth = 0;
            char *end = at;
            for (bool in_string = false; *end && (in_string || depth > 0 || (*end != ',' && *end != '}')); end++) {
                in_string ^= *end == '"';
                depth += in_string ? 0 : (*end == '{' || *end == '[') - (*end == '}' || *end == ']');
            }
            memmove(at, end, strlen(end) + 1);
        }
    }
    return text;
}

static UNUSED const char *json_of(const sfp_result *r)
{
    char *json = NULL;
    MUST(sfp_result_json(r, 1, &json, NULL));
    return keep_text(json);
}

/* Fails unless two runs have the same numbers, events and states. */
static UNUSED void check_same_runs(const char *a, const sfp_result *of_a, const char *b, const sfp_result *of_b)
{
    const char *x = without_times(json_of(of_a)), *y = without_times(json_of(of_b));
    if (strcmp(x, y) != 0)
        fail_msg("results differ:\n%s\n%s", x, y);
    for (int t = 0; t <= sfp_result_tasks(of_a); t++) {
        const char *name = t ? kept_print("state-task-%d.safetensors", t) : "state.safetensors";
        const char *first = kept_print("%s/%s", a, name), *second = kept_print("%s/%s", b, name);
        assert_int_equal(file_exists(first), file_exists(second));
        if (file_exists(first))
            check_same_bytes(in_directory(first), in_directory(second));
    }
    x = without_times(file_text(in_directory(kept_print("%s/events.jsonl", a))));
    y = without_times(file_text(in_directory(kept_print("%s/events.jsonl", b))));
    assert_string_equal(x, y);
}

/* The number of lines that contain a text. */
static UNUSED int lines_of(const char *name, const char *with)
{
    int n = 0;
    for (char *text = file_text(in_directory(name)), *line; (line = strsep(&text, "\n"));)
        n += (text || *line) && strstr(line, with);
    return n;
}

/* ---------------------------------------------------------------------------------------------------- images */

static UNUSED uint8_t *put_chunk(uint8_t *to, const char *type, const uint8_t *data, uint32_t size)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(size >> (24 - 8 * i));
    memcpy(to + 4, type, 4);
    memcpy(to + 8, data, size);
    uint32_t crc = (uint32_t)crc32(0, to + 4, size + 4);
    for (uint32_t i = 0; i < 4; i++)
        to[8 + size + i] = (uint8_t)(crc >> (24 - 8 * i));
    return to + 12 + size;
}

/* Writes a grey PNG of one shade. */
static UNUSED void put_image(const char *name, int shade)
{
    enum { EDGE = 16 };
    static const uint8_t header[13] = {0, 0, 0, EDGE, 0, 0, 0, EDGE, 8, 0, 0, 0, 0};
    uint8_t rows[EDGE * (EDGE + 1)], packed[512], png[1024] = "\x89PNG\r\n\x1a\n";
    uLongf size = sizeof packed;
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = i % (EDGE + 1) ? (uint8_t)shade : 0;
    assert_int_equal(compress(packed, &size, rows, sizeof rows), Z_OK);
    uint8_t *end = put_chunk(png + 8, "IHDR", header, sizeof header);
    end = put_chunk(end, "IDAT", packed, (uint32_t)size);
    end = put_chunk(end, "IEND", packed, 0);
    put_bytes(name, png, (size_t)(end - png));
}

/* Writes a directory of classes with 12 images each. broken: every fourth file is not an image. */
static UNUSED void put_images(const char *top, int classes, bool broken)
{
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < 12; i++) {
            const char *name = kept_print("%s/c%d/%02d.png", top, c, i);
            if (broken && i % 4 == 1)
                put_text(name, "not an image");
            else
                put_image(name, 20 * i + 9 * c);
        }
}

static inline void check_same_state(const char *first, const char *second)
{
    check_same_bytes(in_directory(kept_print("%s/state.safetensors", first)),
                     in_directory(kept_print("%s/state.safetensors", second)));
}

/* A dataset of flat images of two classes, with a counter of its closes. */
typedef struct flat_dataset {
    int count, closes;
    const char *const *class_names; /* (2) */
    uint8_t rgb[256][3 * 8 * 8];    /* one image for each shade */
} flat_dataset;

static sfp_status flat_record(void *ctx, int64_t i, sfp_record *record, sfp_error *why)
{
    (void)ctx;
    (void)why;
    record->label = (int32_t)(i % 2);
    return SFP_OK;
}

static sfp_status flat_load(void *ctx, int64_t i, sfp_image *image, sfp_error *why)
{
    flat_dataset *d = ctx;
    (void)why;
    *image = (sfp_image){.format = SFP_IMAGE_RGB, .width = 8, .height = 8, .data = d->rgb[(i % 2 ? 180 : 20) + i % 40]};
    return SFP_OK;
}

static void flat_close(void *ctx)
{
    ((flat_dataset *)ctx)->closes++;
}

static inline flat_dataset *make_flat(int count, const char *const *class_names)
{
    flat_dataset *d = kept_malloc(sizeof *d);
    *d = (flat_dataset){.count = count, .class_names = class_names};
    for (int shade = 0; shade < 256; shade++)
        memset(d->rgb[shade], shade, sizeof d->rgb[shade]);
    return d;
}

static inline sfp_source *source_of(flat_dataset *d, const char *name)
{
    sfp_source_definition o = SFP_SOURCE_DEFINITION_INIT;
    sfp_source *s = NULL;
    o.name = name;
    o.ctx = d;
    o.count = d->count;
    o.classes = 2;
    o.class_names = d->class_names;
    o.record = flat_record;
    o.load = flat_load;
    o.close = flat_close;
    MUST(sfp_source_create(&o, &s, &err));
    return s;
}

#endif
