/* The store of samples of a live run: one row per image that has arrived, in DIR/samples.db (SQLite). An id is never given twice.
 *
 * Each sample has one standing:
 *
 *                 a label, in time                 another label, or a correction that waits
 *   arrival --> WAITING ------------------> LEARNED ----------------------------------------> WAITING --> LEARNED
 *      |          | ^                          |
 *      |          | | a label                  | forget
 *      |          | +--- DROPPED               +-------------------> FORGOTTEN: only the id is left
 *      |          +----> DROPPED: the learner was busy, or no label can arrive any more
 *      +---------------> UNREADABLE
 *
 * An image without a label is predicted and is WAITING until its label arrives. offered = the sum over all standings. Later calls for a FORGOTTEN
 * sample have no effect: another thread may have found the sample before it was forgotten.
 *
 * Checkpoint and store agree after any kill. `learned` is the label with which a sample is part of the learner. When it changes, the previous value is
 * recorded under the number of the next checkpoint (its generation). The store is on the disk before that checkpoint replaces the last one. A run
 * that resumes from generation g undoes all changes with higher numbers; these samples then wait and are delivered again.
 *
 * The thread that reads the source and the thread that learns use the store. Changes are collected in a transaction;
 * sfp__store_commit ends it. Other processes read the file at any time, and leave requests in it (corrections). */
#ifndef SFP_STREAM_SAMPLE_STORE_H
#define SFP_STREAM_SAMPLE_STORE_H

#include "base/digest.h"
#include "base/mem.h"

#include <stdint.h>

#define SFP__STORE_NAME "samples.db"
#define SFP__IMAGES_NAME "images.db" /* images of submitted samples */

typedef enum sfp__standing {
    SFP__WAITING,
    SFP__LEARNED,
    SFP__DROPPED,
    SFP__UNREADABLE,
    SFP__FORGOTTEN,
    SFP__STANDINGS
} sfp__standing;

/* Size and times of the file of a sample when it was read. If the stamp of a file is unchanged, its bytes are assumed to be the same. */
typedef struct sfp__file_stamp {
    int64_t size, modified, changed; /* bytes; mtime and ctime in ns. All 0: not a file */
} sfp__file_stamp;

/* A row. Texts are owned; sfp__stored_done frees them. */
typedef struct sfp__stored {
    uint64_t id;
    char *name;
    sfp__file_stamp stamp;
    sfp__digest digest;
    char *label;   /* the last one that was given; NULL: none */
    char *learned; /* the label with which the sample is part of the learner; NULL: it is not */
    sfp__standing standing;
    bool predicted;
} sfp__stored;

void sfp__stored_done(sfp__stored *s);

typedef struct sfp__store sfp__store;

/* Opens or creates DIR/samples.db. DIR NULL: a store that ends with the process. */
sfp_status sfp__store_open(const char *dir, sfp__store **out, sfp_error *err);
void sfp__store_close(sfp__store *s);
DEFINE_OWNED_PTR(sfp__store, sfp__store_close)
/* Whether the file at `path` is a store, even if it has no samples. false: it does not exist, or it is another file. */
bool sfp__store_is_one(const char *path);
/* If this process has created the store, sfp__store_close will remove its files. For a run that fails before it has changed its directory. */
void sfp__store_discard(sfp__store *s);
/* Removes DIR/samples.db and what SQLite keeps beside it. */
sfp_status sfp__store_remove(const char *dir, sfp_error *err);

/* ------------------------------------------------------------ arrivals: by the thread that reads the source, and others */

sfp_status sfp__store_get(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err);
/* The newest sample of this name; *found false: there is none. */
sfp_status sfp__store_find(sfp__store *s, const char *name, sfp__stored *out, bool *found, sfp_error *err);
/* The newest sample with these bytes whose id is below `before`. */
sfp_status sfp__store_find_bytes(sfp__store *s, const sfp__digest *digest, uint64_t before, sfp__stored *out, bool *found,
                                 sfp_error *err);
