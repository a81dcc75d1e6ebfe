/* States loaded for inference: predictions have the same bytes as those of the learner that saved them, settings are read from
 * the file, and mismatches are reported by name. */
#include "learner_world.h"
#include "predict.h"
#include "test.h"

#include "io/tensor/safetensors.h"
#include "learner/learner_internal.h"
#include "learner/predictor.h"
#include "learner/state/state.h"

AROUND_ALL(make_world, free_world)
AROUND_EACH(make_directory, remove_directory)

enum { IMAGES = 9, CLASSES = 40 };

static const uint8_t *image_list[IMAGES];

static void choose_images(void)
{
    for (int i = 0; i < IMAGES; i++)
        image_list[i] = images[i * 13].rgb;
}

typedef struct answers {
    int32_t label[IMAGES];
    float logp[IMAGES * CLASSES];
    sfp__predictions about;
} answers;

static answers predict(sfp_predictor *p)
{
    answers a = {0};
    MUST(predict_into(p, IMAGES, image_list, NULL, NULL, a.label, a.logp, CLASSES, &a.about, &err));
    return a;
}

static void assert_same_answers(const answers *x, const answers *y)
{
    assert_int_equal(x->about.classes, y->about.classes);
    assert_int_equal(x->about.t, y->about.t);
    assert_memory_equal(x->label, y->label, sizeof x->label);
    for (int i = 0; i < IMAGES; i++)
        assert_memory_equal(x->logp + i * CLASSES, y->logp + i * CLASSES, (size_t)x->about.classes * sizeof(float));
}

/* The predictions of a learner's own predictor and of its saved state. */
static void check_kind(const sfp__learner_options *o)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(o);
    OWNED_PTR(sfp__predictor_free) sfp_predictor *own = NULL, *opened = NULL;
    bool known = o->fp.tasks > 0;
    feed(l, 0, known ? 10 : 30, known ? 4 : 0);
    MUST(sfp__predictor_create(l, threads, 20, &own, &err));
    MUST(sfp__learner_save(l, in_directory("s"), &err));
    MUST(sfp__predictor_open(vit, threads, in_directory("s"), 0, &opened, &err));
    answers x = predict(own), y = predict(opened);
    assert_same_answers(&x, &y);
    assert_int_equal(sfp__predictor_classes(opened), sfp__learner_classes(l));
    for (int c = -1; c <= sfp__learner_classes(l); c++) {
        const char *a = sfp__learner_class_name(l, c), *b = sfp__predictor_class_name(opened, c);
        assert_true((!a && !b) || strcmp(a, b) == 0);
        assert_int_equal(sfp__learner_seen(l, c), sfp__predictor_seen(opened, c));
    }
    const sfp__learner_options *had = &opened->opt;
    assert_int_equal(had->resize, o->resize);
    assert_int_equal(had->seed, o->seed);
    assert_memory_equal(had->mean, o->mean, sizeof o->mean);
    assert_memory_equal(had->std, o->std, sizeof o->std);
}

TEST(predictions_equal_those_of_the_learner_that_saved)
{
    choose_images();
    const sfp__learner_options list[] = {
        small_options(),
        FREE(),
        SMALL(x.fp.attune = false),
        SMALL(x.fp.kind = SFP__FP_L2P; x.fp.last_layer = 3),
        FREE(x.fp.kind = SFP__FP_L2P; x.fp.last_layer = 3),
        SMALL(x.fp.kind = SFP__FP_DUALPROMPT; x.fp.last_layer = 3),
        FREE(x.fp.kind = SFP__FP_DUALPROMPT; x.fp.last_layer = 3),
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        print_message("row %zu\n", i);
        check_kind(&list[i]);
    }
    sfp__learner_options o = small_options();
    o.fp.prefix = SFP__PREFIX_RAW;
    o.fp.attune_residual = true;
    o.fp.attune_topk = 2;
    o.fp.first_layer = 1;
    o.fp.last_layer = 3;
    o.resize = SFP__RESIZE_CROP;
    memcpy(o.mean, (float[]){0.1f, 0.2f, 0.3f}, sizeof o.mean);
    memcpy(o.std, (float[]){0.7f, 1.0f / 3, 0.9f}, sizeof o.std);
    check_kind(&o);
}

