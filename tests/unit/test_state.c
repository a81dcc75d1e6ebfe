/* State files: a saved state can be loaded, golden files load, and mismatches are reported by name and change nothing. */
#include "failing_alloc.h"
#include "learner_world.h"
#include "model/vit.h"
#include "test.h"
#include "vit_make.h"

#include "io/tensor/safetensors.h"
#include "learner/learner_internal.h"
#include "learner/state/state.h"

AROUND_ALL(make_world, free_world)
AROUND_EACH(make_directory, remove_directory)

static void assert_same_values(sfp__learner *a, sfp__learner *b)
{
    int n, m;
    sfp__param **p = sfp__fp_params(a->fp, &n), **q = sfp__fp_params(b->fp, &m);
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        assert_int_equal(p[i]->rows, q[i]->rows);
        assert_memory_equal(p[i]->data, q[i]->data, (size_t)p[i]->rows * p[i]->width * sizeof(float));
    }
    assert_int_equal(a->fp->task, b->fp->task);
    assert_int_equal(a->fp->frozen_end, b->fp->frozen_end);
    assert_int_equal(a->fp->active_end, b->fp->active_end);
}

TEST(a_saved_state_is_loaded)
{
    for (int known = 0; known < 2; known++) {
        sfp__learner_options o = known ? small_options() : FREE();
        OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o);
        feed(a, 0, known ? 10 : TIMES, known ? 4 : 0); /* task-free: more classes than the initial capacity */
        feed(b, 0, 2, 0);
        if (!known) {
            MUST(sfp__learner_name_class(a, 5, "five \xff", &err));    /* name of a directory that is not UTF-8 */
            MUST(sfp__learner_name_class(a, 30, "a later one", &err)); /* not seen yet: it has a name but no row */
            MUST(sfp__learner_name_class(a, 3, "x", &err));
            MUST(sfp__learner_name_class(a, 3, NULL, &err));
        }
        MUST(sfp__learner_save(a, in_directory("s"), &err));
        MUST(sfp__learner_load(b, in_directory("s"), &err));
        assert_same_values(a, b);
        int rows = sfp__learner_classes(a);
        assert_int_equal(rows, known ? 6 : (TIMES - 1) / 3 + 3);
        for (int i = 0; i < rows; i++)
            assert_int_equal(sfp__learner_seen(a, i), sfp__learner_seen(b, i));
        if (known) {
            assert_string_equal(sfp__learner_class_name(b, 2), "a \"name\" \xc3\xa9");
            assert_null(sfp__learner_class_name(b, 1));
        } else {
            assert_string_equal(sfp__learner_class_name(b, 5), "five \\xff");
            assert_string_equal(sfp__learner_class_name(b, 30), "a later one");
            assert_null(sfp__learner_class_name(b, 3));
        }
        int n;
        sfp__param **p = sfp__fp_params(b->fp, &n);
        for (int i = 0; i < n; i++) /* Adam is reset */
            for (int r = 0; r < p[i]->rows; r++)
                assert_int_equal(p[i]->steps[r], 0);
        MUST(sfp__learner_save(b, in_directory("t"), &err));
        feed(b, known ? 10 : TIMES - 1, known ? 11 : TIMES, known ? 4 : 0);
    }
}

TEST(a_golden_state_loads)
{
    const char *shared = getenv("STREAMFP_SHARED");
    char path[512];
    (void)snprintf(path, sizeof path, "%s/golden/two_tasks/state0.safetensors", shared ? shared : "../shared");
    if (access(path, R_OK) != 0)
        skip();
    const sfp__vit_config config = VIT(SIDE, 8, 64, 6, 4, 256, 0, 1);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL, *without = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__vit_random(&config, 1, 0.1f, &v, &err));
    sfp__learner_options o = sfp__learner_options_defaults(v);
    o.fp.pool = 12;
    o.fp.length = 4;
    o.fp.tasks = 3;
    o.fp.classes = 6;
    MUST(sfp__learner_create(v, threads, &o, &l, &err));
    MUST(sfp__learner_load(l, path, &err));
    assert_int_equal(l->fp->task, 1);
    assert_int_equal(l->fp->frozen_end, 4);
    assert_int_equal(l->fp->active_end, 8);
    MUST(sfp__safetensors_open(path, &st, &err));
    int n;
    sfp__param **p = sfp__fp_params(l->fp, &n);
    assert_int_equal(n, st->count);
    for (int i = 0; i < n; i++)
        assert_memory_equal(p[i]->data, sfp__tensor_file_find(st, p[i]->name)->data,
                            (size_t)p[i]->rows * p[i]->width * sizeof(float));
    for (int i = 0; i < 6; i++)
        assert_false(sfp__learner_seen(l, i));
    o.fp.attune = false; /* then the tensors of the gate are not expected */
    MUST(sfp__learner_create(v, threads, &o, &without, &err));
    REFUSED(sfp__learner_load(without, path, &err), SFP_ESHAPE, "tensor 'prompt.attune.gate.");
}

