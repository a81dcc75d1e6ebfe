/* The sums of a closed-form head (heads/sums.h) as a state or a checkpoint contains them. They are read without a backbone, added and
 * taken out, and written as a state.
 *
 * Sums add up only if they are over the same features: of the same backbone, input size, precision, taps and preprocessing. A file
 * contains these facts as metadata, the identity of its sums, which is compared before anything else of the file is used. */
#ifndef SFP_LEARNER_SAVED_SUMS_H
#define SFP_LEARNER_SAVED_SUMS_H

#include "learner/state/state.h"

/* A state contains sums up to this size. Those of ViT-Ti (half of the blocks and the mean tap) have 17 MB, those of ViT-S 60 MB; a
 * state is written after every task and sent to other machines, so the 230 MB of ViT-B are only in the checkpoint. */
enum { SFP__STATE_SUMS_MAX = 64 << 20 };

typedef struct sfp__saved_sums {
    char *path;                  /* of the file, for messages */
    sfp__file_metadata metadata; /* the identity, and what else a state needs: seed, batch, timestamps */
    sfp__head *head;
    sfp__saved_names names;
} sfp__saved_sums;

/* Puts the identity of the sums of a learner with a closed-form head. */
void sfp__saved_sums_identify(sfp__file_metadata *m, const sfp__learner *l);

/* Reads the sums. expected: the identity that they must have, that of `like` ("the learner" or a file); NULL: any. A state without
 * sums is SFP_EUNSUPPORTED. The message names the file. `threads` must outlive the sums; NULL: none. */
sfp_status sfp__saved_sums_read(const sfp__saved_file *from, const sfp__file_metadata *expected, const char *like,
                                sfp__thread_pool *threads, sfp__saved_sums *out, sfp_error *err);
void sfp__saved_sums_done(sfp__saved_sums *s);

/* The classes with which those of a file are matched: names (count) and the head that has their samples. */
typedef struct sfp__known_classes {
    int count;
    char *const *names; /* NULL: the class has no name */
    const sfp__head *head;
} sfp__known_classes;

/* The matching of the classes of a file with known classes. */
typedef struct sfp__class_match {
    int32_t *label; /* (count) by the label in the file; -1: it has neither a name nor samples there */
    int count;
    int32_t *row_label; /* by row of the file's head */
    int end;            /* labels are below this */
} sfp__class_match;

/* Matches classes by name. A class without a name, here or in the file, is the one of the same label. A class that is not here gets its
 * own label if that is unused here, else the lowest unused one. Fails with SFP_EINVAL if two classes of the file would become one. */
sfp_status sfp__saved_sums_match(const sfp__saved_sums *from, const sfp__known_classes *here, sfp__class_match *out,
                                 sfp_error *err);
void sfp__class_match_done(sfp__class_match *m);
/* Fails with SFP_ENOTFOUND if the head does not have all samples of the file: the message names the class and both numbers. */
sfp_status sfp__saved_sums_check_subtract(const sfp__saved_sums *from, const sfp__class_match *m, const sfp__head *head,
                                          sfp_error *err);

/* Adds or takes out the sums of a file with the same identity. On failure nothing has changed. */
sfp_status sfp__saved_sums_add(sfp__saved_sums *to, sfp__saved_sums *from, sfp_error *err);
sfp_status sfp__saved_sums_subtract(sfp__saved_sums *to, const sfp__saved_sums *from, sfp_error *err);

/* Names the classes of sums without samples: label c is the class name[c] (count). */
sfp_status sfp__saved_sums_name(sfp__saved_sums *s, int count, const char *const *name, sfp_error *err);
/* Drops all single samples, and the classes with fewer than `min_count` samples (at least 2: the sum over one sample is the sample).
 * on_left_out is called for each of these; name NULL: it has none. */
typedef void (*sfp__left_out_fn)(void *ctx, int32_t label, const char *name, int64_t samples);
sfp_status sfp__saved_sums_drop_samples(sfp__saved_sums *s, int64_t min_count, sfp__left_out_fn on_left_out, void *ctx,
                                        sfp_error *err);

/* Returns the number of classes with samples, and of all samples. */
int sfp__saved_sums_classes(const sfp__saved_sums *s);
int64_t sfp__saved_sums_samples(const sfp__saved_sums *s);

/* Writes a state with these sums, of any size. */
sfp_status sfp__saved_sums_write(sfp__saved_sums *s, const char *path, sfp_error *err);

#endif
