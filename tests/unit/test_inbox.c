/* The inbox of a live source: order, batches, full queues, unlabelled images; the counts add up. */
#include "base/monotonic.h"
#include "run/inbox.h"

#include <pthread.h>
#include <signal.h>

#include "source_files.h"
#include "test.h"

enum { S = 4, BATCH = 5 };

/* A source that follows `script`, one character per call: '0' to '2' an image with this label, 'u' an unlabelled image, 'l'
 * only a label (of image p0), '!' a broken image, '?' a skipped image, 'e' an error, '+' image p0 again, with the label 2, '*' an
 * urgent image with the label 0. */
typedef struct scripted {
    sfp_source base;
    sfp__source_live live;
    const char *script;
    int next;
    atomic_int allowed; /* number of characters that may be delivered */
    atomic_int asked;   /* number of calls: all images but the last one are in the inbox */
    bool urgent;
    char name[16];
} scripted;

static char *names[] = {"0", "1", "2"};

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *why)
{
    scripted *s = (scripted *)base;
    (void)atomic_fetch_add(&s->asked, 1);
    for (;;) {
        *end = (base->live->stop && atomic_load(base->live->stop)) || !s->script[s->next];
        if (*end)
            return SFP_OK;
        if (s->next < atomic_load(&s->allowed))
            break;
        (void)usleep(500);
    }
    char c = s->script[s->next++];
    (void)snprintf(s->name, sizeof s->name, "p%d", s->next - 1);
    *record = sfp__record_none();
    base->live->lost = c == '?';
    if (base->live->lost)
        return sfp__fail(why, SFP_EFORMAT, "%s: scripted loss", s->name);
    if (c == 'e')
        return sfp__fail(why, SFP_EFORMAT, "scripted error");
    s->urgent = c == '*';
    record->label = c >= '0' && c <= '2' ? c - '0' : c == 'l' || c == '+' ? 2 : c == '*' ? 0 : -1;
    if (c == 'l' || c == '+')
        (void)snprintf(s->name, sizeof s->name, "p0");
    if (c == 'l')
        return SFP_OK;
    *out = (sfp__raw_image){.kind = SFP__RAW_IMAGE_RGB, .width = S, .height = S, .size = c == '!' ? 1 : 3 * S * S};
    out->bytes = sfp__calloc(1, 3 * S * S);
    assert_non_null(out->bytes);
    out->bytes[0] = c == '+' ? 0 : (uint8_t)(s->next - 1);
    return SFP_OK;
}

static void origin(const sfp_source *base, sfp__origin *out)
{
    const scripted *s = (const scripted *)base;
    *out = (sfp__origin){.name = s->name, .urgent = s->urgent};
}

static const char *name_of(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)i;
    (void)snprintf(buf, size, "%s", ((const scripted *)base)->name);
    return buf;
}

static scripted *make_source(const char *script, int allowed)
{
    static const sfp__source_ops ops = {.next = next, .origin = origin, .name = name_of};
    scripted *s = kept_malloc(sizeof *s);
    *s = (scripted){.base = {.ops = &ops, .count = -1, .class_names = names, .classes = 3, .live = &s->live}, .script = script};
    atomic_init(&s->allowed, allowed);
    atomic_init(&s->asked, 0);
    return s;
}

KEEP_BY(keep_inbox, sfp__inbox, sfp__inbox_free)
KEEP_BY(keep_store, sfp__store, sfp__store_close)

static sfp__store *store; /* of the last inbox */

static sfp__inbox *make_unkept(scripted *s, int queue, sfp__queue_policy policy, int pool, double max_wait)
{
    MUST(sfp__store_open(NULL, &store, &err));
    (void)keep_store(store);
    const sfp__inbox_options o = {.size = S,
                                  .batch = BATCH,
                                  .queue = queue,
                                  .policy = policy,
                                  .pool = pool,
                                  .unlabelled = 4,
                                  .max_wait = max_wait,
                                  .store = store};
    sfp__inbox *b = NULL;
    MUST(sfp__inbox_create(&s->base, &o, &b, &err));
    return b;
}

