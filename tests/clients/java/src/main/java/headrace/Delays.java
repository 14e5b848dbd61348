package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.read;
import static headrace.Clients.text;
import static headrace.Clients.unique;
import static headrace.Clients.values;
import static headrace.Teller.holds;
import static headrace.Teller.refused;
import static headrace.Teller.same;
import static headrace.Teller.until;

import headrace.Clients.Member;
import headrace.Clients.Source;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;

/** Delayed and scheduled records, which the Java client sends and reads by headers alone. Only headrace has them. */
final class Delays {
    private static final String DELAY = "headrace.delay-ms", DELIVER_AT = "headrace.deliver-at", HOUR = "3600000";
    private static final String CANCEL = "headrace.cancel", CANCEL_KEY = "headrace.cancel-key", MOVE = "headrace.move";
    private static final String CRON = "headrace.cron", CRON_ZONE = "headrace.cron-tz";
    private static final String ID = "headrace.scheduled.id", DUE = "headrace.scheduled.for";
    /** By which the broker's time may differ from ours: it follows no steps of the wall clock while it leads. */
    private static final long CLOCKS_MS = 100;

    private final Clients clients;

    Delays(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("delayed", () -> delayed("classic", "none"));
        teller.add("delayed", () -> delayed("consumer", "zstd"));
        teller.add("delayed-transactions", this::transactions);
        teller.add("cancelled", this::cancelled);
        teller.add("scheduled", this::scheduled);
    }

    /** The offset that the producer is told, which is the id of a delayed record; headers are name, value, name, value. */
    private static long sent(Source producer, String topic, int partition, String key, String value, String... headers)
            throws Exception {
        var record = new ProducerRecord<>(topic, partition, key == null ? null : bytes(key), bytes(value));
        for (int at = 0; at < headers.length; at += 2) record.headers().add(headers[at], bytes(headers[at + 1]));
        return producer.send(record).get().offset();
    }

    private static void refuses(Source producer, String topic, String... headers) throws Exception {
        refused(InvalidRecordException.class, () -> sent(producer, topic, 0, null, "refused", headers));
    }

