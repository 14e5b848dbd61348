"""Replication and the disk: what is acknowledged is on disk where the topic asks for it, and a disk may fail."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from unittest.mock import patch

import pytest

from headrace.log.truncation import Truncation
from headrace.replicas.followed_log import FollowedLog
from headrace.replicas.scrub import Scrub
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.batches import batch
from tests.unit.replicas.trio import Trio, play


def test_a_record_is_committed_when_it_is_on_the_disks_of_all_in_sync() -> None:
    async def story(trio: Trio) -> None:
        partition = trio.nodes[1].partition
        for _ in range(5):
            waiting = partition.committed(partition.append(batch(3)))
            assert waiting is not None
            await waiting
            ends = {node.id: node.partition.log.synced_offset for node in trio.nodes.values()}
            assert min(ends.values()) >= partition.high_watermark == partition.log.end_offset, ends
        await trio.alike()

    play(story, headrace_flush="fsync", min_insync_replicas=2)


def test_the_leaders_disk_alone_is_what_acks_1_waits_for() -> None:
    async def story(trio: Trio) -> None:
        partition = trio.nodes[1].partition
        trio.network.cut("broker-1", "broker-2")
        trio.network.cut("broker-1", "broker-3")
        appended = partition.append(batch())
        stored = partition.stored(appended)
        assert stored is not None
        await stored
        assert (partition.log.synced_offset, partition.high_watermark) == (1, 0)
        assert partition.stored(appended) is None

    play(story, headrace_flush="fsync")


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_of_all_brokers_loses_nothing_that_was_committed_on_disk(seed: int) -> None:
    async def story(trio: Trio) -> None:
        partition = trio.nodes[1].partition
        committed = 0
        for _ in range(5):
            waiting = partition.committed(partition.append(batch(3)))
            assert waiting is not None
            await waiting
            committed = partition.high_watermark
        partition.append(batch())
        rng = random.Random(seed)
        for node in trio.nodes.values():
            await node.stop(crash=True)
            node.disk.crash(rng)
        for node in trio.nodes.values():
            await node.start()
        trio.elect(2, isr=(1, 2, 3))
        await trio.alike()
        assert trio.nodes[2].partition.log.end_offset >= committed

    play(story, seed, headrace_flush="fsync", min_insync_replicas=2)


def test_a_leader_whose_disk_fails_tells_and_leaves_the_partition_to_others() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        waiting = one.partition.committed(one.partition.append(batch()))
        assert waiting is not None
        await waiting
        one.disk.fail_syncs = 1
        waiting = one.partition.committed(one.partition.append(batch()))
        assert waiting is not None
        with pytest.raises(KafkaError) as error:
            await waiting
        assert error.value.code is ErrorCode.kafka_storage_error
        assert not one.partition.leads
        await trio.until(lambda: trio.state.isr == (2, 3), "it is stored that the leader is out")
        trio.elect(2)
        waiting = trio.nodes[2].partition.committed(trio.nodes[2].partition.append(batch()))
        assert waiting is not None
        await waiting

    play(story, headrace_flush="fsync", min_insync_replicas=2)


def test_a_follower_whose_disk_failed_to_sync_counts_for_nothing_until_it_is_left_out() -> None:
    async def story(trio: Trio) -> None:
        one, three = trio.nodes[1], trio.nodes[3]
        waiting = one.partition.committed(one.partition.append(batch()))
        assert waiting is not None
        await waiting
        three.disk.fail_syncs = 1
        waiting = one.partition.committed(one.partition.append(batch()))
        assert waiting is not None
        await waiting
        assert trio.state.isr == (1, 2), "committed while a replica was in sync that does not have it on disk"
        assert three.partition.log.synced_offset == 1

    play(story, headrace_flush="fsync", min_insync_replicas=2)


def test_a_follower_whose_disk_is_full_comes_back_when_there_is_room() -> None:
    async def story(trio: Trio) -> None:
        one, three = trio.nodes[1], trio.nodes[3]
        three.disk.room_bytes = 100
        for _ in range(3):
            waiting = one.partition.committed(one.partition.append(batch(4)))
            assert waiting is not None
            await waiting
        assert trio.state.isr == (1, 2)
        assert three.partition.log.offline is None
        three.disk.room_bytes = None
        await trio.until(lambda: len(trio.state.isr) == 3, "it is in sync again")
        await trio.alike()

    play(story, min_insync_replicas=2)


@pytest.mark.parametrize("committed", [0, 5])
def test_a_truncation_that_a_full_disk_has_interrupted_is_finished_when_there_is_room(committed: int) -> None:
    cut = Truncation._cut

    def cut_and_find_no_room(truncation: Truncation, place: int, position: int, offset: int) -> None:
        cut(truncation, place, position, offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        if committed:
            waiting = one.partition.committed(one.partition.append(batch(committed)))
            assert waiting is not None
            await waiting
        for other in (2, 3):
            trio.network.cut("broker-1", f"broker-{other}")
        one.partition.append(batch(3))  # nobody else gets it
        log = one.partition.log
        trio.elect(2, isr=(2, 3))
        two.partition.append(batch())
        with patch.object(Truncation, "_cut", cut_and_find_no_room):
            trio.network.mend()
            await trio.until(lambda: log.offline is not None, "the truncation has begun")
            await trio.clock.sleep(30)
            assert 1 not in trio.state.isr
        await trio.until(lambda: set(trio.state.isr) == {1, 2, 3}, "the old leader joins again")
        assert log.offline is None
        await trio.alike()

    play(story, min_insync_replicas=2)


def test_a_batch_that_was_damaged_on_its_way_is_not_stored_and_asked_for_again() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        spoiled = [0]
        take = FollowedLog.take

        async def spoil(log: FollowedLog, epoch: int, records: memoryview) -> None:
            if log is two.partition.followed_log and spoiled[0] < 3:
                spoiled[0] += 1
                records = memoryview(bytearray(records))
                records[-1] ^= 1
            await take(log, epoch, records)

        with patch.object(FollowedLog, "take", spoil):
            waiting = one.partition.committed(one.partition.append(batch(4)))
            assert waiting is not None
            await waiting
        assert spoiled == [3]
        await trio.alike()

    play(story)


def test_what_was_committed_is_known_after_a_clean_stop_of_all() -> None:
    async def story(trio: Trio) -> None:
        waiting = trio.nodes[1].partition.committed(trio.nodes[1].partition.append(batch(4)))
        assert waiting is not None
        await waiting
        await trio.alike()
        for node in trio.nodes.values():
            await node.stop()
        await trio.nodes[1].start()
        trio.elect(1, isr=(1,))
        assert trio.nodes[1].partition.high_watermark == 4, "nobody else is there to tell"
        await asyncio.sleep(0)

    play(story, min_insync_replicas=2)


def rot(trio: Trio, broker_id: int, byte: int) -> None:
    """Flip a bit in the first segment of a broker's log."""
    node = trio.nodes[broker_id]
    node.disk.flip_bit(node.partition.log.directory / f"{0:020d}.log", 8 * byte)


