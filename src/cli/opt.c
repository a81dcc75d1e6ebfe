/* Parser of the option tables; see opt.h. Messages name the option, what was given and what was expected. */
#include "cli/opt.h"

#include "base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX_LENGTH 64 /* longer words are never suggested */

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
    /* strtod also takes blanks, hexadecimal, "inf" and "nan": none of them is a setting */
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
    double x, y; /* hold that many digits exactly: longer ones are compared as text */
    return strlen(a) < 16 && strlen(b) < 16 && sfp__parse_real(a, &x) && sfp__parse_real(b, &y) && !(x < y || x > y);
}

/* ------------------------------------------------------------- suggestions */

/* Optimal string alignment: insert, delete, replace and swap of neighbours cost 1 each. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > WORD_MAX_LENGTH || m > WORD_MAX_LENGTH)
        return WORD_MAX_LENGTH;
    int d[3][WORD_MAX_LENGTH + 1]; /* rows i-2, i-1, i, by i modulo 3 */
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
    int best_distance = 1 + (int)(length > 2 ? length / 3 : 0); /* the most that is still a slip */
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

static const sfp_opt *find(const sfp_args *a, const char *key)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->opts[i].type != SFP_OPT_GROUP && sfp__same_key(a->opts[i].name, key))
            return &a->opts[i];
    return NULL;
}

/* index of `text` among "one|two|three", or -1 */
static int choice_index(const char *words, const char *text)
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

/* One of the words that another part of the program lists. */
static sfp_status known_word(const sfp_opt *o, const char *text, const char *origin, sfp_error *err)
{
    char all[512] = "";
    size_t used = 0;
    const char *word;
    for (int i = 0; (word = o->word(i)); i++) {
        if (strcmp(word, text) == 0)
            return SFP_OK;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", word);
    }
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected one of %s", origin, text, all);
}

static sfp_status convert(const sfp_opt *o, const char *text, const char *origin, sfp_value *v, sfp_error *err)
{
    switch (o->type) {
    case SFP_OPT_FLAG:
        if (!flag_value(text, &v->flag))
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected on or off", origin, text);
        break;
    case SFP_OPT_INT:
        if (!sfp__parse_int(text, &v->integer))
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected a whole number", origin, text);
        if (v->integer < o->int_min || v->integer > o->int_max)
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is %s, expected %" PRId64 " to %" PRId64, origin, text, o->int_min,
                                 o->int_max);
        break;
    case SFP_OPT_REAL:
        if (!sfp__parse_real(text, &v->real))
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected a number", origin, text);
        if (v->real < o->real_min || v->real > o->real_max)
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is %s, expected %g to %g", origin, text, o->real_min, o->real_max);
        break;
    case SFP_OPT_CHOICE:
        v->choice = choice_index(o->arg, text);
        if (v->choice < 0)
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected one of %s", origin, text, o->arg);
        break;
    case SFP_OPT_STRING:
    case SFP_OPT_PAIR:
        if (text[0] == '\0')
            return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is empty, expected %s", origin, o->arg);
        if (o->word)
            return known_word(o, text, origin, err);
        break;
    case SFP_OPT_GROUP:
        break;
    }
    return SFP_OK;
}

static sfp_status assign(sfp_args *a, const sfp_opt *o, const char *text, sfp_opt_rank rank, const char *origin, sfp_error *err)
{
    sfp_value fresh = {.rank = rank};
    sfp_status s = convert(o, text, origin, &fresh, err);
    if (s != SFP_OK)
        return s;
    sfp_value *v = &a->values[o - a->opts];
    if (rank < v->rank)
        return SFP_OK;
    fresh.text = sfp__strdup(text);
    fresh.origin = rank > SFP_RANK_DEFAULT ? sfp__strdup(origin) : NULL;
    if (!fresh.text || (rank > SFP_RANK_DEFAULT && !fresh.origin)) {
        sfp__free(fresh.text);
        sfp__free(fresh.origin);
        return sfp__fail_nomem(err);
    }
    sfp__free(v->text);
    sfp__free(v->origin);
    *v = fresh;
    return SFP_OK;
}

