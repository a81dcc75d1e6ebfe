/* The store of samples: ids, standings, what a resumed run undoes, forgotten samples, and other processes. Every test ends with
 * counts that equal those of the rows (check_counts). */
#include "base/monotonic.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "failing_alloc.h"
#include "sample_rows.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

/* --------------------------------------------------------------------- rows and ids */

TEST(an_id_is_never_given_twice)
{
    sfp__store *s = open_store();
    assert_int_equal(add(s, "a", NULL), 0);
    assert_int_equal(add(s, "a", NULL), 1); /* the same file again */
    MUST(sfp__store_erase(s, 1, &(const uint64_t){1}, NULL, &err));
    assert_int_equal(sfp__store_next_id(s), 2);
    reopen(&s);
    assert_int_equal(add(s, "b", "cat"), 2);
    learn(s, 2, "cat");
    MUST(sfp__store_resume(s, 0, &err)); /* the learner has lost it, the store has not */
    assert_int_equal(add(s, "c", "cat"), 3);
    assert_int_equal(sfp__store_first_new_id(s), 2);
    reopen(&s);
    assert_int_equal(sfp__store_first_new_id(s), 4);
    assert_int_equal(add(s, "d", NULL), 4);
    close_checked(s);
}

TEST(a_sample_is_found_by_id_name_and_bytes)
{
    sfp__store *s = open_store();
    const sfp__file_stamp stamp = {.size = 10, .modified = -20, .changed = INT64_MAX}, later = {.size = 11, .modified = 1};
    sfp__digest digest = digest_of("bytes"), other = digest_of("other");
    uint64_t first, second, third;
    MUST(sfp__store_add(s, "in/\xc3\xa4 'x'\n.jpg", &stamp, &digest, NULL, &first, &err));
    MUST(sfp__store_add(s, "b", &stamp, &digest, "cat", &second, &err));
    MUST(sfp__store_add(s, "b", &later, NULL, NULL, &third, &err)); /* no bytes: unreadable */
    for (int times = 0; times < 2; times++) {
        OWNED_BY(sfp__stored_done) sfp__stored a = {0}, b = {0}, c = {0}, d = {0}, none = {0};
        bool found = false;
        MUST(sfp__store_find(s, "in/\xc3\xa4 'x'\n.jpg", &a, &found, &err));
        assert_true(found && a.id == first && a.standing == SFP__WAITING && !a.label && !a.learned && !a.predicted);
        assert_memory_equal(&a.stamp, &stamp, sizeof stamp);
        assert_true(sfp__digest_equal(&a.digest, &digest));
        MUST(sfp__store_find(s, "b", &b, &found, &err)); /* the newest */
        assert_true(found && b.id == third);
        MUST(sfp__store_find_bytes(s, &digest, UINT64_MAX, &c, &found, &err));
        assert_true(found && c.id == second);
        MUST(sfp__store_find_bytes(s, &digest, second, &d, &found, &err));
        assert_true(found && d.id == first);
        MUST(sfp__store_find_bytes(s, &digest, first, &none, &found, &err));
        assert_false(found);
        MUST(sfp__store_find_bytes(s, &other, UINT64_MAX, &none, &found, &err));
        assert_false(found);
        MUST(sfp__store_find(s, "nobody", &none, &found, &err));
        assert_false(found);
        REFUSED(sfp__store_get(s, 3, &none, &err), SFP_EFORMAT, "samples.db: sample 3 is missing");
        reopen(&s);
    }
    MUST(sfp__store_moved(s, second, "moved", &later, NULL, &err));
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool found = false;
    MUST(sfp__store_find(s, "moved", &row, &found, &err));
    assert_true(found && row.id == second && row.stamp.size == 11);
    sfp__stored_done(&row);
    MUST(sfp__store_add_name(s, second, "link", NULL, &err)); /* a second name; the first one stays */
    MUST(sfp__store_add_name(s, second, "b", NULL, &err));    /* the name of another sample is not found by it */
    reopen(&s);
    MUST(sfp__store_find(s, "link", &row, &found, &err));
    assert_true(found && row.id == second && strcmp(row.name, "moved") == 0);
    sfp__stored_done(&row);
    MUST(sfp__store_find(s, "b", &row, &found, &err));
    assert_true(found && row.id == third);
    close_checked(s);
}

/* ------------------------------------------------------------------------- standings */

