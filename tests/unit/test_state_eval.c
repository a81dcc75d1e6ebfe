/* A saved state, evaluated on a dataset, gives exactly the numbers of the run that saved it, for every kind of state. Classes
 * are matched by name, and samples of unknown classes are counted, not guessed. */
#include "base/thread_pool.h"
#include "model/vit.h"
#include "run/run.h"
#include "run/state_eval.h"
#include "stream/tasks.h"

#include <sys/stat.h>

#include "run_world.h"
#include "test.h"

AROUND_ALL(make_world, end_world)

static sfp__run_options run_options(const char *tasks)
{
    sfp__run_options o = options("synthetic:200", tasks);
    o.learner.fp.pool = 10;
    o.eval_limit = 9;
    return o;
}

static sfp_evaluation_options eval_options(const char *state, const char *tasks)
{
    return (sfp_evaluation_options){.state = state, .data = "synthetic:200", .tasks = tasks, .limit = 9};
}

static sfp_status evaluate(sfp_evaluation_options o, sfp_evaluation **e)
{
    return sfp__state_eval(&(const sfp__evaluation_engine){.vit = vit, .pool = threads}, o.state, &o, e, &err);
}

static sfp_evaluation *evaluate_state(const sfp_evaluation_options *o)
{
    sfp_evaluation *e = NULL;
    if (evaluate(*o, &e))
        fail_msg("%s: %s", o->state, err.message);
    return e;
}

/* Checks row `row` of the run's matrix and, with `last`, all numbers of the run's last evaluation. */
static void assert_same_numbers(const sfp_result *r, int row, const sfp_evaluation *e, bool last)
{
    assert_int_equal(e->tasks, r->tasks);
    assert_int_equal(e->classes, r->classes);
    for (int t = 0; t < r->tasks; t++) {
        assert_string_equal(e->task[t].name, r->task_names[t]);
        if (t <= row)
            assert_true(e->task[t].accuracy == r->accuracy[row * r->tasks + t]);
        else
            assert_true(e->task[t].images == 0 && isnan(e->task[t].accuracy));
    }
    for (int c = 0; c < r->classes; c++)
        assert_string_equal(e->class_row[c].name, r->class_names[c]);
    if (!last)
        return;
    assert_true(e->average == r->average_accuracy);
    assert_memory_equal(e->confusion, r->confusion, (size_t)r->classes * (size_t)r->classes * sizeof *r->confusion);
    assert_int_equal(e->unknown_count, 0);
}

static void check_run(sfp__run_options o, const char *name)
{
    sfp_result r = run_once(&o, name, 0, NULL);
    for (int t = 0; t < r.tasks; t++) {
        char path[4700];
        (void)snprintf(path, sizeof path, "%s/state-task-%d.safetensors", o.out, t + 1);
        sfp_evaluation_options eo = eval_options(path, o.tasks);
        OWNED_PTR(sfp__state_eval_free) sfp_evaluation *e = evaluate_state(&eo);
        assert_same_numbers(&r, t, e, t + 1 == r.tasks);
        uint64_t asked = 0;
        for (int k = 0; k < e->tasks; k++)
            asked += e->task[k].images;
        assert_int_equal(e->images, asked);
        assert_int_equal(e->images + e->unknown_images, 9 * (uint64_t)r.tasks);
        assert_int_equal(e->unknown_count, 10 - 10 / r.tasks * (t + 1));
    }
}

TEST(a_state_gives_the_numbers_of_its_run)
{
    sfp__run_options o = run_options("5");
    check_run(o, "linear");
    o = run_options("2");
    o.learner.fp.prefix = SFP__PREFIX_RAW;
    o.learner.resize = SFP__RESIZE_CROP;
    check_run(o, "raw");
    o = run_options("5");
    o.order = 7; /* labels in an order that the dataset does not have */
    check_run(o, "order");
    for (const char *const *method = STRINGS("ncm", "slda", "ridge", "ranpac"); *method; method++) {
        o = run_options("5");
        o.learner.batch = 7; /* the last bit depends on the batch size */
        o.method = *method;
        check_run(o, *method);
    }
}

