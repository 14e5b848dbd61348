"""The commands of the transaction coordinator, and their replies.

Handlers translate requests into commands and replies into responses; the runtime passes them on; the shard decides.
Commands that the coordinator sends to itself are at the end.
"""

from __future__ import annotations

from msgspec import Struct

from headrace.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode


class ProducerReply(Struct, frozen=True):
    """The producer id and epoch to continue with, or an error."""

    error: ErrorCode = ErrorCode.none
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class FreshIdNeeded(Struct, frozen=True):
    """The reply to a command that needs an unused producer id: submit it again with one."""


class InitProducer(Struct, frozen=True):
    """Answered with a ProducerReply, or with FreshIdNeeded."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None  # the id and epoch of a producer that continues after an error (KIP-360)
    fresh_id: int | None = None


class AddPartitions(Struct, frozen=True):
    """Answered with an ErrorCode: all partitions are in the transaction, or none was added."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    version: int = 0  # transaction.version of the client


class VerifyPartitions(Struct, frozen=True):
    """Answered with one ErrorCode for each partition: is it in the transaction?"""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(Struct, frozen=True):
    """Answered with a ProducerReply, or with FreshIdNeeded."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int = 0  # transaction.version of the client
    fresh_id: int | None = None


class DescribeTransaction(Struct, frozen=True):
    """Answered with the Transaction, or None when the id is not known."""

    transactional_id: str


class ListTransactions(Struct, frozen=True):
    """Answered with a list of (transactional id, Transaction)."""


# --- from itself ----------------------------------------------------------------------------------------------------


class MarkersWritten(Struct, frozen=True):
    """Every partition of a transaction that was ended with this epoch has its marker. Not answered."""

    transactional_id: str
    producer_id: int
    epoch: int


class TimeUp(Struct, frozen=True):
    """A transaction has reached its producer's timeout."""

    transactional_id: str
    producer_id: int
    epoch: int
    start_ms: int


class ExpireIds(Struct, frozen=True):
    """Time to look for expired transactional ids."""
