/* Shared by the files of this directory. */
#ifndef SFP_SERVE_INTERNAL_H
#define SFP_SERVE_INTERNAL_H

#include "base/mem.h"
#include "base/settings.h"
#include "base/text.h"
#include "io/image/image.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "serve/serve.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct sfp__server sfp__server;
typedef struct sfp__model sfp__model;

/* ------------------------------------------------------------------- model.c */

/* A copy of the counters and measurements of a model. */
typedef struct sfp__model_status {
    uint64_t version; /* batches learned */
    uint64_t counts[5];
    int classes;
    double rate, lag, accuracy, answers_per_second, age; /* NAN: unknown */
    bool paused, failed;
    uint64_t answers, answer_batches;
    double answer_seconds; /* total time of these predictions */
    bool of_log;           /* a worker of a message log: `worker` is known */
    sfp_worker_status worker;
} sfp__model_status;

/* The images of one request that wait to be predicted. The model calls `answer` on its answering thread, directly after its predictor has run.
 * Row `first` of the predictor's results, and of `predictions`, belongs to images[0]. */
typedef struct sfp__prediction_request {
    int count;
    const sfp_image *images; /* (count) */
    void (*answer)(struct sfp__prediction_request *q, const sfp_predictor *p, int first, const sfp_prediction *predictions);
    void *ctx;
    /* used by model.c only */
    struct sfp__prediction_request *next;
    bool done;
    sfp_status status;
    sfp_error err;
} sfp__prediction_request;

sfp_status sfp__model_open(sfp_engine *e, const sfp__serve_options *opt, int index, sfp__model **out, sfp_error *err);
/* Gives the calling thread a lower priority than the threads that answer requests. */
void sfp__serve_lower_priority(void);
/* Starts the thread that learns and the thread that answers. */
sfp_status sfp__model_start(sfp__model *m, sfp_error *err);
/* Asks the run to write a checkpoint and end; does not wait for it. */
void sfp__model_stop(sfp__model *m);
/* Stops the run, joins the threads and frees the model. Returns the status with which the run ended. */
sfp_status sfp__model_close(sfp__model *m, sfp_error *err);
const char *sfp__model_name(const sfp__model *m);
const char *sfp__model_dir(const sfp__model *m);
sfp_run *sfp__model_run(sfp__model *m);
int sfp__model_dim(const sfp__model *m); /* length of a class token of the backbone */
struct sfp__review *sfp__model_review(sfp__model *m);
bool sfp__model_ready(sfp__model *m);
void sfp__model_get(sfp__model *m, sfp__model_status *out);
sfp_status sfp__model_predict(sfp__model *m, sfp__prediction_request *q, sfp_error *err);
sfp_status sfp__model_pause(sfp__model *m, bool paused, sfp_error *err);
/* Warnings about the data, as JSON (monitor.c). */
typedef struct sfp__warnings {
    pthread_mutex_t lock;
    sfp__text text;
    double until; /* sfp__monotonic_seconds() up to which they are kept */
} sfp__warnings;
sfp__warnings *sfp__model_warnings(sfp__model *m);
double sfp__model_heartbeat(sfp__model *m); /* sfp__monotonic_seconds() of the last step; -1: the run has ended */
/* A queue of samples that wait to be learned; an event is sent when they are. sfp__model_watched takes one; false: it is empty. */
void sfp__model_watch(sfp__model *m, uint64_t id);
bool sfp__model_watched(sfp__model *m, uint64_t *id);

/* ----------------------------------------------------------------- requests */

enum { SFP__REPLY_HEADERS = 4 };

typedef struct sfp__request {
    sfp__server *server;
    void *connection; /* struct MHD_Connection * */
    const char *method, *path;
    const struct sfp__route *route;
    sfp__model *model; /* NULL: the route does not belong to a model */
    char *text;        /* the variable part of the path, decoded; NULL: none */
    sfp__text body;
    /* the reply */
    int status;
    const char *type;
    sfp__text reply;
    int file; /* sent instead of `reply`; -1: none */
    struct {
        const char *name;
        char value[512];
    } headers[SFP__REPLY_HEADERS];
    int header_count;
    bool events; /* the reply is the stream of events */
    bool oip;    /* errors have the form of the Open Inference Protocol */
    /* used by server.c only */
    struct sfp__request *next;
    bool received, refused, done;
    size_t budget; /* bytes of this request in the total of the server */
} sfp__request;

