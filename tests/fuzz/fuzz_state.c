/* Arbitrary states: refused with a message, and a learner is unchanged; or they predict, and a learner that starts from them
 * learns. */
#include "fuzz_learner.h"
#include "learner/state/saved_sums.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The learners that can start from a state, by their kind of pool. */
static sfp__learner_options start_options(int kind)
{
    sfp__learner_options o = tiny_options();
    o.fp.kind = (sfp__fp_kind)kind;
    if (kind != SFP__FP_CODA) {
        o.fp.tasks = 2;
        o.fp.classes = 4;
        o.fp.pool = 6;
        o.fp.last_layer = 2;
    }
    return o;
}

static void put_state(const sfp__learner_options *o, const char *name)
{
    char path[PATH_MAX];
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(o, TIMES);
    MUST(sfp__learner_save(l, in_directory("seed", path), fatal));
    put_seed(path, name);
    (void)unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    make_world();
    if (!getenv("SFP_FUZZ_SEEDS"))
        return 0;
    for (int kind = SFP__FP_CODA; kind <= SFP__FP_DUALPROMPT; kind++) {
        sfp__learner_options o = start_options(kind);
        static const char *const names[] = {"coda", "l2p", "dualprompt"};
        put_state(&o, names[kind]);
    }
    static const char *const methods[] = {"ncm", "slda", "ridge"};
    for (int i = 0; i < 4; i++) {
        sfp__learner_options o = tiny_options();
        o.method = methods[i % 3];
        o.taps = 1 + i % 2;
        o.tap_mean = i == 2;
        put_state(&o, i < 3 ? o.method : "ncm-2");
    }
    return 0;
}

static void open_for_prediction(const char *path)
{
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    sfp_error err = {0};
    if (!accepted(sfp__predictor_open(vit, threads, path, 0, &p, &err), &err))
        return;
    for (int c = -1; c <= sfp__predictor_classes(p) && c < 100; c++) {
        const char *name = sfp__predictor_class_name(p, c);
        touch(name, name ? strlen(name) : 0);
        (void)sfp__predictor_seen(p, c);
    }
    predict(p);
}

/* Starts a learner of the state's kind of pool. A learner that refuses a state is unchanged, and is used again. */
static void start_learner(const char *path, const sfp__tensor_file *f)
{
    static struct {
        sfp__learner *l;
        uint8_t *bytes; /* its checkpoint at the start */
        size_t size;
    } starts[SFP__FP_DUALPROMPT + 1], *start;
    const char *name = sfp__tensor_file_meta(f, "pool-kind");
    int kind = name && strcmp(name, "l2p") == 0          ? SFP__FP_L2P
               : name && strcmp(name, "dualprompt") == 0 ? SFP__FP_DUALPROMPT
                                                         : SFP__FP_CODA;
    const sfp__learner_options o = start_options(kind);
    sfp_error err = {0};
    start = &starts[kind];
    if (!start->l)
        start->l = make_learner(&o, 0);
    if (!start->bytes)
        start->bytes = image_of(start->l, &start->size);
    if (!accepted(sfp__learner_load(start->l, path, &err), &err)) {
        size_t size;
        OWNED uint8_t *now = image_of(start->l, &size);
        REQUIRE(size == start->size && memcmp(now, start->bytes, size) == 0);
        return;
    }
    sfp_predictor *p = NULL;
    MUST(sfp__predictor_create(start->l, threads, 0, &p, fatal));
    predict(p);
    (void)accepted(offer(start->l, 0, &err), &err);
    sfp__predictor_free(p);
    sfp__learner_free(start->l);
    start->l = NULL;
}

/* Adds the sums of the state to themselves, takes them out, drops the single samples, writes a state and reads it. What was added can be
 * taken out. */
static void use_sums(const uint8_t *bytes, size_t size)
{
    const sfp__saved_file file = {.path = "fuzz", .data = bytes, .size = size};
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums sum = {0}, other = {0}, again = {0};
    char path[PATH_MAX];
    sfp_error err = {0};
    if (!accepted(sfp__saved_sums_read(&file, NULL, NULL, threads, &sum, &err), &err))
        return;
    MUST(sfp__saved_sums_read(&file, &sum.metadata, "itself", NULL, &other, fatal));
    int64_t samples = sfp__saved_sums_samples(&sum);
    if (accepted(sfp__saved_sums_add(&sum, &other, &err), &err))
        MUST(sfp__saved_sums_subtract(&sum, &other, fatal));
    REQUIRE(sfp__saved_sums_samples(&sum) == samples);
    MUST(sfp__saved_sums_drop_samples(&sum, 2, NULL, NULL, fatal));
    MUST(sfp__saved_sums_write(&sum, in_directory("sums", path), fatal));
    (void)accepted(sfp__saved_sums_read(&(sfp__saved_file){.path = path}, &sum.metadata, "itself", NULL, &again, &err), &err);
    (void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    char path[32];
    int fd = file_of(bytes, size, path), side = 0;
    sfp_error err = {0};
    make_world();
    (void)accepted(sfp__state_img_size(path, &side, &err), &err);
    open_for_prediction(path);
    if (sfp__safetensors_open_memory("fuzz", bytes, size, &f, NULL) == SFP_OK)
        start_learner(path, f);
    use_sums(bytes, size);
    (void)close(fd);
    return 0;
}
