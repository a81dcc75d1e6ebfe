/* Evaluation (streamfp.h, part 9). */
#include "run_world.h"

AROUND_EACH(make_run_world, remove_directory)

KEEP_BY(keep_evaluation, sfp_evaluation, sfp_evaluation_free)

static const char *const two_names[] = {"dark", "bright"};

/* Evaluates the state of the run "out". */
static sfp_evaluation *evaluate(sfp_engine *e, sfp_evaluation_options o)
{
    sfp_evaluation *v = NULL;
    o.size = sizeof o;
    o.state = in_directory("out");
    MUST(sfp_evaluate(e, &o, &v, &err));
    return keep_evaluation(v);
}

typedef struct counter {
    uint64_t done, total;
    int calls;
} counter;

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    counter *c = ctx;
    assert_true(done <= total && done >= c->done);
    *c = (counter){done, total, c->calls + 1};
}

TEST(the_numbers_are_those_of_the_run)
{
    sfp_engine *e = random_engine();
    sfp_run *run = open_run(e, run_settings("out"), NULL);
    MUST(sfp_run_finish(run, &err));
    counter c = {0};
    const sfp_evaluation *v = evaluate(
        e, (sfp_evaluation_options){.data = "synthetic:130", .tasks = "2", .limit = 4, .progress = on_progress, .ctx = &c});
    assert_true(sfp_evaluation_number(v, "average_accuracy") == sfp_result_number(sfp_run_result(run), "average_accuracy"));
    double calibration = sfp_evaluation_number(v, "calibration_error");
    assert_true(calibration == sfp_result_number(sfp_run_result(run), "calibration.error"));
    assert_true(calibration >= 0 && calibration <= 1);
    assert_true(isnan(sfp_evaluation_number(v, "calibration_error_before"))); /* a linear head has no fitted scale */
    sfp_run_close(run);
    double images = sfp_evaluation_number(v, "images"), correct = sfp_evaluation_number(v, "correct");
    assert_true(images == 8 && sfp_evaluation_number(v, "accuracy") == correct / images);
    assert_true(c.calls > 1 && c.total == 8 && c.done == 8);
    uint64_t sum = 0, right = 0;
    int count;
    const sfp_accuracy *row = sfp_evaluation_tasks(v, &count);
    assert_int_equal(count, 2);
    assert_string_equal(row[1].name, "classes 5-9");
    for (int i = 0; i < count; i++) {
        sum += row[i].images;
        right += row[i].correct;
    }
    assert_true((double)sum == images && (double)right == correct);
    row = sfp_evaluation_classes(v, &count);
    const uint64_t *confusion = sfp_evaluation_confusion(v);
    assert_int_equal(count, 10);
    for (int i = 0; i < count; i++) {
        assert_int_equal(row[i].correct, confusion[i * 10 + i]);
        assert_true(row[i].images ? row[i].accuracy == (double)row[i].correct / (double)row[i].images : isnan(row[i].accuracy));
        sum -= row[i].images;
    }
    assert_int_equal(sum, 0);
    (void)sfp_evaluation_unknown(v, &count);
    assert_int_equal(count, 0);
    assert_true(sfp_evaluation_number(v, "skipped") == 0 && sfp_evaluation_number(v, "unlabelled") == 0);
    assert_true(sfp_evaluation_number(v, "seconds") > 0);
    assert_true(isnan(sfp_evaluation_number(v, "nothing")) && isnan(sfp_evaluation_number(v, NULL)));
    assert_string_equal(sfp_evaluation_first_error(v), "");
}

TEST(a_source_of_the_program_is_evaluated_and_closed)
{
    static const char *const other_names[] = {"dark", "zebra"};
    sfp_engine *e = random_engine();
    sfp_run_options ro = SFP_RUN_OPTIONS_INIT;
    flat_dataset *d = make_flat(40, two_names), *other = make_flat(30, other_names);
    ro.source = source_of(d, "camera");
    sfp_run *run = open_run(e, SETTINGS("tasks", "free", "out", in_directory("out")), &ro);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
    const sfp_evaluation *v = evaluate(e, (sfp_evaluation_options){.source = source_of(other, "other")});
    assert_int_equal(other->closes, 1);
    assert_true(sfp_evaluation_number(v, "images") == 15 && sfp_evaluation_number(v, "unknown") == 15);
    int count;
    const sfp_accuracy *row = sfp_evaluation_unknown(v, &count);
    assert_int_equal(count, 1);
    assert_string_equal(row[0].name, "zebra");
    assert_true(row[0].images == 15 && row[0].correct == 0);
}

TEST(wrong_options_are_refused_and_the_source_is_closed)
{
    sfp_engine *e = random_engine();
    flat_dataset *d = make_flat(10, two_names);
    sfp_evaluation *v = NULL;
    sfp_evaluation_options o = SFP_EVALUATION_OPTIONS_INIT;
    REFUSED(sfp_evaluate(e, NULL, &v, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_evaluate(e, &o, &v, &err), SFP_EINVAL, "must not be NULL");
    o.state = in_directory("missing");
    REFUSED(sfp_evaluate(e, &o, &v, &err), SFP_EINVAL, "expected one of them");
    o.data = "synthetic:10";
    o.source = source_of(d, "camera");
    REFUSED(sfp_evaluate(e, &o, &v, &err), SFP_EINVAL, "expected one of them");
    assert_int_equal(d->closes, 1);
    o.data = NULL;
    o.source = source_of(d, "camera");
    REFUSED(sfp_evaluate(e, &o, &v, &err), SFP_ENOTFOUND, "missing");
    assert_int_equal(d->closes, 2);
    assert_null(v);
    sfp_evaluation_free(NULL);
}
