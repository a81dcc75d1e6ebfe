/* Message logs without a server: names of logs, committed values, messages, and the shards of a dataset. */
#include "run/share.h"
#include "stream/log.h"
#include "stream/source_internal.h"

#include "test.h"

static sfp_status open_source(const char *spec, sfp_source **out)
{
    return sfp__source_open(spec, &(const sfp__source_options){0}, out, &err);
}

TEST(the_name_of_a_log_has_a_stream_an_address_and_a_group)
{
    OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
    assert_int_equal(open_source("redis:cams@[::1]:6379/plant?features=7", &s), SFP_OK);
    const sfp__log *l = sfp__source_log(s);
    assert_non_null(l);
    assert_string_equal(l->stream, "cams");
    assert_string_equal(l->address, "[::1]:6379");
    assert_string_equal(l->group, "plant");
    assert_int_equal(s->row_dim, 7);
    static const char *const bad[] = {"redis:cams",      "redis:@host/plant", "redis:cams@/plant",     "redis:cams@host/",
                                      "redis:cams@host", "kafka:c@h/g?x=1",   "kafka:c@h/g?features=0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sfp_source *none = NULL;
        assert_int_equal(open_source(bad[i], &none), SFP_EINVAL);
        assert_string_equal(err.key, "data");
        assert_null(none);
    }
    char text[400];
    sfp_source *none = NULL;
    (void)snprintf(text, sizeof text, "redis:%0250d@host/g", 0);
    assert_int_equal(open_source(text, &none), SFP_EINVAL);
    OWNED_PTR(sfp__source_close) sfp_source *other = NULL;
    assert_int_equal(open_source("synthetic:10", &other), SFP_OK);
    assert_null(sfp__source_log(other));
}

TEST(a_committed_value_is_read_as_it_was_written)
{
    const sfp__share_value v = {.file = "w.8.77.safetensors",
                                .previous = "w.7.3.safetensors",
                                .sequence = 8,
                                .samples = 1234567890123,
                                .digest = UINT64_C(0xfedcba9876543210),
                                .offset = -1};
    char text[SFP__LOG_VALUE_MAX], again[SFP__LOG_VALUE_MAX];
    sfp__share_value got;
    sfp__share_print(&v, text);
    assert_string_equal(text, "w.8.77.safetensors w.7.3.safetensors 8 1234567890123 fedcba9876543210 -1");
    assert_int_equal(sfp__share_parse(text, "w", &got, &err), SFP_OK);
    sfp__share_print(&got, again);
    assert_string_equal(text, again);
    assert_int_equal(sfp__share_parse("", "w", &got, &err), SFP_OK);
    assert_string_equal(got.file, "");
}

/* The log is written by anybody: a value must not name a file elsewhere. */
TEST(a_hostile_value_is_refused)
{
#define W "w.8.77.safetensors"
    static const char *const bad[] = {
        "w",
        W,
        "../" W " - 1 1 0 -1",
        W " ../" W " 1 1 0 -1",
        W " .. 1 1 0 -1",
        W " - 1 1 0 -1 more",
        W " - -1 1 0 -1",
        W " - 9223372036854775807 1 0 -1",
        W " - one 1 0 -1",
        "model.safetensors - 1 1 0 -1",
        W " model.safetensors 1 1 0 -1",
        W " log 1 1 0 -1",
        "v.8.77.safetensors - 1 1 0 -1",
        "w.8.77.safetensors.x - 1 1 0 -1",
        "w.8.7/7.safetensors - 1 1 0 -1",
    };
    sfp__share_value got;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sfp__share_parse(bad[i], "w", &got, &err), SFP_EFORMAT);
    assert_int_equal(sfp__share_parse(W " - 1 1 0 -1", "w", &got, &err), SFP_OK);
    assert_int_equal(sfp__share_parse("../w.1.1.safetensors - 1 1 0 -1", "../w", &got, &err), SFP_EFORMAT);
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(sfp__share_parse(text, "w", &got, &err), SFP_EFORMAT);
}

TEST(a_message_keeps_its_first_fields_and_their_digest)
{
    OWNED_PTR(sfp__message_free) sfp__message *m = NULL;
    OWNED_PTR(sfp__message_free) sfp__message *other = NULL;
    char label[3000];
    memset(label, 'l', sizeof label);
    assert_int_equal(sfp__alloc(&m, 1, sizeof *m, &err), SFP_OK);
    assert_int_equal(sfp__alloc(&other, 1, sizeof *other, &err), SFP_OK);
    assert_int_equal(sfp__message_set(m, "label", 5, label, sizeof label, &err), SFP_OK);
    assert_true(strlen(m->label) > SFP__CLASS_NAME_MAX &&
                strlen(m->label) < sizeof label); /* refused later, but not stored whole */
    assert_int_equal(sfp__message_set(m, "imag", 4, "no", 2, &err), SFP_OK);
    assert_null(m->data);
    assert_int_equal(sfp__message_set(m, "image", 5, "ab", 2, &err), SFP_OK);
    assert_int_equal(sfp__message_set(m, "features", 8, "cdef", 4, &err), SFP_OK);
    assert_true(m->size == 2 && !m->row);
    sfp__message_end(m);
    assert_int_equal(sfp__message_set(other, "image", 5, "ac", 2, &err), SFP_OK);
    sfp__message_end(other);
    assert_true(m->digest != other->digest);
}

TEST(shards_have_every_image_once)
{
    for (int n = 1; n <= 7; n += 3) {
        int total = 0, least = 1000;
        uint8_t seen[200] = {0};
        for (int i = 0; i < n; i++) {
            OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
            char text[16], name[64];
            (void)snprintf(text, sizeof text, "%d/%d", i, n);
            assert_int_equal(open_source("synthetic:200", &s), SFP_OK);
            assert_int_equal(sfp__shard_open(&s, text, &err), SFP_OK);
            for (int64_t k = 0; k < s->count; k++) {
                OWNED_PTR(sfp__source_close) sfp_source *whole = NULL;
                sfp_record a, b;
                const char *digits = strpbrk(sfp__source_name(s, k, name, sizeof name), "0123456789");
                assert_non_null(digits);
                int at = (int)strtol(digits, NULL, 10);
                assert_true(at >= 0 && at < 200 && !seen[at]);
                seen[at] = 1;
                assert_int_equal(open_source("synthetic:200", &whole), SFP_OK);
                assert_int_equal(sfp__source_record(s, k, &a, &err) | sfp__source_record(whole, at, &b, &err), SFP_OK);
                assert_int_equal(a.label, b.label);
            }
            total += (int)s->count;
            least = s->count < least ? (int)s->count : least;
        }
        assert_int_equal(total, 200);
        assert_true(least > 100 / n); /* of about the same size */
    }
}

TEST(an_empty_or_live_shard_is_refused)
{
    OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *live = NULL;
    assert_int_equal(open_source("synthetic:1", &s), SFP_OK);
    int refused = 0;
    for (int i = 0; i < 2; i++) {
        sfp_source *inner = s;
        refused += sfp__shard_open(&inner, i ? "1/2" : "0/2", &err) != SFP_OK;
        s = inner;
    }
    assert_true(refused >= 1);
    assert_int_equal(open_source("synthetic:0", &live), SFP_OK);
    assert_int_equal(sfp__shard_open(&live, "0/2", &err), SFP_EINVAL);
}
