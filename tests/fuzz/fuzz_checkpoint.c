/* Arbitrary checkpoints. One that is refused has a message, and the learner is unchanged. After an accepted one the learner
 * predicts, learns, and writes a checkpoint that another learner resumes to the same bytes. Another learner also starts from the
 * checkpoint. At last its first checkpoint is
 * resumed, which must not depend on what was resumed before; so learners are used for all inputs. */
#include "fuzz_learner.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The learners, each with its first checkpoint. A file belongs to the one whose method or buffer it names. */
typedef struct kind {
    const char *method, *buffer, *select;
    sfp__learner *l, *other;
    uint8_t *bytes;
    size_t size;
} kind;

static kind kinds[] = {{.buffer = "streamfp", .select = "streamfp"},
                       {.buffer = "er", .select = "learnloss"},
                       {.buffer = "gss", .select = "random"},
                       {.buffer = "ssd", .select = "streamfp"},
                       {.buffer = "none", .select = "streamfp"},
                       {.method = "ncm"},
                       {.method = "slda"},
                       {.method = "ridge"},
                       {.method = "ranpac"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static sfp__learner_options options_of(const kind *k)
{
    sfp__learner_options o = tiny_options();
    o.ranpac_width = 16;
    if ((o.method = k->method))
        return o;
    o.buffer.method = k->buffer;
    o.select = k->select;
    o.fp.kind = strcmp(k->buffer, "gss") == 0 ? SFP__FP_L2P : SFP__FP_CODA;
    if (o.fp.kind == SFP__FP_L2P)
        o.fp.pool = 6;
    if (strcmp(k->buffer, "none") == 0) {
        o.fp.tasks = 2;
        o.fp.classes = 4;
    }
    return o;
}

static sfp_status resume(sfp__learner *l, const uint8_t *bytes, size_t size, sfp_error *err)
{
    OWNED char *position = NULL;
    char path[32];
    int fd = file_of(bytes, size, path);
    sfp_status status = sfp__learner_resume(l, path, &position, NULL, err);
    REQUIRE((status == SFP_OK) == (position != NULL));
    (void)close(fd);
    return status;
}

static void create(kind *k)
{
    const sfp__learner_options o = options_of(k);
    k->l = make_learner(&o, TIMES / 2);
    for (int i = 0; k->method && strcmp(k->method, "ranpac") == 0 && i < 100; i++) /* until it has folded samples */
        MUST(offer(k->l, i % TIMES, fatal));
    k->other = make_learner(&o, 1);
    k->bytes = image_of(k->l, &k->size);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    make_world();
    for (int i = 0; i < KINDS; i++) {
        char path[PATH_MAX], name[32];
        create(&kinds[i]);
        if (!getenv("SFP_FUZZ_SEEDS"))
            continue;
        (void)snprintf(name, sizeof name, "%s", kinds[i].method ? kinds[i].method : kinds[i].buffer);
        MUST(sfp__learner_checkpoint(kinds[i].l, in_directory("seed", path), "{}", fatal));
        put_seed(path, name);
        (void)unlink(path);
    }
    return 0;
}

static kind *kind_of(const sfp__tensor_file *f)
{
    const char *method = sfp__tensor_file_meta(f, "method"), *buffer = sfp__tensor_file_meta(f, "setting.buffer");
    for (int i = 0; i < KINDS; i++) {
        const char *found = kinds[i].method ? method : buffer, *name = kinds[i].method ? kinds[i].method : kinds[i].buffer;
        if (found && strcmp(found, name) == 0)
            return &kinds[i];
    }
    return &kinds[0];
}

/* Checks that another learner resumes to the same bytes, then uses the learner, and merges the file if it can be merged. */
static void use(kind *k, const uint8_t *bytes, size_t size)
{
    size_t first_size, second_size;
    OWNED uint8_t *first = image_of(k->l, &first_size), *second = NULL;
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    sfp_error err = {0};
    char path[32];
    MUST(resume(k->other, first, first_size, fatal));
    second = image_of(k->other, &second_size);
    REQUIRE(first_size == second_size && memcmp(first, second, first_size) == 0);
    MUST(sfp__predictor_create(k->l, threads, 0, &p, fatal));
    predict(p);
    if (accepted(offer(k->l, 1, &err), &err))
        (void)accepted(offer(k->l, 2, &err), &err);
    predict(p);
    if (k->method) {
        int fd = file_of(bytes, size, path);
        (void)accepted(sfp__learner_merge(k->other, &(sfp__saved_file){.path = path}, &err), &err);
        (void)accepted(offer(k->other, 1, &err), &err);
        (void)close(fd);
    }
}

/* Starts another learner from the file, without resuming it. */
static void start(kind *k, const uint8_t *bytes, size_t size)
{
    sfp_error err = {0};
    char path[32];
    int fd = file_of(bytes, size, path);
    if (accepted(sfp__learner_load(k->other, path, &err), &err))
        (void)accepted(offer(k->other, 1, &err), &err);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    sfp_error err = {0};
    if (sfp__safetensors_open_memory("fuzz", bytes, size, &f, NULL) != SFP_OK)
        return 0;
    kind *k = kind_of(f);
    start(k, bytes, size);
    if (accepted(resume(k->l, bytes, size, &err), &err)) {
        use(k, bytes, size);
        MUST(resume(k->l, k->bytes, k->size, fatal));
    }
    size_t now_size;
    OWNED uint8_t *now = image_of(k->l, &now_size);
    REQUIRE(now_size == k->size && memcmp(now, k->bytes, now_size) == 0);
    return 0;
}
