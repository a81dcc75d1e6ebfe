/* Selectors and buffer methods of a program (streamfp.h, part 10). Names stay registered for the rest of the process, so that each
 * test has its own. */
#include "world.h"

#include <pthread.h>

AROUND_EACH(make_directory, remove_directory)

enum { OFFERED = 8 }; /* samples per batch */

static sfp_settings *settings_with(const char *select, const char *buffer)
{
    return TRAINED("batch", "8", "buffer-size", "10", "replay", "4", "weighted", "on", "select", select, "buffer", buffer);
}

/* Batch k: images with a gradient whose direction and shade follow from its number. */
static sfp_status offer(sfp_learner *l, int k, sfp_timestamp_report *report, sfp_error *why)
{
    static uint8_t rgb[OFFERED][SIDE * SIDE * 3];
    sfp_sample samples[OFFERED] = {0};
    for (int i = 0; i < OFFERED; i++) {
        for (int p = 0; p < SIDE * SIDE * 3; p++)
            rgb[i][p] = (uint8_t)(20 + 70 * (i % CLASSES) + 3 * k + p / (11 + i));
        samples[i].image = (sfp_image){.width = SIDE, .height = SIDE, .data = rgb[i]};
        samples[i].label = i % CLASSES;
        samples[i].id = (uint64_t)(k * OFFERED + i);
    }
    return sfp_learner_offer(l, OFFERED, samples, report, why);
}

static void offer_all(sfp_learner *l, int first, int end)
{
    for (int k = first; k < end; k++) {
        sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
        MUST(offer(l, k, &report, &err));
        assert_int_equal(report.timestamp, k);
    }
}

/* Scores of four images after six batches. */
static void learn_and_score(const char *select, const char *buffer, float scores[4 * CLASSES])
{
    sfp_learner *l = learner_of(random_engine(), settings_with(select, buffer));
    sfp_prediction answers[4];
    sfp_image images[4];
    offer_all(l, 0, 6);
    sfp_predictor *p = predictor_of(l);
    for (int i = 0; i < 4; i++)
        images[i] = flat_sample(i % CLASSES, (uint64_t)i).image;
    MUST(sfp_predictor_run(p, 4, images, answers, &err));
    assert_int_equal(sfp_predictor_classes(p), CLASSES);
    memcpy(scores, sfp_predictor_scores(p), 4 * CLASSES * sizeof *scores);
}

/* A learner with these methods that resumes from a checkpoint ends in the same bytes as one that never stopped. */
static void check_resume(const char *select, const char *buffer)
{
    sfp_engine *e = random_engine();
    sfp_settings *s = settings_with(select, buffer);
    sfp_learner *whole = learner_of(e, s), *after = learner_of(e, s);
    const char *middle = in_directory("middle"), *end = in_directory("end"), *resumed = in_directory("resumed");
    offer_all(whole, 0, 3);
    MUST(sfp_learner_checkpoint(whole, middle, "", &err));
    offer_all(whole, 3, 6);
    MUST(sfp_learner_checkpoint(whole, end, "", &err));
    MUST(sfp_learner_resume(after, middle, NULL, &err));
    offer_all(after, 3, 6);
    MUST(sfp_learner_checkpoint(after, resumed, "", &err));
    check_same_bytes(end, resumed);
}

/* ---------------------------------------------------------------------------------------------------------- selectors */

static sfp_selector_definition selector_of(const char *name, void *ctx, unsigned needs,
                                           sfp_status (*select)(void *ctx, const sfp_selection *batch, int32_t *chosen,
                                                                float *weights, int32_t *count, sfp_error *why))
{
    sfp_selector_definition d = SFP_SELECTOR_DEFINITION_INIT;
    d.name = name;
    d.summary = "for tests";
    d.ctx = ctx;
    d.needs = needs;
    d.select = select;
    return d;
}

/* The built-in `random`: the first cards of a shuffled deck. */
static sfp_status shuffle(void *ctx, const sfp_selection *batch, int32_t *chosen, float *weights, int32_t *count, sfp_error *why)
{
    int32_t deck[OFFERED];
    int *calls = ctx;
    (void)why;
    assert_true(batch->size == sizeof *batch && batch->b == OFFERED && batch->coreset == OFFERED / 2);
    assert_true(!batch->score && !batch->query && !batch->features && !batch->logits && !batch->probs);
    assert_true(weights[0] == 1 && weights[OFFERED - 1] == 1);
    for (int32_t i = 0; i < batch->b; i++) {
        assert_int_equal(batch->labels[i], i % CLASSES);
        deck[i] = i;
    }
    for (int32_t i = 0; i < batch->coreset; i++) {
        int32_t k = i + (int32_t)sfp_random_below(batch->random, (uint32_t)(batch->b - i));
        chosen[i] = deck[k];
        deck[k] = deck[i];
    }
    *count = batch->coreset;
    ++*calls;
    return SFP_OK;
}

