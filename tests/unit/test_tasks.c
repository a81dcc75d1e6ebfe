/* Tasks: splits by number, sizes, domain, time and by the dataset; orders; the test set split in the same way. */
#include "stream/tasks.h"

#include "source_files.h"
#include "test.h"

typedef struct list_source {
    sfp_source base;
    const sfp_record *r;
} list_source;

static sfp_status list_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *why)
{
    (void)why;
    *out = ((const list_source *)s)->r[i];
    return SFP_OK;
}

static const char *list_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    (void)s;
    (void)snprintf(buf, size, "image-%lld", (long long)i);
    return buf;
}

static const sfp__source_ops list_ops = {.record = list_record, .name = list_name};

static const sfp__source_kind list_kind = {.name = "list"};
static char path_text[] = "here";

/* Class names are "a", "b", ...; domains are "X", "Y", ... */
static char *letters[26], *capitals[26], letter_text[26][2], capital_text[26][2];

static list_source make(const sfp_record *r, int64_t count, int classes, int domains)
{
    for (int i = 0; i < 26; i++) {
        letter_text[i][0] = (char)('a' + i);
        capital_text[i][0] = (char)('A' + i);
        letters[i] = letter_text[i];
        capitals[i] = capital_text[i];
    }
    return (list_source){.base = {.kind = &list_kind,
                                  .path = path_text,
                                  .count = count,
                                  .classes = classes,
                                  .class_names = letters,
                                  .domains = domains,
                                  .domain_names = capitals,
                                  .ops = &list_ops},
                         .r = r};
}

/* Returns n records with label i % classes, domain i % 3 and time 2000 + i % 4. */
static sfp_record *make_records(int n, int classes)
{
    sfp_record *r = kept_calloc((size_t)n, sizeof *r);
    for (int i = 0; i < n; i++)
        r[i] = (sfp_record){i % classes, i % 3, -1, 2000 + i % 4};
    return r;
}

KEEP_BY(keep_tasks, sfp__tasks, sfp__tasks_done)

/* Returns tasks that are freed when the test ends. */
static sfp__tasks split(const list_source *s, const char *spec, int order, uint64_t seed)
{
    sfp__tasks *t = kept_calloc(1, sizeof *t);
    if (sfp__tasks_create(&s->base, spec, &(sfp__stream_order){.classes = order, .seed = seed}, NULL, t, &err) != SFP_OK)
        fail_msg("'%s': %s", spec ? spec : "-", err.message);
    return *keep_tasks(t);
}

static void refused(const list_source *s, const char *spec, const char *a, const char *b)
{
    sfp__tasks t = {0};
    sfp_status status = sfp__tasks_create(&s->base, spec, NULL, NULL, &t, &err);
    if (status == SFP_OK || !strstr(err.message, a) || !strstr(err.message, b))
        fail_msg("'%s': got '%s', expected '%s', '%s'", spec ? spec : "-", err.message, a, b);
    assert_null(t.task);
}

/* Checks the names of the tasks. */
#define CHECK_TASKS(t, ...) check_tasks(&(t), STRINGS(__VA_ARGS__))

static void check_tasks(const sfp__tasks *t, const char *const *names)
{
    for (int k = 0; k < t->count || names[k]; k++) {
        assert_true(k < t->count && names[k]);
        assert_string_equal(t->task[k].name, names[k]);
    }
}

/* Checks what holds for every split: labels are a permutation, each labelled sample is in one task, and the classes of a task
 * are those of its samples. */
static void check_whole(const list_source *s, const sfp__tasks *t, int64_t expected)
{
    int64_t sum = 0;
    bool *seen = kept_calloc((size_t)s->base.count, 1);
    assert_int_equal(t->classes, s->base.classes);
    for (int k = 0; k < t->classes; k++)
        assert_int_equal(t->label_of[t->source_label[k]], k);
    for (int i = 0; i < t->count; i++) {
        const sfp__task *task = &t->task[i];
        bool has[26] = {false};
        for (int64_t n = 0; n < task->count; n++) {
            assert_false(seen[task->sample[n]]);
            seen[task->sample[n]] = true;
            has[t->label_of[s->r[task->sample[n]].label]] = true;
        }
        for (int k = 0; k < task->classes; k++) {
            assert_true(has[task->class_of[k]]);
            has[task->class_of[k]] = false;
            assert_true(k == 0 || task->class_of[k] > task->class_of[k - 1]);
        }
        for (int k = 0; k < 26; k++)
            assert_false(has[k]);
        sum += task->count;
        assert_non_null(task->name);
    }
    assert_int_equal(sum, expected);
}

