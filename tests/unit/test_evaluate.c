/* Evaluation reads pictures no oftener than it must. (Threads: sfp__thread_pool_create is in run_world.h.) */
#include "model/vit.h"
#include "run/evaluate.h"

#include "run_world.h"
#include "test.h"

AROUND_ALL(make_world, end_world)

enum { SIDE = 16, CLASSES = 2, PICTURES = 150, BROKEN = 70 };

static int loads;

static sfp_status fake_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *why)
{
    (void)s;
    (void)why;
    *out = sfp__record_none();
    out->label = (int32_t)(i % CLASSES);
    return SFP_OK;
}

static sfp_status fake_load(const sfp_source *s, int64_t i, sfp_picture *out, sfp_error *why)
{
    (void)s;
    loads++;
    if (i == BROKEN)
        return sfp__fail(why, SFP_EFORMAT, "picture %lld: broken", (long long)i);
    size_t size = (size_t)3 * SIDE * SIDE;
    uint8_t *bytes = sfp__malloc(size);
    assert_non_null(bytes);
    memset(bytes, (int)(i % CLASSES ? 200 - i / 4 : 20 + i / 4), size);
    *out = (sfp_picture){.kind = SFP_PICTURE_RGB, .width = SIDE, .height = SIDE, .bytes = bytes, .size = size};
    return SFP_OK;
}

static const char *fake_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    (void)s;
    (void)snprintf(buf, size, "picture %lld", (long long)i);
    return buf;
}

static const sfp_source_ops fake_ops = {.record = fake_record, .load = fake_load, .name = fake_name};

/* Accuracy before and after learning, with so much memory for pictures; how often one was loaded in each evaluation. */
static void evaluate(const char *method, size_t memory, double accuracy[2], int loaded[2])
{
    static char a[] = "a", b[] = "b", path[] = "fake";
    static char *names[CLASSES] = {a, b};
    static const sfp_source_kind kind = {.name = "fake", .summary = "for tests"};
    const sfp_source source = {.kind = &kind,
                               .path = path,
                               .count = PICTURES,
                               .classes = CLASSES,
                               .class_names = names,
                               .keeps_order = true,
                               .ops = &fake_ops};
    OWNED_BY(sfp__tasks_done) sfp_tasks tasks = {0};
    OWNED_PTR(sfp_learner_free) sfp_learner *l = NULL;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    OWNED_PTR(sfp__evaluator_free) sfp_evaluator *e = NULL;
    sfp_timestamp t;
    sfp_learner_options lo = sfp__learner_options_defaults(vit);
    uint8_t rgb[CLASSES][3 * SIDE * SIDE];
    sfp_sample samples[CLASSES];
    for (int c = 0; c < CLASSES; c++) {
        memset(rgb[c], c ? 180 : 40, sizeof rgb[c]);
        samples[c] = (sfp_sample){.rgb = rgb[c], .label = c, .id = (uint64_t)c};
    }
    lo.batch = 10;
    lo.fp.tasks = 1;
    lo.fp.classes = CLASSES;
    lo.method = method;
    MUST(sfp__tasks_create(&source, "free", 0, 0, NULL, &tasks, NULL));
    MUST(sfp__learner_create(vit, threads, &lo, &l, NULL));
    MUST(sfp__predictor_create(l, threads, 0, &p, NULL));
    MUST(sfp__evaluator_create(&source, &tasks, SIDE, SFP_RESIZE_SQUASH, vit->config.dim, memory, &e, NULL));
    for (int round = 0; round < 2; round++) {
        loads = 0;
        MUST(sfp__evaluator_run(e, p, 0, &accuracy[round], CLASSES, NULL, NULL));
        loaded[round] = loads;
        assert_int_equal(e->asked[0], PICTURES - 1);
        assert_int_equal(e->skipped, 1);
        MUST(sfp__learner_offer(l, CLASSES, samples, &t, NULL));
    }
}

TEST(a_head_alone_needs_each_picture_once)
{
    double kept[2], not_kept[2];
    int loaded[2];
    evaluate("ncm", SFP_EVALUATOR_MEMORY, kept, loaded);
    assert_int_equal(loaded[0], PICTURES);
    assert_int_equal(loaded[1], 0);
    evaluate("ncm", 0, not_kept, loaded);
    assert_int_equal(loaded[0], PICTURES);
    assert_int_equal(loaded[1], 0); /* the queries are known */
    assert_true(not_kept[0] == kept[0] && not_kept[1] == kept[1]);
    assert_true(kept[0] == 0 && kept[1] > 0.5); /* it did answer */
}

TEST(the_learner_sees_pictures_again)
{
    double kept[2], not_kept[2];
    int loaded[2];
    evaluate(NULL, SFP_EVALUATOR_MEMORY, kept, loaded);
    assert_int_equal(loaded[1], 0);
    evaluate(NULL, 0, not_kept, loaded);
    assert_int_equal(loaded[1], PICTURES - 1); /* but for one that is known to be broken */
    assert_true(not_kept[1] == kept[1]);
}
