/* redis:STREAM@HOST[:PORT]/GROUP - a Redis Stream that a consumer group reads (stream/log.h). ADDRESS may be the path of a socket.
 *
 * A unit is a worker, which is a consumer of the group. Sums do not depend on the order of samples, so any worker may learn any entry. The hash
 * {STREAM}:GROUP:commits contains the committed value of every worker, {STREAM}:GROUP:owners the token of the process that uses the name of a
 * worker. Answers and rejected entries are appended to {STREAM}:answers and {STREAM}:rejected. */
#include "stream/log.h"
#include "stream/source_internal.h"

#ifdef SFP__HIREDIS
#include "base/monotonic.h"
#include "base/settings.h"

#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { TIMEOUT_SECONDS = 5 }; /* time limit of a command */
enum { REPLY_MAX = 100000 };  /* approximate number of entries that the streams of answers and of rejected entries keep */

typedef struct redis_log {
    sfp__log log;
    redisContext *c;  /* NULL: not connected */
    char token[20];   /* of this process */
    char history[48]; /* id from which uncommitted entries of this worker are read again; "": none is left */
    bool again;       /* these entries were delivered to this process before, so this is not counted as another try */
    double claim_at;  /* sfp__monotonic_seconds() of the next search for entries of other workers (XAUTOCLAIM) */
    char cursor[48];  /* position of this search */
} redis_log;

/* The commit. It changes nothing if another process has taken the name of this worker, if another worker has one of the entries, or if the present
 * value is not the expected one: a commit of this worker whose reply was lost may have been executed late. */
static const char commit_script[] =
    "local owner = redis.call('HGET', KEYS[3], ARGV[2]) "
    "if owner and owner ~= ARGV[3] then return redis.error_reply('FENCED the name ' .. ARGV[2]) end "
    "if (redis.call('HGET', KEYS[2], ARGV[2]) or '') ~= ARGV[4] then return redis.error_reply('FENCED value') end "
    "for i = 6, #ARGV do "
    "local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1) "
    "if #p == 0 or p[1][2] ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[i]) end end "
    "for i = 6, #ARGV do redis.call('XACK', KEYS[1], ARGV[1], ARGV[i]) end "
    "redis.call('HSET', KEYS[2], ARGV[2], ARGV[5]) "
    "if not owner then redis.call('HSET', KEYS[3], ARGV[2], ARGV[3]) end "
    "return #ARGV - 5";

/* --------------------------------------------------------------------- commands */

static void disconnect(sfp__log *l)
{
    redis_log *r = (redis_log *)l;
    if (r->c)
        redisFree(r->c);
    r->c = NULL;
}

/* The arguments of a command. */
typedef struct arguments {
    const char **text;
    size_t *size;
    int count;
    size_t capacity, sizes;
    bool failed;
} arguments;

static void arguments_done(arguments *a)
{
    sfp__free((void *)a->text);
    sfp__free(a->size);
}

static void add_bytes(arguments *a, const void *bytes, size_t size)
{
    size_t n = (size_t)a->count;
    a->failed = a->failed || !sfp__grow(&a->text, sizeof *a->text, n, n + 1, &a->capacity) ||
                !sfp__grow(&a->size, sizeof *a->size, n, n + 1, &a->sizes);
    if (a->failed)
        return;
    a->text[n] = bytes;
    a->size[n] = size;
    a->count++;
}

static void add(arguments *a, const char *text)
{
    add_bytes(a, text, strlen(text));
}

static void reply_done(redisReply **r)
{
    if (*r)
        freeReplyObject(*r);
}

static sfp_status fail_reply(const sfp__log *l, const char *why, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    return sfp__fail(err, SFP_EIO, "redis %s: %s", l->address, sfp__printable(why, shown, sizeof shown));
}

/* Sends a command. An error reply is SFP_EIO, unless it begins with `allowed`. */
static sfp_status call(sfp__log *l, const arguments *a, const char *allowed, redisReply **out, sfp_error *err)
{
    redis_log *r = (redis_log *)l;
    TRY(sfp__check_memory(!a->failed, err));
    if (!r->c)
        return fail_reply(l, "not connected", err);
    redisReply *reply = redisCommandArgv(r->c, a->count, a->text, a->size);
    if (!reply) {
        sfp_status status = fail_reply(l, r->c->errstr, err);
        disconnect(l);
        return status;
    }
    if (reply->type == REDIS_REPLY_ERROR && !(allowed && strncmp(reply->str, allowed, strlen(allowed)) == 0)) {
        sfp_status status = fail_reply(l, reply->str, err);
        freeReplyObject(reply);
        disconnect(l);
        return status;
    }
    *out = reply;
    return SFP_OK;
}

