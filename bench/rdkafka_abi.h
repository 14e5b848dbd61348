/* The part of librdkafka's public C interface that load.c calls.
 *
 * confluent-kafka's wheel carries librdkafka as a shared library but not its header. These few declarations have been
 * stable since librdkafka 1.4, so the generator links against the library that is already in the environment and needs
 * only a C compiler, no further package. */
#ifndef BENCH_RDKAFKA_ABI_H
#define BENCH_RDKAFKA_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_s rd_kafka_topic_partition_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_MSG_F_BLOCK = 0x4, RD_KAFKA_MSG_F_PARTITION = 0x8 };
enum { RD_KAFKA_ERR_QUEUE_FULL = -184, RD_KAFKA_ERR_PARTITION_EOF = -191, RD_KAFKA_OFFSET_END = -1 };

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *why, size_t why_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *why, size_t why_size);
void rd_kafka_destroy(rd_kafka_t *);
const char *rd_kafka_err2str(int err);
const char *rd_kafka_version_str(void);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
int rd_kafka_flush(rd_kafka_t *, int timeout_ms);

rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *topic, rd_kafka_topic_conf_t *);
void rd_kafka_topic_destroy(rd_kafka_topic_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t len, const void *key,
                     size_t key_len, void *opaque);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t partition, int flags, rd_kafka_message_t *, int count);
int rd_kafka_last_error(void);

rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int timeout_ms);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int timeout_ms);
const char *rd_kafka_error_string(const rd_kafka_error_t *);

rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t count);
rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *, int timeout_ms);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int rd_kafka_consumer_close(rd_kafka_t *);

#endif
