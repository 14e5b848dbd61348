"""The records of `__transaction_state`, in Kafka's own format, so that Kafka's tools read them.

Key and value start with a version (int16). Version 1 of the value is in Kafka's flexible encoding: lengths are varints
plus one, and optional fields are tagged, at the end.

    key 0    transactional_id: string
    value 1  producer_id: int64, epoch: int16, timeout_ms: int32, state: int8,
             partitions: [topic: string, [partition: int32]]?, updated_ms: int64, start_ms: int64,
             tag 0: previous_producer_id: int64, tag 1: next_producer_id: int64, tag 2: version: int16,
             headrace's own, so that a producer can continue after a restart of its coordinator, too:
             tag 10000: last_epoch: int16, tag 10001, without contents: timed_out
    value 0  the same in the older encoding and without tags, from Kafka before 4.0

A key without a value is a tombstone. Pure functions; the transaction shard is the only caller.
"""

from __future__ import annotations

import struct

from headrace.coordinators.record_fields import Cursor, compact_string, string, tagged, varint
from headrace.coordinators.shard import Record
from headrace.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, State, Transaction
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import Malformed

KEY = 0
OLD_VALUE, VALUE = 0, 1
_PREVIOUS_ID, _NEXT_ID, _VERSION, _LAST_EPOCH, _TIMED_OUT = 0, 1, 2, 10_000, 10_001
_WHAT = "the transaction coordinator"

_STATES = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
)
_NUMBERS = {state: number for number, state in enumerate(_STATES)}


def transaction_record(transactional_id: str, transaction: Transaction) -> Record:
    return _key(transactional_id), _value(transaction)


def tombstone(transactional_id: str) -> Record:
    return _key(transactional_id), None


def _key(transactional_id: str) -> bytes:
    return struct.pack(">h", KEY) + string(transactional_id)


def _value(transaction: Transaction) -> bytes:
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID] = struct.pack(">q", transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID] = struct.pack(">q", transaction.next_producer_id)
    if transaction.version:
        tags[_VERSION] = struct.pack(">h", transaction.version)
    if transaction.last_epoch != NO_EPOCH:
        tags[_LAST_EPOCH] = struct.pack(">h", transaction.last_epoch)
    if transaction.timed_out:
        tags[_TIMED_OUT] = b""
    head = struct.pack(
        ">hqhib",
        VALUE,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        _NUMBERS[transaction.state],
    )
    times = struct.pack(">qq", transaction.updated_ms, transaction.start_ms)
    return b"".join((head, _partitions(transaction), times, tagged(tags)))


def _partitions(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return varint(0)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [varint(len(topics) + 1)]
    for topic, partitions in topics.items():
        parts += [compact_string(topic), varint(len(partitions) + 1)]
        parts += [struct.pack(f">{len(partitions)}i", *partitions), tagged({})]
    return b"".join(parts)


def read_key(raw: bytes) -> str:
    """The transactional id."""
    cursor = Cursor(raw, _WHAT)
    cursor.version((KEY,))
    return cursor.string()


def read_transaction(raw: bytes) -> Transaction:
    cursor = Cursor(raw, _WHAT)
    flexible = cursor.version((OLD_VALUE, VALUE)) == VALUE
    producer_id, epoch, timeout_ms = cursor.number("q"), cursor.number("h"), cursor.number("i")
    number = cursor.number("b")
    if not 0 <= number < len(_STATES):
        raise Malformed(f"a record of {_WHAT} has state {number}, which is not known here")
    places = _read_partitions(cursor, flexible)
    updated_ms, start_ms = cursor.number("q"), cursor.number("q")
    tags = cursor.tagged() if flexible else {}
    return Transaction(
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=_tag(tags, _LAST_EPOCH, "h", NO_EPOCH),
        previous_producer_id=_tag(tags, _PREVIOUS_ID, "q", NO_PRODUCER_ID),
        next_producer_id=_tag(tags, _NEXT_ID, "q", NO_PRODUCER_ID),
        timeout_ms=timeout_ms,
        state=_STATES[number],
        partitions=places,
        start_ms=start_ms,
        updated_ms=updated_ms,
        version=_tag(tags, _VERSION, "h", 0),
        timed_out=_TIMED_OUT in tags,
    )


def _read_partitions(cursor: Cursor, flexible: bool) -> frozenset[TopicPartition]:
    count = cursor.varint() - 1 if flexible else cursor.number("i")
    places: set[TopicPartition] = set()
    for _ in range(count):
        topic = cursor.compact_string() if flexible else cursor.string()
        indexes = cursor.varint() - 1 if flexible else cursor.number("i")
        places.update(TopicPartition(topic, cursor.number("i")) for _ in range(indexes))
        if flexible:
            cursor.tagged()
    return frozenset(places)


def _tag(tags: dict[int, bytes], number: int, code: str, default: int) -> int:
    return Cursor(tags[number], _WHAT).number(code) if number in tags else default