TEST(a_number_splits_evenly_with_larger_tasks_first)
{
    list_source s = make(make_records(100, 10), 100, 10, 3);
    for (int j = 1; j <= 10; j++) {
        sfp__tasks t = split(&s, kept_print("%d", j), 0, 1);
        assert_int_equal(t.count, j);
        assert_false(t.free);
        check_whole(&s, &t, 100);
        int next = 0;
        for (int i = 0; i < j; i++) {
            assert_int_equal(t.task[i].classes, 10 / j + (i < 10 % j));
            for (int k = 0; k < t.task[i].classes; k++)
                assert_int_equal(t.task[i].class_of[k], next++); /* ascending ranges */
        }
    }
    sfp__tasks t = split(&s, "3", 0, 1);
    CHECK_TASKS(t, "classes 0-3", "classes 4-6", "classes 7-9");
    refused(&s, "11", "expected at most 10, the number of classes", "list:here");
    refused(&s, "0", "expected a number of tasks", "");
}

TEST(sizes_define_the_tasks)
{
    list_source s = make(make_records(70, 7), 70, 7, 3);
    sfp__tasks t = split(&s, "3,1,3", 0, 1);
    check_whole(&s, &t, 70);
    CHECK_TASKS(t, "classes 0-2", "class 3", "classes 4-6");
    assert_int_equal(t.task[0].count, 30);
    assert_int_equal(t.task[1].count, 10);
    refused(&s, "3,2,3", "with sum 8, expected sum 7", "list:here");
    refused(&s, "3,,4", "3,2,2", "3,,4");
    refused(&s, "3,4,", "3,2,2", "3,4,");
    refused(&s, "0,7", "3,2,2", "0,7");
    refused(&s, "9999999999", "3,2,2", "");
    refused(&s, "dom", "domain[:a,b]", "dom");
    refused(&s, "", "domain[:a,b]", "''");
}

TEST(the_order_of_classes_is_drawn_from_its_seed)
{
    list_source s = make(make_records(100, 10), 100, 10, 3);
    sfp__tasks natural = split(&s, "5", 0, 1), a = split(&s, "5", 7, 1), b = split(&s, "5", 7, 2), c = split(&s, "5", 8, 1);
    for (int k = 0; k < 10; k++)
        assert_int_equal(natural.label_of[k], k);
    assert_memory_equal(a.label_of, b.label_of, 10 * sizeof *a.label_of); /* --seed has no influence */
    assert_memory_not_equal(a.label_of, natural.label_of, 10 * sizeof *a.label_of);
    assert_memory_not_equal(a.label_of, c.label_of, 10 * sizeof *a.label_of);
    check_whole(&s, &a, 100);
    for (int i = 0; i < 5; i++)
        assert_int_equal(a.task[i].class_of[0], 2 * i);
}

