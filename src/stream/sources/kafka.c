/* kafka:TOPIC@BROKERS/GROUP - a Kafka topic that a consumer group reads (stream/log.h).
 *
 * A unit is a partition. Its messages are learned in the order of their offsets, by one worker at a time, so the sum over all partitions has the
 * same bytes for any number of workers. A commit stores the offset of the next message, with the value as its metadata. The broker refuses the
 * commit of a worker that has lost the partition (it compares the generation of the group). The payload of a message is the image or the row; its
 * headers are label and id. Answers and rejected messages are written to the topics TOPIC.answers and TOPIC.rejected. */
#include "stream/log.h"
#include "stream/source_internal.h"

#ifdef SFP__RDKAFKA
#include "base/monotonic.h"
#include "base/settings.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS = 5000, PARTITIONS_MAX = 4096, PAYLOAD_MAX = 50000000 };
/* Limits of what is prefetched from a partition while messages of others are learned; a partition that reaches one is paused. */
enum { READY_BATCHES = 3, READY_BYTES = 4 << 20 };

typedef struct partition {
    int32_t number;
    sfp__messages ready; /* prefetched messages */
    size_t bytes;        /* size of the prefetched messages */
    int64_t next;        /* offset after the last message that was read; -1: none was */
    bool paused;
} partition;

typedef struct kafka_log {
    sfp__log log;
    rd_kafka_t *consumer, *producer; /* NULL: not connected; nothing was appended */
    partition *own;                  /* (count) assigned */
    int count, turn;
    size_t capacity;
    int batch; /* the largest number of messages that was asked for */
    bool closing, no_memory;
    bool was_assigned;            /* a partition, since the connection */
    bool steady;                  /* the group does not rebalance */
    rd_kafka_resp_err_t delivery; /* of the last message of the producer */
    char problem[256];            /* what librdkafka last said about its brokers */
} kafka_log;

static sfp_status fail_kafka(const sfp__log *l, rd_kafka_resp_err_t code, sfp_error *err)
{
    const char *said = ((const kafka_log *)l)->problem;
    return sfp__fail(err, SFP_EIO, "kafka %s: %s%s%s", l->address, rd_kafka_err2str(code), *said ? "; " : "", said);
}

static void name_unit(int32_t number, char unit[SFP__LOG_NAME_MAX])
{
    (void)snprintf(unit, SFP__LOG_NAME_MAX, "p%d", number);
}

/* ------------------------------------------------------------------ assignment */

static rd_kafka_topic_partition_list_t *list_one(const kafka_log *k, int32_t number, int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, k->log.stream, number)->offset = offset;
    return list;
}

static rd_kafka_resp_err_t set_paused(kafka_log *k, partition *p, bool paused)
{
    rd_kafka_topic_partition_list_t *list = list_one(k, p->number, RD_KAFKA_OFFSET_INVALID);
    rd_kafka_resp_err_t code =
        paused ? rd_kafka_pause_partitions(k->consumer, list) : rd_kafka_resume_partitions(k->consumer, list);
    code = code ? code : list->elems[0].err;
    rd_kafka_topic_partition_list_destroy(list);
    p->paused = code ? p->paused : paused;
    return code;
}

/* Releases a partition. It is resumed first, because librdkafka would otherwise keep it paused when it is assigned again. */
static void release_partition(kafka_log *k, int i)
{
    if (k->own[i].paused)
        (void)set_paused(k, &k->own[i], false);
    sfp__messages_done(&k->own[i].ready);
    k->own[i] = k->own[--k->count];
}

static int find_partition(const kafka_log *k, const char *unit)
{
    char name[SFP__LOG_NAME_MAX];
    for (int i = 0; i < k->count; i++) {
        name_unit(k->own[i].number, name);
        if (strcmp(name, unit) == 0)
            return i;
    }
    return -1;
}

