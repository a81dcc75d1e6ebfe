/* Samples that a program submits to an open run (streamfp.h, part 8). They go to the store of samples; the source of the run delivers
 * them from there (stream/submitted.h). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/monotonic.h"
#include "run/run_internal.h"
#include "stream/source_internal.h"
#include "stream/submitted.h"

#include <limits.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

DEFINE_OWNED_PTR(sfp_result, sfp_result_free)

static const double answer_seconds = 120;
enum { POLL_NS = 5000000, LIST_DEFAULT = 100, KEY_MAX = 512, NAME_MAX_BYTES = 1024 };

_Static_assert((int)SFP_WAITING == (int)SFP__WAITING && (int)SFP_LEARNED == (int)SFP__LEARNED &&
                   (int)SFP_DROPPED == (int)SFP__DROPPED && (int)SFP_UNREADABLE == (int)SFP__UNREADABLE &&
                   (int)SFP_FORGOTTEN == (int)SFP__FORGOTTEN,
               "sfp_standing is public");

static sfp__store *store_of(sfp_run *run)
{
    return sfp__api_run(run)->arrivals->store;
}

static sfp_source *source_of(sfp_run *run)
{
    return sfp__api_run(run)->plan.source;
}

static void wait_a_moment(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

/* Returns the present name of a class that may have been renamed. Fails if the run would not learn samples of this class. */
static sfp_status find_class(sfp_run *run, const char *label, char **out, sfp_error *err)
{
    const sfp__classes *c = &sfp__api_run(run)->classes;
    TRY(sfp__api_check_class(label, err));
    TRY(sfp__store_class(store_of(run), label, out, err));
    if (!*out)
        TRY(sfp__check_memory((*out = sfp__strdup(label)), err));
    if (c->plan->opt->strict_classes && !sfp__classes_allowed(c, *out))
        return sfp__fail_key(err, "label", SFP_EINVAL,
                             "label is '%s', expected a known class, because the run has classes strict", *out);
    return SFP_OK;
}

static sfp_status check_text(const char *key, const char *text, size_t max, sfp_error *err)
{
    if (!text || (*text && strlen(text) <= max && sfp__utf8_valid(text)))
        return SFP_OK;
    return sfp__fail_key(err, key, SFP_EINVAL, "%s is empty, longer than %zu bytes or not UTF-8", key, max);
}

sfp_status sfp_run_submit(sfp_run *run, const sfp_submission *given, uint64_t *id, int *repeated, sfp_error *err)
{
    IN_LIBRARY;
    OWNED char *label = NULL;
    sfp_submission s;
    bool again = false, forgotten;
    uint64_t made = 0;
    TRY(sfp__api_takes_samples(run, err));
    SFP__REQUIRE(given && id, "submission and id");
    TRY(sfp__api_options(given, &s, sizeof s, "sfp_submission", err));
    if (!s.bytes || s.byte_count == 0 || s.byte_count > INT_MAX)
        return sfp__fail(err, SFP_EINVAL, "the image has %zu bytes, expected 1 to %d", s.bytes ? s.byte_count : 0, INT_MAX);
    TRY(check_text("name", s.name, NAME_MAX_BYTES, err));
    TRY(check_text("key", s.key, KEY_MAX, err));
    if (s.label)
        TRY(find_class(run, s.label, &label, err));
    sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, s.bytes, s.byte_count);
    const sfp__submission in = {.bytes = s.bytes,
                                .size = s.byte_count,
                                .name = s.name,
                                .label = label,
                                .key = s.key,
                                .predicted = s.answered,
                                .class_name = s.class_name,
                                .probability = s.answered ? s.probability : (double)NAN,
                                .unknown = s.answered ? s.unknown : (double)NAN,
                                .timestamp = (int64_t)s.timestamp};
    TRY(sfp__store_was_forgotten(store_of(run), &digest, &forgotten, err));
    if (forgotten)
        return sfp__fail(err, SFP_EUNSUPPORTED, "a sample with the same bytes was forgotten and cannot be submitted again");
    TRY(sfp__store_submit(store_of(run), &in, &made, &again, err));
    TRY(sfp__store_sync(store_of(run), err));
    if (label || !s.answered)
        TRY(sfp__submitted_offer(source_of(run), made, err));
    *id = made;
    if (repeated)
        *repeated = again;
    return SFP_OK;
}

