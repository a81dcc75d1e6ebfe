/* Learners (streamfp.h, part 5). */
#include "world.h"

AROUND_EACH(make_directory, remove_directory)

/* A caller's buffer was filled and the rest was lost. */
TEST(a_position_of_any_length_is_restored)
{
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    enum { LENGTH = 100000 };
    char *position = kept_malloc(LENGTH + 1), *back = NULL;
    memset(position, 'p', LENGTH);
    position[LENGTH] = '\0';
    MUST(sfp_learner_checkpoint(l, in_directory("c"), position, &err));
    MUST(sfp_learner_resume(l, in_directory("c"), &back, &err));
    assert_string_equal(back, position);
    sfp_free(back);
    MUST(sfp_learner_checkpoint(l, in_directory("c"), NULL, &err));
    MUST(sfp_learner_resume(l, in_directory("c"), &back, &err));
    assert_string_equal(back, "");
    sfp_free(back);
}

TEST(images_of_any_size_are_learned)
{
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    uint8_t *frame = kept_calloc(640 * 480, 3), *grey = kept_calloc(50, 20);
    sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
    const sfp_sample samples[] = {
        {.image = {.format = SFP_IMAGE_BGR, .width = 640, .height = 480, .data = frame}, .label = 0, .id = 1},
        {.image = {.format = SFP_IMAGE_GREY, .width = 20, .height = 50, .data = grey}, .label = 1, .id = 2},
        {.image = {.format = SFP_IMAGE_FILE, .data = "docs/report.png"}, .label = 2, .id = 3},
    };
    MUST(sfp_learner_offer(l, 3, samples, &report, &err));
    assert_int_equal(report.offered, 3);
    assert_int_equal(sfp_learner_classes(l), 3);
}

/* An image at the input size and the same as a PNG file's pixels are the same sample: the resize must not change pixels. */
/* `trained` was counted once where `replayed` summed all steps. */
TEST(a_report_counts_training_and_replay_over_all_steps)
{
    sfp_learner *l = learner_of(random_engine(), TRAINED("steps", "3", "sigma", "0.5", "replay", "2"));
    sfp_sample samples[BATCH];
    sfp_timestamp_report r = SFP_TIMESTAMP_REPORT_INIT;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < BATCH; i++)
            samples[i] = flat_sample(i % CLASSES, (uint64_t)(k * BATCH + i));
        MUST(sfp_learner_offer(l, BATCH, samples, &r, &err));
        assert_int_equal(r.timestamp, k);
        assert_int_equal(r.offered, BATCH);
        assert_int_equal(r.coreset, 2);
        assert_int_equal(r.steps, 3);
        assert_int_equal(r.trained, 6);
        assert_int_equal(r.replayed, k == 0 ? 0 : 6);
        assert_int_equal(r.stored, BATCH);
        assert_true(isfinite(r.loss) && r.seconds > 0);
    }
    struct {
        size_t size;
        uint64_t timestamp;
        uint8_t untouched[sizeof(sfp_timestamp_report)];
    } small = {.size = offsetof(sfp_timestamp_report, offered)};
    memset(small.untouched, 7, sizeof small.untouched);
    MUST(sfp_learner_offer(l, BATCH, samples, (sfp_timestamp_report *)(void *)&small, &err));
    assert_int_equal(small.timestamp, 2);
    for (size_t i = 0; i < sizeof small.untouched; i++)
        assert_int_equal(small.untouched[i], 7);
}