/* Decodes a value of the query string (sfp__free). NULL: malformed. */
char *sfp__decode_param(const char *s);
/* The i-th parameter with this name in the query string, decoded (sfp__free). NULL: none. */
char *sfp__request_param(const sfp__request *r, const char *name, int i);
/* Reads a parameter as a whole number from low to high; otherwise SFP_EINVAL. If the parameter is missing, *out is not changed. */
sfp_status sfp__request_int(const sfp__request *r, const char *name, int64_t low, int64_t high, int64_t *out, sfp_error *err);
const char *sfp__request_header(const sfp__request *r, const char *name); /* NULL: none */
void sfp__reply_header(sfp__request *r, const char *name, const char *value);
/* Replaces the reply by an error. */
void sfp__reply_error(sfp__request *r, int status, const char *code, const char *message);
void sfp__reply_status(sfp__request *r, sfp_status status, const sfp_error *err);
/* Parses the body as a JSON object. */
sfp_status sfp__request_json(const sfp__request *r, sfp__json_value **out, sfp_error *err);

/* Writes the reply to a request. If it returns an error, the server replies with that error instead. */
typedef sfp_status sfp__handler(sfp__request *r, sfp_error *err);

/* A row of the table of routes. In `path`, a leading P stands for /v1/models/MODEL (or /v1 if there is only one model) and a leading V for
 * /v2/models/MODEL. "{}", which is at the end or before a last "/word", stands for the variable part. */
typedef struct sfp__route {
    const char *method, *path;
    sfp__handler *handler;
    const char *summary;
    const char *params; /* "name type text" separated by ';'; NULL: none */
    const char *body;   /* media type of the request body; NULL: none */
    int status;         /* HTTP status of a successful reply */
    bool open;          /* needs no token */
} sfp__route;

extern const sfp__route sfp__routes[];
extern const size_t sfp__route_count;
/* Finds the route of r->method and r->path, its model and the variable part. If there is none, writes an error reply and returns false. */
bool sfp__route_find(sfp__request *r);

sfp__handler sfp__get_page, sfp__get_openapi; /* routes.c */
sfp__handler sfp__post_predict;               /* predict.c */
sfp__handler sfp__post_sample, sfp__get_samples, sfp__get_sample, sfp__get_sample_image, sfp__put_label, sfp__delete_sample,
    sfp__post_class, sfp__patch_class, sfp__delete_class;         /* samples.c */
sfp__handler sfp__get_queue, sfp__get_suspects, sfp__get_classes; /* review.c */
sfp__handler sfp__get_models, sfp__get_status, sfp__get_state, sfp__get_report, sfp__post_checkpoint, sfp__post_pause,
    sfp__post_resume, sfp__get_events, sfp__get_metrics, sfp__get_health, sfp__get_ready;                    /* monitor.c */
sfp__handler sfp__v2_server, sfp__v2_live, sfp__v2_ready, sfp__v2_model, sfp__v2_model_ready, sfp__v2_infer; /* inference.c */

/* ---------------------------------------------------------------- server.c */

int sfp__server_models(const sfp__server *s);
sfp__model *sfp__server_model(const sfp__server *s, int i);
sfp__model *sfp__server_find(const sfp__server *s, const char *name); /* NULL: none */
typedef struct sfp__server_stats {
    int connections;
    uint64_t requests, refused; /* refused: an error reply without calling a handler */
    double seconds;             /* since the start */
} sfp__server_stats;
void sfp__server_get(const sfp__server *s, sfp__server_stats *out);
struct sfp__events;
struct sfp__events *sfp__server_events(const sfp__server *s);

/* -------------------------------------------------------- predict.c, samples.c */

/* Writes the members "classes" (the best `top` of them), "unknown" and "is_unknown" of prediction i. */
void sfp__json_prediction(sfp__json *j, const sfp_predictor *p, int i, const sfp_prediction *prediction, int top);
extern const char *const sfp__standing_names[5]; /* of sfp_standing */
/* Writes the members of a sample into an open JSON object. */
void sfp__json_members(sfp__json *j, const sfp_sample_info *s);
/* Writes a sample as a JSON object. *found: there is a sample with this id. */
sfp_status sfp__json_sample(sfp__model *m, uint64_t id, sfp__json *j, const char *key, bool *found, sfp_error *err);
/* Adds an image that was received to the run: decodes it, predicts it if it has no label, and submits it as a sample. answer: receives the
 * prediction as JSON (may be NULL). *repeated: the sample existed already. *unreadable: the bytes are not an image. */
