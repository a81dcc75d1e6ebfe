/* A Kafka cluster in memory, which librdkafka has for tests. Prints its addresses, then executes lines of standard input and answers each
 * with "ok":
 *
 *     create TOPIC PARTITIONS
 *     put TOPIC PARTITION LABEL PATH      a message with the file; LABEL "-": without a label
 *     has TOPIC N                         "ok" if the partitions of the topic have N messages
 *     leader TOPIC PARTITION BROKER       moves a partition
 *     down BROKER, up BROKER
 *
 * It ends with its standard input. */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { MADE_PARTITIONS = 4 }; /* of a topic that a client has made: default of the cluster */

static int put(rd_kafka_t *rk, const char *topic, int partition, const char *label, const char *path)
{
    static char bytes[1 << 20];
    const char *header = strcmp(label, "-") == 0 ? "other" : "label";
    FILE *f = fopen(path, "rb");
    size_t size = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (!f)
        return 1;
    (void)fclose(f);
    rd_kafka_resp_err_t code =
        rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK), RD_KAFKA_V_VALUE(bytes, size),
                          RD_KAFKA_V_HEADER(header, label, (ssize_t)strlen(label)), RD_KAFKA_V_END);
    (void)rd_kafka_poll(rk, 0);
    return code != 0;
}

static bool has(rd_kafka_t *rk, const char *topic, int64_t count)
{
    for (int p = 0; p < MADE_PARTITIONS; p++) {
        int64_t low = 0, high = 0;
        if (rd_kafka_query_watermark_offsets(rk, topic, p, &low, &high, 5000))
            return false;
        count -= high;
    }
    return count == 0;
}

static int execute(rd_kafka_t *rk, rd_kafka_mock_cluster_t *cluster, const char *line)
{
    char topic[64], label[64], path[512];
    int a, b;
    if (sscanf(line, "create %63s %d", topic, &a) == 2)
        return rd_kafka_mock_topic_create(cluster, topic, a, 1) != 0;
    if (sscanf(line, "put %63s %d %63s %511s", topic, &a, label, path) == 4)
        return put(rk, topic, a, label, path);
    if (sscanf(line, "has %63s %d", topic, &a) == 2)
        return !has(rk, topic, a);
    if (sscanf(line, "leader %63s %d %d", topic, &a, &b) == 3)
        return rd_kafka_mock_partition_set_leader(cluster, topic, a, b) != 0;
    if (sscanf(line, "down %d", &a) == 1)
        return rd_kafka_mock_broker_set_down(cluster, a) != 0;
    if (sscanf(line, "up %d", &a) == 1)
        return rd_kafka_mock_broker_set_up(cluster, a) != 0;
    if (strcmp(line, "flush\n") == 0)
        return rd_kafka_flush(rk, 60000) != 0;
    return 1;
}

int main(void)
{
    char why[256], line[1024];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "test.mock.num.brokers", "3", why, sizeof why) != RD_KAFKA_CONF_OK ||
        rd_kafka_conf_set(conf, "log_level", "0", why, sizeof why) != RD_KAFKA_CONF_OK)
        return 2;
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    rd_kafka_mock_cluster_t *cluster = rk ? rd_kafka_handle_mock_cluster(rk) : NULL;
    if (!cluster) {
        (void)fprintf(stderr, "no cluster: %s\n", why);
        return 2;
    }
    (void)puts(rd_kafka_mock_cluster_bootstraps(cluster));
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        (void)puts(execute(rk, cluster, line) ? "failed" : "ok");
        (void)fflush(stdout);
    }
    rd_kafka_destroy(rk);
    return 0;
}
