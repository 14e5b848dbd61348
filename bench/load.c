/* The load generator: produces to, consumes from and measures the round trip of one broker through librdkafka.
 *
 * It is C because a Python call per message (0.3 to 0.5 million a second) would itself be the limit. load.py compiles
 * it, runs it once per measurement and reads the one line of JSON that it prints.
 *
 *   load produce    BROKER TOPIC PARTITIONS COUNT SIZE SECONDS CLIENTS [name=value ...]
 *   load transactions ... the same in transactions, each of which is committed after 100 ms
 *   load consume    ...   CLIENTS consumers read COUNT messages from offset 0 on
 *   load ack        ...   one message at a time: time from the call to the acknowledgement, in nanoseconds
 *   load end-to-end ...   one message at a time: time from the call until a consumer has it, in nanoseconds
 *   load echo FILE SECONDS  the broker that costs nothing: prints its port, then appends what comes in on one connection
 *                         to FILE, and answers each piece of it with zeros
 *
 * name=value is any librdkafka setting, for the consumer in `consume`, else for the producer. After SECONDS the program ends itself, whatever the broker does, so no loop here is unbounded. */
#include "rdkafka_abi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1000, WARM_UP = 200, MOST_CLIENTS = 64, COMMIT_EVERY_MS = 100 };

struct order {
    const char *broker, *topic;
    int partitions;
    long count;
    size_t size;
    int clients;
    char **settings;
    int setting_count;
};

/* What the delivery callback counts; one thread calls it, from rd_kafka_poll. */
struct tally {
    long acknowledged, failed;
    int last_error;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != 0)
        die(name, why);
}

static void count_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    struct tally *tally = opaque;
    (void)rk;
    tally->acknowledged++;
    if (message->err) {
        tally->failed++;
        tally->last_error = message->err;
    }
}

static rd_kafka_t *client(int type, const struct order *order, rd_kafka_conf_t *conf, int with_settings) {
    char why[512], setting[256];
    set(conf, "bootstrap.servers", order->broker);
    for (int i = 0; with_settings && i < order->setting_count; i++) {
        snprintf(setting, sizeof setting, "%s", order->settings[i]);
        char *equals = strchr(setting, '=');
        if (!equals)
            die(setting, "a setting is name=value");
        *equals = 0;
        set(conf, setting, equals + 1);
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        die("librdkafka", why);
    return rk;
}

static rd_kafka_t *producer(const struct order *order, struct tally *tally) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", "1");
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "1048576");
    rd_kafka_conf_set_dr_msg_cb(conf, count_delivery);
    rd_kafka_conf_set_opaque(conf, tally);
    return client(RD_KAFKA_PRODUCER, order, conf, 1);
}

/* A consumer of the partitions first, first + CLIENTS, first + 2 CLIENTS ... */
static rd_kafka_t *consumer(const struct order *order, int64_t offset, int first, int with_settings) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, order, conf, with_settings);
    rd_kafka_poll_set_consumer(rk);
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(order->partitions);
    for (int p = first; p < order->partitions; p += order->clients) {
        rd_kafka_topic_partition_list_add(all, order->topic, p);
        rd_kafka_topic_partition_list_set_offset(all, order->topic, p, offset);
    }
    int err = rd_kafka_assign(rk, all);
    if (err)
        die("assign", rd_kafka_err2str(err));
    rd_kafka_topic_partition_list_destroy(all);
    return rk;
}

static char *payload_of(size_t size) {
    char *payload = malloc(size);
    for (size_t i = 0; i < size; i++)
        payload[i] = (char)('!' + (i * 7919) % 90);
    return payload;
}

static void wait_for(rd_kafka_t *rk, struct tally *tally, long acknowledged) {
    while (tally->acknowledged < acknowledged)
        rd_kafka_poll(rk, 100);
}

static void print_work(long messages, long bytes, int64_t nanoseconds, long parts, long failed, int last_error) {
    printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.9f, \"parts\": %ld, ", messages, bytes,
           (double)nanoseconds / 1e9, parts);
    printf("\"failed\": %ld, \"error\": \"%s\"}\n", failed, failed ? rd_kafka_err2str(last_error) : "");
}

/* One message to each partition, so that connecting and looking up leaders is over before the clock starts. */
static void say_hello(rd_kafka_topic_t *topic, char *payload, const struct order *order) {
    for (int p = 0; p < order->partitions; p++)
        if (rd_kafka_produce(topic, p, RD_KAFKA_MSG_F_BLOCK, payload, order->size, NULL, 0, NULL) != 0)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
}

