/* Parsing, storing and printing settings (settings.h). An error message names the setting, its value and the values that are expected. */
#include "base/settings.h"

#include "base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- numbers */

bool sfp__parse_int(const char *text, int64_t *out)
{
    if (!(isdigit((unsigned char)text[0]) || ((text[0] == '-' || text[0] == '+') && isdigit((unsigned char)text[1]))))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}

bool sfp__parse_real(const char *text, double *out)
{
    /* strtod also accepts blanks, hexadecimal, "inf" and "nan", which are not values of settings */
    if (text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || (errno == ERANGE && fabs(value) > 1))
        return false;
    *out = value;
    return true;
}

bool sfp__same_number(const char *a, const char *b)
{
    double x, y; /* a double represents 15 digits exactly; longer numbers are compared as text */
    return strlen(a) < 16 && strlen(b) < 16 && sfp__parse_real(a, &x) && sfp__parse_real(b, &y) && !(x < y || x > y);
}

/* ------------------------------------------------------------- suggestions */

/* Optimal string alignment: insert, delete, replace and swap of neighbours cost 1 each. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > SFP__KEY_LENGTH_MAX || m > SFP__KEY_LENGTH_MAX)
        return SFP__KEY_LENGTH_MAX;
    int d[3][SFP__KEY_LENGTH_MAX + 1]; /* rows i-2, i-1, i, by i modulo 3 */
    for (int j = 0; j <= m; j++)
        d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = d[i % 3];
        const int *one = d[(i + 2) % 3], *two = d[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = one[j - 1] + (a[i - 1] != b[j - 1]);
            if (one[j] + 1 < best)
                best = one[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            now[j] = best;
        }
    }
    return d[n % 3][m];
}

const char *sfp__nearest(const char *word, const char *const *names, size_t count)
{
    size_t length = strlen(word);
    const char *best = NULL;
    int best_distance = 1 + (int)(length > 2 ? length / 3 : 0); /* maximum distance of a typing error */
    for (size_t i = 0; i < count; i++) {
        if (!names[i])
            continue;
        int distance = length >= 3 && strncmp(word, names[i], length) == 0 ? 1 : edit_distance(word, names[i]);
        if (distance <= best_distance && (!best || distance < best_distance)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

/* Writes the name in lower case without blanks to `folded`, and only its digits to `digits`; false: it is too long. */
static bool fold(const char *name, char folded[SFP__KEY_LENGTH_MAX + 1], char digits[SFP__KEY_LENGTH_MAX + 1])
{
    size_t n = 0, d = 0;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (isspace(c))
            continue;
        if (n == SFP__KEY_LENGTH_MAX)
            return false;
        folded[n++] = (char)tolower(c);
        if (isdigit(c))
            digits[d++] = (char)c;
    }
    folded[n] = digits[d] = '\0';
    return true;
}

bool sfp__resembles(const char *a, const char *b)
{
    enum { LETTERS_MIN = 4 };
    char x[SFP__KEY_LENGTH_MAX + 1], y[SFP__KEY_LENGTH_MAX + 1], i[SFP__KEY_LENGTH_MAX + 1], j[SFP__KEY_LENGTH_MAX + 1];
    if (!fold(a, x, i) || !fold(b, y, j) || strcmp(i, j) != 0)
        return false;
    size_t digits = strlen(i);
    bool is_long = strlen(x) >= digits + LETTERS_MIN && strlen(y) >= digits + LETTERS_MIN;
    return strcmp(x, y) == 0 || (is_long && edit_distance(x, y) <= 1);
}

/* ------------------------------------------------------------------ values */

bool sfp__same_key(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        char x = *a == '_' ? '-' : *a, y = *b == '_' ? '-' : *b;
        if (x != y)
            return false;
    }
    return *a == *b;
}

const sfp__opt *sfp__opt_find(const sfp__opt *rows, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].type != SFP__OPT_GROUP && sfp__same_key(rows[i].name, key))
            return &rows[i];
    return NULL;
}

const sfp__opt *sfp__args_find(const sfp__args *a, const char *key)
{
    return sfp__opt_find(a->opts, a->count, key);
}

