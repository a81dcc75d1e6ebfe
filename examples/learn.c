/* Learn from a stream and predict from another thread at the same time, with nothing but streamfp.h:
 *     cc learn.c $(pkg-config --cflags --libs streamfp) -lpthread && ./a.out [BACKBONE.safetensors|random [STATE.safetensors]]
 *
 * The stream is made here: images of four colours of stripes. Without a backbone file a tiny random one is used. What was learned
 * is saved where the second argument says; predict.c answers from it. */
#include <streamfp.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 4, BATCH = 20, TIMESTAMPS = 30 };

static int side;

/* Image `n` of a class: stripes whose colour tells the class, whose phase and width do not. */
static void draw(int label, unsigned n, uint8_t *rgb)
{
    unsigned width = 2 + n % 5, phase = n * 7;
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            int on = (((unsigned)(x + y) + phase) / width) % 2;
            uint8_t *p = rgb + 3 * (y * side + x);
            p[0] = (uint8_t)(on && (label == 0 || label == 3) ? 230 : 20);
            p[1] = (uint8_t)(on && (label == 1 || label == 3) ? 230 : 20);
            p[2] = (uint8_t)(on && label == 2 ? 230 : 20);
        }
}

static void check(sfp_status s, const sfp_error *err)
{
    if (s != SFP_OK) {
        fprintf(stderr, "%s: %s\n", sfp_status_text(s), err->message);
        exit(1);
    }
}

typedef struct watcher {
    sfp_predictor *predictor;
    atomic_bool stop;
    unsigned right, asked;
} watcher;

/* Asks for the class of fresh images as long as the learner learns. */
static void *watch(void *arg)
{
    watcher *w = arg;
    uint8_t *rgb = malloc(3 * (size_t)side * (size_t)side);
    const sfp_image image = {.width = side, .height = side, .data = rgb};
    sfp_error err;
    for (unsigned n = 100000; rgb && !atomic_load(&w->stop); n++) {
        sfp_prediction answer;
        draw((int)(n % CLASSES), n, rgb);
        check(sfp_predictor_run(w->predictor, 1, &image, &answer, &err), &err);
        w->asked++;
        w->right += answer.label == (int32_t)(n % CLASSES);
    }
    free(rgb);
    return NULL;
}

int main(int argc, char **argv)
{
    sfp_error err;
    sfp_engine *engine;
    sfp_settings *settings;
    sfp_learner *learner;
    check(argc > 1 && strcmp(argv[1], "random") ? sfp_engine_open(argv[1], 0, &engine, &err)
                                                : sfp_engine_open_random(1, 0, &engine, &err),
          &err);
    side = sfp_engine_image_size(engine);
    check(sfp_settings_create(&settings, &err), &err);
    check(sfp_settings_set(settings, "batch", "20", &err), &err);
    check(sfp_settings_set(settings, "buffer-size", "40", &err), &err);
    check(sfp_settings_set(settings, "lr", "0.01", &err), &err);
    check(sfp_learner_create(engine, settings, &learner, &err), &err);
    static const char *const names[CLASSES] = {"red", "green", "blue", "yellow"};
    for (int i = 0; i < CLASSES; i++)
        check(sfp_learner_set_class_name(learner, i, names[i], &err), &err);

    const sfp_predictor_options one = {.size = sizeof one, .threads = 1, .max_batch = 1};
    watcher w = {0};
    pthread_t thread;
    check(sfp_predictor_create(learner, &one, &w.predictor, &err), &err);
    if (pthread_create(&thread, NULL, watch, &w) != 0)
        return 1;

    size_t bytes = 3 * (size_t)side * (size_t)side;
    uint8_t *images = malloc(BATCH * bytes);
    sfp_sample samples[BATCH] = {0};
    if (!images)
        return 1;
    for (unsigned t = 0; t < TIMESTAMPS; t++) {
        sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
        for (unsigned i = 0; i < BATCH; i++) {
            unsigned n = t * BATCH + i;
            samples[i].image = (sfp_image){.width = side, .height = side, .data = images + i * bytes};
            samples[i].label = (int32_t)(n % CLASSES);
            samples[i].id = n;
            draw(samples[i].label, n, images + i * bytes);
        }
        check(sfp_learner_offer(learner, BATCH, samples, &report, &err), &err);
        if (t % 10 == 9)
            printf("timestamp %2u: loss %.3f, %.0f ms\n", t + 1, report.loss, 1e3 * report.seconds);
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);

    /* the last word: fresh images after all of the stream */
    unsigned right = 0;
    for (unsigned n = 0; n < 100; n++) {
        const sfp_image image = {.width = side, .height = side, .data = images};
        sfp_prediction answer;
        draw((int)(n % CLASSES), 777777 + n, images);
        check(sfp_predictor_run(w.predictor, 1, &image, &answer, &err), &err);
        right += answer.label == (int32_t)(n % CLASSES);
    }
    printf("%u answers while learning; afterwards %u of 100 right\n", w.asked, right);
    if (argc > 2)
        check(sfp_learner_save(learner, argv[2], &err), &err);
    sfp_predictor_free(w.predictor);
    sfp_learner_free(learner);
    sfp_settings_free(settings);
    sfp_engine_close(engine);
    free(images);
    return right < 60;
}
