/* Experiments and sweeps (streamfp.h, part 13): the table is complete, an execution that was stopped continues, and no cell runs
 * twice. */
#include "run_world.h"

/* The library opens the backbone by its settings, so that of the tests is a file: one of three narrow blocks, trained for a step. */
static void make_lab_world(void)
{
    static const char *const pairs[][2] = {{"data", "synthetic:8"}, {"img-size", "16"}, {"dim", "16"},
                                           {"depth", "3"},          {"heads", "1"},     {"epochs", "1"},
                                           {"batch", "8"},          {"threads", "1"},   {"dtype", "f32"}};
    sfp_settings *s = NULL;
    make_run_world();
    MUST(sfp_pretrain_settings_create(&s, &err));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        MUST(sfp_settings_set(s, pairs[i][0], pairs[i][1], &err));
    MUST(sfp_settings_set(s, "out", in_directory("backbone"), &err));
    MUST(sfp_pretrain(keep_settings(s), NULL, NULL, &err));
}

AROUND_EACH(make_lab_world, remove_directory)

enum { CELLS = 8 }; /* of the sweep: 2 x 2 values, 2 seeds */

static const char *const grids[] = {"sigma=0.25,0.5", "buffer=er,streamfp"};

static sfp_settings *lab_settings(void)
{
    return TRAINED("data", "synthetic:60", "tasks", "2", "buffer-size", "8", "eval-limit", "4", "threads", "1", "backbone",
                   in_directory("backbone/model.safetensors"));
}

/* ------------------------------------------------------------------------------------------------------------ callbacks */

typedef struct observer {
    int begun, ended, executed; /* runs; executed: those that this call ran */
    int last_done, total;
    int stop_after; /* executed runs; 0: never */
    int stop_in;    /* calls of is_cancelled during a run; 0: never */
    int calls;
    int messages, warnings;
    char warning[512]; /* the last one */
    char message[512]; /* the first one */
} observer;

static void on_progress(void *ctx, const sfp_experiment_progress *p)
{
    observer *w = ctx;
    assert_int_equal(p->size, sizeof *p);
    assert_true(p->cell && *p->cell && p->repetition >= 1 && (p->eta >= 0 || (isnan(p->eta) && w->executed == 0)) &&
                p->done >= w->last_done && p->done <= p->total);
    w->last_done = p->done;
    w->total = p->total;
    w->calls = 0;
    if (!p->finished) {
        w->begun++;
        return;
    }
    w->ended++;
    w->executed += p->seconds > 0;
    assert_true(isnan(p->accuracy) || (p->accuracy >= 0 && p->accuracy <= 1));
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    observer *w = ctx;
    w->messages++;
    if (!*w->message)
        (void)snprintf(w->message, sizeof w->message, "%s", message);
    if (level != SFP_LOG_WARNING)
        return;
    w->warnings++;
    (void)snprintf(w->warning, sizeof w->warning, "%s", message);
}

static int is_cancelled(void *ctx)
{
    observer *w = ctx;
    bool stop = w->begun > w->ended && w->stop_in && ++w->calls >= w->stop_in;
    return stop || (w->stop_after && w->executed >= w->stop_after);
}

static sfp_experiment_options lab_options(const char *out, observer *w)
{
    sfp_experiment_options o = SFP_EXPERIMENT_OPTIONS_INIT;
    o.out = in_directory(out);
    o.seeds = 2;
    o.no_cache = 1;
    o.progress = on_progress;
    o.log = on_log;
    o.cancelled = is_cancelled;
    o.ctx = w;
    return o;
}

/* Runs the sweep to its end and returns its JSON. */
static char *sweep(const char *out, const char *check, observer *w)
{
    sfp_experiment_options o = lab_options(out, w);
    char *json = NULL;
    o.check = check;
    MUST(sfp_sweep(2, grids, lab_settings(), &o, &json, &err));
    assert_non_null(json);
    return keep_text(json);
}

static int count_parts(const char *text, const char *part)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part))
        n++;
    return n;
}

/* The value of "key" behind `from`; the JSON has blanks behind colons or not. */
static double number_behind(const char *from, const char *key)
{
    const char *at = strstr(from, kept_print("\"%s\":", key));
    assert_non_null(at);
    return strtod(at + strlen(key) + 3, NULL);
}