int sfp__word_index(const char *words, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *w = words;; index++) {
        size_t n = strcspn(w, "|");
        if (n == length && memcmp(w, text, n) == 0)
            return index;
        if (w[n] == '\0')
            return -1;
        w += n + 1;
    }
}

const char *sfp__word_at(const char *words, int i, char *buf, size_t size)
{
    for (; i > 0 && *words; i--) {
        words += strcspn(words, "|");
        words += *words == '|';
    }
    (void)snprintf(buf, size, "%.*s", (int)strcspn(words, "|"), words);
    return buf;
}

static bool flag_value(const char *text, bool *out)
{
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

/* Finds the text among the words that another part of the program lists. */
static sfp_status find_word(const sfp__opt *o, const char *text, const char *origin, int *out, sfp_error *err)
{
    char all[512] = "";
    size_t used = 0;
    const char *word;
    for (int i = 0; (word = o->word(i)); i++) {
        if (strcmp(word, text) == 0) {
            *out = i;
            return SFP_OK;
        }
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", word);
    }
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected one of %s", origin, text, all);
}

/* Fails with "WHERE is 'TEXT', expected a whole number from 1 to 100, or off". */
static sfp_status fail_number(const sfp__opt *o, const char *text, const char *origin, sfp_error *err)
{
    char most[32] = "";
    if (o->max < 1e18) /* not the limit of the type */
        (void)snprintf(most, sizeof most, " to %.15g", o->max);
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%.80s', expected %s from %.15g%s%s%s", origin, text,
                         o->type == SFP__OPT_REAL ? "a number" : "a whole number", o->min, most, o->named.word ? ", or " : "",
                         o->named.word ? o->named.word : "");
}

/* Parses a whole number, also one like 1e6. */
static bool parse_whole(const char *text, int64_t *out)
{
    double x;
    if (sfp__parse_int(text, out))
        return true;
    if (!sfp__parse_real(text, &x) || x > floor(x) || fabs(x) > 9e15)
        return false;
    *out = (int64_t)x;
    return true;
}

static sfp_status parse_number(const sfp__opt *o, const char *text, const char *origin, sfp__value *v, sfp_error *err)
{
    bool real = o->type == SFP__OPT_REAL, named = o->named.word && strcmp(text, o->named.word) == 0;
    double x = o->named.number;
    int64_t n = (int64_t)x;
    if (!named) {
        bool fine = real ? sfp__parse_real(text, &x) : parse_whole(text, &n);
        x = real ? x : (double)n;
        if (!fine || x < o->min || x > o->max)
            return fail_number(o, text, origin, err);
    }
    if (real)
        v->real = x;
    else
        v->integer = n;
    return SFP_OK;
}

static sfp_status parse_range(const sfp__opt *o, const char *text, const char *origin, sfp__value *v, sfp_error *err)
{
    int a, b, used = 0;
    if (sscanf(text, "%d-%d%n", &a, &b, &used) != 2 || text[used] || a < o->min || b < a || b > o->max)
        return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%.80s', expected two numbers from %g to %g, such as 0-4", origin,
                             text, o->min, o->max);
    v->range[0] = a;
    v->range[1] = b;
    return SFP_OK;
}

static sfp_status check_text(const sfp__opt *o, const char *text, const char *origin, sfp_error *err)
{
    sfp_error found = {0};
    sfp_status status = o->check(o, text, &found);
    if (status && *found.key)
        sfp__fail_rename(&found, o->name, origin);
    if (status && err)
        *err = found;
    return status;
}

#define BY_COMPARE "0.12", "use 'streamfp compare', which writes LaTeX, Markdown, CSV, HTML and SVG"