static sfp__inbox *make(scripted *s, int queue, sfp__queue_policy policy, int pool)
{
    return keep_inbox(make_unkept(s, queue, policy, pool, (double)INFINITY));
}

static sfp__inbox_output take(sfp__inbox *b)
{
    sfp__inbox_output d;
    sfp__inbox_take(b, NULL, INFINITY, &d);
    return d;
}

/* Writes the positions of the images of a list to `out` (NULL: only counts them) and frees the list. Without images that are sent
 * again these are their ids in the store. */
static int drain(sfp__arrival_list *l, int *out)
{
    int n = 0;
    for (sfp__arrival *a; (a = sfp__arrival_list_take(l)); sfp__arrival_free(a))
        if (out)
            out[n++] = (int)a->id;
        else
            n++;
    return n;
}

/* Waits until the source was asked so many times. */
static void settle(scripted *s, int asked)
{
    for (double begin = sfp__monotonic_seconds(); atomic_load(&s->asked) < asked && sfp__monotonic_seconds() < begin + 400;)
        (void)usleep(500);
    assert_int_equal(atomic_load(&s->asked), asked);
}

TEST(batches_are_delivered_in_order_and_the_last_is_short)
{
    scripted *s = make_source("0120120120120", 100);
    sfp__inbox *b = make(s, 2, SFP__QUEUE_BLOCK, 0);
    int seen = 0;
    for (bool end = false; !end;) {
        int number[BATCH];
        sfp__inbox_output d = take(b);
        if (d.batch.count) {
            const sfp__arrival *a = d.batch.first;
            assert_int_equal(a->id, seen);
            assert_string_equal(a->class_name, names[seen % 3]);
            assert_int_equal(a->rgb[0], seen);
        }
        assert_int_equal(d.discarded.count + d.unlabelled.count, 0);
        int n = drain(&d.batch, number);
        assert_int_equal(n, seen < 10 ? BATCH : seen < 13 ? 3 : 0);
        for (int i = 0; i < n; i++)
            assert_int_equal(number[i], seen++);
        end = d.end;
    }
    assert_int_equal(seen, 13);
}

/* 30 images, 6 batches, arrive while the learner is busy. Checks which of them remain: also the first one: its class is new. */
TEST(a_full_queue_follows_its_policy)
{
    static const struct {
        int queue;
        sfp__queue_policy policy;
        int pool;
        int from, to; /* these remain, too */
        int together;
    } cases[] = {{0, SFP__QUEUE_DROP_OLDEST, 0, 29, 30, 1}, {2, SFP__QUEUE_DROP_OLDEST, 0, 21, 30, 1},
                 {2, SFP__QUEUE_DROP_NEWEST, 0, 1, 10, 1},  {0, SFP__QUEUE_DROP_NEWEST, 0, 29, 30, 1},
                 {9, SFP__QUEUE_DROP_OLDEST, 0, 1, 30, 1},  {0, SFP__QUEUE_DROP_OLDEST, 4, 11, 30, 4}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        scripted *s = make_source("000000000000000000000000000000", 30);
        sfp__inbox *b = make(s, cases[k].queue, cases[k].policy, cases[k].pool);
        settle(s, 31);
        int got = 0, discarded = 0, number[6 * BATCH];
        for (bool end = false; !end;) {
            sfp__inbox_output d = take(b);
            if (d.batch.count >= BATCH) {
                assert_int_equal(d.batch.count, cases[k].together * BATCH);
                assert_int_equal(d.lag.served, cases[k].together);
                assert_true(d.lag.last >= 0 && d.lag.sum <= d.lag.max * cases[k].together);
            }
            for (const sfp__arrival *a = d.discarded.first; a; a = a->next) {
                assert_int_equal(a->fate, SFP__DISCARD_DROPPED);
                assert_null(a->rgb);
            }
            discarded += drain(&d.discarded, NULL);
            got += drain(&d.batch, number + got);
            end = d.end;
        }
        assert_int_equal(got, 1 + cases[k].to - cases[k].from);
        assert_int_equal(got + discarded, 30);
        assert_int_equal(number[0], 0);
        for (int i = 1; i < got; i++)
            assert_int_equal(number[i], cases[k].from + i - 1);
    }
}

