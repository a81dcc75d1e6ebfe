/* Experiments: settings of cells, arrival rates, grids, the paper's figures and claims. tests/run/experiment runs all of them. */
#include "experiment/experiment.h"
#include "experiment/sweep.h"
#include "io/directory.h"
#include "io/file.h"

#include "temp_directory.h"
#include "test.h"

KEEP_BY(keep_strings, sfp__strings, sfp__strings_done)

static sfp__strings *settings_of(const char *text)
{
    sfp__strings *list = kept_calloc(1, sizeof *list);
    MUST(sfp__settings_add(keep_strings(list), text, &err));
    return list;
}

/* ------------------------------------------------------------------------------------------------------------- settings */

TEST(later_settings_replace_earlier_ones)
{
    sfp__strings *list = settings_of("sigma=0.5 buffer=er");
    MUST(sfp__settings_add(list, "  buffer=gss   batch=20 ", &err));
    assert_int_equal(list->count, 3);
    assert_string_equal(sfp__settings_value(list, "sigma"), "0.5");
    assert_string_equal(sfp__settings_value(list, "buffer"), "gss");
    assert_string_equal(sfp__settings_value(list, "batch"), "20");
    assert_null(sfp__settings_value(list, "buffer-size")); /* "buffer" is a part of it */
    MUST(sfp__settings_add(list, "buffer-size=5", &err));
    assert_string_equal(sfp__settings_value(list, "buffer"), "gss");
    MUST(sfp__settings_add(list, NULL, &err));
    assert_int_equal(list->count, 4);
}

TEST(values_may_contain_blanks_and_equal_signs)
{
    sfp__strings *list = settings_of("");
    MUST(sfp__setting_print(list, &err, "data=folder:%s", "my photos/a=b"));
    assert_string_equal(sfp__settings_value(list, "data"), "folder:my photos/a=b");
    MUST(sfp__setting_put(list, "data=idx:xyz", 10, &err));
    assert_int_equal(list->count, 1);
    assert_string_equal(sfp__settings_value(list, "data"), "idx:x");
}

TEST(removed_settings_are_gone)
{
    sfp__strings *list = settings_of("a=1 seed=2 b=3 seeds=4");
    sfp__settings_remove(list, "seed");
    sfp__settings_remove(list, "c");
    assert_int_equal(list->count, 3);
    assert_null(sfp__settings_value(list, "seed"));
    assert_string_equal(sfp__settings_value(list, "b"), "3");
    assert_string_equal(sfp__settings_value(list, "seeds"), "4");
}

static const char *key_of(const char *settings)
{
    char key[17];
    sfp__settings_key(settings_of(settings), key);
    assert_int_equal(strlen(key), 16);
    return kept_print("%s", key);
}

TEST(a_key_depends_on_all_that_changes_a_result)
{
    const char *key = key_of("a=1 b=2");
    assert_string_equal(key_of("b=2 a=1"), key);
    assert_string_equal(key_of("threads=2 b=2 cache=dir a=1"), key); /* these change no number */
    assert_string_not_equal(key_of("a=1 b=3"), key);
    assert_string_not_equal(key_of("a=1"), key);
    assert_string_not_equal(key_of("a=2 b=1"), key);
}

TEST(wrong_settings_of_a_cell_are_named)
{
    MUST(sfp__cell_settings_check(settings_of("sigma=0.5 threads=1 backbone=builtin"), &err));
    REFUSED(sfp__cell_settings_check(settings_of("sigma=abc"), &err), SFP_EINVAL, "abc");
    REFUSED(sfp__cell_settings_check(settings_of("sgima=0.5"), &err), SFP_EINVAL, "sgima");
    REFUSED(sfp__cell_settings_check(settings_of("precision=f31"), &err), SFP_EINVAL, "f31");
    REFUSED(sfp__cell_settings_check(settings_of("sigma"), &err), SFP_EINVAL, "KEY=VALUE");
}

/* -------------------------------------------------------------------------------------------------------- arrival rates */

#define COST(...) cost_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
static sfp__cost cost_of(size_t tasks, int64_t *batches)
{
    sfp__cost c = {.seconds = 0.1, .tasks = (int)tasks, .task_batches = kept_malloc(tasks * sizeof *batches)};
    memcpy(c.task_batches, batches, tasks * sizeof *batches);
    for (size_t t = 0; t < tasks; t++)
        c.batches += batches[t];
    return c;
}

