/* What a result depends on besides its settings: the version of the program and the contents of its files. Finished cells and measured
 * processing times are used again only if they were made with the same inputs.
 *
 * The digest covers the bytes of backbone, initial state and given processing times, the classes and the records of data and test set,
 * and the bytes of their images: of all, or of IMAGES_MAX that are spread evenly, so that a large dataset is not read twice. Of the other
 * images that are files, it covers name, size and times of change; of those that are part of a file, the bytes. */
#include "base/digest.h"
#include "experiment/experiment.h"
#include "io/file.h"
#include "stream/source.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { IMAGES_MAX = 10000, PIECE = 1 << 20 };

/* -------------------------------------------------------------------------------------------------------------------- files */

/* A path that cannot be examined is an error: without its bytes, the inputs would seem to be others. */
static sfp_status is_file(const char *path, bool *out, sfp_error *err)
{
    struct stat st = {0};
    if (stat(path, &st) != 0 && (errno == EIO || errno == ENOMEM))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", path);
    *out = S_ISREG(st.st_mode);
    return SFP_OK;
}

/* Adds the bytes of a file. A value that is not the name of a file is ignored: it is part of the settings. */
static sfp_status add_file(const char *path, sfp__digest *d, sfp_error *err)
{
    OWNED uint8_t *piece = NULL;
    OWNED_PTR(sfp__file_close) FILE *f = NULL;
    bool file;
    TRY(is_file(path, &file, err));
    if (!file)
        return SFP_OK;
    TRY(sfp__alloc(&piece, PIECE, 1, err));
    TRY(sfp__file_open(path, &f, err));
    for (size_t n; (n = fread(piece, 1, PIECE, f)) > 0;)
        *d = sfp__digest_bytes(*d, piece, n);
    return ferror(f) ? sfp__fail(err, SFP_EIO, "%s: cannot be read", path) : SFP_OK;
}

