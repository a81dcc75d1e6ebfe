/* The examples of docs/extending.md, built and tested as the guide says; and that the guide shows exactly this code. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer/buffer.h"
#include "select/select_internal.h"

/* ------------------------------------------------------------ select_margin.c */

extern const sfp__selector sfp__selector_margin;

/* Margin sampling: the samples between whose two most probable classes there is the least. Draws no random number; b*C + b*log(b)
 * operations. */
static float margin(int classes, const float *p)
{
    float first = -INFINITY, second = -INFINITY;
    for (int c = 0; c < classes; c++) {
        second = fmaxf(second, fminf(first, p[c]));
        first = fmaxf(first, p[c]);
    }
    return first - second;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    const sfp__matrix probs = {batch->probs, batch->classes};
    sfp__candidates from;
    bool whole = false;
    TRY(sfp__select_begin(&sfp__selector_margin, batch, opt, env, 1, &probs, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    int *order, got = from.c < from.n ? from.c : from.n;
    float *score;
    const sfp__want list[] = {{&order, (size_t)from.n, sizeof *order}, {&score, (size_t)from.n, sizeof *score}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    for (int i = 0; i < from.n; i++)
        score[i] = -margin(batch->classes, batch->probs + (size_t)from.id[i] * (size_t)batch->classes);
    sfp__rank_descending(from.n, score, order);
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, order, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_margin = {
    .name = "margin",
    .summary = "the least sure of its two best classes",
    .needs = SFP__NEED_PROBS,
    .pick = pick,
};

/* -------------------------------------------------------------- buffer_fifo.c */

/* First in, first out: the newest samples replace the oldest slots. Draws no random number. */
static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    (void)rng;
    (void)err;
    int m = b->opt.slots, stored = sfp__buffer_fill(b, batch), nu = 0;
    for (int i = stored; i < batch->b; i++) {
        int slot = (int)(b->seen++ % (uint64_t)m);
        if (batch->b - i > m)
            continue; /* a later one of this batch would push it out */
        sfp__buffer_put(b, slot, batch, i);
        b->retained[nu] = i;
        b->replaced[nu++] = slot;
    }
    change->stored = stored;
    change->nu = nu;
    return SFP_OK;
}

static const sfp__buffer_method fifo = {.name = "fifo", .summary = "the newest samples", .update = update};

/* ---------------------------------------------------------------------- tests */

#include "buffer_batch.h"
#include "select_case.h"
#include "test.h"

TEST(margin_takes_the_least_sure)
{
    const float probs[] = {0.9f, 0.05f, 0.05f, 0.5f, 0.4f, 0.1f, 0.34f, 0.33f, 0.33f, 0.6f, 0.3f, 0.1f, NAN, 0.5f, 0.5f};
    const sfp__select_batch batch = {.b = 5, .classes = 3, .probs = probs};
    const sfp__select_options opt = {.sigma = 0.6};
    sfp__arena arena = {0};
    const sfp__select_env env = {.arena = &arena};
    int out[5], count = 0;
    MUST(sfp__selector_margin.pick(&batch, &opt, &env, out, NULL, &count, NULL));
    assert_int_equal(count, 3);
    assert_memory_equal(out, ((int[]){2, 1, 3}), 3 * sizeof *out);
    sfp__arena_done(&arena);
}

TEST(fifo_keeps_the_newest)
{
    sfp__buffer_options o = sfp__buffer_options_defaults();
    o.slots = 4;
    o.dim = 3;
    o.image_bytes = 8;
    o.method = "er";
    sfp__buffer *b = NULL;
    MUST(sfp__buffer_create(&o, 10, &b, NULL));
    b->method = &fifo; /* what a row in the table does */
    uint64_t next = 100;
    for (int round = 0; round < 12; round++) {
        int n = 1 + round * 5 % 10;
        test_batch x = batch_make(n, 3, 8, next, (uint64_t)round);
        next += (uint64_t)n;
        MUST(sfp__buffer_update(b, &x.view, NULL, NULL, NULL));
        for (int i = 0; i < b->filled; i++)
            assert_in_range(b->slot[i].id, next > 104 ? next - 4 : 100, next - 1);
    }
    sfp__buffer_free(b);
}

static char *whole_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot open (tests run in the source root)", path);
    char *text = kept_calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    (void)fclose(f);
    return text;
}

TEST(the_guide_shows_this_code)
{
    char *guide = whole_file("docs/extending.md"), *code = whole_file("tests/unit/test_extending.c");
    int blocks = 0;
    for (char *at = strstr(guide, "```c\n"); at; at = strstr(at, "```c\n"), blocks++) {
        char *begin = at + strlen("```c\n"), *end = strstr(begin, "```");
        assert_non_null(end);
        *end = '\0';
        if (!strstr(code, begin))
            fail_msg("docs/extending.md shows code that is not in this file:\n%s", begin);
        at = end + 1;
    }
    assert_true(blocks >= 2);
}
