/* Synthetic images: reproducible on every machine, balanced, drifting, learnable, and fast to render. */
#include "source_files.h"
#include "stream/sources/render.h"
#include "test.h"

#include <pthread.h>

static sfp_source *open_synthetic(const char *path, uint64_t seed, bool test)
{
    return open_as(&sfp__source_synthetic, path, (sfp__source_options){.test = test, .seed = seed});
}

static sfp__raw_image image_of(const sfp_source *s, int64_t i)
{
    sfp__raw_image p = {0};
    if (sfp__source_load(s, i, &p, &err) != SFP_OK)
        fail_msg("%lld: %s", (long long)i, err.message);
    assert_int_equal(p.kind, SFP__RAW_IMAGE_RGB);
    assert_int_equal(p.width, 64);
    assert_int_equal(p.height, 64);
    assert_int_equal(p.size, 64 * 64 * 3);
    assert_false(p.has_box);
    return p;
}

/* Returns the mean absolute difference of two images. */
static double distance(const sfp_source *a, int64_t i, const sfp_source *b, int64_t j)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = image_of(a, i);
    OWNED_BY(sfp__raw_image_done) sfp__raw_image q = image_of(b, j);
    double sum = 0;
    for (size_t k = 0; k < p.size; k++)
        sum += abs(p.bytes[k] - q.bytes[k]);
    return sum / (double)p.size;
}

TEST(counts_classes_and_names_are_as_documented)
{
    sfp_source *s = open_synthetic("250", 1, false), *t = open_synthetic("250", 1, true), *big = open_synthetic("1000", 1, true);
    assert_int_equal(s->count, 250);
    assert_int_equal(t->count, 100);
    assert_int_equal(big->count, 200);
    assert_int_equal(s->classes, 10);
    assert_string_equal(s->class_names[0], "disc");
    assert_string_equal(s->class_names[9], "arrow");
    assert_true(s->keeps_order);
    assert_null(s->ops->next);
    assert_false(s->kind->live);
    int counts[10] = {0};
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r = record_of(s, i);
        assert_true(r.label >= 0 && r.label < 10 && r.task == -1 && r.domain == -1 && isnan(r.time));
        counts[r.label]++;
    }
    for (int c = 0; c < 10; c++)
        assert_int_equal(counts[c], 25);
    check_name(s, 17, "synthetic[17]");
    check_bounds(s);
    check_bounds(t);
    assert_int_equal(open_synthetic("", 1, false)->count, 2000);
}

TEST(an_image_depends_on_seed_and_index_alone)
{
    sfp_source *a = open_synthetic("100", 7, false), *b = open_synthetic("5000", 7, false),
               *other = open_synthetic("100", 8, false);
    int same_labels = 0;
    for (int64_t i = 0; i < 100; i += 9) {
        assert_int_equal(record_of(a, i).label, record_of(b, i).label);
        assert_true(distance(a, i, b, i) == 0);
        assert_true(distance(a, i, other, i) > 5);
    }
    for (int64_t i = 0; i < 100; i++)
        same_labels += record_of(a, i).label == record_of(other, i).label;
    assert_true(same_labels < 40);
}

TEST(the_test_set_is_of_the_same_world_with_other_images)
{
    sfp_source *s = open_synthetic("1000", 3, false), *t = open_synthetic("1000", 3, true);
    double nearest = 1e9;
    for (int64_t i = 0; i < t->count; i += 10)
        for (int64_t j = 0; j < s->count; j += 7)
            nearest = fmin(nearest, distance(t, i, s, j));
    assert_true(nearest > 1); /* none is a copy */
}

/* Computes the mean colour of a section of the stream. */
static void mean_colour(const sfp_source *s, int64_t first, double out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (int64_t i = first; i < first + 60; i++) {
        OWNED_BY(sfp__raw_image_done) sfp__raw_image p = image_of(s, i);
        for (size_t k = 0; k < p.size; k++)
            out[k % 3] += p.bytes[k] / (60.0 * 64 * 64);
    }
}

TEST(the_world_drifts_slowly)
{
    sfp_source *s = open_synthetic("3000", 1, false);
    double a[3], b[3], near = 0, far = 0;
    for (int64_t at = 0; at < 2400; at += 400) {
        mean_colour(s, at, a);
        mean_colour(s, at + 60, b);
        near += fabs(a[0] - b[0]) + fabs(a[1] - b[1]) + fabs(a[2] - b[2]);
        mean_colour(s, at + 500, b);
        far += fabs(a[0] - b[0]) + fabs(a[1] - b[1]) + fabs(a[2] - b[2]);
    }
    assert_true(far > 1.5 * near);
}

/* The outlines alone distinguish classes: a nearest class mean of edge maps in object coordinates is too simple for the posed
 * images, but must be above chance. It must also be far from perfect, or the dataset would be trivial. */
