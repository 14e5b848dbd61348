"""A partition's log on a broker that follows: what the leader of an epoch sent, and how the log becomes like its own.

The middle part of partition.py; called by pulling.py. What holds: nothing an earlier leader sent changes the log, and
while the log is being cut or started anew, off the event loop, this broker takes no other role.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable

from headrace.log.partition_log import PartitionLog
from headrace.model.image import PartitionImage
from headrace.replicas.committed_log import CommittedLog
from headrace.replicas.home import Home
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class FollowedLog(CommittedLog):
    def __init__(self, log: PartitionLog, home: Home, known: int) -> None:
        super().__init__(log, home, known)
        self.state: PartitionImage | None = None
        self.leader_epoch = -1
        self.records_lost = 0  # that were committed, to an unclean election
        self.doubted_from: int | None = None  # a batch there is damaged, and others have a better one
        self._reshaping = False
        self._state_after: PartitionImage | None = None  # to be applied when the log has its new shape

    @abstractmethod
    def apply(self, state: PartitionImage) -> None:
        """Take the role that the cluster's state gives this broker."""

    # --- what the leader sends --------------------------------------------------------------------------------------

    def _check_follows(self, epoch: int) -> None:
        if self.leads or self.leader_epoch != epoch or self._reshaping:
            raise KafkaError(ErrorCode.fenced_leader_epoch, f"{self} does not follow the leader of epoch {epoch}")

    def heard_of_commit(self, epoch: int, leader_high_watermark: int) -> None:
        """A follower's high watermark: what its leader says is committed, as far as it is here."""
        self._check_follows(epoch)
        self._set_high_watermark(min(leader_high_watermark, self.log.end_offset))

    def take(self, epoch: int, records: memoryview) -> None:
        """Append what the leader of `epoch` sent."""
        self._check_follows(epoch)
        self.readers.appended(self.log.append_as_follower(records, self._home.clock.now_ms()))

    async def forget_before(self, offset: int) -> None:
        """The leader's log starts here by now. It is committed, or the leader could not have let go of it."""
        await self._home.off_loop(self.log.advance_start, offset)
        self._set_high_watermark(self.log.start_offset)

    async def reshape(self, epoch: int, change: Callable[[int], None], offset: int) -> None:
        """Truncate or restart the log as the leader of `epoch` has it, off the event loop. The cluster's word on this
        partition waits meanwhile: nobody may lead with half a log."""
        self._check_follows(epoch)
        self._reshaping = True
        try:
            await self._home.off_loop(change, offset)
        finally:
            self._reshaping = False
            log = self.log
            if log.end_offset < self._high_watermark:
                lost = self._high_watermark - log.end_offset
                self.records_lost += lost
                logger.warning("%s: cut %d committed records, which its leader does not have", self, lost)
            self._high_watermark = max(log.start_offset, min(self._high_watermark, log.end_offset))
            if self.doubted_from is not None and self.doubted_from >= log.end_offset:
                self.doubted_from = None
            state, self._state_after = self._state_after, None
            if state is not None:
                self.apply(state)

    # --- damage -----------------------------------------------------------------------------------------------------

    def others_are_enough(self, state: PartitionImage) -> bool:
        others = len(set(state.isr) - {self._home.broker_id})
        return others >= max(1, self.log.config.min_insync_replicas)

    @property
    def told_end(self) -> int:
        """What a follower says that it has: not what it doubts, if the others can do without it."""
        if self.doubted_from is None or self.state is None or not self.others_are_enough(self.state):
            return self.log.end_offset
        return min(self.doubted_from, self.log.end_offset)

    async def mend(self, epoch: int) -> bool:
        """Cut the log where it is damaged, once it is stored that nobody counts on this replica; whether it was cut."""
        offset, state = self.doubted_from, self.state
        counted = () if state is None else (*state.isr, *dict(state.elr))
        if offset is None or state is None or self._home.broker_id in counted:
            return False
        self.doubted_from = None
        logger.warning("%s: cutting the log at the damage, offset %d, to get it again", self, offset)
        self._high_watermark = min(self._high_watermark, max(offset, self.log.start_offset))
        await self.reshape(epoch, self.log.truncate_to, offset)
        return True
