"""What consumers see: committed records only, from the leader or from the replica in their own place (KIP-392)."""

from __future__ import annotations

from typing import Any

from headrace.wire.batches import walk
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.log.batches import batch
from tests.unit.log.test_dedup import batch_of
from tests.unit.log.test_visible import Reader
from tests.unit.replicas.trio import TOPIC_ID, Node, Trio, play


async def fetch(node: Node, offset: int, *, rack: str = "", epoch: int = -1, wait_ms: int = 0) -> Message:
    """One partition's answer."""
    part = Message(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    part.last_fetched_epoch = -1
    fields: dict[str, Any] = {
        "topics": [Message(topic="", topic_id=TOPIC_ID, partitions=[part])],
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "replica_id": -1,
        "replica_state": Message(replica_id=-1, replica_epoch=-1),
        "isolation_level": 0,
        "rack_id": rack,
    }
    answer = await node.ask(node.fetch, 17, **fields)
    found: Message = answer.responses[0].partitions[0]
    found.error_code = vars(found).get("error_code", 0)  # which handlers leave out where there is none
    return found


def ends_at(answer: Message) -> int:
    return max((header.next_offset for _, header in walk(answer.records)), default=-1)


def cut_off(trio: Trio, broker_id: int) -> None:
    for other in {1, 2, 3} - {broker_id}:
        trio.network.cut(f"broker-{broker_id}", f"broker-{other}")


def test_nobody_reads_what_is_not_committed() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        one.partition.append(batch(2))
        await trio.alike()
        cut_off(trio, 1)
        one.partition.append(batch(3))
        answer = await fetch(one, 0)
        assert (ends_at(answer), answer.high_watermark) == (2, 2)
        for offset in (3, 5):
            beyond = await fetch(one, offset)
            assert (beyond.error_code, bytes(beyond.records)) == (0, b""), "stored, so not out of range"
        assert (await fetch(one, 6)).error_code == ErrorCode.offset_out_of_range

    play(story)


def test_a_waiting_consumer_is_woken_by_the_commit() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        trio.clock.call_later(1.0, lambda: one.partition.append(batch(2)))
        started = trio.clock.monotonic()
        assert ends_at(await fetch(one, 0, wait_ms=30_000)) == 2
        assert trio.clock.monotonic() - started < 2.0

    play(story)


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_served_there() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch(3))
        await trio.alike()
        sent = await fetch(one, 0, rack="rack-2")
        assert (sent.preferred_read_replica, bytes(sent.records)) == (2, b"")
        assert ends_at(await fetch(two, 0, rack="rack-2", epoch=0)) == 3
        for rack in ("rack-1", "rack-9", ""):
            stays = await fetch(one, 0, rack=rack)
            assert (stays.preferred_read_replica, ends_at(stays)) == (-1, 3)

    play(story)


def test_a_follower_serves_what_it_knows_to_be_committed_and_says_so_of_the_rest() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch(3))
        await trio.until(lambda: two.partition.log.end_offset == 3, "the follower has the records")
        assert two.partition.high_watermark == 0
        assert bytes((await fetch(two, 0, rack="rack-2")).records) == b""
        assert (await fetch(two, 1, rack="rack-2")).error_code == ErrorCode.offset_not_available
        woken = await fetch(two, 0, rack="rack-2", wait_ms=30_000)
        assert ends_at(woken) == 3, "it waits for the commit there as well"
        assert (await fetch(two, 0)).error_code == ErrorCode.not_leader_or_follower, "without a rack only the leader"
        for epoch, code in ((-1, 0), (0, 0), (1, ErrorCode.unknown_leader_epoch)):
            assert (await fetch(two, 0, rack="rack-2", epoch=epoch)).error_code == code

    play(story)


def test_nobody_is_sent_to_a_replica_that_is_not_in_sync() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        one.partition.append(batch(3))
        await trio.alike()
        trio.store(isr=(1, 3), isr_epochs=(1, 1))
        cut_off(trio, 2)
        assert (await fetch(one, 0, rack="rack-2")).preferred_read_replica == -1

    play(story)


def test_a_new_leader_does_not_tell_an_end_before_what_was_told() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch(3))
        await trio.until(lambda: one.partition.high_watermark == 3, "the leader has told consumers of 3")
        cut_off(trio, 3)
        await one.stop(crash=True)
        trio.elect(2, isr=(2, 3))
        assert two.partition.high_watermark < 3
        handler = two._table()[2].handler
        part = Message(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        asked = {"topics": [Message(name="orders", partitions=[part])], "isolation_level": 0}
        for version, code in ((10, ErrorCode.offset_not_available), (4, ErrorCode.leader_not_available)):
            answer = await two.ask(handler, version, **asked)
            assert answer.topics[0].partitions[0].error_code == code
        trio.network.mend()
        await trio.until(lambda: not two.partition.is_settling, "the others have fetched")
        answer = await two.ask(handler, 10, **asked)
        assert answer.topics[0].partitions[0].offset == 3

    play(story)


def test_a_follower_wakes_its_consumers_for_records_and_gives_a_marker_over_duplicates() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch_of(b"a"))
        await trio.alike()
        started_s = trio.clock.monotonic()
        for at in (1, 2, 3):
            trio.clock.call_later(at, one.partition.append, batch_of(b"a"))
        trio.clock.call_later(4.0, one.partition.append, batch_of(b"b"))
        woken = await fetch(two, 1, rack="rack-2", wait_ms=30_000)
        assert 4.0 <= trio.clock.monotonic() - started_s < 5.0
        reader = Reader(1)
        reader.take(woken.records)
        assert reader.values == [(4, b"b")]

        one.partition.append(batch_of(b"a", b"b"))
        await trio.alike()
        assert one.batches() == two.batches(), "replicas get what is stored"
        over = await fetch(two, 5, rack="rack-2", wait_ms=30_000)
        reader.take(over.records)
        assert (reader.values, reader.position) == ([(4, b"b")], 7)

    play(story, headrace_dedup_window_ms=600_000)