/* The arrows of the diagram in sample_store.h. */
TEST(each_transition_of_the_diagram)
{
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", "cat"); /* WAITING -> LEARNED -> WAITING -> LEARNED */
    check_row(s, a, "waiting a cat -");
    learn(s, a, "cat");
    check_row(s, a, "learned a cat cat");
    label(s, a, "cat"); /* the same label is not a correction */
    check_row(s, a, "learned a cat cat");
    check_counts(s);
    label(s, a, "dog");
    check_row(s, a, "waiting a dog cat");
    learn(s, a, "dog");
    check_row(s, a, "learned a dog dog");

    uint64_t b = add(s, "b", NULL); /* a question and its late label */
    predict(s, b);
    check_row(s, b, "waiting b - -");
    label(s, b, "cat");
    learn(s, b, "cat");
    check_row(s, b, "learned b cat cat");

    uint64_t c = add(s, "c", "cat"); /* WAITING -> DROPPED -> WAITING */
    refuse(s, c, SFP__DROPPED);
    check_row(s, c, "dropped c cat -");
    check_counts(s);
    label(s, c, "cat"); /* again the same label */
    check_row(s, c, "waiting c cat -");

    uint64_t d = add(s, "d", NULL); /* an arrival that cannot be read */
    refuse(s, d, SFP__UNREADABLE);
    check_row(s, d, "unreadable d - -");

    uint64_t e = add(s, "e", "cat"); /* LEARNED -> FORGOTTEN */
    learn(s, e, "cat");
    learn(s, e, NULL);
    check_row(s, e, "dropped e cat -");
    MUST(sfp__store_erase(s, 1, &(const uint64_t){e}, NULL, &err));
    check_row(s, e, "forgotten - - -");

    uint64_t f = add(s, "f", "cat"); /* a correction that cannot be made: the old label stays */
    learn(s, f, "cat");
    label(s, f, "dog");
    refuse(s, f, SFP__DROPPED);
    check_row(s, f, "learned f cat cat");
    label(s, f, "owl");
    refuse(s, f, SFP__UNREADABLE);
    check_row(s, f, "learned f cat cat");

    uint64_t g = add(s, "g", "cat"); /* a label that arrives while the sample is learned with another one */
    label(s, g, "dog");
    learn(s, g, "cat");
    check_row(s, g, "waiting g dog cat");
    label(s, g, "cat"); /* the correction is taken back before it is made */
    check_row(s, g, "learned g cat cat");
    check_counts(s);
    label(s, g, "dog");

    uint64_t h = add(s, "h", NULL); /* a question without an answer: expired */
    predict(s, h);
    refuse(s, h, SFP__DROPPED);
    check_counts(s);
    assert_int_equal(sfp__store_get_counts(s).expired, 1);
    label(s, h, "cat"); /* the label arrives in spite of that */
    check_row(s, h, "waiting h cat -");
    assert_int_equal(sfp__store_get_counts(s).expired, 0);
    check_counts(s);
    reopen(&s);
    check_row(s, g, "waiting g dog cat");
    check_row(s, f, "learned f cat cat");
    close_checked(s);
}

TEST(samples_that_cannot_be_delivered_again_are_dropped)
{
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", "cat"), b = add(s, "b", NULL), c = add(s, "c", "cat"), d = add(s, "d", "cat");
    predict(s, b);
    learn(s, c, "cat");
    learn(s, d, "cat");
    label(s, d, "dog");
    MUST(sfp__store_drop_waiting(s, "gone", &err));
    check_row(s, a, "dropped a cat -");
    check_row(s, b, "dropped b - -");
    check_row(s, c, "learned c cat cat");
    check_row(s, d, "learned d cat cat");
    assert_int_equal(sfp__store_get_counts(s).expired, 1);
    MUST(sfp__store_drop_waiting(s, "gone", &err));
    close_checked(s);
}

/* ---------------------------------------------------------------- generations */

static char *kept_text(const char *text)
{
    return text ? kept_print("%s", text) : NULL;
}

TEST(a_resumed_run_undoes_what_its_checkpoint_does_not_contain)
{
    for (int64_t at = 3; at >= 0; at--) { /* the generation of the checkpoint; only its last two exist, or none */
        if (at == 1)
            continue;
        sfp__store *s = open_store();
        uint64_t a = add(s, "a", "cat"), b = add(s, "b", "cat"), c = add(s, "c", "cat"), d = add(s, "d", "cat");
        uint64_t e = add(s, "e", NULL), f = add(s, "f", "cat");
        learn(s, a, "cat");
        assert_int_equal(save(s), 1);
        learn(s, b, "cat");
        assert_int_equal(save(s), 2);
        label(s, b, "dog");
        learn(s, b, "dog");
        label(s, b, "owl"); /* two changes in one generation */
        learn(s, b, "owl");
        learn(s, c, "cat");
        assert_int_equal(save(s), 3);
        learn(s, d, "cat");
        label(s, a, "dog");
        learn(s, a, "dog");
        label(s, e, "cat"); /* a label is not undone */
        refuse(s, f, SFP__DROPPED);
        reopen(&s); /* as after a kill */
        MUST(sfp__store_resume(s, at, &err));
        check_counts(s);
        check_row(s, a, at == 0 ? "waiting a dog -" : "waiting a dog cat");
        check_row(s, b, at == 3 ? "learned b owl owl" : at == 2 ? "waiting b owl cat" : "waiting b owl -");
        check_row(s, c, at == 3 ? "learned c cat cat" : "waiting c cat -");
        check_row(s, d, "waiting d cat -");
        check_row(s, e, "waiting e cat -");
        check_row(s, f, "dropped f cat -");
        /* the run continues, and is killed again */
        learn(s, d, "cat");
        reopen(&s);
        MUST(sfp__store_resume(s, at, &err));
        check_row(s, d, "waiting d cat -");
        learn(s, d, "cat");
        assert_true(save(s) > at);
        learn(s, e, "cat");
        reopen(&s);
        MUST(sfp__store_resume(s, at, &err)); /* from checkpoint.old: the last one is damaged */
        check_row(s, d, "waiting d cat -");
        check_row(s, a, at == 0 ? "waiting a dog -" : "waiting a dog cat");
        close_checked(s);
        MUST(sfp__store_remove(directory, &err));
    }
}