/* Settings and words of them that were removed, in which version, and what to use instead. A key is that of a run, or "COMMAND OPTION". */
static const struct removed {
    const char *key, *word, *version, *instead; /* word NULL: the whole setting */
} removed[] = {
    {"head", NULL, "0.9", "use preset paper for the trained linear head, or method NAME for a closed-form head"},
    {"head-feed", NULL, "0.9", "use preset best, whose head learns from every sample that it queries"},
    {"mix-by", NULL, "0.9", "use preset best, which has one head and no mixture"},
    {"preset", "default", "0.9", "use best, or paper to train fingerprints"},
    {"preset", "fast", "0.9", "use best, which has the same settings"},
    {"preset", "authors", "0.9", "use paper with drop-rule eq8 and attune-topk 2"},
    {"triage", NULL, "0.11", "use preset best with allocate adaptive, which chooses among all samples that wait"},
    {"controller", NULL, "0.11", "use preset best with allocate adaptive, whose lag is bounded"},
    {"near-future", NULL, "0.11", "predictions.jsonl and events.jsonl have the predictions and labels of a run"},
    {"forgetting", NULL, "0.11", "no setting replaces it: the forgetting of a task is always reported, even if negative"},
    {"coreset-rounding", NULL, "0.11", "a coreset has exactly sigma times the samples of a batch"},
    {"learnloss-order", NULL, "0.11", "learnloss chooses the highest predicted losses"},
    {"craig-cords", NULL, "0.11", "craig chooses from the whole batch"},
    {"buffer-bytes", NULL, "0.11", "use buffer-size, the number of slots"},
    {"buffer-format", NULL, "0.11", "the buffer stores pixels"},
    {"nu", NULL, "0.11", "at least one slot is replaced per batch"},
    {"aser-retrieve", NULL, "0.11", "aser replays by Shapley values"},
    {"ssd-schedule", NULL, "0.11", "ssd optimises every 3 batches with a window of 32"},
    {"query-pass", NULL, "0.11", "queries have a pass of their own"},
    {"answer", NULL, "0.11", "predictions are among the classes seen"},
    {"drift", "ph", "0.11", "use new-class"},
    {"slda", NULL, "0.12", "slda is computed exactly, from sums over samples"},
    {"shrinkage", NULL, "0.12", "the shrinkage of slda is estimated from the samples"},
    {"allocate", "queries", "0.9", "use adaptive, which never trains"},
    {"pretrain picture-size", NULL, "0.12", "use crop-size"},
    {"pretrain score-pictures", NULL, "0.12", "use score-images"},
    {"runs latex", NULL, BY_COMPARE},
    {"runs csv", NULL, BY_COMPARE},
    {"runs markdown", NULL, BY_COMPARE},
    {"runs html", NULL, BY_COMPARE},
    {"runs plot", NULL, BY_COMPARE},
};

/* Returns the row of a setting (word NULL) or of a word; NULL: it was not removed. */
static const struct removed *find_removed(const char *key, const char *word)
{
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (sfp__same_key(removed[i].key, key) &&
            (word ? removed[i].word && strcmp(removed[i].word, word) == 0 : !removed[i].word))
            return &removed[i];
    return NULL;
}

sfp_status sfp__opt_parse(const sfp__opt *o, const char *text, const char *origin, sfp__value *v, sfp_error *err)
{
    switch (o->type) {
    case SFP__OPT_FLAG:
        if (!flag_value(text, &v->flag))
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected on or off", origin, text);
        break;
    case SFP__OPT_INT:
    case SFP__OPT_REAL:
        return parse_number(o, text, origin, v, err);
    case SFP__OPT_RANGE:
        return parse_range(o, text, origin, v, err);
    case SFP__OPT_CHOICE:
        v->choice = sfp__word_index(o->arg, text);
        if (v->choice < 0) {
            const struct removed *was = find_removed(o->name, text);
            return was ? sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', which was removed in version %s; %s", origin, text,
                                       was->version, was->instead)
                       : sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected one of %s", origin, text, o->arg);
        }
        break;
    case SFP__OPT_STRING:
    case SFP__OPT_PAIR:
        if (text[0] == '\0')
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is empty, expected %s", origin, o->arg);
        if (o->word)
            return find_word(o, text, origin, &v->choice, err);
        if (o->check)
            return check_text(o, text, origin, err);
        break;
    case SFP__OPT_GROUP:
        break;
    }
    return SFP_OK;
}

