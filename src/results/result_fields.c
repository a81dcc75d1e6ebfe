/* The table of everything in a result: result.json, tables of runs, the report and the terminal are loops over these rows. */
#include "results/result_fields.h"

#include <math.h>
#include <string.h>

#define AT(member) .offset = offsetof(sfp_result, member), .size = sizeof((sfp_result *)NULL)->member
#define OPTIONAL .optional = true
#define REAL_MAX 1e300
#define SHOWN(name, digits, ...) .label = (name), .decimals = (digits), __VA_ARGS__
#define ACCURACY(name, ...) SHOWN(name, 4, .fraction = true, .better = 1, __VA_ARGS__)
#define SECONDS(name) SHOWN(name, 2, .unit = "s")
#define COLUMN .column = true
#define IF_ANY .rare = true

/* ------------------------------------------------------------ derived numbers */

static double trained_on(const sfp_result *r)
{
    return (double)sfp__result_trained(r);
}

static double dropped_busy(const sfp_result *r)
{
    return (double)sfp__result_dropped(r);
}

static double runtime(const sfp_result *r)
{
    return r->seconds.select + r->seconds.train + r->seconds.buffer;
}

static double peak_mib(const sfp_result *r)
{
    return (double)r->peak_rss_bytes / (1 << 20);
}

/* --------------------------------------------------------------------- table */

#define D "diagnostics" /* a group of result.json that exists only if diagnostics were measured */
#define ANY -REAL_MAX, REAL_MAX
#define PART(object, name, ...)                                                             \
    {                                                                                       \
        .kind = SFP__FIELD_PART, .group = (object), .key = (name)__VA_OPT__(, ) __VA_ARGS__ \
    }