TEST(a_store_that_does_not_fit_its_checkpoint_is_refused)
{
    sfp__store *s = open_store();
    add(s, "a", "cat");
    REFUSED(sfp__store_resume(s, 1, &err), SFP_EFORMAT, "samples.db: the store is older than the checkpoint beside it (0");
    for (int i = 1; i <= 4; i++) {
        uint64_t id = add(s, kept_print("%d", i), "cat");
        learn(s, id, "cat");
        assert_int_equal(save(s), i);
    }
    reopen(&s);
    REFUSED(sfp__store_resume(s, 5, &err), SFP_EFORMAT, "older than the checkpoint beside it (4, expected 5)");
    /* what a much older checkpoint contains is not known any more */
    REFUSED(sfp__store_resume(s, 2, &err), SFP_EFORMAT, "restore both together");
    MUST(sfp__store_resume(s, 3, &err));
    close_checked(s);
}

TEST(after_a_checkpoint_without_a_predecessor_nothing_can_be_undone)
{
    int64_t generation = 0;
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", "cat");
    learn(s, a, "cat");
    MUST(sfp__store_prepare_checkpoint(s, &generation, &err));
    MUST(sfp__store_finish_checkpoint(s, true, &err));
    MUST(sfp__store_commit(s, &err));
    sqlite3 *db = open_database();
    assert_int_equal(count_rows(db, "undo"), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    reopen(&s);
    MUST(sfp__store_resume(s, 1, &err));
    check_row(s, a, "learned a cat cat");
    close_checked(s);
}

TEST(a_checkpoint_that_was_not_written_has_no_generation_of_its_own)
{
    int64_t generation = 0;
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", "cat"), b = add(s, "b", "cat");
    assert_int_equal(save(s), 1);
    learn(s, a, "cat");
    MUST(sfp__store_prepare_checkpoint(s, &generation, &err)); /* the disk is full */
    assert_int_equal(generation, 2);
    learn(s, b, "cat");
    MUST(sfp__store_prepare_checkpoint(s, &generation, &err)); /* killed before the checkpoint is written */
    assert_int_equal(generation, 2);
    reopen(&s);
    MUST(sfp__store_resume(s, 1, &err));
    check_row(s, a, "waiting a cat -");
    check_row(s, b, "waiting b cat -");
    close_checked(s);
}

/* A sample in the model of the test below. */
typedef struct model {
    char *label, *learned[3]; /* learned: at present, in the last checkpoint, in the one before */
    bool forgotten;
} model;

static uint64_t random_state;

static int draw(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

/* One change at random; `m` says what the store must say. */
static void change_at_random(sfp__store *s, model *m, int *count)
{
    static const char *const labels[] = {"cat", "dog", "owl", NULL};
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    int what = draw(9);
    if (*count == 0 || what == 0) {
        const char *text = labels[draw(4)];
        assert_int_equal(add(s, kept_print("%d", *count), text), *count);
        m[(*count)++] = (model){.label = kept_text(text)};
        return;
    }
    uint64_t id = (uint64_t)draw(*count);
    model *e = &m[id];
    MUST(sfp__store_get(s, id, &row, &err));
    if (row.standing == SFP__FORGOTTEN)
        return;
    if (what <= 2) {
        e->label = kept_text(labels[draw(3)]);
        label(s, id, e->label);
    } else if (what <= 4 && row.label) {
        const char *text = what == 3 ? row.label : labels[draw(3)]; /* the label may have changed meanwhile */
        learn(s, id, text);
        e->learned[0] = kept_text(text);
    } else if (what == 5 && row.standing == SFP__WAITING) {
        refuse(s, id, draw(2) ? SFP__DROPPED : SFP__UNREADABLE);
        if (row.learned)
            e->label = kept_text(row.learned);
    } else if (what == 6) {
        predict(s, id);
    } else if (what == 7 && draw(4) == 0) {
        MUST(sfp__store_erase(s, 1, &(const uint64_t){id}, NULL, &err));
        *e = (model){.forgotten = true};
    } else if (what == 8 && draw(20) == 0) {
        MUST(sfp__store_drop_waiting(s, "gone", &err));
        for (int i = 0; i < *count; i++)
            if (m[i].learned[0])
                m[i].label = m[i].learned[0];
    }
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

TEST(random_sequences_and_resumes_agree_with_a_model)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        KEPT_IN_BLOCK;
        model m[200];
        int count = 0, saved = 0;
        int64_t generation[2] = {0}; /* of the last checkpoint, and of the one before */
        random_state = seed;
        sfp__store *s = open_store();
        for (int step = 0; step < 150; step++) {
            change_at_random(s, m, &count);
            int what = draw(20);
            if (what == 0) {
                generation[1] = generation[0];
                generation[0] = save(s);
                saved++;
                for (int i = 0; i < count; i++) {
                    m[i].learned[2] = m[i].learned[1];
                    m[i].learned[1] = m[i].learned[0];
                }
            } else if (what == 1) {
                int back = saved >= 2 ? draw(2) : 0;
                reopen(&s);
                assert_int_equal(sfp__store_next_id(s), count);
                MUST(sfp__store_resume(s, generation[back], &err));
                for (int i = 0; i < count; i++) {
                    m[i].learned[0] = m[i].learned[1 + back];
                    if (back)
                        m[i].learned[1] = m[i].learned[2];
                }
                if (back) {
                    generation[0] = generation[1];
                    saved = 1;
                }
            }
        }
        check_counts(s);
        for (int i = 0; i < count; i++) {
            OWNED_BY(sfp__stored_done) sfp__stored row = {0};
            MUST(sfp__store_get(s, (uint64_t)i, &row, &err));
            bool same = m[i].forgotten ? row.standing == SFP__FORGOTTEN
                                       : is_same(row.label, m[i].label) && is_same(row.learned, m[i].learned[0]);
            if (!same)
                fail_msg("seed %d, sample %d: label %s, learned %s, expected %s, %s", (int)seed, i, row.label, row.learned,
                         m[i].label, m[i].learned[0]);
        }
        sfp__store_close(s);
        MUST(sfp__store_remove(directory, &err));
    }
}

/* ----------------------------------------------------------------- after a kill */

/* A process that is killed at a random time. It writes the number of committed samples to a pipe. */
/* Whoever gives a label asks for its class first; the class may be renamed between the two. */
TEST(a_label_given_after_a_rename_is_the_new_name)
{
    sfp__store *s = open_store();
    uint64_t first = add(s, "1.png", "cat"), second = add(s, "2.png", "dog");
    learn(s, first, "cat");
    MUST(sfp__store_rename_class(s, "cat", "lion", &err));
    label(s, second, "cat");
    check_row(s, second, "waiting 2.png lion -");
    check_row(s, add(s, "3.png", "cat"), "waiting 3.png lion -");
    check_row(s, first, "waiting 1.png lion cat");
    label(s, first, "cat"); /* nothing to do: it is a lion already */
    check_row(s, first, "waiting 1.png lion cat");
    close_checked(s);
}

static void add_until_killed(int to)
{
    sfp__store *s = NULL;
    if (sfp__store_open(directory, &s, NULL) != SFP_OK)
        _exit(1);
    for (uint64_t n = 0;; n++) {
        const sfp__file_stamp stamp = {0};
        char name[32];
        uint64_t id;
        int64_t generation;
        (void)snprintf(name, sizeof name, "%llu", (unsigned long long)n);
        if (sfp__store_add(s, name, &stamp, NULL, "cat", &id, NULL) || sfp__store_learned(s, id, "cat", NULL) ||
            (n % 3 == 0 && sfp__store_commit(s, NULL)) ||
            (n % 50 == 0 &&
             (sfp__store_prepare_checkpoint(s, &generation, NULL) || sfp__store_finish_checkpoint(s, false, NULL))) ||
            (n % 3 == 0 && write(to, &id, sizeof id) != sizeof id))
            _exit(1);
    }
}

TEST(what_is_committed_survives_a_kill)
{
    for (int times = 0; times < 5; times++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            add_until_killed(ends[1]);
        assert_true(child > 0);
        (void)close(ends[1]);
        uint64_t last = 0, read_id;
        assert_int_equal(read(ends[0], &last, sizeof last), sizeof last); /* it has begun */
        (void)usleep(20000 + 7001 * (useconds_t)times);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(ends[0], &read_id, sizeof read_id) == sizeof read_id)
            last = read_id;
        (void)close(ends[0]);
        sfp__store *s = open_store();
        assert_true(sfp__store_next_id(s) > last);
        MUST(sfp__store_resume(s, 0, &err));
        assert_int_equal(sfp__store_get_counts(s).standing[SFP__WAITING], sfp__store_next_id(s));
        close_checked(s);
    }
}

