/* A run that is stopped after every few timestamps and resumed ends in the bytes of an uninterrupted run, for every method,
 * clock and kind of stream; and the counts add up in corner cases. (Threads: sfp__thread_pool_create is in run_world.h.) */
#include "io/tensor/safetensors.h"
#include "model/vit.h"

#include "run_world.h"
#include "test.h"

AROUND_ALL(make_world, end_world)

static void check_stopped_equals_uninterrupted(sfp__run_options o, int every)
{
    static int number;
    const char *whole = kept_print("whole%d", ++number), *cut = kept_print("cut%d", number);
    sfp_result want = run_once(&o, whole, 0, NULL), r;
    assert_true(want.finished);
    o.resume = true;
    int stops = 0;
    do {
        assert_true(stops++ < 200);
        r = run_once(&o, cut, every, NULL);
    } while (!r.finished);
    same_result(&want, &r);
    same_state(whole, cut);
}

TEST(plain_run)
{
    check_stopped_equals_uninterrupted(options("synthetic:130", "5"), 2);
    check_stopped_equals_uninterrupted(options("synthetic:130", "3,3,4"), 4);
}

TEST(task_free_run)
{
    check_stopped_equals_uninterrupted(options("synthetic:130", "free"), 3);
}

TEST(virtual_clock_with_a_queue)
{
    for (int policy = SFP__QUEUE_DROP_OLDEST; policy <= SFP__QUEUE_BLOCK; policy++) {
        sfp__run_options o = clocked("synthetic:250", "5", SFP__CLOCK_VIRTUAL, 100);
        o.queue = 2;
        o.policy = (sfp__queue_policy)policy;
        check_stopped_equals_uninterrupted(o, 7);
    }
}

TEST(paper_clock_with_costs)
{
    /* C_S 7.3: gaps larger than the prefetch depth */
    sfp__run_options o = clocked("synthetic:300", "3", SFP__CLOCK_PAPER, 400);
    check_stopped_equals_uninterrupted(o, 1);
}

TEST(allocation_pools_across_tasks)
{
    sfp__run_options o = clocked("synthetic:250", "5", SFP__CLOCK_VIRTUAL, 300);
    o.method = "ncm";
    o.allocate = SFP__ALLOCATE_ADAPTIVE;
    check_stopped_equals_uninterrupted(o, 1);
}

TEST(evaluations_are_recorded)
{
    sfp__run_options o = options("synthetic:130", "2"); /* 7 batches of 10 per task, the last of 5 */
    o.eval_every = 3;
    sfp_result want = run_once(&o, "evaluated", 0, NULL);
    const struct {
        uint64_t offered;
        int task;
    } places[] = {{30, 0}, {60, 0}, {65, 0}, {85, 1}, {115, 1}, {130, 1}};
    assert_int_equal(want.evaluation_count, 6);
    for (int i = 0; i < 6; i++) {
        const sfp__evaluation *e = &want.evaluations[i];
        assert_int_equal(e->offered, places[i].offered);
        assert_int_equal(e->task, places[i].task);
        double sum = 0;
        for (int k = 0; k <= e->task; k++)
            sum += e->accuracy[k];
        assert_true(e->average == sum / (e->task + 1));
    }
    assert_true(want.evaluations[5].average == want.average_accuracy);
    assert_true(want.evaluations[2].accuracy[0] == want.accuracy[0]);
}

static void put_idx(const char *part, int count, int shade)
{
    uint8_t images[16 + 12 * 64] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, 8, 0, 0, 0, 8},
                             labels[8 + 12] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};
    for (int i = 0; i < count; i++) {
        memset(images + 16 + i * 64, shade + 40 * (i % 2), 64);
        labels[8 + i] = (uint8_t)(i % 2);
    }
    put_bytes(kept_print("idx/%s-images-idx3-ubyte", part), images, 16 + (size_t)count * 64);
    put_bytes(kept_print("idx/%s-labels-idx1-ubyte", part), labels, 8 + (size_t)count);
}

