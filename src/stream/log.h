/* A message log with consumer groups (Redis Streams, Kafka): a live source that many workers read together (docs/scale.md).
 *
 * The log is the store of samples: a message that was delivered is uncommitted until its worker commits it, and is delivered to another
 * worker if it does not. A commit is one atomic step of the log, {messages acknowledged, value of the unit}, and is fenced: it fails as a
 * whole if a message belongs to another worker by now. The value names the file that has everything learned in the unit. A unit is what
 * has its own sums: a worker (Redis) or a partition (Kafka).
 *
 * run/arrivals_log.c reads a log, instead of `next` of a live source. To add a kind, write sources/NAME.c with its `sfp__log_ops`. */
#ifndef SFP_STREAM_LOG_H
#define SFP_STREAM_LOG_H

#include "base/text.h"
#include "stream/source.h"

enum { SFP__LOG_NAME_MAX = 64, SFP__LOG_STREAM_MAX = 249, SFP__LOG_VALUE_MAX = 512 };

/* A message. Its bytes are those of the message; nothing is checked but sizes. */
typedef struct sfp__message {
    struct sfp__message *next;
    char *id;      /* in the log */
    char *name;    /* given by the producer; NULL: none */
    char *label;   /* NULL: none */
    uint8_t *data; /* (size) the image or the row; NULL: none */
    size_t size;
    bool row;        /* data is a row of features, not an image */
    bool learned;    /* set by the reader */
    uint64_t digest; /* of label and data, for the sum by which tests compare logs and states */
    int64_t offset;  /* Kafka: in its partition; -1: none */
    int64_t tries;   /* deliveries, this one included */
    int64_t time;    /* when the log got it, in ms since 1970; 0: unknown */
} sfp__message;

void sfp__message_free(sfp__message *m);
DEFINE_OWNED_PTR(sfp__message, sfp__message_free)

/* A list in the order of the log. */
typedef struct sfp__messages {
    sfp__message *first, *last;
    int count;
} sfp__messages;

void sfp__messages_put(sfp__messages *l, sfp__message *m);
sfp__message *sfp__messages_take(sfp__messages *l); /* NULL: the list is empty */
void sfp__messages_done(sfp__messages *l);
bool sfp__messages_have(const sfp__messages *l, const char *id);

typedef struct sfp__log sfp__log;

/* Fields of the streams of answers and of messages that were set aside; NULL at the end. */
typedef struct sfp__log_field {
    const char *key, *value;
} sfp__log_field;

/* Each of them may fail with SFP_EIO: the log cannot be reached. Then `connect` is called again before anything else. */
typedef struct sfp__log_ops {
    sfp_status (*connect)(sfp__log *l, sfp_error *err);
    void (*disconnect)(sfp__log *l);
    /* Reads up to `max` messages of one unit, and waits for the first one for up to `seconds`. Messages in `held` are not delivered again. unit:
     * "", or the unit of the uncommitted messages, which are then continued. */
    sfp_status (*read)(sfp__log *l, int max, double seconds, const sfp__messages *held, char unit[SFP__LOG_NAME_MAX],
                       sfp__messages *out, sfp_error *err);
    /* The committed value of a unit; "": none. */
    sfp_status (*committed)(sfp__log *l, const char *unit, char value[SFP__LOG_VALUE_MAX], sfp_error *err);
    /* Acknowledges the messages and sets the value. *fenced: nothing was committed, because another worker has one of them, or the unit, or
     * because its value is not `before` (Redis; Kafka has the order of a connection). */
    sfp_status (*commit)(sfp__log *l, const char *unit, const char *before, const char *value, const sfp__messages *m,
                         bool *fenced, sfp_error *err);
    /* Messages of the unit that were delivered but not committed are delivered again; offset: the first of them (Kafka). unit "": none. */
    sfp_status (*seek)(sfp__log *l, const char *unit, int64_t offset, sfp_error *err);
    /* Appends to the stream STREAM:NAME. data: appended as the field `image` or `features` of m; m NULL: none. */
    sfp_status (*append)(sfp__log *l, const char *name, const sfp__log_field *fields, const sfp__message *m, sfp_error *err);
    /* Calls fn for each unit in a fixed order, with its committed value. */
    sfp_status (*each)(sfp__log *l, sfp_status (*fn)(void *ctx, const char *unit, const char *value, sfp_error *err), void *ctx,
                       sfp_error *err);
} sfp__log_ops;

/* The beginning of the struct of each kind. */
struct sfp__log {
    sfp_source base;
    sfp__source_live live;
    const sfp__log_ops *ops;
    char *stream, *address, *group; /* of KIND:STREAM@ADDRESS/GROUP */
    char worker[SFP__LOG_NAME_MAX]; /* "": it only reads committed values */
    double claim_seconds;           /* a message that was not committed for this time is delivered to another worker */
    const atomic_bool *stop;        /* a read ends early; NULL: never */
    /* Called inside read when a unit goes to another worker; lost: it has gone already. NULL: not called. */
    void (*revoke)(void *ctx, const char *unit, bool lost);
    void *revoke_ctx;
    char unit_taken[SFP_ERROR_MAX]; /* another process works under the name of this worker: why; "": no */
};

/* The log of a source; NULL: it is none. */
sfp__log *sfp__source_log(sfp_source *s);
/* Creates the source of `size` bytes from STREAM@ADDRESS/GROUP[?features=N]; `example` is shown in messages. */
sfp_status sfp__log_create(size_t size, const sfp__source_kind *kind, const sfp__log_ops *ops, const char *path,
                           const char *example, sfp__log **out, sfp_error *err);
void sfp__log_close(sfp_source *base);
/* Copies a field of a message; unknown fields are ignored. */
sfp_status sfp__message_set(sfp__message *m, const char *key, size_t key_size, const void *value, size_t size, sfp_error *err);
/* Completes a message: computes its digest. */
void sfp__message_end(sfp__message *m);
/* The operations of sources that all logs share. */
extern const sfp__source_ops sfp__log_source_ops;

#endif
