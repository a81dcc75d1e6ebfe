/* The inbox of a live source: order, batches, full queues, unlabelled images; the counts add up. */
#include "base/monotonic.h"
#include "run/inbox.h"

#include <pthread.h>
#include <signal.h>

#include "source_files.h"
#include "test.h"

enum { S = 4, BATCH = 5 };

/* A source that follows `script`, one character per call: '0' to '2' an image with this label, 'u' an unlabelled image, 'l'
 * only a label (of image p0), '!' a broken image, '?' a skipped image, 'e' an error. */
typedef struct scripted {
    sfp_source base;
    sfp__source_live live;
    const char *script;
    int next;
    atomic_int allowed; /* number of characters that may be delivered */
    char name[16];
} scripted;

static char *names[] = {"0", "1", "2"};

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *why)
{
    scripted *s = (scripted *)base;
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
    record->label = c >= '0' && c <= '2' ? c - '0' : c == 'l' ? 2 : -1;
    if (c == 'l') {
        (void)snprintf(s->name, sizeof s->name, "p0");
        return SFP_OK;
    }
    *out = (sfp__raw_image){.kind = SFP_RAW_IMAGE_RGB, .width = S, .height = S, .size = c == '!' ? 1 : 3 * S * S};
    out->bytes = sfp__calloc(1, 3 * S * S);
    assert_non_null(out->bytes);
    out->bytes[0] = (uint8_t)(s->next - 1);
    return SFP_OK;
}

static const char *origin(const sfp_source *base, sfp__origin *out)
{
    const scripted *s = (const scripted *)base;
    *out = (sfp__origin){.labelled_key = (uint64_t)s->next, .file_key = (uint64_t)s->next};
    return s->name;
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
    return s;
}

KEEP_BY(keep_inbox, sfp__inbox, sfp__inbox_free)
KEEP_BY(keep_ledger, sfp__ledger, sfp__ledger_free)

static sfp__inbox *make_unkept(scripted *s, int queue, sfp__queue_policy policy, int pool, sfp__ledger *ledger)
{
    const sfp__inbox_options o = {.size = S,
                                  .batch = BATCH,
                                  .queue = queue,
                                  .policy = policy,
                                  .pool = pool,
                                  .unlabelled = 4,
                                  .first_id = 100,
                                  .ledger = ledger};
    sfp__inbox *b = NULL;
    MUST(sfp__inbox_create(&s->base, &o, &b, &err));
    return b;
}

static sfp__inbox *make(scripted *s, int queue, sfp__queue_policy policy, int pool)
{
    return keep_inbox(make_unkept(s, queue, policy, pool, NULL));
}

static sfp__inbox_output take(sfp__inbox *b)
{
    sfp__inbox_output d;
    sfp__inbox_take(b, NULL, INFINITY, &d);
    return d;
}

/* Writes the positions of the images of a list to `out` (NULL: only counts them) and frees the list. */
static int drain(sfp__arrival_list *l, int *out)
{
    int n = 0;
    for (sfp__arrival *a; (a = sfp__arrival_list_take(l)); sfp__arrival_free(a))
        if (out)
            out[n++] = (int)(a->origin.labelled_key - 1);
        else
            n++;
    return n;
}

static void settle(sfp__inbox *b, uint64_t id)
{
    for (double begin = sfp__monotonic_seconds(); sfp__inbox_get_stats(b).next_id < id && sfp__monotonic_seconds() < begin + 20;)
        (void)usleep(500);
    assert_int_equal(sfp__inbox_get_stats(b).next_id, id);
}