/* Compares the accuracies and forgetting of all cells, in their order. */
static void check_same_numbers(const char *first, const char *second)
{
    for (int i = 0; i < CELLS; i++) {
        first = strstr(first, "\"values\":");
        second = strstr(second, "\"values\":");
        assert_true(first && second);
        assert_true(number_behind(first, "Acc") == number_behind(second, "Acc"));
        assert_true(number_behind(first, "Fgt") == number_behind(second, "Fgt"));
        first++;
        second++;
    }
}

/* --------------------------------------------------------------------------------------------------------------- sweeps */

TEST(a_sweep_has_every_combination_with_every_seed)
{
    observer w = {0};
    const char *json = sweep("sweep", NULL, &w);
    assert_int_equal(count_parts(json, "\"values\":"), CELLS);
    assert_int_equal(count_parts(json, "\"done\""), CELLS);
    assert_int_equal(count_parts(json, "sigma 0.25"), CELLS / 2);
    assert_int_equal(count_parts(json, "buffer er"), CELLS / 2);
    assert_int_equal(w.executed, CELLS);
    assert_int_equal(w.begun, CELLS);
    assert_int_equal(w.total, CELLS);
    assert_int_equal(w.last_done, CELLS);
    for (const char *s = json; (s = strstr(s, "\"values\":")); s++) {
        double accuracy = number_behind(s, "Acc");
        assert_true(accuracy >= 0 && accuracy <= 1);
    }
}

