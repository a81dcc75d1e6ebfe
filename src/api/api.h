/* Shared by the files of `api`: the objects behind the public header. Each object contains one of a lower layer. */
#ifndef SFP_API_API_H
#define SFP_API_API_H

#include "base/thread_pool.h"
#include "io/image/image.h"
#include "learner/learner.h"
#include "learner/predictor.h"
#include "run/run.h"
#include "stream/source.h"
#include "streamfp.h"

enum { SFP__API_SIDE_MAX = 65280 };

struct sfp_engine {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    char *backbone; /* as the caller named it */
    sfp_engine_options opt;
};
DEFINE_OWNED_PTR(sfp_engine, sfp_engine_close)
DEFINE_OWNED_PTR(sfp_settings, sfp_settings_free)

/* Returns SFP_EINVAL unless the arguments, which `names` lists for the message, are there. */
#define SFP__REQUIRE(condition, names) TRY((condition) ? SFP_OK : sfp__fail(err, SFP_EINVAL, "%s must not be NULL", names))

/* Copies a struct of the caller, which begins with its size, to a struct of this version. Members that the caller's struct
 * lacks become 0. Members that this version lacks are ignored. SFP_EINVAL: the size is 0. `name` is that of the type. */
sfp_status sfp__api_options(const void *given, void *out, size_t size, const char *name, sfp_error *err);

/* Fills *err after a callback of the program, named `where`, has returned `status` and perhaps a message in *why. Returns the
 * status, or SFP_EINVAL if it is not one of SFP_STATUS_LIST. */
sfp_status sfp__api_callback_failed(sfp_status status, sfp_error *why, const char *where, sfp_error *err);

/* ------------------------------------------------------------------- image.c */

/* Converts images that are `step` bytes apart to the input of a backbone, rgb (count, size, size, 3), on all threads; errors
 * (count). */
void sfp__api_fit_all(sfp__thread_pool *pool, int count, const sfp_image *images, size_t step, const sfp__vit_config *to,
                      sfp__resize how, uint8_t *rgb, sfp_error *errors);
/* A copy of the image as sources keep images: encoded bytes as they are, pixels as RGB or grey without gaps. */
sfp_status sfp__api_raw_image(const sfp_image *image, const char *label, sfp__raw_image *out, sfp_error *err);

/* ----------------------------------------------------------------- learner.c */

sfp__learner *sfp__api_core(sfp_learner *l);
const sfp_engine *sfp__api_engine(const sfp_learner *l);

/* --------------------------------------------------------------------- run.c */

sfp__run *sfp__api_run(sfp_run *run);
/* Fails if the run does not accept submitted samples now: it must have begun, and its source must be one of submitted samples. */
sfp_status sfp__api_takes_samples(sfp_run *run, sfp_error *err);

/* ----------------------------------------------------------------- correct.c */

/* SFP_EINVAL: `name` is not a valid name of a class. */
/* Opens the store of samples of the run in this directory. SFP_ENOTFOUND: there is none. */
sfp_status sfp__api_open_store(const char *dir, sfp__store **out, sfp_error *err);
sfp_status sfp__api_check_class(const char *name, sfp_error *err);

/* --------------------------------------------------------------- predictor.c */

/* Like sfp_predictor_create, for a learner that no sfp_learner contains. */
sfp_status sfp__api_predictor(sfp__learner *l, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err);

/* ---------------------------------------------------------------- settings.c */

/* The options of a learner on this backbone; settings NULL: defaults. *label_queue (may be NULL): images that wait for a label. */
sfp_status sfp__api_learner_options(const sfp_engine *e, const sfp_settings *settings, sfp__learner_options *out,
                                    int *label_queue, sfp_error *err);

/* Settings with values that were parsed by the table of a run, in a copy of it that may have other help texts. */
sfp_status sfp__api_settings_of(const sfp__args *args, sfp_settings **out, sfp_error *err);

/* The values of a run; NULL: the settings are those of a pretraining. */
const sfp__args *sfp__api_run_args(const sfp_settings *s);
/* The values of a pretraining; NULL: the settings are those of a run. */
const sfp__args *sfp__api_pretrain_args(const sfp_settings *s);

/* The options of a run on this backbone; settings NULL: defaults. *args gets a copy of the settings with the values of the engine;
 * it must outlive *out and is freed with sfp__args_done, also after a failure. own_source: the caller has a source for the stream.
 * note (SFP_ERROR_MAX) receives a message for the user; "": none. */
sfp_status sfp__api_run_options(const sfp_engine *e, const sfp_settings *settings, bool own_source, sfp__args *args,
                                sfp__run_options *out, char *note, sfp_error *err);

#endif
