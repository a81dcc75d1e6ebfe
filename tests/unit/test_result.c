#include "results/result.h"

#include "run_result.h"
#include "temp_directory.h"
#include "test.h"


static char path[96];

static void make_dir(void)
{
    make_directory_for("result.json", path, sizeof path);
}

static void drop_dir(void)
{
    remove_file_and_directory(path);
}

AROUND_EACH(make_dir, drop_dir)

TEST(a_written_result_reads_back_equal)
{
    const int sizes[][2] = {{1, 0}, {1, 1}, {3, 4}, {12, 201}}; /* 201: the confusion matrix is written as cells */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        OWNED_BY(sfp__result_done) sfp_result r = result_make(sizes[i][0], sizes[i][1]);
        OWNED_BY(sfp__result_done) sfp_result back = {0};
        r.seed = i == 2 ? UINT64_MAX : 7;
        MUST(sfp__result_default(&r, "sigma", "0.5", NULL));
        MUST(sfp__result_preset(&r, "sigma", "0.4", NULL));
        MUST(sfp__result_write(&r, path, &err));
        MUST(sfp__result_read(path, &back, &err));
        assert_string_equal(result_text(&r), result_text(&back));
        assert_true(back.seed == r.seed && back.prequential_accuracy == r.prequential_accuracy && back.finished);
        assert_string_equal(back.config[3].default_value, "0.5");
    }
}

TEST(old_evaluations_are_thinned_out)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    const double accuracy[2] = {0.5, NAN};
    MUST(sfp__result_init(&r, 2, 0, NULL));
    for (uint64_t i = 0; i < 5000; i++) {
        MUST(sfp__result_evaluated(&r, i, 1, accuracy, NULL));
        assert_true(r.evaluation_count <= SFP__EVALUATIONS_MAX);
    }
    assert_true(r.evaluation_count > SFP__EVALUATIONS_MAX / 2);
    for (int i = 1; i < r.evaluation_count; i++)
        assert_true(r.evaluations[i].offered > r.evaluations[i - 1].offered);
    assert_int_equal(r.evaluations[0].offered, 0);
    assert_int_equal(r.evaluations[r.evaluation_count - 1].offered, 4999);
    assert_true(r.evaluations[0].average == 0.5); /* the mean of the measured accuracies */
    int count = r.evaluation_count;
    const double again[2] = {0.25, 0.75};
    MUST(sfp__result_evaluated(&r, 4999, 1, again, NULL)); /* the same offered and task: replaced */
    assert_int_equal(r.evaluation_count, count);
    assert_true(r.evaluations[count - 1].average == 0.5 && r.evaluations[count - 1].accuracy[1] == 0.75);
}

TEST(classes_can_be_added)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 1, 0, NULL));
    for (int i = 0; i < 100; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "c%d", i);
        MUST(sfp__result_add_class(&r, name, NULL));
        assert_null(r.confusion); /* freed: it had fewer classes */
        if (i % 10 == 0) {
            MUST(sfp__result_confusion(&r, NULL));
            r.confusion[(size_t)i * (size_t)r.classes + (size_t)i] = 3;
            uint64_t tested;
            assert_true(sfp__result_class_accuracy(&r, i, &tested) == 1 && tested == 3);
        }
    }
    assert_int_equal(r.classes, 100);
    assert_string_equal(r.class_names[99], "c99");
    char *text = result_text(&r);
    OWNED_BY(sfp__result_done) sfp_result back = {0};
    MUST(sfp__result_parse("text", text, strlen(text), &back, NULL));
    assert_string_equal(back.class_names[99], "c99");
}

TEST(thinning_removes_every_second_point)
{
    sfp__curve c = {0};
    for (int i = 0; i < 7; i++)
        MUST(sfp__curve_add(&c, i, 10 * i, NULL));
    sfp__curve_thin(&c);
    assert_int_equal(c.count, 4);
    for (int i = 0; i < 4; i++)
        assert_true(c.x[i] == 2 * i && c.y[i] == 20 * i);
    sfp__free(c.x);
    sfp__free(c.y);
}

