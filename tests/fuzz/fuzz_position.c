/* Arbitrary positions of a run in a checkpoint whose checksum is right: refused with a message, or the run continues.
 *
 * An input is the text of the position, of a run over a dataset or, if it has the key "live", of a watched directory. */
#include "fuzz_learner.h"
#include "io/backed_file.h"
#include "run/run.h"

#include <sys/stat.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { STEPS = 3 };

/* A run that was stopped. */
typedef struct stopped {
    uint8_t *bytes; /* its checkpoint */
    size_t size;
    uint8_t *store; /* its store of samples; NULL: it has none */
    size_t store_size;
} stopped;

static stopped runs[2]; /* over a dataset, and of a watched directory */

/* ----------------------------------------------------------------------- files */

static void remove_outputs(void)
{
    char path[PATH_MAX];
    clear_directory(in_directory("run", path));
}

static void put_image(const char *name, int i)
{
    char path[PATH_MAX];
    const sfp__image im = {SIDE, SIDE, images[i]};
    MUST(sfp__image_write_png(in_directory(name, path), &im, fatal));
}

/* Creates the watched directory: two images without and two with a label, and its end. */
static void make_files(void)
{
    char path[PATH_MAX];
    REQUIRE(mkdir(in_directory("run", path), 0777) == 0 && mkdir(in_directory("w", path), 0777) == 0 &&
            mkdir(in_directory("w/cat", path), 0777) == 0);
    put_image("w/1.jpg", 0);
    put_image("w/2.jpg", 1);
    put_image("w/cat/3.jpg", 2);
    put_image("w/cat/4.jpg", 3);
    FILE *end = fopen(in_directory("w/.end", path), "wb");
    REQUIRE(end && fclose(end) == 0);
    REQUIRE(setenv("STREAMFP_REGISTRY", in_directory("runs.db", path), 1) == 0);
}

/* ------------------------------------------------------------------------ runs */

static sfp__run_options options_of(const stopped *r, char out[PATH_MAX], char data[PATH_MAX])
{
    sfp__run_options o = sfp__run_options_defaults(vit, threads);
    bool live = r == &runs[1];
    (void)snprintf(data, PATH_MAX, live ? "watch:%s/w" : "synthetic:16", directory);
    o.data = data;
    o.out = in_directory("run", out);
    o.method = o.learner.method = "ncm";
    o.learner.batch = 2;
    o.eval_limit = 2;
    if (live)
        return o;
    o.clock = SFP__CLOCK_VIRTUAL;
    o.rate = 100;
    o.queue = 3;
    o.tasks = "2";
    return o;
}

/* Processes at most STEPS timestamps. */
static void step(sfp__run *run)
{
    sfp_error err = {0};
    bool more = true;
    for (int i = 0; i < STEPS && more && accepted(sfp__run_step(run, &more, &err), &err); i++)
        ;
}

static void stop_at_once(void *ctx, const sfp_run_progress *p)
{
    (void)p;
    *(atomic_int *)ctx = 1;
}

/* Runs one timestamp, which writes a checkpoint. */
static void make_run(stopped *r)
{
    char out[PATH_MAX], data[PATH_MAX], path[PATH_MAX];
    const sfp__run_options o = options_of(r, out, data);
    atomic_int stop = 0;
    const sfp__run_hooks hooks = {.ctx = &stop, .progress = stop_at_once, .stop = &stop};
    OWNED_BY(sfp__result_done) sfp_result result = {0};
    OWNED_PTR(sfp__run_close) sfp__run *run = NULL;
    MUST(sfp__run_open(&o, &hooks, &result, &run, fatal));
    for (bool more = true; more;)
        MUST(sfp__run_step(run, &more, fatal));
    sfp__run_close(TAKE(run)); /* afterwards everything is in the store's main file */
    MUST(sfp__file_read(in_directory("run/checkpoint", path), SIZE_MAX, &r->bytes, &r->size, fatal));
    if (access(in_directory("run/" SFP__STORE_NAME, path), F_OK) == 0)
        MUST(sfp__file_read(path, SIZE_MAX, &r->store, &r->store_size, fatal));
}

static void put_position(const stopped *r, const char *name)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    char path[PATH_MAX];
    MUST(sfp__safetensors_open_memory("seed", r->bytes, r->size, &f, fatal));
    FILE *to = fopen(in_directory("seed", path), "wb");
    REQUIRE(to && fputs(sfp__tensor_file_meta(f, "position"), to) >= 0 && fclose(to) == 0);
    put_seed(path, name);
    (void)unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    make_world();
    make_files();
    for (int i = 0; i < 2; i++) {
        make_run(&runs[i]);
        remove_outputs();
        if (getenv("SFP_FUZZ_SEEDS"))
            put_position(&runs[i], i ? "live" : "indexed");
    }
    return 0;
}

/* Writes the store of samples as it was when the run stopped. */
static void write_store(const stopped *r)
{
    char path[PATH_MAX];
    if (!r->store)
        return;
    FILE *to = fopen(in_directory("run/" SFP__STORE_NAME, path), "wb");
    REQUIRE(to && fwrite(r->store, 1, r->store_size, to) == r->store_size && fclose(to) == 0);
}

/* Writes the checkpoint with another position; false: the text cannot be in a checkpoint. */
static bool write_checkpoint(const stopped *r, const char *position)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    sfp__backed_file none = {0};
    char path[PATH_MAX];
    MUST(sfp__safetensors_open_memory("seed", r->bytes, r->size, &f, fatal));
    for (size_t i = 0; i + 1 < f->count; i++) /* the last one is the checksum */
        MUST(sfp__tensor_list_add(&tensors, &f->tensors[i], NULL, fatal));
    for (size_t i = 0; i < f->meta_count; i++)
        if (strcmp(f->meta[i].key, "position") == 0)
            f->meta[i].value = position;
    return sfp__backed_file_write(&none, in_directory("run/checkpoint", path), &tensors, f->meta, f->meta_count, NULL) == SFP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED char *position = sfp__calloc(size + 1, 1);
    char out[PATH_MAX], data[PATH_MAX];
    REQUIRE(position);
    if (size)
        memcpy(position, bytes, size);
    const stopped *r = &runs[strstr(position, "\"live\"") != NULL];
    if (write_checkpoint(r, position)) {
        write_store(r);
        sfp__run_options o = options_of(r, out, data);
        const sfp__run_hooks hooks = {0};
        OWNED_BY(sfp__result_done) sfp_result result = {0};
        OWNED_PTR(sfp__run_close) sfp__run *run = NULL;
        sfp_error err = {0};
        o.resume = true;
        if (accepted(sfp__run_open(&o, &hooks, &result, &run, &err), &err))
            step(run);
    }
    remove_outputs();
    return 0;
}