static sfp_status assign(sfp__args *a, const sfp__opt *o, const char *text, sfp__opt_rank rank, const char *origin,
                         sfp_error *err)
{
    sfp__value fresh = {.rank = rank}, *v = &a->values[o - a->opts];
    TRY(sfp__opt_parse(o, text, origin, &fresh, err));
    if (rank < v->rank)
        return SFP_OK;
    OWNED char *copy = sfp__strdup(text), *from = rank > SFP__RANK_DEFAULT ? sfp__strdup(origin) : NULL;
    TRY(sfp__check_memory(copy && (from || rank <= SFP__RANK_DEFAULT), err));
    fresh.text = TAKE(copy);
    fresh.origin = TAKE(from);
    sfp__free(v->text);
    sfp__free(v->origin);
    *v = fresh;
    return SFP_OK;
}

sfp_status sfp__args_init(sfp__args *a, const char *command, const sfp__opt *opts, size_t count, sfp_error *err)
{
    *a = (sfp__args){.command = command, .opts = opts, .count = count};
    TRY(sfp__alloc(&a->values, count, sizeof *a->values, err));
    sfp_status s = SFP_OK;
    for (size_t i = 0; !s && i < count; i++) {
        if (opts[i].type == SFP__OPT_CHOICE)
            a->values[i].choice = -1;
        if (opts[i].default_value)
            s = assign(a, &opts[i], opts[i].default_value, SFP__RANK_DEFAULT, opts[i].name, err);
    }
    if (s)
        sfp__args_done(a);
    return s;
}

void sfp__args_done(sfp__args *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->values && i < a->count; i++) {
        sfp__free(a->values[i].text);
        sfp__free(a->values[i].origin);
    }
    sfp__free(a->values);
    sfp__free(a->operands);
    memset(a, 0, sizeof *a);
}

sfp_status sfp__args_copy(const sfp__args *a, sfp__args *to, sfp_error *err)
{
    OWNED_BY(sfp__args_done) sfp__args copy = {.command = a->command, .opts = a->opts, .count = a->count};
    TRY(sfp__alloc(&copy.values, a->count, sizeof *copy.values, err));
    for (size_t i = 0; i < a->count; i++) {
        const sfp__value *v = &a->values[i];
        copy.values[i] = *v;
        copy.values[i].text = v->text ? sfp__strdup(v->text) : NULL;
        copy.values[i].origin = v->origin ? sfp__strdup(v->origin) : NULL;
        TRY(sfp__check_memory(!v->text == !copy.values[i].text && !v->origin == !copy.values[i].origin, err));
    }
    *to = TAKE(copy);
    return SFP_OK;
}

sfp_status sfp__args_clear_rank(sfp__args *a, sfp__opt_rank rank, sfp_error *err)
{
    for (size_t i = 0; i < a->count; i++) {
        const sfp__opt *o = &a->opts[i];
        sfp__value *v = &a->values[i], before = *v;
        if (v->rank != rank || o->type == SFP__OPT_GROUP)
            continue;
        *v = (sfp__value){.choice = o->type == SFP__OPT_CHOICE ? -1 : 0};
        sfp_status status = o->default_value ? assign(a, o, o->default_value, SFP__RANK_DEFAULT, o->name, err) : SFP_OK;
        if (status) {
            *v = before;
            return status;
        }
        sfp__free(before.text);
        sfp__free(before.origin);
    }
    return SFP_OK;
}

/* Fails with the message for a name that is not in the table. */
sfp_status sfp__args_unknown(const sfp__args *a, const char *what, const char *dashes, const char *name, sfp_error *err)
{
    const char *best = NULL;
    char key[2 * SFP__KEY_LENGTH_MAX] = "";
    bool of_run = sfp__args_find(a, "preset");
    (void)snprintf(key, sizeof key, "%s%s%s", of_run || !a->command ? "" : a->command, of_run ? "" : " ", name);
    const struct removed *was = find_removed(key, NULL);
    if (was)
        return sfp__fail(err, SFP_EINVAL, "%s '%s%s' was removed in version %s; %s", what, dashes, name, was->version,
                         was->instead);
    const char **names = sfp__calloc(a->count + 1, sizeof *names);
    if (names) {
        for (size_t i = 0; i < a->count; i++)
            names[i] =
                a->opts[i].type == SFP__OPT_GROUP || (!*dashes && a->opts[i].type == SFP__OPT_PAIR) ? NULL : a->opts[i].name;
        names[a->count] = *dashes ? "help" : NULL;
        best = sfp__nearest(name, names, a->count + 1);
        sfp__free(names);
    }
    if (best)
        return sfp__fail(err, SFP_EINVAL, "unknown %s '%s%s', did you mean '%s%s'?", what, dashes, name, dashes, best);
    return sfp__fail(err, SFP_EINVAL, "unknown %s '%s%s'", what, dashes, name);
}

