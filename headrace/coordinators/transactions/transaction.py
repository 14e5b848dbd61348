"""One transactional id and its transaction: its fields, and the transitions between its states.

    Empty ────────add──────────> Ongoing ──commit──> PrepareCommit ──markers written──> CompleteCommit
      ^                          │   ^  └───abort──> PrepareAbort  ──markers written──> CompleteAbort
      │                          └add┘                                                    │      │
      └───────────────────────────init────────────────────────────────────────────────────┴─add─> Ongoing

An abort without an open transaction also leads from Empty and from the two complete states to PrepareAbort, because a
producer of transaction version 2 raises its epoch with every end (KIP-890). From the same states an unused id expires:
its record becomes a tombstone.

A transaction is an immutable value: a change creates a new one, which is written and then replaces the old one. Owned
by the transaction shard. Invariant: `moved` is the only way to another state, and rejects transitions that are not in
the diagram.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.model.topic_partition import TopicPartition
from headrace.model.transaction_end import BUMPING_VERSION

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 0x7FFF  # used for the last marker of a producer id only, never given to a client


class State(Enum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def ending(self) -> bool:
        """The decision is made, and the markers are being written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


_AT_REST = {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
_FROM: dict[State, set[State]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: _AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
}


class Transaction(Struct, frozen=True):
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH  # the previous one, for a producer that may not have received `epoch` yet
    previous_producer_id: int = NO_PRODUCER_ID  # had all epochs used up
    next_producer_id: int = NO_PRODUCER_ID  # takes over when the markers are written
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    version: int = 0  # transaction.version of the client
    timed_out: bool = False  # the broker has aborted it, and its producer may not know

    @property
    def exhausted(self) -> bool:
        """No further epoch can be given to a client; the highest one is reserved for a last marker."""
        return self.epoch >= MAX_EPOCH - 1

    def moved(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        if self.state not in _FROM[state]:
            raise AssertionError(f"a transaction cannot go from {self.state.value} to {state.value}")
        return replace(self, state=state, updated_ms=now_ms, **changes)

    # --- the producer -----------------------------------------------------------------------------------------------

    def bumped(self, timeout_ms: int, last_epoch: int, now_ms: int) -> Transaction:
        """For a producer that initializes this id."""
        assert not self.exhausted, "there is no epoch left"
        return self._begun(timeout_ms, now_ms, epoch=self.epoch + 1, last_epoch=last_epoch)

    def rotated(self, fresh_id: int, timeout_ms: int, last_epoch: int, now_ms: int) -> Transaction:
        """All epochs are used up: the transactional id continues with another producer id."""
        return self._begun(
            timeout_ms,
            now_ms,
            producer_id=fresh_id,
            previous_producer_id=self.producer_id,
            epoch=0,
            last_epoch=last_epoch,
        )

    def kept(self, timeout_ms: int, now_ms: int) -> Transaction:
        """For a producer that retries because it has not received the response."""
        return self._begun(timeout_ms, now_ms)

    def _begun(self, timeout_ms: int, now_ms: int, **changes: Any) -> Transaction:
        return self.moved(State.EMPTY, now_ms, timeout_ms=timeout_ms, start_ms=NO_TIME, timed_out=False, **changes)

    # --- the transaction --------------------------------------------------------------------------------------------

    def with_partitions(self, added: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        start_ms = self.start_ms if self.state is State.ONGOING else now_ms
        return self.moved(
            State.ONGOING,
            now_ms,
            partitions=self.partitions | added,
            start_ms=start_ms,
            last_epoch=NO_EPOCH,  # a producer that opens a transaction has received the epoch
            version=version,
            timed_out=False,
        )

    def ended(self, commit: bool, version: int, fresh_id: int, now_ms: int) -> Transaction:
        """By its own producer; `fresh_id` is used if the epochs of this producer id are used up."""
        changes: dict[str, Any] = {"version": version, "next_producer_id": fresh_id, "timed_out": False}
        if version >= BUMPING_VERSION:
            changes |= {"epoch": self.epoch + 1, "last_epoch": self.epoch}
        return self._ending(commit, now_ms, **changes)

    def recalled(self, now_ms: int, *, timed_out: bool) -> Transaction:
        """Aborted for its producer, which may ask for the new epoch and go on (KIP-588)."""
        return self._ending(
            False,
            now_ms,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            version=BUMPING_VERSION,
            timed_out=timed_out,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Aborted because another producer initializes this id: the next epoch is given to nobody, so the old producer
        cannot get in before the new one."""
        epoch = min(self.epoch + 2, MAX_EPOCH)
        return self._ending(False, now_ms, epoch=epoch, last_epoch=NO_EPOCH, version=BUMPING_VERSION)

    def _ending(self, commit: bool, now_ms: int, **changes: Any) -> Transaction:
        start_ms = self.start_ms if self.state is State.ONGOING else now_ms
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        return self.moved(state, now_ms, start_ms=start_ms, **changes)

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        committed = self.state is State.PREPARE_COMMIT
        changes: dict[str, Any] = {"partitions": frozenset()}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes |= {
                "producer_id": self.next_producer_id,
                "previous_producer_id": self.producer_id,
                "next_producer_id": NO_PRODUCER_ID,
                "epoch": 0,
            }
        return self.moved(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, now_ms, **changes)

    def told(self) -> tuple[int, int]:
        """The producer id and epoch that the client continues with."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch
