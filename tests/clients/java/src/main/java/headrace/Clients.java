package headrace;

import static headrace.Teller.until;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes clients of one broker, with short timings, and reads and produces in a bounded way. */
final class Clients implements AutoCloseable {
    static final class Member extends KafkaConsumer<byte[], byte[]> {
        Member(Map<String, Object> config) {
            super(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }
    }

    static final class Source extends KafkaProducer<byte[], byte[]> {
        Source(Map<String, Object> config) {
            super(config, new ByteArraySerializer(), new ByteArraySerializer());
        }
    }

    final String bootstrap;
    final Admin admin;

    Clients(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static String unique(String kind) {
        return "java." + kind + "." + UUID.randomUUID().toString().substring(0, 8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    String topic(int partitions, String... config) throws Exception {
        return named(unique("topic"), partitions, config);
    }

    String named(String name, int partitions, String... config) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int at = 0; at < config.length; at += 2) settings.put(config[at], config[at + 1]);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get();
        return name;
    }

    Source producer(Object... config) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int at = 0; at < config.length; at += 2) settings.put((String) config[at], config[at + 1]);
        return new Source(settings);
    }

    Member consumer(Object... config) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", unique("group"));
        settings.put("group.protocol", "classic");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 200);
        settings.put("metadata.max.age.ms", 500);
        settings.put("fetch.max.wait.ms", 100);
        for (int at = 0; at < config.length; at += 2) settings.put((String) config[at], config[at + 1]);
        // In the new protocol it is the broker that sets these.
        if (settings.get("group.protocol").equals("consumer"))
            settings.keySet().removeAll(List.of("session.timeout.ms", "heartbeat.interval.ms"));
        return new Member(settings);
    }

    /** A consumer of the given group protocol. */
    Member member(String protocol, Object... config) {
        List<Object> settings = new ArrayList<>(List.of(config));
        settings.addAll(List.of("group.protocol", protocol));
        return consumer(settings.toArray());
    }

    /** Produces the values to partition 0 and returns what the broker said of each. */
    static List<RecordMetadata> produce(Source producer, String topic, List<String> values) throws Exception {
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) sent.add(producer.send(new ProducerRecord<>(topic, 0, null, bytes(value))));
        List<RecordMetadata> told = new ArrayList<>();
        for (var future : sent) told.add(future.get());
        return told;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(Member consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        until(count + " records are read", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    static List<ConsumerRecord<byte[], byte[]>> readFrom(Member consumer, String topic, long offset, int count) {
        TopicPartition place = new TopicPartition(topic, 0);
        consumer.assign(List.of(place));
        consumer.seek(place, offset);
        return read(consumer, count);
    }

    static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> text(record.value())).toList();
    }

    static List<String> numbers(int count) {
        List<String> numbers = new ArrayList<>();
        for (int number = 0; number < count; number++) numbers.add(Integer.toString(number));
        return numbers;
    }

    /** Polls all members until their shares look fair, and returns the shares. */
    static List<Set<TopicPartition>> settle(List<Member> members, Predicate<List<Set<TopicPartition>>> fair) {
        List<Set<TopicPartition>> shares = new ArrayList<>();
        until("the group shares out its partitions", () -> {
            for (Member member : members) member.poll(Duration.ofMillis(50));
            shares.clear();
            for (Member member : members) shares.add(new HashSet<>(member.assignment()));
            return fair.test(shares);
        });
        return shares;
    }

    /** Every partition has exactly one holder, and nobody has two more than anybody else. */
    static Predicate<List<Set<TopicPartition>>> evenly(int partitions) {
        return shares -> {
            Set<TopicPartition> all = new HashSet<>();
            int sum = 0, most = 0, least = Integer.MAX_VALUE;
            for (Set<TopicPartition> share : shares) {
                all.addAll(share);
                sum += share.size();
                most = Math.max(most, share.size());
                least = Math.min(least, share.size());
            }
            return sum == partitions && all.size() == partitions && most - least <= 1;
        };
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(5));
    }
}