TEST(an_own_selector_that_draws_the_same_numbers_learns_the_same)
{
    int calls = 0;
    const sfp_selector_definition d = selector_of("my-random", &calls, 0, shuffle);
    float built_in[4 * CLASSES], own[4 * CLASSES], other[4 * CLASSES];
    MUST(sfp_register_selector(&d, &err));
    learn_and_score("random", "er", built_in);
    learn_and_score("my-random", "er", own);
    learn_and_score("streamfp", "er", other);
    assert_int_equal(calls, 6);
    assert_memory_equal(built_in, own, sizeof own);
    assert_memory_not_equal(other, own, sizeof own);
    check_resume("my-random", "er");
}

TEST(an_own_selector_is_not_called_for_a_whole_batch)
{
    int calls = 0;
    const sfp_selector_definition d = selector_of("idle", &calls, 0, shuffle);
    MUST(sfp_register_selector(&d, &err));
    sfp_settings *s = settings_with("idle", "er");
    sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
    MUST(sfp_settings_set(s, "sigma", "1", &err));
    sfp_learner *l = learner_of(random_engine(), s);
    MUST(offer(l, 0, &report, &err));
    assert_int_equal(report.coreset, OFFERED);
    assert_int_equal(calls, 0);
}

static sfp_status check_all_inputs(void *ctx, const sfp_selection *batch, int32_t *chosen, float *weights, int32_t *count,
                                   sfp_error *why)
{
    (void)ctx;
    (void)why;
    assert_true(batch->dim > 0 && batch->classes == CLASSES);
    for (int i = 0; i < batch->b; i++) {
        double sum = 0;
        for (int c = 0; c < batch->classes; c++)
            sum += (double)batch->probs[i * batch->classes + c];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(isfinite(batch->score[i]) && isfinite(batch->logits[(i + 1) * batch->classes - 1]));
        assert_true(isfinite(batch->query[(i + 1) * batch->dim - 1]) && isfinite(batch->features[(i + 1) * batch->dim - 1]));
        chosen[i] = batch->b - 1 - i;
        weights[i] = batch->probs[i * batch->classes];
    }
    *count = batch->b;
    return SFP_OK;
}

TEST(an_own_selector_gets_its_inputs_and_the_first_choices_are_trained_on)
{
    const sfp_selector_definition d = selector_of(
        "everything", NULL, SFP_NEEDS_SCORE | SFP_NEEDS_FEATURES | SFP_NEEDS_LOGITS | SFP_NEEDS_PROBS | SFP_NEEDS_QUERY,
        check_all_inputs);
    MUST(sfp_register_selector(&d, &err));
    sfp_settings *s = settings_with("everything", "none");
    sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
    sfp_learner *l = learner_of(random_engine(), s);
    MUST(offer(l, 0, &report, &err));
    assert_int_equal(report.coreset, OFFERED / 2);
    check_resume("everything", "er");
}

/* What a selector or buffer method does wrong: it fails, or its count, an entry of one of its lists or a weight is not valid. */
typedef struct fault {
    sfp_status status;
    const char *part, *why; /* of the message; what the callback says */
    int count, first, second, at;
    float weight;
} fault;
enum { SAME = INT32_MAX }; /* this number is not changed */

static sfp_status choose_badly(void *ctx, const sfp_selection *batch, int32_t *chosen, float *weights, int32_t *count,
                               sfp_error *why)
{
    const fault *f = *(const fault *const *)ctx;
    for (int i = 0; f && i < 3; i++)
        (void)sfp_random_uniform(batch->random);
    assert_int_equal(sfp_random_below(batch->random, 0), 0); /* draws nothing, and does not crash */
    for (int32_t i = 0; i < batch->coreset; i++)
        chosen[i] = i;
    *count = batch->coreset;
    if (!f)
        return SFP_OK;
    *count = f->count == SAME ? *count : f->count;
    chosen[f->at] = f->first == SAME ? chosen[f->at] : f->first;
    weights[f->at] = f->weight;
    if (f->status == SFP_EINVAL)
        return SFP_OK;
    return f->why ? sfp_error_set(why, f->status, f->why) : f->status;
}