TEST(classes_are_neither_hidden_nor_trivial)
{
    enum { SIDE = 16, N = 1500, T = 300 };
    sfp_source *s = open_synthetic("1500", 5, false), *t = open_synthetic("1500", 5, true);
    static double mean[10][SIDE * SIDE];
    static double x[SIDE * SIDE];
    memset(mean, 0, sizeof mean);
    int right = 0;
    for (int64_t i = 0; i < N + T; i++) {
        const sfp_source *from = i < N ? s : t;
        int64_t k = i < N ? i : i - N;
        sfp__raw_image p = image_of(from, k);
        memset(x, 0, sizeof x);
        for (int v = 1; v < 63; v++)
            for (int u = 1; u < 63; u++)
                for (int c = 0; c < 3; c++) {
                    int at = (v * 64 + u) * 3 + c;
                    x[v / 4 * SIDE + u / 4] +=
                        abs(p.bytes[at + 3] - p.bytes[at - 3]) + abs(p.bytes[at + 192] - p.bytes[at - 192]);
                }
        sfp__raw_image_done(&p);
        double norm = 0;
        for (int j = 0; j < SIDE * SIDE; j++)
            norm += x[j] * x[j];
        int32_t label = record_of(from, k).label;
        if (i < N) {
            for (int j = 0; j < SIDE * SIDE; j++)
                mean[label][j] += x[j] / sqrt(norm) / (N / 10.0);
            continue;
        }
        int best = 0;
        double best_score = -1e9;
        for (int c = 0; c < 10; c++) {
            double dot = 0, length = 0;
            for (int j = 0; j < SIDE * SIDE; j++) {
                dot += mean[c][j] * x[j];
                length += mean[c][j] * mean[c][j];
            }
            if (dot / sqrt(length) > best_score) {
                best_score = dot / sqrt(length);
                best = c;
            }
        }
        right += best == label;
    }
    double accuracy = (double)right / T;
    print_message("nearest mean of edges: %.3f\n", accuracy);
    assert_true(accuracy > 0.15 && accuracy < 0.8);
}

TEST(without_an_end_it_is_live_and_still_indexed)
{
    static atomic_bool stop;
    sfp_source *s = open_synthetic("0", 2, false), *finite = open_synthetic("50", 2, false), *t = open_synthetic("0", 2, true);
    assert_int_equal(s->count, -1);
    assert_true(s->kind->live);
    assert_string_equal(s->kind->name, "synthetic");
    assert_int_equal(t->count, 100);
    assert_false(t->kind->live);
    atomic_store(&stop, false);
    s->live->stop = &stop;
    for (int64_t i = 0; i < 30; i++) {
        sfp_record r;
        sfp__raw_image p = {0}, q = image_of(finite, i);
        bool end = true;
        MUST(sfp__source_next(s, &r, &p, &end, NULL));
        assert_false(end);
        assert_int_equal(r.label, record_of(finite, i).label);
        assert_memory_equal(p.bytes, q.bytes, q.size);
        sfp__raw_image_done(&p);
        sfp__raw_image_done(&q);
    }
    sfp__raw_image p = image_of(s, INT64_MAX / 2);
    sfp__raw_image_done(&p);
    sfp_record r;
    bool end = false;
    assert_int_equal(sfp__source_record(s, -1, &r, NULL), SFP_EINVAL);
    stop = true;
    MUST(sfp__source_next(s, &r, &p, &end, NULL));
    assert_true(end);
}

typedef struct job {
    const sfp_source *s;
    int64_t first;
    uint32_t sum;
} job;

static void *load_many(void *arg)
{
    job *j = arg;
    for (int64_t i = 0; i < 40; i++) {
        OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
        if (sfp__source_load(j->s, (j->first + i) % 40, &p, NULL) != SFP_OK)
            return NULL;
        for (size_t k = 0; k < p.size; k++)
            j->sum += p.bytes[k];
    }
    return NULL;
}

TEST(threads_may_load_at_once)
{
    sfp_source *s = open_synthetic("40", 4, false);
    pthread_t thread[4];
    job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){s, 10 * i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, load_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(jobs[i].sum, jobs[0].sum);
}

TEST(any_size_is_drawn_within_its_bytes)
{
    for (int size = 1; size < 70; size += 17) {
        sfp__scene scene;
        uint8_t *rgb = kept_malloc((size_t)(size * size * 3)); /* allocated with its exact size */
        assert_non_null(rgb);
        for (int shape = 0; shape < SFP__SHAPES; shape++) {
            sfp__scene_make(shape, shape, 1, 1e9, 2, (uint64_t)shape, &scene);
            sfp__scene_draw(&scene, size, rgb);
        }
    }
}