/* *out: a sample with these bytes was forgotten, so they must not be learned again. */
sfp_status sfp__store_was_forgotten(sfp__store *s, const sfp__digest *digest, bool *out, sfp_error *err);
/* Adds a sample, which is WAITING. label NULL: none. */
sfp_status sfp__store_add(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                          const char *label, uint64_t *id, sfp_error *err);
/* Records that the file of a sample was moved, that its times have changed, or that its image was sent again. A sample that was dropped or unreadable
 * becomes WAITING. label: recorded in the same call, because another thread may end the transaction between two calls; NULL: none. */
sfp_status sfp__store_moved(sfp__store *s, uint64_t id, const char *name, const sfp__file_stamp *stamp, const char *label,
                            sfp_error *err);
/* Records that a second file has the bytes of the sample and does not become another sample. sfp__store_find then also finds this name. */
sfp_status sfp__store_add_name(sfp__store *s, uint64_t id, const char *name, const char *label, sfp_error *err);
/* Records a label. The sample becomes WAITING, until it is learned with this label. If it is already learned with it, the sample is LEARNED. */
sfp_status sfp__store_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err);
/* Records that a command has given the sample a label, which replaces older ones: lines of labels.csv that begin before byte `lines` and, if `moved`, a
 * move of its file that the source has not seen yet. sfp__store_moved clears `moved`. */
sfp_status sfp__store_decide(sfp__store *s, uint64_t id, uint64_t lines, bool moved, sfp_error *err);
/* Reads what sfp__store_decide has recorded; 0 and false: no command has given a label. */
sfp_status sfp__store_decision(sfp__store *s, uint64_t id, uint64_t *lines, bool *moved, sfp_error *err);
/* Finds the first sample with an id above `after` that an earlier process has left and that must be delivered again; *found false: none. */
sfp_status sfp__store_next_pending(sfp__store *s, int64_t after, sfp__stored *out, bool *found, sfp_error *err);

/* Returns in *out the present name of a class that was renamed (sfp__free); NULL: the class `label` was not renamed. */
sfp_status sfp__store_class(sfp__store *s, const char *label, char **out, sfp_error *err);
/* Renames a class: its samples get the new label, and so do samples that arrive later with the old one. Samples that were learned with the old label
 * wait for their correction; sfp__store_redeliveries grows, so that the source delivers them again. */
sfp_status sfp__store_rename_class(sfp__store *s, const char *from, const char *to, sfp_error *err);
uint64_t sfp__store_redeliveries(sfp__store *s);
/* Calls fn for each sample with this label, in order of id, and counts them; fn may be NULL. */
sfp_status sfp__store_each_of_class(sfp__store *s, const char *label,
                                    sfp_status (*fn)(void *ctx, const char *name, sfp_error *err), void *ctx, int64_t *count,
                                    sfp_error *err);

/* The label that labels.csv has for a name; NULL: none. Free it with sfp__free. */
sfp_status sfp__store_line(sfp__store *s, const char *name, char **label, sfp_error *err);
/* Records a line of labels.csv. *changed: the name had no label there, or another one. */
sfp_status sfp__store_set_line(sfp__store *s, const char *name, const char *label, bool *changed, sfp_error *err);
/* How far labels.csv was read: number of bytes and lines, and the CRC-32 of these bytes. */
typedef struct sfp__labels_position {
    uint64_t offset, line;
    uint32_t crc;
} sfp__labels_position;
sfp_status sfp__store_labels_position(sfp__store *s, sfp__labels_position *out, sfp_error *err);
/* Records how far labels.csv was read. rewritten: the file was written anew, so all its lines count as newer than earlier commands. */
sfp_status sfp__store_set_labels_position(sfp__store *s, const sfp__labels_position *at, bool rewritten, sfp_error *err);

/* ------------------------------------------------------------ standings: by the thread that learns */

