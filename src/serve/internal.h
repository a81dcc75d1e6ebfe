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

/* What is known about a model at a moment. */
typedef struct sfp__model_status {
    uint64_t version; /* batches learned */
    uint64_t counts[5];
    int classes;
    double rate, lag, accuracy, answers_per_second, age; /* NAN: unknown */
    bool paused, failed;
    uint64_t answers, answer_batches;
    double answer_seconds; /* of predictions, in all */
    bool of_log;           /* then `worker` is known */
    sfp_worker_status worker;
} sfp__model_status;

/* Predicts images for a request. Called on the thread that answers, with the predictor that has just run; the images of the request are
 * those from `first` on. */
typedef struct sfp__question {
    int count;
    const sfp_image *images; /* (count) */
    void (*answer)(struct sfp__question *q, const sfp_predictor *p, int first, const sfp_prediction *predictions);
    void *ctx;
    /* of model.c */
    struct sfp__question *next;
    bool done;
    sfp_status status;
    sfp_error err;
} sfp__question;

sfp_status sfp__model_open(sfp_engine *e, const sfp__serve_options *opt, int index, sfp__model **out, sfp_error *err);
/* Lowers the priority of this thread below that of threads that answer. */
void sfp__serve_yield(void);
/* Starts its threads. */
sfp_status sfp__model_start(sfp__model *m, sfp_error *err);
/* Ends the run with a checkpoint. */
void sfp__model_stop(sfp__model *m);
/* Joins the threads; returns how the run has ended. */
sfp_status sfp__model_close(sfp__model *m, sfp_error *err);
const char *sfp__model_name(const sfp__model *m);
const char *sfp__model_dir(const sfp__model *m);
sfp_run *sfp__model_run(sfp__model *m);
int sfp__model_dim(const sfp__model *m); /* length of a feature of its engine */
struct sfp__review *sfp__model_review(sfp__model *m);
bool sfp__model_ready(sfp__model *m);
void sfp__model_get(sfp__model *m, sfp__model_status *out);
sfp_status sfp__model_ask(sfp__model *m, sfp__question *q, sfp_error *err);
sfp_status sfp__model_pause(sfp__model *m, bool paused, sfp_error *err);
double sfp__model_heartbeat(sfp__model *m); /* sfp__monotonic_seconds() of the last step */
/* Samples whose next change is reported as an event. */
void sfp__model_watch(sfp__model *m, uint64_t id);
bool sfp__model_watched(sfp__model *m, uint64_t *id);

/* ----------------------------------------------------------------- requests */

enum { SFP__REPLY_HEADERS = 4 };

typedef struct sfp__request {
    sfp__server *server;
    void *connection; /* struct MHD_Connection * */
    const char *method, *path;
    const struct sfp__route *route;
    sfp__model *model; /* of routes of a model */
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
    /* of server.c */
    struct sfp__request *next;
    bool received, refused, done;
    size_t budget;
} sfp__request;

/* Decodes a value of the query (sfp__free); NULL: malformed. */
char *sfp__decode_param(const char *s);
/* A parameter of the query, decoded (sfp__free); NULL: none. i: the i-th of this name. */
char *sfp__request_param(const sfp__request *r, const char *name, int i);
/* SFP_EINVAL: it is not a whole number of this range. Without it *out stays. */
sfp_status sfp__request_int(const sfp__request *r, const char *name, int64_t low, int64_t high, int64_t *out, sfp_error *err);
const char *sfp__request_header(const sfp__request *r, const char *name); /* NULL: none */
void sfp__reply_header(sfp__request *r, const char *name, const char *value);
/* Replaces the reply by an error. */
void sfp__reply_error(sfp__request *r, int status, const char *code, const char *message);
void sfp__reply_status(sfp__request *r, sfp_status status, const sfp_error *err);
/* Parses the body as a JSON object. */
sfp_status sfp__request_json(const sfp__request *r, sfp__json_value **out, sfp_error *err);