static void assign(kafka_log *k, const rd_kafka_topic_partition_list_t *list)
{
    size_t n = (size_t)k->count;
    if (!sfp__grow(&k->own, sizeof *k->own, n, n + (size_t)list->cnt, &k->capacity)) {
        k->no_memory = true;
        return;
    }
    for (int i = 0; i < list->cnt; i++)
        k->own[k->count++] = (partition){.number = list->elems[i].partition, .next = -1};
}

/* Called inside rd_kafka_consumer_poll when partitions are assigned or revoked. What was learned from a revoked partition is committed first, unless
 * the partition is lost already. */
static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque)
{
    kafka_log *k = opaque;
    char unit[SFP__LOG_NAME_MAX];
    rd_kafka_error_t *failed = NULL;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        k->was_assigned = true;
        assign(k, list);
        failed = rd_kafka_incremental_assign(rk, list);
    } else {
        for (int i = 0; i < list->cnt; i++) {
            name_unit(list->elems[i].partition, unit);
            if (k->log.revoke && !k->closing)
                k->log.revoke(k->log.revoke_ctx, unit, rd_kafka_assignment_lost(rk));
            int at = find_partition(k, unit);
            if (at >= 0)
                release_partition(k, at);
        }
        failed = rd_kafka_incremental_unassign(rk, list);
    }
    if (failed)
        rd_kafka_error_destroy(failed);
}

static void on_error(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    kafka_log *k = opaque;
    (void)rk, (void)code;
    (void)sfp__printable(reason, k->problem, sizeof k->problem);
}

/* A commit that is sent while the group rebalances is sent after it, with an old generation; librdkafka then leaves the group, which rebalances
 * again. Only the statistics say that it does. */
static int on_statistics(rd_kafka_t *rk, char *json, size_t size, void *opaque)
{
    const char *state = strstr(json, "\"join_state\"");
    const char *steady = state ? strstr(state, "\"steady\"") : NULL;
    (void)rk, (void)size;
    ((kafka_log *)opaque)->steady = steady && steady < state + 20;
    return 0;
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    (void)rk;
    ((kafka_log *)opaque)->delivery = m->err;
}

/* ------------------------------------------------------------------- connecting */

/* librdkafka before 2.3 aborts at the end of a consumer that has joined a group and was never assigned a partition (its issue 4312). */
static bool must_abandon(const kafka_log *k)
{
    char *member = k->was_assigned ? NULL : rd_kafka_memberid(k->consumer);
    bool joined = member && *member;
    rd_kafka_mem_free(k->consumer, member);
    return joined && rd_kafka_version() < 0x02030000;
}

static void disconnect(sfp__log *l)
{
    kafka_log *k = (kafka_log *)l;
    k->closing = true;
    if (k->consumer && *l->worker && must_abandon(k)) /* the group forgets it after its session */
        k->consumer = NULL;
    if (k->consumer && *l->worker)
        (void)rd_kafka_consumer_close(k->consumer);
    while (k->count)
        release_partition(k, 0);
    sfp__free(k->own);
    k->own = NULL;
    k->capacity = 0;
    if (k->consumer)
        rd_kafka_destroy(k->consumer);
    if (k->producer)
        rd_kafka_destroy(k->producer);
    k->consumer = k->producer = NULL;
    k->closing = k->was_assigned = false;
}

