"""Requests about transactions: those known to coordinators, and those open in partitions.

Called by the transaction commands. A transaction hangs when it is open in a partition but not at its coordinator: it
never ends, and blocks read_committed consumers for ever. Invariant: a transaction is reported as hanging only if it was
still open in the partition after its coordinator was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace.cli.connection import REQUEST_TIMEOUT_S
from headrace.cli.direct_requests import DirectRequests
from headrace.cli.topics import Partition
from headrace.model.failure import Failure
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_INIT_PRODUCER_ID, _WRITE_MARKERS = (22, 4), (27, 1)  # API key and version
_DESCRIBE_PRODUCERS, _DESCRIBE, _LIST = (61, 0), (65, 0), (66, 0)
_IN_PROGRESS = {"Ongoing", "PrepareCommit", "PrepareAbort"}
_ATTEMPTS_A_SECOND = 10


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """A transaction as its coordinator describes it."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int  # -1 if there is none
    partitions: frozenset[Partition] = field(default_factory=frozenset)

    @property
    def in_progress(self) -> bool:
        return self.state in _IN_PROGRESS


@dataclass(frozen=True, slots=True)
class HeldTransaction:
    """A transaction open in a partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    last_ms: int  # when the producer last wrote


def known_transactions(brokers: DirectRequests) -> list[KnownTransaction]:
    names = set[str]()
    for address in brokers.brokers():
        answer = brokers.call(address, *_LIST, Message(state_filters=[], producer_id_filters=[]))
        check(answer.error_code, f"the broker at {address[0]}:{address[1]} cannot list its transactions")
        names |= {found.transactional_id for found in answer.transaction_states}
    described = (known_transaction(brokers, name) for name in sorted(names))
    return [transaction for transaction in described if transaction is not None]


def known_transaction(brokers: DirectRequests, transactional_id: str) -> KnownTransaction | None:
    address = brokers.coordinator_of(transactional_id)
    (found,) = brokers.call(address, *_DESCRIBE, Message(transactional_ids=[transactional_id])).transaction_states
    if found.error_code == ErrorCode.transactional_id_not_found:
        return None
    check(found.error_code, f"cannot describe transactional id {transactional_id}")
    return KnownTransaction(
        transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time,
        frozenset((topic.topic, index) for topic in found.topics for index in topic.partitions),
    )


def held_transactions(brokers: DirectRequests, wanted: Callable[[Partition], bool]) -> list[HeldTransaction]:
    """The open transactions in the wanted partitions."""
    by_leader: dict[tuple[str, int], dict[str, list[int]]] = {}
    for topic, index, leader in brokers.partitions():
        if wanted((topic, index)):
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
    held = []
    for leader, topics in by_leader.items():
        asked = [Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        for topic in brokers.call(leader, *_DESCRIBE_PRODUCERS, Message(topics=asked)).topics:
            for partition in topic.partitions:
                check(partition.error_code, f"cannot ask {topic.name} partition {partition.partition_index}")
                held += [
                    HeldTransaction(
                        topic.name,
                        partition.partition_index,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )
                    for producer in partition.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
    return sorted(held, key=lambda found: (found.topic, found.partition, found.first_offset))


def hanging_transactions(brokers: DirectRequests, wanted: Callable[[Partition], bool]) -> list[HeldTransaction]:
    suspects = held_transactions(brokers, wanted)
    if not suspects:
        return []
    owned = {
        (transaction.producer_id, partition)
        for transaction in known_transactions(brokers)
        if transaction.in_progress
        for partition in transaction.partitions
    }
    suspects = [found for found in suspects if (found.producer_id, (found.topic, found.partition)) not in owned]
    places = {(found.topic, found.partition) for found in suspects}
    still = {
        (found.topic, found.partition, found.producer_id, found.first_offset)
        for found in held_transactions(brokers, places.__contains__)
    }
    return [
        found for found in suspects if (found.topic, found.partition, found.producer_id, found.first_offset) in still
    ]


def fence(brokers: DirectRequests, known: KnownTransaction, pause: Callable[[float], None]) -> None:
    """Abort through the coordinator: InitProducerId for the id aborts its open transaction."""
    body = Message(
        transactional_id=known.transactional_id,
        transaction_timeout_ms=known.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    coordinator = brokers.coordinator_of(known.transactional_id)
    for _ in range(int(REQUEST_TIMEOUT_S * _ATTEMPTS_A_SECOND)):
        code = brokers.call(coordinator, *_INIT_PRODUCER_ID, body).error_code
        if code != ErrorCode.concurrent_transactions:
            check(code, f"cannot abort the transaction of {known.transactional_id}")
            return
        pause(1 / _ATTEMPTS_A_SECOND)
    raise Failure(
        f"the transaction of {known.transactional_id} is aborted, but markers are missing in some partitions after "
        f"{REQUEST_TIMEOUT_S:.0f} seconds: are all brokers up?"
    )


def end_hanging(brokers: DirectRequests, hanging: Iterable[HeldTransaction]) -> None:
    """Write abort markers for hanging transactions."""
    leaders = {(topic, index): leader for topic, index, leader in brokers.partitions()}
    for found in hanging:
        topic = Message(name=found.topic, partition_indexes=[found.partition])
        marker = Message(
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, found.coordinator_epoch),
        )
        answer = brokers.call(leaders[found.topic, found.partition], *_WRITE_MARKERS, Message(markers=[marker]))
        (partition,) = answer.markers[0].topics[0].partitions
        check(partition.error_code, f"cannot end the transaction in {found.topic} partition {found.partition}")


def check(code: int, doing: str) -> None:
    if code != ErrorCode.none:
        raise Failure(f"{doing}: {ErrorCode(code).name.replace('_', ' ')}")
