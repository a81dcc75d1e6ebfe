/* Calls of the public interface in random legal order on several threads. The input is a list of commands: one or two drivers own a
 * learner each and share an engine. While a driver changes its learner, its predictors run on threads of their own. Drivers also save,
 * load, checkpoint, resume, merge and correct, and execute runs that another thread cancels.
 *
 * Every call must succeed or report an error with a message; predictions must be possible; a resumed learner must write the same bytes.
 * The sanitizers find everything else.
 *
 * In plain builds `fuzz_sequences SEED COUNT` generates COUNT inputs. */
#include "fuzz.h"

#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    DRIVERS = 2,
    READERS = 2,
    ENGINES = 2,
    SIDE = 32,
    IMAGES = 12,
    BATCH_MAX = 16,
    HISTORY = 16,
    PATH = 512
};

/* ------------------------------------------------------------------------------------------------------- what inputs share */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char root[PATH];
static sfp_engine *engines[ENGINES]; /* files of one are refused by the other */
static uint8_t pixels[IMAGES][SIDE * SIDE * 3];
static sfp_image images[IMAGES];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void clean_up(void)
{
    for (int i = 0; i < ENGINES; i++)
        sfp_engine_close(engines[i]);
    remove_tree(root);
}

static void make_images(void)
{
    static const struct {
        int format, width, height;
    } shapes[] = {{SFP_IMAGE_RGB, SIDE, SIDE}, {SFP_IMAGE_BGR, 20, 30}, {SFP_IMAGE_GREY, 40, 17}, {SFP_IMAGE_RGB, 1, 1}};
    unsigned state = 1;
    for (int i = 0; i < IMAGES; i++) {
        for (size_t k = 0; k < sizeof pixels[i]; k++)
            pixels[i][k] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
        images[i] = (sfp_image){.format = shapes[i % 4].format, .width = shapes[i % 4].width, .height = shapes[i % 4].height};
        images[i].data = pixels[i];
    }
    images[IMAGES - 2] = (sfp_image){.format = SFP_IMAGE_ENCODED, .data = pixels[0], .bytes = 100}; /* not an image */
    images[IMAGES - 1] = (sfp_image){.format = SFP_IMAGE_FILE, .data = "missing.jpg"};
}

/* oneDNN creates its cache at the first product. The thread sanitizer cannot see its lock, so no other thread runs then. */
static void warm_up(void)
{
    for (int i = 0; i < ENGINES; i++) {
        sfp_predictor *p = NULL;
        REQUIRE(sfp_predictor_open_backbone(engines[i], NULL, NULL, &p, NULL) == SFP_OK);
        sfp_predictor_free(p);
    }
}

static void start(void)
{
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    const char *tmp = getenv("TMPDIR");
    char registry[PATH + 16];
    o.threads = 2;
    (void)snprintf(root, sizeof root, "%.200s/sfp-sequences-XXXXXX", tmp ? tmp : "/tmp");
    REQUIRE(mkdtemp(root) != NULL);
    (void)snprintf(registry, sizeof registry, "%s/runs.db", root);
    REQUIRE(setenv("STREAMFP_REGISTRY", registry, 1) == 0);
    for (int i = 0; i < ENGINES; i++)
        REQUIRE(sfp_engine_open_random((uint64_t)i + 1, &o, &engines[i], NULL) == SFP_OK);
    make_images();
    warm_up();
    (void)atexit(clean_up);
}

/* --------------------------------------------------------------------------------------------------------------- a driver */

typedef struct reader {
    pthread_t thread;
    sfp_predictor *predictor;
    const sfp_learner *learner;
    atomic_int stop;
} reader;

typedef struct driver {
    const uint8_t *at, *end; /* commands that are left */
    char directory[PATH];
    sfp_engine *engine;
    sfp_settings *settings;
    sfp_learner *learner;
    int batch;
    reader *readers[READERS]; /* NULL: none */
    sfp_sample history[HISTORY];
    uint64_t offered;
} driver;

static unsigned next(driver *d)
{
    return d->at < d->end ? *d->at++ : 0;
}

/* The path of one of a few files in the directory of the driver. */
static const char *path_of(const driver *d, const char *name, unsigned number, char path[PATH])
{
    (void)snprintf(path, PATH, "%.400s/%s%u", d->directory, name, number % 2);
    return path;
}

static bool ok(sfp_status status, const sfp_error *err)
{
    return accepted(status, err);
}

/* ------------------------------------------------------------------------------------------------------------- predictors */