/* ------------------------------------------------------------------------ mismatches */

static void refused(sfp__learner *l, sfp_status status, const char *words)
{
    bytes before = image_of(l);
    sfp_status s = sfp__learner_load(l, in_directory("t"), &err);
    if (s != status || !strstr(err.message, words) || !strstr(err.message, "/t: "))
        fail_msg("expected %d '%s', got %d '%s'", status, words, s, err.message);
    assert_same_bytes(before, image_of(l), "a learner after a refused state");
}

TEST(mismatches_are_reported_and_change_nothing)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o);
    feed(a, 0, 5, 4);
    MUST(sfp__learner_save(a, in_directory("s"), &err));
    float values[7 * 32] = {0};
    sfp__tensor t = {
        .name = "prompt.e_k_1", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {6, 32}, .count = 192, .bytes = 768, .data = values};
    save_changed("prompt.e_k_1", &t, NULL, NULL);
    refused(b, SFP_ESHAPE, "tensor 'prompt.e_k_1' is (6, 32), expected (7, 32)");
    t = (sfp__tensor){
        .name = "prompt.e_k_1", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {7, 32}, .count = 224, .bytes = 896, .data = values};
    values[9] = NAN;
    save_changed("prompt.e_k_1", &t, NULL, NULL);
    refused(b, SFP_EFORMAT, "tensor 'prompt.e_k_1' has nan as element 9");
    values[9] = -INFINITY;
    save_changed("prompt.e_k_1", &t, NULL, NULL);
    refused(b, SFP_EFORMAT, "tensor 'prompt.e_k_1' has -inf as element 9");
    t.name = "prompt.e_k_9";
    save_changed("prompt.e_k_1", &t, NULL, NULL);
    refused(b, SFP_ENOTFOUND, "tensor 'prompt.e_k_1' is missing");
    t = (sfp__tensor){
        .name = "last.weight", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {7, 32}, .count = 224, .bytes = 896, .data = values};
    save_changed("last.weight", &t, NULL, NULL);
    refused(b, SFP_EINVAL, "number of classes is 7, expected 6");
    const struct {
        const char *key, *value, *words;
        sfp_status status;
    } list[] = {{"task", "3", "metadata 'task' is '3', expected a number from 0 to 2", SFP_EFORMAT},
                {"task", "x", "metadata 'task' is 'x'", SFP_EFORMAT},
                {"task", NULL, "metadata 'task' is missing", SFP_EFORMAT},
                {"open", "8", "metadata 'open' is '8'", SFP_EFORMAT},
                {"start", "-1", "metadata 'start' is '-1'", SFP_EFORMAT},
                {"start", "0", "number of active components is 4, expected at most 2", SFP_EFORMAT},
                {"seen", "[6]", "metadata 'seen'", SFP_EFORMAT},
                {"seen", "{}", "metadata 'seen' is not a JSON list", SFP_EFORMAT},
                {"class_names", "[1]", "metadata 'class_names'", SFP_EFORMAT},
                {"class_names", "[", "metadata 'class_names' is not a JSON list", SFP_EFORMAT},
                {"class_names", "[null,null,null,null,null,null,\"x\"]", "has 7 names, expected at most 6", SFP_EFORMAT},
                {"version", "2", "version of streamfp-state is 2, expected 1", SFP_EUNSUPPORTED},
                {"format", "other", "format is 'other', expected 'streamfp-state'", SFP_EFORMAT},
                {"attune-residual", "on", "attune-residual is on, expected off, the current setting", SFP_EINVAL},
                {"attune-topk", "2", "attune-topk is 2, expected 3, the current setting", SFP_EINVAL},
                {"prefix", "raw", "prefix is raw, expected projected, the current setting", SFP_EINVAL},
                {"tasks", "free", "tasks is free, expected 3, the current setting", SFP_EINVAL}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        save_changed(NULL, NULL, list[i].key, list[i].value);
        refused(b, list[i].status, list[i].words);
    }
    assert_int_equal(sfp__learner_load(b, in_directory("none"), &err), SFP_ENOTFOUND);
}

