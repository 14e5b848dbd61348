"""Many clients in one process: a child of the bench that holds hundreds of raw connections to one broker.

    python -m bench.swarm hold   PORT COUNT
    python -m bench.swarm idle   PORT COUNT TOPIC PARTITIONS
    python -m bench.swarm active PORT PAIRS TOPIC SECONDS

Started by connections.py, to which it prints lines: `ready` once every client is working. `hold` and `idle` run until
their standard input closes; `active` runs for SECONDS and prints one line of JSON. Frames come from frames.py: a client
here costs a few microseconds per request, so the broker is the bottleneck, not the swarm.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import cast

import uvloop

from bench import frames

HOST = "127.0.0.1"
CONNECTING_AT_ONCE = 100
MOST_SECONDS = 180.0
FIRST_TRIES = 150
RECORDS_PER_BATCH, RECORD_BYTES = 10, 100


class Client(asyncio.Protocol):
    """One connection: splits the stream into frames and passes each to the caller that waits for it."""

    def __init__(self) -> None:
        self.answered: Callable[[bytes], None] = lambda frame: None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass of it

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + struct.unpack_from(">i", buffer)[0]
            if len(buffer) < end:
                return
            frame = bytes(memoryview(buffer)[4:end])
            del buffer[:end]
            self.answered(frame)

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            raise ConnectionError("the broker closed a connection of the swarm")
        self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, frame: bytes) -> bytes:
        """Send one request and wait for its answer."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.answered = answer.set_result
        self.send(frame)
        async with asyncio.timeout(60):
            return await answer


class Pair:
    """A producer and a consumer of the same partition, each with one request in flight."""

    def __init__(self, producer: Client, consumer: Client, topic: str, partition: int, batch: bytes) -> None:
        self.produced = self.consumed = 0
        self.refusals: Counter[str] = Counter()
        self._producer, self._consumer = producer, consumer
        self._topic, self._partition, self._offset = topic, partition, 0
        self._produce = frames.produce(1, topic, partition, batch)

    async def begin(self) -> None:
        """The consumer starts where the first batch lands, whatever an earlier run left in the partition.

        A broker may still be opening the partitions of a new topic, so this retries, as clients do.
        """
        for _ in range(FIRST_TRIES):
            error, self._offset = frames.produced(await self._producer.ask(self._produce), self._topic)
            if not error:
                return
            await asyncio.sleep(0.2)
        raise RuntimeError(f"produce to {self._topic}-{self._partition}: error code {error}")

    def run(self) -> None:
        self._producer.answered, self._consumer.answered = self._on_produced, self._on_fetched
        self._producer.send(self._produce)
        self._fetch()

    def halt(self) -> None:
        self._producer.answered = self._consumer.answered = lambda frame: None

    def _fetch(self) -> None:
        self._consumer.send(frames.fetch(1, self._topic, self._partition, self._offset))

    def _on_produced(self, frame: bytes) -> None:
        error, _ = frames.produced(frame, self._topic)
        if error:
            self.refusals[f"Produce with error code {error}"] += 1
        else:
            self.produced += RECORDS_PER_BATCH
        self._producer.send(self._produce)

    def _on_fetched(self, frame: bytes) -> None:
        fetched = frames.fetched(frame, self._topic, self._offset)
        if fetched.error:
            self.refusals[f"Fetch with error code {fetched.error}"] += 1
        self.consumed += fetched.records
        self._offset = fetched.next_offset
        self._fetch()


async def connect(port: int, count: int) -> list[Client]:
    """Open the connections, each with an ApiVersions request, like every client."""
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def one() -> Client:
        async with gate:
            _, client = await loop.create_connection(Client, HOST, port)
            await client.ask(frames.api_versions(1))
            return client

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def hold(port: int, count: int) -> None:
    clients = await connect(port, count)
    await _until_told()
    for client in clients:
        client.close()


async def idle(port: int, count: int, topic: str, partitions: int) -> None:
    clients = await connect(port, count)

    def long_poll(client: Client, request: bytes) -> None:
        client.answered = lambda frame: client.send(request)
        client.send(request)

    for number, client in enumerate(clients):
        await client.ask(frames.metadata(1, topic))
        long_poll(client, frames.fetch(1, topic, number % partitions, 0))
    await _until_told()


async def active(port: int, count: int, topic: str, seconds: float) -> None:
    clients = await connect(port, 2 * count)
    batch = frames.record_batch(RECORDS_PER_BATCH, RECORD_BYTES, int(time.time() * 1000))
    pairs = [Pair(clients[2 * n], clients[2 * n + 1], topic, n, batch) for n in range(count)]
    await asyncio.gather(*(pair.begin() for pair in pairs))
    for pair in pairs:
        pair.run()
    await asyncio.sleep(min(1.0, seconds / 4))  # the first second is a warm-up
    before = [(pair.produced, pair.consumed) for pair in pairs]
    _say_ready()
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - begin
    made = sum(pair.produced - was[0] for pair, was in zip(pairs, before, strict=True))
    read = sum(pair.consumed - was[1] for pair, was in zip(pairs, before, strict=True))
    for pair in pairs:
        pair.halt()
    refusals = sum((pair.refusals for pair in pairs), Counter[str]())
    _say({"produced": made / took, "consumed": read / took, "refusals": dict(refusals)})


async def _until_told() -> None:
    """Say ready, then wait for standard input to close; never longer than MOST_SECONDS."""
    _say_ready()
    try:
        async with asyncio.timeout(MOST_SECONDS):
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
            )
            await reader.read()
    except TimeoutError:
        pass


def _say_ready() -> None:
    print("ready", flush=True)


def _say(result: dict[str, object]) -> None:
    print(json.dumps(result), flush=True)


def main(arguments: list[str]) -> None:
    mode, port, count, *rest = arguments
    work: dict[str, Callable[[], Awaitable[None]]] = {
        "hold": lambda: hold(int(port), int(count)),
        "idle": lambda: idle(int(port), int(count), rest[0], int(rest[1])),
        "active": lambda: active(int(port), int(count), rest[0], float(rest[1])),
    }

    async def run() -> None:
        await work[mode]()

    uvloop.run(run())


if __name__ == "__main__":
    main(sys.argv[1:])