static void check_predictions(sfp_predictor *p, int n, const sfp_prediction *out)
{
    int classes = sfp_predictor_classes(p);
    const float *scores = sfp_predictor_scores(p), *unknown = sfp_predictor_unknown(p);
    for (int i = 0; i < n; i++) {
        REQUIRE(out[i].label >= -1 && out[i].label < classes);
        REQUIRE(out[i].label < 0 ? isnan(out[i].probability) : out[i].probability >= 0 && out[i].probability <= 1.0001f);
        REQUIRE(out[i].status == SFP_OK || (out[i].label == -1 && *sfp_predictor_image_error(p, i)));
        REQUIRE(out[i].label < 0 || sfp_predictor_class_seen(p, out[i].label) || !unknown);
        for (int c = 0; out[i].label >= 0 && scores && c < classes; c++)
            REQUIRE(!isnan(scores[(size_t)i * (size_t)classes + (size_t)c]));
        REQUIRE(!unknown || isnan(unknown[i]) || (unknown[i] >= 0 && unknown[i] <= 1));
    }
    for (int32_t c = 0; c < classes; c++) {
        const char *name = sfp_predictor_class_name(p, c);
        touch(name, name ? strlen(name) : 0);
    }
}

static void predict_once(sfp_predictor *p, unsigned from)
{
    sfp_image batch[5] = {0};
    sfp_prediction out[5];
    sfp_error err = {0};
    int n = (int)(from % 6);
    for (int i = 0; i < n; i++)
        batch[i] = images[(from + (unsigned)i) % IMAGES];
    if (ok(sfp_predictor_run(p, n, batch, out, &err), &err))
        check_predictions(p, n, out);
    if (from % 7 == 0)
        (void)ok(sfp_predictor_refresh(p, &err), &err);
}