TEST(batches_are_delivered_in_order_and_the_last_is_short)
{
    scripted *s = make_source("0120120120120", 100);
    sfp__inbox *b = make(s, 2, SFP_QUEUE_BLOCK, 0);
    int seen = 0;
    for (bool end = false; !end;) {
        int number[BATCH];
        sfp__inbox_output d = take(b);
        if (d.batch.count) {
            const sfp__arrival *a = d.batch.first;
            assert_int_equal(a->origin.id, 100 + seen);
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

static bool read_ledger(sfp__ledger *l, const char *waiting)
{
    const char *text = kept_print("{\"next_id\":8,\"predicted\":8,\"waiting\":%s,\"marks\":[],\"until\":0}", waiting);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    bool read = sfp__ledger_read(l, j);
    json_decref(j);
    return read;
}

static void check_json(const sfp__ledger *l, const char *expected)
{
    json_t *j = sfp__ledger_json(l);
    char *text = json_dumps(j, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(j);
}

/* Returns a ledger as read from a checkpoint: id, file key, labelled key and change time per waiting image. */
static sfp__ledger *make_ledger(int capacity, const char *waiting)
{
    sfp__ledger *l = NULL;
    MUST(sfp__ledger_create(capacity, 4, &l, NULL));
    assert_true(read_ledger(l, waiting));
    return keep_ledger(l);
}

TEST(images_that_waited_before_a_resume_keep_their_id)
{
    static const uint64_t want[] = {100, 7, 101, 3, 102};
    sfp__ledger *ledger = make_ledger(10, "[7,2,0,0,3,4,0,0,5,9,0,0]");
    scripted *s = make_source("00110", 100);
    int i = 0;
    sfp__inbox *b = keep_inbox(make_unkept(s, 1, 0, 0, ledger));
    sfp__inbox_output d = take(b);
    for (const sfp__arrival *a = d.batch.first; a; a = a->next)
        assert_int_equal(a->origin.id, want[i++]);
    assert_int_equal(i, BATCH);
    assert_int_equal(drain(&d.batch, NULL), BATCH);
}

static sfp__arrival *image(const char *name, uint64_t file_key, uint64_t id)
{
    sfp__arrival *a = sfp__calloc(1, sizeof *a);
    assert_non_null(a);
    *a = (sfp__arrival){.name = sfp__strdup(name),
                        .origin = {.file_key = file_key, .id = id, .labelled_key = 100 + id},
                        .rgb = sfp__calloc(1, 3)};
    return a;
}

TEST(waiting_images_are_read_back_or_refused)
{
    static const char *const wrong[] = {"{}", "[1,2,3]", "[1,2,3,\"4\"]", "[8,2,3,4]", "[-1,2,3,4]", "null"};
    sfp__ledger *l = NULL;
    MUST(sfp__ledger_create(3, 4, &l, &err));
    (void)keep_ledger(l);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(read_ledger(l, wrong[i]));
    assert_int_equal(sfp__ledger_waiting(l), 0);
    assert_true(read_ledger(l, "[4,-1,5,-6,3,2,9,0]"));
    check_json(l, "{\"next_id\":8,\"predicted\":8,\"waiting\":[3,2,9,0,4,-1,5,-6],\"marks\":[],\"until\":0}");
}

TEST(waiting_ends_once_and_the_oldest_expires)
{
    uint64_t id = 0;
    sfp__ledger *l = make_ledger(3, "[4,40,5,-6,3,30,9,0]");
    assert_true(sfp__ledger_id(l, 40, &id));
    assert_int_equal(id, 4);
    assert_false(sfp__ledger_id(l, 41, &id));
    assert_false(sfp__ledger_id(l, 0, &id));
    sfp__arrival *again = image("again", 40, 4), *fresh = image("fresh", 50, 8), *more = image("more", 60, 9);
    assert_int_equal(sfp__ledger_meet(l, fresh), SFP_ARRIVAL_NEW);
    assert_int_equal(sfp__ledger_meet(l, again), SFP_ARRIVAL_ABSENT);
    assert_int_equal(sfp__ledger_meet(l, again), SFP_ARRIVAL_ENDED); /* the second time: the image is in the queue already */
    assert_int_equal(sfp__ledger_wait(l, again), 0);
    assert_int_equal(sfp__ledger_wait(l, fresh), 0);
    assert_int_equal(sfp__ledger_waiting(l), 3);
    assert_int_equal(sfp__ledger_wait(l, more), 1); /* entry 3 expires, because its image did not arrive again */
    assert_int_equal(sfp__ledger_waiting(l), 3);
    assert_false(sfp__ledger_id(l, 50, &id)); /* only images restored from the checkpoint keep an earlier id */
    assert_null(sfp__ledger_label(l, "nobody"));
    sfp__arrival *labelled = sfp__ledger_label(l, "again");
    assert_ptr_equal(labelled, again);
    assert_null(sfp__ledger_label(l, "again"));
    assert_int_equal(sfp__ledger_waiting(l), 3); /* until it is trained on */
    assert_true(sfp__ledger_end_waiting(l, labelled));
    sfp__ledger_finish(l, labelled);
    sfp__arrival *moved = image("class/fresh", 50, 10);
    assert_true(sfp__ledger_end_waiting(l, moved));
    assert_int_equal(moved->origin.id, 8);
    assert_false(sfp__ledger_end_waiting(l, moved));
    sfp__ledger_finish(l, moved);
    check_json(l, "{\"next_id\":9,\"predicted\":8,\"waiting\":[9,60,109,0],"
                  "\"marks\":[9,0,104,0,108,0,110,0],\"until\":0}");
    l = make_ledger(0, "[]"); /* capacity 0: no image may wait */
    assert_int_equal(sfp__ledger_wait(l, image("at once", 1, 8)), 1);
    assert_int_equal(sfp__ledger_waiting(l), 0);
}

/* 30 images, 6 batches, arrive while the learner is busy. Checks which of them remain. */
TEST(a_full_queue_follows_its_policy)
{
    static const struct {
        int queue;
        sfp__queue_policy policy;
        int pool;
        int first[6], count, together;
    } cases[] = {{0, SFP_QUEUE_DROP_OLDEST, 0, {0}, 0, 1},
                 {2, SFP_QUEUE_DROP_OLDEST, 0, {4, 5}, 2, 1},
                 {2, SFP_QUEUE_DROP_NEWEST, 0, {0, 1}, 2, 1},
                 {0, SFP_QUEUE_DROP_NEWEST, 0, {0}, 0, 1},
                 {9, SFP_QUEUE_DROP_OLDEST, 0, {0, 1, 2, 3, 4, 5}, 6, 1},
                 {0, SFP_QUEUE_DROP_OLDEST, 4, {2, 3, 4, 5}, 4, 4}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sfp__inbox *b = make(make_source("000000000000000000000000000000", 30), cases[k].queue, cases[k].policy, cases[k].pool);
        settle(b, 130);
        int got = 0, discarded = 0, number[6 * BATCH];
        for (bool end = false; !end;) {
            sfp__inbox_output d = take(b);
            if (d.batch.count) {
                assert_int_equal(d.batch.count, cases[k].together * BATCH);
                assert_int_equal(d.lag.served, cases[k].together);
                assert_true(d.lag.last >= 0 && d.lag.max < 30 && d.lag.sum <= d.lag.max * cases[k].together);
            }
            for (const sfp__arrival *a = d.discarded.first; a; a = a->next) {
                assert_int_equal(a->fate, SFP_DISCARD_DROPPED);
                assert_null(a->rgb);
            }
            discarded += drain(&d.discarded, NULL);
            got += drain(&d.batch, number + got);
            end = d.end;
        }
        assert_int_equal(got, cases[k].count * BATCH);
        assert_int_equal(got + discarded, 30);
        for (int i = 0; i < got; i++)
            assert_int_equal(number[i], cases[k].first[i / BATCH] * BATCH + i % BATCH);
    }
}

TEST(a_blocked_source_loses_nothing)
{
    sfp__inbox *b = make(make_source("000000000000000000000000000000", 30), 1, SFP_QUEUE_BLOCK, 0);
    settle(b, 110); /* one batch waits, and a second one is complete and held back */
    (void)usleep(20000);
    assert_int_equal(sfp__inbox_get_stats(b).next_id, 110);
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
    sfp__inbox *b = make(s, 0, SFP_QUEUE_DROP_OLDEST, 0); /* no place in the queue */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allow_later, s), 0);
    sfp__inbox_output d = take(b);
    assert_int_equal(drain(&d.batch, NULL), BATCH);
    assert_int_equal(d.discarded.count, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

TEST(a_pause_ends_the_wait_for_a_full_batch)
{
    scripted *s = make_source("00000000", 3);
    static const sfp__source_ops ops = {.next = next, .origin = origin, .name = name_of, .pause = 0.05};
    s->base.ops = &ops;
    sfp__inbox *b = make(s, 2, SFP_QUEUE_BLOCK, 0);
    sfp__inbox_output d = take(b);
    assert_int_equal(drain(&d.batch, NULL), 3);
    assert_false(d.end);
    atomic_store(&s->allowed, 8);
    d = take(b);
    assert_int_equal(drain(&d.batch, NULL), 5);
}

TEST(unlabelled_images_are_separate_and_join_with_their_label)
{
    sfp__inbox *b = make(make_source("u0uul0", 100), 2, SFP_QUEUE_BLOCK, 0);
    sfp__ledger *l = make_ledger(10, "[]");
    int unlabelled = 0, labels = 0, got = 0;
    for (bool end = false; !end;) {
        sfp__inbox_output d = take(b);
        end = d.end && d.unlabelled.count == 0;
        for (sfp__arrival *a; (a = sfp__arrival_list_take(&d.unlabelled));) {
            if (a->rgb) {
                unlabelled++;
                assert_int_equal(a->label, -1);
                assert_int_equal(sfp__ledger_wait(l, a), 0);
                continue;
            }
            labels++;
            assert_string_equal(a->name, "p0");
            sfp__arrival *image = sfp__ledger_label(l, a->name);
            assert_non_null(image);
            image->label = a->label;
            sfp__inbox_join(b, image);
            sfp__arrival_free(a);
        }
        got += drain(&d.batch, NULL);
    }
    assert_int_equal(unlabelled, 3);
    assert_int_equal(labels, 1);
    assert_int_equal(got, 3);
    assert_int_equal(sfp__ledger_waiting(l), 3); /* the labelled image stays in the ledger until it is trained on */
}

TEST(surplus_unlabelled_images_expire_unless_the_source_is_blocked)
{
    sfp__inbox *b = make(make_source("uuuuuuuuuu", 100), 0, SFP_QUEUE_DROP_OLDEST, 0);
    settle(b, 110);
    int discarded[16], unlabelled[16];
    (void)usleep(2000);
    sfp__inbox_output d = take(b);
    assert_int_equal(d.discarded.first->fate, SFP_DISCARD_EXPIRED);
    assert_int_equal(drain(&d.discarded, discarded), 6);
    assert_int_equal(discarded[0], 0); /* the oldest expire */
    assert_int_equal(drain(&d.unlabelled, unlabelled), 4);
    assert_int_equal(unlabelled[0], 6);
}

TEST(broken_images_are_skipped_and_three_consecutive_errors_end_the_stream)
{
    sfp__inbox *b = make(make_source("0!0e0???0eee0000", 100), 2, SFP_QUEUE_BLOCK, 0);
    int got = 0, skipped = 0;
    for (bool end = false; !end;) {
        sfp__inbox_output d = take(b);
        for (const sfp__arrival *a = d.discarded.first; a; a = a->next)
            assert_int_equal(a->fate, SFP_DISCARD_SKIPPED);
        got += drain(&d.batch, NULL);
        skipped += drain(&d.discarded, NULL);
        end = d.end;
    }
    assert_int_equal(got, 4);
    assert_int_equal(skipped, 4); /* skipped images are counted and are not stream errors */
    sfp__inbox_stats stats = sfp__inbox_get_stats(b);
    assert_int_equal(stats.next_id, 108);
    assert_int_equal(stats.status, SFP_EFORMAT);
    assert_non_null(strstr(stats.first_error, "p1: image of 4 x 4 pixels"));
    assert_string_equal(stats.last_error, "scripted error");
}

TEST(an_error_before_the_end_is_the_final_status)
{
    scripted *s = make_source("00e", 100);
    sfp__inbox *b = make(s, 2, SFP_QUEUE_BLOCK, 0);
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
    sfp__inbox *b = make(s, 2, SFP_QUEUE_BLOCK, 0);
    sfp__inbox_output d;
    (void)signal(SIGALRM, set_late);
    (void)alarm(20);
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
    sfp__inbox *b = make(make_source(script, MANY), 2, SFP_QUEUE_BLOCK, 0);
    sfp__inbox_output d = take(b);
    assert_false(d.end);
    assert_int_equal(d.batch.count, 0);
    assert_true(drain(&d.discarded, NULL) >= 1024);
}

TEST(it_can_be_freed_while_the_source_waits_or_is_blocked)
{
    for (int held = 0; held < 2; held++) {
        scripted *s = make_source("000000000000000000000000000000", held ? 30 : 2);
        sfp__inbox *b = make_unkept(s, 0, SFP_QUEUE_BLOCK, 0, NULL);
        settle(b, held ? 105 : 102);
        atomic_int stop = 1;
        sfp__inbox_output d;
        sfp__inbox_take(b, &stop, INFINITY, &d); /* returns without images */
        assert_int_equal(d.batch.count, 0);
        sfp__inbox_free(b);
        assert_null(s->live.stop);
    }
}