static int64_t kept_at(const sfp__cost *c, double cs)
{
    int64_t sum = 0;
    for (int t = 0; t < c->tasks; t++)
        sum += (int64_t)floor((double)c->task_batches[t] / cs);
    return sum;
}

/* Stream-51: 7535 batches in 5 tasks, of which StreamFP trains on 92, 46 and 18. */
TEST(the_paper_s_stream_is_overloaded_about_80_times)
{
    const int wanted[] = {92, 46, 18};
    sfp__cost c = COST(1675, 1420, 1560, 1390, 1490);
    assert_int_equal(c.batches, 7535);
    for (int i = 0; i < 3; i++) {
        double cs = sfp__cost_solve(&c, wanted[i]);
        assert_true(kept_at(&c, cs) >= wanted[i]);
        assert_true(kept_at(&c, cs * (1 + 1e-8)) >= wanted[i]);             /* also with a rounded rate */
        assert_true(kept_at(&c, cs * 1.0001) < wanted[i]);                  /* it is the largest */
        assert_true(cs * wanted[i] <= 7535 && cs * wanted[i] > 0.8 * 7535); /* each task loses a part of a batch */
    }
    double cs = sfp__cost_solve(&c, 92);
    assert_true(cs > 77 && cs < 83);
    sfp__cost equal = COST(1507, 1507, 1507, 1507, 1507);
    assert_true(fabs(sfp__cost_solve(&equal, 92) - 1507.0 / 19) < 1e-3); /* 5 x 18 batches are too few */
}

TEST(every_task_trains_on_two_batches)
{
    sfp__cost c = COST(1000, 40, 1000);
    assert_true(fabs(sfp__cost_solve(&c, 18) - 20) < 1e-3);
    sfp__cost none = COST(1000, 1, 1000); /* not possible: all batches */
    assert_true(fabs(sfp__cost_solve(&none, 18) - 1) < 1e-6);
}

TEST(a_short_stream_trains_on_a_share_of_its_batches)
{
    sfp__cost c = COST(10, 10);
    assert_true(fabs(sfp__cost_solve(&c, 92) - 2) < 1e-3);        /* a half */
    assert_true(fabs(sfp__cost_solve(&c, 46) - 10.0 / 3) < 1e-3); /* a quarter of 20 is 5: 3 per task */
    sfp__cost one = COST(1);
    assert_true(fabs(sfp__cost_solve(&one, 92) - 1) < 1e-6);
}

/* ---------------------------------------------------------------------------------------------------------------- grids */

KEEP_BY(keep_sweep, sfp__sweep, sfp__sweep_done)

static sfp__sweep *sweep_of(int count, const char *const *grids)
{
    sfp__sweep *s = kept_calloc(1, sizeof *s);
    MUST(sfp__sweep_init(keep_sweep(s), count, grids, &err));
    return s;
}

