/* buffer.json: buffer updates with their random numbers given (SPEC section 7), each with one right answer. */
#include "verify.h"

#include "base/mem.h"
#include "buffer/buffer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A list of `n` numbers; false when it is none. */
static bool doubles(json_t *from, const char *key, size_t n, double *out)
{
    json_t *list = json_object_get(from, key);
    if (!json_is_array(list) || json_array_size(list) < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(list, i);
        if (!json_is_number(v))
            return false;
        out[i] = json_number_value(v);
    }
    return true;
}

static bool same_list(json_t *from, const char *key, const int *found, int n)
{
    json_t *list = json_object_get(from, key);
    bool same = json_is_array(list) && json_array_size(list) == (size_t)n;
    for (int i = 0; same && i < n; i++)
        same = json_integer_value(json_array_get(list, (size_t)i)) == found[i];
    return same;
}

/* One update; *right tells whether all four answers are the expected ones. */
static sfp_status check_update(const char *path, size_t index, json_t *c, bool *right, sfp_error *err)
{
    enum { MOST = 1 << 20 };
    json_int_t m = json_integer_value(json_object_get(c, "m")), b = json_integer_value(json_object_get(c, "b"));
    json_int_t seen = json_integer_value(json_object_get(c, "n_seen"));
    const char *drop = json_string_value(json_object_get(c, "drop_rule"));
    if (m < 1 || m > MOST || b < 1 || b > MOST || seen < 0 || !drop)
        return sfp__fail(err, SFP_EFORMAT, "%s: update %zu: m, b, n_seen or drop_rule is missing or out of range", path, index);
    size_t have = (size_t)(m < seen + b ? m : seen + b), n = (size_t)(b > m ? b : m), nb = (size_t)b;
    double *room = sfp__calloc(4 * nb + 2 * n + have, sizeof *room);
    float *score = sfp__calloc(nb + n, sizeof *score);
    int *ints = sfp__calloc(2 * n + 2 * nb, sizeof *ints);
    sfp_status s = room && score && ints ? SFP_OK : sfp__fail_nomem(err);
    if (!s) {
        double *u_nu = room, *u_batch = u_nu + nb, *u_buffer = u_batch + nb, *sb = u_buffer + nb, *sm = sb + nb,
               *work = sm + have;
        if (!doubles(c, "S_batch", nb, sb) || !doubles(c, "S_buffer", have, sm) || !doubles(c, "u_nu", nb, u_nu) ||
            !doubles(c, "u_batch", nb, u_batch) || !doubles(c, "u_buffer", nb, u_buffer))
            s = sfp__fail(err, SFP_EFORMAT, "%s: update %zu: a list of numbers is missing or short", path, index);
        for (size_t i = 0; i < nb; i++)
            score[i] = (float)sb[i];
        for (size_t i = 0; i < have; i++)
            score[nb + i] = (float)sm[i];
        int *iwork = ints, *retained = ints + 2 * n, *replaced = retained + nb;
        sfp_buffer_plan plan = {0};
        if (!s) {
            sfp__buffer_plan((uint64_t)seen, (int)m, (int)b, score, score + nb, u_nu, u_batch, u_buffer,
                             strcmp(drop, "eq8") == 0 ? SFP_DROP_EQ8 : SFP_DROP_ALG2, SFP_NU_AT_LEAST_ONE, iwork, work, retained,
                             replaced, &plan);
            *right = plan.stored == json_integer_value(json_object_get(c, "stored")) &&
                     plan.nu == json_integer_value(json_object_get(c, "nu")) && same_list(c, "retained", retained, plan.nu) &&
                     same_list(c, "replaced", replaced, plan.nu);
        }
    }
    sfp__free(room);
    sfp__free(score);
    sfp__free(ints);
    return s;
}

sfp_status sfp__verify_buffer(sfp_verify *r, const char *path, sfp_error *err)
{
    json_error_t where;
    json_t *list = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (!list)
        return sfp__fail(err, SFP_EFORMAT, "%s:%d: %s", path, where.line, where.text);
    sfp_status s = SFP_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        s = sfp__fail(err, SFP_EFORMAT, "%s: expected a list of buffer updates", path);
    for (size_t i = 0; !s && i < json_array_size(list); i++) {
        json_t *c = json_array_get(list, i);
        bool right = false;
        char name[96];
        s = check_update(path, i, c, &right, err);
        (void)snprintf(name, sizeof name, "update %zu %s", i, s ? "" : json_string_value(json_object_get(c, "drop_rule")));
        if (!s)
            sfp__verify_line(r, name, right ? 0 : INFINITY, 0);
    }
    json_decref(list);
    return s;
}