sfp_status sfp_run_label(sfp_run *run, uint64_t id, const char *label, sfp_error *err)
{
    IN_LIBRARY;
    OWNED char *class = NULL;
    TRY(sfp__api_takes_samples(run, err));
    TRY(find_class(run, label, &class, err));
    TRY(sfp__store_relabel(store_of(run), id, class, err));
    TRY(sfp__store_sync(store_of(run), err));
    return sfp__submitted_offer(source_of(run), id, err);
}

sfp_status sfp_run_forget_sample(sfp_run *run, uint64_t id, int may_return, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    int64_t number;
    TRY(sfp__api_takes_samples(run, err));
    sfp__store *store = store_of(run);
    if (id < sfp__store_next_id(store))
        TRY(sfp__store_get(store, id, &row, err));
    if (!row.name)
        return sfp__fail(err, SFP_ENOTFOUND, "there is no sample %llu, or it was forgotten", (unsigned long long)id);
    TRY(sfp__store_request(store, row.name, may_return ? "" : NULL, NULL, &number, err));
    TRY(sfp__store_sync(store, err));
    double until = sfp__monotonic_seconds() + answer_seconds;
    for (bool done = false; !done;) {
        TRY(sfp__store_read_answer(store, number, &done, err));
        if (!done && sfp__monotonic_seconds() > until)
            return sfp__fail(err, SFP_ELIMIT, "the run has not answered for %.0f s; it forgets the sample when it continues",
                             answer_seconds);
        if (!done) {
            TRY(sfp__api_takes_samples(run, err));
            wait_a_moment();
        }
    }
    return SFP_OK;
}

/* --------------------------------------------------------------------------------------------------------------- reading */

typedef struct sample_list {
    sfp_status (*fn)(void *ctx, const sfp_sample_info *sample, sfp_error *err);
    void *ctx;
    const char *root; /* the watched directory; NULL: none */
} sample_list;

static sfp_status put_sample(void *ctx, const sfp__listed *l, sfp_error *err)
{
    const sample_list *list = ctx;
    OWNED char *path = NULL;
    if (list->root && l->row->name)
        TRY(sfp__path_make(list->root, l->row->name, &path, err));
    const sfp_sample_info info = {.size = sizeof info,
                                  .id = l->row->id,
                                  .name = l->row->name,
                                  .label = l->row->label,
                                  .learned = l->row->learned,
                                  .predicted = l->class_name,
                                  .reason = l->reason,
                                  .probability = l->probability,
                                  .unknown = l->unknown,
                                  .arrived = l->arrived,
                                  .standing = (sfp_standing)l->row->standing,
                                  .has_image = l->has_image,
                                  .path = path};
    return list->fn(list->ctx, &info, err);
}

static sfp_status list_samples(sfp__store *s, const sfp_sample_filter *filter, int default_limit, sample_list *list,
                               sfp_error *err)
{
    sfp_sample_filter f;
    SFP__REQUIRE(list->fn, "fn");
    TRY(sfp__api_options(filter, &f, sizeof f, "sfp_sample_filter", err));
    const sfp__sample_query q = {.from = f.from,
                                 .standing = f.by_standing ? (int)f.standing : -1,
                                 .label = f.label,
                                 .class_name = f.predicted,
                                 .unlabelled = f.unlabelled != 0,
                                 .limit = f.limit > 0 ? f.limit : default_limit};
    return sfp__store_list(s, &q, put_sample, list, err);
}

sfp_status sfp_run_samples(sfp_run *run, const sfp_sample_filter *filter,
                           sfp_status (*fn)(void *ctx, const sfp_sample_info *sample, sfp_error *err), void *ctx, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_takes_samples(run, err));
    return list_samples(store_of(run), filter, LIST_DEFAULT, &(sample_list){.fn = fn, .ctx = ctx}, err);
}

/* Returns the watched directory of a run, newly allocated; NULL: its samples come from elsewhere. */
static sfp_status find_watched(const char *dir, char **out, sfp_error *err)
{
    static const char kind[] = "watch:", option[] = ",sync";
    OWNED_PTR(sfp_result_free) sfp_result *r = NULL;
    TRY(sfp_result_read(dir, &r, err));
    const char *data = sfp_result_string(r, "config.data");
    if (!data || strncmp(data, kind, strlen(kind)) != 0)
        return SFP_OK;
    data += strlen(kind);
    size_t n = strlen(data), end = strlen(option);
    if (n > end && strcmp(data + n - end, option) == 0 && access(data, F_OK) != 0)
        n -= end;
    return sfp__text_new(out, err, "%.*s", (int)n, data);
}