/* A closed-form head (method) that has seen two of three classes. */
static sfp__learner *save_method(const char *kind, int taps, bool tap_mean)
{
    sfp__learner_options o = small_options();
    o.method = kind;
    o.taps = taps;
    o.tap_mean = tap_mean;
    o.fp.classes = 3;
    sfp__learner *l = make_learner(&o);
    feed(l, 0, 9, 0);
    MUST(sfp__learner_save(l, in_directory("s"), &err));
    return l;
}

TEST(a_closed_form_head_predicts_too)
{
    choose_images();
    static const char *const kinds[] = {"ncm", "slda", "ridge", "ranpac"};
    for (int k = 0; k < 16; k++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *from = save_method(kinds[k / 4], 1 + k % 2, k / 2 % 2);
        OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL, *learned = NULL;
        MUST(sfp__predictor_open(vit, threads, in_directory("s"), 4, &p, &err)); /* 9 images are divided into three passes */
        MUST(sfp__predictor_create(from, threads, 4, &learned, &err));
        answers a = predict(p), want = predict(learned), again;
        assert_int_equal(a.about.t, 9);
        assert_string_equal(sfp__predictor_class_name(p, 0), "cat");
        assert_null(sfp__predictor_class_name(p, 2));
        assert_same_answers(&a, &want);
        float query[IMAGES * 96];
        assert_int_equal(p->tap_dim, 32 * (1 + k % 2 + k / 2 % 2));
        bool has[IMAGES] = {false};
        int32_t label[IMAGES];
        MUST(predict_into(p, IMAGES, image_list, query, has, label, NULL, 0, NULL, &err));
        for (int i = 0; i < IMAGES; i++) {
            const float *logp = a.logp + i * CLASSES;
            assert_true(has[i]);
            assert_true(logp[2] == -INFINITY);
            assert_int_equal(label[i], logp[1] > logp[0] ? 1 : 0);
        }
        has[2] = has[5] = false; /* known queries are used, others are computed */
        again = a;
        MUST(predict_into(p, IMAGES, image_list, query, has, again.label, again.logp, CLASSES, NULL, &err));
        assert_same_answers(&a, &again);
        sfp__learner_options o = small_options();
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&o);
        REFUSED(sfp__learner_load(l, in_directory("s"), &err), SFP_EINVAL, "method of the state is ");
    }
}

/* ------------------------------------------------------------------------ mismatches */

static void refused(sfp__vit *on, const char *file, sfp_status status, const char *words)
{
    sfp_predictor *p = NULL;
    sfp_status s = sfp__predictor_open(on, threads, in_directory(file), 0, &p, &err);
    if (s != status || !strstr(err.message, words) || !strstr(err.message, file))
        fail_msg("expected %d '%s', got %d '%s'", status, words, s, err.message);
    assert_null(p);
}

static void save_fingerprints(void)
{
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&o);
    feed(l, 0, 5, 4);
    MUST(sfp__learner_save(l, in_directory("s"), &err));
}

static const char *const methods[] = {NULL, "ridge", "slda"};

/* Fingerprints, or a method. */
static void save_kind(int kind)
{
    if (methods[kind])
        sfp__learner_free(save_method(methods[kind], 1, false));
    else
        save_fingerprints();
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

/* Fails unless the changed state "t" predicts, and no method starts from it. */
static void check_only_predicts(const char *method, const char *words)
{
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    sfp__learner_options o = small_options();
    o.method = method;
    o.taps = 1;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&o);
    MUST(sfp__predictor_open(vit, threads, in_directory("t"), 0, &p, &err));
    assert_int_not_equal(sfp__learner_load(l, in_directory("t"), &err), SFP_OK);
    if (!strstr(err.message, words) && !strstr(err.message, "has no sums"))
        fail_msg("expected '%s', got '%s'", words, err.message);
}

