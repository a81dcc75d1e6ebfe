/* The service: one process that learns, answers, takes corrections and shows what it knows (docs/service.md). It is written with the public
 * library.
 *
 *   server.c    sockets, connections and their limits, the queue of requests, who may talk to it
 *   routes.c    the table of routes: method, path, handler, documentation; GET /openapi.json is made from it
 *   model.c     a model: the thread that learns, the thread that answers, and what is known about it
 *   predict.c   images of requests, and answers as JSON
 *   samples.c   samples, labels, classes
 *   inference.c /v2: the Open Inference Protocol
 *   monitor.c   status, metrics, health, events
 *   mqtt.c      the door of MQTT
 *   decode.c    the decoders, which are processes: hands them the bytes of strangers, takes pixels, starts and ends them
 *   sandbox.c   such a process: the only place that looks into these bytes
 *
 * A door is a way by which images arrive: HTTP, or another file that calls sfp__door_submit. */
#ifndef SFP_SERVE_SERVE_H
#define SFP_SERVE_SERVE_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdint.h>

enum { SFP__SERVE_MODELS_MAX = 64 };

typedef struct sfp__serve_options {
    const char *listen;     /* ADDRESS:PORT; port 0: any */
    const char *socket;     /* path of a Unix socket, instead of `listen`; NULL: none */
    const char *token_file; /* NULL: no token; then only loopback addresses and Unix sockets are allowed */
    int model_count;
    const char *names[SFP__SERVE_MODELS_MAX], *dirs[SFP__SERVE_MODELS_MAX];
    const char *answer_with; /* a state that answers, read again when it changes; NULL: the model itself */
    bool of_log;             /* the model is a worker of a message log, without a directory */
    int64_t max_body;        /* bytes of a request */
    int max_connections, workers;
    double cpu_share;                                                   /* of the time, for learning: 0 to 1 */
    bool sandbox;                                                       /* decode images in other processes */
    const char *mqtt;                                                   /* HOST[:PORT] of a broker; NULL: none */
    const char *mqtt_topics, *mqtt_login, *mqtt_discovery, *mqtt_agree; /* mqtt_topics: one per line */
    double mqtt_threshold;
    sfp_settings *settings; /* those of a run with submitted samples; "out" is set for each model */
    sfp_log_fn log;
    const atomic_int *stop; /* not 0: end */
    atomic_int *hangup;     /* not 0: read the token again */
} sfp__serve_options;

/* Serves until *stop. `ready` is called with the address once samples and questions are taken. */
sfp_status sfp__serve(const sfp__serve_options *opt, void (*ready)(const char *address), sfp_error *err);

/* The program with this as its only argument is a decoder of images, which the service has started. It ends by _exit: other functions of
 * exit would need more system calls. */
#define SFP__DECODER "=decoder"
void sfp__decoder_main(void);

#endif
