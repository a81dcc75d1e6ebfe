/* Experiments and sweeps (streamfp.h, part 13). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "base/settings.h"
#include "base/text.h"
#include "experiment/experiment.h"
#include "experiment/sweep.h"

#include <stdio.h>
#include <string.h>

int sfp_experiment_info(int i, const char **name, const char **title, const char **question)
{
    int count;
    const sfp__experiment *list = sfp__experiments(&count);
    if (i < 0 || i >= count)
        return 0;
    if (name)
        *name = list[i].name;
    if (title)
        *title = list[i].title;
    if (question)
        *question = list[i].question;
    return 1;
}

/* "E1" names E1-select and E1-buffer, too. */
static bool is_named(const char *experiment, const char *name, size_t length)
{
    bool all = length == 3 && strncmp(name, "all", 3) == 0;
    return all || (strncmp(experiment, name, length) == 0 && (experiment[length] == '\0' || experiment[length] == '-'));
}

enum { EXPERIMENTS_MAX = 64 };

static sfp_status fail_unknown(const char *name, size_t length, sfp_error *err)
{
    const char *names[EXPERIMENTS_MAX];
    OWNED_BY(sfp__text_done) sfp__text all = {0};
    OWNED char *word = NULL;
    int count;
    const sfp__experiment *list = sfp__experiments(&count);
    for (int i = 0; i < count && i < EXPERIMENTS_MAX; i++) {
        names[i] = list[i].name;
        sfp__text_printf(&all, "%s, ", list[i].name);
    }
    TRY(sfp__check_memory(!all.failed, err));
    TRY(sfp__text_new(&word, err, "%.*s", (int)length, name));
    const char *best = sfp__nearest(word, names, (size_t)count);
    return sfp__fail_key(err, "experiment", SFP_EINVAL, "experiment is '%.60s', expected %sor all%s%s%s", word, all.s,
                         best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
}

static sfp_status find_experiments(const char *names, const sfp__experiment **chosen, int *count, sfp_error *err)
{
    int known;
    const sfp__experiment *list = sfp__experiments(&known);
    bool used[EXPERIMENTS_MAX] = {false};
    for (const char *s = names; *s;) {
        size_t n = strcspn(s, ",");
        bool found = false;
        for (int i = 0; i < known && i < EXPERIMENTS_MAX; i++) {
            if (n == 0 || !is_named(list[i].name, s, n))
                continue;
            used[i] = found = true;
        }
        if (!found)
            return fail_unknown(s, n, err);
        s += n + (s[n] == ',');
    }
    *count = 0;
    for (int i = 0; i < known && i < EXPERIMENTS_MAX; i++)
        if (used[i])
            chosen[(*count)++] = &list[i];
    return *count ? SFP_OK
                  : sfp__fail_key(err, "experiment", SFP_EINVAL, "experiment is empty, expected a name such as E3, or all");
}

/* The settings that the caller has set, as "key=value". */
static sfp_status list_settings(const sfp_settings *settings, sfp__strings *out, sfp_error *err)
{
    const sfp__args *a = settings ? sfp__api_run_args(settings) : NULL;
    if (settings && !a)
        return sfp__fail(err, SFP_EINVAL, "settings are those of a pretraining, expected those of sfp_settings_create");
    for (size_t i = 0; a && i < a->count; i++) {
        const char *key = a->opts[i].name;
        if (a->opts[i].type == SFP__OPT_GROUP || a->values[i].rank < SFP__RANK_FILE)
            continue;
        if (a->opts[i].per_run)
            return sfp__fail_key(err, key, SFP_EINVAL, "%s has no effect on an experiment, which sets it for each run", key);
        TRY(sfp__setting_print(out, err, "%s=%s", key, sfp__args_value(a, key)));
    }
    return SFP_OK;
}

static sfp_status read_options(const sfp_experiment_options *given, bool sweep, sfp_experiment_options *own,
                               sfp__lab_options *out, sfp_error *err)
{
    TRY(sfp__api_options(given, own, sizeof *own, "sfp_experiment_options", err));
    if (!own->out || !*own->out)
        return sfp__fail_key(err, "out", SFP_EINVAL, "out must name a directory");
    if (own->seeds < 0 || own->orders < -1 || own->calibrate < 0 || !(own->budget_minutes >= 0))
        return sfp__fail(err, SFP_EINVAL, "seeds, orders, calibrate and budget_minutes must not be negative");
    *out = (sfp__lab_options){.out = own->out,
                              .command = own->command,
                              .seeds = own->seeds ? own->seeds
                                       : sweep    ? 3
                                                  : 1,
                              .orders = own->orders > 0            ? own->orders
                                        : own->orders < 0 || sweep ? 0
                                                                   : 5,
                              .first_seed = 1,
                              .budget = 60 * own->budget_minutes,
                              .calibrate = own->calibrate ? own->calibrate : 20,
                              .dry_run = own->dry_run != 0,
                              .cache = own->no_cache == 0,
                              .check = own->check,
                              .paper_dataset = own->paper_dataset,
                              .api = own};
    double value, spread;
    if (own->paper_dataset && !sfp__paper_number("E2", "StreamFP", own->paper_dataset, "Acc", &value, &spread))
        return sfp__fail_key(err, "paper-data", SFP_EINVAL, "paper-data is '%s', expected Stream-51, CORe50, Clear10 or Clear100",
                             own->paper_dataset);
    if (out->seeds * (out->orders ? out->orders : 1) > SFP__REPETITIONS_MAX)
        return sfp__fail_key(err, "seeds", SFP_ELIMIT, "seeds x orders is more than %d", SFP__REPETITIONS_MAX);
    return SFP_OK;
}

/* The columns of A2: one per backbone, "NAME=FILE,NAME=FILE" or "FILE,FILE". */
static sfp_status backbone_columns(const char *text, sfp__strings *texts, sfp__variant *columns, int max, int *count,
                                   sfp_error *err)
{
    *count = 0;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, ",");
        OWNED char *entry = NULL;
        TRY(sfp__text_new(&entry, err, "%.*s", (int)n, s));
        char *equals = strchr(entry, '='), *file = equals ? equals + 1 : entry, *slash = strrchr(file, '/');
        if (*count == max || n == 0 || strchr(file, ' '))
            return sfp__fail_key(err, "backbones", SFP_EINVAL, "backbones is '%s', expected at most %d NAME=FILE without blanks",
                                 text, max);
        if (equals)
            *equals = '\0';
        TRY(sfp__strings_add(texts, equals ? entry : slash ? slash + 1 : file, err));
        OWNED char *setting = NULL;
        TRY(sfp__text_new(&setting, err, "backbone=%s", file));
        TRY(sfp__strings_add(texts, setting, err));
        columns[(*count)++] =
            (sfp__variant){.name = texts->s[texts->count - 2], .settings = texts->s[texts->count - 1], .batches = 92};
        s += n + (s[n] == ',');
    }
    return SFP_OK;
}

