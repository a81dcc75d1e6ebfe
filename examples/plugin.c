/* A source and a selector of one's own, without a file of the library's source:
 *     cc plugin.c $(pkg-config --cflags --libs streamfp) && ./a.out OUT
 *
 * The source draws images of four kinds of stripes. The selector chooses the samples of a batch class by class, so that every class
 * of the batch is trained on. A run learns from them and writes its report into the directory OUT. */
#include <streamfp.h>

#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 48, CLASSES = 4, IMAGES = 400 };

static void check(sfp_status status, const sfp_error *err)
{
    if (status != SFP_OK) {
        fprintf(stderr, "%s: %s\n", sfp_status_text(status), err->message);
        exit(1);
    }
}

/* ------------------------------------------------------------------------------ the source */

static const char *const names[CLASSES] = {"horizontal", "vertical", "falling", "rising"};

static sfp_status get_record(void *ctx, int64_t i, sfp_record *record, sfp_error *err)
{
    (void)ctx;
    (void)err;
    record->label = (int32_t)(i % CLASSES);
    return SFP_OK;
}

/* A grey image that the library releases when it has read it. It may ask for several at once, from several threads. */
static sfp_status load_image(void *ctx, int64_t i, sfp_image *image, sfp_error *err)
{
    uint8_t *pixels = malloc(SIDE * SIDE);
    int width = 3 + (int)(i % 7), phase = (int)(i * 13 % 31);
    (void)ctx;
    if (!pixels)
        return sfp_error_set(err, SFP_ENOMEM, "stripes: out of memory");
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const int along[CLASSES] = {y, x, x + y, x + SIDE - y};
            pixels[y * SIDE + x] = (along[i % CLASSES] + phase) / width % 2 ? 220 : 30;
        }
    *image = (sfp_image){.format = SFP_IMAGE_GREY, .width = SIDE, .height = SIDE, .data = pixels};
    return SFP_OK;
}

static void release_image(void *ctx, sfp_image *image)
{
    (void)ctx;
    free((void *)image->data);
}

/* ---------------------------------------------------------------------------- the selector */

/* The first sample of each class, then the second of each class, and so on, until the coreset is full. */
static sfp_status select_by_class(void *ctx, const sfp_selection *batch, int32_t *chosen, float *weights, int32_t *count,
                                  sfp_error *err)
{
    (void)ctx;
    (void)weights; /* 1 for every sample */
    (void)err;
    for (int32_t turn = 0; *count < batch->coreset; turn++)
        for (int32_t i = 0; i < batch->b && *count < batch->coreset; i++) {
            int32_t before = 0; /* samples of the same class before this one */
            for (int32_t k = 0; k < i; k++)
                before += batch->labels[k] == batch->labels[i];
            if (before == turn)
                chosen[(*count)++] = i;
        }
    return SFP_OK;
}

/* -------------------------------------------------------------------------------- the run */

int main(int argc, char **argv)
{
    sfp_selector_definition selector = SFP_SELECTOR_DEFINITION_INIT;
    sfp_source_definition stripes = SFP_SOURCE_DEFINITION_INIT;
    sfp_run_options options = SFP_RUN_OPTIONS_INIT;
    sfp_engine *engine;
    sfp_settings *settings;
    sfp_run *run;
    sfp_error err;
    if (argc != 2)
        return fprintf(stderr, "usage: %s OUT\n", argv[0]), 2;
    selector.name = "by-class";
    selector.summary = "the samples of a batch class by class";
    selector.select = select_by_class;
    check(sfp_register_selector(&selector, &err), &err);

    stripes.name = "stripes";
    stripes.count = IMAGES;
    stripes.classes = CLASSES;
    stripes.class_names = names;
    stripes.record = get_record;
    stripes.load = load_image;
    stripes.release = release_image;
    check(sfp_source_create(&stripes, &options.source, &err), &err);

    check(sfp_engine_open("builtin", NULL, &engine, &err), &err);
    check(sfp_settings_create(&settings, &err), &err);
    check(sfp_settings_set(settings, "preset", "paper", &err), &err); /* fingerprints */
    check(sfp_settings_set(settings, "select", "by-class", &err), &err);
    check(sfp_settings_set(settings, "out", argv[1], &err), &err);
    check(sfp_run_open(engine, settings, &options, &run, &err), &err);
    check(sfp_run_finish(run, &err), &err);
    const sfp_result *result = sfp_run_result(run);
    printf("%.0f samples offered, %.0f trained, prequential accuracy %.3f\n", sfp_result_number(result, "samples.offered"),
           sfp_result_number(result, "samples.trained"), sfp_result_number(result, "prequential_accuracy"));
    sfp_run_close(run);
    sfp_settings_free(settings);
    sfp_engine_close(engine);
    return 0;
}
