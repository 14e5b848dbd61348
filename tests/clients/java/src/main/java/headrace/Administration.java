package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.readFrom;
import static headrace.Clients.unique;
import static headrace.Clients.values;
import static headrace.Teller.holds;
import static headrace.Teller.refused;
import static headrace.Teller.same;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Topics, partitions, configs and offsets through the Java admin client, and the errors it must be given. */
final class Administration {
    private final Clients clients;

    Administration(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("topics", this::topics);
        teller.add("topic-errors", this::topicErrors);
        teller.add("partitions", this::partitions);
        teller.add("configs", this::configs);
        teller.add("incremental-configs", this::incrementalConfigs);
        teller.add("cluster", this::cluster);
        teller.add("delete-records", this::deleteRecords);
        teller.add("list-offsets", this::listOffsets);
    }

    private void create(NewTopic topic) throws Exception {
        clients.admin.createTopics(List.of(topic)).all().get();
    }

    private void topics() throws Exception {
        String topic = unique("topic"), never = unique("never");
        clients.admin.createTopics(List.of(new NewTopic(never, 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get();
        holds("validated only", !clients.admin.listTopics().names().get().contains(never));
        var created = clients.admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "5000"))));
        same(3, created.numPartitions(topic).get());
        same("5000", created.config(topic).get().get("retention.ms").value());
        holds("listed", clients.admin.listTopics().names().get().contains(topic));
        var described = clients.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        same(3, described.partitions().size());
        same(created.topicId(topic).get(), described.topicId());
        same(1, described.partitions().get(0).isr().size());
        var byId = clients.admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds().get();
        same(topic, byId.get(described.topicId()).name());
        clients.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
        holds("gone", !clients.admin.listTopics().names().get().contains(topic));
        String defaults = unique("defaults");
        create(new NewTopic(defaults, java.util.Optional.empty(), java.util.Optional.empty()));
    }

    private void topicErrors() throws Exception {
        String topic = clients.topic(1);
        Map<NewTopic, Class<? extends Exception>> wrong = Map.of(
            new NewTopic("bad name!", 1, (short) 1), InvalidTopicException.class,
            new NewTopic("..", 1, (short) 1), InvalidTopicException.class,
            new NewTopic("x".repeat(250), 1, (short) 1), InvalidTopicException.class,
            new NewTopic(topic, 1, (short) 1), TopicExistsException.class,
            new NewTopic("refused.replicas", 1, (short) 9), InvalidReplicationFactorException.class,
            new NewTopic("refused.partitions", 0, (short) 1), InvalidPartitionsException.class,
            new NewTopic("refused.setting", 1, (short) 1).configs(Map.of("no.such.setting", "1")), InvalidConfigurationException.class,
            new NewTopic("refused.value", 1, (short) 1).configs(Map.of("retention.ms", "soon")), InvalidConfigurationException.class);
        for (var entry : wrong.entrySet())
            refused(entry.getValue(), () -> {
                create(entry.getKey());
                return null;
            });
        refused(UnknownTopicOrPartitionException.class, () -> clients.admin.deleteTopics(List.of("no.such.topic")).all().get());
    }

    private void partitions() throws Exception {
        String topic = clients.topic(2);
        clients.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        same(4, clients.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        for (int count : new int[] {4, 1})
            refused(InvalidPartitionsException.class,
                () -> clients.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get());
        TopicPartition place = new TopicPartition(topic, 0);
        same(Map.of(), clients.admin.listPartitionReassignments(Set.of(place)).reassignments().get());
        var elected = clients.admin.electLeaders(ElectionType.PREFERRED, Set.of(place)).partitions().get();
        holds("already led by the preferred replica", elected.get(place).orElse(null) instanceof ElectionNotNeededException);
    }

    private Config config(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return clients.admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private void configs() throws Exception {
        String topic = clients.topic(1, "retention.ms", "123456");
        Config config = config(topic);
        same("123456", config.get("retention.ms").value());
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("retention.ms").source());
        same(ConfigEntry.ConfigType.LONG, config.get("retention.ms").type());
        same("delete", config.get("cleanup.policy").value());
        holds("a default", config.get("cleanup.policy").isDefault());
        refused(UnknownTopicOrPartitionException.class, () -> config("no.such.topic"));
        var resources = clients.admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
            new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get();
        holds("listed as a resource", resources.contains(new ConfigResource(ConfigResource.Type.TOPIC, topic)));
        String broker = clients.admin.describeCluster().nodes().get().iterator().next().idString();
        ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, broker);
        holds("the broker has settings", !clients.admin.describeConfigs(List.of(node)).all().get().get(node).entries().isEmpty());
    }

    private void alter(String topic, String name, String value, AlterConfigOp.OpType operation) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        clients.admin.incrementalAlterConfigs(
            Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), operation)))).all().get();
    }

    private void incrementalConfigs() throws Exception {
        String topic = clients.topic(1, "segment.bytes", "2000000");
        alter(topic, "retention.ms", "5000", AlterConfigOp.OpType.SET);
        Teller.until("set", () -> value(topic, "retention.ms").equals("5000"));
        same("2000000", value(topic, "segment.bytes"));
        alter(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        Teller.until("appended", () -> value(topic, "cleanup.policy").equals("delete,compact"));
        alter(topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        Teller.until("subtracted", () -> value(topic, "cleanup.policy").equals("compact"));
        alter(topic, "segment.bytes", "", AlterConfigOp.OpType.DELETE);
        Teller.until("deleted", () -> !value(topic, "segment.bytes").equals("2000000"));
        refused(InvalidConfigurationException.class, () -> {
            alter(topic, "retention.ms", "soon", AlterConfigOp.OpType.SET);
            return null;
        });
    }

    private String value(String topic, String name) {
        try {
            return config(topic).get(name).value();
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    private void cluster() throws Exception {
        var cluster = clients.admin.describeCluster();
        holds("a cluster id", !cluster.clusterId().get().isEmpty());
        var nodes = List.copyOf(cluster.nodes().get());
        same(clients.bootstrap, nodes.get(0).host() + ":" + nodes.get(0).port());
        same(nodes.get(0).id(), cluster.controller().get().id());
        holds("log folders", !clients.admin.describeLogDirs(List.of(nodes.get(0).id())).allDescriptions().get().isEmpty());
        clients.admin.describeFeatures().featureMetadata().get();
    }

    private void deleteRecords() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (var producer = clients.producer(); var consumer = clients.consumer()) {
            produce(producer, topic, numbers(10));
            var deleted = clients.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(6))).lowWatermarks().get(place).get();
            same(6L, deleted.lowWatermark());
            same(Map.of(place, 6L), consumer.beginningOffsets(List.of(place)));
            same(List.of("6", "7", "8", "9"), values(readFrom(consumer, topic, 0, 4)));
            refused(OffsetOutOfRangeException.class,
                () -> clients.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(100))).all().get());
        }
    }

    private void listOffsets() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 3_600_000;
        try (var producer = clients.producer()) {
            for (int step : new int[] {0, 5000, 2000})
                producer.send(new ProducerRecord<>(topic, 0, start + step, null, bytes("v"))).get();
        }
        same(0L, offset(place, OffsetSpec.earliest()));
        same(3L, offset(place, OffsetSpec.latest()));
        same(1L, offset(place, OffsetSpec.maxTimestamp()));
        same(1L, offset(place, OffsetSpec.forTimestamp(start + 1)));
    }

    private long offset(TopicPartition place, OffsetSpec spec) throws Exception {
        return clients.admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }
}
