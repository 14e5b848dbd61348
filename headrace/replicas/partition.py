"""One partition on this broker: its role, and those who write to it and read from it.

Invariant, checked where the two are made: log start <= last stable offset <= high watermark <= log end. Neither goes
back while this broker leads. A record is committed once all replicas have it that may lead after this one (isr.py),
with `headrace.flush=fsync` on disk. Records from the last stable offset on belong to transactions that are open, or
come after such records: read_committed readers wait for them.

The role follows from the cluster's state of the partition (`apply`): leader epochs never go back, and neither do
versions within an epoch. A leader appends, and the others pull from it (follower.py). Called by `replicas.host` and by
handlers; appends check role and epoch and write with no await in between.
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from headrace.log.appended import Appended
from headrace.log.partition_log import PartitionLog
from headrace.log.reading import EMPTY, Slice
from headrace.model.image import PartitionImage
from headrace.model.topic_config import TopicConfig
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas import throttle
from headrace.replicas.followed_log import FollowedLog
from headrace.replicas.home import Home
from headrace.replicas.isr import may_commit
from headrace.replicas.isr_changes import IsrChanges
from headrace.replicas.leadership import Leadership
from headrace.replicas.refusals import Refusals
from headrace.replicas.waiters import CommitWaiters
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Partition(FollowedLog):
    def __init__(self, topic: str, topic_id: uuid.UUID, index: int, log: PartitionLog, home: Home, known: int = 0):
        super().__init__(log, home, known)
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.in_sync = 1  # replicas that are, this one among them
        self.isr_changes = IsrChanges(self, home)
        self.ends = 0  # of transactions, that were written here
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._resigned_epoch = -1  # it does not lead again in an epoch in which it gave up
        self._refusals = Refusals()
        self._deletions = CommitWaiters()  # for all in sync to have deleted as well

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # --- role -------------------------------------------------------------------------------------------------------

    def knows_better(self, state: PartitionImage) -> bool:
        """Whether what is known here of the cluster's state is newer than `state`."""
        known = self.state
        return known is not None and (state.leader_epoch, state.version) < (known.leader_epoch, known.version)

    def apply(self, state: PartitionImage) -> None:
        """Take the role that the cluster's state gives this broker. What is not newer than what is known is ignored."""
        known = self.state
        if known is not None and (state.leader_epoch, state.version) <= (known.leader_epoch, known.version):
            return
        if self._reshaping:
            self._state_after = state
            return
        self.in_sync = len(state.isr)
        self.alone = len(state.replicas) == 1
        if not self._elected(state):
            self._follow(state)
        elif self.leads and state.leader_epoch == self.leader_epoch:
            self._go_on(state)
        else:
            self._lead(state)
        self.state = state  # last, so that what failed on the way is done again

    def _elected(self, state: PartitionImage) -> bool:
        """A leader's entry in the ISR names the start of the broker that was elected; an earlier one does not count."""
        home = self._home
        if state.leader != home.broker_id or state.leader_epoch <= self._resigned_epoch:
            return False
        epochs = dict(zip(state.isr, state.isr_epochs, strict=True)) if state.isr_epochs else {}
        return home.broker_epoch is None or epochs.get(home.broker_id) == home.broker_epoch

    def _lead(self, state: PartitionImage) -> None:
        """Serve as leader. The epoch's start is on record before the first append under it."""
        if self.leads:
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} has a new leader epoch"))
        if self._home.pulls is not None:
            self._home.pulls.stop(self)
        self._refusals.forget()
        log, epoch = self.log, state.leader_epoch
        log.epochs.assign(epoch, log.end_offset)
        self.leader_epoch = epoch
        self.leads = True
        if not self.alone:
            self.leadership = Leadership(state, self._home.broker_id, log.end_offset, self._home.clock.monotonic())
        log.settle(self._high_watermark)
        self.commit_more()
        if log.config.fsync and log.synced_offset < log.end_offset:
            self._sync_soon()
        self._home.on_role(self, True, epoch)

    def _go_on(self, state: PartitionImage) -> None:
        """The same leader in the same epoch: replicas or ISR are others."""
        now_s = self._home.clock.monotonic()
        if self.alone:
            self.leadership = None
        elif self.leadership is None:
            self.leadership = Leadership(state, self._home.broker_id, self.log.end_offset, now_s)
        else:
            self.leadership.adopt(state, now_s)
            self._deletions.advance(self.leadership.lowest_start(self.log.start_offset))
        self.commit_more()
        if not self.alone and not may_commit(state, self.log.config.min_insync_replicas):
            self._commits.fail(
                KafkaError(
                    ErrorCode.not_enough_replicas_after_append,
                    f"{self} has {len(state.isr)} replicas in sync, too few to commit what was written",
                )
            )
        self.isr_changes.review()

    def _follow(self, state: PartitionImage) -> None:
        known = self.state
        if self.leads:
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} is led by broker {state.leader} now"))
        self.leader_epoch = state.leader_epoch
        moved = known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch)
        if self._home.pulls is not None and moved:
            self._home.pulls.stop(self)
            if state.leader not in (-1, self._home.broker_id):
                self.state = state
                self._home.pulls.follow(self)

    def resign(self, error: KafkaError) -> None:
        """Stop serving: whoever waits is told why."""
        led, self.leads = self.leads, False
        self.leadership = None
        self._resigned_epoch = self.leader_epoch if led else self._resigned_epoch
        self._commits.fail(error)
        self._syncs.fail(error)
        self._deletions.fail(error)
        self.readers.wake_all()
        if led:
            self._home.on_role(self, False, self.leader_epoch)

    def forget_role(self) -> None:
        """This broker's registration is another now: what it led it leads again only once it is elected anew."""
        if self.leads:
            self.resign(
                KafkaError(ErrorCode.not_leader_or_follower, f"the broker of {self} lost touch with its cluster")
            )
        state, self.state = self.state, None
        if state is not None:
            self.apply(state)

    def check_leader(self, known_epoch: int) -> None:
        """Fence a request that believes in another epoch (KIP-320); -1 means that it does not say."""
        if not self.leads or not self._home.in_touch():
            raise KafkaError(ErrorCode.not_leader_or_follower)
        self.check_epoch(known_epoch)

    def check_follower(self, known_epoch: int, offset: int) -> None:
        """Whether a consumer may read here although another broker leads (KIP-392)."""
        if self.state is None or self.state.leader == -1 or self._reshaping or not self._home.in_touch():
            raise KafkaError(ErrorCode.not_leader_or_follower)
        self.check_epoch(known_epoch)
        if offset > self._high_watermark:
            raise KafkaError(ErrorCode.offset_not_available, f"{self} has not heard of a commit of {offset} yet")

    def check_epoch(self, known_epoch: int) -> None:
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            stale = known_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.fenced_leader_epoch if stale else ErrorCode.unknown_leader_epoch)

    def check_enough_replicas(self, records: memoryview = memoryview(b"")) -> None:
        """Refuse acks=all before the append of `records` when fewer replicas are in sync than the topic asks for."""
        wanted = self.log.config.min_insync_replicas
        if self.in_sync < wanted and self.leads:
            error = KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}",
            )
            self._refusals.refused(records, error, self._home.clock.now_ms())
            raise error

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, records: memoryview, *, internal: bool = False, transactional: bool = False) -> Appended:
        """Write produced batches; they are visible once committed."""
        home, now_ms = self._home, self._home.clock.now_ms()
        try:
            if not self.leads or (home.lease is not None and not home.lease()):
                raise KafkaError(ErrorCode.not_leader_or_follower)
            if self._refusals.by_producer:
                self._refusals.check(records, self.log.producers.producers, now_ms)
            appended = self.log.append(
                records, self.leader_epoch, now_ms=now_ms, internal=internal, transactional=transactional
            )
        except KafkaError as error:
            self._refusals.refused(records, error, now_ms)
            raise
        if self._refusals.by_producer:
            self._refusals.accepted(records)
        if not appended.duplicate:
            self.messages_in += appended.last_offset - appended.base_offset + 1
            self.bytes_in += len(records)
            self._grown(appended.base_offset, appended.visible_bytes)
        return appended

    def append_end(self, end: TransactionEnd) -> Appended:
        """Write the end of a producer's transaction. One that is here already does no harm."""
        self.check_leader(-1)
        appended = self.log.append_marker(
            end.producer_id,
            end.producer_epoch,
            end.coordinator_epoch,
            end.commit,
            self.leader_epoch,
            strict=end.strict,
            now_ms=self._home.clock.now_ms(),
        )
        self.ends += 1
        if not appended.duplicate:
            self._grown(appended.base_offset, appended.visible_bytes, ends=True)
        return appended

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.log.has_open_transaction(producer_id, epoch)

    def _grown(self, before: int, visible_bytes: int, *, ends: bool = False) -> None:
        if self.leadership is not None:
            self.leadership.grew(before, self._home.clock.monotonic())
        self.readers.appended(visible_bytes, ends=ends)
        if self.log.config.fsync:
            self._sync_soon()
        elif self.leadership is None:
            self._set_high_watermark(self.log.end_offset)
        else:
            self.commit_more()

    # --- other replicas ---------------------------------------------------------------------------------------------

    def replica_fetched(self, broker_id: int, broker_epoch: int, offset: int, start: int = -1) -> None:
        """A follower has everything from `start` to before `offset`, under this leader's epoch."""
        leadership = self.leadership
        if leadership is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{self} has no replica on broker {broker_id}")
        if offset > self.log.end_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        follower = leadership.followers.get(broker_id)
        before = -1 if follower is None else follower.end_offset
        leadership.fetched(broker_id, broker_epoch, offset, self.log.end_offset, self._home.clock.monotonic(), start)
        self._deletions.advance(leadership.lowest_start(self.log.start_offset))
        if offset != before:
            self.commit_more()
        if broker_id not in leadership.state.isr:
            self.isr_changes.review()

    def disk_failed(self, why: str) -> None:
        """The disk under this log is broken: whoever waits is told, and another replica may lead."""
        leadership = self.leadership
        self.resign(KafkaError(ErrorCode.kafka_storage_error, why))
        if leadership is not None:
            self.isr_changes.leave(leadership.state)

    def doubt(self, offset: int) -> None:
        """A batch at `offset` is damaged on this disk. Others have it, if there are others: a leader leaves to them,
        and a follower gets it again."""
        if self.alone or self.log.offline is not None:
            return
        self.doubted_from = offset
        leadership = self.leadership
        if leadership is not None and self.others_are_enough(leadership.state):
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} is damaged here"))
            self.isr_changes.leave(leadership.state)

    def review(self) -> None:
        """What only time brings: a replica that fell behind, one that need not be waited for any more, a dead disk."""
        if self.log.offline is not None:
            self.disk_failed(f"{self} is offline after a disk error: {self.log.offline}")
            return
        self.isr_changes.review()
        self.commit_more()

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, stable: bool = False) -> Slice:
        """Committed bytes from `offset` on; KafkaError(offset_out_of_range) outside of what is stored. With `stable`
        only what no open transaction can change any more."""
        if self._high_watermark < offset <= self.log.end_offset:
            return EMPTY  # stored, but not yet for readers
        end = self.last_stable_offset if stable else self._high_watermark
        return self.log.read(offset, max_bytes, end, at_least_one=at_least_one, for_consumer=True)

    def read_as_replica(self, broker_id: int, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice:
        """Everything that is stored, committed or not; for one that catches up, as fast as it may."""
        home, leadership = self._home, self.leadership
        catches_up = leadership is not None and broker_id not in leadership.state.isr
        if not catches_up or not throttle.names(self.log.config.leader_throttled, self.index, home.broker_id):
            return self.log.read(offset, max_bytes, self.log.end_offset, at_least_one=at_least_one)
        if not home.leader_throttle.is_open:
            return EMPTY
        max_bytes = min(max_bytes, home.leader_throttle.bytes_per_s)
        found = self.log.read(offset, max_bytes, self.log.end_offset, at_least_one=at_least_one)
        home.leader_throttle.passed(found.size)
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, the offset where it ended); (-1, -1) if nothing is known that far back."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset) or (-1, -1)

    def own_last(self) -> tuple[int, int]:
        """The last epoch in this replica's log, and where the log ends."""
        if self.log.offline is not None or self._reshaping:
            raise KafkaError(ErrorCode.kafka_storage_error, f"the log of {self} cannot be used now")
        return self.log.epochs.latest, self.log.end_offset

    def diverging(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """Where the history of a reader that stands at `offset`, its last record of `last_epoch`, parts from ours."""
        epoch, end = self.end_of_epoch(last_epoch)
        if epoch == -1:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def delete_records(self, before: int) -> int:
        """Move the start of the log; -1 means up to the high watermark. The new start offset."""
        self.check_leader(-1)
        target = self._high_watermark if before == -1 else before
        if not 0 <= target <= self._high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        self.log.advance_start(target)
        self.readers.wake_all()
        return self.log.start_offset

    def deleted_everywhere(self, before: int) -> asyncio.Future[None] | None:
        """None when nobody in sync has records before this offset any more, else a future of that moment."""
        leadership = self.leadership
        if leadership is None or leadership.lowest_start(self.log.start_offset) >= before:
            return None
        return self._deletions.wait_for(before - 1)

    def reconfigure(self, config: TopicConfig) -> None:
        self.log.reconfigure(config)
        self.commit_more()
        self.isr_changes.review()
        if self.leads and config.fsync and self.log.synced_offset < self.log.end_offset:
            self._sync_soon()
