/* Images of strangers are decoded here, and nowhere else in the service. The rest sees pixels. */
#include "serve/internal.h"

#include "io/image/image.h"

#include <stdio.h>

enum { SMALL_PIXELS = 4 << 20, LARGE_PIXELS = 50000000, REQUEST_PIXELS = 100000000 };

/* A thread has few pixels, or holds the lock, by which one at a time has many: so their memory is bounded. */
static pthread_mutex_t large_lock;
static _Thread_local int64_t held; /* pixels of this thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_lock(void)
{
    pthread_mutexattr_t recursive; /* a request may have several images */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&large_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void sfp__decoded_done(sfp__decoded *d)
{
    sfp__free(d->pixels);
    held -= (int64_t)d->image.width * d->image.height;
    if (d->large)
        pthread_mutex_unlock(&large_lock);
    *d = (sfp__decoded){0};
}

static sfp_status decode(const void *bytes, size_t size, int64_t most, sfp__image *out, sfp_error *err)
{
    sfp__image_options limits = sfp__image_options_defaults();
    limits.max_pixels = (size_t)most;
    return sfp__image_decode("image", bytes, size, &limits, out, err);
}

sfp_status sfp__serve_decode(const void *bytes, size_t size, sfp__decoded *out, sfp_error *err)
{
    sfp__image image = {0};
    sfp_error why = {0};
    pthread_once(&once, make_lock);
    sfp_status status = held < SMALL_PIXELS ? decode(bytes, size, SMALL_PIXELS - held, &image, &why) : SFP_ELIMIT;
    bool large = status == SFP_ELIMIT;
    if (large) {
        int64_t left = REQUEST_PIXELS - held;
        pthread_mutex_lock(&large_lock);
        status = left > 0 ? decode(bytes, size, left < LARGE_PIXELS ? left : LARGE_PIXELS, &image, &why) : SFP_ELIMIT;
        if (status == SFP_ELIMIT && left < LARGE_PIXELS)
            (void)snprintf(why.message, sizeof why.message, "the images have more than %d pixels together", REQUEST_PIXELS);
    }
    if (status && large)
        pthread_mutex_unlock(&large_lock);
    if (status)
        return sfp__fail(err, status, "%s", why.message);
    held += (int64_t)image.width * image.height;
    *out = (sfp__decoded){.image = {.format = SFP_IMAGE_RGB, .width = image.width, .height = image.height, .data = image.rgb},
                          .pixels = image.rgb,
                          .large = large};
    return SFP_OK;
}
