"""Fetches that nobody reads: what they hold in memory is bounded, others are served, and nothing is lost.

A real broker on this process's own event loop, so that its budget can be looked at; clients are plain sockets.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.api.reply_budget import SMALL_BYTES
from headrace.model.broker_config import broker_config
from headrace.server.broker import Broker
from headrace.wire.batches import walk
from headrace.wire.messages import Message, decode_response, encode_request, header_version
from headrace.wire.records import Record, encode_batch
from headrace.world.clock import AdvanceableClock
from headrace.world.disk import RealDisk
from headrace.world.entropy import SystemEntropy
from headrace.world.net import RealNet
from headrace.world.threads import computing_thread
from headrace.world.world import World

PRODUCE, FETCH, METADATA = 0, 1, 3
VERSION = 11
MIB = 1 << 20
BUDGET, REPLY = 16 * MIB, 3 * MIB
HOGS, PIPELINED = 3, 20
PATIENCE_S = 60.0


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @staticmethod
    async def connect(port: int) -> Client:
        # A small limit: what a client does not ask for stays in the sockets' buffers.
        return Client(*await asyncio.open_connection("127.0.0.1", port, limit=4096))

    def send(self, api_key: int, version: int, body: Message) -> None:
        tags = b"\x00" if header_version(api_key, version, "request") >= 2 else b""
        frame = struct.pack(">hhih", api_key, version, 7, 3) + b"raw" + tags + encode_request(api_key, version, body)
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self, api_key: int, version: int) -> Message:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        at = 5 if header_version(api_key, version, "response") >= 1 else 4
        return decode_response(api_key, version, memoryview(frame), at)

    async def produce(self, topic: str, *values: bytes) -> int:
        records = b"".join(encode_batch([Record(0, 1_700_000_000_000, b"k", value, ())]) for value in values)
        part = Message(index=0, records=records)
        body = Message(acks=1, timeout_ms=5000, topic_data=[Message(name=topic, partition_data=[part])])
        self.send(PRODUCE, 7, body)
        answer = (await self.receive(PRODUCE, 7)).responses[0].partition_responses[0]
        return -answer.error_code if answer.error_code else int(answer.base_offset)

    def ask(self, topic: str, offset: int, max_bytes: int, *, session: bool) -> None:
        part = Message(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )  # fmt: skip
        body = Message(
            replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, isolation_level=0, session_id=0,
            session_epoch=0 if session else -1, forgotten_topics_data=[], rack_id="",
            topics=[Message(topic=topic, partitions=[part])],
        )  # fmt: skip
        self.send(FETCH, VERSION, body)

    async def fetched(self) -> list[int]:
        """The offsets of the batches in the next reply."""
        (topic,) = (await self.receive(FETCH, VERSION)).responses
        (part,) = topic.partitions
        assert part.error_code == 0
        return [header.base_offset for _, header in walk(part.records)]


class Room:
    def __init__(self, data: Path) -> None:
        self.disk, self.computing = RealDisk(), computing_thread()
        config = broker_config({"headrace.reply.budget.bytes": str(BUDGET)})
        self.clock = AdvanceableClock()
        world = World(self.clock, self.disk, RealNet(), SystemEntropy(), self.computing)
        self.broker = Broker(world, config, data, ("127.0.0.1", 0))
        self.most_held = 0

    async def open(self) -> None:
        await self.broker.start()
        self.port = self.broker.address[1]
        self.budget = self.broker.reply_budgets.consumers

    async def close(self) -> None:
        await self.broker.stop()
        self.disk.close()
        self.computing.close()

    async def until(self, what: Callable[[], bool]) -> None:
        while not what():
            self.most_held = max(self.most_held, self.budget.held_bytes)
            await asyncio.sleep(0.001)

    async def topic(self, name: str, client: Client) -> None:
        client.send(METADATA, 4, Message(topics=[Message(name=name)], allow_auto_topic_creation=True))
        await client.receive(METADATA, 4)
        while await client.produce(name, b"first") < 0:
            await asyncio.sleep(0.05)


def run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story, PATIENCE_S))


@pytest.mark.parametrize("session", [False, True])
def test_fetches_that_nobody_reads_are_bounded_and_hold_up_nobody_who_reads(tmp_path: Path, session: bool) -> None:
    async def story() -> None:
        room = Room(tmp_path / "data")
        await room.open()
        canary = await Client.connect(room.port)
        await room.topic("target", canary)
        await room.topic("canary", canary)
        for _ in range(8):
            await canary.produce("target", bytes(900_000))
        hogs = [await Client.connect(room.port) for _ in range(HOGS)]
        for hog in hogs:
            for _ in range(PIPELINED):
                hog.ask("target", 1, REPLY, session=session)
        await room.until(lambda: room.budget.waiting > 0)
        assert room.budget.crowded()

        for _ in range(20):
            offset = await canary.produce("canary", bytes(10_000))
            canary.ask("canary", offset, MIB, session=session)
            assert await canary.fetched() == [offset]
            room.most_held = max(room.most_held, room.budget.held_bytes)
        assert room.budget.crowded(), "nobody has read meanwhile"
        canary.ask("target", 1, REPLY, session=session)
        assert (await canary.fetched())[0] == 1, "a large one gets what there is room for"

        replies = await asyncio.gather(*(read_all(hog) for hog in hogs))
        assert all(offsets[0] == 1 for of_hog in replies for offsets in of_hog)
        assert all(len(of_hog) == PIPELINED for of_hog in replies)
        await room.until(lambda: room.budget.held_bytes == 0)
        assert not room.budget.crowded()
        assert room.most_held <= BUDGET + (HOGS + 1) * SMALL_BYTES
        await room.close()

    run(story())


async def read_all(hog: Client) -> list[list[int]]:
    return [await hog.fetched() for _ in range(PIPELINED)]


def test_what_a_client_held_comes_back_when_it_goes_away(tmp_path: Path) -> None:
    async def story() -> None:
        room = Room(tmp_path / "data")
        await room.open()
        client = await Client.connect(room.port)
        await room.topic("target", client)
        for _ in range(8):
            await client.produce("target", bytes(900_000))
        hogs = [await Client.connect(room.port) for _ in range(HOGS)]
        for hog in hogs:
            for _ in range(PIPELINED):
                hog.ask("target", 1, REPLY, session=True)
        await room.until(lambda: room.budget.waiting > 0)
        for hog in hogs:
            hog.writer.transport.abort()
        await room.until(lambda: room.budget.held_bytes == 0 and room.budget.waiting == 0)
        assert not room.budget.crowded()
        await room.close()

    run(story())


def test_who_does_not_read_is_closed_while_others_wait_for_the_room(tmp_path: Path) -> None:
    async def story() -> None:
        room = Room(tmp_path / "data")
        await room.open()
        client = await Client.connect(room.port)
        await room.topic("target", client)
        for _ in range(8):
            await client.produce("target", bytes(900_000))
        hogs = [await Client.connect(room.port) for _ in range(HOGS)]
        for hog in hogs:
            for _ in range(PIPELINED):
                hog.ask("target", 1, REPLY, session=True)
        await room.until(lambda: room.budget.waiting > 0)

        def time_passes() -> bool:
            room.clock.advance(1)
            return room.budget.held_bytes == 0 and room.budget.waiting == 0

        await room.until(time_passes)
        client.ask("target", 1, REPLY, session=True)
        assert await client.fetched() == [1, 2, 3], "as much as it asks for"
        await room.close()

    run(story())
