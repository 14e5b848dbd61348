"""Creating and deleting topics, and adding partitions: checks the request and plans the change. Pure.

Rejections are KafkaErrors with Kafka's codes. The controller is the only caller.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from headrace.cluster import placement, views, znodes
from headrace.cluster.change import Change, create_partition, in_multis
from headrace.cluster.election import first_state
from headrace.cluster.reassignment import original
from headrace.cluster.store import MAX_BYTES, Create, Delete, Operation, Set, size_of
from headrace.model import topic_config
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.names import KRAFT_TOPIC, topic_name_problem
from headrace.model.settings_in_force import NO_FILE, BrokerFile
from headrace.wire.errors import ErrorCode, KafkaError

_REPLICAS = 3
MIN_ISR = "min.insync.replicas"
MAX_NEW_PARTITIONS = 10_000  # in one request, as in Kafka: a typing error must not fill the disk with folders


class NewTopic(Struct, frozen=True):
    name: str
    partitions: int = -1  # -1: the broker's default
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    settings: Mapping[str, str | None] = field(default_factory=dict)


class TopicDefaults(Struct, frozen=True):
    """The defaults for requests and topics."""

    partitions: int
    replication_factor: int | None = None  # None: three, or as many as there are brokers
    file: BrokerFile = NO_FILE  # of the controller

    def factor(self, brokers: int) -> int:
        return min(_REPLICAS, brokers) if self.replication_factor is None else self.replication_factor


def create_topic(
    image: ClusterImage, new: NewTopic, defaults: TopicDefaults, topic_id: uuid.UUID, controller_epoch: int
) -> Change[TopicImage]:
    wrong = topic_name_problem(new.name)
    if wrong is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, wrong)
    if new.name == KRAFT_TOPIC:
        raise KafkaError(ErrorCode.invalid_request, f"no client may make {KRAFT_TOPIC}: the name is Kafka's own")
    if new.name in image.topics:
        raise KafkaError(ErrorCode.topic_already_exists, f"topic {new.name!r} already exists")
    if views.makes_view(new.settings):
        return views.create_view(image, new.name, _checked_settings(new.settings), _layout(new), topic_id)
    plan = _plan(image, new, defaults)
    settings = with_min_isr(_checked_settings(new.settings), len(plan[0]), image, defaults)
    check_together(settings, image, defaults.file)
    partitions = tuple(first_state(index, replicas, image.brokers) for index, replicas in enumerate(plan))
    topic = TopicImage(new.name, topic_id, partitions, settings)
    stored = znodes.encode_topic(znodes.StoredTopic(topic_id, len(partitions), settings))
    operations: list[Operation] = [Create(znodes.partitions_path(topic_id))]
    operations += [create_partition(topic_id, partition, controller_epoch) for partition in partitions]
    operations.append(Create(znodes.topic_path(new.name), stored))

    def delta(image: ClusterImage) -> ClusterImage:
        return image if topic_id in image.topics_by_id else image.with_topics([topic])

    return Change(in_multis(operations), delta, topic)


def with_min_isr(
    settings: Mapping[str, str], factor: int, image: ClusterImage, defaults: TopicDefaults
) -> dict[str, str]:
    """By default, a record acknowledged with acks=all is on two brokers; this is stored as a setting of the topic.

    Any broker may become leader of the topic, so the brokers' own values count only if all of them have one.
    """
    said = MIN_ISR in settings or all(MIN_ISR in defaults.file.in_force(image, broker) for broker in image.brokers)
    return dict(settings) if said or factor < 2 else {**settings, MIN_ISR: "2"}


def _checked_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, text in settings.items():
        wrong = f"{name} has no value" if text is None else topic_config.problem(name, text)
        if wrong is not None or text is None:
            raise KafkaError(ErrorCode.invalid_config, wrong or "")
        checked[name] = text
    return checked


def check_together(
    settings: Mapping[str, str], image: ClusterImage, file: BrokerFile, topic: TopicImage | None = None
) -> None:
    """`file` is that of the controller, whose own settings decide, as in Kafka. `topic` is None while it is created."""
    if topic is not None:
        views.check_altered(image, topic, settings)
    wrong = topic_config.contradiction(settings, file.in_force(image))
    if wrong is not None:
        raise KafkaError(ErrorCode.invalid_config, wrong)


def _layout(new: NewTopic) -> views.Layout:
    return views.Layout(new.partitions, new.replication_factor, bool(new.assignments))


def _plan(image: ClusterImage, new: NewTopic, defaults: TopicDefaults) -> placement.Plan:
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    if new.assignments:
        if new.partitions not in (-1, len(new.assignments)) or new.replication_factor != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"topic {new.name!r}: give either a replica assignment or partition and replica counts, not both",
            )
        _check_count(len(new.assignments))
        return placement.check_manual(new.assignments, racks)
    partitions = defaults.partitions if new.partitions == -1 else new.partitions
    factor = defaults.factor(len(racks)) if new.replication_factor == -1 else new.replication_factor
    if partitions < 1:
        raise KafkaError(ErrorCode.invalid_partitions, f"a topic has at least one partition, not {partitions}")
    _check_count(partitions)
    load = placement.load_of(image.topics.values()) if len(racks) > 1 else None
    return placement.place(partitions, factor, racks, load)


def _check_count(partitions: int) -> None:
    if partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(
            ErrorCode.policy_violation, f"{partitions} new partitions at once; at most {MAX_NEW_PARTITIONS} are allowed"
        )


def add_partitions(
    image: ClusterImage, name: str, total: int, assignments: Sequence[Sequence[int]] | None, controller_epoch: int
) -> Change[TopicImage]:
    """`assignments` are the replicas of the new partitions, in order."""
    topic = known_topic(image, name)
    have = len(topic.partitions)
    if topic.is_view:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"topic {name!r} is a view: add partitions to its base, and it has them too",
        )
    if topic.internal:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"topic {name!r} is headrace's own: keys are spread over its {have} partitions, their count must stay",
        )
    if total <= have:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"topic {name!r} has {have} partitions already; ask for more than that, not {total}",
        )
    _check_count(total - have)
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    factor = len(original(topic.partitions[0]))
    if assignments is None:
        plan = placement.place(total - have, factor, racks, placement.load_of([topic]))
    else:
        if len(assignments) != total - have:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"{total - have} partitions are to be added to {name!r}, replicas are given for {len(assignments)}",
            )
        plan = placement.check_manual(dict(enumerate(assignments, start=have)), racks, have, factor)
    added = tuple(first_state(index, replicas, image.brokers) for index, replicas in enumerate(plan, start=have))
    grown = replace(topic, partitions=topic.partitions + added, version=topic.version + 1)
    operations = [create_partition(topic.id, partition, controller_epoch) for partition in added]
    operations.append(write_topic(grown))

    def delta(image: ClusterImage) -> ClusterImage:
        now = image.topics_by_id.get(topic.id)
        if now is None or now.version >= grown.version:
            return image  # the stored change has already been read
        return image.with_topics([replace(now, partitions=now.partitions + added, version=grown.version)])

    return Change(in_multis(operations), delta, grown)


def write_topic(topic: TopicImage) -> Operation:
    """`topic.version` is the version that the write is to produce."""
    stored = znodes.StoredTopic(topic.id, len(topic.partitions), topic.settings, topic.base)
    return Set(znodes.topic_path(topic.name), znodes.encode_topic(stored), topic.version - 1)


def delete_topic(image: ClusterImage, name: str) -> Change[TopicImage]:
    topic = known_topic(image, name)
    if topic.internal:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"topic {name!r} holds what headrace knows of all groups or transactions and cannot be deleted",
        )
    views.check_unviewed(image, topic)
    gone: Operation = Delete(znodes.topic_path(name), topic.version)
    states: list[Operation] = [Delete(znodes.partition_path(topic.id, at)) for at in range(len(topic.partitions))]
    if not topic.is_view:
        states.append(Delete(znodes.partitions_path(topic.id)))
    fits = sum(map(size_of, states)) < MAX_BYTES // 2
    step = [gone, *states] if fits else [gone]

    def delta(image: ClusterImage) -> ClusterImage:
        return image.without_topic(name) if topic.id in image.topics_by_id else image

    return Change([step], delta, topic, leaves_rubbish=not fits)


def known_topic(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return topic