/* Sends a command that is given as words; NULL ends the list. */
static sfp_status call_words(sfp__log *l, const char *const *words, const char *allowed, redisReply **out, sfp_error *err)
{
    OWNED_BY(arguments_done) arguments a = {0};
    while (*words)
        add(&a, *words++);
    return call(l, &a, allowed, out, err);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *key(const sfp__log *l, const char *what, char buf[600])
{
    (void)snprintf(buf, 600, "{%s}:%s%s", l->stream, *what == ':' ? l->group : "", what);
    return buf;
}

/* ------------------------------------------------------------------- connecting */

static sfp_status open_context(redis_log *r, sfp_error *err)
{
    const struct timeval limit = {.tv_sec = TIMEOUT_SECONDS};
    char host[256];
    const char *address = r->log.address, *colon = strrchr(address, ':');
    int64_t port = 6379;
    if (*address == '/') {
        r->c = redisConnectUnixWithTimeout(address, limit);
    } else {
        bool bare = !colon || (*address == '[' && strchr(colon, ']')); /* [::1] */
        size_t n = bare ? strlen(address) : (size_t)(colon - address), from = 0;
        if (!bare && (!sfp__parse_int(colon + 1, &port) || port < 1 || port > 65535))
            return sfp__fail(err, SFP_EINVAL, "redis %s: the port is not a number from 1 to 65535", address);
        if (*address == '[' && n > 2 && address[n - 1] == ']')
            from = 1;
        (void)snprintf(host, sizeof host, "%.*s", (int)(n - 2 * from), address + from);
        r->c = redisConnectWithTimeout(host, (int)port, limit);
    }
    TRY(sfp__check_memory(r->c, err));
    if (r->c->err) {
        sfp_status status = fail_reply(&r->log, r->c->errstr, err);
        disconnect(&r->log);
        return status;
    }
    (void)redisSetTimeout(r->c, limit);
    return SFP_OK;
}

/* Creates the group, unless workers have already committed: then someone has removed the group, and a new one would deliver learned entries again.
 * The first connection takes the name of the worker, so that an earlier process with this name is fenced. A later connection does not take it
 * back. */
static sfp_status take_name(redis_log *r, sfp_error *err)
{
    OWNED_BY(reply_done) redisReply *used = NULL, *created = NULL, *owned = NULL;
    sfp__log *l = &r->log;
    char owners[600], commits[600];
    uint64_t random = 0;
    TRY(call_words(l, WORDS("EXISTS", key(l, ":commits", commits)), NULL, &used, err));
    if (used->type == REDIS_REPLY_INTEGER && used->integer == 0)
        TRY(call_words(l, WORDS("XGROUP", "CREATE", l->stream, l->group, "0", "MKSTREAM"), "BUSYGROUP", &created, err));
    if (r->token[0])
        return SFP_OK;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return sfp__fail_errno(err, SFP_EIO, "random numbers");
    (void)snprintf(r->token, sizeof r->token, "%016llx", (unsigned long long)random);
    (void)snprintf(r->history, sizeof r->history, "0");
    sfp_status status = call_words(l, WORDS("HSET", key(l, ":owners", owners), l->worker, r->token), NULL, &owned, err);
    if (status)
        r->token[0] = '\0';
    return status;
}

static sfp_status connect_redis(sfp__log *l, sfp_error *err)
{
    redis_log *r = (redis_log *)l;
    const char *password = getenv("REDISCLI_AUTH"); /* as redis-cli does */
    OWNED_BY(reply_done) redisReply *reply = NULL;
    disconnect(l);
    TRY(open_context(r, err));
    if (password && *password)
        TRY(call_words(l, WORDS("AUTH", password), NULL, &reply, err));
    return l->worker[0] ? take_name(r, err) : SFP_OK;
}

/* ---------------------------------------------------------------------- reading */

static bool is_text(const redisReply *r)
{
    return r->type == REDIS_REPLY_STRING;
}

/* Appends the entries of a reply, each of which is (id, fields). An entry that was deleted meanwhile has no fields; it is acknowledged like others. */
static sfp_status take_entries(const redisReply *list, const sfp__messages *held, char *last, sfp__messages *out, sfp_error *err)
{
    for (size_t i = 0; list && list->type == REDIS_REPLY_ARRAY && i < list->elements; i++) {
        const redisReply *e = list->element[i];
        if (e->type != REDIS_REPLY_ARRAY || e->elements < 2 || !is_text(e->element[0]))
            continue;
        const redisReply *fields = e->element[1];
        if (last)
            (void)snprintf(last, 48, "%s", e->element[0]->str);
        if (sfp__messages_have(held, e->element[0]->str))
            continue;
        OWNED_PTR(sfp__message_free) sfp__message *m = NULL;
        TRY(sfp__alloc(&m, 1, sizeof *m, err));
        m->tries = 1;
        m->offset = -1;
        m->time = strtoll(e->element[0]->str, NULL, 10);
        TRY(sfp__check_memory((m->id = sfp__strdup(e->element[0]->str)), err));
        for (size_t k = 0; fields->type == REDIS_REPLY_ARRAY && k + 1 < fields->elements; k += 2)
            if (is_text(fields->element[k]) && is_text(fields->element[k + 1]))
                TRY(sfp__message_set(m, fields->element[k]->str, fields->element[k]->len, fields->element[k + 1]->str,
                                     fields->element[k + 1]->len, err));
        sfp__message_end(m);
        sfp__messages_put(out, TAKE(m));
    }
    return SFP_OK;
}

/* Sets how often these entries were delivered. again: the last delivery is not counted. */
static sfp_status count_tries(sfp__log *l, const sfp__messages *list, bool again, sfp_error *err)
{
    for (sfp__message *m = list->first; m; m = m->next) {
        OWNED_BY(reply_done) redisReply *reply = NULL, *set = NULL;
        char count[24];
        TRY(call_words(l, WORDS("XPENDING", l->stream, l->group, m->id, m->id, "1"), NULL, &reply, err));
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 || reply->element[0]->elements != 4)
            continue; /* another worker has taken over the entry */
        m->tries = reply->element[0]->element[3]->integer - again;
        (void)snprintf(count, sizeof count, "%lld", (long long)m->tries);
        if (again)
            TRY(call_words(l, WORDS("XCLAIM", l->stream, l->group, l->worker, "0", m->id, "RETRYCOUNT", count, "JUSTID"), NULL,
                           &set, err));
    }
    return SFP_OK;
}