TEST(the_first_image_of_each_class_and_urgent_images_are_never_dropped)
{
    static const sfp__queue_policy policies[] = {SFP__QUEUE_DROP_OLDEST, SFP__QUEUE_DROP_NEWEST};
    for (int k = 0; k < 2; k++) {
        scripted *s = make_source("000000*000010000000200*000000", 100);
        sfp__inbox *b = make(s, 0, policies[k], 0);
        settle(s, 30);
        int want[] = {0, 6, 11, 19, 22}, found = 0, got = 0, discarded = 0;
        for (bool end = false; !end;) {
            int number[30];
            sfp__inbox_output d = take(b);
            for (const sfp__arrival *a = d.discarded.first; a; a = a->next)
                assert_false(a->urgent);
            discarded += drain(&d.discarded, NULL);
            int n = drain(&d.batch, number);
            for (int i = 0; i < n; i++)
                found += found < 5 && number[i] == want[found];
            got += n;
            end = d.end;
        }
        assert_int_equal(found, 5);
        assert_int_equal(got + discarded, 29);
        assert_true(discarded > 0);
    }
}

TEST(a_blocked_source_loses_nothing)
{
    scripted *s = make_source("000000000000000000000000000000", 30);
    sfp__inbox *b = make(s, 1, SFP__QUEUE_BLOCK, 0);
    settle(s, 10); /* one batch waits, and a second one is complete and held back */
    (void)usleep(20000);
    settle(s, 10);
    int got = 0;
    for (bool end = false; !end;) {
        sfp__inbox_output d = take(b);
        got += drain(&d.batch, NULL);
        assert_int_equal(d.discarded.count, 0);
        end = d.end;
    }
    assert_int_equal(got, 30);
}

static void *allow_later(void *source)
{
    (void)usleep(30000);
    atomic_store(&((scripted *)source)->allowed, BATCH);
    return NULL;
}