TEST(samples_of_unknown_classes_are_counted)
{
    sfp__run_options o = run_options("free");
    static const char *const names[] = {"cat", "dog", "emu"};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 4; i++) {
            put_image(kept_print("all/%s/%d.png", names[c], i), 40 + 60 * c + i);
            if (c != 1)
                put_image(kept_print("two/%s/%d.png", names[c], i), 40 + 60 * c + i);
        }
    put_text("all/cat/9.png", "no image");
    o.data = kept_print("folder:%s", in_directory("two"));
    (void)run_once(&o, "beasts", 0, NULL);
    sfp_evaluation_options eo = eval_options(in_directory("beasts/state.safetensors"), NULL);
    eo.data = kept_print("folder:%s", in_directory("all"));
    eo.limit = 0;
    sfp_evaluation *e = evaluate_state(&eo);
    assert_int_equal(e->tasks, 1);
    assert_int_equal(e->classes, 2);
    assert_int_equal(e->images, 8);
    assert_int_equal(e->skipped.count, 1);
    assert_int_equal(e->unknown_count, 1);
    assert_string_equal(e->unknown[0].name, "dog");
    assert_int_equal(e->unknown_images, 4);
    uint64_t right = e->confusion[0] + e->confusion[3];
    assert_int_equal(e->correct, right);
    assert_int_equal(right + e->confusion[1] + e->confusion[2], 8);
    sfp__state_eval_free(e);
    eo.data = "synthetic:200"; /* none of its classes is known */
    REFUSED(evaluate(eo, &e), SFP_EINVAL, "synthetic:200: dataset has no images of the classes that ");
    eo.data = "nothing:here";
    assert_int_not_equal(evaluate(eo, &e), SFP_OK);
}

TEST(a_class_filter_renumbers_the_labels)
{
    const sfp__source_options so = {.seed = 5};
    const char *const names[] = {"star", NULL, "disc"}, *const twice[] = {"star", "star"}, *const number[] = {NULL, "0"};
    sfp_source *inner = NULL;
    sfp__class_filter *k = NULL;
    MUST(sfp__source_open("synthetic:0", &so, &inner, NULL));
    REFUSED_EXACTLY(sfp__class_filter_open(inner, 3, names, &k, &err), SFP_EUNSUPPORTED,
                    "synthetic:0: live source, expected a dataset");
    sfp__source_close(inner);
    MUST(sfp__source_open("synthetic:100", &so, &inner, NULL));
    REFUSED_EXACTLY(sfp__class_filter_open(inner, 2, twice, &k, &err), SFP_EFORMAT, "classes 0 and 1 have the same name 'star'");
    assert_int_equal(sfp__class_filter_open(inner, 2, number, &k, &err), SFP_EFORMAT);
    MUST(sfp__class_filter_open(inner, 3, names, &k, &err));
    assert_int_equal(k->base.classes, 3);
    assert_string_equal(k->base.class_names[1], "1");
    uint64_t foreign = 0;
    for (int c = 0; c < inner->classes; c++) {
        bool listed = strcmp(inner->class_names[c], "star") == 0 || strcmp(inner->class_names[c], "disc") == 0;
        assert_true(listed == (k->foreign[c] == 0));
        foreign += k->foreign[c];
    }
    assert_int_equal(foreign + (uint64_t)k->base.count, 100);
    for (int64_t i = 0; i < k->base.count; i++) {
        sfp_record r, of;
        char a[64], b[64];
        MUST(sfp__source_record(&k->base, i, &r, NULL));
        MUST(sfp__source_record(inner, k->index[i], &of, NULL));
        assert_string_equal(k->base.class_names[r.label], inner->class_names[of.label]);
        assert_string_equal(sfp__source_name(&k->base, i, a, sizeof a), sfp__source_name(inner, k->index[i], b, sizeof b));
    }
    sfp_record r;
    assert_int_equal(sfp__source_record(&k->base, k->base.count, &r, &err), SFP_EINVAL);
    sfp__source_close(&k->base);
}
