"""One partition on this broker: its role, and those who write to it and read from it.

A partition has a committed log (the log, how far it is committed, who waits for that), a leader role while this broker
leads it (its followers, rejected producers), and a followed log (what a leader sends). The parts do not know the
partition: they get what they need of it as callables and small protocols. The rules on who may lead, write and read are
here.

The role follows from the cluster's state of the partition (`apply`): leader epochs never go back, and neither do
versions within an epoch. A leader appends, and the others pull from it (follower.py). Records from the last stable
offset on belong to open transactions or come after such records: read_committed readers wait for them. Called by
`replicas.host` and by handlers; appends check role and epoch and write with no await in between.
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from headrace.log.appended import Appended
from headrace.log.opening import Opened
from headrace.log.partition_log import PartitionLog
from headrace.log.reading import EMPTY, Slice
from headrace.model.image import PartitionImage
from headrace.model.topic_config import TopicConfig
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.committed_log import CommittedLog
from headrace.replicas.followed_log import FollowedLog
from headrace.replicas.isr_changes import IsrChanges
from headrace.replicas.lateness import Lateness
from headrace.replicas.leader_role import LeaderRole
from headrace.replicas.leadership import Joins, Leadership
from headrace.replicas.office_clock import OfficeClock
from headrace.replicas.reparking import cancel_before
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Partition:
    def __init__(
        self, topic: str, topic_id: uuid.UUID, index: int, log: PartitionLog, broker: BrokerContext, known: int = 0
    ) -> None:
        """`known` is how far the log was known to be committed before the last stop."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.committed_log = CommittedLog(log, known, broker.clock, broker.sync, self._synced, self.disk_failed)
        self.followed_log = FollowedLog(str(self), self.committed_log, broker, self, self._apply_what_waited)
        self.readers = self.committed_log.readers
        self.isr_changes = IsrChanges(self, broker)
        self.state: PartitionImage | None = None
        self.leader_epoch = -1
        self.in_sync = 1  # size of the ISR
        self.alone = True  # there is no other replica
        self.ends = 0  # how many ends of transactions were written here
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.lateness = Lateness()  # of what was released here
        self._broker = broker
        self._leader: LeaderRole | None = None  # while this broker leads
        self._resigned_epoch = -1  # it does not lead again in an epoch in which it gave up
        self._delete_to = 0  # the log is to start here, once nothing before it is needed
        self._state_after: PartitionImage | None = None  # to be applied when the log has its new shape

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # --- role -------------------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self._leader is not None

    @property
    def office(self) -> OfficeClock | None:
        """The time by which delayed records are due, while it leads."""
        return None if self._leader is None else self._leader.office

    @property
    def leadership(self) -> Leadership | None:
        """What it knows of the other replicas, while it leads and there are any."""
        return None if self._leader is None else self._leader.leadership

    @property
    def is_settling(self) -> bool:
        return self._leader is not None and self._leader.is_settling

    def knows_better(self, state: PartitionImage) -> bool:
        """Whether the state that is known here is newer than `state`."""
        known = self.state
        return known is not None and (state.leader_epoch, state.version) < (known.leader_epoch, known.version)

    def apply(self, state: PartitionImage) -> None:
        """Take the role that this state gives this broker. A state that is not newer than the known one is ignored."""
        known = self.state
        if known is not None and (state.leader_epoch, state.version) <= (known.leader_epoch, known.version):
            return
        if self.followed_log.reshaping:
            self._state_after = state
            return
        self.in_sync = len(state.isr)
        self.alone = len(state.replicas) == 1
        if not self._elected(state):
            self._follow(state)
        elif self._leader is not None and state.leader_epoch == self._leader.epoch:
            self._leader.go_on(state)
            self.isr_changes.review()
        else:
            self._lead(state)
        self.state = state  # last, so that what failed on the way is done again

    def _apply_what_waited(self) -> None:
        state, self._state_after = self._state_after, None
        if state is not None:
            self.apply(state)

    def _elected(self, state: PartitionImage) -> bool:
        """A leader's entry in the ISR names the start of the broker that was elected; an earlier one does not count."""
        broker = self._broker
        if state.leader != broker.broker_id or state.leader_epoch <= self._resigned_epoch:
            return False
        epochs = dict(zip(state.isr, state.isr_epochs, strict=True)) if state.isr_epochs else {}
        return broker.broker_epoch is None or epochs.get(broker.broker_id) == broker.broker_epoch

    def _lead(self, state: PartitionImage) -> None:
        if self._leader is not None:
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} has a new leader epoch"))
        if self._broker.pulls is not None:
            self._broker.pulls.stop(self)
        leader = LeaderRole(str(self), self.index, state, self.committed_log, self._broker)
        self.leader_epoch = leader.epoch
        self._leader = leader
        leader.begin(state)
        self._look_for_due()
        self._broker.on_role(self.topic, self.index, True, leader.epoch)

    def _follow(self, state: PartitionImage) -> None:
        known = self.state
        if self.leads:
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} is led by broker {state.leader} now"))
        self.leader_epoch = state.leader_epoch
        moved = known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch)
        if self._broker.pulls is not None and moved:
            self._broker.pulls.stop(self)
            if state.leader not in (-1, self._broker.broker_id):
                self.state = state
                self._broker.pulls.follow(self)

    def resign(self, error: KafkaError) -> None:
        """Stop serving: everybody who waits gets the error."""
        leader, self._leader = self._leader, None
        if leader is not None:
            self._resigned_epoch = leader.epoch
            leader.end(error)
            if self._broker.releasing is not None:
                self._broker.releasing.forget(self)
        self.committed_log.fail(error)
        if leader is not None:
            self._broker.on_role(self.topic, self.index, False, leader.epoch)

    def forget_role(self) -> None:
        """This broker has registered again: what it led, it leads again only once it is elected again."""
        if self._leader is not None:
            self.resign(
                KafkaError(ErrorCode.not_leader_or_follower, f"the broker of {self} lost touch with its cluster")
            )
        state, self.state = self.state, None
        if state is not None:
            self.apply(state)

    def check_leader(self, known_epoch: int) -> None:
        """Fence a request that believes in another epoch (KIP-320); -1 means that it does not say."""
        if self._leader is None or not self._broker.in_touch():
            raise KafkaError(ErrorCode.not_leader_or_follower)
        self.check_epoch(known_epoch)

    def _leading(self) -> LeaderRole:
        self.check_leader(-1)
        assert self._leader is not None
        return self._leader

    def check_follower(self, known_epoch: int, offset: int) -> None:
        """Whether a consumer may read here although another broker leads (KIP-392)."""
        state, reshaping = self.state, self.followed_log.reshaping
        if state is None or state.leader == -1 or reshaping or not self._broker.in_touch():
            raise KafkaError(ErrorCode.not_leader_or_follower)
        self.check_epoch(known_epoch)
        if offset > self.high_watermark:
            raise KafkaError(ErrorCode.offset_not_available, f"{self} does not know of a commit at {offset} yet")

    def check_epoch(self, known_epoch: int) -> None:
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            stale = known_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.fenced_leader_epoch if stale else ErrorCode.unknown_leader_epoch)

    def check_enough_replicas(self, records: memoryview = memoryview(b"")) -> None:
        """Refuse acks=all before the append of `records` when fewer replicas are in sync than the topic asks for."""
        wanted, leader = self.log.config.min_insync_replicas, self._leader
        if self.in_sync < wanted and leader is not None:
            error = KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}",
            )
            leader.refusals.refused(records, error, self._broker.clock.now_ms())
            raise error

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        internal: bool = False,
        transactional: bool = False,
        prepared: Opened | None = None,
    ) -> Appended:
        """Write produced batches; they are visible once committed. See PartitionLog.append."""
        leader, broker = self._leader, self._broker
        if leader is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        now_ms, refusals = broker.clock.now_ms(), leader.refusals
        try:
            if broker.lease is not None and not broker.lease():
                raise KafkaError(ErrorCode.not_leader_or_follower)
            if refusals.by_producer:
                refusals.check(records, self.log.producers.producers, now_ms)
            appended = self.log.append(
                records,
                leader.epoch,
                now_ms=now_ms,
                internal=internal,
                transactional=transactional,
                prepared=prepared,
                due_ms=leader.office.now_ms() if self.log.config.delayed else None,
            )
        except KafkaError as error:
            refusals.refused(records, error, now_ms)
            raise
        if refusals.by_producer:
            refusals.accepted(records)
        if not appended.duplicate:
            self.messages_in += appended.last_offset - appended.base_offset + 1
            self.bytes_in += len(records)
            leader.grown(appended.end_before, appended.visible_bytes)
            if appended.written_from >= 0:
                self._look_for_due()
        return appended

    def append_notes(self, records: memoryview) -> Appended:
        """Write notes of this leader, each with its mates (wire/notes.py)."""
        leader = self._leading()
        appended = self.log.append_notes(records, leader.epoch, now_ms=self._broker.clock.now_ms())
        leader.grown(appended.end_before, appended.visible_bytes)
        return appended

    def _look_for_due(self) -> None:
        if self._broker.releasing is not None:
            self._broker.releasing.look(self)

    def append_end(self, end: TransactionEnd) -> Appended:
        """Write the end of a producer's transaction. One that is here already does no harm."""
        leader = self._leading()
        appended = self.log.append_marker(
            end.producer_id,
            end.producer_epoch,
            end.coordinator_epoch,
            end.commit,
            leader.epoch,
            strict=end.strict,
            now_ms=self._broker.clock.now_ms(),
        )
        self.ends += 1
        if not appended.duplicate:
            leader.grown(appended.base_offset, appended.visible_bytes, ends=True)
            self._look_for_due()
        return appended

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.log.has_open_transaction(producer_id, epoch)

    def _synced(self) -> None:
        if self._leader is not None:
            self._leader.synced()

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed when it returns."""
        config = self.log.config
        return self.alone and not config.fsync and config.min_insync_replicas <= 1

    def committed(self, appended: Appended) -> asyncio.Future[None] | None:
        """None if the records are committed, else a future that completes when they are."""
        return self.committed_log.committed_through(appended.last_offset)

    def stored(self, appended: Appended) -> asyncio.Future[None] | None:
        """None if this replica has the records as safely as the topic asks, else a future that completes then."""
        return self.committed_log.stored_through(appended.last_offset)

    # --- its followers ----------------------------------------------------------------------------------------------

    def replica_fetched(self, broker_id: int, broker_epoch: int, offset: int, start: int = -1) -> None:
        """A follower has everything from `start` to before `offset`, under this leader's epoch."""
        self._leading().replica_fetched(broker_id, broker_epoch, offset, start)
        leadership = self.leadership
        if leadership is not None and broker_id not in leadership.state.isr:
            self.isr_changes.review()

    def isr_change_due(self) -> tuple[PartitionImage, Joins] | None:
        """The ISR that a leader should store next and who joins in it; None if it is right as it is stored."""
        return None if self._leader is None else self._leader.isr_change_due()

    def review(self) -> None:
        """Called every second: a replica may have fallen behind or be waited for no longer, or the disk has failed."""
        if self.log.offline is not None:
            self.disk_failed(f"{self} is offline after a disk error: {self.log.offline}")
            return
        self.isr_changes.review()
        if self._leader is not None:
            self._leader.commit_more()
            if self.log.start_offset < self._delete_to <= self.high_watermark:
                self.log.advance_start(self._delete_to)

    # --- damage -----------------------------------------------------------------------------------------------------

    def disk_failed(self, why: str) -> None:
        """The disk of this log failed: waiting requests get an error, and another replica may lead."""
        leadership = self.leadership
        self.resign(KafkaError(ErrorCode.kafka_storage_error, why))
        if leadership is not None:
            self.isr_changes.leave(leadership.state)

    def found_damage(self, offset: int) -> None:
        """A batch at `offset` is damaged on this disk. If other replicas have it, a leader resigns in favour of them,
        and a follower gets it again."""
        if self.alone or self.log.offline is not None:
            return
        self.followed_log.damaged_from = offset
        leadership = self.leadership
        if leadership is not None and self.followed_log.others_are_enough(leadership.state):
            self.resign(KafkaError(ErrorCode.not_leader_or_follower, f"{self} is damaged here"))
            self.isr_changes.leave(leadership.state)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.committed_log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.committed_log.stable_end()

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, stable: bool = False) -> Slice:
        """Committed bytes from `offset` on; KafkaError(offset_out_of_range) outside of what is stored. With `stable`
        only what no open transaction can change any more."""
        committed_log, log = self.committed_log, self.log
        end = committed_log.high_watermark
        if end < offset <= log.end_offset:
            return EMPTY  # stored, but not yet for readers
        if stable:
            end = committed_log.stable_end()
        return log.read(offset, max_bytes, end, at_least_one=at_least_one, for_consumer=True)

    def read_as_replica(self, broker_id: int, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice:
        return self._leading().read_as_replica(broker_id, offset, max_bytes, at_least_one=at_least_one)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, the offset where it ended); (-1, -1) if nothing is known that far back."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset) or (-1, -1)

    def own_last(self) -> tuple[int, int]:
        """The last epoch in this replica's log, and where the log ends."""
        if self.log.offline is not None or self.followed_log.reshaping:
            raise KafkaError(ErrorCode.kafka_storage_error, f"the log of {self} cannot be used now")
        return self.log.epochs.latest, self.log.end_offset

    def diverging(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """Where the log of a reader at `offset`, whose last record is of `last_epoch`, diverges from this one."""
        epoch, end = self.end_of_epoch(last_epoch)
        if epoch == -1:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    # --- deletion and settings -------------------------------------------------------------------------------------

    def delete_records(self, before: int) -> int:
        """Move the start of the log; -1 means up to the high watermark. The new start offset."""
        self.check_leader(-1)
        end = self.high_watermark
        target = end if before == -1 else before
        if not 0 <= target <= end:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if self.log.schedule:
            gone = cancel_before(self, target)
            logger.info("%s: DeleteRecords up to offset %d cancels %d delayed records", self, target, gone)
        self.log.advance_start(target)
        self._delete_to = target
        self.readers.wake_all()
        return self.log.start_offset

    def deleted_everywhere(self, before: int) -> asyncio.Future[None] | None:
        """None if no member of the ISR has records before this offset, else a future that completes then."""
        return None if self._leader is None else self._leader.deleted_everywhere(before)

    def reconfigure(self, config: TopicConfig) -> None:
        self.log.reconfigure(config)
        leader = self._leader
        if leader is not None:
            leader.commit_more()
        self.isr_changes.review()
        if leader is not None and self.committed_log.is_unsynced:
            self.committed_log.sync_soon()