TEST(samples_of_an_earlier_process_are_pending)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool found = true;
    sfp__store *s = open_store();
    uint64_t question = add(s, "question", NULL), answered = add(s, "answered", NULL), labelled = add(s, "labelled", "cat");
    uint64_t learned = add(s, "learned", "cat"), corrected = add(s, "corrected", "cat"), lost = add(s, "lost", NULL);
    predict(s, answered);
    learn(s, learned, "cat");
    learn(s, corrected, "cat");
    label(s, corrected, "dog");
    refuse(s, lost, SFP__UNREADABLE);
    MUST(sfp__store_next_pending(s, -1, &row, &found, &err));
    assert_false(found); /* this process delivers them itself */
    assert_int_equal(save(s), 1);
    reopen(&s);
    MUST(sfp__store_resume(s, 1, &err));
    add(s, "new", "cat");
    const uint64_t want[] = {question, labelled, corrected};
    int64_t after = -1;
    for (int i = 0; i < 3; i++) {
        sfp__stored_done(&row);
        MUST(sfp__store_next_pending(s, after, &row, &found, &err));
        assert_true(found && row.id == want[i]);
        after = (int64_t)row.id;
    }
    MUST(sfp__store_next_pending(s, after, &row, &found, &err));
    assert_false(found);
    close_checked(s);
}

