/* Images of strangers are decoded here, and nowhere else in the service. The rest sees pixels. */
#include "serve/internal.h"

#include "io/image/image.h"

enum { SMALL_PIXELS = 4 << 20, LARGE_PIXELS = 50000000 };

/* One thread at a time has large images, so that their memory is bounded. */
static pthread_mutex_t large_lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_lock(void)
{
    pthread_mutexattr_t recursive; /* a request may have several */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&large_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void sfp__decoded_done(sfp__decoded *d)
{
    sfp__free(d->pixels);
    if (d->large)
        pthread_mutex_unlock(&large_lock);
    *d = (sfp__decoded){0};
}

sfp_status sfp__serve_decode(const void *bytes, size_t size, sfp__decoded *out, sfp_error *err)
{
    sfp__image_options limits = sfp__image_options_defaults();
    sfp__image image = {0};
    sfp_error why = {0};
    limits.max_pixels = SMALL_PIXELS;
    pthread_once(&once, make_lock);
    sfp_status status = sfp__image_decode("image", bytes, size, &limits, &image, &why);
    bool large = status == SFP_ELIMIT;
    if (large) {
        limits.max_pixels = LARGE_PIXELS;
        pthread_mutex_lock(&large_lock);
        status = sfp__image_decode("image", bytes, size, &limits, &image, &why);
    }
    if (status && large)
        pthread_mutex_unlock(&large_lock);
    if (status)
        return sfp__fail(err, status, "%s", why.message);
    *out = (sfp__decoded){.image = {.format = SFP_IMAGE_RGB, .width = image.width, .height = image.height, .data = image.rgb},
                          .pixels = image.rgb,
                          .large = large};
    return SFP_OK;
}