/* Offers up to BATCH of the messages that are left, round robin over the partitions; returns how many were taken. */
static int offer(rd_kafka_t *rk, rd_kafka_topic_t *topic, char *payload, const struct order *order, long sent) {
    rd_kafka_message_t batch[BATCH];
    int wanted = order->count - sent < BATCH ? (int)(order->count - sent) : BATCH;
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < wanted; i++) {
        batch[i].payload = payload;
        batch[i].len = order->size;
        batch[i].partition = order->partitions == 1 ? 0 : (int32_t)((sent + i) % order->partitions);
    }
    int taken = rd_kafka_produce_batch(topic, 0, RD_KAFKA_MSG_F_PARTITION, batch, wanted);
    if (taken < wanted && batch[taken].err != RD_KAFKA_ERR_QUEUE_FULL)
        die("produce", rd_kafka_err2str(batch[taken].err));
    rd_kafka_poll(rk, taken < wanted ? 10 : 0);
    return taken;
}

static void produce(const struct order *order) {
    struct tally tally = {0};
    rd_kafka_t *rk = producer(order, &tally);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, order->topic, NULL);
    char *payload = payload_of(order->size);

    say_hello(topic, payload, order);
    wait_for(rk, &tally, order->partitions);
    int64_t start = now_ns();
    for (long sent = 0; sent < order->count;)
        sent += offer(rk, topic, payload, order, sent);
    wait_for(rk, &tally, order->partitions + order->count);
    print_work(order->count, order->count * (long)order->size, now_ns() - start, 1, tally.failed, tally.last_error);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(payload);
}

static void must(const char *what, rd_kafka_error_t *error) {
    if (error)
        die(what, rd_kafka_error_string(error));
}

/* The clock starts after a first, small transaction: the coordinator is known by then and has met this producer. */
static void transactions(const struct order *order) {
    struct tally tally = {0};
    rd_kafka_t *rk = producer(order, &tally);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, order->topic, NULL);
    char *payload = payload_of(order->size);
    long commits = 0;

    must("init_transactions", rd_kafka_init_transactions(rk, -1));
    must("begin_transaction", rd_kafka_begin_transaction(rk));
    say_hello(topic, payload, order);
    must("commit_transaction", rd_kafka_commit_transaction(rk, -1));
    int64_t start = now_ns();
    for (long sent = 0; sent < order->count; commits++) {
        must("begin_transaction", rd_kafka_begin_transaction(rk));
        int64_t commit_at = now_ns() + (int64_t)COMMIT_EVERY_MS * 1000000;
        while (sent < order->count && now_ns() < commit_at)
            sent += offer(rk, topic, payload, order, sent);
        must("commit_transaction", rd_kafka_commit_transaction(rk, -1));
    }
    print_work(order->count, order->count * (long)order->size, now_ns() - start, commits, tally.failed,
               tally.last_error);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(payload);
}

struct reader {
    const struct order *order;
    int first;
    long wanted, got, bytes, failed;
    int last_error;
    int64_t start, end;
};

/* Reads its share. The clock starts with the first messages, for the same reason as above. */
static void *read_share(void *opaque) {
    struct reader *reader = opaque;
    rd_kafka_t *rk = consumer(reader->order, 0, reader->first, 1);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    rd_kafka_message_t *batch[BATCH];

    while (reader->got < reader->wanted) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, batch, BATCH);
        if (n > 0 && !reader->start)
            reader->start = now_ns();
        for (ssize_t i = 0; i < n; i++) {
            if (!batch[i]->err) {
                reader->got++;
                reader->bytes += (long)batch[i]->len;
            } else if (batch[i]->err != RD_KAFKA_ERR_PARTITION_EOF) {
                reader->failed++;
                reader->last_error = batch[i]->err;
            }
            rd_kafka_message_destroy(batch[i]);
        }
    }
    reader->end = now_ns();
    rd_kafka_queue_destroy(queue);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return NULL;
}

/* CLIENTS consumers, each with every CLIENTS-th partition: one librdkafka consumer decodes on one thread only, and that
 * thread, not the broker, would be what is measured. */
static void consume(const struct order *order) {
    struct reader readers[MOST_CLIENTS] = {0}, sum = {0};
    pthread_t threads[MOST_CLIENTS];
    for (int i = 0; i < order->clients; i++) {
        readers[i] = (struct reader){.order = order, .first = i, .wanted = order->count / order->clients};
        if (pthread_create(&threads[i], NULL, read_share, &readers[i]) != 0)
            die("consume", "no thread");
    }
    for (int i = 0; i < order->clients; i++) {
        pthread_join(threads[i], NULL);
        sum.got += readers[i].got;
        sum.bytes += readers[i].bytes;
        sum.failed += readers[i].failed;
        sum.last_error = readers[i].failed ? readers[i].last_error : sum.last_error;
        sum.start = !sum.start || readers[i].start < sum.start ? readers[i].start : sum.start;
        sum.end = readers[i].end > sum.end ? readers[i].end : sum.end;
    }
    print_work(sum.got, sum.bytes, sum.end - sum.start, 1, sum.failed, sum.last_error);
}