static sfp_status make_client(kafka_log *k, rd_kafka_type_t type, rd_kafka_t **out, sfp_error *err)
{
    const sfp__log *l = &k->log;
    char session[32], heartbeat[32], poll[32], payload[32], why[256] = "";
    double ms = l->claim_seconds * 1000;
    (void)snprintf(session, sizeof session, "%.0f", ms < 1000 ? 1000 : ms);
    (void)snprintf(heartbeat, sizeof heartbeat, "%.0f", ms < 1000 ? 333 : ms < 9000 ? ms / 3 : 3000);
    (void)snprintf(poll, sizeof poll, "%.0f", ms < 300000 ? 300000 : ms);
    (void)snprintf(payload, sizeof payload, "%d", PAYLOAD_MAX);
    const char *const settings[][2] = {{"bootstrap.servers", l->address}, {"log_level", "0"},
                                       {"message.max.bytes", payload},    {"group.id", l->group},
                                       {"enable.auto.commit", "false"},   {"enable.auto.offset.store", "false"},
                                       {"auto.offset.reset", "earliest"}, {"partition.assignment.strategy", "cooperative-sticky"},
                                       {"session.timeout.ms", session},   {"heartbeat.interval.ms", heartbeat},
                                       {"max.poll.interval.ms", poll},    {"fetch.wait.max.ms", "50"},
                                       {"statistics.interval.ms", "200"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    size_t count = type == RD_KAFKA_CONSUMER ? sizeof settings / sizeof *settings : 3;
    rd_kafka_conf_res_t set = RD_KAFKA_CONF_OK;
    for (size_t i = 0; i < count && set == RD_KAFKA_CONF_OK; i++)
        set = rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why);
    rd_kafka_conf_set_opaque(conf, k);
    rd_kafka_conf_set_error_cb(conf, on_error);
    if (type == RD_KAFKA_CONSUMER) {
        rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
        rd_kafka_conf_set_stats_cb(conf, on_statistics);
    } else {
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    rd_kafka_t *made = set == RD_KAFKA_CONF_OK ? rd_kafka_new(type, conf, why, sizeof why) : NULL;
    if (!made) {
        rd_kafka_conf_destroy(conf);
        return sfp__fail(err, SFP_EINVAL, "kafka %s: %s", l->address, why);
    }
    *out = made;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- reading */

static sfp_status take_message(const kafka_log *k, const rd_kafka_message_t *from, sfp__messages *out, sfp_error *err)
{
    OWNED_PTR(sfp__message_free) sfp__message *m = NULL;
    rd_kafka_headers_t *headers = NULL;
    const char *key = k->log.base.row_dim ? "features" : "image", *name;
    const void *value;
    size_t size;
    TRY(sfp__alloc(&m, 1, sizeof *m, err));
    TRY(sfp__text_new(&m->id, err, "%d:%lld", from->partition, (long long)from->offset));
    m->offset = from->offset;
    m->time = rd_kafka_message_timestamp(from, NULL);
    m->tries = 1;
    if (from->payload)
        TRY(sfp__message_set(m, key, strlen(key), from->payload, from->len, err));
    if (!rd_kafka_message_headers(from, &headers))
        for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++)
            if (value && (strcmp(name, "label") == 0 || strcmp(name, "id") == 0))
                TRY(sfp__message_set(m, name, strlen(name), value, size, err));
    if (!m->name && from->key)
        TRY(sfp__message_set(m, "id", 2, from->key, from->key_len, err));
    sfp__message_end(m);
    sfp__messages_put(out, TAKE(m));
    return SFP_OK;
}

/* Sets the offset of the next message, and resumes a paused partition. */
static sfp_status move_to(kafka_log *k, partition *p, int64_t offset, sfp_error *err)
{
    rd_kafka_resp_err_t code = p->paused ? set_paused(k, p, false) : RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_t *list = list_one(k, p->number, offset >= 0 ? offset : RD_KAFKA_OFFSET_BEGINNING);
    rd_kafka_error_t *failed = code ? NULL : rd_kafka_seek_partitions(k->consumer, list, TIMEOUT_MS);
    code = code ? code : failed ? rd_kafka_error_code(failed) : list->elems[0].err;
    if (failed)
        rd_kafka_error_destroy(failed);
    rd_kafka_topic_partition_list_destroy(list);
    if (code)
        return fail_kafka(&k->log, code, err);
    p->next = offset;
    return SFP_OK;
}

static sfp_status seek_kafka(sfp__log *l, const char *unit, int64_t offset, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    int at = find_partition(k, unit);
    if (at < 0) /* another worker has the partition */
        return SFP_OK;
    sfp__messages_done(&k->own[at].ready);
    k->own[at].bytes = 0;
    return move_to(k, &k->own[at], offset, err);
}

/* Prefetches one message. All partitions share one queue. With a queue per partition messages were lost: librdkafka redirects it to the common queue
 * when fetching from the partition starts, which is later than the assignment. */
static sfp_status prefetch_message(kafka_log *k, int ms, bool *got, sfp_error *err)
{
    rd_kafka_message_t *m = rd_kafka_consumer_poll(k->consumer, ms);
    char unit[SFP__LOG_NAME_MAX];
    sfp_status status = SFP_OK;
    *got = m != NULL;
    if (!m)
        return sfp__check_memory(!k->no_memory, err);
    name_unit(m->partition, unit);
    int at = m->err ? -1 : find_partition(k, unit);
    partition *p = at >= 0 ? &k->own[at] : NULL;
    if (m->err) {
        (void)sfp__printable(rd_kafka_message_errstr(m), k->problem, sizeof k->problem);
        if (m->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || m->err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
            m->err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
            status = fail_kafka(&k->log, m->err, err);
    } else if (p && m->offset >= p->next) {
        status = take_message(k, m, &p->ready, err);
        p->bytes += status ? 0 : m->len;
        p->next = m->offset + 1;
        if (!status && !p->paused && (p->ready.count >= READY_BATCHES * k->batch || p->bytes >= READY_BYTES))
            (void)set_paused(k, p, true);
    }
    rd_kafka_message_destroy(m);
    return status;
}

/* Prefetches the messages that have arrived. The limit of messages makes sure that the function ends. */
static sfp_status prefetch_all(kafka_log *k, sfp_error *err)
{
    bool got = true;
    for (int n = 0; got && n < 100; n++)
        TRY(prefetch_message(k, 0, &got, err));
    return SFP_OK;
}

/* Creates the consumer. librdkafka reconnects by itself; later calls only process assignments and revocations of partitions, because a commit may
 * have to wait for these. */
static sfp_status connect_kafka(sfp__log *l, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    const struct rd_kafka_metadata *about = NULL;
    if (k->consumer)
        return *l->worker ? prefetch_all(k, err) : SFP_OK;
    TRY(make_client(k, RD_KAFKA_CONSUMER, &k->consumer, err));
    rd_kafka_resp_err_t code = rd_kafka_metadata(k->consumer, 0, NULL, &about, TIMEOUT_MS);
    if (!code)
        rd_kafka_metadata_destroy(about);
    if (!code && *l->worker) {
        rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
        (void)rd_kafka_topic_partition_list_add(topics, l->stream, RD_KAFKA_PARTITION_UA);
        (void)rd_kafka_poll_set_consumer(k->consumer);
        code = rd_kafka_subscribe(k->consumer, topics);
        rd_kafka_topic_partition_list_destroy(topics);
    }
    if (!code)
        return SFP_OK;
    sfp_status status = fail_kafka(l, code, err);
    disconnect(l);
    return status;
}

/* Chooses the partition to read from: that of `unit`, or the next one with messages; -1: none. */
static int choose(kafka_log *k, const char *unit)
{
    if (*unit)
        return find_partition(k, unit);
    for (int i = 0; i < k->count; i++) {
        int at = (k->turn + 1 + i) % k->count;
        if (k->own[at].ready.first)
            return at;
    }
    return -1;
}

static sfp_status read_kafka(sfp__log *l, int max, double seconds, const sfp__messages *held, char unit[SFP__LOG_NAME_MAX],
                             sfp__messages *out, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    double until = sfp__monotonic_seconds() + seconds;
    bool got;
    (void)held;
    k->batch = max > k->batch ? max : k->batch;
    for (;;) {
        TRY(prefetch_all(k, err));
        for (int i = 0; i < k->count; i++)
            if (k->own[i].paused && k->own[i].ready.count <= k->batch)
                TRY(move_to(k, &k->own[i], k->own[i].next, err));
        int at = choose(k, unit);
        if (*unit && at < 0) { /* the partition was revoked */
            unit[0] = '\0';
            return SFP_OK;
        }
        if (at >= 0 && k->own[at].ready.first) {
            partition *p = &k->own[at];
            for (sfp__message *m; out->count < max && (m = sfp__messages_take(&p->ready));) {
                p->bytes -= m->size;
                sfp__messages_put(out, m);
            }
            k->turn = at;
            name_unit(p->number, unit);
            return SFP_OK;
        }
        double left = until - sfp__monotonic_seconds();
        if (left <= 0)
            return SFP_OK;
        TRY(prefetch_message(k, 1 + (int)(left * 1000), &got, err));
    }
}

/* ------------------------------------------------------------------- committing */

/* Reads the committed values of all partitions in the list. */
static sfp_status fetch(sfp__log *l, rd_kafka_topic_partition_list_t *list, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    rd_kafka_resp_err_t code = rd_kafka_committed(k->consumer, list, TIMEOUT_MS);
    for (int i = 0; i < list->cnt && !code; i++)
        code = list->elems[i].err;
    return code ? fail_kafka(l, code, err) : SFP_OK;
}

static void copy_value(const rd_kafka_topic_partition_t *p, char value[SFP__LOG_VALUE_MAX])
{
    (void)snprintf(value, SFP__LOG_VALUE_MAX, "%.*s", p->metadata ? (int)p->metadata_size : 0,
                   p->metadata ? (const char *)p->metadata : "");
}

static sfp_status committed(sfp__log *l, const char *unit, char value[SFP__LOG_VALUE_MAX], sfp_error *err)
{
    int64_t number = 0;
    if (*unit != 'p' || !sfp__parse_int(unit + 1, &number))
        return sfp__fail(err, SFP_EINVAL, "'%s' is not a partition", unit);
    rd_kafka_topic_partition_list_t *list = list_one((kafka_log *)l, (int32_t)number, RD_KAFKA_OFFSET_INVALID);
    sfp_status status = fetch(l, list, err);
    copy_value(&list->elems[0], value);
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

/* A commit that was sent while the group rebalanced has an old generation, also if the partition stays. It is tried again in the new one: if
 * the partition goes, or has gone, on_rebalance says so before that. */
static bool means_fenced(const kafka_log *k, rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID || code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID ||
           code == RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST ||
           (code == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION && rd_kafka_assignment_lost(k->consumer));
}

static sfp_status can_commit(sfp__log *l, bool *can, sfp_error *err)
{
    TRY(prefetch_all((kafka_log *)l, err));
    *can = ((kafka_log *)l)->steady;
    return SFP_OK;
}

static sfp_status commit(sfp__log *l, const char *unit, const char *before, const char *value, const sfp__messages *m,
                         bool *fenced, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    (void)before;
    int at = find_partition(k, unit);
    if (at < 0 || rd_kafka_assignment_lost(k->consumer)) {
        *fenced = true;
        return SFP_OK;
    }
    rd_kafka_topic_partition_list_t *list = list_one(k, k->own[at].number, m->last->offset + 1);
    rd_kafka_topic_partition_t *p = &list->elems[0];
    p->metadata_size = strlen(value);
    p->metadata = strdup(value); /* the list owns it */
    rd_kafka_resp_err_t code = p->metadata ? rd_kafka_commit(k->consumer, list, 0) : RD_KAFKA_RESP_ERR__FAIL;
    code = code ? code : list->elems[0].err;
    rd_kafka_topic_partition_list_destroy(list);
    *fenced = means_fenced(k, code);
    if (code)
        (void)fail_kafka(l, code, err);
    return !code || *fenced ? SFP_OK : SFP_EIO;
}

/* Appends an entry and waits until the broker has it, because a worker must not commit a message before its answer is stored. */
static rd_kafka_resp_err_t produce(kafka_log *k, const char *topic, const sfp__log_field *fields, const sfp__message *m)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    for (; fields->key; fields++)
        (void)rd_kafka_header_add(headers, fields->key, -1, fields->value, -1);
    rd_kafka_resp_err_t code =
        rd_kafka_producev(k->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK),
                          RD_KAFKA_V_VALUE(m ? m->data : NULL, m ? m->size : 0), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code) {
        rd_kafka_headers_destroy(headers);
        return code;
    }
    k->delivery = RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (rd_kafka_flush(k->producer, TIMEOUT_MS)) { /* it is appended again later */
        (void)rd_kafka_purge(k->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        (void)rd_kafka_flush(k->producer, TIMEOUT_MS);
    }
    return k->delivery;
}

static sfp_status append(sfp__log *l, const char *name, const sfp__log_field *fields, const sfp__message *m, sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    char topic[300];
    if (!k->producer)
        TRY(make_client(k, RD_KAFKA_PRODUCER, &k->producer, err));
    (void)snprintf(topic, sizeof topic, "%s.%s", l->stream, name);
    rd_kafka_resp_err_t code = produce(k, topic, fields, m);
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) /* too large for this topic: try again without the payload */
        code = produce(k, topic, fields, NULL);
    return code ? fail_kafka(l, code, err) : SFP_OK;
}

static sfp_status each(sfp__log *l, sfp_status (*fn)(void *ctx, const char *unit, const char *value, sfp_error *err), void *ctx,
                       sfp_error *err)
{
    kafka_log *k = (kafka_log *)l;
    const struct rd_kafka_metadata *about = NULL;
    char unit[SFP__LOG_NAME_MAX], value[SFP__LOG_VALUE_MAX];
    rd_kafka_topic_t *topic = rd_kafka_topic_new(k->consumer, l->stream, NULL);
    rd_kafka_resp_err_t code = topic ? rd_kafka_metadata(k->consumer, 0, topic, &about, TIMEOUT_MS) : rd_kafka_last_error();
    int count = !code && about && about->topic_cnt == 1 ? about->topics[0].partition_cnt : 0;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count > 0 ? count : 1);
    for (int32_t p = 0; p < count && p < PARTITIONS_MAX; p++)
        (void)rd_kafka_topic_partition_list_add(list, l->stream, p);
    sfp_status status = code ? fail_kafka(l, code, err) : count ? fetch(l, list, err) : SFP_OK;
    for (int p = 0; p < list->cnt && !status; p++) {
        name_unit(list->elems[p].partition, unit);
        copy_value(&list->elems[p], value);
        status = fn(ctx, unit, value, err);
    }
    if (about)
        rd_kafka_metadata_destroy(about);
    if (topic)
        rd_kafka_topic_destroy(topic);
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

static const sfp__log_ops kafka_ops = {.connect = connect_kafka,
                                       .disconnect = disconnect,
                                       .read = read_kafka,
                                       .committed = committed,
                                       .can_commit = can_commit,
                                       .commit = commit,
                                       .seek = seek_kafka,
                                       .append = append,
                                       .each = each};

static sfp_status open_kafka(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    sfp__log *l = NULL;
    TRY(sfp__log_create(sizeof(kafka_log), &sfp__source_kafka, &kafka_ops, path, "kafka:cams@localhost:9092/plant", &l, err));
    *out = &l->base;
    return SFP_OK;
}
#else
static sfp_status open_kafka(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt, (void)out;
    return sfp__fail_key(
        err, "data", SFP_EUNSUPPORTED,
        "data: kafka:%s needs librdkafka, which this build does not have; install librdkafka-dev and build again", path);
}
#endif

const sfp__source_kind sfp__source_kafka = {
    .name = "kafka",
    .summary = "TOPIC@BROKERS/GROUP: a Kafka topic that several workers share (--share)",
    .live = true,
    .open = open_kafka,
};