/* -------------------------------------------------------------------- labels.csv */

static void check_line(sfp__store *s, const char *name, const char *expected)
{
    OWNED char *text = NULL;
    MUST(sfp__store_line(s, name, &text, &err));
    assert_string_equal(text ? text : "-", expected ? expected : "-");
}

TEST(lines_of_labels_csv_and_how_far_it_was_read_are_stored)
{
    sfp__labels_position at = {.offset = 1}, none = {0};
    const sfp__labels_position big = {.offset = UINT64_C(1) << 40, .line = 77, .crc = UINT32_MAX};
    bool changed = false;
    sfp__store *s = open_store();
    MUST(sfp__store_labels_position(s, &at, &err));
    assert_memory_equal(&at, &none, sizeof at);
    check_line(s, "a", NULL);
    MUST(sfp__store_set_line(s, "a", "cat", &changed, &err));
    assert_true(changed);
    MUST(sfp__store_set_line(s, "a", "cat", &changed, &err));
    assert_false(changed);
    MUST(sfp__store_set_line(s, "a", "dog", &changed, &err));
    assert_true(changed);
    MUST(sfp__store_set_labels_position(s, &big, false, &err));
    reopen(&s);
    check_line(s, "a", "dog");
    MUST(sfp__store_labels_position(s, &at, &err));
    assert_true(at.offset == big.offset && at.line == 77 && at.crc == UINT32_MAX);
    close_checked(s);
}

/* --------------------------------------------------------------------- predictions */

typedef struct listed {
    int count;
    uint64_t ids[8];
} listed;

static sfp_status list_prediction(void *ctx, const sfp__stored_prediction *p, sfp_error *why)
{
    listed *l = ctx;
    (void)why;
    if (p->id == 0)
        assert_true(!p->class_name && isnan(p->probability) && isnan(p->unknown) && p->at == 1 && p->timestamp == 2);
    else
        assert_true(strcmp(p->class_name, "owl") == 0 && p->probability == 0.5 && p->unknown == 0.25 && p->at == 5);
    assert_string_equal(p->name, kept_print("%d", (int)p->id));
    l->ids[l->count++] = p->id;
    return SFP_OK;
}

TEST(predictions_can_be_written_again)
{
    sfp__store *s = open_store();
    for (int i = 0; i < 5; i++)
        assert_int_equal(add(s, kept_print("%d", i), NULL), i);
    predict(s, 3);
    predict(s, 1);
    MUST(sfp__store_predicted(s, 0, 1, NULL, (double)NAN, (double)NAN, 2, &err));
    assert_int_equal(sfp__store_logged(s), 0);
    MUST(sfp__store_set_logged(s, 2, &err));
    reopen(&s);
    listed all = {0}, some = {0}, none = {0};
    MUST(sfp__store_each_prediction(s, 0, list_prediction, &all, &err));
    assert_true(all.count == 3 && all.ids[0] == 0 && all.ids[1] == 1 && all.ids[2] == 3);
    assert_int_equal(sfp__store_logged(s), 2);
    MUST(sfp__store_each_prediction(s, 2, list_prediction, &some, &err));
    assert_true(some.count == 1 && some.ids[0] == 3);
    MUST(sfp__store_each_prediction(s, UINT64_MAX, list_prediction, &none, &err));
    assert_int_equal(none.count, 0);
    close_checked(s);
}

/* ---------------------------------------------------------------------- forgetting */

static bool holds_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_directory(name), "rb");
    if (!f)
        return false;
    const size_t most = (size_t)1 << 24;
    char *text = kept_malloc(most);
    size_t n = fread(text, 1, most, f);
    (void)fclose(f);
    return memmem(text, n, bytes, size) != NULL;
}

static bool store_holds(const void *bytes, size_t size)
{
    KEPT_IN_BLOCK;
    return holds_bytes(SFP__STORE_NAME, bytes, size) || holds_bytes(SFP__STORE_NAME "-wal", bytes, size);
}

static bool store_holds_text(const char *text)
{
    return store_holds(text, strlen(text));
}