sfp_status sfp__args_init(sfp_args *a, const char *command, const sfp_opt *opts, size_t count, sfp_error *err)
{
    memset(a, 0, sizeof *a);
    a->command = command;
    a->opts = opts;
    a->count = count;
    if (count == 0)
        return SFP_OK;
    a->values = sfp__calloc(count, sizeof *a->values);
    if (!a->values)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < count; i++) {
        if (opts[i].type == SFP_OPT_CHOICE)
            a->values[i].choice = -1;
        if (!opts[i].fallback)
            continue;
        sfp_status s = assign(a, &opts[i], opts[i].fallback, SFP_RANK_DEFAULT, opts[i].name, err);
        if (s != SFP_OK) {
            sfp__args_done(a);
            return s;
        }
    }
    return SFP_OK;
}

void sfp__args_done(sfp_args *a)
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

/* The message for a name that is in no row. */
static sfp_status unknown(const sfp_args *a, const char *what, const char *dashes, const char *name, sfp_error *err)
{
    const char *best = NULL;
    const char **names = sfp__calloc(a->count + 1, sizeof *names);
    if (names) {
        for (size_t i = 0; i < a->count; i++)
            names[i] = a->opts[i].type == SFP_OPT_GROUP || (!*dashes && a->opts[i].type == SFP_OPT_PAIR) ? NULL : a->opts[i].name;
        names[a->count] = *dashes ? "help" : NULL;
        best = sfp__nearest(name, names, a->count + 1);
        sfp__free(names);
    }
    if (best)
        return sfp__fail(err, SFP_EINVAL, "unknown %s '%s%s', did you mean '%s%s'?", what, dashes, name, dashes, best);
    return sfp__fail(err, SFP_EINVAL, "unknown %s '%s%s'", what, dashes, name);
}

sfp_status sfp__args_set(sfp_args *a, const char *key, const char *text, sfp_opt_rank rank, const char *origin, sfp_error *err)
{
    const sfp_opt *o = find(a, key);
    return o && o->type != SFP_OPT_PAIR ? assign(a, o, text, rank, origin, err) : unknown(a, "key", "", key, err);
}

sfp_status sfp__args_set_pair(sfp_args *a, const char *pair, sfp_opt_rank rank, sfp_error *err)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return sfp__fail(err, SFP_EINVAL, "'%s' is not of the form key=value", pair);
    char key[WORD_MAX_LENGTH + 1];
    size_t n = (size_t)(equals - pair);
    if (n > WORD_MAX_LENGTH)
        return sfp__fail(err, SFP_EINVAL, "unknown key '%.*s...'", WORD_MAX_LENGTH, pair);
    memcpy(key, pair, n);
    key[n] = '\0';
    return sfp__args_set(a, key, equals + 1, rank, key, err);
}

/* ------------------------------------------------------------ command line */

/* One `--something`; *next is the argument after it (NULL: none), *used tells whether it was taken. */
static sfp_status long_option(sfp_args *a, const char *arg, const char *next, bool *used, sfp_error *err)
{
    char name[WORD_MAX_LENGTH + 1], origin[WORD_MAX_LENGTH + 3];
    const char *value = strchr(arg, '=');
    size_t n = value ? (size_t)(value - arg) : strlen(arg);
    if (n > WORD_MAX_LENGTH)
        return sfp__fail(err, SFP_EINVAL, "unknown option '--%.*s...'", WORD_MAX_LENGTH, arg);
    memcpy(name, arg, n);
    name[n] = '\0';
    (void)snprintf(origin, sizeof origin, "--%s", name);

    const sfp_opt *o = find(a, name);
    if (!o && strncmp(name, "no-", 3) == 0 && !value) {
        o = find(a, name + 3);
        if (o && o->type == SFP_OPT_FLAG)
            return assign(a, o, "off", SFP_RANK_COMMAND_LINE, origin, err);
        o = NULL;
    }
    if (!o)
        return unknown(a, "option", "--", name, err);
    if (value)
        value++;
    else if (o->type == SFP_OPT_FLAG && (!next || (strcmp(next, "on") != 0 && strcmp(next, "off") != 0)))
        value = "on";
    else if (!next)
        return sfp__fail(err, SFP_EINVAL, "%s needs %s", origin, o->arg);
    else
        *used = true;
    if (*used)
        value = next;
    if (o->type == SFP_OPT_PAIR)
        return sfp__args_set_pair(a, value, SFP_RANK_COMMAND_LINE, err);
    return assign(a, o, value, SFP_RANK_COMMAND_LINE, origin, err);
}

