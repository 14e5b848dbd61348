"""The share shard: the stored state of all share partitions whose keys hash to one partition of `__share_group_state`.

It keeps what the leaders of topic partitions send it, and tells it to the next leader. Run by the coordinator runtime.
Invariants:

- Nothing counts that an earlier leader, or a leader that read the state before it was initialized again, sends: they
  are fenced by leader epoch and state epoch. A read raises the leader epoch, and that is a record too.
- After every `updates_per_snapshot` updates a snapshot replaces them. The state of a share partition is its latest
  snapshot and the updates after it, so what lies before the oldest latest snapshot may be pruned. Share partitions that
  nobody writes to are snapshotted again, round by round, or else they would block that for ever.

All state is derived from the records; there is no live state that a crash could lose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec import Struct

from headrace.coordinators.shard import Outcome
from headrace.coordinators.shares.batches import Batches, put
from headrace.coordinators.shares.commands import (
    DeleteState,
    ForgetTopic,
    InitializeState,
    NextRound,
    ReadState,
    Refusal,
    SnapshotCold,
    SummarizeState,
    WriteState,
)
from headrace.coordinators.shares.records import (
    SNAPSHOT,
    Snapshot,
    Update,
    read_key,
    read_snapshot,
    read_update,
    snapshot_record,
    tombstone,
    update_record,
)
from headrace.model.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, SharePartition, ShareState, StateBatch
from headrace.wire.errors import ErrorCode, Malformed

logger = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
MAX_NAME_BYTES = 0x7FFF  # what the record format has room for
SNAPSHOTS_AT_ONCE = 100  # in one write
TOMBSTONES_AT_ONCE = 1000
_BATCHES_AT_ONCE = 10_000  # in one write of many snapshots


class Stored(Struct):
    """One share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    batches: Batches
    complete_count: int = -1
    updates: int = 0  # since the snapshot
    round: int = 0  # in which the snapshot was made

    def state(self, *, batches: bool = True) -> ShareState:
        return ShareState(
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.complete_count,
            tuple(self.batches) if batches else (),
        )


