"""Produce requests whose batches take long to open: held meanwhile, one at a time, and written as if they came then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest

from headrace.api.contract import Caller, Disconnect, Held, Peer, Request
from headrace.api.long_appends import TRIES
from headrace.api.pieces import finish
from headrace.log.opening import Opened
from headrace.model.topic_config import TopicConfig
from headrace.replicas.partition import Partition
from headrace.server.dispatch import PendingReply
from headrace.wire import compression
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim import loop as sim_loop
from sim.loop import START_MS
from tests.unit.api.test_express_produce import CALLER, Room, frame_of, request, topic
from tests.unit.log.batches import append, read_all

VERSION = 8  # the last with fields of fixed size
MIB = 1 << 20
T = TypeVar("T")


class Gated:
    """A thread for computing that does its work when the test says so."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.running = 0
        self.done = 0
        self.before: Callable[[], None] = lambda: None

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        self.running += 1
        assert self.running == 1, "one append at a time has its batches open"
        try:
            await self.open.wait()
            found = work(*args)
            self.before()
            self.done += 1
            return found
        finally:
            self.running -= 1


def in_room(story: Callable[[Room, Gated], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        gated = Gated()
        await story(Room(express=True, computing=gated), gated)

    sim_loop.run(play(), 1)


def large(
    *ids: bytes, codec: int = compression.ZSTD, producer: int = -1, sequence: int = -1, attributes: int = 0
) -> bytes:
    records = [Record(at, 0, b"k", bytes(MIB), (("headrace.id", name),)) for at, name in enumerate(ids or (b"id",))]
    epoch = -1 if producer < 0 else 0
    return bytes(
        encode_batch(
            records, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
            attributes=attributes,
        )
    )  # fmt: skip


def small(key: bytes | None = b"k", *, ident: bytes = b"small", producer: int = -1, sequence: int = -1) -> bytes:
    epoch = -1 if producer < 0 else 0
    record = Record(0, 0, key, b"v", (("headrace.id", ident),))
    return bytes(encode_batch([record], producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def asked(room: Room, *topics: Message, **changed: Any) -> asyncio.Task[bytes | None]:
    return asyncio.ensure_future(room.ask(VERSION, request(*topics, **changed)))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def sizes(partition: Partition) -> list[int]:
    return [len(record.value or b"") for record in read_all(partition.log, 64 * MIB)]


@pytest.mark.parametrize("name", ["compacted", "recompressed", "deduplicated"])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_request_is_held_while_its_batches_are_opened_and_others_go_on(name: str, acks: int) -> None:
    async def story(room: Room, gated: Gated) -> None:
        frame, _ = frame_of(VERSION, request(topic(name, large()), acks=acks))
        reply = room.dispatch(frame, CALLER)
        assert isinstance(reply, PendingReply)
        assert reply.holds
        assert reply.kept_bytes == len(large())
        frame[:] = bytes(len(frame))  # as the next request in the same buffer does
        held = asyncio.ensure_future(cast("Any", reply.awaited))
        await turns()
        assert await room.ask(VERSION, request(topic("orders", small())))
        assert await room.ask(VERSION, request(topic(name, small())))
        assert not held.done()
        gated.open.set()
        answer = reply.finish(await held)
        assert (answer is None) == (acks == 0)
        assert sizes(room.partition(name)) == [1, MIB]

    in_room(story)


def test_batches_of_several_requests_are_opened_one_after_the_other_in_their_order() -> None:
    async def story(room: Room, gated: Gated) -> None:
        requests = [asked(room, topic("recompressed", large(b"a", b"b", codec=codec))) for codec in (2, 3, 4)]
        await turns()
        gated.open.set()
        for number, one in enumerate(requests):
            assert await one
            assert room.partition("recompressed").log.end_offset >= 2 * (number + 1)
        assert gated.done == 3

    in_room(story)


def test_what_a_request_writes_elsewhere_keeps_its_place() -> None:
    async def story(room: Room, gated: Gated) -> None:
        parts = [topic("orders", small()), topic("compacted", large()), topic("orders", small(), b"")]
        parts.append(topic("recompressed", large()))
        frame, _ = frame_of(VERSION, request(*parts))
        answer = asked(room, *parts)
        await turns()
        assert room.partition("orders").log.end_offset == 1
        gated.open.set()
        expected = Room(express=False)
        assert await answer == await expected.ask(VERSION, request(*parts))
        assert room.logs() == expected.logs()
        assert room.partition("orders").log.end_offset == 2
        assert len(frame) > 0

    in_room(story)


def test_who_lost_the_lead_meanwhile_writes_nothing() -> None:
    async def story(room: Room, gated: Gated) -> None:
        answer = asked(room, topic("recompressed", large(producer=7, sequence=0)))
        await turns()
        partition = room.partition("recompressed")
        partition.resign(KafkaError(ErrorCode.not_leader_or_follower))
        gated.open.set()
        assert code_in(await answer, "recompressed") == ErrorCode.not_leader_or_follower
        assert partition.log.end_offset == 0

    in_room(story)


def test_a_batch_that_cannot_be_opened_is_refused_as_ever() -> None:
    async def story(room: Room, gated: Gated) -> None:
        gated.open.set()
        keyless = [Record(0, 0, None, bytes(MIB))]
        answer = await room.ask(VERSION, request(topic("compacted", encode_batch(keyless, codec=4))))
        assert code_in(answer, "compacted") == ErrorCode.invalid_record
        with pytest.raises(Disconnect, match="acks=0 failed"):
            await held_by(room, request(topic("compacted", encode_batch(keyless, codec=4)), acks=0))
        assert room.partition("compacted").log.end_offset == 0
        assert await room.ask(VERSION, request(topic("compacted", large())))

    in_room(story)


def test_what_is_refused_leaves_nothing_to_the_garbage_collector() -> None:
    async def story(room: Room, gated: Gated) -> None:
        gated.open.set()
        bad = encode_batch([Record(0, 0, None, bytes(MIB))], codec=4)
        gap = large(b"a", producer=7, sequence=5), large(b"b", producer=7, sequence=9)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await room.ask(VERSION, request(topic("compacted", bad)))
            for sent in gap:
                await room.ask(VERSION, request(topic("deduplicated", sent)))
            gc.collect()
            circles = [found for found in gc.garbage if isinstance(found, Opened | memoryview)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert circles == []
        assert room.partition("deduplicated").log.end_offset == 1

    in_room(story)


def test_a_client_that_is_gone_leaves_its_turn_to_the_next() -> None:
    async def story(room: Room, gated: Gated) -> None:
        gone = [asked(room, topic("recompressed", large())) for _ in range(2)]
        await turns()
        last = asked(room, topic("recompressed", large()))
        await turns()
        for one in gone:
            one.cancel()
        gated.open.set()
        assert await last
        assert sizes(room.partition("recompressed")) == [MIB]

    in_room(story)


def test_who_never_finds_its_ids_settled_is_told_to_try_again() -> None:
    async def story(room: Room, gated: Gated) -> None:
        partition = room.partition("deduplicated")
        ids = [b"%d" % number for number in range(TRIES + 1)]

        def meanwhile() -> None:
            append(partition.log, memoryview(bytearray(small(ident=ids.pop()))), now_ms=START_MS)

        gated.before = meanwhile
        gated.open.set()
        sent = large(*ids, producer=7, sequence=0)
        answer = await room.ask(VERSION, request(topic("deduplicated", sent)))
        assert code_in(answer, "deduplicated") == ErrorCode.kafka_storage_error
        assert partition.log.end_offset == TRIES == gated.done
        behind = request(topic("deduplicated", small(producer=7, sequence=TRIES + 1)))
        assert code_in(await room.ask(VERSION, behind), "deduplicated") == ErrorCode.kafka_storage_error
        gated.before = lambda: None
        assert code_in(await room.ask(VERSION, request(topic("deduplicated", sent))), "deduplicated") == 0
        assert code_in(await room.ask(VERSION, behind), "deduplicated") == 0

    in_room(story)


class Desk:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Any]] = []

    def submit(self, command: Any) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


def test_in_a_transaction_the_next_batch_waits_for_the_one_that_is_opened() -> None:
    async def story() -> None:
        desk, gated = Desk(), Gated()
        room = Room(express=True, computing=gated, desk=desk)
        sent = [large(producer=7, sequence=at, attributes=TRANSACTIONAL) for at in range(2)]
        answers = []
        for one in sent:
            answers.append(asked(room, topic("recompressed", one), transactional_id="t", acks=-1))
            await turns()
        for reply in desk.asked:
            reply.set_result(ErrorCode.none)
        await turns()
        assert not any(answer.done() for answer in answers)
        gated.open.set()
        assert [code_in(await answer, "recompressed") for answer in answers] == [0, 0]
        later = asked(room, topic("recompressed", large(producer=7, sequence=2, attributes=TRANSACTIONAL)),
                      transactional_id="t", acks=-1)  # fmt: skip
        assert code_in(await later, "recompressed") == 0
        partition = room.partition("recompressed")
        assert partition.log.producers.producers[7].next_sequence == 3
        assert partition.has_open_transaction(7, 0)

    sim_loop.run(story(), 1)


def test_a_topic_with_other_settings_meanwhile_stores_by_those() -> None:
    async def story(room: Room, gated: Gated) -> None:
        answer = asked(room, topic("recompressed", large()))
        await turns()
        partition = room.partition("recompressed")
        partition.reconfigure(TopicConfig(codec=compression.SNAPPY))
        gated.open.set()
        assert code_in(await answer, "recompressed") == 0
        stored = partition.log.read(0, MIB, 1, at_least_one=True).load()
        assert stored[22] == compression.SNAPPY
        assert gated.done == 2

    in_room(story)


# --- helpers that read replies ---------------------------------------------------------------------------------------


async def held_by(room: Room, body: Message) -> None:
    """The handler's own answer, whose error closes the connection."""
    body.topic_data[0].partition_data[0].records = memoryview(bytearray(body.topic_data[0].partition_data[0].records))
    reply = await finish(room.full(Request(0, VERSION, "raw", body, Caller(Peer("", 0, "", 0)))))
    assert isinstance(reply, Held)
    await reply.reply


def code_in(answer: bytes | None, name: str) -> int:
    """Of the only partition in a reply of that version."""
    assert answer is not None
    at = 4 + 4 + 4 + 2 + len(name) + 4 + 4
    return int.from_bytes(answer[at : at + 2], "big", signed=True)
