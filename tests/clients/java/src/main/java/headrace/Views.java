package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.produce;
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
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidTopicException;

/** Views by tag: topics that are created with settings, and read like every other. Only headrace has them. */
final class Views {
    private record Filter(String tags, String match, IntPredicate has) {}

    private static final int COUNT = 40;
    /** The tags of the records, by turns. */
    private static final List<List<String>> TAGS = List.of(List.of("red"), List.of("green"), List.of("green", "red"), List.of());
    private static final List<Filter> FILTERS = List.of(
        new Filter("red", "any", number -> number % 4 == 0 || number % 4 == 2),
        new Filter("red,green", "all", number -> number % 4 == 2),
        new Filter("red", "none", number -> number % 4 == 1 || number % 4 == 3));

    private final Clients clients;

    Views(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("views", () -> groups("classic", "none"));
        teller.add("views", () -> groups("consumer", "lz4"));
        teller.add("views", this::wrongBases);
        teller.add("view-transactions", this::transactions);
    }

    private String view(String base, String tags, String match) throws Exception {
        String name = unique("view");
        var settings = Map.of("headrace.view.of", base, "headrace.view.tags", tags, "headrace.view.match", match);
        clients.admin.createTopics(List.of(new NewTopic(name, Optional.empty(), Optional.empty()).configs(settings))).all().get();
        return name;
    }

    private static void send(Source producer, String topic, String value, List<String> tags) {
        var record = new ProducerRecord<byte[], byte[]>(topic, 0, null, bytes(value));
        for (String tag : tags) record.headers().add("headrace.tag", bytes(tag));
        producer.send(record);
    }

    /** A member reads up to the end, and commits it. */
    private static List<ConsumerRecord<byte[], byte[]>> readToTheEnd(Member consumer, String topic, long end) {
        TopicPartition place = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.subscribe(List.of(topic));
        until("the position is the end", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return consumer.assignment().contains(place) && consumer.position(place) == end;
        });
        same(end, consumer.endOffsets(List.of(place)).get(place));
        same(0L, consumer.currentLag(place).getAsLong());
        consumer.commitSync();
        same(end, consumer.committed(Set.of(place)).get(place).offset());
        return records;
    }

    private void groups(String protocol, String codec) throws Exception {
        String base = clients.topic(1, "headrace.tags.enable", "true");
        try (var producer = clients.producer("compression.type", codec, "linger.ms", 50)) {
            for (int number = 0; number < COUNT; number++) send(producer, base, "" + number, TAGS.get(number % 4));
            producer.flush();
            for (Filter filter : FILTERS) {
                String view = view(base, filter.tags, filter.match);
                List<Integer> wanted = IntStream.range(0, COUNT).filter(filter.has).boxed().toList();
                try (var consumer = clients.member(protocol)) {
                    var records = readToTheEnd(consumer, view, COUNT);
                    same(wanted, values(records).stream().map(Integer::parseInt).toList());
                    same(wanted, records.stream().map(record -> (int) record.offset()).toList());
                    holds("they are the view's", records.stream().allMatch(record -> record.topic().equals(view)));
                }
                refused(InvalidTopicException.class, () -> produce(producer, view, List.of("refused")));
            }
        }
    }

    private void wrongBases() throws Exception {
        String view = view(clients.topic(1, "headrace.tags.enable", "true"), "red", "any");
        for (String base : List.of(view, clients.topic(1)))
            refused(InvalidConfigurationException.class, () -> view(base, "red", "any"));
    }

    private void transactions() throws Exception {
        String base = clients.topic(1, "headrace.tags.enable", "true"), view = view(base, "red", "any");
        try (var producer = clients.producer("transactional.id", unique("id"));
                var careful = clients.consumer("isolation.level", "read_committed"); var hasty = clients.consumer()) {
            producer.initTransactions();
            for (String value : List.of("kept", "lost")) {
                producer.beginTransaction();
                for (int number = 0; number < 2; number++) send(producer, base, value, List.of("red"));
                send(producer, base, "green", List.of("green"));
                if (value.equals("kept")) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            // Three records and a marker each.
            same(List.of("kept", "kept"), values(readToTheEnd(careful, view, 8)));
            same(List.of("kept", "kept", "lost", "lost"), values(readToTheEnd(hasty, view, 8)));
        }
    }
}