    private static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        var found = record.headers().lastHeader(name);
        return found == null ? null : text(found.value());
    }

    /** The record is that which was scheduled under this id, due in this range, and it comes when it is due. */
    private static void dueInTime(ConsumerRecord<byte[], byte[]> record, long id, long earliest, long latest) {
        long came = System.currentTimeMillis(), due = Long.parseLong(header(record, DUE));
        same(Long.toString(id), header(record, ID));
        holds(due + " is in " + earliest + " to " + latest, earliest - CLOCKS_MS <= due && due <= latest + CLOCKS_MS);
        holds("it was due at " + due + " and there at " + came, came + CLOCKS_MS >= due);
        for (String name : List.of(DELAY, DELIVER_AT, CRON, CRON_ZONE)) same(null, header(record, name));
    }

    private Member whole(String topic, Object... config) {
        Member consumer = clients.consumer(config);
        TopicPartition place = new TopicPartition(topic, 0);
        consumer.assign(List.of(place));
        consumer.seek(place, 0);
        return consumer;
    }

    private static long end(Member consumer, TopicPartition place) {
        return consumer.endOffsets(List.of(place)).get(place);
    }

    /** Exactly so many records of partition 0, and then position, committed offset and end are the same: a lag of 0. */
    private static List<ConsumerRecord<byte[], byte[]>> readToTheEnd(Member consumer, String topic, int count) {
        TopicPartition place = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        until(count + " records and the end are read", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count && consumer.position(place) == end(consumer, place);
        });
        same(count, records.size());
        consumer.commitSync();
        same(end(consumer, place), consumer.committed(Set.of(place)).get(place).offset());
        return records;
    }

    /** With the default producer, which is idempotent. */
    private void delayed(String protocol, String codec) throws Exception {
        String topic = clients.topic(1, "headrace.delay.enable", "true");
        try (var producer = clients.producer("compression.type", codec); var reader = clients.member(protocol)) {
            reader.subscribe(List.of(topic));
            long began = System.currentTimeMillis();
            sent(producer, topic, 0, null, "far", DELAY, HOUR);
            long soon = sent(producer, topic, 0, "key", "soon", DELAY, "700", "colour", "red");
            long ended = System.currentTimeMillis(), moment = ended + 900;
            long dated = sent(producer, topic, 0, null, "dated", DELIVER_AT, Long.toString(moment));
            sent(producer, topic, 0, null, "plain", "colour", "blue");
            Map<String, ConsumerRecord<byte[], byte[]>> byValue = new HashMap<>();
            List<String> order = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                var record = read(reader, 1).get(0);
                order.add(text(record.value()));
                byValue.put(text(record.value()), record);
                if (text(record.value()).equals("soon")) dueInTime(record, soon, began + 700, ended + 700);
                if (text(record.value()).equals("dated")) dueInTime(record, dated, moment, moment);
            }
            same(Set.of("plain", "soon", "dated"), byValue.keySet());
            same("key", text(byValue.get("soon").key()));
            same("red", header(byValue.get("soon"), "colour"));
            same(1, byValue.get("plain").headers().toArray().length);
            readToTheEnd(reader, topic, 0);
            try (var again = whole(topic)) {
                same(order, values(readToTheEnd(again, topic, 3)));
            }
        }
    }

    private void transactions() throws Exception {
        String topic = clients.topic(2, "headrace.delay.enable", "true");
        try (var producer = clients.producer("transactional.id", unique("id")); var plain = clients.producer();
                var hasty = clients.consumer(); var careful = whole(topic, "isolation.level", "read_committed")) {
            producer.initTransactions();
            hasty.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            for (String outcome : List.of("kept", "lost")) {
                producer.beginTransaction();
                // When a later one of the other partition has come, this one was due too.
                long delayed = sent(producer, topic, 0, null, outcome, DELAY, "300");
                sent(producer, topic, 0, null, "inside");
                sent(plain, topic, 1, null, "witness", DELAY, "400");
                same(new TreeSet<>(Set.of("inside", "witness")), new TreeSet<>(values(read(hasty, 2))));
                if (outcome.equals("kept")) {
                    producer.commitTransaction();
                    same(List.of("kept"), values(read(hasty, 1)));
                } else {
                    producer.abortTransaction();
                    refuses(plain, topic, CANCEL, Long.toString(delayed));
                }
            }
            same(List.of("inside", "kept"), values(readToTheEnd(careful, topic, 2)));
        }
    }

    private void cancelled() throws Exception {
        String topic = clients.topic(1, "headrace.delay.enable", "true");
        TopicPartition place = new TopicPartition(topic, 0);
        try (var producer = clients.producer(); var reader = whole(topic)) {
            long one = sent(producer, topic, 0, null, "one", DELAY, HOUR);
            List<Long> gone = new ArrayList<>(List.of(one));
            for (int number = 0; number < 2; number++) gone.add(sent(producer, topic, 0, "k", "keyed", DELAY, HOUR));
            long other = sent(producer, topic, 0, "another", "other", DELAY, HOUR);
            sent(producer, topic, 0, null, "", CANCEL, Long.toString(one));
            sent(producer, topic, 0, null, "", CANCEL_KEY, "k");
            long end = end(reader, place);
            for (long id : gone) {
                refuses(producer, topic, CANCEL, Long.toString(id));
                refuses(producer, topic, MOVE, Long.toString(id), DELAY, "0");
            }
            refuses(producer, topic, CANCEL_KEY, "k");
            for (String wrong : List.of("soon", "-1", "NaN", "99999999999999999999")) refuses(producer, topic, DELAY, wrong);
            refuses(producer, topic, DELIVER_AT, "2030-01-01T00:00:00");
            refuses(producer, topic, CRON, "0 0 30 2 *");
            same(end, end(reader, place));
            sent(producer, topic, 0, null, "", MOVE, Long.toString(other), DELAY, "0");
            same(List.of("other"), values(readToTheEnd(reader, topic, 1)));
        }
    }

    /** A schedule that is not due while this runs is moved to now: it comes, and it stays. */
    private void scheduled() throws Exception {
        String topic = clients.topic(1, "headrace.delay.enable", "true");
        try (var producer = clients.producer(); var reader = whole(topic)) {
            long report = sent(producer, topic, 0, null, "report", CRON, "30 4 29 2 *", CRON_ZONE, "Europe/Berlin", "colour", "red");
            for (int number = 0; number < 2; number++) {
                long began = System.currentTimeMillis();
                sent(producer, topic, 0, null, "", MOVE, Long.toString(report), DELAY, "0");
                var record = readToTheEnd(reader, topic, 1).get(0);
                dueInTime(record, report, began, System.currentTimeMillis());
                same("report", text(record.value()));
                same("red", header(record, "colour"));
            }
            long once = sent(producer, topic, 0, null, "once", DELAY, HOUR);
            sent(producer, topic, 0, null, "", MOVE, Long.toString(once), DELIVER_AT, "2001-02-03T04:05:06Z");
            same(Long.toString(once), header(readToTheEnd(reader, topic, 1).get(0), ID));
            refuses(producer, topic, CANCEL, Long.toString(once));
            sent(producer, topic, 0, null, "", CANCEL, Long.toString(report));
            refuses(producer, topic, CANCEL, Long.toString(report));
        }
    }
}
