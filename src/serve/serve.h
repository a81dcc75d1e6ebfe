/* The service: one process that learns, answers requests, accepts corrections and reports its state (docs/service.md). It uses the public
 * library.
 *
 *   server.c    sockets, connections and their limits, the queue of requests, access control
 *   routes.c    the table of routes: method, path, handler, documentation; GET /openapi.json is made from it
 *   model.c     a model: the thread that learns, the thread that answers, its status
 *   predict.c   images of requests, and answers as JSON
 *   samples.c   samples, labels, classes
 *   inference.c /v2: the Open Inference Protocol
 *   review.c    what a person should review: the queue, suspect labels, accuracy per class
 *   monitor.c   status, metrics, health, events
 *   mqtt.c      images, answers and labels by MQTT
 *   decode.c    starts and ends the decoder processes, sends them encoded images and receives pixels
 *   sandbox.c   the decoder process: the only place where the bytes of clients are decoded
 *
 * Images arrive by HTTP (samples.c) or MQTT (mqtt.c); both call sfp__submit_image. */
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
    double cpu_share;                                                   /* share of the time for learning, 0 to 1 */
    bool sandbox;                                                       /* decode images in other processes */
    const char *mqtt;                                                   /* HOST[:PORT] of a broker; NULL: none */
    const char *mqtt_topics, *mqtt_login, *mqtt_discovery, *mqtt_agree; /* mqtt_topics: one per line */
    double mqtt_threshold;
    sfp_settings *settings; /* settings of the runs; "out" is set for each model */
    sfp_log_fn log;
    const atomic_int *stop; /* not 0: the service ends */
    atomic_int *hangup;     /* not 0: the token file is read again, and this becomes 0 */
} sfp__serve_options;

/* Serves until *stop is set or a model fails. Calls `ready` with the address once all models accept samples and answer requests. */
sfp_status sfp__serve(const sfp__serve_options *opt, void (*ready)(const char *address), sfp_error *err);

/* The service starts this program with SFP__DECODER as its only argument; it is then a decoder process. Such a process ends by _exit, because
 * exit needs system calls that its filter forbids. */
#define SFP__DECODER "=decoder"
void sfp__decoder_main(void);

#endif