/* A test part is recognised as such, not by its size. */
TEST(a_test_part_as_large_as_the_training_part_is_used)
{
    put_idx("train", 12, 10);
    put_idx("t10k", 12, 100);
    const char *data = kept_print("idx:%s", in_directory("idx"));
    sfp__run_options o = options(data, "1");
    o.eval_limit = 0;
    sfp_result r = run_once(&o, "same_size", 0, NULL);
    uint64_t tested = 0;
    assert_true(r.average_accuracy >= 0);
    (void)sfp__result_class_accuracy(&r, 0, &tested);
    assert_int_equal(tested, 6);
}

TEST(intermediate_evaluations_change_nothing)
{
    sfp__run_options o = options("synthetic:130", "2");
    sfp_result a = run_once(&o, "between_off", 0, NULL);
    o.eval_every = 2;
    sfp_result b = run_once(&o, "between_on", 0, NULL);
    same_result(&a, &b);
    same_state("between_off", "between_on");
}

TEST(paper_clock_measures_a_first_task_of_few_batches)
{
    sfp__run_options o = options("synthetic:100", "5"); /* 2 batches per task */
    o.clock = SFP__CLOCK_PAPER;
    o.rate = 1e9;
    sfp_result r = run_once(&o, "paper_few", 0, NULL);
    assert_true(r.cs > 1); /* 0 if nothing was measured */
    assert_int_equal(r.samples.dropped, 50);
}

TEST(a_new_run_in_an_old_directory_removes_its_checkpoint)
{
    char last_message[SFP_ERROR_MAX];
    sfp__run_options o = options("synthetic:60", "2");
    (void)run_once(&o, "again", 0, NULL);
    assert_true(file_exists("again/checkpoint"));
    assert_false(run_once(&o, "again", 2, NULL).finished); /* restarted and stopped */
    assert_false(file_exists("again/checkpoint.old"));
    o.resume = true;
    assert_true(run_once(&o, "again", 0, last_message).finished);
    assert_non_null(strstr(last_message, "from its last checkpoint (timestamp "));
    (void)run_once(&o, "again", 0, last_message);
    assert_string_equal(last_message, "this run has already ended: nothing to do");
}

TEST(broken_images_are_counted_once_after_any_number_of_resumes)
{
    char last_message[SFP_ERROR_MAX];
    put_images("images", 2, true);
    const char *data = kept_print("folder:%s", in_directory("images"));
    sfp__run_options o = options(data, "2");
    o.learner.batch = 5;
    o.max_skipped = 0.25;
    check_stopped_equals_uninterrupted(o, 1);
    sfp_result r = run_once(&o, "broken", 0, last_message);
    assert_int_equal(r.samples.offered, 24);
    assert_int_equal(r.samples.skipped, 6);
    assert_int_equal(r.samples.dropped, 0);
    assert_non_null(strstr(last_message, "6 images could not be read and were skipped (first: "));
    assert_true(r.average_accuracy != r.average_accuracy); /* no test set */
}

TEST(a_resumed_run_reads_replaced_images_as_they_are_then)
{
    put_images("replaced", 2, false);
    sfp__run_options o = options(kept_print("folder:%s", in_directory("replaced")), "2");
    o.learner.batch = 5;
    o.max_skipped = 1;
    sfp_result first = run_once(&o, "replaced_out", 1, NULL);
    assert_false(first.finished);
    for (int i = 0; i < 24; i++)
        put_text(kept_print("replaced/c%d/%02d.png", i / 12, i % 12), "not an image any more");
    o.resume = true;
    sfp_result r = run_once(&o, "replaced_out", 0, NULL);
    assert_true(r.finished);
    assert_int_equal(r.samples.skipped, 24 - 5); /* all but those of the first timestamp */
}

TEST(one_class_and_a_batch_larger_than_the_data)
{
    put_images("single", 1, false);
    const char *data = kept_print("folder:%s", in_directory("single"));
    static const char *const methods[] = {NULL, "ncm", "slda", "ridge", "ranpac"};
    for (int i = 0; i < 5; i++) {
        sfp__run_options o = options(data, "1");
        o.method = methods[i];
        o.test = data;
        o.learner.batch = 64;
        sfp_result r = run_once(&o, "single_out", 0, NULL);
        assert_int_equal(r.samples.offered, 12);
        assert_int_equal(r.samples.dropped, 0);
        assert_true(r.average_accuracy == 1);
        assert_true(r.coverage == 1);
    }
}

