"""The part of Produce that transactions need: who may write, and what waits until that is known.

A request is looked through, headers only, for the producers of its transactional batches, and their partitions are
entered into the transaction (transaction_entry). That is nearly always answered at once; else the request is copied out
of the receive buffer and waits, and so does every later one of that producer, for its order is its sequence.
Errors are told in the words that the client's version knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from headrace.api.contract import Request
from headrace.api.transaction_entry import Admission, Claim, TransactionEntry
from headrace.api.transaction_errors import told
from headrace.replicas.partition import Partition
from headrace.wire.batches import TRANSACTIONAL, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.lazy_memory import lazy_memory

_ADDS_PARTITIONS = 12  # Produce from this version on is of transaction.version 2
_KNOWS_ABORTABLE = 11
_LARGE_BYTES = 256 << 10
_TRY_AGAIN = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}

Find = Callable[[Message, Message], Partition]


class TransactionalProduce:
    def __init__(self, entry: TransactionEntry) -> None:
        self._entry = entry
        self._last: dict[int, asyncio.Future[None]] = {}  # by producer id, of those that wait

    def enter(
        self, request: Request, find: Find, admission: Admission, write: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Future[None] | None:
        """Find out where the request may write. Where that takes time, its records are copied, to be valid then, and
        written with `write`; what is returned is done after that."""
        wanted = _producers(request.body, find)
        adds = request.version >= _ADDS_PARTITIONS
        waits: list[asyncio.Future[None]] = []
        for (producer_id, epoch), partitions in wanted.items():
            claim = Claim(request.body.transactional_id, producer_id, epoch, adds)
            entered = self._entry.enter(claim, partitions.values(), admission)
            if entered is not None:
                waits.append(entered)
        producer_ids = {producer_id for producer_id, _ in wanted}
        if self._last:
            waits += [self._last[producer_id] for producer_id in producer_ids if producer_id in self._last]
        if not waits:
            return None
        copy_records(data for topic in request.body.topic_data for data in topic.partition_data)
        waiting = asyncio.ensure_future(_after(waits, write))
        for producer_id in producer_ids:
            self._last[producer_id] = waiting
        waiting.add_done_callback(lambda done: self._forget(producer_ids, done))
        return waiting

    def _forget(self, producer_ids: set[int], done: asyncio.Future[None]) -> None:
        for producer_id in producer_ids:
            if self._last.get(producer_id) is done:
                del self._last[producer_id]


def refusal(admission: Admission, partition: Partition, version: int) -> KafkaError | None:
    """Why the request may not write into the partition, in the words of its version."""
    code = admission.problem(partition)
    if code is None:
        return None
    place = f"{partition.topic}-{partition.index}"
    return KafkaError(_word(version, code), f"{place} takes no records of this transaction: {_why(code)}")


def _producers(body: Message, find: Find) -> dict[tuple[int, int], dict[tuple[str, int], Partition]]:
    """(producer id, epoch) -> the partitions that it writes to in a transaction."""
    wanted: dict[tuple[int, int], dict[tuple[str, int], Partition]] = {}
    for topic in body.topic_data:
        for data in topic.partition_data:
            for producer in _transactional(data.records):
                try:
                    partition = find(topic, data)
                except KafkaError:
                    break  # it is refused later, in its own words
                wanted.setdefault(producer, {})[partition.topic, partition.index] = partition
    return wanted


def _transactional(records: memoryview | None) -> Iterator[tuple[int, int]]:
    for _, header in walk(records or b""):
        if header.attributes & TRANSACTIONAL:
            yield header.producer_id, header.producer_epoch


def copy_records(partitions: Iterable[Message]) -> int:
    """Out of the receive buffer, so that they last; how many bytes that were."""
    size = 0
    for data in partitions:
        if data.records is not None:
            size += len(data.records)
            data.records = _copy(data.records)
    return size


def _copy(records: memoryview) -> memoryview:
    """What is large goes back to the system as soon as it is not needed any more."""
    if len(records) < _LARGE_BYTES:
        return memoryview(bytearray(records))
    copy = memoryview(lazy_memory(len(records)))
    copy[:] = records
    return copy


async def _after(waits: list[asyncio.Future[None]], write: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await asyncio.wait(waits)
    await write()


def _why(code: ErrorCode) -> str:
    words = {
        ErrorCode.unknown_producer_id: "it was open for longer than its timeout, and has been aborted",
        ErrorCode.transaction_abortable: "the partition was not added to it",
        ErrorCode.producer_fenced: "another producer has begun with the same transactional id",
        ErrorCode.concurrent_transactions: "the one before it is still being ended",
    }
    return words.get(code, code.name)


def _word(version: int, code: ErrorCode) -> ErrorCode:
    """NOT_ENOUGH_REPLICAS makes every client try again, without a look for another leader."""
    if code in _TRY_AGAIN or (code is ErrorCode.concurrent_transactions and version < _ADDS_PARTITIONS):
        return ErrorCode.not_enough_replicas
    return told(code, knows_fenced=False, knows_abortable=version >= _KNOWS_ABORTABLE)