/* A handler fills the reply; an error that it returns becomes the reply. */
typedef sfp_status sfp__handler(sfp__request *r, sfp_error *err);

/* "P" in the path of a route is /v1/models/M, or /v1 for the only model; "{}" at its end or before a last "/word" is the variable part. */
typedef struct sfp__route {
    const char *method, *path;
    sfp__handler *handler;
    const char *summary;
    const char *params; /* "name type text" separated by ';'; NULL: none */
    const char *body;   /* the type of the body; NULL: none */
    int status;         /* of success */
    bool open;          /* needs no token */
} sfp__route;

extern const sfp__route sfp__routes[];
extern const size_t sfp__route_count;
/* Finds the route of r->method and r->path, its model and the variable part. An error is the reply. */
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
    uint64_t requests, refused; /* refused: before a handler */
    double seconds;             /* since the start */
} sfp__server_stats;
void sfp__server_get(const sfp__server *s, sfp__server_stats *out);
struct sfp__events;
struct sfp__events *sfp__server_events(const sfp__server *s);

/* -------------------------------------------------------- predict.c, samples.c */

/* {"classes":[...],"unknown":...} of an answer. */
void sfp__json_prediction(sfp__json *j, const sfp_predictor *p, int i, const sfp_prediction *prediction, int top);
extern const char *const sfp__standing_names[5]; /* of sfp_standing */
/* The members of a sample. */
void sfp__json_members(sfp__json *j, const sfp_sample_info *s);
/* {"id":...} of a sample; false: there is none. */
sfp_status sfp__json_sample(sfp__model *m, uint64_t id, sfp__json *j, const char *key, bool *found, sfp_error *err);
/* Where a door leaves an image: decides whether it is one, predicts it if it has no label, and submits it. answer: the prediction as JSON
 * (may be NULL). *unreadable: the bytes are not an image. */
typedef struct sfp__arrival_in {
    const void *bytes;
    size_t size;
    const char *name, *label, *key; /* NULL: none */
} sfp__arrival_in;
sfp_status sfp__door_submit(sfp__model *m, struct sfp__events *events, const sfp__arrival_in *in, uint64_t *id, bool *repeated,
                            bool *unreadable, sfp__text *answer, sfp_error *err);

/* ---------------------------------------------------------------- review.c */

/* What a person should look at; the predictor belongs to it. */
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
/* Decodes the bytes of a stranger, within limits of pixels and memory. The caller ends *out on the same thread. */
sfp_status sfp__serve_decode(const void *bytes, size_t size, sfp__decoded *out, sfp_error *err);

/* From now on images are decoded in other processes (sandbox.c), also those that a run of this process learns. */
sfp_status sfp__decoders_start(sfp_log_fn log, sfp_error *err);
/* Ends them. No thread decodes. */
void sfp__decoders_stop(void);

/* ---------------------------------------------------------------- sandbox.c */

/* What a decoder and the service share: encoded bytes, then pixels. */
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
    int worn;                    /* not 0: it should be replaced */
    char message[SFP_ERROR_MAX]; /* begins with ": ", before which the name of the image belongs */
} sfp__decode_reply;

/* Confines this process; it cannot be undone. */
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

/* Does every model take samples and questions? */
bool sfp__serve_ready(const sfp__server *s);
/* Subscribers to events. */
struct sfp__events *sfp__events_create(void);
void sfp__events_free(struct sfp__events *e);
/* Sends an event to all subscribers of a model; one that reads too slowly is disconnected. */
void sfp__events_sample(struct sfp__events *e, sfp__model *m, uint64_t id);
/* Called about twice per second. */
void sfp__events_tick(sfp__server *s);
/* Ends all streams. */
void sfp__events_end(struct sfp__events *e);
/* The MHD response of a new subscriber; NULL: there are too many. */
void *sfp__events_subscribe(struct sfp__events *e, sfp__request *r);

#endif
