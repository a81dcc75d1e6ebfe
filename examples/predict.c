/* Classify images by what a learner has saved (streamfp run, or sfp_learner_save), with nothing but streamfp.h:
 *     cc predict.c $(pkg-config --cflags --libs streamfp) && ./a.out STATE.safetensors BACKBONE.safetensors|random IMAGE...
 *
 * The state names the backbone it was learned on; another one is refused. */
#include <streamfp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(sfp_status s, const sfp_error *err)
{
    if (s != SFP_OK) {
        fprintf(stderr, "%s: %s\n", sfp_status_text(s), err->message);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    sfp_error err;
    sfp_engine *engine;
    sfp_predictor *predictor;
    if (argc < 4)
        return fprintf(stderr, "usage: %s STATE BACKBONE|random IMAGE...\n", argv[0]), 2;
    check(strcmp(argv[2], "random") ? sfp_engine_open(argv[2], 0, &engine, &err) : sfp_engine_open_random(1, 0, &engine, &err),
          &err);
    check(sfp_predictor_open(engine, argv[1], 0, 1, &predictor, &err), &err);

    size_t size = (size_t)sfp_engine_image_size(engine);
    uint8_t *rgb = malloc(size * size * 3);
    for (int i = 3; rgb && i < argc; i++) {
        int32_t label;
        check(sfp_predictor_read_image(predictor, argv[i], rgb, &err), &err);
        check(sfp_predictor_run(predictor, 1, (const uint8_t *[]){rgb}, &label, NULL, 0, NULL, &err), &err);
        const char *name = sfp_predictor_class_name(predictor, label);
        printf("%s: class %d, %s\n", argv[i], label, name ? name : "which has no name");
    }
    free(rgb);
    sfp_predictor_free(predictor);
    sfp_engine_close(engine);
    return 0;
}
