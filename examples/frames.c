/* Learns from 640 x 480 BGR frames in memory while a second thread answers. Killed with kill -9 it continues where it stopped:
 *     cc frames.c $(pkg-config --cflags --libs streamfp) -lpthread && mkdir -p out && ./a.out out 300 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <streamfp.h>
#include <unistd.h>
enum { WIDTH = 640, HEIGHT = 480, BYTES = WIDTH * HEIGHT * 3, BATCH = 5, CLASSES = 3 };
static atomic_int learning = 1;
#define CHECK(call, err) ((call) == SFP_OK ? (void)0 : (fprintf(stderr, "%s\n", (err).message), exit(1)))

/* Stands for the camera: frame n shows class n % 3 as the colour of its stripes. */
static sfp_image grab(uint64_t n, uint8_t *frame)
{
    for (size_t i = 0; i < BYTES; i++)
        frame[i] = (i / 3 + 7 * n) / 40 % 2 && i % 3 == n % CLASSES ? 230 : (uint8_t)(20 + n % 50);
    return (sfp_image){.format = SFP_IMAGE_BGR, .width = WIDTH, .height = HEIGHT, .data = frame};
}

static void *answer(void *predictor)
{
    static uint8_t frame[BYTES];
    sfp_prediction prediction = {.label = -1};
    sfp_error err;
    for (uint64_t n = 1000000; atomic_load(&learning); n++)
        CHECK(sfp_predictor_run(predictor, 1, (sfp_image[]){grab(n, frame)}, &prediction, &err), err);
    return printf("last answer: class %d (%.2f)\n", prediction.label, (double)prediction.probability), NULL;
}

int main(int argc, char **argv)
{
    static uint8_t frames[BATCH][BYTES];
    char *position = NULL, next[32];
    sfp_engine *engine;
    sfp_learner *learner;
    sfp_predictor *predictor;
    sfp_error err;
    pthread_t thread;
    if (argc != 3 || chdir(argv[1]) != 0)
        return fprintf(stderr, "usage: %s DIRECTORY FRAMES\n", argv[0]), 2;
    CHECK(sfp_engine_open("builtin", NULL, &engine, &err), err);
    CHECK(sfp_learner_create(engine, NULL, &learner, &err), err);
    sfp_status resumed = sfp_learner_resume(learner, "checkpoint", &position, &err);
    CHECK(resumed == SFP_ENOTFOUND ? SFP_OK : resumed, err);
    CHECK(sfp_predictor_create(learner, NULL, &predictor, &err), err);
    pthread_create(&thread, NULL, answer, predictor);
    for (uint64_t n = position ? strtoull(position, NULL, 10) : 0; n < strtoull(argv[2], NULL, 10); n += BATCH) {
        sfp_sample samples[BATCH];
        for (uint64_t i = 0; i < BATCH; i++)
            samples[i] = (sfp_sample){.image = grab(n + i, frames[i]), .label = (int32_t)((n + i) % CLASSES), .id = n + i};
        CHECK(sfp_learner_offer(learner, BATCH, samples, NULL, &err), err);
        snprintf(next, sizeof next, "%llu", (unsigned long long)(n + BATCH));
        CHECK(sfp_learner_checkpoint(learner, "checkpoint", next, &err), err);
        printf("learned %s frames\n", next), fflush(stdout);
    }
    atomic_store(&learning, 0), pthread_join(thread, NULL);
    CHECK(sfp_learner_save(learner, "state.safetensors", &err), err);
    return sfp_predictor_free(predictor), sfp_learner_free(learner), sfp_engine_close(engine), sfp_free(position), 0;
}
