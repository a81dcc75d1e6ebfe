/* Samples that a program submits to an open run. tests/serve has those of several threads, and kills. */
#include "run_world.h"

AROUND_EACH(make_run_world, remove_directory)

enum { LARGE = 300000 }; /* bytes of an image; three of them fit into 1 MiB */

/* A run that takes samples, after its first step. */
static sfp_run *begin_run(const char *out, bool resume)
{
    int more = 0;
    sfp_run *run =
        open_run(any_engine(), run_into(out, resume, STRINGS("data", "submitted", "keep-images", "1", "max-wait", "0")), NULL);
    MUST(sfp_run_step(run, &more, &err));
    assert_true(more);
    return run;
}

static void end_run(sfp_run *run)
{
    sfp_run_cancel(run);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
}

static uint64_t count(sfp_run *run, sfp_standing standing)
{
    uint64_t counts[5];
    MUST(sfp_run_counts(run, counts, &err));
    return counts[standing];
}

static void step_until(sfp_run *run, sfp_standing standing, uint64_t samples)
{
    int more = 1;
    for (int i = 0; i < 400 && count(run, standing) != samples; i++)
        MUST(sfp_run_step(run, &more, &err));
    assert_int_equal(count(run, standing), samples);
}

/* A large file with an image of one shade. */
static sfp_submission image_of(int shade, const char *label)
{
    static uint8_t bytes[LARGE];
    const char *name = in_directory("image.png");
    put_image("image.png", shade);
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    memset(bytes, 0, sizeof bytes);
    assert_true(fread(bytes, 1, sizeof bytes, f) > 0); /* what follows the end of a PNG file is not read */
    assert_int_equal(fclose(f), 0);
    sfp_submission s = SFP_SUBMISSION_INIT;
    s.bytes = bytes;
    s.byte_count = sizeof bytes;
    s.label = label;
    s.answered = !label;
    s.probability = s.unknown = NAN;
    return s;
}

static sfp_status submit(sfp_run *run, sfp_submission s, uint64_t *id)
{
    return sfp_run_submit(run, &s, id, NULL, &err);
}

static sfp_status keep_info(void *ctx, const sfp_sample_info *s, sfp_error *why)
{
    (void)why;
    sfp_sample_info *to = ctx;
    *to = *s;
    to->learned = kept_print("%s", s->learned ? s->learned : "");
    to->name = kept_print("%s", s->name); /* the texts are valid during the call */
    return SFP_OK;
}

static sfp_sample_info info_of(sfp_run *run, uint64_t id)
{
    sfp_sample_info info = {0};
    sfp_sample_filter f = SFP_SAMPLE_FILTER_INIT;
    f.from = id;
    f.limit = 1;
    MUST(sfp_run_samples(run, &f, keep_info, &info, &err));
    assert_int_equal(info.id, id);
    return info;
}

TEST(an_image_that_is_still_to_be_learned_is_never_removed_and_the_oldest_others_go_first)
{
    uint64_t id = 99;
    sfp_run *run = begin_run("out", false);
    MUST(sfp_run_pause(run, 1, &err));
    for (uint64_t i = 0; i < 3; i++) {
        MUST(submit(run, image_of(60 * (int)i, i % 2 ? "a" : "b"), &id));
        assert_int_equal(id, i);
    }
    REFUSED(submit(run, image_of(200, "a"), &id), SFP_ELIMIT, "keep-images");
    assert_int_equal(count(run, SFP_WAITING), 3);
    MUST(sfp_run_pause(run, 0, &err));
    step_until(run, SFP_LEARNED, 3);
    MUST(submit(run, image_of(200, NULL), &id)); /* a learned one goes */
    assert_int_equal(id, 3);
    assert_int_equal(info_of(run, 0).has_image, 0);
    assert_int_equal(info_of(run, 1).has_image, 1);
    REFUSED(sfp_run_label(run, 0, "a", &err), SFP_ELIMIT, "not kept");
    for (int i = 0; i < 3; i++)
        MUST(submit(run, image_of(201 + i, NULL), &id));
    assert_int_equal(info_of(run, 3).standing, SFP_DROPPED); /* it had no label yet */
    assert_int_equal(count(run, SFP_DROPPED), 1);
    MUST(sfp_run_label(run, 6, "c", &err));
    step_until(run, SFP_LEARNED, 4);
    end_run(run);
}

