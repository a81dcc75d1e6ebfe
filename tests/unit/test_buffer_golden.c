/* The updates of golden/buffer.json: with the given random numbers, every index must equal that of the reference. */
#include "buffer/buffer.h"

#include <jansson.h>

#include "test.h"

static json_t *cases;

static int whole(const json_t *c, const char *key)
{
    const json_t *v = json_object_get(c, key);
    assert_true(json_is_integer(v));
    return (int)json_integer_value(v);
}

static size_t length(const json_t *c, const char *key)
{
    const json_t *v = json_object_get(c, key);
    assert_true(json_is_array(v));
    return json_array_size(v);
}

static double *numbers(const json_t *c, const char *key)
{
    size_t n = length(c, key);
    double *out = kept_malloc(n * sizeof *out + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = json_number_value(json_array_get(json_object_get(c, key), i));
    return out;
}

static float *scores(const json_t *c, const char *key)
{
    size_t n = length(c, key);
    double *in = numbers(c, key);
    float *out = kept_malloc(n * sizeof *out + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)in[i];
    return out;
}

static void check_indices(int number, const json_t *c, const char *key, const int *got, int n)
{
    const json_t *want = json_object_get(c, key);
    if (json_array_size(want) != (size_t)n)
        fail_msg("case %d: %d %s, expected %zu", number, n, key, json_array_size(want));
    for (int i = 0; i < n; i++)
        if (got[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("case %d: %s[%d] is %d, expected %d", number, key, i, got[i],
                     (int)json_integer_value(json_array_get(want, (size_t)i)));
}

TEST(every_update_equals_the_reference)
{
    assert_int_equal(json_array_size(cases), 28);
    for (int k = 0; k < 28; k++) {
        const json_t *c = json_array_get(cases, (size_t)k);
        int n_seen = whole(c, "n_seen"), m = whole(c, "m"), b = whole(c, "b");
        const char *rule = json_string_value(json_object_get(c, "drop_rule"));
        assert_true(strcmp(rule, "alg2") == 0 || strcmp(rule, "eq8") == 0);
        size_t size = (size_t)(b > m ? b : m);
        float *batch = scores(c, "S_batch"), *buffer = scores(c, "S_buffer");
        double *u_nu = numbers(c, "u_nu"), *u_batch = numbers(c, "u_batch"), *u_buffer = numbers(c, "u_buffer");
        double *dwork = kept_malloc(size * sizeof *dwork);
        int *iwork = kept_malloc(size * sizeof *iwork), *retained = kept_malloc((size_t)b * sizeof(int)),
            *replaced = kept_malloc((size_t)b * sizeof(int));
        sfp__buffer_plan plan;
        sfp__buffer_decide((uint64_t)n_seen, m, b, batch, buffer, u_nu, u_batch, u_buffer,
                           strcmp(rule, "alg2") == 0 ? SFP__DROP_ALG2 : SFP__DROP_EQ8, iwork, dwork, retained, replaced, &plan);
        if (plan.stored != whole(c, "stored") || plan.nu != whole(c, "nu"))
            fail_msg("case %d: stored %d, nu %d, expected %d, %d", k, plan.stored, plan.nu, whole(c, "stored"), whole(c, "nu"));
        check_indices(k, c, "retained", retained, plan.nu);
        check_indices(k, c, "replaced", replaced, plan.nu);
    }
}

static void read_cases(void)
{
    const char *shared = getenv("STREAMFP_SHARED");
    char path[4096];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/golden/buffer.json", shared ? shared : "../shared");
    if (access(path, F_OK) != 0) {
        printf("skipped: no %s\n", path);
        exit(77);
    }
    cases = json_load_file(path, 0, &error);
    if (!cases)
        fail_msg("%s:%d: %s", path, error.line, error.text);
}

static void drop_cases(void)
{
    json_decref(cases);
}

AROUND_ALL(read_cases, drop_cases)