TEST(a_bad_batch_is_refused_and_nothing_is_learned)
{
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL)), *fresh = learner_of(random_engine(), settings_of(NULL));
    sfp_sample samples[BATCH + 1];
    const sfp_timestamp_report empty = {0};
    sfp_timestamp_report report = empty;
    for (int i = 0; i <= BATCH; i++)
        samples[i] = flat_sample(i % CLASSES, (uint64_t)i);
    REFUSED(sfp_learner_offer(l, -1, samples, NULL, &err), SFP_EINVAL, "count is -1, expected 1 to 4");
    REFUSED(sfp_learner_offer(l, 0, samples, NULL, &err), SFP_EINVAL, "count is 0, expected 1 to 4");
    REFUSED(sfp_learner_offer(l, BATCH + 1, samples, NULL, &err), SFP_EINVAL, "count is 5, expected 1 to 4");
    REFUSED(sfp_learner_offer(l, 1, NULL, NULL, &err), SFP_EINVAL, "samples must not be NULL");
    REFUSED(sfp_learner_offer(l, 1, samples, &report, &err), SFP_EINVAL, "expected sizeof(sfp_timestamp_report)");
    samples[2].label = SFP_UNLABELLED;
    REFUSED(sfp_learner_offer(l, BATCH, samples, NULL, &err), SFP_EINVAL, "sample 2: label is -1");
    samples[2].label = 1 << 21;
    REFUSED(sfp_learner_offer(l, BATCH, samples, NULL, &err), SFP_EINVAL, "2097152");
    samples[2].label = 0;
    samples[3].image.data = NULL;
    REFUSED(sfp_learner_offer(l, BATCH, samples, NULL, &err), SFP_EINVAL, "sample 3: image 3: data is NULL");
    samples[3].image = (sfp_image){.format = SFP_IMAGE_FILE, .data = "none.png"};
    REFUSED(sfp_learner_offer(l, BATCH, samples, NULL, &err), SFP_ENOTFOUND, "sample 3: none.png");
    assert_int_equal(sfp_learner_classes(l), 0);
    MUST(sfp_learner_save(l, in_directory("a"), &err));
    MUST(sfp_learner_save(fresh, in_directory("b"), &err));
    check_same_bytes(in_directory("a"), in_directory("b"));
    REFUSED(sfp_learner_create(NULL, NULL, &l, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_learner_create(random_engine(), NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    sfp_learner_free(NULL);
}

/* ------------------------------------------------------------------------------------------------------------ late labels */

/* Labels that arrive later give the learner the same samples, so the same bytes. */
TEST(late_labels_are_learned_as_if_they_had_arrived_with_the_images)
{
    sfp_engine *e = random_engine();
    sfp_learner *late = learner_of(e, settings_of(NULL)), *now = learner_of(e, settings_of(NULL));
    sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
    sfp_sample samples[BATCH];
    uint64_t ids[BATCH];
    int32_t labels[BATCH];
    for (int i = 0; i < BATCH; i++) {
        samples[i] = flat_sample(i % CLASSES, (uint64_t)(100 + i));
        ids[i] = samples[i].id;
        labels[i] = samples[i].label;
    }
    MUST(sfp_learner_offer(now, BATCH, samples, NULL, &err));
    for (int i = 0; i < BATCH; i++)
        samples[i].label = SFP_UNLABELLED;
    MUST(sfp_learner_enqueue(late, BATCH, samples, &err));
    MUST(sfp_learner_enqueue(late, 1, samples, &err)); /* the same id: it replaces the earlier image */
    assert_int_equal(sfp_learner_queued(late), BATCH);
    MUST(sfp_learner_label(late, BATCH, ids, labels, &report, &err));
    assert_int_equal(report.offered, BATCH);
    assert_int_equal(sfp_learner_queued(late), 0);
    MUST(sfp_learner_save(now, in_directory("now"), &err));
    MUST(sfp_learner_save(late, in_directory("late"), &err));
    check_same_bytes(in_directory("now"), in_directory("late"));
}

TEST(the_oldest_image_of_a_full_label_queue_expires)
{
    sfp_learner *l = learner_of(random_engine(), SETTINGS("label-queue", "3"));
    for (uint64_t id = 1; id <= 4; id++) {
        sfp_sample s = flat_sample(SFP_UNLABELLED, id);
        MUST(sfp_learner_enqueue(l, 1, &s, &err));
    }
    assert_int_equal(sfp_learner_queued(l), 3);
    const uint64_t ids[] = {2, 1}, twice[] = {2, 2};
    const int32_t labels[] = {0, 1};
    REFUSED(sfp_learner_label(l, 2, ids, labels, NULL, &err), SFP_ENOTFOUND, "id 1: not in the label queue");
    REFUSED(sfp_learner_label(l, 2, twice, labels, NULL, &err), SFP_EINVAL, "id 2: given twice");
    REFUSED(sfp_learner_label(l, 1, ids, (const int32_t[]){-7}, NULL, &err), SFP_EINVAL, "-7");
    REFUSED(sfp_learner_label(l, 0, ids, labels, NULL, &err), SFP_EINVAL, "count is 0");
    REFUSED(sfp_learner_label(l, 1, NULL, labels, NULL, &err), SFP_EINVAL, "must not be NULL");
    assert_int_equal(sfp_learner_queued(l), 3);
    MUST(sfp_learner_label(l, 1, ids, labels, NULL, &err));
    assert_int_equal(sfp_learner_queued(l), 2);
}

TEST(samples_that_cannot_be_enqueued_are_refused)
{
    sfp_learner *l = learner_of(random_engine(), SETTINGS("label-queue", "0")),
                *other = learner_of(random_engine(), settings_of(NULL));
    sfp_sample s = flat_sample(SFP_UNLABELLED, 1);
    REFUSED(sfp_learner_enqueue(l, 1, &s, &err), SFP_EINVAL, "label-queue is 0");
    REFUSED(sfp_learner_enqueue(other, -1, &s, &err), SFP_EINVAL, "count is -1");
    REFUSED(sfp_learner_enqueue(other, 1, NULL, &err), SFP_EINVAL, "must not be NULL");
    s.image.width = 0;
    REFUSED(sfp_learner_enqueue(other, 1, &s, &err), SFP_EINVAL, "sample 0");
    assert_int_equal(sfp_learner_queued(other), 0);
}

/* ------------------------------------------------------------------------------------------------------- tasks and classes */

/* Without a buffer the loss needs the classes of the task, which could not be given. */
TEST(known_tasks_without_a_buffer_learn_once_their_classes_are_given)
{
    sfp_learner *l = learner_of(random_engine(), TRAINED("tasks", "2", "classes", "4", "buffer", "none"));
    sfp_sample samples[2] = {flat_sample(0, 1), flat_sample(1, 2)};
    REFUSED(sfp_learner_offer(l, 2, samples, NULL, &err), SFP_EINVAL, "sfp_learner_set_task_classes");
    MUST(sfp_learner_set_task_classes(l, 2, (const int32_t[]){0, 1}, &err));
    MUST(sfp_learner_offer(l, 2, samples, NULL, &err));
    MUST(sfp_learner_next_task(l, &err));
    MUST(sfp_learner_set_task_classes(l, 2, (const int32_t[]){2, 3}, &err));
    samples[0].label = 2;
    samples[1].label = 3;
    MUST(sfp_learner_offer(l, 2, samples, NULL, &err));
    assert_int_equal(sfp_learner_classes(l), 4);
    REFUSED(sfp_learner_next_task(l, &err), SFP_EINVAL, "task");
    REFUSED(sfp_learner_set_task_classes(l, 1, (const int32_t[]){4}, &err), SFP_EINVAL, "expected 0 to 3");
    REFUSED(sfp_learner_set_task_classes(l, 0, (const int32_t[]){0}, &err), SFP_EINVAL, "count is 0");
    REFUSED(sfp_learner_set_task_classes(l, -2, (const int32_t[]){0}, &err), SFP_EINVAL, "count is -2");
    REFUSED(sfp_learner_set_task_classes(l, 1, NULL, &err), SFP_EINVAL, "at least 1 label");
}

TEST(a_task_free_learner_has_no_tasks_to_begin)
{
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    REFUSED(sfp_learner_next_task(l, &err), SFP_EINVAL, "tasks is 'free'");
    REFUSED(sfp_learner_set_task_classes(l, 1, (const int32_t[]){0}, &err), SFP_EINVAL, "tasks is 'free'");
}

TEST(classes_have_names)
{
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    int32_t cat = -1, dog = -1, again = -1, third = -1;
    sfp_sample s = flat_sample(2, 9);
    MUST(sfp_learner_add_class(l, "cat", &cat, &err));
    MUST(sfp_learner_add_class(l, "dog", &dog, &err));
    MUST(sfp_learner_add_class(l, "cat", &again, &err));
    assert_int_equal(cat, 0);
    assert_int_equal(dog, 1);
    assert_int_equal(again, 0);
    MUST(sfp_learner_offer(l, 1, &s, NULL, &err)); /* label 2 has samples now, but no name */
    MUST(sfp_learner_add_class(l, "owl", &third, &err));
    assert_int_equal(third, 3);
    MUST(sfp_learner_set_class_name(l, 2, "bat", &err));
    assert_string_equal(sfp_learner_class_name(l, 2), "bat");
    MUST(sfp_learner_set_class_name(l, 2, NULL, &err));
    assert_null(sfp_learner_class_name(l, 2));
    assert_null(sfp_learner_class_name(l, -1));
    assert_null(sfp_learner_class_name(l, 1 << 30));
    REFUSED(sfp_learner_set_class_name(l, -1, "x", &err), SFP_EINVAL, "label is -1");
    REFUSED(sfp_learner_add_class(l, "", &cat, &err), SFP_EINVAL, "must not be empty");
    REFUSED(sfp_learner_add_class(l, NULL, &cat, &err), SFP_EINVAL, "must not be empty");
    REFUSED(sfp_learner_add_class(l, "x", NULL, &err), SFP_EINVAL, "must not be NULL");
    sfp_learner *known = learner_of(random_engine(), SETTINGS("tasks", "1", "classes", "1"));
    MUST(sfp_learner_add_class(known, "cat", &cat, &err));
    REFUSED(sfp_learner_add_class(known, "dog", &dog, &err), SFP_ELIMIT, "class 'dog'");
}

TEST(files_that_do_not_fit_are_refused_and_change_nothing)
{
    sfp_engine *e = random_engine();
    sfp_learner *l = learner_of(e, SETTINGS("preset", "paper")), *other = learner_of(e, TRAINED("sigma", "0.25"));
    char *position = (char *)1;
    offer_batches(l, 0, 1);
    MUST(sfp_learner_checkpoint(l, in_directory("c"), "p", &err));
    MUST(sfp_learner_save(l, in_directory("s"), &err));
    REFUSED(sfp_learner_resume(l, in_directory("none"), &position, &err), SFP_ENOTFOUND, "none");
    REFUSED(sfp_learner_resume(other, in_directory("c"), &position, &err), SFP_EINVAL, "sigma");
    sfp_learner *plain = learner_of(e, SETTINGS("method", "ridge", "ridge", "plain", "tap-mean", "off"));
    for (const char *const *key = STRINGS("ridge", "balanced", "tap-mean", "on"); *key;
         key += 2) { /* saved only if they were changed */
        sfp_learner *changed = learner_of(e, SETTINGS("method", "ridge", "ridge", "plain", "tap-mean", "off", key[0], key[1]));
        MUST(sfp_learner_checkpoint(changed, in_directory("r"), NULL, &err));
        REFUSED(sfp_learner_resume(plain, in_directory("r"), &position, &err), SFP_EINVAL,
                kept_print("%s is %s", key[0], key[1]));
        MUST(sfp_learner_checkpoint(plain, in_directory("r"), NULL, &err));
        REFUSED(sfp_learner_resume(changed, in_directory("r"), &position, &err), SFP_EINVAL, kept_print("%s is", key[0]));
    }
    REFUSED(sfp_learner_load(l, in_directory("none"), &err), SFP_ENOTFOUND, "none");
    REFUSED(sfp_learner_load(l, "README.md", &err), SFP_EFORMAT, "README.md");
    REFUSED(sfp_learner_save(l, in_directory("none/s"), &err), SFP_ENOTFOUND, "none/s");
    REFUSED(sfp_learner_checkpoint(l, in_directory("none/c"), NULL, &err), SFP_ENOTFOUND, "none/c");
    REFUSED(sfp_learner_save(l, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_learner_load(l, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_learner_checkpoint(l, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    assert_int_equal(sfp_learner_checkpoint(l, directory, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_checkpoint(l, in_directory("c"), "not UTF-8: \xff", &err), SFP_EINVAL);
    REFUSED(sfp_learner_resume(l, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    assert_ptr_equal(position, (char *)1);
    MUST(sfp_learner_save(l, in_directory("after"), &err));
    check_same_bytes(in_directory("s"), in_directory("after"));
}

/* --------------------------------------------------------------------------------------------------------- corrections */

enum { STRIPES = 40 };

/* One of STRIPES images, all different. */
static sfp_sample striped_sample(int32_t label, int i)
{
    sfp_sample s = flat_sample(i % CLASSES, (uint64_t)i);
    uint8_t *rgb = (uint8_t *)(uintptr_t)s.image.data;
    for (int k = 0; k < SIDE * SIDE * 3; k++)
        rgb[k] = (uint8_t)(rgb[k] + (k * (i + 3) / 7) % 40);
    s.label = label;
    return s;
}

static void learn_stripes(sfp_learner *l, int from, int to, int step)
{
    for (int i = from; i < to; i += step) {
        KEPT_IN_BLOCK;
        sfp_sample s = striped_sample(i % CLASSES, i);
        MUST(sfp_learner_offer(l, 1, &s, NULL, &err));
    }
}

/* Learners that are functions of sums; the last one is the default learner. */
static const char *const with_sums[] = {"ncm", "slda", "ridge", NULL};
enum { WITH_SUMS = sizeof with_sums / sizeof *with_sums };

static sfp_learner *learner_with_sums(int method)
{
    return learner_of(random_engine(),
                      with_sums[method] ? SETTINGS("method", with_sums[method], "taps", "2") : settings_of(NULL));
}

TEST(a_class_without_samples_is_never_predicted)
{
    for (int m = 0; m < WITH_SUMS; m++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with_sums(m);
        learn_stripes(l, 0, 12, 1);
        for (int i = 2; i < 12; i += CLASSES) {
            sfp_sample s = striped_sample(2, i);
            MUST(sfp_learner_forget(l, 1, &s, &err));
        }
        sfp_sample s = striped_sample(2, 2);
        REFUSED(sfp_learner_forget(l, 1, &s, &err), SFP_ENOTFOUND, "no such sample with label 2");
        sfp_predictor *p = predictor_of(l);
        sfp_prediction a;
        MUST(sfp_predictor_run(p, 1, &s.image, &a, &err));
        assert_true(a.label >= 0 && a.label < 2);
        assert_true(sfp_predictor_scores(p)[2] == -INFINITY);
        assert_int_equal(sfp_predictor_class_seen(p, 2), 0);
    }
}

/* The number of classes that a predictor knows, and its answer for a sample. */
static int answer_of(sfp_learner *l, const sfp_sample *s, int *classes)
{
    sfp_predictor *p = predictor_of(l);
    sfp_prediction a;
    MUST(sfp_predictor_run(p, 1, &s->image, &a, &err));
    *classes = sfp_predictor_classes(p);
    return a.label;
}

TEST(predictors_know_classes_that_come_by_corrections)
{
    for (int m = 0; m < WITH_SUMS; m++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with_sums(m), *other = learner_with_sums(m);
        int classes = 0;
        sfp_sample first = striped_sample(0, 0), new_class = striped_sample(2, 2);
        MUST(sfp_learner_offer(l, 1, &first, NULL, &err));
        MUST(sfp_learner_offer(other, 1, &new_class, NULL, &err));
        MUST(sfp_learner_checkpoint(other, in_directory("other"), NULL, &err));
        MUST(sfp_learner_merge(l, in_directory("other"), &err));
        assert_int_equal(answer_of(l, &new_class, &classes), 2);
        assert_int_equal(classes, 3);
        MUST(sfp_learner_relabel(l, &new_class, 4, &err));
        assert_int_equal(answer_of(l, &new_class, &classes), 4);
        assert_int_equal(classes, 5);
    }
}

TEST(a_learner_that_resumes_has_only_the_classes_of_the_checkpoint)
{
    for (int m = 0; m < WITH_SUMS; m++) {
        KEPT_IN_BLOCK;
        sfp_learner *few = learner_with_sums(m), *many = learner_with_sums(m);
        sfp_sample s = striped_sample(1, 1), t = striped_sample(9, 2);
        MUST(sfp_learner_offer(few, 1, &s, NULL, &err));
        MUST(sfp_learner_offer(many, 1, &t, NULL, &err));
        MUST(sfp_learner_checkpoint(few, in_directory("few"), NULL, &err));
        MUST(sfp_learner_resume(many, in_directory("few"), NULL, &err));
        assert_int_equal(sfp_learner_classes(many), 2);
        MUST(sfp_learner_checkpoint(many, in_directory("again"), NULL, &err));
        check_same_bytes(in_directory("few"), in_directory("again"));
    }
}

TEST(only_functions_of_sums_are_corrected)
{
    sfp_sample s = striped_sample(0, 0);
    sfp_engine *e = random_engine();
    sfp_settings *const list[] = {SETTINGS("preset", "paper"), SETTINGS("method", "ranpac")};
    for (int i = 0; i < 2; i++) {
        sfp_learner *l = learner_of(e, list[i]);
        REFUSED(sfp_learner_forget(l, 1, &s, &err), SFP_EUNSUPPORTED, "expected ncm, slda or ridge");
        REFUSED(sfp_learner_relabel(l, &s, 1, &err), SFP_EUNSUPPORTED, "expected ncm, slda or ridge");
        REFUSED(sfp_learner_merge(l, in_directory("c"), &err), SFP_EUNSUPPORTED, "expected ncm, slda or ridge");
        assert_string_equal(err.key, "method");
    }
    sfp_learner *one = learner_of(e, settings_of(NULL));
    assert_int_equal(sfp_learner_merge(one, in_directory("nothing"), &err), SFP_ENOTFOUND);
    assert_int_equal(sfp_learner_merge(one, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_forget(one, 1, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_forget(one, BATCH + 1, &s, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_relabel(one, NULL, 0, &err), SFP_EINVAL);
}

TEST(calls_on_no_learner_are_refused)
{
    sfp_sample s = striped_sample(0, 0);
    const uint64_t id = 0;
    int32_t label = 0;
    const sfp_status status[] = {sfp_learner_offer(NULL, 1, &s, NULL, &err),
                                 sfp_learner_enqueue(NULL, 1, &s, &err),
                                 sfp_learner_label(NULL, 1, &id, &label, NULL, &err),
                                 sfp_learner_forget(NULL, 1, &s, &err),
                                 sfp_learner_relabel(NULL, &s, 1, &err),
                                 sfp_learner_merge(NULL, "c", &err),
                                 sfp_learner_set_task_classes(NULL, 1, &label, &err),
                                 sfp_learner_next_task(NULL, &err),
                                 sfp_learner_add_class(NULL, "a", &label, &err),
                                 sfp_learner_set_class_name(NULL, 0, "a", &err),
                                 sfp_learner_save(NULL, "s", &err),
                                 sfp_learner_load(NULL, "s", &err),
                                 sfp_learner_checkpoint(NULL, "c", NULL, &err),
                                 sfp_learner_resume(NULL, "c", NULL, &err)};
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        assert_int_equal(status[i], SFP_EINVAL);
    assert_string_equal(err.message, "learner must not be NULL");
}
