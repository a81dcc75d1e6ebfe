#include "cli/commands/runs_groups.h"

#include "base/mem.h"
#include "run/clock.h"
#include "stream/source.h"

#include <math.h>
#include <string.h>

/* Whether runs that differ only in this option are repetitions of each other. */
static bool is_ignored(const char *key)
{
    return strcmp(key, "seed") == 0;
}

static bool is_live(const char *data)
{
    const sfp__source_kind *kind = sfp__source_kind_find(data);
    const char *path = data + strcspn(data, ":");
    bool endless = *path && path[1] && path[1 + strspn(path + 1, "0")] == '\0'; /* synthetic:0 */
    return kind && (kind->live || (endless && strcmp(kind->name, "synthetic") == 0));
}

/* Returns the clock that the run used. If --clock is not set, the rate determines it (clock.h); without a rate, only a live
 * stream can have a clock other than off. */
static const char *clock_of(const sfp_result *r)
{
    const char *given = sfp__result_value(r, "clock"), *rate = sfp__result_value(r, "rate"), *data = sfp__result_value(r, "data");
    const char *real = sfp__clock_name(SFP__CLOCK_REAL);
    bool live = data && is_live(data), rated = rate && strcmp(rate, "max") != 0;
    bool paced = live && strncmp(data, "synthetic", strlen("synthetic")) !=
                             0; /* the source has its own rate: clock real needs no --rate */
    if (given && (!rate || rated || (paced && strcmp(given, real) == 0)))
        return given;
    return !rated ? sfp__clock_name(SFP__CLOCK_OFF) : live ? real : sfp__clock_name(SFP__CLOCK_VIRTUAL);
}

const char *sfp__run_option(const sfp_result *r, const char *key)
{
    return strcmp(key, "clock") == 0 ? clock_of(r) : sfp__result_value(r, key);
}

/* true: every option of a has the same value in b. */
static bool options_equal_in(const sfp_result *a, const sfp_result *b)
{
    for (int i = 0; i < a->config_count; i++) {
        const char *key = a->config[i].key, *other = sfp__run_option(b, key);
        if (!is_ignored(key) && (!other || strcmp(other, sfp__run_option(a, key)) != 0))
            return false;
    }
    return true;
}

static void make_groups(sfp__run_groups *g)
{
    for (int i = 0; i < g->n; i++) {
        int k = 0;
        const sfp_result *r = &g->runs[i].result;
        while (k < g->count &&
               !(options_equal_in(r, &g->runs[g->first[k]].result) && options_equal_in(&g->runs[g->first[k]].result, r)))
            k++;
        if (k == g->count)
            g->first[g->count++] = i;
        g->of[i] = k;
    }
}

/* A finished run is newer than an unfinished one; then the later start time decides, then the later position on the command
 * line. */
static bool is_newer(const sfp__run_groups *g, int i, int than)
{
    const sfp_result *a = &g->runs[i].result, *b = &g->runs[than].result;
    int order = a->finished != b->finished ? a->finished - b->finished : strcmp(a->started, b->started);
    return order > 0 || (order == 0 && i > than);
}

static void exclude_older(sfp__run_groups *g)
{
    for (int i = 0; i < g->n; i++) {
        g->excluded[i] = false;
        for (int k = 0; k < g->n && !g->excluded[i]; k++)
            g->excluded[i] = g->of[k] == g->of[i] && g->runs[k].result.seed == g->runs[i].result.seed && is_newer(g, k, i);
    }
}

int sfp__run_groups_excluded(const sfp__run_groups *g)
{
    int count = 0;
    for (int i = 0; i < g->n; i++)
        count += g->excluded[i];
    return count;
}

bool sfp__run_groups_use(const sfp__run_groups *g, int i, int k)
{
    return g->of[i] == k && !g->excluded[i];
}

int sfp__run_groups_values(const sfp__run_groups *g, int k, const sfp__result_field *number)
{
    int count = 0;
    for (int i = 0; i < g->n; i++) {
        double x = sfp__run_groups_use(g, i, k) ? sfp__result_field_value(number, &g->runs[i].result) : NAN;
        if (isfinite(x))
            g->x[count++] = x;
    }
    return count;
}