TEST(results_of_a_selector_are_checked)
{
    static const fault list[] = {
        {SFP_EUNSUPPORTED, "selector 'faulty': no idea", "no idea", SAME, SAME, SAME, 0, 1},
        {SFP_ENOMEM, "selector 'faulty': out of memory", NULL, SAME, SAME, SAME, 0, 1},
        {SFP_EINVAL, "selector 'faulty': count is -1, expected 1 to 8", NULL, -1, SAME, SAME, 0, 1},
        {SFP_EINVAL, "selector 'faulty': count is 9, expected 1 to 8", NULL, 9, SAME, SAME, 0, 1},
        {SFP_EINVAL, "selector 'faulty': count is 0", NULL, 0, SAME, SAME, 0, 1},
        {SFP_EINVAL, "selector 'faulty': chosen[1] is 8, expected 0 to 7", NULL, SAME, 8, SAME, 1, 1},
        {SFP_EINVAL, "selector 'faulty': chosen[2] is 1 again", NULL, SAME, 1, SAME, 2, 1},
        {SFP_EINVAL, "selector 'faulty': weights[0] is nan", NULL, SAME, SAME, SAME, 0, NAN},
        {SFP_EINVAL, "selector 'faulty': weights[3] is -0.5", NULL, SAME, SAME, SAME, 3, -0.5f},
        {SFP_EINVAL, "selector 'faulty': chosen[4] is -1", NULL, 5, SAME, SAME, 0, 1}}; /* one that is not written */
    const fault *f = NULL;
    const sfp_selector_definition d = selector_of("faulty", &f, 0, choose_badly);
    MUST(sfp_register_selector(&d, &err));
    sfp_engine *e = random_engine();
    sfp_settings *s = settings_with("faulty", "er");
    sfp_learner *l = learner_of(e, s), *fresh = learner_of(e, s);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        f = &list[i];
        REFUSED_AS(f->part, offer(l, 0, NULL, &err), f->status, f->part);
    }
    f = NULL;
    offer_all(l, 0, 2); /* failed calls have drawn nothing and changed nothing */
    offer_all(fresh, 0, 2);
    const char *first = in_directory("first"), *second = in_directory("second");
    MUST(sfp_learner_checkpoint(l, first, "", &err));
    MUST(sfp_learner_checkpoint(fresh, second, "", &err));
    check_same_bytes(first, second);
}

TEST(hostile_selector_definitions_are_refused)
{
    static const char *const names[] = {NULL,          "",    "Upper", "with space",
                                        "under_score", "a.b", "../x",  "a-name-that-is-longer-than-31-bytes"};
    int calls = 0;
    sfp_selector_definition d = selector_of("used-once", &calls, 0, shuffle);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        d.name = names[i];
        REFUSED_AS(names[i] ? names[i] : "NULL", sfp_register_selector(&d, &err), SFP_EINVAL, "expected 1 to 31 lower-case");
    }
    d.name = "random";
    REFUSED(sfp_register_selector(&d, &err), SFP_EINVAL, "selector 'random': name is in use");
    d.name = "used-once";
    d.needs = 16;
    REFUSED(sfp_register_selector(&d, &err), SFP_EINVAL, "selector 'used-once': needs is 0x10");
    d.needs = 0;
    d.select = NULL;
    REFUSED(sfp_register_selector(&d, &err), SFP_EINVAL, "selector 'used-once': callback is NULL");
    d.select = shuffle;
    d.size = 0;
    REFUSED(sfp_register_selector(&d, &err), SFP_EINVAL, "sfp_selector_definition: size is 0");
    d.size = sizeof d;
    REFUSED(sfp_register_selector(NULL, &err), SFP_EINVAL, "definition");
    d.summary = NULL;
    MUST(sfp_register_selector(&d, &err));
    REFUSED(sfp_register_selector(&d, &err), SFP_EINVAL, "selector 'used-once': name is in use");
}

TEST(the_settings_know_registered_names)
{
    int calls = 0;
    const sfp_selector_definition d = selector_of("known-later", &calls, 0, shuffle);
    sfp_settings *s = NULL;
    MUST(sfp_settings_create(&s, &err));
    REFUSED(sfp_settings_set(s, "select", "known-later", &err), SFP_EINVAL, "select is 'known-later', expected one of");
    MUST(sfp_register_selector(&d, &err));
    MUST(sfp_settings_set(s, "select", "known-later", &err));
    REFUSED(sfp_settings_set(s, "select", "unknown", &err), SFP_EINVAL, "known-later");
    sfp_settings_free(s);
}

/* ----------------------------------------------------------------------------------------------------- buffer methods */