TEST(a_damaged_state_is_refused)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o);
    feed(a, 0, 5, 4);
    MUST(sfp__learner_save(a, in_directory("s"), &err));
    bytes whole = slurp(in_directory("s"));
    uint64_t header;
    memcpy(&header, whole.p, sizeof header);
    size_t data = sizeof header + header;
    whole.p[(data + whole.n) / 2] ^= 1;
    put_bytes("t", whole.p, whole.n);
    refused(b, SFP_EFORMAT, "checksum is ");
    int side = 7;
    REFUSED(sfp__state_img_size(in_directory("t"), &side, &err), SFP_EFORMAT, "is damaged");
    assert_int_equal(side, 7);
    save_changed(NULL, NULL, NULL, NULL); /* no checksum: accepted */
    MUST(sfp__learner_load(b, in_directory("t"), &err));
    assert_same_values(a, b);
}

/* Writes "s" without metadata except the task, as the reference writes states. */
static void save_bare(void)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
    const sfp__meta task = {"task", "1"};
    MUST(sfp__safetensors_write(in_directory("t"), &st->tensors[0], st->count, &task, 1, &err));
}

TEST(different_shapes_are_reported_by_option_name)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o);
    feed(a, 0, 5, 4);
    MUST(sfp__learner_save(a, in_directory("s"), &err));
    const struct {
        const char *words;
        sfp__learner_options o;
    } list[] = {{"pool is 7, expected 9, the current setting", SMALL(x.fp.pool = 9)},
                {"prompt-length is 4, expected 6, the current setting", SMALL(x.fp.length = 6)},
                {"prompt-layers is 0-1, expected 0-0, the current setting", SMALL(x.fp.last_layer = 0)},
                {"number of classes is 6, expected 8 as in the stream", SMALL(x.fp.classes = 8)},
                {"tasks is 3, expected 2, the current setting", SMALL(x.fp.tasks = 2)}};
    for (int bare = 0; bare < 2; bare++) {
        if (bare)
            save_bare();
        else
            save_changed(NULL, NULL, NULL, NULL);
        for (int i = 0; i < (bare ? 4 : 5); i++) {
            OWNED_PTR(sfp__learner_free) sfp__learner *b = make_learner(&list[i].o);
            refused(b, SFP_EINVAL, list[i].words);
        }
    }
}

TEST(the_input_size_can_be_read_without_a_backbone)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o);
    MUST(sfp__learner_save(a, in_directory("s"), &err));
    const struct {
        const char *sizes;
        int side;
    } list[] = {{"img 32, patch 8", 32},
                {"img 99999999999999999999, patch 8", 0},
                {"img -8, patch 8", 0},
                {"img 32", 0},
                {"32", 0},
                {NULL, 0}};
    int side = 0;
    MUST(sfp__state_img_size(in_directory("s"), &side, &err));
    assert_int_equal(side, SIDE);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        save_changed(NULL, NULL, "backbone-sizes", list[i].sizes);
        MUST(sfp__state_img_size(in_directory("t"), &side, &err));
        assert_int_equal(side, list[i].side);
    }
    side = 7;
    assert_int_equal(sfp__state_img_size(in_directory("none"), &side, &err), SFP_ENOTFOUND);
    assert_int_equal(side, 7);
}

TEST(a_class_that_is_new_to_a_loaded_state_activates_components)
{
    const sfp__learner_options o = FREE(x.fp.span = 2);
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o), *c = make_learner(&o);
    feed(a, 0, 1, 0); /* classes 0 to 2 */
    MUST(sfp__learner_save(a, in_directory("s"), &err));
    MUST(sfp__learner_load(b, in_directory("s"), &err));
    feed(b, 1, 2, 0); /* the same */
    assert_int_equal(b->fp->active_end, 2);
    MUST(sfp__learner_load(c, in_directory("s"), &err));
    feed(c, 3, 4, 0); /* class 3 in its first batch */
    assert_int_equal(c->fp->active_end, 4);
}

TEST(a_task_free_stream_keeps_its_classes)
{
    const sfp__learner_options o = FREE();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o);
    feed(a, 0, 2, 0);
    feed(b, 0, 8, 0);
    MUST(sfp__learner_save(a, in_directory("t"), &err));
    refused(b, SFP_EINVAL, "number of classes is 3, expected at least 5");
}

/* ------------------------------------------------------------------------ memory */

TEST(save_and_load_report_every_failed_allocation)
{
    const sfp__learner_options o = FREE();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&o), *b = make_learner(&o);
    feed(a, 0, TIMES, 0);
    MUST(sfp__learner_name_class(a, 0, "nought", &err));
    long failures = FAIL_EACH_ALLOCATION(sfp__learner_save(a, in_directory("s"), alloc_err), count_files() == 0);
    assert_true(failures > 30);
    assert_int_equal(count_files(), 1);
    bytes empty = image_of(b);
    failures += FAIL_EACH_ALLOCATION(sfp__learner_load(b, in_directory("s"), alloc_err), ({
                                         assert_same_bytes(empty, image_of(b), "a learner after a failed load");
                                         true;
                                     }));
    assert_true(failures > 40);
    assert_same_values(a, b);
}
