/* CORe50: read by its pickles and by its directories; errors in them. */
#include "source_files.h"
#include "test.h"
#include "tools/replica.h"

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_core50;

static sfp_source *open_with(bool test, int order)
{
    return open_as(kind, in_directory("c"), (sfp__source_options){.test = test, .order = order});
}

static void make_replica(void)
{
    (void)replica_make("core50", in_directory("c"), (replica_options){.each = 1, .size = 16, .seed = 1}, NULL);
}

static void remove_pickles(void)
{
    assert_int_equal(remove(in_directory("c/paths.pkl")), 0);
    assert_int_equal(remove(in_directory("c/LUP.pkl")), 0);
    assert_int_equal(remove(in_directory("c/labels.pkl")), 0);
}

/* Checks counts, tasks of 10 and 8 x 5 classes, class names equal to directory names, and that sessions are not mixed. */
static void check_layout(const sfp_source *s, const sfp_source *t)
{
    int32_t task_of[50];
    int classes_of_task[9] = {0}, last = 0;
    assert_int_equal(s->count, 8 * 50);
    assert_int_equal(t->count, 3 * 50);
    assert_int_equal(s->classes, 50);
    check_same_classes(s, t);
    assert_true(s->keeps_order);
    for (int c = 0; c < 50; c++)
        task_of[c] = -1;
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r = record_of(s, i);
        char name[64], object[16];
        (void)sfp__source_name(s, i, name, sizeof name);
        (void)snprintf(object, sizeof object, "/%s/", s->class_names[r.label]);
        assert_non_null(strstr(name, object));
        assert_true(strncmp(name, "s3/", 3) != 0 && strncmp(name, "s7/", 3) != 0 && strncmp(name, "s10/", 4) != 0);
        assert_true(r.task >= last);
        last = r.task;
        if (task_of[r.label] < 0)
            classes_of_task[r.task]++;
        assert_true(task_of[r.label] < 0 || task_of[r.label] == r.task);
        task_of[r.label] = r.task;
    }
    for (int k = 0; k < 9; k++)
        assert_int_equal(classes_of_task[k], k == 0 ? 10 : 5);
    for (int64_t i = 0; i < t->count; i++) {
        sfp_record r = record_of(t, i);
        char name[64];
        (void)sfp__source_name(t, i, name, sizeof name);
        assert_true(strncmp(name, "s3/", 3) == 0 || strncmp(name, "s7/", 3) == 0 || strncmp(name, "s10/", 4) == 0);
        assert_int_equal(r.task, task_of[r.label]);
    }
}

TEST(runs_follow_the_pickles)
{
    make_replica();
    char first[10][16];
    for (int run = 0; run < 10; run += 3) {
        sfp_source *s = open_with(false, run), *t = open_with(true, run);
        check_layout(s, t);
        assert_null(s->warning);
        for (int c = 0; c < 50; c++) /* classes are numbered in the order of the tasks */
            assert_true(c == 0 || record_of(s, 0).label < 10);
        (void)snprintf(first[run], sizeof first[run], "%s", s->class_names[0]);
        sfp__raw_image p = {0};
        MUST(sfp__source_load(s, 399, &p, NULL));
        assert_memory_equal(p.bytes, "\x89PNG", 4);
        assert_false(p.has_box);
        sfp__raw_image_done(&p);
        check_bounds(t);
    }
    assert_string_equal(first[0], "o1");
    assert_true(strcmp(first[3], first[6]) != 0 || strcmp(first[3], first[9]) != 0);
    sfp_source *s = NULL;
    REFUSED(kind->open(in_directory("c"), &(sfp__source_options){.order = 10}, &s, &err), SFP_EINVAL, "LUP.pkl");
    assert_non_null(strstr(err.message, "order is 10, expected 0 to 9"));
    REFUSED(kind->open(in_directory("c"), &(sfp__source_options){.order = -11}, &s, &err), SFP_EINVAL,
            "order is authors:11, expected authors:1 to 10");
    s = open_with(false, -4); /* order K of the authors is the run K - 1 */
    assert_string_equal(s->class_names[0], first[3]);
}

TEST(directories_alone_define_the_runs)
{
    make_replica();
    remove_pickles();
    sfp_source *s = open_with(false, 0), *t = open_with(true, 0);
    check_layout(s, t);
    char name[64];
    check_name(s, 0, "s1/o1/C_01_01_000.png");
    check_name(s, 1, "s2/o1/C_02_01_000.png");
    check_name(s, 7, "s11/o1/C_11_01_000.png");
    check_name(s, 8, "s1/o2/C_01_02_000.png");
    assert_string_equal(s->class_names[49], "o50");
    assert_non_null(strstr(s->warning, "pickles are missing"));
    s = open_with(false, 4); /* an order shuffles the objects */
    t = open_with(true, 4);
    check_layout(s, t);
    assert_string_equal(s->class_names[49], "o50");
    assert_true(strstr(sfp__source_name(s, 0, name, sizeof name), "/o1/") == NULL ||
                strstr(sfp__source_name(s, 8, name, sizeof name), "/o2/") == NULL);
    assert_int_equal(rename(in_directory("c/core50_128x128"), in_directory("d")), 0); /* the directory of images itself */
    s = open_source(kind, "d");
    assert_int_equal(s->count, 400);
    check_bounds(s);
}

#define PATHS "(lp0\nS's1/o7/a.png'\naS's3/o7/b.png'\naS's1/o2/c.png'\na."
/* Opcodes of one run with two batches and a test set of one item each. */
#define RUN(first, second, test) "(dS'nc'\n(l(l(l" first "\naa(l" second "\naa(l" test "\naaas."
#define LUP RUN("I0", "I2", "I1")
#define LABELS RUN("I5", "I3", "I5")

static void put_pickles(const char *paths, const char *lup, const char *labels)
{
    PUT_TEXTS({"c/paths.pkl", paths}, {"c/LUP.pkl", lup}, {"c/labels.pkl", labels});
}

TEST(labels_are_numbered_by_task_and_named_by_object)
{
    put_pickles(PATHS, LUP, LABELS);
    sfp_source *s = open_with(false, 0), *t = open_with(true, 0);
    assert_int_equal(s->count, 2);
    CHECK_CLASSES(s, "o7", "o2");
    check_record(s, 0, 0, 0);
    check_record(s, 1, 1, 1);
    assert_int_equal(t->count, 1);
    check_record(t, 0, 0, 0);
    check_not_loaded(s, 0, SFP_ENOTFOUND, "s1/o7/a.png", "");
    /* two objects share a label: classes are named by numbers */
    put_pickles("(lS's1/o7/a.png'\naS's3/o8/b.png'\naS's1/o2/c.png'\na.", LUP, LABELS);
    s = open_with(false, 0);
    CHECK_CLASSES(s, "5", "3");
}
