"""The asyncio connection: many calls at once, answers in order, and one clear end whatever goes wrong."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headrace.client.blocking import ConnectionLost
from headrace.client.connection import Connection
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.frames import parse_request_header, response_prefix
from headrace.wire.messages import Message, decode_request, encode_response
from headrace.world.clock import AdvanceableClock
from headrace.world.net import RealNet

API_VERSIONS, LIST_OFFSETS = 18, 2
VERSIONS = Message(error_code=0, api_keys=[Message(api_key=2, min_version=0, max_version=7)])
PATIENCE_S = 60.0

Answer = Callable[[Message], bytes | Message | None]


class Server:
    """A broker that answers ApiVersions itself and everything else as told: None is silence, bytes go out as they
    are, and no bytes hang up."""

    def __init__(self, answer: Answer, *, versions: bool = True) -> None:
        self._answer = answer
        self._versions = versions

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = memoryview(await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0]))
                api_key, version, number, at = parse_request_header(frame)
                if api_key == API_VERSIONS:
                    answer: bytes | Message | None = VERSIONS if self._versions else None
                else:
                    answer = self._answer(decode_request(api_key, version, frame, at))
                if isinstance(answer, Message):
                    body = b"".join(encode_response(api_key, version, answer))
                    body = response_prefix(api_key, version, number) + body
                    answer = struct.pack(">i", len(body)) + body
                if answer is not None:
                    writer.write(answer)
                    if not answer:
                        break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def connection(port: int, clock: AdvanceableClock) -> Connection:
    return Connection(RealNet(), clock, "127.0.0.1", port, "test")


def echo(asked: Message) -> Message:
    """The partition number comes back as the offset."""
    topics = [
        Message(
            name=topic.name,
            partitions=[Message(partition_index=p.partition_index, offset=p.partition_index) for p in topic.partitions],
        )
        for topic in asked.topics
    ]
    return Message(topics=topics)


def question(number: int) -> Message:
    partition = Message(partition_index=number, timestamp=-1)
    return Message(replica_id=-1, topics=[Message(name="orders", partitions=[partition])])


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story

    asyncio.run(bounded())


def test_calls_on_their_way_at_once_get_their_answers() -> None:
    async def story() -> None:
        async with Server(echo) as server:
            there = connection(server.port, AdvanceableClock())
            await there.open()
            answers = await asyncio.gather(*(there.call(LIST_OFFSETS, question(number)) for number in range(50)))
            assert [answer.topics[0].partitions[0].offset for answer in answers] == list(range(50))
            assert there.is_open
            there.close()
            assert not there.is_open

    run(story())


@pytest.mark.parametrize("bad", [b"", b"\xff\xff\xff\xff", struct.pack(">ii", 4, 77), struct.pack(">iib", 5, 1, 0)])
def test_a_broker_that_hangs_up_or_talks_nonsense_ends_every_call(bad: bytes) -> None:
    async def story() -> None:
        async with Server(lambda _: bad) as server:
            there = connection(server.port, AdvanceableClock())
            await there.open()
            calls = [there.send(LIST_OFFSETS, question(number)) for number in range(3)]
            for call in calls:
                with pytest.raises(ConnectionLost, match=str(server.port)):
                    await call
            with pytest.raises(ConnectionLost):
                await there.call(LIST_OFFSETS, question(0))

    run(story())


async def _advanced(clock: AdvanceableClock, seconds: float, waiting: Awaitable[object]) -> None:
    task = asyncio.ensure_future(waiting)
    while not task.done():
        await asyncio.sleep(0.01)
        clock.advance(seconds)
    with pytest.raises(ConnectionLost, match="no answer"):
        await task


def test_silence_ends_the_connection_after_its_time() -> None:
    async def story() -> None:
        clock = AdvanceableClock()
        async with Server(lambda _: None) as server:
            there = connection(server.port, clock)
            await there.open()
            await _advanced(clock, 31, there.call(LIST_OFFSETS, question(0)))
            assert not there.is_open
        async with Server(echo, versions=False) as server:
            await _advanced(clock, 31, connection(server.port, clock).open())

    run(story())


def test_nobody_at_the_address_is_told_with_the_address() -> None:
    async def story() -> None:
        async with Server(echo) as server:
            port = server.port
        await server._server.wait_closed()
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
            await connection(port, AdvanceableClock()).open()

    run(story())


def test_an_api_that_the_broker_does_not_serve_is_said_before_anything_is_sent() -> None:
    async def story() -> None:
        async with Server(echo) as server:
            there = connection(server.port, AdvanceableClock())
            await there.open()
            with pytest.raises(KafkaError) as refused:
                await there.call(19, Message())
            assert refused.value.code is ErrorCode.unsupported_version
            assert there.is_open
            there.close()

    run(story())