TEST(a_sweep_writes_tables_results_and_a_page)
{
    observer w = {0};
    const char *json = sweep("sweep", NULL, &w);
    const char *const names[] = {"index.html",       "results.json",     "plan.json",       "tables/sweep.md",
                                 "tables/sweep.csv", "tables/sweep.tex", "tables/sweep.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!file_exists(kept_print("sweep/%s", names[i])))
            fail_msg("there is no %s", names[i]);
    assert_string_equal(file_text(in_directory("sweep/results.json")), json);
    HOLDS(file_text(in_directory("sweep/tables/sweep.txt")), "sigma 0.25", "sigma 0.5", "buffer er", "buffer streamfp", "Acc");
    HOLDS(file_text(in_directory("sweep/index.html")), "sigma 0.25", "buffer streamfp", "</html>");
}

TEST(a_second_call_runs_nothing_again)
{
    observer w = {0}, again = {0};
    const char *json = sweep("sweep", NULL, &w);
    check_same_numbers(json, sweep("sweep", NULL, &again));
    assert_int_equal(again.executed, 0);
    assert_int_equal(again.ended, CELLS);
}

TEST(a_cancelled_sweep_continues_with_the_same_numbers)
{
    observer whole = {0}, first = {.stop_after = 3}, second = {0};
    const char *json = sweep("whole", NULL, &whole);
    sfp_experiment_options o = lab_options("parts", &first);
    REFUSED(sfp_sweep(2, grids, lab_settings(), &o, NULL, &err), SFP_ECANCELLED, "continues");
    assert_int_equal(first.executed, 3);
    check_same_numbers(json, sweep("parts", NULL, &second));
    assert_int_equal(second.executed, CELLS - 3);
}

/* Changes one byte of the values at the end of a file of weights. */
static void change_weights(const char *name)
{
    FILE *f = fopen(in_directory(name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -2, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -2, SEEK_END), 0);
    assert_true(fputc(byte ^ 0x10, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

TEST(results_of_another_backbone_are_not_used_again)
{
    observer w = {0}, again = {0}, third = {0};
    (void)sweep("out", NULL, &w);
    change_weights("backbone/model.safetensors");
    (void)sweep("out", NULL, &again);
    assert_int_equal(again.executed, CELLS);
    assert_int_equal(again.messages, w.messages + 1); /* one for all cells */
    HOLDS(again.message, "another backbone, other data or another version", "computed again");
    (void)sweep("out", NULL, &third);
    assert_int_equal(third.executed, 0);
}

TEST(results_of_another_version_are_not_used_again)
{
    observer w = {.stop_after = 2}, again = {0};
    sfp_experiment_options o = lab_options("out", &w);
    REFUSED(sfp_sweep(2, grids, lab_settings(), &o, NULL, &err), SFP_ECANCELLED, "cancelled");
    static const char *const change = "sed -i 's/version /version 0./' '%s'/cells/*/inputs";
    assert_int_equal(system(kept_print(change, in_directory("out"))), 0); /* NOLINT(cert-env33-c): a path of the test itself */
    (void)sweep("out", NULL, &again);
    assert_int_equal(again.executed, CELLS);
}

/* Writes the training part of an IDX dataset: 40 images of one shade, in 4 classes. */
static void put_idx(const char *name, uint8_t shade)
{
    enum { COUNT = 40, PIXELS = 8 };
    struct {
        uint8_t head[16], pixels[COUNT * PIXELS * PIXELS];
    } images = {.head = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, PIXELS, 0, 0, 0, PIXELS}};
    struct {
        uint8_t head[8], label[COUNT];
    } labels = {.head = {0, 0, 8, 1, 0, 0, 0, COUNT}};
    memset(images.pixels, shade, sizeof images.pixels);
    for (int i = 0; i < COUNT; i++)
        labels.label[i] = (uint8_t)(i % 4);
    put_bytes(kept_print("%s/train-images-idx3-ubyte", name), &images, sizeof images);
    put_bytes(kept_print("%s/train-labels-idx1-ubyte", name), &labels, sizeof labels);
}

/* Processing times depend on backbone and data, too. */
TEST(times_of_other_data_are_measured_again)
{
    observer w = {0}, again = {0}, other = {0};
    sfp_experiment_options o = lab_options("out", &w);
    sfp_settings *s = lab_settings();
    put_idx("photos", 10);
    MUST(sfp_settings_set(s, "data", kept_print("idx:%s", in_directory("photos")), &err));
    o.seeds = 1;
    o.orders = -1;
    o.calibrate = 1;
    MUST(sfp_experiment("throughput", s, &o, NULL, &err));
    HOLDS(w.message, "measuring the processing time");
    o.ctx = &again;
    MUST(sfp_experiment("throughput", s, &o, NULL, &err));
    assert_int_equal(again.messages, 0);
    o.ctx = &other;
    put_idx("photos", 20); /* the same labels, other pixels */
    MUST(sfp_experiment("throughput", s, &o, NULL, &err));
    assert_int_equal(other.messages, w.messages + 1);
}

TEST(a_dry_run_lists_the_runs_and_writes_nothing)
{
    observer w = {0};
    sfp_experiment_options o = lab_options("sweep", &w);
    char *json = NULL;
    o.dry_run = 1;
    MUST(sfp_sweep(2, grids, lab_settings(), &o, &json, &err));
    assert_int_equal(count_parts(keep_text(json), "\"waiting\""), CELLS);
    assert_int_equal(count_parts(json, "\"estimate\":null"), CELLS); /* unknown */
    assert_false(file_exists("sweep"));
    assert_false(file_exists("runs.db"));
    assert_int_equal(w.begun, 0);
}

TEST(one_grid_makes_rows_and_the_json_is_optional)
{
    observer w = {0};
    sfp_experiment_options o = lab_options("sweep", &w);
    o.seeds = 0; /* 3 of a sweep */
    MUST(sfp_sweep(1, STRINGS("method=ncm,slda"), lab_settings(), &o, NULL, &err));
    assert_int_equal(w.executed, 2 * 3);
    HOLDS(file_text(in_directory("sweep/tables/sweep.txt")), "method ncm", "method slda");
}

/* ------------------------------------------------------------------------------------------------------------- checking */

/* Writes a copy of a results.json with another value of the first accuracy. */
static void change_first_accuracy(const char *from, const char *to)
{
    char *text = file_text(in_directory(from)), *at = strstr(text, "\"Acc\":");
    assert_non_null(at);
    const char *rest = at + strcspn(at, ",}");
    *at = '\0';
    put_text(to, kept_print("%s\"Acc\":0.987654321%s", text, rest));
}

TEST(a_check_passes_on_the_same_numbers_and_fails_on_others)
{
    observer w = {0}, same = {0}, other = {0};
    (void)sweep("then", NULL, &w);
    (void)sweep("now", in_directory("then/results.json"), &same);
    assert_int_equal(same.warnings, 0);
    assert_int_equal(same.executed, CELLS); /* it has repeated them */
    change_first_accuracy("then/results.json", "changed.json");
    sfp_experiment_options o = lab_options("now", &other);
    o.check = in_directory("changed.json");
    REFUSED(sfp_sweep(2, grids, lab_settings(), &o, NULL, &err), SFP_EINVAL, "1 of 24 numbers have moved");
    assert_int_equal(other.warnings, 1);
    HOLDS(other.warning, "repetition 1", "Acc was");
}

TEST(a_check_needs_the_same_cells)
{
    observer w = {0}, other = {0};
    (void)sweep("then", NULL, &w);
    sfp_experiment_options o = lab_options("now", &other);
    o.check = in_directory("then/results.json");
    REFUSED(sfp_sweep(1, STRINGS("method=ncm,slda"), lab_settings(), &o, NULL, &err), SFP_EINVAL, "no number could be compared");
    o.check = in_directory("missing.json");
    REFUSED(sfp_sweep(2, grids, lab_settings(), &o, NULL, &err), SFP_ENOTFOUND, "missing.json");
    put_text("other.json", "{}");
    o.check = in_directory("other.json");
    REFUSED(sfp_sweep(2, grids, lab_settings(), &o, NULL, &err), SFP_EFORMAT, "not a results.json");
}

/* --------------------------------------------------------------------------------------------------------- wrong arguments */

TEST(wrong_grids_are_refused_with_their_reason)
{
    observer w = {0};
    const sfp_experiment_options o = lab_options("sweep", &w);
    static const struct {
        const char *grid, *part, *key;
    } rows[] = {
        {"sigma", "expected KEY=VALUE", "grid"},
        {"=0.5", "expected KEY=VALUE", "grid"},
        {"sigma=", "expected KEY=VALUE", "grid"},
        {"sigma=0.2,,0.5", "separated by commas", "grid"},
        {"sigma=0.2, 0.5", "without blanks", "grid"},
        {"seed=1,2", "seed", "grid"},
        {"out=a,b", "out", "grid"},
        {"sigma=0.2,abc", "sigma abc", ""},
        {"sgima=0.2,0.5", "sgima", ""},
        {"data=folder:/nonexistent", "/nonexistent", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sfp_status status = sfp_sweep(1, &rows[i].grid, lab_settings(), &o, NULL, &err);
        if (status == SFP_OK || !strstr(err.message, rows[i].part))
            fail_msg("%s: status %d, %s", rows[i].grid, status, err.message);
        if (*rows[i].key) {
            assert_int_equal(status, SFP_EINVAL);
            assert_string_equal(err.key, rows[i].key);
        }
    }
    REFUSED(sfp_sweep(0, grids, NULL, &o, NULL, &err), SFP_EINVAL, "expected 1 to 8 grids");
    REFUSED(sfp_sweep(2, STRINGS("sigma=0.2,0.5", "sigma=0.1"), NULL, &o, NULL, &err), SFP_EINVAL, "sigma is given twice");
    REFUSED(sfp_sweep(2, NULL, NULL, &o, NULL, &err), SFP_EINVAL, "grids must not be NULL");
}

TEST(a_wrong_value_is_found_before_anything_runs)
{
    observer w = {0};
    const sfp_experiment_options o = lab_options("sweep", &w);
    REFUSED(sfp_sweep(1, STRINGS("sigma=0.2,0.5,abc"), lab_settings(), &o, NULL, &err), SFP_EINVAL, "sigma abc");
    REFUSED(sfp_sweep(1, STRINGS("precision=f32,f31"), lab_settings(), &o, NULL, &err), SFP_EINVAL, "precision f31");
    assert_int_equal(w.executed, 0);
}

TEST(files_of_the_user_are_not_replaced)
{
    static const char *const names[] = {"a/index.html", "b/results.json", "c/plan.json", "d/tables/sweep.tex",
                                        "e/tables/sweep.svg"};
    static const char text[] = "{\"key\": 1}\n";
    observer w = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char out[] = {names[i][0], 0};
        const sfp_experiment_options o = lab_options(out, &w);
        put_text(names[i], text);
        REFUSED(sfp_sweep(1, STRINGS("sigma=0.2,0.5"), lab_settings(), &o, NULL, &err), SFP_EINVAL,
                kept_print("%s exists and is not of an experiment", names[i]));
        put_text("expected", text);
        check_same_bytes(in_directory("expected"), in_directory(names[i]));
    }
    assert_int_equal(w.executed, 0);
}

TEST(unknown_experiments_are_refused)
{
    observer w = {0};
    const sfp_experiment_options o = lab_options("out", &w);
    const char *const names[] = {"E99", "", "E3,,E4", "E", "e3", ","};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        REFUSED_AS(names[i], sfp_experiment(names[i], NULL, &o, NULL, &err), SFP_EINVAL, "E3, ");
        assert_string_equal(err.key, "experiment");
    }
    REFUSED(sfp_experiment(NULL, NULL, &o, NULL, &err), SFP_EINVAL, "names must not be NULL");
    assert_false(file_exists("out"));
}

TEST(wrong_options_are_refused)
{
    observer w = {0};
    sfp_experiment_options o = lab_options("out", &w);
    o.out = NULL;
    REFUSED(sfp_experiment("E3", NULL, &o, NULL, &err), SFP_EINVAL, "out must name a directory");
    assert_string_equal(err.key, "out");
    o.out = "";
    REFUSED(sfp_sweep(2, grids, NULL, &o, NULL, &err), SFP_EINVAL, "out must name a directory");
    o = lab_options("out", &w);
    o.seeds = 65;
    REFUSED(sfp_sweep(2, grids, NULL, &o, NULL, &err), SFP_ELIMIT, "more than 64");
    o.seeds = -1;
    REFUSED(sfp_sweep(2, grids, NULL, &o, NULL, &err), SFP_EINVAL, "must not be negative");
    o = lab_options("out", &w);
    o.size = 3;
    REFUSED(sfp_sweep(2, grids, NULL, &o, NULL, &err), SFP_EINVAL, "size");
    o = lab_options("out", &w);
    REFUSED(sfp_sweep(2, grids, SETTINGS("out", in_directory("mine")), &o, NULL, &err), SFP_EINVAL, "out has no effect");
    assert_string_equal(err.key, "out");
    REFUSED(sfp_sweep(2, grids, NULL, NULL, NULL, &err), SFP_EINVAL, "out");
    sfp_settings *pretraining = NULL;
    MUST(sfp_pretrain_settings_create(&pretraining, &err));
    REFUSED(sfp_sweep(2, grids, pretraining, &o, NULL, &err), SFP_EINVAL, "settings are those of a pretraining");
    REFUSED(sfp_experiment("E3", pretraining, &o, NULL, &err), SFP_EINVAL, "settings are those of a pretraining");
    sfp_settings_free(pretraining);
    assert_false(file_exists("out"));
}

/* ----------------------------------------------------------------------------------------------------------- experiments */

TEST(experiments_are_listed)
{
    const char *name = NULL, *title = NULL, *question = NULL;
    bool found = false;
    int count = 0;
    for (; sfp_experiment_info(count, &name, &title, &question); count++) {
        assert_true(*name && *title && question[strlen(question) - 1] == '?');
        found = found || strcmp(name, "E3") == 0;
    }
    assert_true(found && count >= 20);
    assert_int_equal(sfp_experiment_info(0, NULL, NULL, NULL), 1);
    assert_int_equal(sfp_experiment_info(-1, &name, NULL, NULL), 0);
    assert_int_equal(sfp_experiment_info(count, &name, NULL, NULL), 0);
}

/* E9 has three rows and one column; its arrival rate follows from a measured time. */
TEST(an_experiment_measures_once_and_repeats_its_numbers_elsewhere)
{
    observer w = {0}, again = {0};
    sfp_experiment_options o = lab_options("first", &w);
    const sfp_settings *s = TRAINED("data", "synthetic:200", "tasks", "2", "buffer-size", "8", "eval-limit", "4", "threads", "1",
                                    "backbone", in_directory("backbone/model.safetensors"));
    char *json = NULL;
    o.seeds = 1;
    o.orders = 2;
    o.calibrate = 1;
    o.command = "the test";
    MUST(sfp_experiment("E9", s, &o, &json, &err));
    assert_int_equal(count_parts(keep_text(json), "\"values\":"), 3 * 2);
    assert_int_equal(w.executed, 3 * 2);
    assert_true(number_behind(json, "rate") > 0 && number_behind(json, "batch_seconds") > 0);
    HOLDS(file_text(in_directory("first/tables/E9.md")), "Algorithm 2", "Equation 8");
    o = lab_options("second", &again);
    o.seeds = 1;
    o.orders = 2;
    o.check = in_directory("first/results.json"); /* it contains the measured times */
    MUST(sfp_experiment("E9", s, &o, NULL, &err));
    assert_int_equal(again.warnings, 0);
    assert_int_equal(again.executed, 3 * 2);
}

/* The settings have a buffer size, which closed-form heads and two of the four other rows of E6 do not have. */
TEST(a_setting_applies_to_the_methods_that_have_it)
{
    observer w = {0};
    sfp_experiment_options o = lab_options("out", &w);
    o.seeds = 1;
    o.orders = -1; /* no class orders: one repetition */
    o.calibrate = 1;
    MUST(sfp_experiment("E6", lab_settings(), &o, NULL, &err));
    assert_int_equal(w.ended, 4 + 4);
    observer other = {0};
    sfp_settings *s = lab_settings();
    MUST(sfp_settings_set(s, "grow-by", "2", &err));
    o.ctx = &other;
    REFUSED(sfp_experiment("E9", s, &o, NULL, &err), SFP_EINVAL, "grow-by has no effect with tasks 2");
    o.orders = -2;
    REFUSED(sfp_experiment("E9", lab_settings(), &o, NULL, &err), SFP_EINVAL, "must not be negative");
}

/* Runs resume without the settings they do not have, too. */
TEST(an_experiment_stopped_in_every_run_continues)
{
    sfp_status status = SFP_ECANCELLED;
    int stopped = 0, executed = 0;
    for (; status == SFP_ECANCELLED && stopped < 1000; stopped++) {
        observer w = {.stop_in = 3};
        sfp_experiment_options o = lab_options("out", &w);
        o.seeds = 1;
        o.orders = -1;
        o.calibrate = 1;
        status = sfp_experiment("E6", lab_settings(), &o, NULL, &err);
        if (status && status != SFP_ECANCELLED)
            fail_msg("%s", err.message);
        executed += w.executed;
    }
    assert_int_equal(status, SFP_OK);
    assert_int_equal(executed, 4 + 4);
    assert_true(stopped > 4 + 4);
}

/* -------------------------------------------------------------------------------------------- batches and their time */

TEST(a_run_knows_its_batches)
{
    int64_t samples = -1, sum = 0;
    sfp_run *run = open_run(random_engine(), SETTINGS("data", "synthetic:50", "tasks", "2", "batch", "8"), NULL);
    for (int t = 0; t < 2; t++) {
        assert_true(sfp_run_batches(run, t, &samples) > 0);
        assert_int_equal(sfp_run_batches(run, t, NULL), (samples + 7) / 8);
        sum += samples;
    }
    int64_t all = sfp_run_batches(run, -1, &samples);
    assert_int_equal(samples, sum);
    assert_int_equal(all, sfp_run_batches(run, 0, NULL) + sfp_run_batches(run, 1, NULL));
    assert_int_equal(sfp_run_batches(run, 2, &samples), 0);
    assert_int_equal(samples, 0);
    assert_int_equal(sfp_run_batches(run, -2, NULL), 0);
    sfp_run_close(run);
}

TEST(measuring_does_not_change_the_run)
{
    sfp_engine *e = random_engine();
    double seconds = 0;
    run_all(e, run_settings("plain"));
    sfp_run *run = open_run(e, run_settings("measured"), NULL);
    MUST(sfp_run_measure(run, &seconds, &err));
    assert_true(seconds > 0 && seconds < 60);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
    check_same_state("plain", "measured");
}

TEST(measuring_after_the_first_step_is_refused)
{
    sfp_run *run = open_run(random_engine(), run_settings("run"), NULL);
    double seconds;
    int more;
    MUST(sfp_run_step(run, &more, &err));
    REFUSED(sfp_run_measure(run, &seconds, &err), SFP_EINVAL, "before the first step");
    sfp_run_close(run);
}