TEST(names_with_invalid_utf8_are_written_as_valid_text)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2);
    OWNED_BY(sfp__result_done) sfp_result back = {0};
    sfp__free(r.class_names[0]);
    r.class_names[0] = sfp__strdup("a\"\\\n\x01\xff\xc3\xa9\xed\xa0\x80");
    MUST(sfp__result_write(&r, path, NULL));
    MUST(sfp__result_read(path, &back, NULL));
    assert_string_equal(back.class_names[0], "a\"\\\n\x01\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(options_are_replaced_and_determine_the_method_name)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 1);
    char method[64], key[32];
    sfp__result_method(&r, method, sizeof method);
    assert_string_equal(method, "random+er");
    result_option(&r, "buffer", "random");
    sfp__result_method(&r, method, sizeof method);
    assert_string_equal(method, "random");
    result_option(&r, "method", "ranpac");
    sfp__result_method(&r, method, sizeof method);
    assert_string_equal(method, "ranpac");
    result_option(&r, "method", "none");
    result_option(&r, "preset", "paper");
    MUST(sfp__result_preset(&r, "buffer", "streamfp", NULL));
    sfp__result_method(&r, method, sizeof method);
    assert_string_equal(method, "random, preset paper");
    result_option(&r, "method", "slda");
    sfp__result_method(&r, method, sizeof method);
    assert_string_equal(method, "slda, preset paper");
    assert_null(sfp__result_value(&r, "nothing"));
    assert_int_equal(sfp__result_default(&r, "nothing", "x", NULL), SFP_EINVAL);
    assert_int_equal(sfp__result_preset(&r, "nothing", "x", NULL), SFP_EINVAL);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        result_option(&r, key, key);
    }
    assert_string_equal(sfp__result_value(&r, "k57"), "k57");
    assert_int_equal(r.config_count, 106);
}

TEST(sizes_out_of_range_are_refused)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    assert_int_equal(sfp__result_init(&r, 0, 1, NULL), SFP_EINVAL);
    assert_int_equal(sfp__result_init(&r, 1, -1, NULL), SFP_EINVAL);
    assert_int_equal(sfp__result_init(&r, SFP__RESULT_TASKS_MAX + 1, 1, NULL), SFP_EINVAL);
    MUST(sfp__result_init(&r, 1, SFP__CONFUSION_MAX + 1, NULL));
    assert_null(r.confusion);
    assert_true(isnan(sfp__result_class_accuracy(&r, 0, NULL)));
}

/* Replaces `from` by `to` in the text of a valid result and checks that the parser refuses it. */
static void check_refused(const char *good, const char *from, const char *to, const char *message)
{
    const char *found = strstr(good, from);
    assert_non_null(found);
    size_t at = (size_t)(found - good);
    size_t capacity = strlen(good) + strlen(to) + 1;
    char *text = kept_malloc(capacity);
    (void)snprintf(text, capacity, "%.*s%s%s", (int)at, good, to, good + at + strlen(from));
    sfp_result r, untouched;
    memset(&r, 0x5a, sizeof r);
    untouched = r;
    sfp_status s = sfp__result_parse("r.json", text, strlen(text), &r, &err);
    if (s != SFP_EFORMAT || !strstr(err.message, message))
        fail_msg("%s -> %s: got %s, '%s', expected '%s'", from, to, sfp_status_text(s), err.message, message);
    assert_memory_equal(&r, &untouched, sizeof r);
}