/* Adds a file that is in the directory `path`, or in that of the file `path`. */
static sfp_status add_beside(const char *path, bool is_directory, const char *name, sfp__digest *d, sfp_error *err)
{
    char beside[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = is_directory ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    TRY(sfp__path_print(beside, sizeof beside, err, "%.*s%s%s", length, path, length || slash ? "/" : "", name));
    return add_file(beside, d, err);
}

static sfp_status add_files(const sfp_settings *s, sfp__digest *d, sfp_error *err)
{
    const char *backbone = sfp_settings_get(s, "backbone"), *state = sfp_settings_get(s, "init-state"),
               *costs = sfp_settings_get(s, "costs");
    if (backbone && strcmp(backbone, "builtin") != 0) { /* which is part of the program */
        TRY(add_file(backbone, d, err));
        TRY(add_beside(backbone, false, "config.json", d, err));
    }
    if (state) { /* a file, or the directory of a run */
        TRY(add_file(state, d, err));
        TRY(add_beside(state, true, "state.safetensors", d, err));
        TRY(add_beside(state, true, "checkpoint", d, err));
    }
    return costs ? add_file(costs, d, err) : SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ datasets */

/* Adds the bytes of an image. The run decides whether one that cannot be read matters. */
static sfp_status add_image(const sfp_source *source, int64_t i, sfp__digest *d, sfp_error *err)
{
    sfp_image image = {0};
    sfp_status status = sfp_source_read(source, i, NULL, &image, err);
    if (sfp__is_machine_error(status))
        return status;
    *d = status ? sfp__digest_bytes(*d, &status, sizeof status) : sfp__digest_bytes(*d, image.data, image.bytes);
    sfp_source_release(source, &image);
    return SFP_OK;
}

/* Adds name, size and times of an image that is a file, or else its bytes. */
static sfp_status add_image_file(const sfp_source *source, int64_t i, sfp__digest *d, sfp_error *err)
{
    char name[PATH_MAX];
    struct stat st;
    (void)sfp__source_display_name(source, i, name, sizeof name);
    if (stat(name, &st) != 0 || !S_ISREG(st.st_mode))
        return add_image(source, i, d, err);
    const int64_t numbers[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
    *d = sfp__digest_bytes(*d, name, strlen(name) + 1);
    *d = sfp__digest_bytes(*d, numbers, sizeof numbers);
    return SFP_OK;
}

/* Returns whether the images are computed by the program, which cannot change. */
static bool is_generated(const sfp_source *source)
{
    struct stat st;
    return stat(source->path, &st) != 0;
}

static sfp_status add_images(const sfp_source *source, sfp__digest *d, sfp_error *err)
{
    int64_t count = sfp_source_is_live(source) ? 0 : sfp_source_count(source), step = count / IMAGES_MAX + 1;
    bool generated = is_generated(source);
    for (int c = 0; c < sfp_source_classes(source); c++) {
        const char *name = sfp_source_class_name(source, c);
        *d = sfp__digest_bytes(*d, name, strlen(name) + 1);
    }
    for (int64_t i = 0; i < count; i++) {
        sfp_record r;
        TRY(sfp_source_read(source, i, &r, NULL, err));
        const int32_t numbers[] = {r.label, r.domain, r.task};
        *d = sfp__digest_bytes(*d, numbers, sizeof numbers);
        *d = sfp__digest_bytes(*d, &r.time, sizeof r.time);
        if (i % step == 0)
            TRY(add_image(source, i, d, err));
        else if (!generated)
            TRY(add_image_file(source, i, d, err));
    }
    return SFP_OK;
}

/* Adds a source. optional: the test part of a dataset, which may have none. *count: its images; -1: live. */
static sfp_status add_source(const char *spec, bool test, bool optional, sfp__digest *d, int64_t *count, sfp_error *err)
{
    sfp_source_options o = SFP_SOURCE_OPTIONS_INIT;
    sfp_source *source = NULL;
    o.test = test;
    *count = 0;
    sfp_status status = sfp_source_open(spec, &o, &source, err);
    if (optional && (status == SFP_ENOTFOUND || (!status && !sfp_source_has_test_part(source)))) {
        sfp_source_close(source);
        return SFP_OK;
    }
    if (!status) {
        *count = sfp_source_count(source);
        status = add_images(source, d, err);
    }
    sfp_source_close(source);
    return status;
}

static sfp_status add_sources(const sfp_settings *s, sfp__digest *d, int64_t *test_images, sfp_error *err)
{
    const char *data = sfp_settings_get(s, "data"), *test = sfp_settings_get(s, "test");
    int64_t images;
    *test_images = -1;
    if (!data)
        return SFP_OK;
    TRY(add_source(data, false, false, d, &images, err));
    TRY(test ? add_source(test, strcmp(test, data) == 0, false, d, test_images, err)
             : add_source(data, true, true, d, test_images, err));
    if (images < 0 && *test_images == 0) /* a live stream has a prequential accuracy */
        *test_images = -1;
    return SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- the text */

/* Cells with the same values of these settings have the same inputs. Processing times that are not a file do not count, so that the
 * data is not read again for each method. */
static sfp_status input_values(const sfp_settings *s, sfp__text *out, sfp_error *err)
{
    static const char *const keys[] = {"backbone", "init-state", "data", "test", "costs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = sfp_settings_get(s, keys[i]);
        bool counts = value;
        if (value && strcmp(keys[i], "costs") == 0)
            TRY(is_file(value, &counts, err));
        sfp__text_printf(out, "%s\n", counts ? value : "");
    }
    return sfp__check_memory(!out->failed, err);
}

static sfp_status find_inputs(sfp__lab *lab, const sfp_settings *s, const char **out, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text values = {0};
    sfp__digest d = {{0}};
    char text[SFP__INPUTS_MAX];
    TRY(input_values(s, &values, err));
    int i = sfp__strings_find(&lab->input_values, values.s);
    if (i < 0) {
        size_t n = (size_t)lab->inputs.count;
        int64_t test_images;
        TRY(add_files(s, &d, err));
        TRY(add_sources(s, &d, &test_images, err));
        TRY(sfp__check_memory(sfp__grow(&lab->test_images, sizeof *lab->test_images, n, n + 1, &lab->test_images_capacity), err));
        lab->test_images[n] = test_images;
        (void)snprintf(text, sizeof text, "version %s, inputs %016" PRIx64 "%016" PRIx64, sfp_version(), d.word[0], d.word[1]);
        TRY(sfp__strings_add(&lab->inputs, text, err));
        TRY(sfp__strings_add(&lab->input_values, values.s, err));
        i = lab->input_values.count - 1;
    }
    *out = lab->inputs.s[i];
    return SFP_OK;
}

sfp_status sfp__lab_inputs(sfp__lab *lab, const sfp__strings *settings, char out[SFP__INPUTS_MAX], sfp_error *err)
{
    sfp_settings *s = NULL;
    const char *text = NULL;
    TRY(sfp__settings_create(settings, &s, err));
    sfp_status status = find_inputs(lab, s, &text, err);
    sfp_settings_free(s);
    if (!status)
        (void)snprintf(out, SFP__INPUTS_MAX, "%s", text);
    return status;
}

int64_t sfp__cell_test_images(const sfp__lab *lab, const sfp__cell *cell)
{
    int i = sfp__strings_find(&lab->inputs, cell->inputs);
    return i < 0 ? -1 : lab->test_images[i];
}

void sfp__lab_report_other_inputs(sfp__lab *lab)
{
    if (!lab->reported_inputs)
        sfp__lab_message(lab, SFP_LOG_INFO,
                         "%s: results that were made with another backbone, other data or another version of the program are "
                         "computed again",
                         lab->opt.out);
    lab->reported_inputs = true;
}
