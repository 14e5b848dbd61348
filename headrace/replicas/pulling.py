"""Pulling one partition from its leader: how far that has come, and which step is next.

Owned by replicas.follower, one for each partition and leader epoch: when the epoch or the leader changes, it is thrown
away, and later responses to its requests are ignored. The order within an epoch is fixed: first reconcile, which
truncates what the leader does not have, and only then fetch.
"""

from __future__ import annotations

import logging

from headrace.log.failing import passes
from headrace.log.partition_log import PartitionLog
from headrace.replicas.partition import Partition
from headrace.replicas.reconciling import next_step
from headrace.replicas.throttle import names
from headrace.wire.batches import HEADER_BYTES, read_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

logger = logging.getLogger(__name__)

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0

# Temporary errors: leader and follower learn of an election at different times.
_PASSING = {
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
}


class Pulled:
    def __init__(self, partition: Partition, broker_id: int) -> None:
        self.partition = partition
        self._broker_id = broker_id
        self.epoch = partition.leader_epoch
        self.reconciled = False
        self.out_of_range = False  # the leader's log starts after the end of this one
        self._parted_at = -1  # where an epoch ended in the leader's log, if this log ends there too
        self.not_before_s = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._said = ErrorCode.none  # the last error that was logged

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def offset(self) -> int:
        return self.partition.followed_log.reported_end

    @property
    def is_safe(self) -> bool:
        """All of the log is stored as the topic asks. That never becomes true again once a sync has failed."""
        log = self.log
        return log.offline is None and (not log.config.fsync or log.synced_offset >= log.end_offset)

    @property
    def is_unfinished(self) -> bool:
        """A truncation was interrupted by what passes: a full disk, or a lack of descriptors or memory."""
        return passes(self.log.offline)

    @property
    def is_damaged(self) -> bool:
        """Part of the log is damaged, and waits to be truncated."""
        return self.offset < self.log.end_offset

    @property
    def is_throttled(self) -> bool:
        """Its topic limits the rate at which it catches up, and it is not in sync."""
        partition, state = self.partition, self.partition.state
        listed = self.log.config.follower_throttled
        return (
            bool(listed)
            and names(listed, partition.index, self._broker_id)
            and (state is None or self._broker_id not in state.isr)
        )

    # --- reconciling ------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Do the rest of what was interrupted."""
        await self.partition.followed_log.reshape(self.epoch, self.log.truncate_to, self.log.end_offset)

    @property
    def asked_epoch(self) -> int:
        """The epoch to ask the leader about; -1 if the log is empty and has nothing to lose."""
        return self.log.epochs.latest

    async def reconcile(self, asked: int, answer: Message) -> None:
        """Apply the leader's answer to where epoch `asked` ended in its log."""
        check(answer.error_code)
        if asked != self.asked_epoch:
            return  # the log was truncated meanwhile: ask again
        step = next_step(self.log.epochs, self.offset, asked, answer.leader_epoch, answer.end_offset)
        if step.cut_at < self.offset:
            logger.info(
                "%s: truncating %d records that its leader does not have", self.partition, self.offset - step.cut_at
            )
        if step.cut_at < self.offset or step.ask_again:  # also if only an epoch without records has to be removed
            await self.partition.followed_log.reshape(self.epoch, self.log.truncate_to, step.cut_at)
        if step.ask_again and self.asked_epoch >= 0:
            if self.asked_epoch >= asked:
                raise KafkaError(
                    ErrorCode.unknown_leader_epoch, f"{self.partition}: nothing of epoch {asked} could be truncated"
                )
            return
        self.reconciled = True
        self._parted_at = answer.end_offset if answer.end_offset == self.offset else -1

    async def start_over(self, leader_start: int) -> None:
        """The leader does not have the next offset any more: restart the log where the leader's begins."""
        if leader_start > self.offset:
            logger.warning("%s: its leader's log starts at %d, going on from there", self.partition, leader_start)
            await self.partition.followed_log.reshape(self.epoch, self.log.restart_at, leader_start)
        else:  # the leader's log ends before this one, against its earlier answer
            self.reconciled = False
        self.out_of_range = False

    # --- fetching ---------------------------------------------------------------------------------------------------

    async def take(self, answer: Message) -> None:
        """Append the fetched batches and take over the high watermark. If it raises KafkaError, nothing has changed."""
        if answer.error_code == ErrorCode.offset_out_of_range:
            self.out_of_range = True
            return
        check(answer.error_code)
        records = memoryview(b"" if self.is_damaged else answer.records or b"")
        leader_start = answer.log_start_offset
        if self.log.start_offset < leader_start == self._parted_at == self.offset:
            # The leader has nothing before that offset, so what lies there in this log was not compared with anything.
            await self.partition.followed_log.reshape(self.epoch, self.log.restart_at, leader_start)
        self._parted_at = -1
        if len(records) >= HEADER_BYTES:
            first = read_header(records).base_offset
            if first < self.offset and self.log.start_offset == self.offset:
                # The leader's log starts in the middle of a batch, which is sent whole: so must this one.
                await self.partition.followed_log.reshape(self.epoch, self.log.restart_at, first)
            end = self.offset
            await self.partition.followed_log.take(self.epoch, records)
            if self.offset == end:
                raise KafkaError(ErrorCode.corrupt_message, f"{self.partition}: its leader sent no whole batch")
        self.partition.followed_log.learn_commit(self.epoch, answer.high_watermark)
        if self.log.start_offset < leader_start <= self.offset:
            await self.partition.followed_log.forget_before(leader_start)
        self._wait_s = _FIRST_WAIT_S
        self._said = ErrorCode.none

    def failed(self, error: KafkaError | OSError, now_s: float) -> None:
        """Retry later, with exponential backoff."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
        if code not in _PASSING and code is not self._said:
            logger.warning("%s: cannot follow its leader: %s; trying again", self.partition, error)
            self._said = code
        self.not_before_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


def check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