static void *reader_main(void *arg)
{
    reader *r = arg;
    for (unsigned i = 0; !atomic_load(&r->stop); i++) {
        if (i < 40) {
            predict_once(r->predictor, i);
            REQUIRE(sfp_learner_classes(r->learner) >= 0);
            (void)sched_yield();
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    return NULL;
}

static void stop_reader(driver *d, int i)
{
    reader *r = d->readers[i];
    if (!r)
        return;
    atomic_store(&r->stop, 1);
    REQUIRE(pthread_join(r->thread, NULL) == 0);
    sfp_predictor_free(r->predictor);
    free(r);
    d->readers[i] = NULL;
}

static void start_reader(driver *d, unsigned number)
{
    int i = (int)(number % READERS);
    sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
    sfp_error err = {0};
    stop_reader(d, i);
    reader *r = calloc(1, sizeof *r);
    REQUIRE(r != NULL);
    o.threads = 1 + (int)(number / READERS % 2);
    o.max_batch = (int)(number / 4 % 4);
    r->learner = d->learner;
    if (!ok(sfp_predictor_create(d->learner, &o, &r->predictor, &err), &err)) {
        free(r);
        return;
    }
    REQUIRE(pthread_create(&r->thread, NULL, reader_main, r) == 0);
    d->readers[i] = r;
}

static void open_predictor(driver *d, const char *path)
{
    sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
    sfp_predictor *p = NULL;
    sfp_error err = {0};
    o.threads = 1;
    if (!ok(path ? sfp_predictor_open(d->engine, path, &o, &p, &err)
                 : sfp_predictor_open_backbone(d->engine, d->settings, &o, &p, &err),
            &err))
        return;
    for (unsigned i = 0; i < 3; i++)
        predict_once(p, next(d));
    sfp_predictor_free(p);
}

/* --------------------------------------------------------------------------------------------------------------- settings */

/* Sets one setting to a value that follows from a byte. Settings that refuse it keep theirs. */
static void set_random(sfp_settings *s, const sfp_setting_info *info, unsigned value)
{
    char text[64] = "";
    int n = 0;
    sfp_error err = {0};
    if (info->type == SFP_TYPE_FLAG) {
        (void)snprintf(text, sizeof text, "%s", value % 2 ? "on" : "off");
    } else if (info->type == SFP_TYPE_INT) {
        (void)snprintf(text, sizeof text, "%.0f", fmin(info->min + value % BATCH_MAX, info->max));
    } else if (info->type == SFP_TYPE_REAL) {
        (void)snprintf(text, sizeof text, "%g", fmin(info->min + pow(10, (double)(value % 8) - 4), info->max));
    } else if (info->type == SFP_TYPE_CHOICE) {
        for (const char *v = info->values; v; v = strchr(v, '|') ? strchr(v, '|') + 1 : NULL)
            n++;
        const char *v = info->values;
        for (unsigned i = 0; i < value % (unsigned)n; i++)
            v = strchr(v, '|') + 1;
        (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(v, "|"), v);
    } else if (info->name) {
        while (info->name(n))
            n++;
        (void)snprintf(text, sizeof text, "%s", n ? info->name((int)(value % (unsigned)n)) : "");
    } else {
        (void)snprintf(text, sizeof text, "%u", value % 4);
    }
    (void)ok(sfp_settings_set(s, info->key, text, &err), &err);
}

static sfp_settings *make_settings(driver *d)
{
    static const char *const trained[][2] = {{"preset", "paper"}, {"pool", "6"}, {"buffer-size", "6"}, {"prompt-layers", "0-1"}};
    static const char *const methods[] = {NULL, NULL, NULL, "ncm", "slda", "ridge", "ridge", "ranpac"};
    sfp_settings *s = NULL;
    sfp_error err = {0};
    int count = 0;
    REQUIRE(sfp_settings_create(&s, &err) == SFP_OK);
    const char *method = methods[next(d) % 8];
    REQUIRE(sfp_settings_set(s, "batch", "4", &err) == SFP_OK);
    for (size_t i = 0; !method && i < sizeof trained / sizeof *trained; i++)
        REQUIRE(sfp_settings_set(s, trained[i][0], trained[i][1], &err) == SFP_OK);
    if (method)
        REQUIRE(sfp_settings_set(s, "method", method, &err) == SFP_OK);
    while (sfp_settings_info(count))
        count++;
    for (unsigned i = next(d) % 6; i > 0; i--) {
        const sfp_setting_info *info = sfp_settings_info((int)(next(d) % (unsigned)count));
        unsigned value = next(d);
        if (info->scope == SFP_SCOPE_LEARNER)
            set_random(s, info, value);
    }
    return s;
}

static void free_learner(driver *d)
{
    for (int i = 0; i < READERS; i++)
        stop_reader(d, i);
    sfp_learner_free(d->learner);
    sfp_settings_free(d->settings);
    d->learner = NULL;
    d->settings = NULL;
}

static void create_learner(driver *d)
{
    sfp_error err = {0};
    free_learner(d);
    d->engine = engines[next(d) % ENGINES];
    d->settings = make_settings(d);
    if (!ok(sfp_learner_create(d->engine, d->settings, &d->learner, &err), &err)) {
        sfp_settings_free(d->settings);
        REQUIRE(sfp_settings_create(&d->settings, &err) == SFP_OK);
        REQUIRE(sfp_settings_set(d->settings, "method", "ridge", &err) == SFP_OK);
        REQUIRE(sfp_learner_create(d->engine, d->settings, &d->learner, &err) == SFP_OK);
    }
    d->batch = (int)strtol(sfp_settings_get(d->settings, "batch"), NULL, 10);
    d->offered = 0;
    memset(d->history, 0, sizeof d->history);
}

/* ---------------------------------------------------------------------------------------------------------------- learner */

static int draw_batch(driver *d, sfp_sample batch[BATCH_MAX])
{
    int max = d->batch < BATCH_MAX ? d->batch : BATCH_MAX, n = 1 + (int)(next(d) % (unsigned)max);
    unsigned labels = next(d);
    for (int i = 0; i < n; i++) {
        unsigned image = (labels + (unsigned)i) % (labels == 255 ? IMAGES : IMAGES - 2); /* unreadable ones are rare */
        batch[i] = (sfp_sample){.image = images[image], .label = (int32_t)((labels / 16 + (unsigned)i) % (labels & 1 ? 3 : 9))};
        batch[i].id = d->offered + (uint64_t)i;
    }
    return n;
}

static void offer(driver *d)
{
    sfp_sample batch[BATCH_MAX];
    sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
    sfp_error err = {0};
    int n = draw_batch(d, batch);
    if (!ok(sfp_learner_offer(d->learner, n, batch, &report, &err), &err))
        return;
    REQUIRE(report.offered == n && report.coreset <= n);
    for (int i = 0; i < n; i++)
        d->history[d->offered++ % HISTORY] = batch[i];
}

static void offer_late(driver *d)
{
    sfp_sample batch[BATCH_MAX];
    uint64_t ids[BATCH_MAX];
    int32_t labels[BATCH_MAX];
    sfp_error err = {0};
    int n = draw_batch(d, batch);
    if (!ok(sfp_learner_enqueue(d->learner, n, batch, &err), &err))
        return;
    for (int i = 0; i < n; i++) {
        ids[i] = batch[n - 1 - i].id;
        labels[i] = batch[i].label;
    }
    n = 1 + (int)(next(d) % (unsigned)n);
    (void)ok(sfp_learner_label(d->learner, n, ids, labels, NULL, &err), &err);
    REQUIRE(sfp_learner_queued(d->learner) >= 0);
}

static void correct(driver *d)
{
    sfp_error err = {0};
    sfp_sample sample = d->history[next(d) % HISTORY];
    unsigned how = next(d);
    if (!sample.image.data)
        return;
    if (how % 2)
        (void)ok(sfp_learner_forget(d->learner, 1, &sample, &err), &err);
    else
        (void)ok(sfp_learner_relabel(d->learner, &sample, (int32_t)(how / 2 % 10), &err), &err);
}

static void use_classes(driver *d)
{
    char name[32];
    int32_t label = 0, labels[] = {0, 1, 2};
    sfp_error err = {0};
    unsigned which = next(d);
    (void)snprintf(name, sizeof name, "class %u", which / 4 % 12);
    if (which % 4 == 0 && ok(sfp_learner_add_class(d->learner, name, &label, &err), &err))
        REQUIRE(strcmp(sfp_learner_class_name(d->learner, label), name) == 0);
    if (which % 4 == 1)
        (void)ok(sfp_learner_set_class_name(d->learner, (int32_t)(which / 4 % 12), name, &err), &err);
    if (which % 4 == 2)
        (void)ok(sfp_learner_set_task_classes(d->learner, 1 + (int)(which / 4 % 3), labels, &err), &err);
    if (which % 4 == 3)
        (void)ok(sfp_learner_next_task(d->learner, &err), &err);
}

/* Resumes a learner from a file, or loads, merges or predicts with it. */
static void read_file(driver *d, const char *path, unsigned how)
{
    char *position = NULL;
    sfp_error err = {0};
    int size;
    if (how % 5 == 0 && ok(sfp_learner_resume(d->learner, path, &position, &err), &err))
        touch(position, strlen(position));
    if (how % 5 == 1)
        (void)ok(sfp_learner_load(d->learner, path, &err), &err);
    if (how % 5 == 2)
        (void)ok(sfp_learner_merge(d->learner, path, &err), &err);
    if (how % 5 == 3)
        open_predictor(d, path);
    if (how % 5 == 4)
        (void)ok(sfp_state_image_size(path, &size, &err), &err);
    sfp_free(position);
}

static uint8_t *read_bytes(const char *path, size_t *size)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    REQUIRE(f && fstat(fileno(f), &st) == 0);
    uint8_t *bytes = malloc((size_t)st.st_size);
    REQUIRE(bytes && fread(bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    (void)fclose(f);
    *size = (size_t)st.st_size;
    return bytes;
}

/* A learner that resumes from its own checkpoint writes the same checkpoint again. A prediction at the same time may have solved
 * its head in between, which is part of a checkpoint. */
static void resume_same(driver *d)
{
    char first[PATH], second[PATH];
    size_t size[2];
    sfp_error err = {0};
    for (int i = 0; i < READERS; i++)
        stop_reader(d, i);
    (void)path_of(d, "same", 0, first), (void)path_of(d, "same", 1, second);
    if (!ok(sfp_learner_checkpoint(d->learner, first, "here", &err), &err))
        return;
    REQUIRE(sfp_learner_resume(d->learner, first, NULL, &err) == SFP_OK);
    REQUIRE(sfp_learner_checkpoint(d->learner, second, "here", &err) == SFP_OK);
    uint8_t *a = read_bytes(first, &size[0]), *b = read_bytes(second, &size[1]);
    REQUIRE(size[0] == size[1] && memcmp(a, b, size[0]) == 0);
    free(a);
    free(b);
}

/* ------------------------------------------------------------------------------------------------------------------- runs */

typedef struct canceller {
    sfp_run *run;
    long microseconds;
} canceller;

static void *cancel_main(void *arg)
{
    const canceller *c = arg;
    (void)nanosleep(&(struct timespec){.tv_nsec = c->microseconds * 1000}, NULL);
    sfp_run_cancel(c->run);
    return NULL;
}

static void step(driver *d, sfp_run *run)
{
    sfp_error err = {0};
    int more = 1;
    for (unsigned i = next(d) % 8; i > 0 && more; i--)
        if (!ok(sfp_run_step(run, &more, &err), &err))
            return;
    if (next(d) % 2)
        (void)ok(sfp_run_finish(run, &err), &err);
}

/* Opens the run of the driver's directory, does some steps and closes it. Another thread may cancel it. */
static void run(driver *d)
{
    char out[PATH];
    sfp_settings *s = make_settings(d);
    sfp_run *r = NULL;
    pthread_t thread;
    sfp_error err = {0};
    unsigned how = next(d);
    const char *const settings[][2] = {
        {"data", "synthetic:24"},           {"tasks", how & 1 ? "2" : "free"},   {"eval-limit", "2"},
        {"resume", how & 2 ? "on" : "off"}, {"eval-every", how & 4 ? "2" : "0"}, {"out", path_of(d, "run", how / 8, out)}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        (void)ok(sfp_settings_set(s, settings[i][0], settings[i][1], &err), &err);
    if (ok(sfp_run_open(d->engine, s, NULL, &r, &err), &err)) {
        canceller c = {r, 100 * (long)next(d)};
        bool cancels = how & 16;
        REQUIRE(!cancels || pthread_create(&thread, NULL, cancel_main, &c) == 0);
        step(d, r);
        REQUIRE(!cancels || pthread_join(thread, NULL) == 0);
        touch(sfp_run_result(r), 1);
        sfp_run_close(r);
    }
    sfp_settings_free(s);
    open_predictor(d, out);
    if (how & 32)
        remove_tree(out);
}

/* --------------------------------------------------------------------------------------------------------------- commands */

static void execute(driver *d, unsigned command)
{
    char path[PATH];
    sfp_error err = {0};
    unsigned number;
    if (command < 80) {
        offer(d);
    } else if (command < 95) {
        offer_late(d);
    } else if (command < 115) {
        correct(d);
    } else if (command < 130) {
        use_classes(d);
    } else if (command < 150) {
        start_reader(d, next(d));
    } else if (command < 155) {
        stop_reader(d, (int)(next(d) % READERS));
    } else if (command < 170) {
        (void)ok(sfp_learner_save(d->learner, path_of(d, "state", next(d), path), &err), &err);
    } else if (command < 185) {
        (void)ok(sfp_learner_checkpoint(d->learner, path_of(d, "checkpoint", next(d), path), "here", &err), &err);
    } else if (command < 220) {
        number = next(d);
        read_file(d, path_of(d, number & 1 ? "state" : "checkpoint", number / 2, path), next(d));
    } else if (command < 228) {
        resume_same(d);
    } else if (command < 236) {
        create_learner(d);
    } else if (command < 240) {
        open_predictor(d, NULL);
    } else {
        run(d);
    }
}

static void *driver_main(void *arg)
{
    driver *d = arg;
    create_learner(d);
    for (int i = 0; i < 60 && d->at < d->end; i++)
        execute(d, next(d));
    free_learner(d);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    driver drivers[DRIVERS] = {0};
    pthread_t thread;
    (void)pthread_once(&once, start);
    if (size < 3)
        return 0;
    bool both = bytes[0] & 1;
    size_t half = both ? size / 2 : size - 1;
    for (int i = 0; i < 1 + both; i++) {
        drivers[i].at = bytes + 1 + (size_t)i * (half - 1);
        drivers[i].end = i == 0 && both ? bytes + half : bytes + size;
        (void)snprintf(drivers[i].directory, PATH, "%.400s/%d", root, i);
        REQUIRE(mkdir(drivers[i].directory, 0777) == 0);
    }
    REQUIRE(!both || pthread_create(&thread, NULL, driver_main, &drivers[1]) == 0);
    (void)driver_main(&drivers[0]);
    REQUIRE(!both || pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 1 + both; i++)
        remove_tree(drivers[i].directory);
    return 0;
}

#ifndef SFP_LIBFUZZER
int main(int argc, char **argv)
{
    uint8_t bytes[240];
    if (argc != 3) {
        (void)fprintf(stderr, "usage: fuzz_sequences SEED COUNT\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    for (uint64_t k = seed; k < seed + count; k++) {
        uint64_t state = k * 6364136223846793005u + 1442695040888963407u;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
        (void)LLVMFuzzerTestOneInput(bytes, sizeof bytes);
    }
    (void)printf("%llu sequences\n", (unsigned long long)count);
    return 0;
}
#endif