/* Reads entries with XREADGROUP: uncommitted ones of this worker after `from`, or new ones (from ">"). */
static sfp_status read_group(redis_log *r, int max, double seconds, const char *from, const sfp__messages *held, char *last,
                             sfp__messages *out, sfp_error *err)
{
    sfp__log *l = &r->log;
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char count[16], block[16];
    (void)snprintf(count, sizeof count, "%d", max);
    (void)snprintf(block, sizeof block, "%d", seconds > 0.001 ? (int)(seconds * 1000) : 1);
    TRY(call_words(l,
                   WORDS("XREADGROUP", "GROUP", l->group, l->worker, "COUNT", count, "BLOCK", block, "STREAMS", l->stream, from),
                   NULL, &reply, err));
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 || reply->element[0]->elements != 2)
        return SFP_OK; /* nothing */
    return take_entries(reply->element[0]->element[1], held, last, out, err);
}

/* Takes over an entry that another worker has not committed for claim_seconds. Only one at a time: further ones would wait here so long that other
 * workers claim them in turn. */
static sfp_status claim(redis_log *r, const sfp__messages *held, sfp__messages *out, sfp_error *err)
{
    sfp__log *l = &r->log;
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char idle[32];
    double now = sfp__monotonic_seconds();
    if (now < r->claim_at)
        return SFP_OK;
    (void)snprintf(idle, sizeof idle, "%.0f", l->claim_seconds * 1000);
    TRY(call_words(l, WORDS("XAUTOCLAIM", l->stream, l->group, l->worker, idle, r->cursor[0] ? r->cursor : "0", "COUNT", "1"),
                   NULL, &reply, err));
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 || !is_text(reply->element[0]))
        return fail_reply(l, "unknown reply to XAUTOCLAIM, expected Redis 6.2 or later", err);
    (void)snprintf(r->cursor, sizeof r->cursor, "%s", reply->element[0]->str);
    if (strcmp(r->cursor, "0-0") == 0) {
        r->cursor[0] = '\0';
        r->claim_at = now + l->claim_seconds / 4;
    }
    TRY(take_entries(reply->element[1], held, NULL, out, err));
    return count_tries(l, out, false, err);
}

static sfp_status read_redis(sfp__log *l, int max, double seconds, const sfp__messages *held, char unit[SFP__LOG_NAME_MAX],
                             sfp__messages *out, sfp_error *err)
{
    redis_log *r = (redis_log *)l;
    (void)snprintf(unit, SFP__LOG_NAME_MAX, "%s", l->worker);
    if (r->history[0]) { /* at first one by one, because a batch of them may have ended an earlier process */
        char last[48] = "";
        TRY(read_group(r, r->again ? max : 1, 0, r->history, held, last, out, err));
        (void)snprintf(r->history, sizeof r->history, "%s", last);
        return count_tries(l, out, r->again, err);
    }
    r->again = true;
    TRY(claim(r, held, out, err));
    return out->count ? SFP_OK : read_group(r, max, seconds, ">", held, NULL, out, err);
}

/* ------------------------------------------------------------------- committing */

