package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.read;
import static headrace.Clients.readFrom;
import static headrace.Clients.text;
import static headrace.Teller.holds;
import static headrace.Teller.refused;
import static headrace.Teller.same;
import static headrace.Teller.until;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Where a Java consumer reads: seeks, times, watermarks, pauses, and topics that are not there. */
final class Reading {
    private static final int DROPPED_FROM = 40;
    private final Clients clients;

    Reading(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("seek", this::seek);
        teller.add("seek-by-time", this::seekByTime);
        teller.add("pause", this::pause);
        teller.add("watermarks", this::watermarks);
        teller.add("unknown-topic", this::unknownTopic);
        teller.add("recreated-topic", this::recreatedTopic);
        teller.add("dropped-records", this::duplicatesDropped);
        teller.add("dropped-records", this::compacted);
    }

    private void seek() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            produce(producer, topic, numbers(10));
            same("7", text(readFrom(consumer, topic, 7, 3).get(0).value()));
            consumer.seekToBeginning(List.of(place));
            same(0L, read(consumer, 1).get(0).offset());
            consumer.seek(place, 4);
            same(4L, read(consumer, 1).get(0).offset());
            consumer.seekToEnd(List.of(place));
            same(10L, consumer.position(place));
            produce(producer, topic, List.of("new"));
            same("new", text(read(consumer, 1).get(0).value()));
            consumer.seek(place, 1000);
            same(0L, read(consumer, 1).get(0).offset());
        }
    }

    private void seekByTime() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 3_600_000;
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            for (int number = 0; number < 10; number++)
                producer.send(new ProducerRecord<>(topic, 0, start + number * 1000L, null, bytes("" + number))).get();
            same(0L, consumer.offsetsForTimes(Map.of(place, start - 5)).get(place).offset());
            same(3L, consumer.offsetsForTimes(Map.of(place, start + 3000)).get(place).offset());
            var later = consumer.offsetsForTimes(Map.of(place, start + 3001)).get(place);
            same(4L, later.offset());
            same(start + 4000, later.timestamp());
            same(null, consumer.offsetsForTimes(Map.of(place, start + 60_000)).get(place));
            same("4", text(readFrom(consumer, topic, later.offset(), 1).get(0).value()));
        }
    }

    private void duplicatesDropped() throws Exception {
        String topic = clients.topic(1, "headrace.dedup.window.ms", "600000");
        try (var producer = clients.producer()) {
            for (int number = 0; number < DROPPED_FROM; number++) {
                var record = new ProducerRecord<byte[], byte[]>(topic, 0, null, bytes("same"));
                record.headers().add("headrace.id", bytes("same"));
                producer.send(record).get();
            }
        }
        readsToTheEnd(topic, "same");
    }

    private void compacted() throws Exception {
        String topic = clients.topic(
                1, "cleanup.policy", "compact", "segment.bytes", "100", "min.cleanable.dirty.ratio", "0");
        try (var producer = clients.producer()) {
            for (int number = 0; number < DROPPED_FROM; number++)
                producer.send(new ProducerRecord<>(topic, 0, bytes("k"), bytes("" + number))).get();
        }
        until("it is compacted", () -> {
            try (var consumer = clients.consumer()) {
                return readFrom(consumer, topic, 0, 1).get(0).offset() == DROPPED_FROM - 2;
            }
        });
        readsToTheEnd(topic, "" + (DROPPED_FROM - 1));
    }

    /** A consumer from the start, of either isolation level, comes to the end and to what is produced after that. */
    private void readsToTheEnd(String topic, String newest) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        long end = DROPPED_FROM;
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (var producer = clients.producer(); var consumer = clients.consumer("isolation.level", isolation)) {
                consumer.assign(List.of(place));
                consumer.seek(place, 0);
                List<String> values = new java.util.ArrayList<>();
                long wanted = end;
                until("the position is the end", () -> {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(text(record.value())));
                    return consumer.position(place) == wanted;
                });
                same(newest, values.get(values.size() - 1));
                same(0L, consumer.currentLag(place).getAsLong());
                producer.send(new ProducerRecord<>(topic, 0, bytes("another"), bytes(isolation))).get();
                same(isolation, text(read(consumer, 1).get(0).value()));
                newest = isolation;
                end++;
            }
        }
    }

    private void pause() throws Exception {
        String topic = clients.topic(2);
        TopicPartition zero = new TopicPartition(topic, 0), one = new TopicPartition(topic, 1);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            consumer.assign(List.of(zero, one));
            consumer.pause(List.of(zero));
            producer.send(new ProducerRecord<>(topic, 0, null, bytes("0"))).get();
            producer.send(new ProducerRecord<>(topic, 1, null, bytes("1"))).get();
            same("1", text(read(consumer, 1).get(0).value()));
            holds("the paused partition is silent", consumer.poll(Duration.ofMillis(300)).isEmpty());
            consumer.resume(List.of(zero));
            same("0", text(read(consumer, 1).get(0).value()));
        }
    }

    private void watermarks() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            same(Map.of(place, 0L), consumer.endOffsets(List.of(place)));
            produce(producer, topic, numbers(3));
            same(Map.of(place, 0L), consumer.beginningOffsets(List.of(place)));
            same(Map.of(place, 3L), consumer.endOffsets(List.of(place)));
            readFrom(consumer, topic, 0, 1);
            until("the lag is known", () -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.currentLag(place).isPresent();
            });
        }
    }

    private void unknownTopic() throws Exception {
        String topic = Clients.unique("never-created");
        try (var consumer = clients.consumer("allow.auto.create.topics", false)) {
            same(List.of(), consumer.partitionsFor(topic));
            holds("not listed", !consumer.listTopics().containsKey(topic));
        }
        refused(UnknownTopicOrPartitionException.class, () -> clients.admin.describeTopics(List.of(topic)).allTopicNames().get());
    }

    private void recreatedTopic() throws Exception {
        String topic = clients.topic(1);
        try (var consumer = clients.consumer("allow.auto.create.topics", false)) {
            try (var producer = clients.producer()) {
                produce(producer, topic, numbers(5));
            }
            consumer.subscribe(List.of(topic));
            read(consumer, 5);
            clients.admin.deleteTopics(List.of(topic)).all().get();
            clients.named(topic, 1);
            try (var producer = clients.producer()) {
                produce(producer, topic, List.of("new"));
            }
            same("new", text(read(consumer, 1).get(0).value()));
        }
    }
}