typedef sfp_status replace_function(void *ctx, void *state, const sfp_buffer_view *view, int32_t *sample, int32_t *slot,
                                    int32_t *count, sfp_error *why);

static sfp_buffer_definition buffer_of(const char *name, void *ctx, unsigned needs, size_t state_bytes, replace_function *replace)
{
    sfp_buffer_definition d = SFP_BUFFER_DEFINITION_INIT;
    d.name = name;
    d.summary = "for tests";
    d.ctx = ctx;
    d.needs = needs;
    d.state_bytes = state_bytes;
    d.replace = replace;
    return d;
}

/* The built-in `er`: a reservoir. A later sample of the batch can push an earlier one out of its slot. */
static sfp_status reservoir(void *ctx, void *state, const sfp_buffer_view *view, int32_t *sample, int32_t *slot, int32_t *count,
                            sfp_error *why)
{
    (void)ctx;
    (void)why;
    assert_null(state);
    assert_true(view->size == sizeof *view && view->slots == 10 && !view->score && !view->slot_score);
    int32_t n = 0;
    for (int32_t i = 0; i < view->b; i++) {
        uint32_t j = sfp_random_below(view->random, (uint32_t)view->seen + (uint32_t)i + 1);
        int32_t at = 0;
        if (j >= (uint32_t)view->slots)
            continue;
        while (at < n && slot[at] != (int32_t)j)
            at++;
        slot[at] = (int32_t)j;
        sample[at] = i;
        n += at == n;
    }
    *count = n;
    return SFP_OK;
}

TEST(an_own_reservoir_learns_the_same_as_the_built_in_one)
{
    const sfp_buffer_definition d = buffer_of("my-er", NULL, 0, 0, reservoir);
    float built_in[4 * CLASSES], own[4 * CLASSES];
    MUST(sfp_register_buffer(&d, &err));
    learn_and_score("streamfp", "er", built_in);
    learn_and_score("streamfp", "my-er", own);
    assert_memory_equal(built_in, own, sizeof own);
    check_resume("streamfp", "my-er");
}

/* First in, first out: the state is the slot that is oldest. */
typedef struct fifo_state {
    uint64_t next, calls;
} fifo_state;

static sfp_status fifo(void *ctx, void *state, const sfp_buffer_view *view, int32_t *sample, int32_t *slot, int32_t *count,
                       sfp_error *why)
{
    fifo_state *s = state;
    (void)why;
    int *calls = ctx;
    ++*calls;
    s->calls++;
    assert_true(view->seen >= (uint64_t)view->slots && view->b > 0 && view->b <= OFFERED);
    for (int32_t i = 0; i < view->b; i++) {
        assert_true(view->ids[i] == view->timestamp * OFFERED + (uint64_t)(OFFERED - view->b + i));
        assert_true(view->labels[i] == (int32_t)(view->ids[i] % OFFERED % CLASSES) && isfinite(view->score[i]));
    }
    for (int32_t i = 0; i < view->slots; i++) {
        assert_true(view->slot_time[i] == view->slot_id[i] / OFFERED && view->slot_time[i] <= view->timestamp);
        assert_true(view->slot_label[i] == (int32_t)(view->slot_id[i] % OFFERED % CLASSES) && isfinite(view->slot_score[i]));
    }
    for (int32_t i = 0; i < view->b; i++) {
        sample[i] = i;
        slot[i] = (int32_t)(s->next++ % (uint64_t)view->slots);
        assert_true(view->slot_id[slot[i]] + (uint64_t)view->slots == view->ids[i]); /* it is the oldest */
    }
    *count = view->b;
    return SFP_OK;
}

TEST(the_state_of_an_own_buffer_method_is_saved_in_checkpoints)
{
    int calls = 0;
    const sfp_buffer_definition d = buffer_of("fifo", &calls, SFP_NEEDS_SCORE, sizeof(fifo_state), fifo);
    MUST(sfp_register_buffer(&d, &err));
    check_resume("streamfp", "fifo");
    assert_int_equal(calls, 5 + 3); /* the first batch fits; five follow it, and three after the resume */
    size_t size = 0;
    const uint8_t *bytes = bytes_of(in_directory("end"), &size);
    assert_non_null(memmem(bytes, size, "buffer.fifo.state", 17));
}

