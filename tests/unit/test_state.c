/* State files: a saved state can be loaded and predicts the same, golden files load, and mismatches and damage are reported by name
 * and change nothing, whether a learner starts from the file or a predictor reads it. */
#include "failing_alloc.h"
#include "learner_world.h"
#include "model/vit.h"
#include "predict.h"
#include "test.h"
#include "vit_make.h"

#include "io/tensor/safetensors.h"
#include "learner/learner_internal.h"
#include "learner/predictor.h"
#include "learner/state/state.h"

AROUND_ALL(make_small_world, free_small_world)
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
        OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &o), *b = make_learner(&small, &o);
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
    MUST(sfp__learner_create(v, small.pool, &o, &l, &err));
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
    MUST(sfp__learner_create(v, small.pool, &o, &without, &err));
    REFUSED(sfp__learner_load(without, path, &err), SFP_ESHAPE, "tensor 'prompt.attune.gate.");
}

enum { IMAGES = 9, CLASSES = 40 };

typedef struct answers {
    int classes;
    int32_t label[IMAGES];
    float logp[IMAGES * CLASSES];
} answers;

/* The answers of the predictor of file "t". */
static answers predict(void)
{
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    const uint8_t *list[IMAGES];
    sfp__predictions about = {0};
    answers a = {0};
    for (int i = 0; i < IMAGES; i++)
        list[i] = images[i * 13].rgb;
    MUST(sfp__predictor_open(small.vit, small.pool, in_directory("t"), 0, &p, &err));
    MUST(predict_into(p, IMAGES, list, NULL, NULL, a.label, a.logp, CLASSES, &about, &err));
    a.classes = about.classes;
    return a;
}

/* ------------------------------------------------------------------------ mismatches */

static void check_refused(sfp_status got, sfp_status status, const char *words)
{
    if (got != status || !strstr(err.message, words) || !strstr(err.message, "/t: "))
        fail_msg("expected %d '%s', got %d '%s'", status, words, got, err.message);
}

/* Checks that a learner does not start from "t", which does not change it. */
static void load_refused(sfp__learner *l, sfp_status status, const char *words)
{
    bytes before = image_of(l);
    check_refused(sfp__learner_load(l, in_directory("t"), &err), status, words);
    assert_same_bytes(before, image_of(l), "a learner after a refused state");
}

static void predict_refused(sfp_status status, const char *words)
{
    sfp_predictor *p = NULL;
    check_refused(sfp__predictor_open(small.vit, small.pool, in_directory("t"), 0, &p, &err), status, words);
    assert_null(p);
}

/* States of fingerprints (NULL) and of closed-form heads. */
static const char *const methods[] = {NULL, "ridge", "slda"};
enum { METHODS = sizeof methods / sizeof *methods };

/* Saves "s", and returns a learner with its settings. */
static sfp__learner *save_method(const char *method)
{
    sfp__learner_options o = small_options();
    o.method = method;
    o.fp.classes = method ? 3 : 6;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&small, &o);
    feed(l, 0, method ? 9 : 5, method ? 0 : 4);
    MUST(sfp__learner_save(l, in_directory("s"), &err));
    return make_learner(&small, &o);
}

/* Returns whether a tensor is one of the sums, which only learning needs. */
static bool is_of_sums(const char *name)
{
    static const char *const list[] = {"sample_weight", "total", "square", "key",    "kept_row",
                                       "kept",          "mass",  "sums",   "recent", "products"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof list / sizeof *list; i++)
        if (strcmp(dot + 1, list[i]) == 0)
            return true;
    return false;
}

/* Fails unless "t", without a tensor or with a changed one, is refused. A head does not need its sums to predict, but to learn. */
static void check_changed(sfp__learner *l, const char *name, sfp_status status, const char *words)
{
    bool sums = is_of_sums(name);
    if (sums)
        (void)predict();
    else
        predict_refused(status, words);
    bool layer = status == SFP_ENOTFOUND && strncmp(name, "prompt.e_p_", 11) == 0; /* which layers there are follows from these */
    if (!l->opt.method)
        load_refused(l, layer ? SFP_EINVAL : status, layer ? "prompt-layers is" : words);
    else if (sums) {
        assert_int_not_equal(sfp__learner_load(l, in_directory("t"), &err), SFP_OK);
        assert_true(strstr(err.message, words) || strstr(err.message, "has no sums"));
    }
}

