package headrace;

import static headrace.Clients.bytes;
import static headrace.Clients.evenly;
import static headrace.Clients.numbers;
import static headrace.Clients.produce;
import static headrace.Clients.read;
import static headrace.Clients.settle;
import static headrace.Clients.text;
import static headrace.Clients.unique;
import static headrace.Clients.values;
import static headrace.Teller.same;
import static headrace.Teller.until;

import headrace.Clients.Member;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** Groups whose partitions the broker assigns (KIP-848, {@code group.protocol=consumer}). */
final class NewProtocolGroups {
    /** All that a member was told to take and to give. */
    private static final class Moves implements ConsumerRebalanceListener {
        final Set<TopicPartition> taken = new HashSet<>(), given = new HashSet<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            taken.addAll(places);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            given.addAll(places);
        }

        void forget() {
            taken.clear();
            given.clear();
        }
    }

    private final Clients clients;

    NewProtocolGroups(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("new-protocol", this::split);
        teller.add("new-protocol", this::handOver);
        teller.add("new-protocol", this::resume);
        teller.add("new-protocol-static", this::staticMember);
        teller.add("new-protocol-regex", this::regex);
        teller.add("protocol-move", this::move);
    }

    private Member join(String group, String topic, Object... config) {
        List<Object> settings = new ArrayList<>(List.of("group.id", group));
        settings.addAll(List.of(config));
        Member member = clients.member("consumer", settings.toArray());
        member.subscribe(List.of(topic));
        return member;
    }

    private void split() throws Exception {
        for (String assignor : List.of("uniform", "range")) {
            String topic = clients.topic(6), group = unique("group");
            List<Member> members = new ArrayList<>();
            for (int number = 0; number < 3; number++) members.add(join(group, topic, "group.remote.assignor", assignor));
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
            var described = clients.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            same(GroupType.CONSUMER, described.type());
            same(GroupState.STABLE, described.groupState());
            same(assignor, described.partitionAssignor());
            same(List.of(2, 2, 2), described.members().stream().map(who -> who.assignment().topicPartitions().size()).toList());
            members.forEach(Member::close);
        }
    }

    private void handOver() throws Exception {
        String topic = clients.topic(6), group = unique("group");
        Moves moves = new Moves();
        Member stays = clients.member("consumer", "group.id", group);
        stays.subscribe(List.of(topic), moves);
        settle(List.of(stays), evenly(6));
        moves.forget();
        Member comes = join(group, topic);
        Set<TopicPartition> kept = settle(List.of(stays, comes), evenly(6)).get(0);
        same(Set.of(), moves.taken);
        same(3, moves.given.size());
        same(Set.of(), intersection(kept, moves.given));
        moves.forget();
        comes.close();
        settle(List.of(stays), evenly(6));
        same(Set.of(), moves.given);
        same(3, moves.taken.size());
        stays.close();
    }

    private static Set<TopicPartition> intersection(Set<TopicPartition> some, Set<TopicPartition> others) {
        Set<TopicPartition> both = new HashSet<>(some);
        both.retainAll(others);
        return both;
    }

    private void resume() throws Exception {
        String topic = clients.topic(1), group = unique("group");
        try (var producer = clients.producer()) {
            produce(producer, topic, numbers(10));
        }
        try (var first = join(group, topic, "max.poll.records", 4)) {
            same(4, read(first, 4).size());
            first.commitSync();
        }
        try (var second = join(group, topic)) {
            same("4", values(read(second, 1)).get(0));
        }
    }

    private void staticMember() throws Exception {
        String topic = clients.topic(4), group = unique("group");
        Moves moves = new Moves();
        Member stays = clients.member("consumer", "group.id", group, "group.instance.id", "stays");
        stays.subscribe(List.of(topic), moves);
        Member restarts = join(group, topic, "group.instance.id", "restarts");
        var before = List.copyOf(settle(List.of(stays, restarts), evenly(4)));
        moves.forget();
        restarts.close();
        Member again = join(group, topic, "group.instance.id", "restarts");
        same(before, settle(List.of(stays, again), evenly(4)));
        same(Set.of(), moves.given);
        same(Set.of(), moves.taken);
        again.close();
        stays.close();
    }

    private void regex() throws Exception {
        String prefix = unique("family");
        try (var consumer = clients.member("consumer")) {
            consumer.subscribe(new SubscriptionPattern(prefix.replace(".", "\\.") + "-.*"));
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

    private GroupType typeOf(String group) throws Exception {
        return clients.admin.describeConsumerGroups(List.of(group)).all().get().get(group).type();
    }

    private void move() throws Exception {
        String topic = clients.topic(4), group = unique("group");
        Member old = clients.consumer("group.id", group, "partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        old.subscribe(List.of(topic));
        settle(List.of(old), evenly(4));
        same(GroupType.CLASSIC, typeOf(group));
        Member fresh = join(group, topic);
        settle(List.of(old, fresh), evenly(4));
        same(GroupType.CONSUMER, typeOf(group));
        fresh.close();
        settle(List.of(old), evenly(4));
        same(GroupType.CLASSIC, typeOf(group));
        old.close();
    }
}