static void check_tensors(int kind)
{
    save_kind(kind);
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
    size_t n = st->count;
    assert_true(n > 3);
    for (size_t i = 0; i < n; i++) {
        const sfp__tensor *t = &st->tensors[i];
        char words[128];
        bool sums = is_of_sums(t->name);
        save_changed(t->name, NULL, NULL, NULL);
        (void)snprintf(words, sizeof words, "tensor '%s' is missing", t->name);
        if (sums)
            check_only_predicts(methods[kind], words);
        else if (!strstr(t->name, "unknown.mean")) /* a state may have no score for unknown classes */
            refused(vit, "t", SFP_ENOTFOUND, words);
        if (t->dtype == SFP__DTYPE_I64 || t->count == 0)
            continue;
        size_t size = sfp__dtype_size(t->dtype);
        sfp__tensor spoiled = *t;
        spoiled.data = memcpy(kept_malloc(t->bytes), t->data, t->bytes);
        memset((char *)(uintptr_t)spoiled.data + t->bytes - size, 0xff, size); /* a NaN as the last element */
        save_changed(t->name, &spoiled, NULL, NULL);
        (void)snprintf(words, sizeof words, "tensor '%s' has -nan as element %zu, expected a finite number", t->name,
                       t->count - 1);
        if (sums)
            check_only_predicts(methods[kind], words);
        else
            refused(vit, "t", SFP_EFORMAT, words);
    }
}

TEST(every_tensor_is_required_and_finite)
{
    for (int kind = 0; kind < 3; kind++)
        check_tensors(kind);
}

TEST(mismatches_are_reported)
{
    save_fingerprints();
    const struct {
        const char *key, *value, *words;
        sfp_status status;
    } list[] = {{"format", NULL, "format is '', expected 'streamfp-state'", SFP_EFORMAT},
                {"version", "2", "version of streamfp-state is 2, expected 1", SFP_EUNSUPPORTED},
                {"pool", NULL, "metadata 'pool' is missing", SFP_EFORMAT},
                {"pool", "8", "tensor 'prompt.e_p_0' is (7, 4, 32), expected (8, 4, 32)", SFP_ESHAPE},
                {"pool-kind", "l3p", "metadata: pool-kind is 'l3p', expected one of coda|l2p|dualprompt", SFP_EINVAL},
                {"pool-kind", "l2p", "expected no tensor of that name with these settings", SFP_ESHAPE},
                {"pool-kind", "dualprompt", "is missing", SFP_ENOTFOUND},
                {"pool", "70000", "metadata: pool is '70000', expected a whole number from 1 to 65536", SFP_EINVAL},
                {"prompt-length", "\033[2J", "metadata: prompt-length is '\\x1b[2J'", SFP_EINVAL},
                {"prompt-layers", "0-9", "prompt-layers is 0-9", SFP_EINVAL},
                {"prompt-layers", "0-2", "tensor 'prompt.e_p_2' is missing", SFP_ENOTFOUND},
                {"prompt-layers", "0-0", "expected no tensor of that name with these settings", SFP_ESHAPE},
                {"attune", "off", "tensor 'prompt.attune.gate.", SFP_ESHAPE},
                {"mean", "1,2", "metadata 'mean' is '1,2', expected three numbers", SFP_EFORMAT},
                {"std", "1,0,1", "metadata 'std' is '1,0,1', expected three numbers above 0", SFP_EFORMAT},
                {"open", "8", "metadata 'open' is '8', expected a number from 1 to 7", SFP_EFORMAT},
                {"seen", "[6]", "metadata 'seen': entry 0 is not a class, expected 0 to 5", SFP_EFORMAT},
                {"class_names", "[", "metadata 'class_names' is not a JSON list", SFP_EFORMAT},
                {"timestamps", "-1", "metadata 'timestamps' is '-1'", SFP_EFORMAT},
                {"backbone", "00000000",
                 "expected 'random' (img 32, patch 8, width 32, depth 5, heads 4, hidden 64; checksum 00000000), with which",
                 SFP_EINVAL}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        save_changed(NULL, NULL, list[i].key, list[i].value);
        refused(vit, "t", list[i].status, list[i].words);
    }
    bytes whole = slurp(in_directory("s")); /* truncated at many positions */
    for (size_t n = 1; n < whole.n; n += 1 + whole.n / 40) {
        put_bytes("t", whole.p, n);
        refused(vit, "t", SFP_EFORMAT, "");
    }
    refused(vit, "none", SFP_ENOTFOUND, "");
}