sfp_status sfp__args_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err)
{
    const sfp__opt *o = sfp__args_find(a, key);
    return o && o->type != SFP__OPT_PAIR ? assign(a, o, text, rank, origin, err) : sfp__args_unknown(a, "key", "", key, err);
}

sfp_status sfp__args_set_assignment(sfp__args *a, const char *pair, sfp__opt_rank rank, sfp_error *err)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return sfp__fail(err, SFP_EINVAL, "'%s' is not of the form key=value", pair);
    char key[SFP__KEY_LENGTH_MAX + 1];
    size_t n = (size_t)(equals - pair);
    if (n > SFP__KEY_LENGTH_MAX)
        return sfp__fail(err, SFP_EINVAL, "unknown key '%.*s...'", SFP__KEY_LENGTH_MAX, pair);
    memcpy(key, pair, n);
    key[n] = '\0';
    return sfp__args_set(a, key, equals + 1, rank, key, err);
}

/* ------------------------------------------------------------------ lookup */

static const sfp__value *get(const sfp__args *a, const char *key, int type)
{
    const sfp__opt *o = sfp__args_find(a, key);
    assert(o && "no such key in the option table");
    assert(type < 0 || (int)o->type == type);
    (void)type;
    return &a->values[o - a->opts];
}

bool sfp__args_flag(const sfp__args *a, const char *key)
{
    return get(a, key, SFP__OPT_FLAG)->flag;
}

int64_t sfp__args_int(const sfp__args *a, const char *key)
{
    return get(a, key, SFP__OPT_INT)->integer;
}

double sfp__args_real(const sfp__args *a, const char *key)
{
    return get(a, key, SFP__OPT_REAL)->real;
}

const char *sfp__args_string(const sfp__args *a, const char *key)
{
    return get(a, key, SFP__OPT_STRING)->text;
}

int sfp__args_choice(const sfp__args *a, const char *key)
{
    return get(a, key, SFP__OPT_CHOICE)->choice;
}

const char *sfp__args_text(const sfp__args *a, const char *key)
{
    return get(a, key, -1)->text;
}

const char *sfp__args_value(const sfp__args *a, const char *key)
{
    const sfp__value *v = get(a, key, -1);
    return a->opts[v - a->values].type == SFP__OPT_FLAG ? (v->flag ? "on" : "off") : v->text;
}

sfp__opt_rank sfp__args_rank(const sfp__args *a, const char *key)
{
    return get(a, key, -1)->rank;
}

void sfp__opt_store(const sfp__opt *o, const sfp__value *v, void *options)
{
    char *at = (char *)options + o->offset;
    double unset = NAN;
    switch (o->type) {
    case SFP__OPT_FLAG:
        *(bool *)at = v->flag;
        break;
    case SFP__OPT_INT:
        if (o->size == sizeof(int))
            *(int *)at = (int)v->integer;
        else
            *(int64_t *)at = v->integer;
        break;
    case SFP__OPT_REAL:
        if (o->size == sizeof(float))
            *(float *)at = (float)v->real;
        else
            *(double *)at = v->rank == SFP__RANK_UNSET ? unset : v->real;
        break;
    case SFP__OPT_CHOICE:
        if (v->choice >= 0 && o->size == sizeof(bool))
            *(bool *)at = v->choice == 1;
        else if (v->choice >= 0)
            memcpy(at, &v->choice, sizeof v->choice); /* an enum */
        break;
    case SFP__OPT_RANGE:
        memcpy(at, v->range, sizeof v->range);
        break;
    case SFP__OPT_STRING:
        *(const char **)at = o->word && v->rank != SFP__RANK_UNSET ? o->word(v->choice) : v->text;
        break;
    case SFP__OPT_PAIR:
    case SFP__OPT_GROUP:
        break;
    }
}

void sfp__args_store(const sfp__args *a, void *options)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->opts[i].size > 0)
            sfp__opt_store(&a->opts[i], &a->values[i], options);
}