TEST(stopping_before_the_first_timestamp_leaves_no_checkpoint)
{
    atomic_int stop = 1;
    sfp__run_hooks hooks = {.stop = &stop};
    sfp__run_options o = options("synthetic:60", "2");
    assert_false(run_with(&o, "early", &hooks).finished);
    assert_false(file_exists("early/checkpoint"));
}

/* Hooks that stop a run at once, if requested, and search its messages for a word. */
typedef struct word_search {
    atomic_int stop;
    const char *word;
    bool found;
} word_search;

static void search_message(void *ctx, sfp_log_level level, const char *message)
{
    (void)level;
    word_search *e = ctx;
    e->found |= strstr(message, e->word) != NULL;
}

static bool run_reports(sfp__run_options *o, const char *name, const char *word, bool stopped, sfp_result *r)
{
    word_search e = {.stop = stopped, .word = word};
    const sfp__run_hooks hooks = {.ctx = &e, .log_ctx = &e, .log = search_message, .stop = &e.stop};
    *r = run_with(o, name, &hooks);
    return e.found;
}

TEST(stopping_during_clock_calibration_keeps_the_earlier_run)
{
    sfp__run_options o = options("synthetic:60", "2");
    sfp_result r = run_once(&o, "measured", 0, NULL);
    o.clock = SFP__CLOCK_PAPER;
    o.rate = 100;
    assert_false(run_reports(&o, "measured", "batches are kept", true, &r));
    assert_false(r.finished);
    assert_int_equal(r.samples.offered, 0);
    for (const char *const *name = STRINGS("checkpoint", "result.json", "report.html", "events.jsonl", "state.safetensors");
         *name; name++)
        assert_true(file_exists(kept_print("measured/%s", *name)));
    o = options("synthetic:60", "2");
    o.resume = true;
    assert_true(run_reports(&o, "measured", "has already ended", false, &r));
}

TEST(a_finished_run_without_checkpoint_is_not_changed)
{
    sfp__run_options o = options("synthetic:60", "2");
    sfp_result want = run_once(&o, "bare", 0, NULL), r;
    assert_int_equal(remove(in_directory("bare/checkpoint")), 0);
    (void)remove(in_directory("bare/checkpoint.old"));
    o.resume = true;
    assert_true(run_reports(&o, "bare", "has already ended", false, &r));
    assert_true(r.finished);
    same_result(&want, &r);
    assert_true(file_exists("bare/state-task-1.safetensors"));
    o = options("synthetic:0", NULL); /* a live stream, which cannot have ended */
    o.resume = true;
    o.out = in_directory("bare");
    refused(o, "bare: directory contains a result but no checkpoint to resume from");
}

TEST(files_of_other_programs_are_kept)
{
    static const char *const theirs[] = {"{\"score\": 7}\n", "[]", "", "not JSON"};
    sfp__run_options o = options("synthetic:60", "2");
    put_text("theirs/report.html", "a report of something else");
    o.out = in_directory("theirs");
    for (int resume = 0; resume < 2; resume++)
        for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
            put_text("theirs/result.json", theirs[i]);
            o.resume = resume;
            refused(o, "it is not the result of a run: choose another --out");
            assert_true(file_exists("theirs/report.html"));
        }
    sfp_result r = run_once(&o, "theirs_too", 0, NULL); /* the result of another run is replaced */
    o.resume = false;
    assert_true(run_reports(&o, "theirs_too", "the finished run in this directory is replaced", false, &r));
}

