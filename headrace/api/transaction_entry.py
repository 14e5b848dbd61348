"""Before the first record of a transaction goes into a partition, the transaction's coordinator must know of it.

Otherwise the transaction would end without a marker there, and its records would hold up read_committed readers for
ever. So the coordinator is asked before the first append of a transaction to a partition, and never again after it: the
partition itself knows that the transaction is open. Clients of transaction.version 2 leave it to the broker to add the
partition (KIP-890); others have added it before, and it is only verified. Asked by Produce and TxnOffsetCommit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from headrace.coordinators.transactions.commands import AddPartitions, VerifyPartitions
from headrace.model.topic_partition import TopicPartition
from headrace.model.transaction_end import BUMPING_VERSION
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError


class Admission:
    """Which partitions may be written to in the transaction. Asked at the very moment of writing: a transaction that
    has ended in a partition since the coordinator was asked may have been this one."""

    __slots__ = ("_guards", "_refused")

    def __init__(self) -> None:
        self._guards: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, ErrorCode] = {}

    def watch(self, partition: Partition) -> None:
        self._guards[TopicPartition(partition.topic, partition.index)] = partition.ends

    def refuse(self, place: TopicPartition, code: ErrorCode) -> None:
        self._refused[place] = code

    def problem(self, partition: Partition) -> ErrorCode | None:
        if not self._guards and not self._refused:
            return None  # the usual case, for every batch that is written
        place = TopicPartition(partition.topic, partition.index)
        if self._guards.get(place, partition.ends) != partition.ends:
            return ErrorCode.concurrent_transactions
        return self._refused.get(place)


class Claim(Struct, frozen=True):
    """A producer says that it writes in this transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool  # the partition is added by writing to it


class TransactionCoordinators(Protocol):
    """The coordinators of all transactions, here or on other brokers."""

    def submit(self, command: AddPartitions | VerifyPartitions) -> asyncio.Future[Any]:
        """The reply that the command's class names, or KafkaError."""
        ...


class TransactionEntry:
    def __init__(self, transactions: TransactionCoordinators) -> None:
        self._transactions = transactions

    def enter(self, claim: Claim, partitions: Iterable[Partition], admission: Admission) -> asyncio.Future[None] | None:
        """Find out, and note in `admission`, where the producer may write. None if nobody has to be waited for."""
        unknown = [
            partition for partition in partitions if not partition.has_open_transaction(claim.producer_id, claim.epoch)
        ]
        if not unknown:
            return None
        places = tuple(TopicPartition(partition.topic, partition.index) for partition in unknown)
        name, producer_id, epoch = claim.transactional_id, claim.producer_id, claim.epoch
        if claim.adds:
            asked = self._transactions.submit(
                AddPartitions(name, producer_id, epoch, frozenset(places), BUMPING_VERSION)
            )
        else:
            asked = self._transactions.submit(VerifyPartitions(name, producer_id, epoch, places))
        if asked.done():
            _note(asked, places, admission)
            return None
        for partition in unknown:
            admission.watch(partition)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(_: object) -> None:
            _note(asked, places, admission)
            if not answered.done():
                answered.set_result(None)

        asked.add_done_callback(answer)
        return answered


def _note(
    asked: asyncio.Future[ErrorCode | list[ErrorCode]], places: Sequence[TopicPartition], admission: Admission
) -> None:
    try:
        reply = asked.result()
        codes = reply if isinstance(reply, list) else [reply] * len(places)
    except KafkaError as error:
        codes = [error.code] * len(places)
    for place, code in zip(places, codes, strict=True):
        if code is not ErrorCode.none:
            admission.refuse(place, code)