typedef struct sfp__received_image {
    const void *bytes;
    size_t size;
    const char *name, *label, *key; /* NULL: none */
} sfp__received_image;
sfp_status sfp__submit_image(sfp__model *m, struct sfp__events *events, const sfp__received_image *in, uint64_t *id,
                             bool *repeated, bool *unreadable, sfp__text *answer, sfp_error *err);

/* ---------------------------------------------------------------- review.c */

/* Computes what a person should review (review.c). Takes ownership of the predictor if it succeeds. */
sfp_status sfp__review_create(sfp__model *m, sfp_predictor *p, struct sfp__review **out, sfp_error *err);
void sfp__review_free(struct sfp__review *v);

/* ---------------------------------------------------------------- decode.c */

/* A decoded image: pixels, which are safe. */
typedef struct sfp__decoded {
    sfp_image image;
    uint8_t *pixels;
    bool large;
} sfp__decoded;

void sfp__decoded_done(sfp__decoded *d);
/* Decodes the image of a request within limits of pixels and memory. The same thread must call sfp__decoded_done. SFP_ENOMEM: no decoder can
 * be started now; all other failures are of the image. */
sfp_status sfp__serve_decode(const void *bytes, size_t size, sfp__decoded *out, sfp_error *err);

/* Starts the decoder processes (sandbox.c). From then on they decode all images, also those that a run of this process learns from. */
sfp_status sfp__decoders_start(sfp_log_fn log, sfp_error *err);
/* Ends the decoder processes. No other thread may be decoding. */
void sfp__decoders_stop(void);

/* ---------------------------------------------------------------- sandbox.c */

/* Layout of the memory that a decoder shares with the service: first the encoded bytes, then the pixels. */
#define SFP__DECODE_BYTES_MAX ((size_t)256 << 20)
#define SFP__DECODE_PIXELS_MAX ((size_t)50000000)
#define SFP__DECODE_SHARED (SFP__DECODE_BYTES_MAX + 3 * SFP__DECODE_PIXELS_MAX)

typedef struct sfp__decode_request {
    size_t size; /* of the encoded bytes */
    sfp__image_options options;
} sfp__decode_request;

typedef struct sfp__decode_reply {
    sfp_status status;
    int width, height;
    int worn;                    /* not 0: the decoder has almost used up its CPU time and must be replaced */
    char message[SFP_ERROR_MAX]; /* begins with ": "; the caller puts the name of the image before it */
} sfp__decode_reply;

/* Limits what the calling process can do. This cannot be undone. */
sfp_status sfp__sandbox_enter(sfp_error *err);
/* The version of the kernel's Landlock; 0: it has none. */
int sfp__landlock_version(void);

/* ------------------------------------------------------------------ mqtt.c */

typedef struct sfp__mqtt sfp__mqtt;
/* Reads the options; *out stays NULL without --mqtt. sfp__mqtt_close must follow, also on failure. */
sfp_status sfp__mqtt_open(sfp__server *s, const sfp__serve_options *opt, sfp__mqtt **out, sfp_error *err);
sfp_status sfp__mqtt_start(sfp__mqtt *m, sfp_error *err);
void sfp__mqtt_close(sfp__mqtt *m);

/* --------------------------------------------------------------- monitor.c */

/* Whether all models accept samples and answer requests. */
bool sfp__serve_ready(const sfp__server *s);
/* The subscribers to server-sent events. */
struct sfp__events *sfp__events_create(void);
void sfp__events_free(struct sfp__events *e);
/* Sends the present data of a sample to all subscribers of the model. A subscriber that reads too slowly is disconnected. */
void sfp__events_sample(struct sfp__events *e, sfp__model *m, uint64_t id);
/* Sends status events and events of samples that were learned. Called about twice per second. */
void sfp__events_tick(sfp__server *s);
/* Ends the event streams of all subscribers. */
void sfp__events_end(struct sfp__events *e);
/* Returns the struct MHD_Response * of a new subscriber. NULL: there are too many subscribers, or no memory. */
void *sfp__events_subscribe(struct sfp__events *e, sfp__request *r);

#endif
