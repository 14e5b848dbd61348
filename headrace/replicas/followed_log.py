"""A partition's log on a broker that follows: what the leader sends, and how the log becomes like the leader's.

Owned by replicas.partition, called by pulling.py. It stays with the partition for good: damage may be found in any
role, and the log may still be changing its shape, off the event loop, when the cluster names another leader.

Invariant: nothing that an earlier leader sent changes the log, and while `reshaping` is set this broker takes no other
role.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from headrace.log.opening import Unprepared
from headrace.model.image import PartitionImage
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.committed_log import CommittedLog
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Standing(Protocol):
    """What the cluster says of the partition, and what this broker makes of it."""

    @property
    def state(self) -> PartitionImage | None: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def leads(self) -> bool: ...


class FollowedLog:
    __slots__ = (
        "_broker", "_committed_log", "_log", "_name", "_on_reshaped", "_standing", "damaged_from", "records_lost",
        "reshaping",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        committed_log: CommittedLog,
        broker: BrokerContext,
        standing: Standing,
        on_reshaped: Callable[[], None],
    ) -> None:
        self.reshaping = False
        self.records_lost = 0
        """Committed records that an unclean election cost."""
        self.damaged_from: int | None = None
        """The offset of a batch that is damaged on this disk, and that is to come again from another replica."""
        self._name = name
        self._committed_log = committed_log
        self._log = committed_log.log
        self._broker = broker
        self._standing = standing
        self._on_reshaped = on_reshaped

    # --- what the leader sends --------------------------------------------------------------------------------------

    def _check_follows(self, epoch: int) -> None:
        standing = self._standing
        if standing.leads or standing.leader_epoch != epoch or self.reshaping:
            raise KafkaError(ErrorCode.fenced_leader_epoch, f"{self._name} does not follow the leader of epoch {epoch}")

    async def take(self, epoch: int, records: memoryview) -> None:
        """Append what the leader of `epoch` sent, or the first of it."""
        self._check_follows(epoch)
        try:
            scanned = self._log.scanned(records)
        except Unprepared as unprepared:
            scanned = await self._broker.compute(unprepared.step, records)
            self._check_follows(epoch)
        now_ms = self._broker.clock.now_ms()
        self._committed_log.readers.appended(self._log.append_as_follower(records, now_ms, scanned))

    def learn_commit(self, epoch: int, leader_high_watermark: int) -> None:
        """A follower's high watermark: what its leader says is committed, as far as it is here."""
        self._check_follows(epoch)
        self._committed_log.advance(min(leader_high_watermark, self._log.end_offset))

    async def forget_before(self, offset: int) -> None:
        """The leader's log starts here by now. What lies before is committed: else the leader would still have it."""
        await self._broker.off_loop(self._log.advance_start, offset)
        self._committed_log.advance(self._log.start_offset)

    async def reshape(self, epoch: int, change: Callable[[int], None], offset: int) -> None:
        """Truncate or restart the log as the leader of `epoch` has it, off the event loop. A new state of the partition
        waits meanwhile: nobody may lead with half a log."""
        self._check_follows(epoch)
        self.reshaping = True
        try:
            await self._broker.off_loop(change, offset)
        finally:
            self.reshaping = False
            end = self._log.end_offset
            lost = self._committed_log.cut_back(end)
            if lost:
                self.records_lost += lost
                logger.warning("%s: cut %d committed records, which its leader does not have", self._name, lost)
            if self.damaged_from is not None and self.damaged_from >= end:
                self.damaged_from = None
            self._on_reshaped()

    # --- damage -----------------------------------------------------------------------------------------------------

    def others_are_enough(self, state: PartitionImage) -> bool:
        others = len(set(state.isr) - {self._broker.broker_id})
        return others >= max(1, self._log.config.min_insync_replicas)

    @property
    def reported_end(self) -> int:
        """Where a follower tells its leader that its log ends: before damage, if enough others are in sync."""
        end, state = self._log.end_offset, self._standing.state
        if self.damaged_from is None or state is None or not self.others_are_enough(state):
            return end
        return min(self.damaged_from, end)

    async def cut_damage(self, epoch: int) -> bool:
        """Cut the log where it is damaged, once it is stored that nobody counts on this replica; whether it was cut.
        The records come again from the leader, so they do not count as lost."""
        offset, state = self.damaged_from, self._standing.state
        counted = () if state is None else (*state.isr, *dict(state.elr))
        if offset is None or state is None or self._broker.broker_id in counted:
            return False
        self.damaged_from = None
        logger.warning("%s: cutting the log at the damage, offset %d, to get it again", self._name, offset)
        self._committed_log.cut_back(offset)
        await self.reshape(epoch, self._log.truncate_to, offset)
        return True
