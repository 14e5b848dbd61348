"""The rules of the share coordinator, command by command; its records are read back as after a restart."""

import uuid
from typing import Any

import pytest

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
    check_coordinator_key,
    coordinator_key,
)
from headrace.coordinators.shares.records import SNAPSHOT, UPDATE, read_key
from headrace.coordinators.shares.shard import ShareShard
from headrace.model.share_state import NO_START, SharePartition, ShareState, StateBatch
from headrace.wire.errors import ErrorCode, KafkaError

TOPIC = uuid.UUID(int=7)
PLACE = SharePartition("cooks", TOPIC, 3)


class Coordinator:
    """One shard and its journal."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = ShareShard(updates_per_snapshot)
        self.journal: list[tuple[bytes, bytes | None]] = []

    def ask(self, command: Any) -> Any:
        outcome = self.shard.decide(command, 1000)
        for key, value in outcome.records:
            self.journal.append((key, value))
            self.shard.apply(key, value)
        return outcome.reply

    def restart(self, first: int = 0) -> None:
        self.shard = ShareShard(self.updates_per_snapshot)
        for key, value in self.journal[first:]:
            self.shard.apply(key, value)
        self.shard.loaded(1000)

    def kinds(self) -> list[int]:
        return [read_key(key)[0] for key, _ in self.journal]

    def write(self, *batches: StateBatch, start: int = 10, leader: int = 5, epoch: int = 1, count: int = 0) -> Any:
        return self.ask(WriteState(PLACE, ShareState(epoch, leader, start, count, batches)))


@pytest.fixture
def coordinator() -> Coordinator:
    return begun()


def begun() -> Coordinator:
    coordinator = Coordinator()
    assert coordinator.ask(InitializeState(PLACE, 1, NO_START)) is None
    assert coordinator.ask(ReadState(PLACE, 5)) == ShareState(1, 5, NO_START)
    return coordinator


def refused(reply: Any) -> ErrorCode:
    assert isinstance(reply, Refusal)
    return reply.code


def test_what_was_written_is_read_after_a_restart(coordinator: Coordinator) -> None:
    assert coordinator.write(StateBatch(10, 19, 2, 1), StateBatch(20, 29, 0, 1)) is None
    assert coordinator.write(StateBatch(15, 24, 4, 2), start=12, count=13) is None
    expected = ShareState(1, 5, 12, 13, (StateBatch(12, 14, 2, 1), StateBatch(15, 24, 4, 2), StateBatch(25, 29, 0, 1)))
    assert coordinator.ask(ReadState(PLACE, 5)) == expected
    coordinator.restart()
    assert coordinator.ask(ReadState(PLACE, 5)) == expected
    assert coordinator.ask(SummarizeState(PLACE)) == ShareState(1, 5, 12, 13)


def test_a_write_that_comes_late_takes_nothing_back(coordinator: Coordinator) -> None:
    coordinator.write(StateBatch(12, 12, 0, 1), start=10)
    coordinator.write(StateBatch(12, 12, 2, 2), start=11)
    coordinator.write(StateBatch(12, 12, 0, 1), start=10)  # the first one again, over a connection that was slow
    for _ in range(2):
        state = coordinator.ask(ReadState(PLACE, 5))
        assert (state.start_offset, state.batches) == (11, (StateBatch(12, 12, 2, 2),))
        coordinator.restart()


def play_late_write() -> None:
    test_a_write_that_comes_late_takes_nothing_back(begun())


def test_a_read_fences_the_leader_before_even_after_a_restart(coordinator: Coordinator) -> None:
    assert coordinator.ask(ReadState(PLACE, 6)).leader_epoch == 6
    coordinator.restart()
    assert refused(coordinator.write(StateBatch(10, 10, 2, 1))) is ErrorCode.fenced_leader_epoch
    assert refused(coordinator.ask(ReadState(PLACE, 5))) is ErrorCode.fenced_leader_epoch
    assert coordinator.write(StateBatch(10, 10, 2, 1), leader=6) is None
    assert coordinator.ask(SummarizeState(PLACE)).leader_epoch == 6


def test_an_initialization_forgets_and_fences_who_has_read_before(coordinator: Coordinator) -> None:
    assert coordinator.write(StateBatch(10, 10, 2, 1)) is None
    assert coordinator.ask(InitializeState(PLACE, 2, 100)) is None
    assert refused(coordinator.write(StateBatch(10, 11, 2, 1))) is ErrorCode.fenced_state_epoch
    assert refused(coordinator.ask(InitializeState(PLACE, 1, 0))) is ErrorCode.fenced_state_epoch
    coordinator.restart()
    assert coordinator.ask(ReadState(PLACE, 5)) == ShareState(2, 5, 100)


def test_what_is_not_known_is_refused(coordinator: Coordinator) -> None:
    assert coordinator.ask(DeleteState(PLACE)) is None
    assert coordinator.ask(DeleteState(PLACE)) is None
    for command in (ReadState(PLACE, 5), SummarizeState(PLACE), WriteState(PLACE, ShareState(1, 5, 0))):
        assert refused(coordinator.ask(command)) is ErrorCode.invalid_request
    coordinator.restart()
    assert refused(coordinator.ask(ReadState(PLACE, 5))) is ErrorCode.invalid_request


def test_bad_input_is_refused(coordinator: Coordinator) -> None:
    for wrong in (
        StateBatch(11, 10, 2, 1),
        StateBatch(10, 11, 1, 1),
        StateBatch(10, 11, -3, 1),
        StateBatch(1, 2, 0, -1),
    ):
        assert refused(coordinator.write(wrong)) is ErrorCode.invalid_request
    assert refused(coordinator.ask(InitializeState(SharePartition("", TOPIC, 0), 1, 0))) is ErrorCode.invalid_request


def test_after_enough_updates_a_snapshot_has_all_of_them() -> None:
    coordinator = Coordinator(updates_per_snapshot=3)
    coordinator.ask(InitializeState(PLACE, 1, 0))
    for offset in range(9):
        assert coordinator.write(StateBatch(offset, offset, 2 if offset % 2 else 0, 1), start=0) is None
    assert coordinator.kinds() == [SNAPSHOT, UPDATE, UPDATE, UPDATE, SNAPSHOT, UPDATE, UPDATE, UPDATE, SNAPSHOT, UPDATE]
    everything = coordinator.ask(ReadState(PLACE, 5))
    assert len(everything.batches) == 9
    coordinator.restart(first=8)  # what was before the last snapshot is pruned
    assert coordinator.ask(ReadState(PLACE, 5)) == everything
    coordinator.restart(first=3)  # the update that is left of an earlier snapshot does not count without it
    assert coordinator.ask(ReadState(PLACE, 5)) == everything


def test_cold_ones_are_snapshotted_so_that_everything_before_a_round_may_go() -> None:
    coordinator = Coordinator()
    for partition in range(250):
        coordinator.ask(InitializeState(SharePartition("cooks", TOPIC, partition), 1, partition))
    coordinator.write(StateBatch(10, 12, 2, 1), leader=0, start=3)
    assert coordinator.ask(NextRound()) == 250
    begun = len(coordinator.journal)
    coordinator.ask(InitializeState(SharePartition("cooks", TOPIC, 9), 2, 77))
    left = []
    while not left or left[-1]:
        left.append(coordinator.ask(SnapshotCold()))
    assert left == [149, 49, 0]
    before = coordinator.shard.stored
    coordinator.restart(first=begun)
    assert coordinator.shard.stored.keys() == before.keys()
    assert all(coordinator.shard.stored[key].state() == before[key].state() for key in before)


def test_a_deleted_topic_is_forgotten(coordinator: Coordinator) -> None:
    other = SharePartition("cooks", uuid.UUID(int=8), 3)
    coordinator.ask(InitializeState(other, 1, 0))
    coordinator.ask(ForgetTopic(TOPIC))
    coordinator.restart()
    assert set(coordinator.shard.stored) == {other}


def test_a_topic_with_very_many_partitions_is_forgotten_some_at_a_time() -> None:
    coordinator = Coordinator()
    for partition in range(2500):
        coordinator.ask(InitializeState(SharePartition("cooks", TOPIC, partition), 1, 0))
    outcome = coordinator.shard.decide(ForgetTopic(TOPIC), 1000)
    assert len(outcome.records) == 1000
    assert [alarm.command for alarm in outcome.timers.values() if alarm is not None] == [ForgetTopic(TOPIC)]
    for _ in range(3):
        coordinator.ask(ForgetTopic(TOPIC))
    assert coordinator.shard.stored == {}


def test_unreadable_records_are_skipped(coordinator: Coordinator) -> None:
    key, value = coordinator.journal[0]
    assert value is not None
    for raw_key, raw_value in ((b"\0\5", b""), (key[:-1], value), (key, value[:-4]), (key, b"\0\7" + value[2:])):
        coordinator.shard.apply(raw_key, raw_value)
    assert coordinator.ask(ReadState(PLACE, 5)).state_epoch == 1


def test_the_key_of_a_share_partition_is_kafkas() -> None:
    assert coordinator_key(PLACE) == "cooks:AAAAAAAAAAAAAAAAAAAABw:3"
    check_coordinator_key(coordinator_key(PLACE))
    check_coordinator_key(coordinator_key(SharePartition("a:b", TOPIC, 0)))
    for wrong in ("", "cooks", "cooks:x:3", ":AAAAAAAAAAAAAAAAAAAABw:3", "cooks:AAAAAAAAAAAAAAAAAAAABw:-1", "c:A?:1"):
        with pytest.raises(KafkaError) as refusal:
            check_coordinator_key(wrong)
        assert refusal.value.code is ErrorCode.invalid_request