TEST(nothing_of_a_forgotten_sample_is_left_but_its_id)
{
    enum { SAMPLES = 2500 };
    static const char *const traces[] = {"secret-name",    "secret-moved", "secret-label", "secret-class",
                                         "secret-earlier", "secret-line",  "secret-other"};
    sfp__store *s = open_store();
    const sfp__file_stamp stamp = {.size = 123456789, .modified = 1};
    sfp__digest digest = digest_of("secret bytes");
    uint64_t ids[3] = {0};
    bool changed, forgotten = true;
    int64_t number;
    sfp__request r = {0};
    bool found = false;
    for (int i = 0; i < SAMPLES; i++) { /* so that pages are split */
        KEPT_IN_BLOCK;
        add(s, kept_print("%d-%d", i * 7919 % 1000, i), i % 3 ? "cat" : NULL);
        if (i % 900 == 500) { /* three samples with these bytes, at different places of the trees */
            uint64_t *id = &ids[i / 900];
            MUST(sfp__store_add(s, kept_print("secret-name-%d", i), &stamp, &digest, "secret-earlier", id, &err));
            learn(s, *id, "secret-earlier");
            predict(s, *id);
            MUST(sfp__store_predicted(s, *id, 1, "secret-class", 0.5, 0.5, 1, &err));
        }
    }
    save(s);
    for (int i = 0; i < 2; i++) {
        KEPT_IN_BLOCK;
        const char *name = kept_print("secret-moved-%d", i);
        MUST(sfp__store_moved(s, ids[i], name, &stamp, NULL, &err));
        label(s, ids[i], "secret-label");
        MUST(sfp__store_set_line(s, name, "secret-line", &changed, &err));
        learn(s, ids[i], "secret-label");
        name = kept_print("secret-other-%d", i);
        MUST(sfp__store_add_name(s, ids[i], name, NULL, &err));
        MUST(sfp__store_set_line(s, name, "secret-line", &changed, &err));
        MUST(sfp__store_request(s, name, "/elsewhere/secret-name", "secret-label", &number, &err));
        MUST(sfp__store_next_request(s, 0, &r, &found, &err));
        assert_true(found);
        MUST(sfp__store_answer(s, r.number, SFP_OK, NULL, &err));
        sfp__request_done(&r);
    }
    save(s);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        assert_true(store_holds_text(traces[i])); /* the search finds what is there */
    assert_true(store_holds(&digest, sizeof digest));
    MUST(sfp__store_was_forgotten(s, &digest, &forgotten, &err));
    assert_false(forgotten);
    for (int i = 0; i < 3; i++) {
        learn(s, ids[i], NULL);
        save(s);
        MUST(sfp__store_erase(s, 1, &(const uint64_t){ids[i]}, NULL, &err));
        check_row(s, ids[i], "forgotten - - -");
    }
    for (int times = 0; times < 2; times++) {
        for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
            if (store_holds_text(traces[i]))
                fail_msg("'%s' is left, %s closing", traces[i], times ? "after" : "before");
        assert_false(store_holds(&digest, sizeof digest));
        MUST(sfp__store_was_forgotten(s, &digest, &forgotten, &err)); /* it is recognised if it arrives again */
        assert_true(forgotten);
        sfp__digest other = digest_of("other");
        MUST(sfp__store_was_forgotten(s, &other, &forgotten, &err));
        assert_false(forgotten);
        assert_int_equal(sfp__store_get_counts(s).standing[SFP__FORGOTTEN], 3);
        check_counts(s);
        reopen(&s);
    }
    sfp__store_close(s);
}

/* ------------------------------------------------------------------- other processes */

TEST(requests_of_another_process_are_answered)
{
    sfp__store *run = open_store(), *other = open_store();
    sfp__request r = {0};
    int64_t first = 0, second = 0;
    bool found = true, done = true;
    MUST(sfp__store_next_request(run, 0, &r, &found, &err));
    assert_false(found);
    MUST(sfp__store_request(other, "a", "/x/a", "cat", &first, &err));
    MUST(sfp__store_request(other, "b", NULL, NULL, &second, &err));
    MUST(sfp__store_read_answer(other, first, &done, &err));
    assert_false(done);
    MUST(sfp__store_next_request(run, 0, &r, &found, &err));
    assert_true(found && r.number == first);
    assert_string_equal(r.name, "a");
    assert_string_equal(r.file, "/x/a");
    assert_string_equal(r.label, "cat");
    sfp__request_done(&r);
    MUST(sfp__store_answer(run, first, SFP_OK, NULL, &err));
    MUST(sfp__store_commit(run, &err));
    MUST(sfp__store_read_answer(other, first, &done, &err));
    assert_true(done);
    MUST(sfp__store_next_request(run, 0, &r, &found, &err));
    assert_true(found && r.number == second && !r.file && !r.label);
    sfp__request_done(&r);
    MUST(sfp__store_answer(run, second, SFP_ENOTFOUND, "b: not a sample of the run", &err));
    MUST(sfp__store_commit(run, &err));
    REFUSED(sfp__store_read_answer(other, second, &done, &err), SFP_ENOTFOUND, "b: not a sample of the run");
    assert_true(done);
    for (int i = 0; i < 2; i++) {
        MUST(sfp__store_next_request(run, 0, &r, &found, &err));
        assert_false(found);
    }
    MUST(sfp__store_request(other, "c", NULL, NULL, &first, &err)); /* one that waits for the next run */
    assert_true(first > second);
    sfp__store_close(run);
    run = open_store();
    MUST(sfp__store_next_request(run, 0, &r, &found, &err));
    assert_true(found && strcmp(r.name, "c") == 0);
    sfp__request_done(&r);
    sfp__store_close(other);
    close_checked(run);
}

