/* buffer.json: buffer updates with given random numbers (docs/method.md, section 7). Each has exactly one right result. */
#include "verify.h"

#include "base/mem.h"
#include "buffer/buffer.h"
#include "io/json_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads a list of `n` numbers; false if there is none. */
static bool doubles(const sfp__json_value *from, const char *key, size_t n, double *out)
{
    const sfp__json_value *list = sfp__json_get(from, key);
    if (!sfp__json_is(list, SFP__JSON_ARRAY) || sfp__json_size(list) < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *v = sfp__json_at(list, i);
        if (!sfp__json_is_number(v))
            return false;
        out[i] = sfp__json_number(v);
    }
    return true;
}

static bool same_list(const sfp__json_value *from, const char *key, const int *found, int n)
{
    const sfp__json_value *list = sfp__json_get(from, key);
    bool same = sfp__json_is(list, SFP__JSON_ARRAY) && sfp__json_size(list) == (size_t)n;
    for (int i = 0; same && i < n; i++)
        same = sfp__json_integer(sfp__json_at(list, (size_t)i)) == found[i];
    return same;
}

/* Checks one update: all four results must be the expected ones. */
static sfp_status check_update(sfp__verify *r, const char *path, size_t index, const sfp__json_value *c, sfp_error *err)
{
    enum { MOST = 1 << 20 };
    int64_t m = sfp__json_integer(sfp__json_get(c, "m")), b = sfp__json_integer(sfp__json_get(c, "b"));
    int64_t seen = sfp__json_integer(sfp__json_get(c, "n_seen"));
    const char *drop = sfp__json_text(sfp__json_get(c, "drop_rule"));
    if (m < 1 || m > MOST || b < 1 || b > MOST || seen < 0 || !drop)
        return sfp__fail(err, SFP_EFORMAT, "%s: update %zu: m, b, n_seen or drop_rule is missing or out of range", path, index);
    size_t have = (size_t)(m < seen + b ? m : seen + b), n = (size_t)(b > m ? b : m), nb = (size_t)b;
    double *u_nu, *u_batch, *u_buffer, *sb, *sm, *work;
    float *score;
    int *iwork, *retained, *replaced;
    const sfp__want list[] = {{&u_nu, nb, sizeof *u_nu},         {&u_batch, nb, sizeof *u_batch},
                              {&u_buffer, nb, sizeof *u_buffer}, {&sb, nb, sizeof *sb},
                              {&sm, have, sizeof *sm},           {&work, 2 * n, sizeof *work},
                              {&score, nb + n, sizeof *score},   {&iwork, 2 * n, sizeof *iwork},
                              {&retained, nb, sizeof *retained}, {&replaced, nb, sizeof *replaced}};
    OWNED void *block = NULL;
    TRY(sfp__block_cleared(&block, SFP__LIST(list), err));
    if (!doubles(c, "S_batch", nb, sb) || !doubles(c, "S_buffer", have, sm) || !doubles(c, "u_nu", nb, u_nu) ||
        !doubles(c, "u_batch", nb, u_batch) || !doubles(c, "u_buffer", nb, u_buffer))
        return sfp__fail(err, SFP_EFORMAT, "%s: update %zu: a list of numbers is missing or short", path, index);
    for (size_t i = 0; i < nb; i++)
        score[i] = (float)sb[i];
    for (size_t i = 0; i < have; i++)
        score[nb + i] = (float)sm[i];
    sfp__buffer_plan plan = {0};
    sfp__buffer_decide((uint64_t)seen, (int)m, (int)b, score, score + nb, u_nu, u_batch, u_buffer,
                       strcmp(drop, "eq8") == 0 ? SFP__DROP_EQ8 : SFP__DROP_ALG2, iwork, work, retained, replaced, &plan);
    bool right = plan.stored == sfp__json_integer(sfp__json_get(c, "stored")) &&
                 plan.nu == sfp__json_integer(sfp__json_get(c, "nu")) && same_list(c, "retained", retained, plan.nu) &&
                 same_list(c, "replaced", replaced, plan.nu);
    char name[96];
    (void)snprintf(name, sizeof name, "update %zu %s", index, drop);
    sfp__verify_line(r, name, right ? 0 : INFINITY, 0);
    return SFP_OK;
}

sfp_status sfp__verify_buffer(sfp__verify *r, const char *path, sfp_error *err)
{
    OWNED sfp__json_value *list = NULL;
    TRY(sfp__json_read(path, 1 << 28, &list, err));
    if (!sfp__json_is(list, SFP__JSON_ARRAY) || sfp__json_size(list) == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: expected a list of buffer updates", path);
    for (size_t i = 0; i < sfp__json_size(list); i++)
        TRY(check_update(r, path, i, sfp__json_at(list, i), err));
    return SFP_OK;
}