static const char *print_number(const sfp__opt *o, const char *at, char *buf, size_t size)
{
    bool real = o->type == SFP__OPT_REAL, small = o->size == sizeof(int);
    int64_t n = real ? 0 : small ? *(const int *)at : *(const int64_t *)at;
    double x = !real ? (double)n : small ? (double)*(const float *)at : *(const double *)at;
    if (o->named.word && !(x < o->named.number) && !(x > o->named.number))
        (void)snprintf(buf, size, "%s", o->named.word);
    else if (real)
        for (int digits = small ? 9 : 15; digits <= 17; digits++) {
            (void)snprintf(buf, size, "%.*g", digits, x);
            if (small || !(strtod(buf, NULL) < x || strtod(buf, NULL) > x))
                break;
        }
    else
        (void)snprintf(buf, size, "%" PRId64, n);
    return buf;
}

const char *sfp__opt_print(const sfp__opt *o, const void *options, char *buf, size_t size)
{
    const char *at = (const char *)options + o->offset;
    const int *range = (const void *)at;
    int i = 0;
    buf[0] = '\0';
    switch (o->type) {
    case SFP__OPT_INT:
    case SFP__OPT_REAL:
        return print_number(o, at, buf, size);
    case SFP__OPT_FLAG:
        return sfp__word_at("off|on", *(const bool *)at, buf, size);
    case SFP__OPT_CHOICE:
        memcpy(&i, at, o->size); /* little-endian, so a bool fits, too */
        return sfp__word_at(o->arg, i, buf, size);
    case SFP__OPT_RANGE:
        (void)snprintf(buf, size, "%d-%d", range[0], range[1]);
        break;
    case SFP__OPT_STRING:
        (void)snprintf(buf, size, "%s", *(const char *const *)(const void *)at ? *(const char *const *)(const void *)at : "");
        break;
    case SFP__OPT_PAIR:
    case SFP__OPT_GROUP:
        break;
    }
    return buf;
}

bool sfp__opt_is_switch(const sfp__opt *o)
{
    return o->type == SFP__OPT_FLAG && o->default_value;
}

const char *sfp__opt_default(const sfp__opt *o)
{
    return o->type == SFP__OPT_FLAG && !o->default_value ? "off" : o->default_value;
}

bool sfp__args_given(const sfp__args *a, const char *key)
{
    const sfp__value *v = get(a, key, -1);
    const char *value = sfp__args_value(a, key), *default_value = sfp__opt_default(&a->opts[v - a->values]);
    if (v->rank <= SFP__RANK_PRESET)
        return false;
    return !default_value || (strcmp(value, default_value) != 0 && !sfp__same_number(value, default_value));
}

/* ------------------------------------------------------------------ origin */

bool sfp__args_add_origin(const sfp__args *a, sfp_error *err)
{
    const sfp__opt *o = *err->key ? sfp__args_find(a, err->key) : NULL;
    if (o && a->values[o - a->opts].origin)
        sfp__fail_rename(err, o->name, a->values[o - a->opts].origin);
    return o;
}

/* --------------------------------------------------------------- no effect */

typedef struct scene {
    const sfp__args *a;
    size_t facts;
    const sfp__fact *fact;
} scene;

/* Returns the value of the key, which has `n` bytes. */
static const char *value_of(const scene *s, const char *key, size_t n)
{
    char name[SFP__KEY_LENGTH_MAX + 1];
    (void)snprintf(name, sizeof name, "%.*s", (int)n, key);
    for (size_t i = 0; i < s->facts; i++)
        if (strcmp(s->fact[i].key, name) == 0)
            return s->fact[i].value;
    return sfp__args_value(s->a, name);
}

/* Returns whether the value is among "a|b" (of n bytes). Numbers are compared by value, not as text. */
static bool is_among(const char *value, const char *words, size_t n)
{
    for (const char *end = words + n; words < end;) {
        char word[SFP__KEY_LENGTH_MAX + 1];
        size_t length = strcspn(words, "|&");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (strcmp(word, value) == 0 || sfp__same_number(word, value))
            return true;
        words += length + 1;
    }
    return false;
}