sfp_status sfp__args_parse(sfp_args *a, int argc, char **argv, sfp_error *err)
{
    if (!a->operands && argc > 0) {
        a->operands = sfp__calloc((size_t)argc, sizeof *a->operands);
        if (!a->operands)
            return sfp__fail_nomem(err);
    }
    bool options = true;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (!options || arg[0] != '-' || arg[1] == '\0') {
            a->operands[a->operand_count++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            options = false;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            a->help = true;
            return SFP_OK;
        } else if (arg[1] != '-') {
            return sfp__fail(err, SFP_EINVAL, "unknown option '%s' (options begin with '--')", arg);
        } else {
            bool used = false;
            sfp_status s = long_option(a, arg + 2, i + 1 < argc ? argv[i + 1] : NULL, &used, err);
            if (s != SFP_OK)
                return s;
            i += used;
        }
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ lookup */

static const sfp_value *get(const sfp_args *a, const char *key, int type)
{
    const sfp_opt *o = find(a, key);
    assert(o && "no such key in the option table");
    assert(type < 0 || (int)o->type == type);
    (void)type;
    return &a->values[o - a->opts];
}

bool sfp__args_flag(const sfp_args *a, const char *key)
{
    return get(a, key, SFP_OPT_FLAG)->flag;
}

int64_t sfp__args_int(const sfp_args *a, const char *key)
{
    return get(a, key, SFP_OPT_INT)->integer;
}

double sfp__args_real(const sfp_args *a, const char *key)
{
    return get(a, key, SFP_OPT_REAL)->real;
}

const char *sfp__args_string(const sfp_args *a, const char *key)
{
    return get(a, key, SFP_OPT_STRING)->text;
}

int sfp__args_choice(const sfp_args *a, const char *key)
{
    return get(a, key, SFP_OPT_CHOICE)->choice;
}

const char *sfp__args_text(const sfp_args *a, const char *key)
{
    return get(a, key, -1)->text;
}

const char *sfp__args_value(const sfp_args *a, const char *key)
{
    const sfp_value *v = get(a, key, -1);
    return a->opts[v - a->values].type == SFP_OPT_FLAG ? (v->flag ? "on" : "off") : v->text;
}

sfp_opt_rank sfp__args_rank(const sfp_args *a, const char *key)
{
    return get(a, key, -1)->rank;
}

bool sfp__opt_is_switch(const sfp_opt *o)
{
    return o->type == SFP_OPT_FLAG && o->fallback;
}

const char *sfp__opt_default(const sfp_opt *o)
{
    return o->type == SFP_OPT_FLAG && !o->fallback ? "off" : o->fallback;
}

bool sfp__args_given(const sfp_args *a, const char *key)
{
    const sfp_value *v = get(a, key, -1);
    const char *value = sfp__args_value(a, key), *fallback = sfp__opt_default(&a->opts[v - a->values]);
    if (v->rank <= SFP_RANK_PRESET)
        return false;
    return !fallback || (strcmp(value, fallback) != 0 && !sfp__same_number(value, fallback));
}

/* ------------------------------------------------------------------- blame */

bool sfp__args_blame(const sfp_args *a, sfp_error *err)
{
    const sfp_opt *o = *err->key ? find(a, err->key) : NULL;
    if (o && a->values[o - a->opts].origin)
        sfp__fail_rename(err, o->name, a->values[o - a->opts].origin);
    return o;
}

sfp_status sfp__args_no_effect(const sfp_args *a, const char *key, const char *with, const char *why, sfp_error *err)
{
    (void)sfp__fail_key(err, key, SFP_EINVAL, "%s has no effect with %s: %s", key, with, why);
    (void)sfp__args_blame(a, err);
    return SFP_EINVAL;
}
