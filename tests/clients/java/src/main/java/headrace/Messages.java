package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.read;
import static headrace.Clients.readFrom;
import static headrace.Clients.text;
import static headrace.Clients.values;
import static headrace.Teller.holds;
import static headrace.Teller.refused;
import static headrace.Teller.same;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

/** What the Java producer sends is what the Java consumer gets. */
final class Messages {
    private final Clients clients;

    Messages(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("round-trip", this::roundTrip);
        teller.add("compression", this::compression);
        teller.add("headers", this::headers);
        teller.add("timestamps", this::timestamps);
        teller.add("log-append-time", this::logAppendTime);
        teller.add("large-message", this::largeMessage);
        teller.add("oversize", this::oversize);
        teller.add("acks", this::acks);
        teller.add("idempotence", this::idempotence);
        teller.add("key-order", this::keyOrder);
        teller.add("partitioning", this::partitioning);
        teller.add("many-messages", this::manyMessages);
    }

    private void roundTrip() throws Exception {
        byte[] all = new byte[256];
        for (int value = 0; value < 256; value++) all[value] = (byte) value;
        byte[][][] pairs = {
            {bytes("key"), bytes("value")}, {null, bytes("no key")}, {bytes("no value"), null}, {null, null},
            {new byte[0], new byte[0]}, {bytes("schlüssel"), bytes("värde — 値 🌊")}, {all, all},
        };
        String topic = clients.topic(1);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            for (byte[][] pair : pairs) producer.send(new ProducerRecord<>(topic, pair[0], pair[1])).get();
            var records = readFrom(consumer, topic, 0, pairs.length);
            for (int at = 0; at < pairs.length; at++) {
                holds("key " + at + " comes back", Arrays.equals(pairs[at][0], records.get(at).key()));
                holds("value " + at + " comes back", Arrays.equals(pairs[at][1], records.get(at).value()));
            }
        }
    }

    private void compression() throws Exception {
        for (String kind : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = clients.topic(1);
            List<String> sent = numbers(200).stream().map(number -> number.repeat(50)).toList();
            try (var producer = clients.producer("compression.type", kind, "linger.ms", 50); var consumer = clients.consumer()) {
                produce(producer, topic, sent);
                same(sent, values(readFrom(consumer, topic, 0, 200)));
            }
        }
    }

    private void headers() throws Exception {
        String topic = clients.topic(1);
        List<Header> sent = List.of(new RecordHeader("a", bytes("1")), new RecordHeader("b", (byte[]) null),
            new RecordHeader("a", bytes("2")), new RecordHeader("empty", new byte[0]), new RecordHeader("ünï", bytes("ï")));
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, null, null, bytes("v"), sent)).get();
            same(sent, Arrays.asList(readFrom(consumer, topic, 0, 1).get(0).headers().toArray()));
        }
    }

    private void timestamps() throws Exception {
        String topic = clients.topic(1);
        long hourAgo = System.currentTimeMillis() - 3_600_000;
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            producer.send(new ProducerRecord<>(topic, 0, hourAgo, null, bytes("v"))).get();
            var record = readFrom(consumer, topic, 0, 1).get(0);
            same(hourAgo, record.timestamp());
            same(TimestampType.CREATE_TIME, record.timestampType());
        }
    }

    private void logAppendTime() throws Exception {
        String topic = clients.topic(1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            RecordMetadata told = producer.send(new ProducerRecord<>(topic, 0, before - 3_600_000, null, bytes("v"))).get();
            var record = readFrom(consumer, topic, 0, 1).get(0);
            same(TimestampType.LOG_APPEND_TIME, record.timestampType());
            holds("stamped by the broker", before <= record.timestamp() && record.timestamp() <= System.currentTimeMillis());
            same(record.timestamp(), told.timestamp());
        }
    }

    private void largeMessage() throws Exception {
        String topic = clients.topic(1);
        byte[] value = new byte[900_000];
        new Random(1).nextBytes(value);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            producer.send(new ProducerRecord<>(topic, value)).get();
            holds("900 KB come back", Arrays.equals(value, readFrom(consumer, topic, 0, 1).get(0).value()));
        }
    }

    private void oversize() throws Exception {
        String topic = clients.topic(1, "max.message.bytes", "1000");
        byte[] value = new byte[5000];
        new Random(1).nextBytes(value);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            refused(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, value)).get());
            producer.send(new ProducerRecord<>(topic, bytes("small"))).get();
            same("small", text(readFrom(consumer, topic, 0, 1).get(0).value()));
        }
    }

    private void acks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = clients.topic(1);
            try (var producer = clients.producer("acks", acks, "enable.idempotence", false); var consumer = clients.consumer()) {
                produce(producer, topic, numbers(20));
                same(numbers(20), values(readFrom(consumer, topic, 0, 20)));
            }
        }
    }

    /** The defaults: idempotent, acks=all, five requests in flight; small batches make many sequences. */
    private void idempotence() throws Exception {
        String topic = clients.topic(1);
        try (var producer = clients.producer("batch.size", 200); var other = clients.producer(); var consumer = clients.consumer()) {
            var told = produce(producer, topic, numbers(2000));
            for (int at = 0; at < 2000; at++) same((long) at, told.get(at).offset());
            same(2000L, produce(other, topic, List.of("other")).get(0).offset());
            same(numbers(2000), values(readFrom(consumer, topic, 0, 2001)).subList(0, 2000));
        }
    }

    private void keyOrder() throws Exception {
        String topic = clients.topic(4);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            for (int number = 0; number < 400; number++)
                producer.send(new ProducerRecord<>(topic, bytes("key-" + number % 10), bytes("" + number)));
            producer.flush();
            List<TopicPartition> places = new ArrayList<>();
            for (int partition = 0; partition < 4; partition++) places.add(new TopicPartition(topic, partition));
            consumer.assign(places);
            Map<String, List<Integer>> byKey = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, 400))
                byKey.computeIfAbsent(text(record.key()), key -> new ArrayList<>()).add(Integer.parseInt(text(record.value())));
            same(10, byKey.size());
            byKey.forEach((key, seen) -> {
                for (int at = 0; at < 40; at++) same(at * 10 + Integer.parseInt(key.substring(4)), seen.get(at));
            });
        }
    }

    private void partitioning() throws Exception {
        String topic = clients.topic(5);
        try (var producer = clients.producer()) {
            for (String key : List.of("a", "bb", "ccc", "ключ")) {
                int wanted = Utils.toPositive(Utils.murmur2(bytes(key))) % 5;
                same(wanted, producer.send(new ProducerRecord<>(topic, bytes(key), bytes("v"))).get().partition());
            }
            for (int partition = 0; partition < 5; partition++)
                same(partition, producer.send(new ProducerRecord<>(topic, partition, null, bytes("v"))).get().partition());
        }
    }

    private void manyMessages() throws Exception {
        String topic = clients.topic(1);
        try (var producer = clients.producer("linger.ms", 20); var consumer = clients.consumer()) {
            produce(producer, topic, numbers(50_000));
            same(numbers(50_000), values(readFrom(consumer, topic, 0, 50_000)));
        }
    }
}
