/* Evaluation loads images no more often than necessary. */
#include "run/evaluate.h"

#include "fake_source.h"
#include "run_world.h"
#include "test.h"

AROUND_ALL(make_run_world, end_run_world)

enum { SIDE = 16, CLASSES = 2, IMAGES = 150, BROKEN = 70 };

static uint8_t shade(int64_t i)
{
    return (uint8_t)(i % CLASSES ? 200 - i / 4 : 20 + i / 4);
}

/* Evaluates before and after learning, with this amount of memory for images. Returns both accuracies and the number of loads
 * per evaluation. */
static void evaluate(const char *method, size_t memory, double accuracy[2], int loaded[2])
{
    static atomic_long loads;
    fake_source source = make_fake(IMAGES, CLASSES, SIDE, shade);
    source.broken_from = BROKEN;
    source.broken_every = IMAGES;
    source.loads = &loads;
    OWNED_BY(sfp__tasks_done) sfp__tasks tasks = {0};
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    OWNED_PTR(sfp__evaluator_free) sfp__evaluator *e = NULL;
    sfp__timestamp_details t;
    sfp__learner_options lo = sfp__learner_options_defaults(small.vit);
    uint8_t rgb[CLASSES][3 * SIDE * SIDE];
    sfp__sample samples[CLASSES];
    for (int c = 0; c < CLASSES; c++) {
        memset(rgb[c], c ? 180 : 40, sizeof rgb[c]);
        samples[c] = (sfp__sample){.rgb = rgb[c], .label = c, .id = (uint64_t)c};
    }
    lo.batch = 10;
    lo.fp.tasks = 1;
    lo.fp.classes = CLASSES;
    lo.method = method;
    MUST(sfp__tasks_create(&source.s, "free", NULL, NULL, &tasks, NULL));
    MUST(sfp__learner_create(small.vit, small.pool, &lo, &l, NULL));
    MUST(sfp__predictor_create(l, small.pool, 0, &p, NULL));
    MUST(sfp__evaluator_create(&source.s, &tasks, SIDE, SFP__RESIZE_SQUASH, small.vit->config.dim, memory, &e, NULL));
    for (int round = 0; round < 2; round++) {
        atomic_store(&loads, 0);
        MUST(sfp__evaluator_run(e, p, 0, CLASSES, NULL));
        accuracy[round] = e->accuracy[0];
        loaded[round] = (int)atomic_load(&loads);
        assert_int_equal(e->answered[0], IMAGES - 1);
        assert_int_equal(e->skipped.count, 1);
        MUST(sfp__learner_offer(l, CLASSES, samples, &t, NULL));
    }
}

TEST(a_closed_form_head_loads_each_image_once)
{
    double kept[2], not_kept[2];
    int loaded[2];
    evaluate("ncm", SFP__EVALUATOR_MEMORY, kept, loaded);
    assert_int_equal(loaded[0], IMAGES);
    assert_int_equal(loaded[1], 0);
    evaluate("ncm", 0, not_kept, loaded);
    assert_int_equal(loaded[0], IMAGES);
    assert_int_equal(loaded[1], 0); /* the queries are cached */
    assert_true(not_kept[0] == kept[0] && not_kept[1] == kept[1]);
    assert_true(kept[0] == 0 && kept[1] > 0.5); /* the head did learn */
}

TEST(the_learner_loads_images_again)
{
    double kept[2], not_kept[2];
    int loaded[2];
    evaluate(NULL, SFP__EVALUATOR_MEMORY, kept, loaded);
    assert_int_equal(loaded[1], 0);
    evaluate(NULL, 0, not_kept, loaded);
    assert_int_equal(loaded[1], IMAGES - 1); /* all but the image that is known to be broken */
    assert_true(not_kept[1] == kept[1]);
}