/* Records the label with which the sample is part of the learner; NULL: it is not part of it any more. */
sfp_status sfp__store_learned(sfp__store *s, uint64_t id, const char *label, sfp_error *err);
/* Records that a sample is not learned: it becomes DROPPED or UNREADABLE. If it was a correction, the sample stays LEARNED with its old label. */
sfp_status sfp__store_refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err);
/* Makes all WAITING samples DROPPED; for sources that cannot deliver them again. */
sfp_status sfp__store_drop_waiting(sfp__store *s, const char *reason, sfp_error *err);
/* Records a prediction at the time of day `at` (ms since 1970). class_name NULL: nothing is learned yet; NAN: no number. */
sfp_status sfp__store_predicted(sfp__store *s, uint64_t id, int64_t at, const char *class_name, double probability,
                                double unknown, int64_t timestamp, sfp_error *err);
/* Removes everything but the ids of samples that are not part of the learner any more. requests (n): the name of each becomes "", so that
 * another process can answer it; NULL: none. */
sfp_status sfp__store_erase(sfp__store *s, int n, const uint64_t *ids, const int64_t *requests, sfp_error *err);

typedef struct sfp__store_counts {
    uint64_t standing[SFP__STANDINGS];
    uint64_t unlabelled; /* of those that wait: without a label */
    uint64_t predicted, late, expired, corrected;
} sfp__store_counts;
sfp__store_counts sfp__store_get_counts(sfp__store *s);
uint64_t sfp__store_next_id(sfp__store *s);            /* the id of the next sample */
uint64_t sfp__store_first_new_id(const sfp__store *s); /* samples with smaller ids are of earlier processes */

/* A stored prediction. sfp__store_each_prediction calls fn for those with ids from `from` on, in order of id: their lines may be missing in the log. */
typedef struct sfp__stored_prediction {
    uint64_t id;
    int64_t at, timestamp;
    const char *name, *class_name; /* valid during the call; class_name may be NULL */
    double probability, unknown;   /* NAN: none */
} sfp__stored_prediction;
sfp_status sfp__store_each_prediction(sfp__store *s, uint64_t from,
                                      sfp_status (*fn)(void *ctx, const sfp__stored_prediction *p, sfp_error *err), void *ctx,
                                      sfp_error *err);
/* Records that the lines of all predictions with ids below `id` have been written to the log (which another program may have moved since). */
sfp_status sfp__store_set_logged(sfp__store *s, uint64_t id, sfp_error *err);
uint64_t sfp__store_logged(const sfp__store *s);

/* ------------------------------------------------------------ transactions and checkpoints */

/* Ends the transaction, if one is open: its changes survive a kill of the process. */
sfp_status sfp__store_commit(sfp__store *s, sfp_error *err);
/* Ends the transaction if the last one ended more than a second ago. */
sfp_status sfp__store_commit_if_due(sfp__store *s, sfp_error *err);
/* Writes all changes to the disk. *generation: that of the checkpoint that must be written next. */
sfp_status sfp__store_prepare_checkpoint(sfp__store *s, int64_t *generation, sfp_error *err);
/* Called when this checkpoint has been written. only: the previous checkpoint does not exist any more. */
sfp_status sfp__store_finish_checkpoint(sfp__store *s, bool only, sfp_error *err);
/* Undoes the changes that the checkpoint of this generation does not contain; 0: there is no checkpoint. */
sfp_status sfp__store_resume(sfp__store *s, int64_t generation, sfp_error *err);

/* ------------------------------------------------------------ requests of other processes */

typedef struct sfp__request {
    int64_t number;
    char *name;  /* of a sample; NULL: the class `file` gets the name `label`; "": the sample was erased */
    char *file;  /* path of its image; NULL: that in the source; "": it was deleted there, and may come back */
    char *label; /* NULL: forget the sample */
} sfp__request;

void sfp__request_done(sfp__request *r);
/* The first request above number `after` that has no answer; *found false: there is none. Costs little if the file has not changed. */
sfp_status sfp__store_next_request(sfp__store *s, int64_t after, sfp__request *out, bool *found, sfp_error *err);
sfp_status sfp__store_answer(sfp__store *s, int64_t number, sfp_status status, const char *text, sfp_error *err);
/* Leaves a request and returns its number. file, label: see sfp__request. */
sfp_status sfp__store_request(sfp__store *s, const char *name, const char *file, const char *label, int64_t *number,
                              sfp_error *err);