/* Writes "s" with tensors and metadata in reverse order as "t". */
static void save_reversed(void)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
    size_t n = st->count, m = st->meta_count;
    sfp__tensor *list = kept_calloc(n, sizeof *list);
    sfp__meta *meta = kept_calloc(m, sizeof *meta);
    for (size_t i = 0; i < n; i++)
        list[n - 1 - i] = *&st->tensors[i];
    for (size_t i = 0; i < m; i++)
        meta[m - 1 - i] = st->meta[i];
    MUST(sfp__safetensors_write(in_directory("t"), list, n, meta, m, &err));
}

static void spill_damaged(const bytes *b)
{
    put_bytes("t", b->p, b->n);
    refused(vit, "t", SFP_EFORMAT, "checksum is ");
}

/* Changes a byte of a tensor, all bytes, the name of a tensor, or a number of the metadata. */
static void refuse_every_damage(void)
{
    static const char counted[] = "\"timestamps\":\"", named[] = ".bias\":";
    bytes b = slurp(in_directory("s"));
    uint64_t header;
    memcpy(&header, b.p, sizeof header);
    size_t data = sizeof header + header;
    uint8_t *count = memmem(b.p, data, counted, sizeof counted - 1), *name = memmem(b.p, data, named, sizeof named - 1);
    assert_true(count && name);
    uint8_t *const flipped[] = {b.p + (data + b.n) / 2, b.p + data, b.p + b.n - 1, count + sizeof counted - 1, name + 1};
    for (size_t i = 0; i < sizeof flipped / sizeof *flipped; i++) {
        *flipped[i] ^= 1;
        spill_damaged(&b);
        *flipped[i] ^= 1;
    }
    memset(b.p + data, 0, b.n - data);
    spill_damaged(&b);
}

TEST(a_damaged_state_is_refused)
{
    choose_images();
    for (int kind = 0; kind < 3; kind++) {
        save_kind(kind);
        refuse_every_damage();
        OWNED_PTR(sfp__predictor_free) sfp_predictor *whole = NULL;
        MUST(sfp__predictor_open(vit, threads, in_directory("s"), 0, &whole, &err));
        answers a = predict(whole);
        for (int summed = 0; summed < 2; summed++) {
            if (summed)
                save_reversed();
            else
                save_changed(NULL, NULL, NULL, NULL);
            OWNED_PTR(sfp__predictor_free) sfp_predictor *copy = NULL;
            MUST(sfp__predictor_open(vit, threads, in_directory("t"), 0, &copy, &err));
            answers b = predict(copy);
            assert_same_answers(&a, &b);
        }
    }
}

TEST(another_backbone_is_refused_by_name)
{
    sfp__vit_config config = vit->config;
    OWNED_PTR(sfp__vit_free) sfp__vit *other = NULL, *shallow = NULL;
    MUST(sfp__vit_random(&config, 4, 0.1f, &other, &err));
    save_fingerprints();
    refused(other, "s", SFP_EINVAL, "backbone is 'random'");
    sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    MUST(sfp__learner_create(other, threads, &o, &l, &err));
    REFUSED(sfp__learner_load(l, in_directory("s"), &err), SFP_EINVAL, "backbone is 'random'");
    save_changed(NULL, NULL, "backbone", NULL); /* a file without this entry is accepted */
    MUST(sfp__learner_load(l, in_directory("t"), &err));
    config.depth = 4;
    MUST(sfp__vit_random(&config, 3, 0.1f, &shallow, &err));
    sfp__learner_free(save_method("ncm", 1, false));
    refused(shallow, "s", SFP_EINVAL, "depth 5, heads 4, hidden 64; checksum ");
}