enum { BACKBONES_MAX = 16 };

sfp_status sfp_experiment(const char *names, const sfp_settings *settings, const sfp_experiment_options *options, char **json,
                          sfp_error *err)
{
    IN_LIBRARY;
    const sfp__experiment *chosen[EXPERIMENTS_MAX];
    OWNED_BY(sfp__strings_done) sfp__strings list = {0}, texts = {0};
    sfp__variant columns[BACKBONES_MAX];
    sfp__experiment a2;
    sfp_experiment_options own;
    sfp__lab_options lab;
    int count = 0;
    SFP__REQUIRE(names, "names");
    TRY(find_experiments(names, chosen, &count, err));
    TRY(read_options(options, false, &own, &lab, err));
    TRY(list_settings(settings, &list, err));
    lab.settings = &list;
    for (int i = 0; i < count && own.backbones; i++) {
        if (strcmp(chosen[i]->name, "A2") != 0)
            continue;
        a2 = *chosen[i];
        a2.columns = columns;
        TRY(backbone_columns(own.backbones, &texts, columns, BACKBONES_MAX, &a2.column_count, err));
        chosen[i] = &a2;
    }
    return sfp__lab_run(chosen, count, &lab, json, err);
}

sfp_status sfp_sweep(int count, const char *const *grids, const sfp_settings *settings, const sfp_experiment_options *options,
                     char **json, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(sfp__sweep_done) sfp__sweep sweep = {0};
    OWNED_BY(sfp__strings_done) sfp__strings list = {0};
    sfp_experiment_options own;
    sfp__lab_options lab;
    SFP__REQUIRE(grids, "grids");
    TRY(read_options(options, true, &own, &lab, err));
    TRY(sfp__sweep_init(&sweep, count, grids, err));
    TRY(list_settings(settings, &list, err));
    lab.settings = &list;
    const sfp__experiment *one = &sweep.experiment;
    return sfp__lab_run(&one, 1, &lab, json, err);
}