/* Returns whether one term, of n bytes, holds. */
static bool term_holds(const scene *s, const char *term, size_t n)
{
    if (*term == '!')
        return !value_of(s, term + 1, n - 1);
    size_t key = strcspn(term, "!=>&");
    const char *value = value_of(s, term, key), *rest = term + key;
    double x, min;
    if (key >= n || !value)
        return value;
    if (*rest == '=')
        return is_among(value, rest + 1, n - key - 1);
    if (*rest == '!')
        return !is_among(value, rest + 2, n - key - 2);
    return sfp__parse_real(value, &x) && sfp__parse_real(rest + 2, &min) && x >= min; /* it is the last term of its rule */
}

static bool holds(const scene *s, const char *when)
{
    for (size_t n; *when; when += n + (when[n] == '&')) {
        n = strcspn(when, "&");
        if (!term_holds(s, when, n))
            return false;
    }
    return true;
}

/* Writes `with` to buf, with values in place of {KEY}. */
static void fill(const scene *s, const char *with, char *buf, size_t size)
{
    for (size_t used = 0, n; *with && used < size; with += n) {
        n = strcspn(with, "{");
        used += (size_t)snprintf(buf + used, size - used, "%.*s", (int)n, with);
        if (with[n] == '{' && used < size) {
            size_t key = strcspn(with + n + 1, "}");
            const char *value = value_of(s, with + n + 1, key);
            used += (size_t)snprintf(buf + used, size - used, "%s", value ? value : "from the dataset");
            n += key + 2;
        }
    }
}

/* Whether the rule applies to this option. */
static bool is_of_rule(const sfp__no_effect_rule *r, const sfp__opt *o)
{
    static const char *const only[] = {"", "<trained>", "<closed-form>", "<live>",
                                       "<dataset>"}; /* in the order of sfp__opt_only */
    const size_t length = strlen(o->name), only_length = strlen(only[o->only]);
    for (const char *k = r->keys; *k; k += strspn(k, " ")) {
        size_t n = strcspn(k, " ");
        if ((n == length && memcmp(k, o->name, n) == 0) || (n == only_length && memcmp(k, only[o->only], n) == 0))
            return true;
        k += n;
    }
    return false;
}

/* Returns the name of the first option of the rule that the user has given. With `only`: returns this option if the rule has it, given or
 * not. NULL: no such option. */
static const char *find_option(const sfp__args *a, const sfp__no_effect_rule *r, const char *only)
{
    for (size_t i = 0; i < a->count; i++) {
        const sfp__opt *o = &a->opts[i];
        if (o->type != SFP__OPT_GROUP && is_of_rule(r, o) && (only ? sfp__same_key(o->name, only) : sfp__args_given(a, o->name)))
            return o->name;
    }
    return NULL;
}

sfp__no_effect sfp__args_find_no_effect(const sfp__args *a, size_t n, const sfp__no_effect_rule *rules, size_t facts,
                                        const sfp__fact *fact, const char *only)
{
    const scene s = {a, facts, fact};
    sfp__no_effect found = {0};
    for (const sfp__no_effect_rule *r = rules; r < rules + n && !found.key; r++) {
        if (!holds(&s, r->when) || !(found.key = find_option(a, r, only)))
            continue;
        fill(&s, r->with, found.with, sizeof found.with);
        (void)snprintf(found.beside, sizeof found.beside, "%.*s", (int)strcspn(r->with, " "), r->with);
        found.why = r->why;
    }
    return found;
}

sfp_status sfp__args_fail_no_effect(const sfp__args *a, const sfp__no_effect *found, sfp_error *err)
{
    (void)sfp__fail_key(err, found->key, SFP_EINVAL, "%s has no effect with %s: %s", found->key, found->with, found->why);
    (void)sfp__args_add_origin(a, err);
    return SFP_EINVAL;
}

sfp_status sfp__args_check_no_effect(const sfp__args *a, size_t n, const sfp__no_effect_rule *rules, size_t facts,
                                     const sfp__fact *fact, sfp_error *err)
{
    const sfp__no_effect found = sfp__args_find_no_effect(a, n, rules, facts, fact, NULL);
    return found.key ? sfp__args_fail_no_effect(a, &found, err) : SFP_OK;
}