sfp_status sfp_run_list(const char *dir, const sfp_sample_filter *filter,
                        sfp_status (*fn)(void *ctx, const sfp_sample_info *sample, sfp_error *err), void *ctx, sfp_error *err)
{
    IN_LIBRARY;
    OWNED char *root = NULL;
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    SFP__REQUIRE(dir, "dir");
    TRY(sfp__api_open_store(dir, &s, err));
    TRY(find_watched(dir, &root, err));
    return list_samples(s, filter, INT_MAX, &(sample_list){.fn = fn, .ctx = ctx, .root = root}, err);
}

sfp_status sfp_run_sample_image(sfp_run *run, uint64_t id, void **bytes, size_t *count, sfp_error *err)
{
    IN_LIBRARY;
    uint8_t *got = NULL;
    TRY(sfp__api_takes_samples(run, err));
    SFP__REQUIRE(bytes && count, "bytes and count");
    TRY(sfp__store_image(store_of(run), id, &got, count, err));
    *bytes = got;
    return SFP_OK;
}

sfp_status sfp_run_classes(sfp_run *run, sfp_status (*fn)(void *ctx, const char *name, int64_t samples, sfp_error *err),
                           void *ctx, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_takes_samples(run, err));
    SFP__REQUIRE(fn, "fn");
    return sfp__store_each_class(store_of(run), fn, ctx, err);
}

sfp_status sfp_run_counts(sfp_run *run, uint64_t counts[5], sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_takes_samples(run, err));
    SFP__REQUIRE(counts, "counts");
    sfp__store_counts c = sfp__store_get_counts(store_of(run));
    memcpy(counts, c.standing, sizeof c.standing);
    return SFP_OK;
}

/* -------------------------------------------------------------------------------------------------------------- control */

sfp_status sfp_run_add_class(sfp_run *run, const char *name, sfp_error *err)
{
    IN_LIBRARY;
    OWNED char *class = NULL;
    TRY(sfp__api_takes_samples(run, err));
    TRY(find_class(run, name, &class, err));
    TRY(sfp__store_add_class(store_of(run), class, err));
    return sfp__store_sync(store_of(run), err);
}

sfp_status sfp_run_worker(sfp_run *run, sfp_worker_status *out, sfp_error *err)
{
    IN_LIBRARY;
    sfp__worker_numbers n;
    SFP__REQUIRE(run && out, "run and out");
    sfp__arrivals *a = sfp__api_run(run)->arrivals;
    if (!a || !a->kind->worker)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data is not a message log, expected redis: or kafka:");
    a->kind->worker(a, &n);
    sfp_worker_status s = {.size = out->size,
                           .samples = n.samples,
                           .pending = n.pending,
                           .commits = n.commits,
                           .fenced = n.fenced,
                           .rejected = n.rejected,
                           .answered = n.answered,
                           .lag = n.lag,
                           .sum_age = NAN};
    struct timespec now;
    if (isfinite(n.sum_changed) && clock_gettime(CLOCK_REALTIME, &now) == 0)
        s.sum_age = fmax(0, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - n.sum_changed);
    memcpy(out, &s, out->size < sizeof s ? out->size : sizeof s);
    return SFP_OK;
}

sfp_status sfp_run_pause(sfp_run *run, int paused, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_takes_samples(run, err));
    sfp__submitted_pause(source_of(run), paused != 0);
    return SFP_OK;
}

sfp_status sfp_run_checkpoint(sfp_run *run, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_takes_samples(run, err));
    sfp__arrivals *a = sfp__api_run(run)->arrivals;
    unsigned number = atomic_fetch_add(&a->checkpoints_asked, 1) + 1;
    double until = sfp__monotonic_seconds() + answer_seconds;
    while ((int)(atomic_load(&a->checkpoints_done) - number) < 0) {
        TRY(sfp__api_takes_samples(run, err));
        if (sfp__monotonic_seconds() > until)
            return sfp__fail(err, SFP_ELIMIT, "the run has not written a checkpoint for %.0f s", answer_seconds);
        wait_a_moment();
    }
    return SFP_OK;
}

sfp_status sfp_run_predictor(sfp_run *run, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(run && out, "run and out");
    if (sfp__api_run(run)->phase != SFP__RUN_OPENED)
        return sfp__fail(err, SFP_EINVAL, "the run has begun, expected a predictor that is created before the first step");
    return sfp__api_predictor(sfp__api_run(run)->learner, options, out, err);
}