static void print_times(const int64_t *times, long count, const struct tally *tally) {
    printf("{\"failed\": %ld, \"error\": \"%s\", \"nanoseconds\": [", tally->failed,
           tally->failed ? rd_kafka_err2str(tally->last_error) : "");
    for (long i = 0; i < count; i++)
        printf(i ? ",%lld" : "%lld", (long long)times[i]);
    printf("]}\n");
}

static void ack(const struct order *order) {
    struct tally tally = {0};
    rd_kafka_t *rk = producer(order, &tally);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, order->topic, NULL);
    char *payload = payload_of(order->size);
    int64_t *times = calloc((size_t)order->count, sizeof *times);

    for (long i = -WARM_UP; i < order->count; i++) {
        int64_t start = now_ns();
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_BLOCK, payload, order->size, NULL, 0, NULL) != 0)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        wait_for(rk, &tally, i + WARM_UP + 1);
        if (i >= 0)
            times[i] = now_ns() - start;
    }
    print_times(times, order->count, &tally);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(times);
    free(payload);
}

/* Waits for the next message and returns 1, or 0 when none came within the time. */
static int receive(rd_kafka_t *rk, int timeout_ms) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, timeout_ms);
    int got = message && !message->err;
    if (message)
        rd_kafka_message_destroy(message);
    return got;
}

static void end_to_end(const struct order *order) {
    struct tally tally = {0};
    rd_kafka_t *reader = consumer(order, RD_KAFKA_OFFSET_END, 0, 0);
    rd_kafka_t *rk = producer(order, &tally);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, order->topic, NULL);
    char *payload = payload_of(order->size);
    int64_t *times = calloc((size_t)order->count, sizeof *times);

    /* The reader starts at the end, wherever that is when it gets there: send until it sees one, then drain. */
    do
        rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_BLOCK, payload, order->size, NULL, 0, NULL);
    while (!receive(reader, 200));
    rd_kafka_flush(rk, 10000);
    while (receive(reader, 300))
        ;
    for (long i = -WARM_UP; i < order->count; i++) {
        int64_t start = now_ns();
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_BLOCK, payload, order->size, NULL, 0, NULL) != 0)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        while (!receive(reader, 100))
            ;
        if (i >= 0)
            times[i] = now_ns() - start;
        rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, 10000);
    print_times(times, order->count, &tally);
    rd_kafka_consumer_close(reader);
    rd_kafka_destroy(reader);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(times);
    free(payload);
}

/* What a round trip takes on this machine whatever the broker does: read, write to the page cache, answer. */
static void echo(const char *path) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int door = socket(AF_INET, SOCK_STREAM, 0), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), on = 1;
    char data[65536], answer[64] = {0};

    if (door < 0 || file < 0 || bind(door, (void *)&address, size) != 0 || listen(door, 1) != 0 ||
        getsockname(door, (void *)&address, &size) != 0)
        die("echo", strerror(errno));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int client = accept(door, NULL, NULL);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (ssize_t got; (got = recv(client, data, sizeof data, 0)) > 0;)
        if (write(file, data, (size_t)got) != got || send(client, answer, sizeof answer, MSG_NOSIGNAL) < 0)
            die("echo", strerror(errno));
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "echo")) {
        alarm((unsigned)atoi(argv[3]));
        echo(argv[2]);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "version")) {
        printf("%s\n", rd_kafka_version_str());
        return 0;
    }
    if (argc < 9)
        die("usage", "load MODE BROKER TOPIC PARTITIONS COUNT SIZE SECONDS CLIENTS [name=value ...]");
    struct order order = {argv[2], argv[3], atoi(argv[4]), atol(argv[5]), (size_t)atol(argv[6]), atoi(argv[8]),
                          argv + 9, argc - 9};
    if (order.clients < 1 || order.clients > MOST_CLIENTS)
        die(argv[8], "CLIENTS is out of range");
    alarm((unsigned)atoi(argv[7]));
    if (!strcmp(argv[1], "produce"))
        produce(&order);
    else if (!strcmp(argv[1], "transactions"))
        transactions(&order);
    else if (!strcmp(argv[1], "consume"))
        consume(&order);
    else if (!strcmp(argv[1], "ack"))
        ack(&order);
    else if (!strcmp(argv[1], "end-to-end"))
        end_to_end(&order);
    else
        die(argv[1], "unknown mode");
    return 0;
}