TEST(a_directory_with_files_that_are_not_of_a_run_is_refused)
{
    sfp__run_options o = options("synthetic:60", "2");
    for (const char *const *name = STRINGS("report.html", "state.safetensors", "state-task-3.safetensors", "predictions.jsonl",
                                           "predictions.jsonl.1", "events.jsonl");
         *name; name++) {
        const char *file = kept_print("own_%s/%s", *name, *name);
        put_text(file, "written by hand");
        o.out = in_directory(kept_print("own_%s", *name));
        for (int resume = 0; resume < 2; resume++) {
            o.resume = resume;
            refused(o, kept_print("own_%s: directory contains %s, which is not of a run; choose another --out", *name, *name));
            assert_string_equal(file_text(in_directory(file)), "written by hand");
        }
    }
    put_text("own/notes.txt", "other names do not matter");
    o.resume = false;
    assert_true(run_once(&o, "own", 0, NULL).finished);
}

TEST(logs_are_not_written_through_symbolic_links)
{
    sfp__run_options o = options("synthetic:60", "2");
    put_text("target", "{\"t\":0,\"precious\":1}\n");
    for (const char *const *name = STRINGS("events.jsonl", "predictions.jsonl"); *name; name++) {
        const char *run = kept_print("linked_%s", *name);
        assert_int_equal(mkdir(in_directory(run), 0777), 0);
        assert_int_equal(symlink(in_directory("target"), in_directory(kept_print("%s/%s", run, *name))), 0);
        o.out = in_directory(run);
        refused(o, kept_print("%s/%s: symbolic link, expected a regular file", run, *name));
    }
    assert_true(run_once(&o, "linked", 0, NULL).finished); /* the same in the directory of a finished run */
    assert_int_equal(remove(in_directory("linked/events.jsonl")), 0);
    assert_int_equal(symlink(in_directory("target"), in_directory("linked/events.jsonl")), 0);
    refused(o, "linked/events.jsonl: symbolic link, expected a regular file");
    assert_true(file_exists("linked/result.json"));
    assert_string_equal(file_text(in_directory("target")), "{\"t\":0,\"precious\":1}\n");
}

TEST(a_rerun_keeps_logs_that_have_another_name)
{
    sfp__run_options o = options("synthetic:24", "2");
    assert_true(run_once(&o, "again", 0, NULL).finished);
    const char *backup = in_directory("backup"), *before = kept_print("%s", file_text(in_directory("again/events.jsonl")));
    assert_int_equal(link(in_directory("again/events.jsonl"), backup), 0);
    o.learner.seed = 5;
    assert_true(run_once(&o, "again", 0, NULL).finished);
    assert_string_equal(file_text(backup), before);
    assert_string_not_equal(file_text(in_directory("again/events.jsonl")), before);
}

/* Each attempt fails in its first step, because an allocation fails, until the first batch is processed. */
TEST(a_rerun_that_fails_in_its_first_step_keeps_the_finished_run)
{
    sfp__run_options o = options("synthetic:60", "2");
    sfp__run_hooks hooks = {0};
    (void)run_once(&o, "rerun", 0, NULL);
    const char *state = in_directory("rerun/state.safetensors"), *events = file_text(in_directory("rerun/events.jsonl"));
    assert_true(file_exists("rerun/state.safetensors"));
    int kept = 0;
    for (long k = 0; k < 1000 && access(state, F_OK) == 0; k++) {
        sfp_result r;
        sfp__run *run = NULL;
        bool more;
        MUST(sfp__run_open(&o, &hooks, &r, &run, &err));
        sfp__mem_fail_at(k);
        sfp_status status = sfp__run_step(run, &more, &err);
        sfp__mem_fail_at(-1);
        sfp__run_close(run);
        sfp__result_done(&r);
        if (!status)
            break;
        kept += file_exists("rerun/checkpoint") && file_exists("rerun/result.json") && file_exists("rerun/report.html") &&
                strcmp(file_text(in_directory("rerun/events.jsonl")), events) == 0;
    }
    assert_true(kept >= 4); /* all before the first batch is processed */
}

TEST(missing_events_before_the_checkpoint_are_reported)
{
    sfp__run_options o = options("synthetic:130", "2");
    sfp_result r;
    assert_false(run_once(&o, "short_log", 4, NULL).finished);
    o.resume = true;
    assert_false(run_reports(&o, "short_log", "missing", true, &r)); /* complete */
    const char *events = in_directory("short_log/events.jsonl"), *text = file_text(events), *third = text;
    for (int i = 0; i < 2; i++)
        third = strchr(third, '\n') + 1;
    assert_int_equal(truncate(events, third - text), 0);
    assert_true(run_reports(&o, "short_log", "events.jsonl: the last 2 timestamps before the checkpoint are missing", false, &r));
    assert_true(r.finished);
}