const sfp__result_field sfp__result_fields[] = {
    {SFP__FIELD_TEXT, NULL, "started", AT(started)},
    {SFP__FIELD_FLAG, NULL, "finished", AT(finished)},
    {SFP__FIELD_SEED, NULL, "seed", AT(seed)},
    {SFP__FIELD_TEXT, "machine", "cpu", AT(machine.cpu)},
    {SFP__FIELD_WHOLE, "machine", "threads", AT(machine.threads)},
    {SFP__FIELD_TEXT, "machine", "kernels", AT(machine.kernels)},
    {SFP__FIELD_TEXT, "machine", "gemm", AT(machine.gemm)},
    PART(NULL, "config"),
    PART(NULL, "defaults"),
    PART(NULL, "preset_values"),
    PART(NULL, "task_names"),
    PART(NULL, "class_names"),
    {SFP__FIELD_WHOLE, NULL, "tasks_done", AT(tasks_done)},
    PART(NULL, "accuracy_matrix"),
    {SFP__FIELD_REAL, NULL, "average_accuracy", AT(average_accuracy), 0, 1, ACCURACY("average accuracy", COLUMN, .main = true)},
    {SFP__FIELD_REAL, NULL, "forgetting", AT(forgetting), -1, 1,
     SHOWN("forgetting", 4, .fraction = true, .better = -1, COLUMN, .main = true)},
    {SFP__FIELD_REAL, NULL, "backward_transfer", AT(backward_transfer), -1, 1, ACCURACY("backward transfer", COLUMN)},
    {SFP__FIELD_REAL, NULL, "prequential_accuracy", AT(prequential_accuracy), 0, 1,
     ACCURACY("prequential accuracy", COLUMN, .main = true, .meaning = "predicted before training")},
    {SFP__FIELD_REAL, "calibration", "error", AT(calibration.error), 0, 1, OPTIONAL,
     SHOWN("calibration error", 4, .fraction = true, .better = -1, .meaning = "confidence and accuracy")},
    {SFP__FIELD_REAL, "calibration", "before", AT(calibration.before), 0, 1, OPTIONAL,
     SHOWN("  before scaling", 4, .fraction = true, .better = -1)},
    {SFP__FIELD_PART, "calibration", "bins", OPTIONAL},
    PART(NULL, "per_class"),
    PART(NULL, "evaluations", OPTIONAL),
    {SFP__FIELD_COUNT, "samples", "offered", AT(samples.offered), SHOWN("offered", 0, COLUMN)},
    {SFP__FIELD_COUNT, "samples", "scored", AT(samples.scored)},
    {SFP__FIELD_COUNT, "samples", "trained", AT(samples.trained)},
    {SFP__FIELD_COUNT, "samples", "replayed", AT(samples.replayed), SHOWN("replayed", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "samples", "dropped", AT(samples.dropped)},
    {SFP__FIELD_COUNT, "samples", "skipped", AT(samples.skipped), OPTIONAL, SHOWN("unreadable", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "samples", "closed_form", AT(samples.closed_form), OPTIONAL,
     SHOWN("learned in closed form", 0, COLUMN, IF_ANY)},
    {SFP__FIELD_DERIVED, "samples", "trained_on", .derive = trained_on, SHOWN("trained on", 0, COLUMN, IF_ANY)},
    {SFP__FIELD_DERIVED, "samples", "dropped_busy", .derive = dropped_busy, SHOWN("dropped", 0, COLUMN)},
    {SFP__FIELD_COUNT, "samples", "excluded", AT(samples.excluded), OPTIONAL, SHOWN("excluded", 0, COLUMN, IF_ANY)},
    {SFP__FIELD_COUNT, "standings", "learned", AT(standings.learned), OPTIONAL, SHOWN("standing: learned", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "standings", "waiting", AT(standings.waiting), OPTIONAL, SHOWN("standing: waiting", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "standings", "forgotten", AT(standings.forgotten), OPTIONAL, SHOWN("standing: forgotten", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "standings", "corrected", AT(standings.corrected), OPTIONAL, SHOWN("corrected", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "labels", "unlabelled", AT(labels.unlabelled), OPTIONAL, SHOWN("unlabelled: predicted", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "labels", "late", AT(labels.late), OPTIONAL, SHOWN("unlabelled: labelled late", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "labels", "expired", AT(labels.expired), OPTIONAL, SHOWN("unlabelled: expired", 0, IF_ANY)},
    {SFP__FIELD_COUNT, "labels", "waiting", AT(labels.waiting), OPTIONAL, SHOWN("unlabelled: waiting", 0, IF_ANY)},
    {SFP__FIELD_REAL, NULL, "lambda", AT(lambda), 0, REAL_MAX},
    {SFP__FIELD_REAL, NULL, "cs", AT(cs), 0, REAL_MAX, SHOWN("C_S", 4, .meaning = "processing time / arrival interval")},
    {SFP__FIELD_WHOLE, NULL, "starved_tasks", AT(starved_tasks), OPTIONAL, SHOWN("starved tasks", 0, IF_ANY)},
    {SFP__FIELD_REAL, "lag", "mean", AT(lag.mean), ANY, SHOWN("mean lag", 4, .unit = "s")},
    {SFP__FIELD_REAL, "lag", "max", AT(lag.max), ANY, SHOWN("largest lag", 4, .unit = "s", COLUMN)},
    {SFP__FIELD_REAL, "lag", "last", AT(lag.last), ANY},
    {SFP__FIELD_REAL, NULL, "coverage", AT(coverage), 0, 1,
     SHOWN("class coverage", 4, .fraction = true, COLUMN, .meaning = "classes learned from / classes offered")},
    {SFP__FIELD_REAL, "seconds", "decode", AT(seconds.decode), ANY, SECONDS("time: prefetch")},
    {SFP__FIELD_REAL, "seconds", "select", AT(seconds.select), ANY, SECONDS("time: select")},
    {SFP__FIELD_REAL, "seconds", "train", AT(seconds.train), ANY, SECONDS("time: learn")},
    {SFP__FIELD_REAL, "seconds", "buffer", AT(seconds.buffer), ANY, SECONDS("time: buffer")},
    {SFP__FIELD_REAL, "seconds", "evaluate", AT(seconds.evaluate), ANY, SECONDS("time: evaluate")},
    {SFP__FIELD_REAL, "seconds", "total", AT(seconds.total), ANY, SHOWN("total time", 1, .unit = "s", COLUMN)},
    {SFP__FIELD_REAL, "seconds", "waited", AT(seconds.wait_seconds), ANY, OPTIONAL, SECONDS("time: wait for data")},
    {SFP__FIELD_DERIVED, "seconds", "runtime", .derive = runtime,
     SHOWN("runtime", 1, .unit = "s", .better = -1, COLUMN, .main = true)},
    {SFP__FIELD_REAL, NULL, "samples_per_second", AT(samples_per_second), 0, REAL_MAX,
     SHOWN("speed", 1, .unit = "samples/s", .better = 1, COLUMN)},
    {SFP__FIELD_COUNT, NULL, "timestamps", AT(timestamps), OPTIONAL},
    {SFP__FIELD_REAL, NULL, "batch_seconds", AT(batch_seconds), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_COUNT, "cache", "hits", AT(cache.hits), OPTIONAL},
    {SFP__FIELD_COUNT, "cache", "misses", AT(cache.misses), OPTIONAL},
    {SFP__FIELD_COUNT, NULL, "peak_rss_bytes", AT(peak_rss_bytes)},
    {SFP__FIELD_DERIVED, NULL, "peak_rss_mib", .derive = peak_mib, SHOWN("peak memory", 0, .unit = "MiB", .better = -1, COLUMN)},
    {SFP__FIELD_REAL, D, "coreset_cost_ratio", AT(diagnostics.coreset_cost.ratio), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_cost_deviation", AT(diagnostics.coreset_cost.deviation), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_cost_within", AT(diagnostics.coreset_cost.within), 0, 1, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_cost_random_deviation", AT(diagnostics.coreset_cost.random_deviation), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_cost_random_within", AT(diagnostics.coreset_cost.random_within), 0, 1, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_angle_ratio", AT(diagnostics.coreset_angle.ratio), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_angle_deviation", AT(diagnostics.coreset_angle.deviation), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_angle_within", AT(diagnostics.coreset_angle.within), 0, 1, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_angle_random_deviation", AT(diagnostics.coreset_angle.random_deviation), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "coreset_angle_random_within", AT(diagnostics.coreset_angle.random_within), 0, 1, OPTIONAL},
    {SFP__FIELD_REAL, D, "buffer_mmd", AT(diagnostics.buffer_mmd), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "buffer_mmd_mean", AT(diagnostics.buffer_mmd_mean), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "stream_score_deviation", AT(diagnostics.stream_score_deviation), 0, REAL_MAX, OPTIONAL},
    {SFP__FIELD_REAL, D, "gradient_cosine_fingerprints", AT(diagnostics.gradient_cosine_fingerprints), 0, 1, OPTIONAL},
    {SFP__FIELD_REAL, D, "gradient_cosine_head", AT(diagnostics.gradient_cosine_head), 0, 1, OPTIONAL},
    PART(D, "gradient_cosines_fingerprints", OPTIONAL),
    PART(D, "gradient_cosines_head", OPTIONAL),
    PART(NULL, "curves", OPTIONAL),
    PART(NULL, "confusion", OPTIONAL),
    {.key = NULL},
};

/* ------------------------------------------------------------------- look-up */

/* The rest of `key` after "GROUP."; NULL: the key is not in this group. */
static const char *member_of(const char *key, const char *group)
{
    size_t n = strlen(group);
    return strncmp(key, group, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

const sfp__result_field *sfp__result_field_find(const char *key)
{
    for (const sfp__result_field *f = sfp__result_fields; f->key; f++) {
        const char *name = key;
        if (f->group && !(name = member_of(key, f->group)))
            continue;
        if (strcmp(name, f->key) == 0)
            return f;
    }
    return NULL;
}

const char *sfp__result_field_key(const sfp__result_field *f, char buf[SFP__FIELD_KEY_SIZE])
{
    (void)snprintf(buf, SFP__FIELD_KEY_SIZE, "%s%s%s", f->group ? f->group : "", f->group ? "." : "", f->key);
    return buf;
}

double sfp__result_field_value(const sfp__result_field *f, const sfp_result *r)
{
    const void *at = (const char *)r + f->offset;
    switch (f->kind) {
    case SFP__FIELD_FLAG:
        return *(const bool *)at;
    case SFP__FIELD_SEED:
    case SFP__FIELD_COUNT:
        return (double)*(const uint64_t *)at;
    case SFP__FIELD_WHOLE:
        return *(const int *)at;
    case SFP__FIELD_REAL:
        return *(const double *)at;
    case SFP__FIELD_DERIVED:
        return f->derive(r);
    default:
        return NAN;
    }
}

bool sfp__result_field_shown(const sfp__result_field *f, const sfp_result *r)
{
    double x = f->label ? sfp__result_field_value(f, r) : NAN;
    return isfinite(x) && !(f->rare && x == 0);
}

double sfp__result_number(const sfp_result *r, const char *key)
{
    const sfp__result_field *f = sfp__result_field_find(key);
    return f ? sfp__result_field_value(f, r) : NAN;
}

const char *sfp__result_string(const sfp_result *r, const char *key)
{
    const char *option = member_of(key, "config");
    if (option)
        return sfp__result_value(r, option);
    if (strcmp(key, "version") == 0)
        return r->version;
    const sfp__result_field *f = sfp__result_field_find(key);
    return f && f->kind == SFP__FIELD_TEXT ? (const char *)r + f->offset : NULL;
}
