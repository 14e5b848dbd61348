"""What the driver asks brokers before a read: which partitions exist, their start and end offsets, offsets by time.

Called when a reader plans, on the driver only. Sends each leader one request for all its partitions, and retries where
a leader moved. Invariant: an answer covers all partitions asked for, or a Failure names one without an answer; a
missing topic is never created by a lookup.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from headrace.client.blocking import Address, ConnectionLost
from headrace.client.metadata import MOVED, Cluster, Topic
from headrace.model.failure import Failure
from headrace.model.tag_filter import TagFilter
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.broker_views import View, shared_view
from headrace.spark.source.options import SourceOptions, Subscription
from headrace.spark.source.positions import EARLIEST_OFFSET, LATEST_OFFSET, Offsets
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_NOT_FOUND = -1
_TOPIC_RESOURCE = 2
_IN_USE = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)


@dataclass(frozen=True)
class KnownLeader:
    """The leader of a partition as the driver knows it, and the topic's id."""

    leader: Address | None
    topic_id: str | None


class BrokerLogs:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(
            options.bootstrap, options.client_id, patience_s=options.patience_s, timeout_s=options.timeout_s
        )
        self._topics: dict[str, Topic] = {}
        self._views: dict[str, View | None] = {}

    def __enter__(self) -> BrokerLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    # --- which partitions -------------------------------------------------------------------------------------------

    def partitions(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """All partitions of the subscription, as of now."""
        subscription = self._options.subscription
        if subscription.assigned:
            self._look_up(list(dict.fromkeys(place.topic for place in subscription.assigned)), must_exist)
            there = {place for topic in self._topics.values() for place in _places(topic)}
            gone = [place for place in subscription.assigned if place not in there]
            if gone and must_exist:
                raise Failure(
                    f"option assign names {gone[0]}, but topic {gone[0].topic} has no such partition: correct it"
                )
            return [place for place in subscription.assigned if place in there]
        self._look_up(_names(subscription), must_exist)
        if subscription.pattern is not None:
            wanted = re.compile(subscription.pattern)
            self._topics = {
                name: topic for name, topic in self._topics.items() if wanted.fullmatch(name) and not topic.is_internal
            }
            if not self._topics and must_exist:
                raise Failure(
                    f"no topic matches {subscription.pattern!r}: correct option subscribePattern, or create a topic"
                )
        return sorted(place for topic in self._topics.values() for place in _places(topic))

    def _look_up(self, names: list[str] | None, must_exist: bool) -> None:
        self._topics = self._cluster.topics(names)
        missing = [name for name in names or () if name not in self._topics]
        if missing and must_exist:
            raise Failure(f"topic {missing[0]} does not exist: create it, or correct the option that names it")

    def exists(self, topic: str) -> bool:
        """Whether the topic existed when the partitions were last looked up."""
        return topic in self._topics

    def known_leader(self, place: TopicPartition) -> KnownLeader:
        """The leader and topic id, passed to executors so that they need not ask."""
        topic = self._topics.get(place.topic)
        if topic is None:
            return KnownLeader(None, None)
        return KnownLeader(self._cluster.known_leader(*place), None if topic.id is None else str(topic.id))

    def view_of(self, topic: str) -> View | None:
        """Name and id of the view by which the broker filters the topic by the option tags; None: it does not."""
        if not self._options.tags:
            return None
        if topic not in self._views:
            try:
                filter_ = TagFilter(tuple(tag.decode() for tag in self._options.tags), self._options.tags_match)
            except ValueError:  # too many
                self._views[topic] = None
            else:
                self._views[topic] = shared_view(self._cluster, topic, filter_)
        return self._views[topic]

    # --- start and end offsets ----------------------------------------------------------------------------------------

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        return self._offsets(dict.fromkeys(places, EARLIEST_OFFSET))

    def latest(self, places: Iterable[TopicPartition], at_least: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """The end offset of each partition: the last stable offset with read_committed, else the high watermark.

        A new leader may report an old high watermark for a moment, so an end before `at_least` is asked for again.
        """
        wanted = dict.fromkeys(places, LATEST_OFFSET)
        for last in self._cluster.attempts():
            found = self._offsets(wanted)
            if last or all(found[place] >= (at_least or {}).get(place, 0) for place in found):
                break
        return found

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record has this timestamp or a later one; None where all records are earlier."""
        found = self._offsets(times)
        return {place: None if offset == _NOT_FOUND else offset for place, offset in found.items()}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """ListOffsets; the numbers are timestamps in milliseconds, -1 for the latest or -2 for the earliest offset."""
        found: Offsets = {}
        failed: dict[TopicPartition, str] = {}
        for last in self._cluster.attempts():
            by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
            for place in wanted:
                if place not in found:
                    by_leader[self._cluster.leader(*place)].append(place)
            failed = {}
            for leader, places in by_leader.items():
                self._ask_leader(leader, places, wanted, found, failed)
            if not failed or last:
                break
            for place in failed:
                self._cluster.forget(place.topic)
        for place, why in failed.items():
            raise Failure(f"the offsets of partition {place.partition} of topic {place.topic} cannot be read: {why}")
        return found

    def _ask_leader(
        self,
        leader: Address,
        places: Sequence[TopicPartition],
        wanted: Mapping[TopicPartition, int],
        found: Offsets,
        failed: dict[TopicPartition, str],
    ) -> None:
        topics: dict[str, list[Message]] = defaultdict(list)
        for place in places:
            topics[place.topic].append(Message(partition_index=place.partition, timestamp=wanted[place]))
        body = Message(
            replica_id=-1,
            isolation_level=int(self._options.read_committed),
            topics=[Message(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        try:
            answer = self._cluster.call_broker(leader, ApiKey.LIST_OFFSETS, body)
        except ConnectionLost as error:
            failed.update(dict.fromkeys(places, str(error)))
            return
        for topic in answer.topics:
            for part in topic.partitions:
                place = TopicPartition(topic.name, part.partition_index)
                if part.error_code == ErrorCode.none:
                    found[place] = part.offset
                elif part.error_code in MOVED:
                    failed[place] = ErrorCode(part.error_code).name
                else:
                    why = ErrorCode(part.error_code).name
                    raise Failure(f"partition {place.partition} of topic {place.topic} cannot be read: {why}")

    # --- progress and settings --------------------------------------------------------------------------------------

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit the offsets of a query in a consumer group without members."""
        topics: dict[str, list[Message]] = defaultdict(list)
        for place, offset in offsets.items():
            part = Message(partition_index=place.partition, committed_offset=offset, committed_leader_epoch=-1)
            topics[place.topic].append(part)
        body = Message(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                Message(name=name, topic_id=self._topics[name].id, partitions=partitions)
                for name, partitions in topics.items()
                if name in self._topics
            ],
        )
        answer = self._cluster.call_coordinator("group", group_id, ApiKey.OFFSET_COMMIT, body)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code in _IN_USE:
                    raise Failure(
                        f"group {group_id} has members, so the query cannot commit its offsets in it: "
                        "stop them, or choose another group.id"
                    )
                if part.error_code != ErrorCode.none:
                    why = ErrorCode(part.error_code).name
                    raise Failure(f"the offsets of the query cannot be committed in group {group_id}: {why}")

    def has_broker_times(self, topic: str) -> bool:
        """Whether the topic has message.timestamp.type=LogAppendTime, so that timestamps never decrease."""
        resource = Message(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=["message.timestamp.type"]
        )
        answer = self._cluster.call(ApiKey.DESCRIBE_CONFIGS, Message(resources=[resource]))
        return any(
            config.name == "message.timestamp.type" and config.value == "LogAppendTime"
            for result in answer.results
            for config in result.configs
        )


def _names(subscription: Subscription) -> list[str] | None:
    return list(subscription.topics) if subscription.pattern is None else None


def _places(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, part.index) for part in topic.partitions]