TEST(a_batch_completed_while_the_learner_waits_is_delivered)
{
    scripted *s = make_source("00000", 3);
    sfp__inbox *b = make(s, 0, SFP__QUEUE_DROP_OLDEST, 0); /* no place in the queue */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allow_later, s), 0);
    sfp__inbox_output d = take(b);
    assert_int_equal(drain(&d.batch, NULL), BATCH);
    assert_int_equal(d.discarded.count, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

TEST(an_incomplete_batch_waits_for_max_wait_after_its_first_image)
{
    scripted *s = make_source("00000000", 3);
    sfp__inbox *b = keep_inbox(make_unkept(s, 2, SFP__QUEUE_BLOCK, 0, 0.3));
    settle(s, 4);
    sfp__inbox_output d = take(b);
    assert_true(d.lag.last >= 0.3); /* the lag counts from its arrival */
    assert_true(d.batch_first);
    assert_int_equal(drain(&d.batch, NULL), 3);
    assert_false(d.end);
    atomic_store(&s->allowed, 8);
    settle(s, 9);
    d = take(b);
    assert_int_equal(drain(&d.batch, NULL), 5);
}

/* Images follow each other faster than max_wait; the batch does not wait for a gap between them. */
TEST(a_steady_stream_does_not_delay_its_first_image)
{
    scripted *s = make_source("0000", 1);
    sfp__inbox *b = keep_inbox(make_unkept(s, 2, SFP__QUEUE_BLOCK, 0, 0.4));
    int got = 0;
    for (int i = 1; !got; i++) {
        sfp__inbox_output d;
        sfp__inbox_take(b, NULL, sfp__monotonic_seconds() + 0.15, &d);
        got = drain(&d.batch, NULL);
        atomic_store(&s->allowed, i < 3 ? 1 + i : 3);
    }
    assert_in_range(got, 1, 3);
    assert_int_equal(sfp__inbox_get_stats(b).status, SFP_OK);
}

TEST(a_question_closes_the_batch_before_it)
{
    scripted *s = make_source("00u00", 3);
    sfp__inbox *b = keep_inbox(make_unkept(s, 2, SFP__QUEUE_BLOCK, 0, 1000));
    settle(s, 4);
    sfp__inbox_output d = take(b);
    assert_true(d.batch_first); /* what is known now is learned before the answer */
    assert_int_equal(drain(&d.batch, NULL), 2);
    assert_int_equal(drain(&d.unlabelled, NULL), 1);
}

TEST(unlabelled_images_are_separate_and_join_with_their_label)
{
    sfp__inbox *b = make(make_source("u0uul0", 100), 2, SFP__QUEUE_BLOCK, 0);
    int unlabelled = 0, labels = 0, got = 0;
    sfp__arrival_list waiting = {0};
    for (bool end = false; !end;) {
        sfp__inbox_output d = take(b);
        end = d.end && d.unlabelled.count == 0;
        for (sfp__arrival *a; (a = sfp__arrival_list_take(&d.unlabelled));) {
            if (a->rgb) {
                unlabelled++;
                assert_int_equal(a->label, -1);
                sfp__arrival_list_put(&waiting, a);
                continue;
            }
            labels++;
            assert_string_equal(a->name, "p0");
            sfp__arrival *image = sfp__arrival_list_take(&waiting);
            assert_string_equal(image->name, "p0");
            image->label = a->label;
            sfp__inbox_join(b, image);
            sfp__arrival_free(a);
        }
        got += drain(&d.batch, NULL);
    }
    assert_int_equal(unlabelled, 3);
    assert_int_equal(labels, 1);
    assert_int_equal(got, 3);
    assert_int_equal(waiting.count, 2);
    sfp__arrival_list_done(&waiting);
    assert_int_equal(sfp__store_next_id(store), 5); /* a label alone is not a sample */
}

TEST(a_full_queue_of_questions_blocks_the_source_and_loses_none)
{
    scripted *s = make_source("uuuuuuuuuu", 100);
    sfp__inbox *b = make(s, 0, SFP__QUEUE_DROP_OLDEST, 0);
    settle(s, 5);
    (void)usleep(20000);
    settle(s, 5);
    int seen = 0;
    for (bool end = false; !end;) {
        int number[10];
        sfp__inbox_output d = take(b);
        assert_true(d.unlabelled.count <= 4);
        assert_int_equal(d.discarded.count, 0);
        int n = drain(&d.unlabelled, number);
        for (int i = 0; i < n; i++)
            assert_int_equal(number[i], seen++);
        end = d.end && n == 0;
    }
    assert_int_equal(seen, 10);
}

TEST(images_are_in_the_store_before_they_are_taken)
{
    scripted *s = make_source("u0?!+", 100); /* the last is p0 again, with its label */
    sfp__inbox *b = make(s, 2, SFP__QUEUE_BLOCK, 0);
    sfp__inbox_output d;
    int got = 0, discarded = 0, number[BATCH];
    for (d = take(b);; d = take(b)) {
        drain(&d.unlabelled, NULL);
        discarded += drain(&d.discarded, NULL);
        got += drain(&d.batch, number + got);
        if (d.end)
            break;
    }
    assert_int_equal(discarded, 2);
    assert_int_equal(got, 2);
    assert_int_equal(number[0], 1);
    assert_int_equal(number[1], 0); /* the sample that waited for it keeps its id */
    assert_int_equal(sfp__store_next_id(store), 4);
    static const char *const labels[] = {"2", "0", NULL, NULL};
    for (uint64_t id = 0; id < 4; id++) {
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        MUST(sfp__store_get(store, id, &row, &err));
        assert_string_equal(row.name, kept_print("p%d", (int)id));
        assert_int_equal(row.standing, SFP__WAITING); /* until the learner decides */
        assert_string_equal(row.label ? row.label : "-", labels[id] ? labels[id] : "-");
    }
}

TEST(broken_images_are_skipped_and_three_consecutive_errors_end_the_stream)
{
    sfp__inbox *b = make(make_source("0!0e0???0eee0000", 100), 2, SFP__QUEUE_BLOCK, 0);
    int got = 0, skipped = 0;
    for (bool end = false; !end;) {
        sfp__inbox_output d = take(b);
        for (const sfp__arrival *a = d.discarded.first; a; a = a->next) {
            assert_int_equal(a->fate, SFP__DISCARD_SKIPPED);
            HOLDS(a->why, a->id == 1 ? "p1: image of 4 x 4 pixels" : "scripted loss");
        }
        got += drain(&d.batch, NULL);
        skipped += drain(&d.discarded, NULL);
        end = d.end;
    }
    assert_int_equal(got, 4);
    assert_int_equal(skipped, 4); /* skipped images are counted and are not stream errors */
    sfp__inbox_stats stats = sfp__inbox_get_stats(b);
    assert_int_equal(sfp__store_next_id(store), 8);
    assert_int_equal(stats.status, SFP_EFORMAT);
    assert_string_equal(stats.last_error, "scripted error");
}

TEST(an_error_before_the_end_is_the_final_status)
{
    scripted *s = make_source("00e", 100);
    sfp__inbox *b = make(s, 2, SFP__QUEUE_BLOCK, 0);
    sfp__inbox_output d = {0};
    int got = 0;
    while (!d.end) {
        d = take(b);
        got += drain(&d.batch, NULL);
    }
    assert_int_equal(got, 2);
    assert_int_equal(sfp__inbox_get_stats(b).status, SFP_EFORMAT);
    assert_int_equal(atomic_load(&s->live.warning_count), 0); /* the stream did not continue */
}

/* Set by SIGALRM if a call takes too long. */
static atomic_int late;

static void set_late(int signal)
{
    late = signal;
}

TEST(a_transient_error_causes_a_warning_at_once)
{
    scripted *s = make_source("0e0000", 3); /* the batch stays incomplete */
    sfp__inbox *b = make(s, 2, SFP__QUEUE_BLOCK, 0);
    sfp__inbox_output d;
    (void)signal(SIGALRM, set_late);
    (void)alarm(400);
    sfp__inbox_take(b, &late, INFINITY, &d);
    (void)alarm(0);
    assert_false(late);
    assert_int_equal(d.batch.count, 0);
    assert_false(d.end);
    assert_int_equal(atomic_load(&s->live.warning_count), 1);
    assert_string_equal(s->live.warnings[0], "scripted error; the stream continues");
    atomic_store(&s->allowed, 100);
    d = take(b); /* the warning does not end this wait again */
    assert_int_equal(drain(&d.batch, NULL), BATCH);
}

TEST(many_discarded_images_are_delivered_while_the_source_continues)
{
    enum { MANY = 1500 };
    static char script[MANY + 2];
    memset(script, '!', MANY);
    script[MANY] = '0'; /* never allowed: the source waits */
    sfp__inbox *b = make(make_source(script, MANY), 2, SFP__QUEUE_BLOCK, 0);
    sfp__inbox_output d = take(b);
    assert_false(d.end);
    assert_int_equal(d.batch.count, 0);
    assert_true(drain(&d.discarded, NULL) >= 1024);
}

TEST(it_can_be_freed_while_the_source_waits_or_is_blocked)
{
    for (int held = 0; held < 2; held++) {
        scripted *s = make_source("000000000000000000000000000000", held ? 30 : 2);
        sfp__inbox *b = make_unkept(s, 0, SFP__QUEUE_BLOCK, 0, (double)INFINITY);
        settle(s, held ? 5 : 3);
        atomic_int stop = 1;
        sfp__inbox_output d;
        sfp__inbox_take(b, &stop, INFINITY, &d); /* returns without images */
        assert_int_equal(d.batch.count, 0);
        sfp__inbox_free(b);
        assert_null(s->live.stop);
    }
}
