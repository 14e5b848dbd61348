"""What a leader acknowledges is on its replicas: commits, elections, divergence, deletion, with three real hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import patch

import pytest

from headrace.api.delete_records import DeleteRecords
from headrace.api.describe_log_dirs import DescribeLogDirs
from headrace.log.appended import Appended
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from tests.unit.log.batches import NOW, append, batch, from_producer
from tests.unit.replicas.trio import FOLDER, Node, Trio, play


def write(node: Node, count: int = 1) -> tuple[Appended, asyncio.Future[None]]:
    """Records as with acks=all; the future is their commit."""
    partition = node.partition
    partition.check_enough_replicas()
    appended = partition.append(batch(count))
    waiting = partition.committed(appended)
    assert waiting is not None, "committed without anybody else"
    return appended, waiting


async def refused(waiting: asyncio.Future[None], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        await waiting
    assert error.value.code is code


def test_a_record_is_committed_when_every_replica_in_sync_has_it() -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        for count in (1, 3, 10):
            _, committed = write(leader, count)
            await committed
            ends = [node.partition.log.end_offset for node in trio.nodes.values()]
            assert min(ends) == leader.partition.high_watermark == leader.partition.log.end_offset
        await trio.alike()

    play(story, min_insync_replicas=2)


def test_followers_hear_of_commits_without_new_records() -> None:
    async def story(trio: Trio) -> None:
        _, committed = write(trio.nodes[1])
        await committed
        started = trio.clock.monotonic()
        await trio.alike()
        assert trio.clock.monotonic() - started < 0.4, "sooner than a fetch that waits for records"

    play(story)


def test_no_commit_waits_until_a_fetch_has_waited_long_enough() -> None:
    """An append must reach followers whose fetch has just come, is about to wait, or waits."""

    async def story(trio: Trio) -> None:
        pauses = (0.0, 0.0004, 0.001, 0.0025, 0.02, 0.021)  # around the way of a fetch, and of news of commits
        for turn in range(300):
            started = trio.clock.monotonic()
            _, committed = write(trio.nodes[1])
            await committed
            assert trio.clock.monotonic() - started < 0.1, f"in virtual time, at turn {turn}"
            await trio.clock.sleep(pauses[turn % len(pauses)])

    play(story, min_insync_replicas=2)


def test_a_partition_of_another_leader_refuses_writes_and_fences_epochs() -> None:
    async def story(trio: Trio) -> None:
        follower: Partition = trio.nodes[2].partition
        with pytest.raises(KafkaError) as error:
            follower.append(batch())
        assert error.value.code is ErrorCode.not_leader_or_follower
        leader = trio.nodes[1].partition
        trio.elect(1)
        for epoch, code in ((0, ErrorCode.fenced_leader_epoch), (2, ErrorCode.unknown_leader_epoch)):
            with pytest.raises(KafkaError) as error:
                leader.check_leader(epoch)
            assert error.value.code is code

    play(story)


def test_who_led_without_writing_finds_where_its_log_parts_from_the_next_leaders() -> None:
    """Its last epoch has no records, and nobody else knows it: there is nothing to cut, but that epoch has to go."""

    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        _, committed = write(one, 5)
        await committed
        await trio.alike()
        for pair in (("broker-1", "broker-2"), ("broker-1", "broker-3"), ("broker-2", "broker-3")):
            trio.network.cut(*pair)
        write(one, 3)  # nobody else gets it
        trio.hidden_from = {1}
        trio.elect(2, isr=(1, 2, 3))
        write(two, 2)  # nor this
        trio.hidden_from = {2, 3}
        trio.elect(1, isr=(1, 2, 3))
        trio.hidden_from = set()
        trio.elect(2, isr=(1, 2, 3))
        trio.network.mend()
        await trio.alike()
        assert one.partition.log.end_offset == 7

    play(story, min_insync_replicas=2)


def test_after_an_election_the_old_leaders_uncommitted_records_go_and_the_committed_stay() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        _, committed = write(one, 5)
        await committed
        for other in (2, 3):
            trio.network.cut("broker-1", f"broker-{other}")
        _, lost = write(one, 3)  # nobody else gets it
        trio.hidden_from = {1}
        trio.elect(2, isr=(2, 3))
        _, committed = write(two, 1)
        await committed
        assert not lost.done()
        trio.network.mend()
        trio.hidden_from = set()
        trio.publish()
        await refused(lost, ErrorCode.not_leader_or_follower)
        await trio.alike()
        assert two.partition.log.end_offset == 6
        await trio.until(lambda: set(trio.state.isr) == {1, 2, 3}, "the old leader joins again")

    play(story, min_insync_replicas=2)


def test_a_follower_keeps_what_was_committed_after_it_last_heard() -> None:
    """It must not cut its log to its own high watermark (KIP-101)."""

    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        _, committed = write(one, 4)
        await committed
        assert two.partition.high_watermark < 4, "it has the records, and has not heard that they are committed"
        await one.stop(crash=True)
        trio.elect(2, isr=(2, 3))
        assert two.partition.is_settling
        await trio.until(lambda: two.partition.high_watermark == 4, "the new leader knows what was committed")
        assert trio.nodes[3].partition.log.end_offset == 4

    play(story)


def test_logs_that_parted_twice_become_one_again() -> None:
    """Fast elections leave each replica with a branch of its own (KIP-279)."""

    async def story(trio: Trio) -> None:
        _, committed = write(trio.nodes[1], 2)
        await committed
        for one in (1, 2, 3):
            for other in (1, 2, 3):
                if one != other:
                    trio.network.cut(f"broker-{one}", f"broker-{other}")
        write(trio.nodes[1], 3)
        for leader in (2, 3, 1, 2):
            trio.elect(leader, isr=(1, 2, 3))
            write(trio.nodes[leader], leader)
        trio.elect(3, isr=(1, 2, 3))
        trio.network.mend()
        write(trio.nodes[3])
        await trio.alike()
        epochs = [epoch for _, epoch, _ in trio.nodes[1].batches()]
        assert epochs == sorted(epochs)
        assert trio.nodes[1].partition.log.epochs.entries == trio.nodes[3].partition.log.epochs.entries

    for seed in range(5):
        play(story, seed)


def test_an_answer_of_another_epochs_leader_changes_nothing() -> None:
    async def story(trio: Trio) -> None:
        follower = trio.nodes[2].partition
        with pytest.raises(KafkaError) as error:
            await follower.followed_log.take(7, batch())
        assert error.value.code is ErrorCode.fenced_leader_epoch
        with pytest.raises(KafkaError) as error:
            follower.followed_log.learn_commit(7, 1)
        assert error.value.code is ErrorCode.fenced_leader_epoch
        with pytest.raises(KafkaError):
            await follower.followed_log.reshape(7, follower.log.truncate_to, 0)

    play(story)


def test_what_an_earlier_leader_sent_is_not_stored_once_it_has_been_opened() -> None:
    async def story(trio: Trio) -> None:
        gate, asked = asyncio.Event(), asyncio.Event()

        async def compute(step: Callable[[memoryview], object], records: memoryview) -> object:
            asked.set()
            await gate.wait()
            return step(records)

        follower = trio.nodes[2]
        with patch.object(follower.host._broker, "compute", compute):
            records = [Record(0, NOW, b"k", bytes(1 << 20), (("headrace.id", b"a"),))]
            append(trio.nodes[1].partition.log, memoryview(encode_batch(records, codec=4)))
            trio.nodes[1].partition.append(batch())  # which tells the followers that there is something
            await asked.wait()
            trio.elect(2)
            gate.set()
            await asyncio.sleep(1)
            assert follower.partition.log.end_offset == 0
        trio.nodes[2].partition.append(batch(3))
        await trio.alike()

    play(story, headrace_dedup_window_ms=60_000)


def test_nobody_leads_while_its_log_is_being_cut() -> None:
    async def story(trio: Trio) -> None:
        _, committed = write(trio.nodes[1], 4)
        await committed
        two = trio.nodes[2].partition
        cutting = asyncio.ensure_future(two.followed_log.reshape(0, two.log.truncate_to, 2))
        await asyncio.sleep(0)
        trio.elect(2, isr=(2,))
        assert not two.leads
        await cutting
        assert two.leads
        assert two.log.epochs.entries[-1] == (1, two.log.end_offset)

    play(story)


async def delete(node: Node, before: int, timeout_ms: int = 10_000) -> tuple[int, int]:
    """(low watermark, error code), when the answer comes."""
    part = Message(partition_index=0, offset=before)
    asked = Message(name="orders", partitions=[part])
    answer = await node.ask(DeleteRecords(node.host, node.clock), 2, topics=[asked], timeout_ms=timeout_ms)
    found = answer.topics[0].partitions[0]
    return found.low_watermark, found.error_code


def test_deleted_records_are_gone_from_every_replica_in_sync_when_that_is_answered() -> None:
    async def story(trio: Trio) -> None:
        for _ in range(4):
            _, committed = write(trio.nodes[1], 3)
            await committed
        assert await delete(trio.nodes[1], 7) == (7, 0)
        assert {node.partition.log.start_offset for node in trio.nodes.values()} == {7}
        assert (await delete(trio.nodes[2], 8))[1] == ErrorCode.not_leader_or_follower
        trio.network.cut("broker-1", "broker-3")
        assert await delete(trio.nodes[1], 9, timeout_ms=500) == (-1, ErrorCode.request_timed_out)
        assert await delete(trio.nodes[1], 10, timeout_ms=60_000) == (-1, ErrorCode.request_timed_out)
        write(trio.nodes[1])
        assert await delete(trio.nodes[1], 11, timeout_ms=60_000) == (11, 0), "when the third is out of sync"
        assert trio.state.isr == (1, 2)

    play(story, min_insync_replicas=2)


def test_a_replica_that_was_away_goes_on_where_the_leaders_log_starts_now() -> None:
    async def story(trio: Trio) -> None:
        _, committed = write(trio.nodes[1], 3)
        await committed
        await trio.nodes[3].stop()
        trio.store(isr=(1, 2), isr_epochs=(1, 1))
        for _ in range(3):
            _, committed = write(trio.nodes[1], 4)
            await committed
        trio.nodes[1].partition.delete_records(9)  # in the middle of a batch
        await trio.nodes[3].start()
        trio.publish()
        await trio.alike()
        await trio.until(
            lambda: trio.nodes[3].partition.log.start_offset == 9, "the log starts where the leader's does"
        )
        assert trio.nodes[3].batches() == trio.nodes[1].batches()

    play(story, segment_bytes=150)


def test_every_replica_knows_what_producers_have_sent() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1].partition
        for sequence in range(3):
            one.append(from_producer(sequence))
        await trio.alike()
        trio.elect(2)
        again = trio.nodes[2].partition.append(from_producer(2))
        assert (again.duplicate, again.base_offset) == (True, 2)
        assert not trio.nodes[2].partition.append(from_producer(3)).duplicate

    play(story)


def test_a_leader_of_an_earlier_life_does_not_lead() -> None:
    async def story(trio: Trio) -> None:
        await trio.nodes[1].stop(crash=True)
        await trio.nodes[1].start()
        trio.publish()
        assert not trio.nodes[1].partition.leads, "it was elected before it was started again"
        trio.elect(1)
        assert trio.nodes[1].partition.leads

    play(story)


def test_out_of_touch_a_leader_serves_nobody() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        _, committed = write(one)
        await committed
        one.in_touch = False
        with pytest.raises(KafkaError) as error:
            one.partition.append(batch())
        assert error.value.code is ErrorCode.not_leader_or_follower
        answer = await one.fetched(min_bytes=0)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.not_leader_or_follower

    play(story)


def test_a_leader_is_not_behind_itself_while_records_wait_for_their_commit() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        for other in (2, 3):
            trio.network.cut("broker-1", f"broker-{other}")
        one.partition.append(batch(3))
        described = await one.ask(DescribeLogDirs(one.host, FOLDER, lambda: (10, 5)), 4, topics=None)
        (part,) = described.results[0].topics[0].partitions
        assert (part.offset_lag, part.partition_size > 0, one.partition.high_watermark) == (0, True, 0)

    play(story)
