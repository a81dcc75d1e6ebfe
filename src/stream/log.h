/* A message log with consumer groups (Redis Streams, Kafka): a live source that many workers read together (docs/scale.md).
 *
 * The log keeps the messages until they are learned. A delivered message is uncommitted until its worker commits it; if the worker does not, the log
 * delivers it to another worker. A unit is a worker (Redis) or a partition (Kafka), and has its own sums. A commit acknowledges messages and sets
 * the value of a unit, in one atomic operation. The value names the file that contains everything learned in the unit. A commit is fenced: it
 * fails as a whole if one of the messages now belongs to another worker.
 *
 * run/arrivals_log.c reads a log, instead of `next` of a live source. To add a kind, write sources/NAME.c with its `sfp__log_ops`. */
#ifndef SFP_STREAM_LOG_H
#define SFP_STREAM_LOG_H

#include "base/text.h"
#include "stream/source.h"

enum { SFP__LOG_NAME_MAX = 64, SFP__LOG_STREAM_MAX = 249, SFP__LOG_VALUE_MAX = 512 };

/* A message, with its contents as the producer sent them: only sizes were checked. */
typedef struct sfp__message {
    struct sfp__message *next;
    char *id;      /* its id in the log */
    char *name;    /* name of the sample, given by the producer; NULL: none */
    char *label;   /* NULL: none */
    uint8_t *data; /* (size) the image or the row; NULL: none */
    size_t size;
    bool row;        /* data is a row of features, not an image */
    bool learned;    /* not used by the log: the reader sets it */
    uint64_t digest; /* of label and data, for the sum by which tests compare logs and states */
    int64_t offset;  /* Kafka: position in its partition; -1: the log has no offsets */
    int64_t tries;   /* number of deliveries, including this one */
    int64_t time;    /* when the log received it, in ms since 1970; 0: unknown */
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

/* A field of an entry that is appended to the stream of answers or of rejected messages; a list of fields ends with a NULL key. */
typedef struct sfp__log_field {
    const char *key, *value;
} sfp__log_field;

/* The operations of a kind of log. SFP_EIO means that the log cannot be reached; `connect` is then called before any other operation. */
typedef struct sfp__log_ops {
    sfp_status (*connect)(sfp__log *l, sfp_error *err);
    void (*disconnect)(sfp__log *l);
    /* Reads up to `max` messages of one unit, and waits at most `seconds` for the first one. Messages in `held` are not delivered again. unit: the
     * unit to read from, which has uncommitted messages; "": any unit, whose name is then written to it. */
    sfp_status (*read)(sfp__log *l, int max, double seconds, const sfp__messages *held, char unit[SFP__LOG_NAME_MAX],
                       sfp__messages *out, sfp_error *err);
    /* Reads the committed value of a unit; "": none. */
    sfp_status (*committed)(sfp__log *l, const char *unit, char value[SFP__LOG_VALUE_MAX], sfp_error *err);
    /* Whether a commit may be sent now; units may be revoked meanwhile. NULL: always. */
    sfp_status (*can_commit)(sfp__log *l, bool *can, sfp_error *err);
    /* Acknowledges the messages and sets the value. *fenced: nothing was committed, because another worker has one of the messages or the unit, or
     * because the present value is not `before` (only Redis; with Kafka, requests of a connection cannot overtake each other). */
    sfp_status (*commit)(sfp__log *l, const char *unit, const char *before, const char *value, const sfp__messages *m,
                         bool *fenced, sfp_error *err);
    /* Makes the log deliver uncommitted messages of the unit again; offset: the first of them (Kafka). unit "": does nothing. */
    sfp_status (*seek)(sfp__log *l, const char *unit, int64_t offset, sfp_error *err);
    /* Appends an entry to the stream STREAM:NAME. m: a message whose data become the field `image` or `features`; NULL: none. */
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
    char worker[SFP__LOG_NAME_MAX]; /* name of this worker; "": this process only reads committed values */
    double claim_seconds;           /* a message that was not committed for this time is delivered to another worker */
    const atomic_bool *stop;        /* a read ends early; NULL: never */
    /* Called inside `read` when a unit goes to another worker. lost: it belongs to the other worker already. NULL: no callback. */
    void (*revoke)(void *ctx, const char *unit, bool lost);
    void *revoke_ctx;
    char unit_taken[SFP_ERROR_MAX]; /* another process works under the name of this worker: why; "": no */
};

/* The log of a source; NULL: the source is not a log. */
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