static sfp_status replace_badly(void *ctx, void *state, const sfp_buffer_view *view, int32_t *sample, int32_t *slot,
                                int32_t *count, sfp_error *why)
{
    const fault *f = *(const fault *const *)ctx;
    uint8_t *s = state;
    s[0]++;
    (void)sfp_random_uniform(view->random);
    for (int32_t i = 0; i < 2; i++)
        sample[i] = slot[i] = i;
    *count = 2;
    if (!f)
        return SFP_OK;
    *count = f->count == SAME ? *count : f->count;
    sample[1] = f->first == SAME ? sample[1] : f->first;
    slot[1] = f->second == SAME ? slot[1] : f->second;
    return f->status == SFP_EINVAL ? SFP_OK : sfp_error_set(why, f->status, f->why);
}

TEST(results_of_a_buffer_method_are_checked)
{
    static const fault list[] = {{SFP_EIO, "buffer 'shaky': no idea", "no idea", SAME, SAME, SAME, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': count is -1, expected 0 to 6", NULL, -1, SAME, SAME, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': count is 7, expected 0 to 6", NULL, 7, SAME, SAME, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': sample[1] is 6, expected 0 to 5", NULL, SAME, 6, SAME, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': slot[1] is 10, expected 0 to 9", NULL, SAME, SAME, 10, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': sample[1] is 0 again", NULL, SAME, 0, SAME, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': slot[1] is 0 again", NULL, SAME, SAME, 0, 0, 0},
                                 {SFP_EINVAL, "buffer 'shaky': sample[2] is -1", NULL, 3, SAME, SAME, 0, 0}}; /* not written */
    const fault *f = NULL;
    const sfp_buffer_definition d = buffer_of("shaky", &f, 0, 4, replace_badly);
    MUST(sfp_register_buffer(&d, &err));
    sfp_engine *e = random_engine();
    sfp_settings *s = settings_with("random", "shaky");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        sfp_learner *l = learner_of(e, s);
        sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
        MUST(offer(l, 0, &report, &err));
        assert_true(report.stored == OFFERED && report.replaced == 0);
        f = &list[i];
        REFUSED_AS(f->part, offer(l, 1, &report, &err), f->status, f->part);
        f = NULL;
        MUST(offer(l, 1, &report, &err)); /* the buffer is as before the failure: two slots are free */
        assert_true(report.timestamp == 1 && report.stored == 2 && report.replaced == 2);
    }
}

TEST(hostile_buffer_definitions_are_refused)
{
    sfp_buffer_definition d = buffer_of("Big", NULL, 0, 0, reservoir);
    REFUSED(sfp_register_buffer(&d, &err), SFP_EINVAL, "buffer method 'Big': not a name");
    d.name = "camel";
    REFUSED(sfp_register_buffer(&d, &err), SFP_EINVAL, "buffer method 'camel': name is in use");
    d.name = "big";
    d.needs = SFP_NEEDS_QUERY;
    REFUSED(sfp_register_buffer(&d, &err), SFP_EINVAL, "buffer method 'big': needs is 0x40");
    d.needs = 0;
    d.state_bytes = (1 << 20) + 1;
    REFUSED(sfp_register_buffer(&d, &err), SFP_ELIMIT, "buffer method 'big': state_bytes is 1048577");
    d.state_bytes = 0;
    d.replace = NULL;
    REFUSED(sfp_register_buffer(&d, &err), SFP_EINVAL, "buffer method 'big': callback is NULL");
    REFUSED(sfp_register_buffer(NULL, &err), SFP_EINVAL, "definition");
    d.replace = reservoir;
    d.size = 3;
    REFUSED(sfp_register_buffer(&d, &err), SFP_EINVAL, "sfp_buffer_definition: size is 3");
}

/* ------------------------------------------------------------------------------------------------------------ threads */

static void *register_many(void *ctx)
{
    static char names[2][16][32];
    static int calls;
    int thread = *(const int *)ctx;
    for (int i = 0; i < 16; i++) {
        (void)snprintf(names[thread][i], sizeof names[thread][i], "parallel-%d", i);
        const sfp_selector_definition d = selector_of(names[thread][i], &calls, 0, shuffle);
        (void)sfp_register_selector(&d, NULL); /* of two threads one succeeds */
    }
    return NULL;
}

TEST(selectors_may_be_registered_and_found_at_the_same_time)
{
    pthread_t threads[2];
    const int numbers[2] = {0, 1};
    sfp_settings *s = NULL;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, register_many, (void *)(uintptr_t)&numbers[i]), 0);
    MUST(sfp_settings_create(&s, &err));
    for (int i = 0; i < 100; i++)
        MUST(sfp_settings_set(s, "select", "learnloss", &err));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    MUST(sfp_settings_set(s, "select", "parallel-0", &err));
    MUST(sfp_settings_set(s, "select", "parallel-15", &err));
    sfp_settings_free(s);
}
