package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.unique;
import static headrace.Teller.same;
import static headrace.Teller.until;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams on top of the client: topics of its own, state in a changelog, exactly once, and a hand-over. */
final class Streams {
    private static final int LINES = 1000, WORDS = 20;
    private static final Duration CLOSING = Duration.ofSeconds(20);
    private final Clients clients;

    Streams(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("streams", this::wordCount);
    }

    /** Two instances count words; one stops in the middle, and the other takes over its counts from their changelog. */
    private void wordCount() throws Exception {
        String in = clients.topic(4), out = clients.topic(4), id = unique("streams");
        Map<String, Long> wanted = new HashMap<>(Map.of("all", 2L * LINES)), seen = new HashMap<>();
        for (int word = 0; word < WORDS; word++) wanted.put("word" + word, 2L * LINES / WORDS);
        try (var first = started(in, out, id);
                var second = started(in, out, id);
                var reader = clients.consumer("isolation.level", "read_committed")) {
            reader.subscribe(List.of(out));
            write(in);
            until("words are counted", () -> !poll(reader, seen).isEmpty());
            stop(first);
            write(in);
            until("all words are counted", () -> poll(reader, seen).equals(wanted));
            stop(second);
        }
        same(wanted, seen);
    }

    private static Map<String, Long> poll(Clients.Member reader, Map<String, Long> counts) {
        try (var number = new LongDeserializer()) {
            for (var record : reader.poll(Duration.ofMillis(100)))
                counts.put(Clients.text(record.key()), number.deserialize(record.topic(), record.value()));
        }
        return counts;
    }

    private void write(String topic) {
        try (var producer = clients.producer()) {
            for (int line = 0; line < LINES; line++)
                producer.send(new ProducerRecord<>(topic, bytes("line" + line), bytes("all word" + line % WORDS)));
        }
    }

    private KafkaStreams started(String in, String out, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", clients.bootstrap);
        settings.put("application.id", id);
        settings.put("client.id", unique("instance"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", 100);
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 500);
        settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/" + unique("state"));
        KafkaStreams streams = new KafkaStreams(topology(in, out), settings);
        streams.start();
        return streams;
    }

    private static void stop(KafkaStreams streams) {
        streams.close(CLOSING);
        streams.cleanUp();
    }

    private static Topology topology(String in, String out) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .to(out, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