TEST(every_tensor_is_required_and_finite_and_has_its_shape)
{
    for (int m = 0; m < METHODS; m++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = save_method(methods[m]);
        OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
        MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
        assert_true(st->count > 3);
        for (size_t k = 0; k < st->count; k++) {
            KEPT_IN_BLOCK;
            const sfp__tensor *t = &st->tensors[k];
            sfp__tensor spoiled = *t;
            save_changed(t->name, NULL, NULL, NULL);
            if (!strstr(t->name, "unknown.mean")) /* a state may have no score for unknown classes */
                check_changed(l, t->name, SFP_ENOTFOUND, kept_print("tensor '%s' is missing", t->name));
            if (t->dtype == SFP__DTYPE_I64 || t->count == 0)
                continue;
            size_t size = sfp__dtype_size(t->dtype);
            spoiled.data = memcpy(kept_malloc(t->bytes), t->data, t->bytes);
            memset((char *)(uintptr_t)spoiled.data + t->bytes - size, 0xff, size); /* a NaN as the last element */
            save_changed(t->name, &spoiled, NULL, NULL);
            check_changed(l, t->name, SFP_EFORMAT,
                          kept_print("tensor '%s' has -nan as element %zu, expected a finite number", t->name, t->count - 1));
        }
    }
    OWNED_PTR(sfp__learner_free) sfp__learner *l = save_method(NULL);
    float values[7 * 32] = {0};
    sfp__tensor t = {
        .name = "prompt.e_k_1", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {6, 32}, .count = 192, .bytes = 768, .data = values};
    save_changed(t.name, &t, NULL, NULL);
    check_changed(l, t.name, SFP_ESHAPE, "tensor 'prompt.e_k_1' is (6, 32), expected (7, 32)");
    t = (sfp__tensor){
        .name = "last.weight", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {7, 32}, .count = 224, .bytes = 896, .data = values};
    save_changed(t.name, &t, NULL, NULL);
    load_refused(l, SFP_EINVAL, "number of classes is 7, expected 6");
}

/* A learner compares settings with its own; a predictor takes them from the file. */
TEST(metadata_that_do_not_fit_are_reported_by_name)
{
    enum { LOAD = 1, PREDICT = 2, BOTH = 3 };
    static const struct {
        const char *key, *value, *words;
        sfp_status status;
        int by;
    } list[] = {
        {"task", "3", "metadata 'task' is '3', expected a number from 0 to 2", SFP_EFORMAT, LOAD},
        {"task", "x", "metadata 'task' is 'x'", SFP_EFORMAT, LOAD},
        {"task", NULL, "metadata 'task' is missing", SFP_EFORMAT, LOAD},
        {"open", "8", "metadata 'open' is '8', expected a number from 1 to 7", SFP_EFORMAT, BOTH},
        {"start", "-1", "metadata 'start' is '-1'", SFP_EFORMAT, BOTH},
        {"start", "0", "number of active components is 4, expected at most 2", SFP_EFORMAT, LOAD},
        {"seen", "[6]", "metadata 'seen': entry 0 is not a class, expected 0 to 5", SFP_EFORMAT, BOTH},
        {"seen", "{}", "metadata 'seen' is not a JSON list", SFP_EFORMAT, BOTH},
        {"class_names", "[1]", "metadata 'class_names'", SFP_EFORMAT, BOTH},
        {"class_names", "[", "metadata 'class_names' is not a JSON list", SFP_EFORMAT, BOTH},
        {"class_names", "[null,null,null,null,null,null,\"x\"]", "has 7 names, expected at most 6", SFP_EFORMAT, LOAD},
        {"version", "2", "version of streamfp-state is 2, expected 1", SFP_EUNSUPPORTED, BOTH},
        {"format", "other", "format is 'other', expected 'streamfp-state'", SFP_EFORMAT, BOTH},
        {"format", NULL, "format is '', expected 'streamfp-state'", SFP_EFORMAT, PREDICT},
        {"backbone", "00000000",
         "expected 'random' (img 32, patch 8, width 32, depth 5, heads 4, hidden 64; checksum 00000000), with which", SFP_EINVAL,
         BOTH},
        {"attune-residual", "on", "attune-residual is on, expected off, the current setting", SFP_EINVAL, LOAD},
        {"attune-topk", "2", "attune-topk is 2, expected 3, the current setting", SFP_EINVAL, LOAD},
        {"prefix", "raw", "prefix is raw, expected projected, the current setting", SFP_EINVAL, LOAD},
        {"tasks", "free", "tasks is free, expected 3, the current setting", SFP_EINVAL, LOAD},
        {"pool", NULL, "metadata 'pool' is missing", SFP_EFORMAT, PREDICT},
        {"pool", "8", "tensor 'prompt.e_p_0' is (7, 4, 32), expected (8, 4, 32)", SFP_ESHAPE, PREDICT},
        {"pool-kind", "l3p", "metadata: pool-kind is 'l3p', expected one of coda|l2p|dualprompt", SFP_EINVAL, PREDICT},
        {"pool-kind", "l2p", "expected no tensor of that name with these settings", SFP_ESHAPE, PREDICT},
        {"pool-kind", "dualprompt", "is missing", SFP_ENOTFOUND, PREDICT},
        {"pool", "70000", "metadata: pool is '70000', expected a whole number from 1 to 65536", SFP_EINVAL, PREDICT},
        {"prompt-length", "\033[2J", "metadata: prompt-length is '\\x1b[2J'", SFP_EINVAL, PREDICT},
        {"prompt-layers", "0-9", "prompt-layers is 0-9", SFP_EINVAL, PREDICT},
        {"prompt-layers", "0-2", "tensor 'prompt.e_p_2' is missing", SFP_ENOTFOUND, PREDICT},
        {"prompt-layers", "0-0", "expected no tensor of that name with these settings", SFP_ESHAPE, PREDICT},
        {"attune", "off", "tensor 'prompt.attune.gate.", SFP_ESHAPE, PREDICT},
        {"mean", "1,2", "metadata 'mean' is '1,2', expected three numbers", SFP_EFORMAT, PREDICT},
        {"std", "1,0,1", "metadata 'std' is '1,0,1', expected three numbers above 0", SFP_EFORMAT, PREDICT},
        {"timestamps", "-1", "metadata 'timestamps' is '-1'", SFP_EFORMAT, PREDICT},
    };
    OWNED_PTR(sfp__learner_free) sfp__learner *l = save_method(NULL);
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        save_changed(NULL, NULL, list[k].key, list[k].value);
        if (list[k].by & LOAD)
            load_refused(l, list[k].status, list[k].words);
        if (list[k].by & PREDICT)
            predict_refused(list[k].status, list[k].words);
    }
    save_changed(NULL, NULL, "backbone", NULL); /* a file without this entry is accepted */
    MUST(sfp__learner_load(l, in_directory("t"), &err));
    OWNED_PTR(sfp__learner_free) sfp__learner *closed = save_method("ridge");
    REFUSED(sfp__learner_load(l, in_directory("s"), &err), SFP_EINVAL, "method of the state is ");
}