async def scrubbed(trio: Trio, broker_id: int) -> Scrub:
    node = trio.nodes[broker_id]
    scrub = Scrub(node.host, trio.clock, 1 << 20)
    await scrub.look_at_everything()
    return scrub


@pytest.mark.parametrize("victim", [1, 3])
def test_a_damaged_copy_is_found_and_mended_from_a_good_one(victim: int) -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        for _ in range(5):
            one.partition.append(batch(3, value=b"x" * 100))
        await trio.alike()
        good = trio.nodes[2].batches()
        size = one.partition.log.size_bytes // 5
        assert [(await scrubbed(trio, broker)).damages for broker in (1, 2, 3)] == [0, 0, 0]
        rot(trio, victim, 2 * size + 100)
        found = await scrubbed(trio, victim)
        assert (found.damages, trio.nodes[victim].partition.followed_log.damaged_from) == (1, 6)
        await trio.until(lambda: victim not in trio.state.isr, "it is stored that the damaged one is out")
        if victim == 1:
            assert not one.partition.leads
            trio.elect(2)
        await trio.until(lambda: len(trio.state.isr) == 3, "it is in sync again")
        await trio.alike()
        assert trio.nodes[victim].batches() == good
        assert (await scrubbed(trio, victim)).damages == 0

    play(story, min_insync_replicas=2)


def test_a_damaged_copy_that_is_needed_stays_and_is_told() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch(3))
        await trio.alike()
        await trio.nodes[3].stop(crash=True)
        trio.store(isr=(1, 2), isr_epochs=(1, 1))
        rot(trio, 2, 70)
        assert (await scrubbed(trio, 2)).damages == 1
        for _ in range(20):
            waiting = one.partition.committed(one.partition.append(batch()))
            if waiting is not None:
                await waiting
            await trio.clock.sleep(1)
        assert trio.state.isr == (1, 2), "without it nothing could be committed"
        assert two.partition.log.end_offset == 23

    play(story, min_insync_replicas=2)


@pytest.mark.parametrize("victim", [1, 3])
@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_segment_that_is_missing_at_a_start_comes_again_from_the_others(victim: int, base: int) -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        for _ in range(5):
            one.partition.append(batch(3, value=b"x" * 100))
        await trio.alike()
        good, node = trio.nodes[2].batches(), trio.nodes[victim]
        log = node.partition.log
        segment = log.segments[base // 3]
        assert segment.base_offset == base
        await node.stop()
        node.disk.remove(segment.file.path)
        await node.start()
        trio.elect(2 if victim == 1 else 1, isr=(1, 2, 3))
        assert node.partition.log.missing
        await trio.until(lambda: victim not in trio.state.isr, "it is stored that the damaged one is out")
        await trio.until(lambda: len(trio.state.isr) == 3, "it is in sync again")
        await trio.alike()
        assert node.batches() == good
        assert not node.partition.log.missing

    play(story, min_insync_replicas=2, segment_bytes=400)


def test_a_leader_with_a_missing_segment_resigns_in_favour_of_those_who_have_it() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        for _ in range(5):
            one.partition.append(batch(3, value=b"x" * 100))
        await trio.alike()
        good = trio.nodes[2].batches()
        path = one.partition.log.segments[1].file.path
        await one.stop()
        one.disk.remove(path)
        await one.start()
        trio.elect(1, isr=(1, 2, 3))
        assert not one.partition.leads
        await trio.until(lambda: 1 not in trio.state.isr, "it is stored that the damaged one is out")
        trio.elect(2)
        await trio.until(lambda: len(trio.state.isr) == 3, "it is in sync again")
        await trio.alike()
        assert one.batches() == good

    play(story, min_insync_replicas=2, segment_bytes=400)
