package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.read;
import static headrace.Clients.readFrom;
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
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactions of the Java producer: whole or not at all, with offsets, one producer per id, and seen from outside. */
final class Transactions {
    private final Clients clients;

    Transactions(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("transactions", this::wholeOrNotAtAll);
        teller.add("transactions", this::hiddenUntilCommitted);
        teller.add("transactions", this::everyTransactionHasItsEpoch);
        teller.add("transactional-offsets", () -> offsets("classic"));
        teller.add("transactional-offsets", () -> offsets("consumer"));
        teller.add("fencing", this::fencing);
        teller.add("transactions-admin", this::administration);
    }

    private Source begun(String id, Object... config) {
        List<Object> settings = new ArrayList<>(List.of("transactional.id", id));
        settings.addAll(List.of(config));
        Source producer = clients.producer(settings.toArray());
        producer.initTransactions();
        return producer;
    }

    private Member committedReader(Object... config) {
        List<Object> settings = new ArrayList<>(List.of("isolation.level", "read_committed"));
        settings.addAll(List.of(config));
        return clients.consumer(settings.toArray());
    }

    private static void transaction(Source producer, String topic, List<String> values, boolean commit) throws Exception {
        producer.beginTransaction();
        produce(producer, topic, values);
        if (commit) producer.commitTransaction();
        else producer.abortTransaction();
    }

    private TransactionDescription described(String id) throws Exception {
        return clients.admin.describeTransactions(List.of(id)).description(id).get();
    }

    private void wholeOrNotAtAll() throws Exception {
        String topic = clients.topic(1);
        List<String> all = new ArrayList<>(), committed = new ArrayList<>();
        try (var producer = begun(unique("id")); var careful = committedReader(); var hasty = clients.consumer()) {
            for (int number = 0; number < 6; number++) {
                List<String> values = List.of(number + "-0", number + "-1", number + "-2");
                transaction(producer, topic, values, number % 2 == 0);
                all.addAll(values);
                if (number % 2 == 0) committed.addAll(values);
            }
            same(committed, values(readFrom(careful, topic, 0, committed.size())));
            same(all, values(readFrom(hasty, topic, 0, all.size())));
        }
    }

    private void hiddenUntilCommitted() throws Exception {
        String topic = clients.topic(2);
        TopicPartition zero = new TopicPartition(topic, 0), one = new TopicPartition(topic, 1);
        try (var producer = begun(unique("id")); var plain = clients.producer(); var reader = committedReader()) {
            producer.beginTransaction();
            for (TopicPartition place : List.of(zero, one))
                producer.send(new ProducerRecord<>(topic, place.partition(), null, bytes("inside"))).get();
            produce(plain, topic, List.of("behind"));
            reader.assign(List.of(zero, one));
            reader.seekToBeginning(List.of(zero, one));
            holds("an open transaction is not read", reader.poll(Duration.ofMillis(500)).isEmpty());
            same(Map.of(zero, 0L, one, 0L), reader.endOffsets(List.of(zero, one)));
            producer.commitTransaction();
            same(List.of("behind", "inside", "inside"), values(read(reader, 3)).stream().sorted().toList());
        }
    }

    /** Version 2 of transactions (KIP-890): the broker raises the epoch at every end, and the producer goes on with it. */
    private void everyTransactionHasItsEpoch() throws Exception {
        String topic = clients.topic(1), id = unique("id");
        try (var producer = begun(id); var reader = committedReader()) {
            transaction(producer, topic, List.of("0"), true);
            int first = described(id).producerEpoch();
            transaction(producer, topic, List.of("1"), false);
            transaction(producer, topic, List.of("2"), true);
            same(first + 2, described(id).producerEpoch());
            same(List.of("0", "2"), values(readFrom(reader, topic, 0, 2)));
        }
    }

