/* Classifies images with the state that a run or a learner has saved:
 *     cc predict.c $(pkg-config --cflags --libs streamfp) && ./a.out STATE|RUN BACKBONE|random IMAGE...
 *
 * The state records the backbone it was learned with; another one is refused. */
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
    int failed = 0;
    if (argc < 4)
        return fprintf(stderr, "usage: %s STATE|RUN BACKBONE|random IMAGE...\n", argv[0]), 2;
    check(strcmp(argv[2], "random") ? sfp_engine_open(argv[2], NULL, &engine, &err)
                                    : sfp_engine_open_random(1, NULL, &engine, &err),
          &err);
    check(sfp_predictor_open(engine, argv[1], NULL, &predictor, &err), &err);
    for (int i = 3; i < argc; i++) {
        const sfp_image image = {.format = SFP_IMAGE_FILE, .data = argv[i]};
        sfp_prediction answer;
        check(sfp_predictor_run(predictor, 1, &image, &answer, &err), &err);
        if (answer.status) {
            fprintf(stderr, "%s\n", sfp_predictor_image_error(predictor, 0));
            failed = 1;
            continue;
        }
        const char *name = sfp_predictor_class_name(predictor, answer.label);
        printf("%s: class %d, %s\n", argv[i], answer.label, name ? name : "which has no name");
    }
    sfp_predictor_free(predictor);
    sfp_engine_close(engine);
    return failed;
}