TEST(hostile_files_are_refused_with_a_reason)
{
    static const char *const cases[][3] = {
        {"{", "[{", "line 1, column"},
        {"\"seed\":7", "\"seed\":-7", "'seed' is not 0 or more"},
        {"\"seed\":7", "\"seed\":\"99999999999999999999\"", "'seed' is not a whole number"},
        {"\"seed\":7", "\"seed\":7,\"seed\":8", "duplicate key 'seed'"},
        {"\"started\":\"2025", "\"started\":\"2025 and so on and on and on and on and on\",\"x\":\"", "'started' has"},
        {"\"finished\":true", "\"finished\":1", "'finished'"},
        {"\"calibration\":{\"error\":", "\"calibration\":{\"error\":2,\"x\":", "'error'"},
        {"\"bins\":[", "\"bins\":[[1,2,0.5],", "'bins'"},
        {"\"bins\":[[6,3", "\"bins\":[[6,7", "'bins'"},
        {"\"bins\":[[6,", "\"bins\":[[6,3,null],[6,", "'bins'"},
        {"\"threads\":2", "\"threads\":1e9", "'threads'"},
        {"\"cpu\":", "\"cpus\":", "key 'cpu' is missing"},
        {"\"sigma\":\"0.3\"", "\"sigma\":0.3", "'sigma' is not a string"},
        {"\"tasks_done\":2", "\"tasks_done\":3", "'tasks_done'"},
        {"\"task 0\",\"task 1\"", "", "'task_names' has 0 entries"},
        {"\"task 0\",", "", "'tasks_done' is not at most"},
        {"\"task 0\",", "\"task\",\"task\",", "'accuracy_matrix' has 2 entries, expected 3"},
        {"\"accuracy_matrix\":[[", "\"accuracy_matrix\":[[1,", "a square"},
        {"\"accuracy_matrix\":[[", "\"accuracy_matrix\":[[2],[", "'accuracy_matrix' has 3"},
        {",null],[", ",0.5],[", "null above the diagonal"},
        {"\"average_accuracy\":", "\"average_accuracy\":1.5,\"x\":", "'average_accuracy' is 1.5, expected 0 to 1"},
        {"\"average_accuracy\":", "\"average_accuracy\":\"1\",\"x\":", "a number or null"},
        {"\"class 0\",", "\"class 0\",5,", "a list of strings"},
        {"\"class 0\",", "\"class 0\",\"more\",", "'per_class' has 3 entries, expected 4"},
        {"\"offered\":1000", "\"offered\":1e3", "'offered' is not a whole number"},
        {"\"total\":8", "\"total\":[]", "'total' is not a number"},
        {"\"confusion\":[[0", "\"confusion\":[[-1", "'confusion'"},
        {"\"confusion\":[[0", "\"confusion\":[[9999999999999", "'confusion'"},
        {"\"confusion\":[[0", "\"confusion\":[[0,0", "a square matrix of counts"},
        {"\"confusion\":[", "\"confusion_cells\":[[0,3,1]],\"x\":[", "'confusion_cells'"},
        {"\"confusion\":[", "\"confusion_cells\":[7],\"x\":[", "'confusion_cells'"},
        {"\"evaluations\":[", "\"evaluations\":[7,", "'evaluations' is not a list of objects"},
        {"\"offered\":500", "\"offered\":5000", "'evaluations' is not sorted by 'offered'"},
        {"\"task\":0", "\"task\":2", "'task' is not less than the number of tasks"},
        {"\"task\":0", "\"task\":1", "'accuracy' has 1 entries, expected 2"},
        {"\"task\":0,\"accuracy\":[", "\"task\":0,\"accuracy\":[[],", "'accuracy' has 2 entries, expected 1"},
        {"\"labels\":{", "\"labels\":[],\"x\":{", "'labels' is not an object"},
        {"\"curves\":{", "\"curves\":[],\"x\":{", "'curves' is not an object"},
        {"\"x\":[20,40", "\"x\":[20,10", "x must not decrease"},
        {"\"x\":[20,40", "\"x\":[20,20,40", "'y' has 50 entries, expected 51"},
        {"\"x\":[20,40", "\"x\":[null,40", "x must not decrease"},
    };
    OWNED_BY(sfp__result_done) sfp_result r = result_make(2, 3);
    char *good = result_text(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(good, cases[i][0], cases[i][1], cases[i][2]);
}

/* Truncates the text at every length and flips every byte: each result must be refused or read without a crash. */
TEST(damaged_text_is_refused_or_read_without_harm)
{
    sfp_result r = result_make(2, 3), back;
    char *good = result_text(&r);
    size_t n = strlen(good);
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(sfp__result_parse("r", good, i, &back, NULL), SFP_OK);
        char kept = good[i];
        good[i] = (char)(kept ^ (1 << (i % 7)));
        if (sfp__result_parse("r", good, n, &back, NULL) == SFP_OK)
            sfp__result_done(&back);
        good[i] = kept;
    }
    sfp__result_done(&r);
}