/* Reads the answer to a request; *done false: there is none yet. If the request was refused, returns its status and message. */
sfp_status sfp__store_read_answer(sfp__store *s, int64_t number, bool *done, sfp_error *err);

/* ------------------------------------------------------------ submitted samples (stream/sources/submitted.c); any thread
 *
 * Their images are kept in DIR/images.db, up to a number of bytes; the oldest are removed first, but none that is still to be learned. */

/* Opens or creates the file of images. */
sfp_status sfp__store_open_images(sfp__store *s, int64_t max_bytes, sfp_error *err);

typedef struct sfp__submission {
    const void *bytes; /* of an image file */
    size_t size;
    const char *name;  /* NULL: "#ID"; one that another sample has becomes NAME#ID */
    const char *label; /* NULL: none */
    const char *key;   /* a second submission with this key is the same sample; NULL: none */
    bool predicted;    /* it was answered with: */
    const char *class_name;
    double probability, unknown;
    int64_t timestamp;
} sfp__submission;

/* Adds a sample and its image. *repeated: the key is known, and *id is that sample. SFP_ELIMIT: there is no space for the image. */
sfp_status sfp__store_submit(sfp__store *s, const sfp__submission *in, uint64_t *id, bool *repeated, sfp_error *err);
/* Stores the image of a sample that was not submitted, unless it is stored already or there is no space. */
sfp_status sfp__store_keep_image(sfp__store *s, uint64_t id, const void *bytes, size_t size, sfp_error *err);
sfp_status sfp__store_has_image(sfp__store *s, uint64_t id, bool *out, sfp_error *err);
/* Records a label for a submitted sample. Fails if its image is not stored any more, because the label could not be learned without it. */
sfp_status sfp__store_relabel(sfp__store *s, uint64_t id, const char *label, sfp_error *err);
/* Waits until all changes of this thread are on the disk. Threads that wait at the same time share one transaction. */
sfp_status sfp__store_sync(sfp__store *s, sfp_error *err);
/* The image of a sample; free *bytes with sfp__free. */
sfp_status sfp__store_image(sfp__store *s, uint64_t id, uint8_t **bytes, size_t *size, sfp_error *err);

typedef struct sfp__sample_query {
    uint64_t from;                  /* the first id */
    int standing;                   /* -1: any */
    const char *label, *class_name; /* NULL: any; class_name: of the prediction */
    bool unlabelled;                /* only samples without a label */
    int limit;
} sfp__sample_query;

/* A sample as passed to fn of sfp__store_list; valid during the call. */
typedef struct sfp__listed {
    const sfp__stored *row;
    const char *reason, *class_name; /* NULL: none */
    int64_t arrived;                 /* ms since 1970 */
    double probability, unknown;     /* NAN: none */
    bool has_image;
} sfp__listed;

/* Calls fn for samples in order of their ids, except forgotten ones. fn must not use the store; other threads can, between pages of samples. */
sfp_status sfp__store_list(sfp__store *s, const sfp__sample_query *q,
                           sfp_status (*fn)(void *ctx, const sfp__listed *l, sfp_error *err), void *ctx, sfp_error *err);
/* Classes with the number of their learned samples, in order of their names. */
sfp_status sfp__store_each_class(sfp__store *s, sfp_status (*fn)(void *ctx, const char *name, int64_t samples, sfp_error *err),
                                 void *ctx, sfp_error *err);
/* Add a class that sfp__store_each_class lists even without samples, and remove it again. *removed: there was such a class. */
sfp_status sfp__store_add_class(sfp__store *s, const char *name, sfp_error *err);
sfp_status sfp__store_remove_class(sfp__store *s, const char *name, bool *removed, sfp_error *err);

#endif