class ShareShard:
    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.stored: dict[SharePartition, Stored] = {}
        self._round = 0
        self._updates_per_snapshot = updates_per_snapshot
        self._rules: dict[type, Callable[[Any, Outcome, int], None]] = {
            InitializeState: self._initialize,
            ReadState: self._read,
            WriteState: self._write,
            DeleteState: self._delete,
            SummarizeState: self._summarize,
            SnapshotCold: self._snapshot_cold,
            NextRound: self._next_round,
            ForgetTopic: self._forget_topic,
        }

    # --- the shard contract -----------------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Outcome:
        outcome = Outcome()
        self._rules[type(command)](command, outcome, now_ms)
        return outcome

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        try:
            kind, partition = read_key(key)
            if value is None:
                self.stored.pop(partition, None)
            elif kind == SNAPSHOT:
                self._apply_snapshot(partition, read_snapshot(value))
            else:
                self._apply_update(partition, read_update(value))
        except Malformed as error:
            # An unreadable record, written by a newer version, must not make all the others unavailable.
            logger.warning("skipped: %s", error)

    def _apply_snapshot(self, partition: SharePartition, snapshot: Snapshot) -> None:
        batches: Batches = []
        put(batches, snapshot.batches, snapshot.start_offset)
        self.stored[partition] = Stored(
            snapshot.epoch,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            snapshot.created_ms,
            batches,
            snapshot.complete_count,
            round=self._round,
        )

    def _apply_update(self, partition: SharePartition, update: Update) -> None:
        stored = self.stored.get(partition)
        if stored is None or stored.snapshot_epoch != update.epoch:
            return  # its snapshot was pruned, and a later one has all of it
        stored.start_offset = max(stored.start_offset, update.start_offset)  # a late write moves nothing back
        stored.leader_epoch = max(stored.leader_epoch, update.leader_epoch)
        stored.complete_count = update.complete_count
        stored.updates += 1
        put(stored.batches, update.batches, stored.start_offset)

    def apply_end(self, producer_id: int, commit: bool) -> None:
        """Records of this journal are never part of a transaction."""

    def loaded(self, now_ms: int) -> Outcome:
        return Outcome()

    # --- what leaders and groups ask --------------------------------------------------------------------------------

    def _initialize(self, command: InitializeState, outcome: Outcome, now_ms: int) -> None:
        key, before = command.partition, self.stored.get(command.partition)
        if not key.group or len(key.group.encode()) > MAX_NAME_BYTES or key.partition < 0:
            outcome.reply = Refusal(ErrorCode.invalid_request, "a share partition needs a group and a partition")
        elif before is not None and before.state_epoch > command.state_epoch:
            outcome.reply = _fenced_state(before, command.state_epoch)
        else:
            epoch = 0 if before is None else before.snapshot_epoch + 1
            leader_epoch = 0 if before is None else before.leader_epoch
            snapshot = Snapshot(epoch, command.state_epoch, leader_epoch, command.start_offset, now_ms, now_ms, ())
            outcome.write(snapshot_record(key, snapshot))

    def _read(self, command: ReadState, outcome: Outcome, now_ms: int) -> None:
        stored = self.stored.get(command.partition)
        if stored is None:
            outcome.reply = _uninitialized(command.partition)
        elif stored.leader_epoch > command.leader_epoch:
            outcome.reply = _fenced_leader(stored, command.leader_epoch)
        else:
            state = stored.state()
            if stored.leader_epoch < command.leader_epoch:
                self._update(command.partition, stored, command.leader_epoch, state, outcome, now_ms)
            outcome.reply = ShareState(
                state.state_epoch,
                command.leader_epoch,
                state.start_offset,
                state.delivery_complete_count,
                state.batches,
            )

    def _write(self, command: WriteState, outcome: Outcome, now_ms: int) -> None:
        stored, state = self.stored.get(command.partition), command.state
        if stored is None:
            outcome.reply = _uninitialized(command.partition)
        elif stored.leader_epoch > state.leader_epoch:
            outcome.reply = _fenced_leader(stored, state.leader_epoch)
        elif stored.state_epoch != state.state_epoch:
            outcome.reply = _fenced_state(stored, state.state_epoch)
        elif not all(_makes_sense(batch) for batch in state.batches):
            outcome.reply = Refusal(
                ErrorCode.invalid_request, "a state batch has no such state, or ends before it begins"
            )
        else:
            self._update(command.partition, stored, state.leader_epoch, state, outcome, now_ms, fresh=True)

    def _update(
        self,
        key: SharePartition,
        stored: Stored,
        leader_epoch: int,
        state: ShareState,
        outcome: Outcome,
        now_ms: int,
        *,
        fresh: bool = False,
    ) -> None:
        """An update, or a snapshot in its place if there were many. `fresh`: the batches have changed."""
        changed = state.batches if fresh else ()
        count = state.delivery_complete_count
        if stored.updates < self._updates_per_snapshot:
            update = Update(stored.snapshot_epoch, leader_epoch, state.start_offset, changed, count)
            outcome.write(update_record(key, update))
            return
        batches = list(stored.batches)
        start = max(stored.start_offset, state.start_offset)
        put(batches, changed, start)
        snapshot = Snapshot(
            stored.snapshot_epoch + 1,
            stored.state_epoch,
            leader_epoch,
            start,
            stored.created_ms,
            now_ms,
            tuple(batches),
            count,
        )
        outcome.write(snapshot_record(key, snapshot))

    def _delete(self, command: DeleteState, outcome: Outcome, now_ms: int) -> None:
        if command.partition in self.stored:
            outcome.write(tombstone(command.partition))

    def _summarize(self, command: SummarizeState, outcome: Outcome, now_ms: int) -> None:
        stored = self.stored.get(command.partition)
        outcome.reply = _uninitialized(command.partition) if stored is None else stored.state(batches=False)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def _snapshot_cold(self, command: SnapshotCold, outcome: Outcome, now_ms: int) -> None:
        cold, total = [key for key, stored in self.stored.items() if stored.round < self._round], 0
        for done, key in enumerate(islice(cold, SNAPSHOTS_AT_ONCE)):
            stored = self.stored[key]
            total += len(stored.batches)
            if total > _BATCHES_AT_ONCE and done:
                outcome.reply = len(cold) - done
                return
            snapshot = Snapshot(
                stored.snapshot_epoch + 1,
                stored.state_epoch,
                stored.leader_epoch,
                stored.start_offset,
                stored.created_ms,
                now_ms,
                tuple(stored.batches),
                stored.complete_count,
            )
            outcome.write(snapshot_record(key, snapshot))
        outcome.reply = max(0, len(cold) - SNAPSHOTS_AT_ONCE)

    def _next_round(self, command: NextRound, outcome: Outcome, now_ms: int) -> None:
        self._round += 1
        outcome.reply = len(self.stored)

    def _forget_topic(self, command: ForgetTopic, outcome: Outcome, now_ms: int) -> None:
        for key in self.stored:
            if key.topic_id == command.topic_id:
                if len(outcome.records) == TOMBSTONES_AT_ONCE:
                    outcome.set_timer(("forget", command.topic_id), 0, command)
                    return
                outcome.write(tombstone(key))


def _makes_sense(batch: StateBatch) -> bool:
    known = batch.state in (AVAILABLE, ACKNOWLEDGED, ARCHIVED)
    return known and batch.first_offset <= batch.last_offset and batch.delivery_count >= 0


def _uninitialized(partition: SharePartition) -> Refusal:
    why = f"group {partition.group!r} has no share state for partition {partition.partition} of {partition.topic_id}"
    return Refusal(ErrorCode.invalid_request, why)


def _fenced_leader(stored: Stored, epoch: int) -> Refusal:
    return Refusal(ErrorCode.fenced_leader_epoch, f"leader epoch {epoch} is old; {stored.leader_epoch} is known")


def _fenced_state(stored: Stored, epoch: int) -> Refusal:
    return Refusal(ErrorCode.fenced_state_epoch, f"state epoch {epoch} is old; {stored.state_epoch} is known")