bool sfp__run_groups_show(const sfp__run_groups *g, const sfp__result_field *number)
{
    for (int i = 0; i < g->n; i++)
        if (!g->excluded[i] && sfp__result_field_shown(number, &g->runs[i].result))
            return true;
    return false;
}

void sfp__run_groups_differing(const sfp__run_groups *g, void (*fn)(const sfp__run_groups *g, const char *key, void *ctx),
                               void *ctx)
{
    for (int k = 0; k < g->count; k++) {
        const sfp_result *r = &g->runs[g->first[k]].result;
        for (int i = 0; i < r->config_count; i++) {
            const char *key = r->config[i].key;
            bool seen = is_ignored(key), same = true;
            for (int m = 0; m < g->count; m++) {
                const sfp_result *of = &g->runs[g->first[m]].result;
                const char *other = sfp__run_option(of, key);
                seen = seen || (m < k && sfp__result_value(of, key));
                same = same && other && strcmp(other, sfp__run_option(r, key)) == 0;
            }
            if (!seen && !same)
                fn(g, key, ctx);
        }
    }
}

bool sfp__run_groups_chosen(const sfp__run_groups *g, int k, const char *key)
{
    const sfp_result *r = &g->runs[g->first[k]].result;
    for (int i = 0; i < r->config_count; i++)
        if (strcmp(r->config[i].key, key) == 0)
            return !sfp__config_base(&r->config[i]) || sfp__config_differs(&r->config[i]);
    return false;
}

/* true: the option is a preset, or the user of a run has set it to another value than its preset has. */
static bool is_naming(const sfp__run_groups *g, const char *key)
{
    bool names = strcmp(key, "preset") == 0;
    for (int k = 0; k < g->count && !names; k++)
        names = sfp__run_groups_chosen(g, k, key);
    return names;
}

typedef struct naming {
    sfp__strings *keys;
    bool all; /* also options that are not naming */
    sfp_status status;
} naming;

static void add_naming(const sfp__run_groups *g, const char *key, void *ctx)
{
    naming *n = ctx;
    if (!n->status && (n->all || is_naming(g, key)))
        n->status = sfp__strings_add(n->keys, key, NULL);
}

/* true: groups k and m have the same values of these options. */
static bool look_alike(const sfp__run_groups *g, const sfp__strings *keys, int k, int m)
{
    for (int i = 0; i < keys->count; i++)
        if (strcmp(sfp__run_groups_option(g, k, keys->s[i]), sfp__run_groups_option(g, m, keys->s[i])) != 0)
            return false;
    return true;
}

sfp_status sfp__run_groups_naming(const sfp__run_groups *g, sfp__strings *keys, sfp_error *err)
{
    naming n = {.keys = keys};
    bool alike = false;
    sfp__run_groups_differing(g, add_naming, &n);
    for (int k = 0; k < g->count; k++)
        for (int m = 0; m < k; m++)
            alike = alike || look_alike(g, keys, k, m);
    if (alike) {
        sfp__strings_done(keys);
        *keys = (sfp__strings){0};
        n.all = true;
        sfp__run_groups_differing(g, add_naming, &n);
    }
    return sfp__check_memory(!n.status, err);
}

bool sfp__run_groups_unfinished(const sfp__run_groups *g, int k)
{
    for (int i = 0; i < g->n; i++)
        if (sfp__run_groups_use(g, i, k) && !g->runs[i].result.finished)
            return true;
    return false;
}

const char *sfp__run_groups_option(const sfp__run_groups *g, int k, const char *key)
{
    const char *value = sfp__run_option(&g->runs[g->first[k]].result, key);
    return value && *value ? value : "-";
}

sfp_status sfp__run_groups_init(sfp__run_groups *g, int n, const sfp__named_run *runs, sfp_error *err)
{
    *g = (sfp__run_groups){.n = n, .runs = runs};
    size_t count = (size_t)n;
    const sfp__want list[] = {{&g->of, count, sizeof *g->of},
                              {&g->first, count, sizeof *g->first},
                              {&g->excluded, count, sizeof *g->excluded},
                              {&g->x, count, sizeof *g->x}};
    TRY(sfp__block(&g->block, SFP__LIST(list), err));
    make_groups(g);
    exclude_older(g);
    return SFP_OK;
}

void sfp__run_groups_done(sfp__run_groups *g)
{
    sfp__free(g->block);
}