static sfp_status keep_class(void *ctx, const char *name, int64_t samples, sfp_error *why)
{
    const char **text = ctx;
    (void)why;
    *text = kept_print("%s %s:%d", *text, name, (int)samples);
    return SFP_OK;
}

TEST(images_and_classes_are_read_while_the_run_learns)
{
    uint64_t id = 99;
    void *bytes = NULL;
    size_t size = 0;
    const char *classes = "";
    sfp_submission s = image_of(10, "cup");
    sfp_run *run = begin_run("out", false);
    MUST(submit(run, s, &id));
    MUST(sfp_run_sample_image(run, id, &bytes, &size, &err));
    assert_int_equal(size, s.byte_count);
    assert_memory_equal(bytes, s.bytes, size);
    sfp_free(bytes);
    REFUSED(sfp_run_sample_image(run, 7, &bytes, &size, &err), SFP_ENOTFOUND, "not kept");
    MUST(sfp_run_add_class(run, "bowl", &err));
    step_until(run, SFP_LEARNED, 1);
    MUST(sfp_run_classes(run, keep_class, &classes, &err));
    assert_string_equal(classes, " bowl:0 cup:1");
    end_run(run);
    sfp_sample_info info = {0};
    MUST(sfp_run_list(in_directory("out"), NULL, keep_info, &info, &err));
    assert_string_equal(info.learned, "cup");
}

TEST(a_key_is_one_sample_also_after_a_restart)
{
    uint64_t id = 99;
    int repeated = 9;
    sfp_submission s = image_of(10, "a");
    s.key = "camera/1";
    s.name = "front door";
    sfp_run *run = begin_run("out", false);
    MUST(sfp_run_submit(run, &s, &id, &repeated, &err));
    assert_int_equal(id, 0);
    assert_int_equal(repeated, 0);
    sfp_run_close(run); /* as a killed process would leave it */
    run = begin_run("out", true);
    MUST(sfp_run_submit(run, &s, &id, &repeated, &err));
    assert_int_equal(id, 0);
    assert_int_equal(repeated, 1);
    step_until(run, SFP_LEARNED, 1);
    s = image_of(11, "a");
    s.key = "camera/1";
    REFUSED(submit(run, s, &id), SFP_EINVAL, "another image");
    s.key = NULL;
    s.name = "front door";
    MUST(submit(run, s, &id));
    assert_string_equal(info_of(run, id).name, "front door#1");
    step_until(run, SFP_LEARNED, 2);
    end_run(run);
}

TEST(samples_are_taken_between_the_first_and_the_last_step_of_a_run_that_takes_them)
{
    uint64_t id = 0;
    int more;
    sfp_predictor *p = NULL;
    sfp_run *run = open_run(any_engine(), INTO("out", "data", "submitted"), NULL);
    REFUSED(submit(run, image_of(1, "a"), &id), SFP_ECANCELLED, "has not begun");
    REFUSED(sfp_run_checkpoint(run, &err), SFP_ECANCELLED, "has not begun");
    MUST(sfp_run_predictor(run, NULL, &p, &err));
    MUST(sfp_run_step(run, &more, &err));
    REFUSED(sfp_run_predictor(run, NULL, &p, &err), SFP_EINVAL, "has begun");
    sfp_submission s = image_of(1, "");
    REFUSED(submit(run, s, &id), SFP_EINVAL, "label is empty");
    s = image_of(1, "a");
    s.byte_count = 0;
    REFUSED(submit(run, s, &id), SFP_EINVAL, "0 bytes");
    REFUSED(sfp_run_label(run, 7, "a", &err), SFP_ENOTFOUND, "no sample 7");
    REFUSED(sfp_run_add_class(run, "", &err), SFP_EINVAL, "label is empty");
    REFUSED(sfp_run_forget_sample(run, 7, 0, &err), SFP_ENOTFOUND, "no sample 7");
    sfp_worker_status worker = SFP_WORKER_STATUS_INIT;
    REFUSED(sfp_run_worker(run, &worker, &err), SFP_EINVAL, "not a message log");
    REFUSED(sfp_run_worker(run, NULL, &err), SFP_EINVAL, "run and out");
    sfp_predictor_free(p);
    end_run(run);
    put_images("in", 2, false);
    run = open_run(any_engine(), INTO("other", "data", kept_print("watch:%s", in_directory("in"))), NULL);
    REFUSED(submit(run, image_of(1, "a"), &id), SFP_EINVAL, "expected submitted");
    sfp_run_close(run);
}