/* Copies "s" to "t", with tensors and metadata in reverse order. */
static void save_reversed(void)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
    size_t n = st->count, m = st->meta_count;
    sfp__tensor *list = kept_calloc(n, sizeof *list);
    sfp__meta *meta = kept_calloc(m, sizeof *meta);
    for (size_t k = 0; k < n; k++)
        list[n - 1 - k] = st->tensors[k];
    for (size_t k = 0; k < m; k++)
        meta[m - 1 - k] = st->meta[k];
    MUST(sfp__safetensors_write(in_directory("t"), list, n, meta, m, &err));
}

static void check_damaged(sfp__learner *l, const bytes *b, const char *words)
{
    put_bytes("t", b->p, b->n);
    predict_refused(SFP_EFORMAT, words);
    load_refused(l, SFP_EFORMAT, words);
}

/* A byte of a tensor, all bytes, the name of a tensor, or a number of the metadata is changed, or the end is missing. */
TEST(a_damaged_state_is_refused)
{
    static const char counted[] = "\"timestamps\":\"", named[] = ".bias\":";
    for (int m = 0; m < METHODS; m++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = save_method(methods[m]);
        bytes b = slurp(in_directory("s"));
        put_bytes("t", b.p, b.n);
        answers whole = predict(), copy;
        uint64_t header;
        memcpy(&header, b.p, sizeof header);
        size_t data = sizeof header + header;
        uint8_t *count = memmem(b.p, data, counted, sizeof counted - 1), *name = memmem(b.p, data, named, sizeof named - 1);
        assert_true(count && name);
        uint8_t *const flipped[] = {b.p + (data + b.n) / 2, b.p + data, b.p + b.n - 1, count + sizeof counted - 1, name + 1};
        for (size_t k = 0; k < sizeof flipped / sizeof *flipped; k++) {
            *flipped[k] ^= 1;
            check_damaged(l, &b, "checksum is ");
            *flipped[k] ^= 1;
        }
        int side = 7;
        *flipped[0] ^= 1;
        check_damaged(l, &b, "checksum is ");
        REFUSED(sfp__state_img_size(in_directory("t"), &side, &err), SFP_EFORMAT, "is damaged");
        assert_int_equal(side, 7);
        for (size_t n = 1; n < b.n; n += 1 + b.n / 40)
            check_damaged(l, &(bytes){b.p, n}, "");
        memset(b.p + data, 0, b.n - data);
        check_damaged(l, &b, "checksum is ");
        for (int summed = 0; summed < 2; summed++) { /* no checksum, or the same one for another order: accepted */
            if (summed)
                save_reversed();
            else
                save_changed(NULL, NULL, NULL, NULL);
            copy = predict();
            assert_memory_equal(&copy, &whole, sizeof copy);
            MUST(sfp__learner_load(l, in_directory("t"), &err));
        }
    }
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
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &o);
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
            OWNED_PTR(sfp__learner_free) sfp__learner *b = make_learner(&small, &list[i].o);
            load_refused(b, SFP_EINVAL, list[i].words);
        }
    }
}

TEST(the_input_size_can_be_read_without_a_backbone)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &o);
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
    OWNED_PTR(sfp__learner_free)
    sfp__learner *a = make_learner(&small, &o),
                 *b = make_learner(&small, &o), *c = make_learner(&small, &o);
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
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &o), *b = make_learner(&small, &o);
    feed(a, 0, 2, 0);
    feed(b, 0, 8, 0);
    MUST(sfp__learner_save(a, in_directory("t"), &err));
    load_refused(b, SFP_EINVAL, "number of classes is 3, expected at least 5");
}

/* ------------------------------------------------------------------------ memory */

TEST(save_and_load_report_every_failed_allocation)
{
    const sfp__learner_options o = FREE();
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &o), *b = make_learner(&small, &o);
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