TEST(samples_are_shuffled_by_the_seed_unless_the_source_keeps_its_order)
{
    list_source s = make(make_records(1000, 10), 1000, 10, 3);
    sfp__tasks a = split(&s, "2", 0, 1), b = split(&s, "2", 0, 1), c = split(&s, "2", 0, 2);
    for (int t = 0; t < 2; t++) {
        size_t bytes = 500 * sizeof *a.task[t].sample;
        assert_int_equal(a.task[t].count, 500);
        assert_memory_equal(a.task[t].sample, b.task[t].sample, bytes);
        assert_memory_not_equal(a.task[t].sample, c.task[t].sample, bytes);
    }
    check_whole(&s, &a, 1000);
    int64_t early = 0; /* a shuffle, not a rotation: half of the first half is from the first half */
    for (int i = 0; i < 250; i++)
        early += a.task[0].sample[i] < 500;
    assert_true(early > 80 && early < 170);
    s.base.keeps_order = true;
    a = split(&s, "2", 0, 1);
    for (int i = 1; i < 500; i++)
        assert_true(a.task[1].sample[i - 1] < a.task[1].sample[i]);
    a = split(&s, "free", 0, 1);
    assert_true(a.free);
    assert_int_equal(a.count, 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(a.task[0].sample[i], i);
    assert_true(split(&s, NULL, 0, 1).free); /* the source has no tasks: task-free */
}

static sfp__tasks split_within(const list_source *s, const char *spec, sfp__within within, uint64_t seed)
{
    sfp__tasks *t = kept_calloc(1, sizeof *t);
    MUST(sfp__tasks_create(&s->base, spec, &(sfp__stream_order){.classes = 7, .within = within, .seed = seed}, NULL, t, &err));
    check_whole(s, t, s->base.count);
    return *keep_tasks(t);
}

/* Checks that the samples of a task are sorted by class; with `sorted`, those of a class are in the order of the source. */
static void check_class_major(const list_source *s, const sfp__tasks *t, bool sorted)
{
    bool ascending = true;
    for (int k = 0; k < t->count; k++)
        for (int64_t i = 1; i < t->task[k].count; i++) {
            int64_t a = t->task[k].sample[i - 1], b = t->task[k].sample[i];
            assert_true(t->label_of[s->r[a].label] <= t->label_of[s->r[b].label]);
            ascending = ascending && (s->r[a].label != s->r[b].label || a < b);
        }
    assert_int_equal(ascending, sorted);
    assert_false(t->in_source_order);
}

TEST(within_class_puts_one_class_after_the_other)
{
    list_source s = make(make_records(600, 10), 600, 10, 3);
    static const char *const specs[] = {"2", "domain", "free"};
    for (int k = 0; k < 3; k++) {
        s.base.keeps_order = false;
        sfp__tasks a = split_within(&s, specs[k], SFP__WITHIN_CLASS, 1), b = split_within(&s, specs[k], SFP__WITHIN_CLASS, 2);
        check_class_major(&s, &a, false);
        check_class_major(&s, &b, false);
        assert_memory_not_equal(a.task[0].sample, b.task[0].sample, (size_t)a.task[0].count * sizeof *a.task[0].sample);
        s.base.keeps_order = true; /* a video keeps its frames in order */
        sfp__tasks c = split_within(&s, specs[k], SFP__WITHIN_CLASS, 1);
        check_class_major(&s, &c, true);
    }
}

TEST(within_shuffle_and_given_replace_the_default_of_the_source)
{
    list_source s = make(make_records(600, 10), 600, 10, 3);
    size_t bytes = 300 * sizeof(int64_t);
    sfp__tasks shuffled = split_within(&s, "2", SFP__WITHIN_DEFAULT, 1), given = split_within(&s, "2", SFP__WITHIN_GIVEN, 1);
    assert_false(shuffled.in_source_order);
    assert_true(given.in_source_order);
    for (int i = 1; i < 300; i++)
        assert_true(given.task[1].sample[i - 1] < given.task[1].sample[i]);
    s.base.keeps_order = true;
    assert_memory_equal(split_within(&s, "2", SFP__WITHIN_SHUFFLE, 1).task[1].sample, shuffled.task[1].sample, bytes);
    assert_memory_equal(split_within(&s, "2", SFP__WITHIN_DEFAULT, 1).task[1].sample, given.task[1].sample, bytes);
    assert_true(split_within(&s, "2", SFP__WITHIN_DEFAULT, 1).in_source_order);
}

TEST(domains_follow_the_given_order)
{
    sfp_record *r = make_records(90, 6);
    list_source s = make(r, 90, 6, 3);
    sfp__tasks t = split(&s, "domain", 0, 1);
    check_whole(&s, &t, 90);
    CHECK_TASKS(t, "A", "B", "C");
    assert_int_equal(t.task[0].count, 30);
    assert_int_equal(t.task[0].classes, 2); /* labels 0 and 3 */
    assert_int_equal(t.task[0].class_of[1], 3);
    t = split(&s, "domain:C,A", 0, 1);
    CHECK_TASKS(t, "C", "A");
    for (int i = 0; i < 30; i++)
        assert_int_equal(t.task[0].sample[i] % 3, 2);
    refused(&s, "domain:A,Z", "domain 'Z' is not in list:here", "A, B, C");
    refused(&s, "domain:A,B,A", "'A' is listed twice", "");
    refused(&s, "domain:A,", "domain ''", "");
    r[17].domain = -1;
    refused(&s, "domain", "image-17", "has no domain");
    s.base.domains = 0;
    for (int i = 0; i < 90; i++)
        r[i].domain = -1;
    refused(&s, "domain", "has no domains", "list:here");
}

TEST(tasks_by_time_ascend)
{
    sfp_record r[] = {{0, -1, -1, 2005}, {1, -1, -1, 1999.5}, {0, -1, -1, 2005}, {-1, -1, -1, NAN}, {1, -1, -1, -3}};
    list_source s = make(r, 5, 2, 0);
    uint64_t unlabelled = 99;
    OWNED_BY(sfp__tasks_done) sfp__tasks t = {0};
    MUST(sfp__tasks_create(&s.base, "time", NULL, &unlabelled, &t, &err));
    assert_int_equal(unlabelled, 1);
    check_whole(&s, &t, 4);
    CHECK_TASKS(t, "-3", "1999.5", "2005");
    assert_int_equal(t.task[2].count, 2);
    r[2].time = NAN;
    refused(&s, "time", "image-2", "has no time");
    for (int i = 0; i < 5; i++)
        r[i].time = NAN;
    refused(&s, "time", "tasks is 'time'", "has no times");
}

TEST(the_datasets_own_tasks_are_used)
{
    sfp_record r[] = {{0, -1, 20, NAN}, {1, -1, 3, NAN}, {2, -1, 20, NAN}, {-1, -1, 7, NAN}, {3, -1, 3, NAN}, {1, -1, 20, NAN}};
    list_source s = make(r, 6, 4, 0);
    s.base.keeps_order = true;
    sfp__tasks t = split(&s, NULL, 0, 1);
    check_whole(&s, &t, 5);
    CHECK_TASKS(t, "task 3", "task 20");
    assert_int_equal(t.task[0].classes, 2);
    assert_int_equal(t.task[0].class_of[0], 0); /* labels are numbered by the first task of their class */
    assert_int_equal(t.task[0].class_of[1], 1);
    assert_int_equal(t.source_label[0], 1);
    assert_int_equal(t.source_label[1], 3);
    assert_int_equal(t.task[1].sample[0], 0);
    assert_int_equal(t.task[1].sample[2], 5);
    assert_int_equal(split(&s, "free", 0, 1).count, 1); /* unless another split is requested */
    r[4].task = -1;
    refused(&s, NULL, "image-4", "has no task");
}

TEST(an_impossible_split_is_reported)
{
    sfp_record r[] = {{-1, -1, -1, NAN}, {-1, -1, -1, NAN}};
    list_source s = make(r, 2, 2, 0);
    refused(&s, NULL, "no labelled images", "list:here");
    r[0].label = 0;
    refused(&s, "2", "task 'class 1' has no labelled images", "");
    r[0].label = 2; /* a label without a class */
    refused(&s, NULL, "image 0 has label 2", "at most 1");
    s.base.count = -1;
    refused(&s, NULL, "a live source", "");
}

/* ------------------------------------------------------------------ the test set */

static sfp__tasks split_test(const list_source *test, const list_source *train, const sfp__tasks *like, const char *spec,
                             int64_t limit)
{
    sfp__tasks *t = kept_calloc(1, sizeof *t);
    if (sfp__tasks_create_test(&test->base, &train->base, like, spec, limit, t, &err) != SFP_OK)
        fail_msg("'%s': %s", spec ? spec : "-", err.message);
    return *keep_tasks(t);
}

TEST(the_test_set_is_split_like_the_training_set)
{
    sfp_record *r = make_records(120, 12), *q = make_records(60, 12);
    list_source train = make(r, 120, 12, 3), test = make(q, 60, 12, 3);
    /* the same names in another order, and one that does not occur: labels are matched by name, not by number */
    char *turned[13], *domains[3] = {capitals[2], capitals[0], capitals[1]}, extra[] = "unused";
    for (int k = 0; k < 12; k++)
        turned[k] = letters[11 - k];
    turned[12] = extra;
    test.base.class_names = turned;
    test.base.classes = 13;
    test.base.domain_names = domains;
    for (int i = 0; i < 60; i++)
        q[i].label = 11 - q[i].label;
    for (int i = 0; i < 60; i++)
        q[i].domain = (q[i].domain + 1) % 3;
    static const char *const specs[] = {"5", "4,4,4", "domain:B,C,A", "time", "free", NULL};
    for (int order = 0; order < 3; order++) {
        for (int k = 0; k < 6; k++) {
            sfp__tasks a = split(&train, specs[k], order, 1), b = split_test(&test, &train, &a, specs[k], 0);
            assert_int_equal(a.count, b.count);
            assert_int_equal(a.classes, b.classes);
            assert_int_equal(a.free, b.free);
            int64_t sum = 0;
            for (int t = 0; t < a.count; t++) {
                assert_string_equal(a.task[t].name, b.task[t].name);
                assert_int_equal(a.task[t].classes, b.task[t].classes);
                assert_memory_equal(a.task[t].class_of, b.task[t].class_of, (size_t)a.task[t].classes * sizeof(int32_t));
                assert_int_equal(a.task[t].count, 2 * b.task[t].count);
                sum += b.task[t].count;
                for (int64_t i = 1; i < b.task[t].count; i++)
                    assert_true(b.task[t].sample[i - 1] < b.task[t].sample[i]); /* natural order */
            }
            assert_int_equal(sum, 60);
            for (int c = 0; c < 12; c++)
                assert_string_equal(test.base.class_names[b.source_label[c]], train.base.class_names[a.source_label[c]]);
            assert_int_equal(b.label_of[12], -1);
            b = split_test(&test, &train, &a, specs[k], 5);
            for (int t = 0; t < b.count; t++) {
                assert_true(b.task[t].count <= 5 && b.task[t].count > 0);
                if (specs[k] && strcmp(specs[k], "free") == 0) {
                    for (int i = 0; i < 5; i++)
                        assert_int_equal(b.task[t].sample[i], 12 * i); /* evenly spaced */
                }
            }
        }
    }
}

TEST(classes_that_training_does_not_have_are_named)
{
    sfp_record *r = make_records(30, 5), *q = make_records(30, 6);
    list_source train = make(r, 30, 5, 3), test = make(q, 30, 6, 3);
    sfp__tasks a = split(&train, "5", 0, 1), b = {0};
    REFUSED_EXACTLY(sfp__tasks_create_test(&test.base, &train.base, &a, "5", 0, &b, &err), SFP_EINVAL,
                    "list:here: class 'f' is not in the training set list:here");
    for (int i = 0; i < 30; i++)
        q[i].label = 0; /* no images of the other tasks */
    REFUSED(sfp__tasks_create_test(&test.base, &train.base, &a, "5", 0, &b, &err), SFP_EINVAL,
            "no labelled images for task 'class 1'");
    assert_null(b.task);
}

TEST(a_test_set_without_tasks_is_split_by_class)
{
    sfp_record r[] = {{0, -1, 0, NAN}, {1, -1, 0, NAN}, {1, -1, 1, NAN}, {2, -1, 1, NAN}};
    sfp_record q[] = {{0, -1, -1, NAN}, {1, -1, -1, NAN}, {2, -1, -1, NAN}, {2, -1, -1, NAN}};
    list_source train = make(r, 4, 3, 0), test = make(q, 4, 3, 0);
    sfp__tasks a = split(&train, NULL, 0, 1), b = split_test(&test, &train, &a, NULL, 0);
    assert_int_equal(b.task[0].count, 2); /* 0 and 1 */
    assert_int_equal(b.task[1].count, 3); /* 1 and both 2 */
    for (int i = 0; i < 4; i++)
        q[i].task = i / 2; /* a test set with its own tasks is split by them */
    b = split_test(&test, &train, &a, NULL, 0);
    assert_true(b.task[0].count == 2 && b.task[1].count == 2);
}