TEST(the_last_grid_makes_the_columns)
{
    const char *const rows[] = {"sigma=0.2 buffer=er", "sigma=0.2 buffer=gss", "sigma=0.5 buffer=er", "sigma=0.5 buffer=gss"};
    const sfp__sweep *s = sweep_of(3, STRINGS("sigma=0.2,0.5", "buffer=er,gss", "rate=10,20,40"));
    assert_int_equal(s->row_count, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(s->rows[i].settings, rows[i]);
    assert_string_equal(s->rows[1].name, "sigma 0.2, buffer gss");
    assert_int_equal(s->column_count, 3);
    assert_string_equal(s->columns[2].name, "rate 40");
    assert_string_equal(s->columns[2].settings, "rate=40");
    assert_true(s->experiment.numeric_columns);
    assert_ptr_equal(s->experiment.rows, s->rows);
}

TEST(one_grid_makes_rows)
{
    const sfp__sweep *s = sweep_of(1, STRINGS("method=ncm,slda"));
    assert_int_equal(s->row_count, 2);
    assert_string_equal(s->rows[1].name, "method slda");
    assert_int_equal(s->column_count, 1);
    assert_string_equal(s->columns[0].name, "");
    assert_string_equal(s->columns[0].settings, "");
    assert_false(sweep_of(2, STRINGS("sigma=1", "method=ncm,slda"))->experiment.numeric_columns);
    assert_int_equal(sweep_of(1, STRINGS("data=synthetic:9"))->row_count, 1);
}

static void check_refused(int count, const char *const *grids, sfp_status status, const char *part)
{
    sfp__sweep s;
    err = (sfp_error){0};
    sfp_status got = sfp__sweep_init(&s, count, grids, &err);
    sfp__sweep_done(&s);
    if (got != status || !strstr(err.message, part) || strcmp(err.key, "grid") != 0)
        fail_msg("%s: status %d, key '%s', %s", grids[0], got, err.key, err.message);
}

/* "KEY=0,1,...", with n values */
static const char *numbers(const char *key, int n)
{
    const char *text = kept_print("%s=0", key);
    for (int i = 1; i < n; i++)
        text = kept_print("%s,%d", text, i);
    return text;
}

TEST(wrong_grids_are_refused)
{
    const char *const bad[][2] = {{"sigma", "expected KEY=VALUE"},          {"=1", "expected KEY=VALUE"},
                                  {"sigma=", "expected KEY=VALUE"},         {"sigma=1,", "separated by commas"},
                                  {"sigma=,1", "separated by commas"},      {"sigma=1 2", "without blanks"},
                                  {"seed=1,2", "seed is set by the sweep"}, {"resume=on", "resume is set by the sweep"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(1, &bad[i][0], SFP_EINVAL, bad[i][1]);
    check_refused(2, STRINGS("sigma=1,2", "sigma=3"), SFP_EINVAL, "sigma is given twice");
    check_refused(1, STRINGS("sigma=1,2,1"), SFP_EINVAL, "the value 1 of sigma is given twice");
    check_refused(0, STRINGS("sigma=1"), SFP_EINVAL, "expected 1 to 8");
    check_refused(9, STRINGS("a=1", "b=1", "c=1", "d=1", "e=1", "f=1", "g=1", "h=1", "i=1"), SFP_EINVAL, "expected 1 to 8");
    check_refused(1, STRINGS(numbers("sigma", 1025)), SFP_EINVAL, "more than 1024 values");
    check_refused(3, STRINGS(numbers("a", 65), numbers("b", 64), "c=1"), SFP_ELIMIT, "more than 4096 combinations");
}

/* --------------------------------------------------------------------------------------------------- the paper's figures */

/* The figures as the library has them. */
static const struct figure {
    const char *table, *row, *group;
    double value[3], spread[2]; /* Acc, Fgt, Runtime */
} figures[] = {
#define NONE NAN
#define X(table, row, group, accuracy, accuracy_spread, forgetting, forgetting_spread, runtime) \
    {table, row, group, {accuracy, forgetting, runtime}, {accuracy_spread, forgetting_spread}},
#include "experiment/paper_numbers.inc"
#undef X
};
enum { FIGURES = (int)(sizeof figures / sizeof *figures) };

TEST(figures_are_found_by_table_row_group_and_metric)
{
    double value, spread;
    assert_true(sfp__paper_number("E2", "StreamFP", "Stream-51", "Runtime", &value, &spread) && value == 2049.52 &&
                isnan(spread));
    assert_true(sfp__paper_number("E3", "StreamFP", "lambda 6028", "Acc", &value, &spread) && fabs(value - 0.6444) < 1e-12);
    assert_true(sfp__paper_number("E4", "StreamFP", "Overall", "Acc", &value, &spread) && fabs(spread - 0.0178) < 1e-12);
    assert_false(sfp__paper_number("E1-buffer", "GSS", "Clear10", "Acc", &value, &spread)); /* a dash */
    assert_true(isnan(value) && isnan(spread));
    assert_false(sfp__paper_number("E3", "StreamFP", "lambda 6028", "Runtime", &value, &spread));
    assert_false(sfp__paper_number("E3", "StreamFP", "lambda 6028", "Preq", &value, &spread));
    assert_false(sfp__paper_number("E3", "ncm", "lambda 6028", "Acc", &value, &spread));
    assert_false(sfp__paper_number("E9", "StreamFP", "lambda 6028", "Acc", &value, &spread));
}

TEST(no_figure_is_listed_twice)
{
    for (int i = 0; i < FIGURES; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(figures[i].table, figures[k].table) == 0 && strcmp(figures[i].row, figures[k].row) == 0 &&
                strcmp(figures[i].group, figures[k].group) == 0)
                fail_msg("%s %s %s", figures[i].table, figures[i].row, figures[i].group);
}

/* A line of the tables: table,section,row,group,column,value,pm,bold. No field contains a comma. */
typedef struct csv_line {
    char field[8][96];
} csv_line;

static bool read_csv_line(FILE *f, csv_line *out)
{
    char text[512];
    if (!fgets(text, sizeof text, f))
        return false;
    text[strcspn(text, "\r\n")] = '\0';
    const char *s = text;
    for (int i = 0; i < 8; i++) {
        size_t n = strcspn(s, ",");
        assert_true(n < sizeof out->field[i] && (i == 7 ? s[n] == '\0' : s[n] == ','));
        memcpy(out->field[i], s, n);
        out->field[i][n] = '\0';
        s += n + 1;
    }
    return true;
}

static const char *table_of(const char *file, const csv_line *l)
{
    if (file[0] != 'E')
        return file;
    if (strcmp(file, "E1") == 0)
        return strncmp(l->field[1], "Coreset", 7) == 0 ? "E1-select" : "E1-buffer";
    return file;
}

static const char *group_of(const char *text)
{
    if (strncmp(text, "lambda=", 7) == 0)
        return kept_print("lambda %s", text + 7);
    if (strncmp(text, "order", 5) == 0)
        return kept_print("order %s", text + 5);
    return text;
}

/* Compares one line; returns the number of figures that it has (value and spread). */
static int check_line(const char *file, const csv_line *l)
{
    double value, spread, unit = strcmp(l->field[4], "Runtime") == 0 ? 1 : 100;
    const char *name = kept_print("%s %s %s %s", table_of(file, l), l->field[2], l->field[3], l->field[4]);
    bool found = sfp__paper_number(table_of(file, l), l->field[2], group_of(l->field[3]), l->field[4], &value, &spread);
    if (strcmp(l->field[5], "-") == 0) {
        if (found)
            fail_msg("%s: %g, expected a dash", name, value);
        return 0;
    }
    if (!found || fabs(value * unit - strtod(l->field[5], NULL)) > 1e-9)
        fail_msg("%s: %.10g, expected %s", name, value * unit, l->field[5]);
    if (*l->field[6] ? fabs(spread * unit - strtod(l->field[6], NULL)) > 1e-9 : !isnan(spread))
        fail_msg("%s: +- %.10g, expected '%s'", name, spread * unit, l->field[6]);
    return 1 + (*l->field[6] != '\0');
}

static int count_figures(void)
{
    int n = 0;
    for (int i = 0; i < FIGURES; i++) {
        for (int m = 0; m < 3; m++)
            n += isfinite(figures[i].value[m]);
        n += isfinite(figures[i].spread[0]) + isfinite(figures[i].spread[1]);
    }
    return n;
}

TEST(all_figures_equal_the_tables_of_the_paper)
{
    static const char *const files[][2] = {
        {"E1", "tab2_dsbu_e1"}, {"E2", "tab3a_four_data_e2"}, {"E3", "tab3b_lambda_e3"},   {"E4", "tab3c_class_orders_e4"},
        {"E5", "tab4_skip_e5"}, {"E6", "tab5_ablation_e6"},   {"A2", "tab6_pretrained_a2"}};
    const char *shared = getenv("STREAMFP_SHARED");
    int n = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        csv_line line;
        FILE *f = fopen(kept_print("%s/paper/tables/%s.csv", shared ? shared : "../shared", files[i][1]), "r");
        if (!f)
            skip();
        assert_true(read_csv_line(f, &line) && strcmp(line.field[0], "table") == 0);
        while (read_csv_line(f, &line))
            n += check_line(files[i][0], &line);
        (void)fclose(f);
    }
    assert_int_equal(n, count_figures()); /* the tables have all of them */
    assert_true(n > 500);
}

/* --------------------------------------------------------------------------------------------------------- the catalogue */

static const sfp__experiment *find(const char *name)
{
    int count;
    const sfp__experiment *list = sfp__experiments(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    fail_msg("there is no experiment %s", name);
    return NULL;
}

TEST(settings_and_metrics_of_all_experiments_exist)
{
    int count, closed;
    const sfp__experiment *list = sfp__experiments(&count);
    const sfp__variant *heads = sfp__closed_rows(&closed);
    for (int i = 0; i < count; i++) {
        const sfp__metric *metrics[SFP__METRICS_MAX] = {0};
        int n = sfp__experiment_metrics(&list[i], metrics);
        assert_true(n > 0 && n <= SFP__METRICS_MAX);
        for (int m = 0; m < n; m++)
            if (!metrics[m])
                fail_msg("%s: '%s' has an unknown metric", list[i].name, list[i].metrics);
        for (int r = 0; r < list[i].row_count + closed; r++)
            for (int c = 0; c < list[i].column_count; c++) {
                KEPT_IN_BLOCK;
                const sfp__variant *row = r < list[i].row_count ? &list[i].rows[r] : &heads[r - list[i].row_count];
                sfp__strings *s = settings_of(list[i].settings);
                MUST(sfp__settings_add(s, list[i].columns[c].settings, &err));
                MUST(sfp__settings_add(s, list[i].columns[c].learner, &err));
                MUST(sfp__settings_add(s, row->settings, &err));
                if (sfp__cell_settings_check(s, &err))
                    fail_msg("%s %s %s: %s", list[i].name, row->name, list[i].columns[c].name, err.message);
            }
    }
}

TEST(every_row_of_the_paper_s_tables_is_run)
{
    for (int i = 0; i < FIGURES; i++) {
        const sfp__experiment *e = find(figures[i].table);
        bool found = false;
        for (int r = 0; r < e->row_count; r++)
            found = found || strcmp(e->rows[r].name, figures[i].row) == 0;
        if (!found)
            fail_msg("%s has no row %s", e->name, figures[i].row);
        assert_string_equal(e->paper, e->name);
    }
}

/* --------------------------------------------------------------------------------------------------------------- claims */

/* A lab with these experiments, whose cells are put below. */
static sfp__lab *lab_of(int repetitions, const char *const *names)
{
    sfp__lab *lab = kept_calloc(1, sizeof *lab);
    lab->repetitions = repetitions;
    for (; names[lab->experiment_count]; lab->experiment_count++)
        continue;
    lab->experiments = kept_calloc((size_t)lab->experiment_count, sizeof *lab->experiments);
    for (int e = 0; e < lab->experiment_count; e++)
        lab->experiments[e] = *find(names[e]);
    lab->cells = kept_calloc(4096, sizeof *lab->cells);
    return lab;
}

static int row_of(const sfp__experiment *e, const char *name)
{
    for (int r = 0; r < e->row_count; r++)
        if (strcmp(e->rows[r].name, name) == 0)
            return r;
    fail_msg("%s has no row %s", e->name, name);
    return -1;
}

static int metric_of(const sfp__experiment *e, const char *name)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    int n = sfp__experiment_metrics(e, list);
    for (int m = 0; m < n; m++)
        if (strcmp(list[m]->name, name) == 0)
            return m;
    fail_msg("%s has no metric %s", e->name, name);
    return -1;
}

static sfp__cell *cell_at(sfp__lab *lab, int experiment, int row, int column, int repetition)
{
    for (int i = 0; i < lab->cell_count; i++) {
        sfp__cell *c = &lab->cells[i];
        if (c->experiment == experiment && c->row == row && c->column == column && c->repetition == repetition)
            return c;
    }
    assert_true(lab->cell_count < 4096);
    sfp__cell *c = &lab->cells[lab->cell_count++];
    *c = (sfp__cell){.experiment = experiment, .row = row, .column = column, .repetition = repetition, .state = SFP__CELL_DONE};
    for (int m = 0; m < SFP__METRICS_MAX; m++)
        c->value[m] = NAN;
    return c;
}

/* Values of a row of the first experiment, one per repetition. */
#define PUT(lab, row, column, metric, ...) put_values(lab, row, column, metric, (const double[]){__VA_ARGS__})
static void put_values(sfp__lab *lab, const char *row, int column, const char *metric, const double *values)
{
    const sfp__experiment *e = &lab->experiments[0];
    for (int k = 0; k < lab->repetitions; k++)
        cell_at(lab, 0, row_of(e, row), column, k)->value[metric_of(e, metric)] = values[k];
}

static sfp__claim_result claim(const sfp__lab *lab, int number)
{
    sfp__claim_result r;
    for (int i = 0; sfp__claim_test(lab, i, &r); i++)
        if (r.number == number)
            return r;
    fail_msg("there is no claim %d", number);
    return r;
}

static void check_verdict(const sfp__lab *lab, int number, const char *verdict, const char *part)
{
    sfp__claim_result r = claim(lab, number);
    if (!r.tested || strcmp(r.verdict, verdict) != 0 || !strstr(r.numbers, part))
        fail_msg("claim %d: %s (%s), expected %s (%s)", number, r.verdict, r.numbers, verdict, part);
}

static const char yes[] = "holds", no[] = "does not hold", open[] = "cannot be decided here";

TEST(a_difference_is_judged_by_its_interval)
{
    static const struct {
        double er[3];
        const char *verdict, *part;
    } rows[] = {
        {{0.45, 0.44, 0.46}, yes, "+5.00 +- 2.48"},
        {{0.55, 0.56, 0.54}, no, "-5.00 +- 2.48"},
        {{0.45, 0.55, 0.47}, open, "+1.00"},
        {{0.55, 0.45, 0.53}, open, "-1.00"}, /* the interval contains 0 */
        {{0.5, 0.5, 0.5}, no, "+0.00"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sfp__lab *lab = lab_of(3, STRINGS("E2"));
        PUT(lab, "StreamFP", 0, "Acc", 0.5, 0.5, 0.5);
        put_values(lab, "ER*", 0, "Acc", rows[i].er);
        check_verdict(lab, 3, rows[i].verdict, rows[i].part);
    }
}

TEST(with_one_repetition_two_points_decide)
{
    static const struct {
        double er;
        const char *verdict;
    } rows[] = {{0.47, yes}, {0.49, open}, {0.51, open}, {0.53, no}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sfp__lab *lab = lab_of(1, STRINGS("E2"));
        PUT(lab, "StreamFP", 0, "Acc", 0.5);
        PUT(lab, "ER*", 0, "Acc", rows[i].er);
        check_verdict(lab, 3, rows[i].verdict, "StreamFP against ER*");
    }
}

TEST(a_claim_without_its_experiment_is_not_tested)
{
    sfp__claim_result r = claim(lab_of(1, STRINGS("E5")), 3);
    assert_false(r.tested);
    assert_string_equal(r.verdict, open);
    assert_string_equal(r.numbers, "not run (E2)");
    sfp__claim_result none;
    assert_false(sfp__claim_test(lab_of(1, STRINGS("E5")), -1, &none));
    assert_false(sfp__claim_test(lab_of(1, STRINGS("E5")), 1000, &none));
}

/* In the paper a dash counts as an accuracy of 0. */
TEST(a_method_without_time_has_an_accuracy_of_0_but_its_own_runtime)
{
    sfp__lab *lab = lab_of(3, STRINGS("E2"));
    PUT(lab, "StreamFP", 0, "Acc", 0.1, 0.11, 0.12);
    PUT(lab, "ER*", 0, "Acc", 0.9, 0.9, 0.9);
    for (int k = 0; k < 3; k++)
        cell_at(lab, 0, row_of(&lab->experiments[0], "ER*"), 0, k)->state = SFP__CELL_STARVED;
    check_verdict(lab, 3, yes, "+11.00");

    lab = lab_of(1, STRINGS("E1-select"));
    PUT(lab, "StreamFP (w/o buffer)", 0, "Runtime", 100);
    PUT(lab, "Craig", 0, "Runtime", 600);
    cell_at(lab, 0, row_of(&lab->experiments[0], "Craig"), 0, 0)->state = SFP__CELL_STARVED;
    check_verdict(lab, 5, yes, "100.0");
    PUT(lab, "Craig", 0, "Runtime", 60);
    check_verdict(lab, 5, no, "lowest: Craig 60.0");
}

TEST(a_ratio_must_be_in_its_range)
{
    static const struct {
        double camel;
        const char *verdict;
    } rows[] = {{46, yes}, {40, no}, {100, yes}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sfp__lab *lab = lab_of(1, STRINGS("throughput"));
        PUT(lab, "StreamFP", 0, "ms", 10);
        PUT(lab, "Camel", 0, "ms", rows[i].camel);
        check_verdict(lab, 2, rows[i].verdict, "Camel / StreamFP");
    }
}

TEST(a_claim_with_several_checks_needs_all)
{
    sfp__lab *lab = lab_of(1, STRINGS("E1-buffer"));
    PUT(lab, "StreamFP", 0, "Acc", 0.6);
    PUT(lab, "ER", 0, "Acc", 0.5);
    check_verdict(lab, 6, open, "+10.00"); /* forgetting is not known */
    PUT(lab, "StreamFP", 0, "Fgt", 0.01);
    PUT(lab, "ER", 0, "Fgt", 0.05);
    check_verdict(lab, 6, yes, "Fgt StreamFP against ER -4.00");
    PUT(lab, "ER", 0, "Fgt", -0.05);
    check_verdict(lab, 6, no, "+6.00");
}

TEST(the_best_other_method_is_neither_a_head_nor_another_form)
{
    int closed;
    const sfp__variant *heads = sfp__closed_rows(&closed);
    sfp__lab *lab = lab_of(1, STRINGS("E1-select"));
    sfp__experiment *e = &lab->experiments[0];
    sfp__variant *rows = kept_calloc((size_t)(e->row_count + closed), sizeof *rows);
    memcpy(rows, e->rows, (size_t)e->row_count * sizeof *rows);
    memcpy(rows + e->row_count, heads, (size_t)closed * sizeof *rows);
    e->rows = rows;
    e->row_count += closed;
    PUT(lab, "StreamFP (w/o buffer)", 0, "Acc", 0.6);
    PUT(lab, "Camel", 0, "Acc", 0.5);
    PUT(lab, "K-center", 0, "Acc", 0.4);
    PUT(lab, "Camel, weighted", 0, "Acc", 0.9);
    PUT(lab, "ncm", 0, "Acc", 0.8);
    check_verdict(lab, 4, yes, "against Camel +10.00");
    PUT(lab, "K-center", 0, "Acc", 0.58);
    check_verdict(lab, 4, no, "against K-center +2.00"); /* less than 5 points */
}

static void put_margins(sfp__lab *lab, const double *margin)
{
    for (int c = 0; c < 3; c++) {
        PUT(lab, "StreamFP", c, "Acc", 0.5 + margin[c], 0.51 + margin[c], 0.49 + margin[c]);
        PUT(lab, "ER*", c, "Acc", 0.5, 0.51, 0.49);
    }
}

TEST(a_margin_grows_from_the_first_to_the_last_column)
{
    sfp__lab *lab = lab_of(3, STRINGS("E3"));
    put_margins(lab, (const double[]){0.01, 0.02, 0.04});
    check_verdict(lab, 8, yes, "growth +3.00");
    put_margins(lab, (const double[]){0.04, 0.02, 0.01});
    check_verdict(lab, 8, no, "growth -3.00");
}

TEST(spreads_differ_only_if_one_is_a_multiple)
{
    sfp__lab *lab = lab_of(5, STRINGS("E4"));
    PUT(lab, "StreamFP", 0, "Acc", 0.60, 0.61, 0.62, 0.63, 0.64);
    PUT(lab, "ER*", 0, "Acc", 0.40, 0.45, 0.50, 0.55, 0.60);
    check_verdict(lab, 9, yes, "1.58, of ER* 7.91");
    PUT(lab, "ER*", 0, "Acc", 0.60, 0.612, 0.624, 0.636, 0.648);
    check_verdict(lab, 9, open, "F test");
    PUT(lab, "ER*", 0, "Acc", 0.601, 0.602, 0.603, 0.604, 0.605);
    check_verdict(lab, 9, no, "F test");
    check_verdict(lab_of(2, STRINGS("E4")), 9, open, "fewer than 3 repetitions");
}

TEST(the_best_row_rises_with_the_columns)
{
    sfp__lab *lab = lab_of(1, STRINGS("E7-k"));
    const char *const names[] = {"K 1", "K 5", "K 10", "K 15"};
    const int rising[] = {1, 1, 2, 3}, flat[] = {1, 1, 1, 1}, falling[] = {2, 1, 2, 3};
    const int *const best[] = {rising, flat, falling};
    for (int i = 0; i < 3; i++) {
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < 4; r++)
                PUT(lab, names[r], c, "Acc", r == best[i][c] ? 0.6 : 0.5);
        check_verdict(lab, 13, i == 0 ? yes : no, "at m 510");
    }
}

TEST(values_must_be_in_their_range_in_every_column)
{
    sfp__lab *lab = lab_of(1, STRINGS("T1"));
    for (int c = 0; c < lab->experiments[0].column_count; c++)
        PUT(lab, "StreamFP", c, "Within", 0.97);
    check_verdict(lab, 16, yes, "sigma 0.2");
    PUT(lab, "StreamFP", 2, "Within", 0.9);
    check_verdict(lab, 16, no, "0.9");
}

/* With a number in every cell, each claim finds its experiments, rows and metrics. */
TEST(every_claim_can_be_tested)
{
    int count;
    const sfp__experiment *list = sfp__experiments(&count);
    const char **names = kept_calloc((size_t)count + 1, sizeof *names);
    sfp__claim_result r;
    for (int i = 0; i < count; i++)
        names[i] = list[i].name;
    sfp__lab *lab = lab_of(3, names);
    for (int e = 0; e < count; e++)
        for (int i = 0; i < list[e].row_count * list[e].column_count * 3; i++) {
            int k = i % 3, c = i / 3 % list[e].column_count, row = i / 3 / list[e].column_count;
            sfp__cell *cell = cell_at(lab, e, row, c, k);
            for (int m = 0; m < SFP__METRICS_MAX; m++)
                cell->value[m] = 0.5 + 0.01 * row + 0.001 * k;
        }
    int tested = 0;
    for (int i = 0; sfp__claim_test(lab, i, &r); i++, tested++)
        if (!r.tested || !*r.claim || !*r.paper || r.number != i + 1)
            fail_msg("claim %d: %s", r.number, r.numbers);
    assert_int_equal(tested, 17);
}

/* --------------------------------------------------------------------------------------------- costs of queries and training */

#define STREAM "data=synthetic:60 batch=10"

/* Writes a processing time per batch, as if a method with these settings had been measured. */
static void write_cost(const char *settings, double seconds)
{
    const char *text = kept_print("# made with any\n# samples 60\n# batches per task 3 3\n%g\n", seconds);
    const char *path = in_directory(kept_print("costs/%s", key_of(kept_print("within=class " STREAM " %s", settings))));
    MUST(sfp__directory_create_for(path, &err));
    MUST(sfp__file_write(path, text, strlen(text), &err));
}

/* The settings of the cell of E11 in this row and column, with its clock. */
static sfp__strings *clock_at(sfp__lab *lab, const char *row, int column, sfp__cell *cell)
{
    sfp__strings *settings = settings_of("");
    sfp__cost cost = {0};
    *cell = (sfp__cell){.row = row_of(&lab->experiments[0], row), .column = column};
    MUST(sfp__cell_settings(lab, cell, settings, &err));
    MUST(sfp__cell_clock(lab, cell, settings, &cost, &err));
    sfp__cost_done(&cost);
    return settings;
}

/* The same at load 1. */
static sfp__strings *clock_of(sfp__lab *lab, const char *row, sfp__cell *cell)
{
    return clock_at(lab, row, 1, cell);
}

/* E11 with the processing times of its methods. */
static sfp__lab *begin_e11(void)
{
    sfp__lab *lab = lab_of(1, STRINGS("E11"));
    make_directory();
    lab->opt.out = directory;
    lab->opt.settings = settings_of(STREAM);
    write_cost("method=ncm taps=1 img-size=0", 0.1);
    write_cost("method=ridge taps=0 img-size=0", 0.2);
    write_cost("preset=best method=ridge", 0.5);
    return lab;
}

static void end_e11(sfp__lab *lab)
{
    sfp__strings_done(&lab->cost_keys);
    sfp__strings_done(&lab->input_values);
    sfp__free(lab->test_images);
    sfp__strings_done(&lab->inputs);
    sfp_engine_close(lab->engine);
    sfp__text_done(&lab->engine_key);
    remove_directory();
}

TEST(above_load_five_the_row_best_has_a_smaller_input_and_its_costs)
{
    sfp__lab *lab = begin_e11();
    sfp__cell best;
    write_cost("preset=best method=ridge img-size=48", 0.3);
    assert_null(sfp__settings_value(clock_of(lab, "best", &best), "img-size"));    /* load 1 */
    assert_null(sfp__settings_value(clock_at(lab, "best", 2, &best), "img-size")); /* load 4 */
    const sfp__strings *settings = clock_at(lab, "best", 3, &best);                /* load 16 */
    assert_string_equal(sfp__settings_value(settings, "img-size"), "48");
    assert_true(fabs(best.rate - 1600) < 1e-9); /* by the query pass of the size of the backbone */
    assert_true(fabs(best.cost - 0.3) < 1e-9);
    assert_string_equal(sfp__settings_value(clock_at(lab, "ridge, taps", 3, &best), "img-size"), "0");
    lab->opt.settings = settings_of(STREAM " img-size=64");
    write_cost("method=ncm taps=1 img-size=64", 0.1);
    write_cost("preset=best method=ridge img-size=64", 0.5);
    assert_string_equal(sfp__settings_value(clock_at(lab, "best", 3, &best), "img-size"), "64");
    end_e11(lab);
}

TEST(a_row_that_allocates_has_costs_per_sample)
{
    sfp__lab *lab = begin_e11();
    sfp__cell best, other;
    write_cost("method=ranpac taps=1 img-size=0", 0.25);
    const sfp__strings *settings = clock_of(lab, "best", &best);
    assert_true(fabs(best.rate - 100) < 1e-9); /* that of one query pass */
    assert_true(fabs(best.cost - 0.5) < 1e-9);
    assert_string_equal(file_text(sfp__settings_value(settings, "costs")), "query 0.05\n");
    (void)clock_of(lab, "ridge, taps", &other);
    assert_true(fabs(other.cost - 0.2) < 1e-9);
    settings = clock_of(lab, "ranpac", &other);
    assert_true(fabs(other.cost - 0.25) < 1e-9);
    assert_null(strstr(sfp__settings_value(settings, "costs"), "query"));
    end_e11(lab);
}