typedef struct second {
    sfp__store *store;
    pthread_t thread;
    sfp_status status;
    sfp_error why;
    int64_t number;
} second;

static void *leave_request(void *ctx)
{
    second *o = ctx;
    o->status = sfp__store_request(o->store, "a", NULL, "dog", &o->number, NULL);
    return NULL;
}

TEST(two_handles_wait_for_each_other_and_see_what_is_committed)
{
    sfp__store *run = open_store();
    second other = {.store = open_store()};
    uint64_t a = add(run, "a", "cat"); /* opens a transaction */
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool found = true;
    MUST(sfp__store_find(other.store, "a", &row, &found, &err));
    assert_false(found);
    assert_int_equal(pthread_create(&other.thread, NULL, leave_request, &other), 0);
    (void)usleep(100000);
    MUST(sfp__store_commit(run, &err));
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    assert_int_equal(other.status, SFP_OK);
    MUST(sfp__store_find(other.store, "a", &row, &found, &err));
    assert_true(found && row.id == a);
    sfp__request r = {0};
    MUST(sfp__store_next_request(run, 0, &r, &found, &err));
    assert_true(found && r.number == other.number);
    sfp__request_done(&r);
    sfp__store_close(other.store);
    close_checked(run);
}

TEST(what_was_done_within_a_second_is_not_committed_again)
{
    sfp__store *run = open_store(), *other = open_store();
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool found = true;
    add(run, "first", NULL);
    MUST(sfp__store_commit(run, &err));
    double begin = sfp__monotonic_seconds();
    add(run, "a", NULL);
    MUST(sfp__store_commit_if_due(run, &err));
    MUST(sfp__store_find(other, "a", &row, &found, &err));
    assert_true(!found || sfp__monotonic_seconds() - begin > 0.9);
    (void)usleep(1100000);
    MUST(sfp__store_commit_if_due(run, &err));
    sfp__stored_done(&row);
    MUST(sfp__store_find(other, "a", &row, &found, &err));
    assert_true(found);
    sfp__store_close(other);
    close_checked(run);
}

static void *open_at_once(void *ctx)
{
    second *o = ctx;
    o->status = sfp__store_open(directory, &o->store, &o->why);
    return NULL;
}

TEST(two_processes_may_create_the_store_at_once)
{
    for (int times = 0; times < 20; times++) {
        second both[2] = {{0}};
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&both[i].thread, NULL, open_at_once, &both[i]), 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_join(both[i].thread, NULL), 0);
        for (int i = 0; i < 2; i++) {
            if (both[i].status)
                fail_msg("%s", both[i].why.message);
            sfp__store_close(both[i].store);
        }
        MUST(sfp__store_remove(directory, &err));
    }
}

/* ----------------------------------------------------------------------- files */

static void check_refused(sfp_status status, const char *why)
{
    sfp__store *s = NULL;
    REFUSED(sfp__store_open(directory, &s, &err), status, why);
    assert_null(s);
    assert_non_null(strstr(err.message, in_directory(SFP__STORE_NAME)));
}

TEST(a_damaged_or_foreign_file_is_refused_by_its_name)
{
    const char *path = in_directory(SFP__STORE_NAME);
    assert_false(sfp__store_is_one(path));
    static const char text[] = "this is a text, which is longer than the hundred bytes that the header of a database of SQLite "
                               "has, and it must not be changed\n";
    put_text(SFP__STORE_NAME, text);
    assert_false(sfp__store_is_one(path));
    check_refused(SFP_EFORMAT, "not a store of samples");
    assert_string_equal(file_text(path), text);
    put_text(SFP__STORE_NAME, "");
    assert_true(sfp__store_is_one(path)); /* killed while it was created */
    close_checked(open_store());
    assert_true(sfp__store_is_one(path));
    run_sql("PRAGMA user_version = 1");
    check_refused(SFP_EFORMAT, "the layout has version 1, expected 2");
    run_sql("PRAGMA user_version = 2");
    sfp__store *s = open_store();
    add(s, "a", "cat");
    sfp__store_close(s);
    run_sql("UPDATE sample SET standing = 9");
    check_refused(SFP_EFORMAT, "a sample has standing 9");
    assert_int_equal(truncate(path, 1500), 0); /* a part of the file */
    check_refused(SFP_EFORMAT, "damaged");
    MUST(sfp__store_remove(directory, &err));
    assert_int_equal(mkdir(path, 0777), 0);
    assert_false(sfp__store_is_one(path));
    check_refused(SFP_EIO, "unable to open");
    assert_int_equal(rmdir(path), 0);
}

TEST(a_database_of_another_program_is_refused_and_not_changed)
{
    for (int version = 0; version <= 2; version += 2) { /* 2: the version of our layout */
        run_sql(kept_print("CREATE TABLE photos(x); INSERT INTO photos VALUES(1); PRAGMA user_version = %d", version));
        assert_false(sfp__store_is_one(in_directory(SFP__STORE_NAME)));
        check_refused(SFP_EFORMAT, "not a store of samples");
        sqlite3 *db = open_database();
        assert_int_equal(count_rows(db, "sqlite_master"), 1);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        MUST(sfp__store_remove(directory, &err));
    }
}

