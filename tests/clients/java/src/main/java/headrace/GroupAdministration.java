package headrace;

import static headrace.Clients.evenly;
import static headrace.Clients.settle;
import static headrace.Clients.unique;
import static headrace.Teller.holds;
import static headrace.Teller.refused;
import static headrace.Teller.same;

import headrace.Clients.Member;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Groups looked at and changed from outside, with the Java admin client. */
final class GroupAdministration {
    private final Clients clients;

    GroupAdministration(Clients clients) {
        this.clients = clients;
    }

    void addTo(Teller teller) {
        teller.add("describe-groups", this::describe);
        teller.add("delete-group", this::delete);
        teller.add("delete-offsets", this::deleteOffsets);
        teller.add("alter-offsets", this::alterOffsets);
    }

    private Member live(String group, String topic, Object... config) {
        Object[] settings = new Object[config.length + 2];
        settings[0] = "group.id";
        settings[1] = group;
        System.arraycopy(config, 0, settings, 2, config.length);
        Member member = clients.consumer(settings);
        member.subscribe(List.of(topic));
        settle(List.of(member), evenly(1));
        return member;
    }

    private void commit(String group, TopicPartition place, long offset) throws Exception {
        clients.admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(offset))).all().get();
    }

    private Map<TopicPartition, Long> offsets(String group) throws Exception {
        return clients.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .filter(entry -> entry.getValue() != null)
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().offset()));
    }

    private void describe() throws Exception {
        String topic = clients.topic(1), group = unique("group");
        try (Member member = live(group, topic, "client.id", "who", "group.instance.id", "static-one")) {
            Set<String> names = clients.admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
                .map(GroupListing::groupId).collect(Collectors.toSet());
            holds("listed", names.contains(group));
            var described = clients.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            same(GroupState.STABLE, described.groupState());
            same("range", described.partitionAssignor());
            var seen = described.members().iterator().next();
            same("who", seen.clientId());
            same("static-one", seen.groupInstanceId().orElse(null));
            same(Set.of(new TopicPartition(topic, 0)), seen.assignment().topicPartitions());
            holds("host", seen.host().contains("127.0.0.1"));
            clients.admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("static-one")))).all().get();
            same(GroupState.EMPTY, clients.admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        }
        refused(GroupIdNotFoundException.class, () -> clients.admin.describeConsumerGroups(List.of("no.such.group")).all().get());
    }

    private void delete() throws Exception {
        String topic = clients.topic(1), empty = unique("empty"), group = unique("live");
        commit(empty, new TopicPartition(topic, 0), 3);
        clients.admin.deleteConsumerGroups(List.of(empty)).all().get();
        same(Map.of(), offsets(empty));
        try (Member member = live(group, topic)) {
            refused(GroupNotEmptyException.class, () -> clients.admin.deleteConsumerGroups(List.of(group)).all().get());
        }
        refused(GroupIdNotFoundException.class, () -> clients.admin.deleteConsumerGroups(List.of("no.such.group")).all().get());
    }

    private void deleteOffsets() throws Exception {
        String topic = clients.topic(2), single = clients.topic(1), group = unique("group"), busy = unique("busy");
        TopicPartition zero = new TopicPartition(topic, 0), one = new TopicPartition(topic, 1);
        commit(group, zero, 3);
        commit(group, one, 4);
        clients.admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all().get();
        same(Map.of(one, 4L), offsets(group));
        TopicPartition held = new TopicPartition(single, 0);
        try (Member member = live(busy, single)) {
            member.commitSync(Map.of(held, new OffsetAndMetadata(0)));
            refused(GroupSubscribedToTopicException.class,
                () -> clients.admin.deleteConsumerGroupOffsets(busy, Set.of(held)).all().get());
        }
    }

    private void alterOffsets() throws Exception {
        String topic = clients.topic(1), group = unique("group"), busy = unique("busy");
        TopicPartition place = new TopicPartition(topic, 0);
        commit(group, place, 7);
        same(Map.of(place, 7L), offsets(group));
        commit(group, place, 2);
        same(Map.of(place, 2L), offsets(group));
        try (Member member = live(busy, topic)) {
            refused(UnknownMemberIdException.class, () -> {
                commit(busy, place, 7);
                return null;
            });
        }
    }
}
