"""What can be asked of the transaction coordinator, and what it answers.

Handlers translate requests into these and replies back; the runtime carries them; the shard decides them. Commands
that the coordinator sends to itself stand at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Place
from headrace.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ProducerReply:
    """The producer id and epoch to go on with; or why not."""

    error: ErrorCode = ErrorCode.none
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class FreshIdNeeded:
    """The answer to a command that can be decided only with a producer id that was never used: ask again with one."""


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Answered with a ProducerReply, or with FreshIdNeeded."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None  # the producer id and epoch of one that goes on after an error (KIP-360)
    fresh_id: int | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Answered with an ErrorCode: all partitions are in the transaction, or none was added."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[Place]
    version: int = 0  # transaction.version of the client


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Answered with one ErrorCode for each partition: is it in the transaction?"""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Answered with a ProducerReply, or with FreshIdNeeded."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int = 0  # transaction.version of the client
    fresh_id: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """Answered with the Transaction, or None when the id is not known."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Answered with a list of (transactional id, Transaction)."""


# --- from itself ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of a transaction that was ended with this epoch has its marker. Not answered."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TimeUp:
    """A transaction was open for as long as its producer allowed."""

    transactional_id: str
    producer_id: int
    epoch: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class ExpireIds:
    """Time to look for transactional ids that nobody uses any more."""