static sfp_status committed(sfp__log *l, const char *unit, char value[SFP__LOG_VALUE_MAX], sfp_error *err)
{
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char commits[600];
    TRY(call_words(l, WORDS("HGET", key(l, ":commits", commits), unit), NULL, &reply, err));
    (void)snprintf(value, SFP__LOG_VALUE_MAX, "%s", is_text(reply) ? reply->str : "");
    return SFP_OK;
}

static sfp_status commit(sfp__log *l, const char *unit, const char *before, const char *value, const sfp__messages *m,
                         bool *fenced, sfp_error *err)
{
    redis_log *r = (redis_log *)l;
    OWNED_BY(arguments_done) arguments a = {0};
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char commits[600], owners[600];
    const char *const head[] = {
        "EVAL", commit_script, "3",    l->stream, key(l, ":commits", commits), key(l, ":owners", owners), l->group,
        unit,   r->token,      before, value};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        add(&a, head[i]);
    for (const sfp__message *i = m->first; i; i = i->next)
        add(&a, i->id);
    TRY(call(l, &a, "FENCED", &reply, err));
    *fenced = reply->type == REDIS_REPLY_ERROR;
    if (!*fenced && (reply->type != REDIS_REPLY_INTEGER || reply->integer != m->count))
        return fail_reply(l, "unknown reply to the commit", err);
    if (*fenced && strncmp(reply->str, "FENCED the", 10) == 0)
        (void)snprintf(l->unit_taken, sizeof l->unit_taken, "another process works under the name '%s'; use --worker NAME",
                       l->worker);
    return SFP_OK;
}

static sfp_status seek_redis(sfp__log *l, const char *unit, int64_t offset, sfp_error *err)
{
    (void)unit, (void)offset, (void)err;
    (void)snprintf(((redis_log *)l)->history, 48, "0");
    return SFP_OK;
}

static sfp_status append(sfp__log *l, const char *name, const sfp__log_field *fields, const sfp__message *m, sfp_error *err)
{
    OWNED_BY(arguments_done) arguments a = {0};
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char stream[600], most[16];
    (void)snprintf(most, sizeof most, "%d", REPLY_MAX);
    const char *const head[] = {"XADD", key(l, name, stream), "MAXLEN", "~", most, "*"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        add(&a, head[i]);
    for (; fields->key; fields++) {
        add(&a, fields->key);
        add(&a, fields->value);
    }
    if (m && m->data) {
        add(&a, m->row ? "features" : "image");
        add_bytes(&a, m->data, m->size);
    }
    return call(l, &a, NULL, &reply, err);
}

static int compare_replies(const void *pa, const void *pb)
{
    redisReply *const *a = pa, *const *b = pb;
    return strcmp((*a)->str, (*b)->str);
}

static sfp_status each(sfp__log *l, sfp_status (*fn)(void *ctx, const char *unit, const char *value, sfp_error *err), void *ctx,
                       sfp_error *err)
{
    OWNED_BY(reply_done) redisReply *reply = NULL;
    char commits[600];
    TRY(call_words(l, WORDS("HGETALL", key(l, ":commits", commits)), NULL, &reply, err));
    size_t n = reply->type == REDIS_REPLY_ARRAY ? reply->elements / 2 : 0;
    for (size_t i = 0; i < 2 * n; i++)
        if (!is_text(reply->element[i]))
            return fail_reply(l, "unknown reply to HGETALL", err);
    OWNED redisReply **order = NULL; /* (2 * n) pairs */
    TRY(sfp__alloc(&order, 2 * n, sizeof(redisReply *), err));
    if (n) {
        memcpy((void *)order, (void *)reply->element, 2 * n * sizeof *order);
        qsort((void *)order, n, 2 * sizeof *order, compare_replies);
    }
    for (size_t i = 0; i < n; i++)
        TRY(fn(ctx, order[2 * i]->str, order[2 * i + 1]->str, err));
    return SFP_OK;
}

static const sfp__log_ops redis_ops = {.connect = connect_redis,
                                       .disconnect = disconnect,
                                       .read = read_redis,
                                       .committed = committed,
                                       .commit = commit,
                                       .seek = seek_redis,
                                       .append = append,
                                       .each = each};

static sfp_status open_redis(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    sfp__log *l = NULL;
    TRY(sfp__log_create(sizeof(redis_log), &sfp__source_redis, &redis_ops, path, "redis:cams@localhost:6379/plant", &l, err));
    *out = &l->base;
    return SFP_OK;
}
#else
static sfp_status open_redis(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt, (void)out;
    return sfp__fail_key(err, "data", SFP_EUNSUPPORTED,
                         "data: redis:%s needs hiredis, which this build does not have; install libhiredis-dev and build again",
                         path);
}
#endif

const sfp__source_kind sfp__source_redis = {
    .name = "redis",
    .summary = "STREAM@HOST[:PORT]/GROUP: a Redis Stream that several workers share (--share)",
    .live = true,
    .open = open_redis,
};