/* An evaluation allocates memory for its result: each further evaluation is one more allocation. */
TEST(the_same_state_is_not_evaluated_twice)
{
    unsigned long count[2];
    for (int every = 0; every < 2; every++) {
        sfp__run_options o = options("synthetic:60", "2"); /* 3 batches per task */
        o.eval_every = every ? 3 : 0;
        unsigned long before = sfp__mem_count();
        sfp_result r = run_once(&o, every ? "evaluated_every" : "evaluated_once", 0, NULL);
        count[every] = sfp__mem_count() - before;
        assert_int_equal(r.evaluation_count, 2);
    }
    assert_int_equal(count[0], count[1]);
}

typedef struct start {
    atomic_int stop;
    uint64_t from, offered; /* of the first progress line */
} start;

static void record_first(void *ctx, const sfp_run_progress *p)
{
    start *b = ctx;
    if (b->offered == 0 && !p->to_evaluate)
        *b = (start){.from = p->offered_before, .offered = p->offered};
}

TEST(progress_reports_where_this_process_started)
{
    sfp__run_options o = options("synthetic:130", "2");
    (void)run_once(&o, "from", 3, NULL);
    o.resume = true;
    start b = {0};
    const sfp__run_hooks hooks = {.ctx = &b, .progress = record_first, .stop = &b.stop};
    (void)run_with(&o, "from", &hooks);
    assert_int_equal(b.from, 30);
    assert_int_equal(b.offered, 40);
}

TEST(a_run_is_not_resumed_with_renamed_classes)
{
    put_images("shapes", 3, false);
    const char *data = kept_print("folder:%s", in_directory("shapes"));
    static const char *const methods[] = {NULL, "ncm"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        sfp__run_options o = options(data, "free");
        o.method = methods[i];
        assert_false(run_once(&o, i ? "renamed_head" : "renamed", 2, NULL).finished);
        o.resume = true;
        move("shapes/c2", "shapes/a");
        refused(o, "checkpoint: class 0 is 'c0' in this file and 'a' in the stream");
        move("shapes/a", "shapes/c2");
        assert_true(run_once(&o, i ? "renamed_head" : "renamed", 0, NULL).finished);
    }
}

/* Such states are written by other programs. */
TEST(a_state_without_names_gets_those_of_the_stream)
{
    const char *state = in_directory("unnamed.safetensors");
    sfp__learner *l = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    sfp__run_options o = options("synthetic:60", "free");
    sfp__learner_options lo = o.learner;
    lo.fp.tasks = lo.fp.classes = 0;
    MUST(sfp__learner_create(vit, threads, &lo, &l, NULL));
    MUST(sfp__learner_save(l, state, NULL));
    sfp__learner_free(l);
    o.init_state = state;
    sfp_result r = run_once(&o, "named", 0, NULL);
    MUST(sfp__safetensors_open(in_directory("named/state.safetensors"), &st, NULL));
    const char *names = sfp__tensor_file_meta(st, "class_names");
    assert_non_null(names);
    assert_null(strstr(names, "null"));
    for (int c = 0; c < r.classes; c++)
        assert_non_null(strstr(names, r.class_names[c]));
}

TEST(impossible_runs_are_refused)
{
    put_text("bad", "0.5\nfast\n");
    put_text("empty", "# nothing\n");
    sfp__run_options o = options("synthetic:60", "2");
    o.costs = in_directory("bad");
    refused(o, "bad:2: processing time is 'fast', expected a number of seconds from 0");
    o.costs = in_directory("empty");
    refused(o, "empty: the file has no processing times, expected seconds, one number per line");
    o = options("synthetic:60", "2");
    o.clock = SFP__CLOCK_VIRTUAL;
    refused(o, "this clock needs an arrival rate");
    o = options("synthetic:60", "2");
    o.resume = true;
    refused(o, "--resume needs the directory of the run");
}