TEST(the_directory_may_be_reached_through_a_link_but_the_file_may_not_be_one)
{
    sfp__store *s = NULL;
    put_text("real/.keep", "");
    assert_int_equal(symlink("real", in_directory("link")), 0);
    MUST(sfp__store_open(in_directory("link"), &s, &err));
    add(s, "a", NULL);
    sfp__store_close(s);
    assert_true(file_exists("real/" SFP__STORE_NAME));
    assert_int_equal(symlink("real/" SFP__STORE_NAME, in_directory(SFP__STORE_NAME)), 0);
    check_refused(SFP_EIO, "");
}

TEST(only_a_store_that_this_process_created_is_discarded)
{
    sfp__store *s = open_store();
    add(s, "a", NULL);
    sfp__store_discard(s);
    sfp__store_close(s);
    assert_false(file_exists(SFP__STORE_NAME) || file_exists(SFP__STORE_NAME "-wal") || file_exists(SFP__STORE_NAME "-shm"));
    sfp__store_close(open_store());
    s = open_store();
    sfp__store_discard(s);
    sfp__store_close(s);
    assert_true(file_exists(SFP__STORE_NAME));
    MUST(sfp__store_remove(directory, &err));
    assert_false(file_exists(SFP__STORE_NAME));
    MUST(sfp__store_remove(directory, &err)); /* nothing to remove */
}

TEST(a_store_without_a_directory_has_no_file)
{
    sfp__store *s = NULL;
    sfp__request r = {0};
    bool found = true;
    MUST(sfp__store_open(NULL, &s, &err));
    uint64_t a = add(s, "a", "cat"), b = add(s, "b", NULL);
    learn(s, a, "cat");
    assert_int_equal(save(s), 1);
    learn(s, a, NULL);
    MUST(sfp__store_resume(s, 1, &err));
    check_row(s, a, "learned a cat cat");
    MUST(sfp__store_erase(s, 1, &(const uint64_t){b}, NULL, &err));
    check_row(s, b, "forgotten - - -");
    MUST(sfp__store_next_request(s, 0, &r, &found, &err));
    assert_false(found);
    sfp__store_close(s);
    assert_int_equal(rmdir(directory), 0); /* it is empty */
    make_directory();
}

TEST(missing_memory_is_reported)
{
    sfp__store *s = NULL;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    OWNED_BY(sfp__request_done) sfp__request r = {0};
    OWNED char *text = NULL;
    bool found = false, changed;
    int64_t number;
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_open(directory, &s, alloc_err), !s) > 1);
    uint64_t a = add(s, "a", "cat");
    learn(s, a, "cat");
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_get(s, a, &row, alloc_err), !row.name) == 3);
    sfp__stored_done(&row);
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_find(s, "a", &row, &found, alloc_err), !row.name) == 3);
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_label(s, a, "dog", alloc_err), true) > 0);
    check_row(s, a, "waiting a dog cat");
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_learned(s, a, "dog", alloc_err), true) > 0);
    check_row(s, a, "learned a dog dog");
    MUST(sfp__store_set_line(s, "a", "cat", &changed, &err));
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_line(s, "a", &text, alloc_err), !text) == 1);
    MUST(sfp__store_request(s, "a", "file", "cat", &number, &err));
    assert_true(FAIL_EACH_ALLOCATION(sfp__store_next_request(s, 0, &r, &found, alloc_err), !r.name && !found) == 3);
    close_checked(s);
}

typedef struct listing {
    int count;
    uint64_t last;
} listing;

static sfp_status count_listed(void *ctx, const sfp__listed *l, sfp_error *why)
{
    listing *to = ctx;
    (void)why;
    assert_true(to->count == 0 || l->row->id > to->last);
    to->last = l->row->id;
    to->count++;
    return SFP_OK;
}

TEST(a_long_list_of_samples_is_complete_and_in_order)
{
    enum { SAMPLES = 1203, EVEN = 602 };
    static const int limits[] = {1, 499, 500, 501, EVEN - 1, EVEN, 1000, INT_MAX};
    sfp__store *s = open_store();
    for (int i = 0; i < SAMPLES; i++)
        add(s, kept_print("%d", i), i % 2 ? "odd" : "even");
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        listing l = {0};
        const sfp__sample_query q = {.standing = -1, .label = "even", .limit = limits[k]};
        MUST(sfp__store_list(s, &q, count_listed, &l, &err));
        assert_int_equal(l.count, limits[k] < EVEN ? limits[k] : EVEN);
    }
    listing l = {0};
    MUST(sfp__store_list(s, &(const sfp__sample_query){.from = 700, .standing = -1, .limit = INT_MAX}, count_listed, &l, &err));
    assert_int_equal(l.count, SAMPLES - 700);
    close_checked(s);
}
