package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.evenly;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.read;
import static headrace.Clients.settle;
import static headrace.Clients.text;
import static headrace.Clients.unique;
import static headrace.Teller.same;
import static headrace.Teller.until;

import headrace.Clients.Member;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consumer groups of Java members: shares, rebalances, static members, patterns, commits. */
final class Groups {
    private final Clients clients;

    Groups(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("commit", this::commit);
        teller.add("group-split", this::split);
        teller.add("group-leave", this::leave);
        teller.add("range", () -> assignor(RangeAssignor.class));
        teller.add("roundrobin", () -> assignor(RoundRobinAssignor.class));
        teller.add("sticky", () -> assignor(StickyAssignor.class));
        teller.add("cooperative-sticky", () -> assignor(CooperativeStickyAssignor.class));
        teller.add("static-member", this::staticMember);
        teller.add("regex", this::regex);
        teller.add("partition-growth", this::growth);
    }

    private void commit() throws Exception {
        for (String kind : List.of("sync", "async", "on-close")) {
            String topic = clients.topic(1), group = unique("group");
            try (var producer = clients.producer()) {
                produce(producer, topic, numbers(10));
            }
            try (var first = clients.consumer("group.id", group, "max.poll.records", 4, "enable.auto.commit", kind.equals("on-close"))) {
                first.subscribe(List.of(topic));
                same(4, read(first, 4).size());
                if (kind.equals("sync")) first.commitSync();
                if (kind.equals("async")) first.commitAsync();
            }
            try (var second = clients.consumer("group.id", group)) {
                second.subscribe(List.of(topic));
                same("4", text(read(second, 1).get(0).value()));
                TopicPartition place = new TopicPartition(topic, 0);
                second.commitSync(Map.of(place, new OffsetAndMetadata(7, "über")));
                var committed = second.committed(java.util.Set.of(place)).get(place);
                same(7L, committed.offset());
                same("über", committed.metadata());
            }
        }
    }

    private List<Member> members(int count, String group, List<String> topics, Object... config) {
        List<Member> members = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            List<Object> settings = new ArrayList<>(List.of("group.id", group));
            settings.addAll(List.of(config));
            members.add(clients.consumer(settings.toArray()));
            members.get(number).subscribe(topics);
        }
        return members;
    }

    private void split() throws Exception {
        String topic = clients.topic(6);
        List<Member> members = members(3, unique("group"), List.of(topic));
        settle(members, evenly(6));
        try (var producer = clients.producer()) {
            for (int number = 0; number < 60; number++)
                producer.send(new ProducerRecord<>(topic, number % 6, null, bytes("" + number))).get();
        }
        List<Integer> seen = new ArrayList<>();
        until("60 messages reach the group", () -> {
            for (Member member : members)
                member.poll(Duration.ofMillis(50)).forEach(record -> seen.add(Integer.parseInt(text(record.value()))));
            return seen.size() >= 60;
        });
        same(60, seen.size());
        same(60, new TreeSet<>(seen).size());
        members.forEach(Member::close);
    }

    private void leave() throws Exception {
        String topic = clients.topic(4);
        List<Member> members = members(2, unique("group"), List.of(topic));
        settle(members, evenly(4));
        members.get(1).unsubscribe();
        settle(members.subList(0, 1), evenly(4));
        members.get(1).subscribe(List.of(topic));
        settle(members, evenly(4));
        members.forEach(Member::close);
    }

    private void assignor(Class<?> assignor) throws Exception {
        List<String> topics = List.of(clients.topic(2), clients.topic(2));
        String group = unique("group");
        List<Member> members = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            members.addAll(members(1, group, topics, "partition.assignment.strategy", assignor.getName()));
            settle(members, evenly(4));
        }
        members.get(1).close();
        settle(members.subList(0, 1), evenly(4));
        members.get(0).close();
    }

    private void staticMember() throws Exception {
        String topic = clients.topic(4), group = unique("group");
        Object[] patient = {"session.timeout.ms", 20_000, "group.instance.id"};
        Member stays = clients.consumer("group.id", group, patient[0], patient[1], patient[2], "stays");
        Member restarts = clients.consumer("group.id", group, patient[0], patient[1], patient[2], "restarts");
        stays.subscribe(List.of(topic));
        settle(List.of(stays), evenly(4));
        // Second to join, so that it says nothing of partitions it had; else its restart would be a reason to rebalance.
        restarts.subscribe(List.of(topic));
        var before = List.copyOf(settle(List.of(stays, restarts), evenly(4)));
        int generation = stays.groupMetadata().generationId();
        restarts.close();
        Member again = clients.consumer("group.id", group, patient[0], patient[1], patient[2], "restarts");
        again.subscribe(List.of(topic));
        same(before, settle(List.of(stays, again), evenly(4)));
        same(generation, again.groupMetadata().generationId());
        same(generation, stays.groupMetadata().generationId());
        again.close();
        stays.close();
    }

    private void regex() throws Exception {
        String prefix = unique("family");
        try (var consumer = clients.consumer()) {
            consumer.subscribe(Pattern.compile(Pattern.quote(prefix) + "-.*"));
            clients.named(prefix + "-one", 1);
            settle(List.of(consumer), evenly(1));
            clients.named(prefix + "-two", 1);
            clients.named("not-" + prefix, 1);
            settle(List.of(consumer), evenly(2));
            try (var producer = clients.producer()) {
                produce(producer, prefix + "-two", List.of("found"));
            }
            same("found", text(read(consumer, 1).get(0).value()));
        }
    }

    private void growth() throws Exception {
        String topic = clients.topic(1);
        List<Member> members = members(1, unique("group"), List.of(topic));
        settle(members, evenly(1));
        clients.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        settle(members, evenly(3));
        members.get(0).close();
    }
}