    private void offsets(String protocol) throws Exception {
        String source = clients.topic(1), target = clients.topic(1), group = unique("worker");
        TopicPartition place = new TopicPartition(source, 0);
        List<String> wanted = numbers(10).stream().map(value -> "done " + value).toList();
        try (var plain = clients.producer()) {
            produce(plain, source, numbers(10));
        }
        try (var producer = begun(unique("id"))) {
            for (boolean commit : List.of(false, true)) {
                try (var worker = clients.member(protocol, "isolation.level", "read_committed", "group.id", group)) {
                    worker.subscribe(List.of(source));
                    // A transaction that was aborted left no offset: the next worker starts over.
                    same(numbers(10), values(read(worker, 10)));
                    producer.beginTransaction();
                    produce(producer, target, wanted);
                    producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(10)), worker.groupMetadata());
                    if (commit) producer.commitTransaction();
                    else producer.abortTransaction();
                }
            }
        }
        try (var worker = clients.member(protocol, "group.id", group); var reader = committedReader()) {
            // The end of a transaction is answered before its markers are written.
            until("the offset is committed", () -> {
                OffsetAndMetadata committed = worker.committed(Set.of(place)).get(place);
                return committed != null && committed.offset() == 10;
            });
            same(wanted, values(readFrom(reader, target, 0, 10)));
        }
    }

    private void fencing() throws Exception {
        String topic = clients.topic(1), id = unique("id");
        try (var first = begun(id); var reader = committedReader()) {
            first.beginTransaction();
            produce(first, topic, List.of("lost"));
            try (var second = begun(id)) {
                transaction(second, topic, List.of("kept"), true);
                refused(ProducerFencedException.class, () -> {
                    first.commitTransaction();
                    return null;
                });
                transaction(second, topic, List.of("kept too"), true);
                clients.admin.fenceProducers(List.of(id)).all().get();
                second.beginTransaction();
                refused(org.apache.kafka.common.KafkaException.class, () -> {
                    produce(second, topic, List.of("lost too"));
                    return null;
                });
            }
            try (var third = begun(id)) {
                transaction(third, topic, List.of("last"), true);
            }
            same(List.of("kept", "kept too", "last"), values(readFrom(reader, topic, 0, 3)));
        }
    }

    private void administration() throws Exception {
        String topic = clients.topic(1), hangs = unique("hangs"), forced = unique("forced");
        TopicPartition place = new TopicPartition(topic, 0);
        try (var plain = clients.producer(); var reader = committedReader()) {
            produce(plain, topic, List.of("before"));
            try (var producer = begun(hangs)) {
                producer.beginTransaction();
                produce(producer, topic, List.of("lost"));
                var open = new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
                var listed = clients.admin.listTransactions(open).all().get();
                holds("listed as ongoing", listed.stream().anyMatch(seen -> seen.transactionalId().equals(hangs)));
                var description = described(hangs);
                same(TransactionState.ONGOING, description.state());
                same(Set.of(place), description.topicPartitions());
                var state = clients.admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().stream()
                    .filter(seen -> seen.producerId() == description.producerId()).findFirst().orElseThrow();
                same(1L, state.currentTransactionStartOffset().orElse(-1));
                // As the command-line tool does it: end the producer's transaction in this one partition.
                clients.admin.abortTransaction(new AbortTransactionSpec(
                    place, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
                produce(plain, topic, List.of("after"));
                same(List.of("before", "after"), values(readFrom(reader, topic, 0, 2)));
            }
            try (var producer = begun(forced)) {
                producer.beginTransaction();
                produce(producer, topic, List.of("lost too"));
                clients.admin.forceTerminateTransaction(forced).result().get();
                refused(ProducerFencedException.class, () -> {
                    producer.commitTransaction();
                    return null;
                });
                produce(plain, topic, List.of("end"));
                same(List.of("end"), values(read(reader, 1)));
            }
        }
        refused(TransactionalIdNotFoundException.class, () -> described("no.such.id"));
    }
}
