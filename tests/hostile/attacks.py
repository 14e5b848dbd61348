"""What a hostile client does, one function an attack: frames written by hand, sent over sockets to any Kafka broker.

Each attack first prepares what it needs, and then strikes. `amount` says how much of it: a short form for every test
run, and the full length. Called by trial.py.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import cramjam
import crc32c

from bench import frames
from headrace.wire.api_keys import ApiKey

HOST = "127.0.0.1"
TOPIC = "target"
REPLY_SECONDS = 120.0
MIB = 1 << 20
_CREATE_SECONDS = 60.0


@dataclass(frozen=True)
class Attack:
    name: str
    words: str  # with {amount}, as the table says it
    short: int
    full: int
    strike: Callable[[Target, int], None]
    prepare: Callable[[Target, int], None] | None = None
    most_mb: int = field(kw_only=True)  # of resident memory that it may add, at either length
    descriptors: int | None = None  # the limit under which the broker is started


class Target:
    """A broker under attack."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=REPLY_SECONDS)

    def ask(self, frame: bytes) -> bytes:
        """The reply to one request, on a connection of its own."""
        with self.connect() as connection:
            connection.sendall(frame)
            return receive(connection)

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        body = struct.pack(">i", 1) + frames.string(topic) + struct.pack(">ihi", partitions, 1, 0)
        body += struct.pack(">i", len(settings))
        for name, value in settings.items():
            body += frames.string(name.replace("_", ".")) + frames.string(value)
        self.ask(frames.frame(ApiKey.CREATE_TOPICS, 2, 1, body + struct.pack(">ib", 60_000, 0)))
        deadline = time.monotonic() + _CREATE_SECONDS
        batch = frames.record_batch(1, 10, _now_ms())
        while frames.produced(self.ask(frames.produce(1, topic, 0, batch)), topic)[0]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} cannot be written")
            time.sleep(0.1)


def receive(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), MIB))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return bytes(data)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _pipelined(target: Target, requests: Iterable[bytes], window: int = 50) -> None:
    """Send requests with `window` of them unanswered, until the broker has answered all or has had enough."""
    with target.connect() as connection, contextlib.suppress(OSError):
        waiting = 0
        for request in requests:
            connection.sendall(request)
            waiting += 1
            if waiting == window:
                receive(connection)
                waiting -= 1
        for _ in range(waiting):
            receive(connection)


# --- fetches that nobody reads --------------------------------------------------------------------------------------


def _fill(target: Target, _: int) -> None:
    target.create(TOPIC, max_message_bytes="2000000")
    batch = frames.record_batch(1000, 1000, _now_ms())
    for _ in range(64):
        error, _offset = frames.produced(target.ask(frames.produce(1, TOPIC, 0, batch)), TOPIC)
        if error:
            raise RuntimeError(f"produce answered {error}")


def _large_fetch(correlation: int) -> bytes:
    """A Fetch 11 of up to 60 MB from the start of the topic."""
    head = struct.pack(">iiiibii", -1, 500, 1, 60 * MIB, 0, 0, -1) + struct.pack(">i", 1) + frames.string(TOPIC)
    one = struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 60 * MIB)
    return frames.frame(ApiKey.FETCH, 11, correlation, head + one + struct.pack(">ih", 0, 0))


def _unread_fetches(target: Target, amount: int) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(target.connect()) for _ in range(4)]
        for connection in connections:
            connection.sendall(b"".join(map(_large_fetch, range(amount))))
        time.sleep(10 if amount >= 64 else 3)


# --- small batches that are large when opened -----------------------------------------------------------------------

_BOMB_BYTES = 60 * MIB
_ZSTD = 4


def _recompressing(target: Target, _: int) -> None:
    target.create(TOPIC, compression_type="lz4")


def _bomb() -> bytes:
    """One zstd batch of one record of zeros."""
    body = b"\x00\x00\x00" + frames.varint(-1) + frames.varint(_BOMB_BYTES) + bytes(_BOMB_BYTES) + b"\x00"
    section = bytes(cramjam.zstd.compress(frames.varint(len(body)) + body, 19))
    now = _now_ms()
    after_crc = struct.pack(">hiqqqhii", _ZSTD, 0, now, now, -1, -1, -1, 1) + section
    after_length = struct.pack(">ibI", -1, 2, crc32c.crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _bombs(target: Target, amount: int) -> None:
    request = frames.produce(1, TOPIC, 0, _bomb())
    _pipelined(target, [request] * amount, window=amount)


# --- large requests -------------------------------------------------------------------------------------------------


def _fetch_of(topic: str, partitions: Iterable[int], *, session_epoch: int) -> bytes:
    one = struct.Struct(">iiqqi")
    items = b"".join(one.pack(partition, -1, 0, -1, 1000) for partition in partitions)
    head = struct.pack(">iiiibii", -1, 0, 0, MIB, 0, 0, session_epoch) + struct.pack(">i", 1) + frames.string(topic)
    return frames.frame(
        ApiKey.FETCH, 11, 1, head + struct.pack(">i", len(items) // one.size) + items + struct.pack(">ih", 0, 0)
    )


def _plain(target: Target, _: int) -> None:
    target.create(TOPIC)


def _repeated_partition(target: Target, amount: int) -> None:
    _pipelined(target, [_fetch_of(TOPIC, [0] * amount, session_epoch=-1)])


def _empty_names(target: Target, amount: int) -> None:
    body = struct.pack(">i", amount) + bytes(2 * amount)
    _pipelined(target, [frames.frame(ApiKey.METADATA, 1, 1, body)])


def _largest_fetches(target: Target, amount: int) -> None:
    """As large as a request may be, at the same time."""
    request = _fetch_of("nowhere", range(249_000), session_epoch=-1)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(target.connect()) for _ in range(amount)]
        for connection in connections:
            connection.sendall(request)
        until = time.monotonic() + REPLY_SECONDS
        for connection in connections:
            connection.settimeout(max(1.0, until - time.monotonic()))
            with contextlib.suppress(OSError):  # that a broker takes its time, or has had enough, the canary says
                receive(connection)


def _sessions(target: Target, amount: int) -> None:
    request = _fetch_of("nowhere", range(200_000), session_epoch=0)
    until = time.monotonic() + REPLY_SECONDS
    for _ in range(amount):
        if time.monotonic() < until:
            _pipelined(target, [request])


def _unfinished_frames(target: Target, amount: int) -> None:
    """Each connection sends all but the end of a request of 100 MB."""
    piece = bytes(MIB)
    with contextlib.ExitStack() as stack:
        for _ in range(amount):
            connection = stack.enter_context(target.connect())
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                connection.sendall(struct.pack(">ihhi", 100 * MIB, ApiKey.PRODUCE, 7, 1))
                for _ in range(99):
                    connection.sendall(piece)
        time.sleep(3)


# --- connections ----------------------------------------------------------------------------------------------------


def _idle_connections(target: Target, amount: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(amount):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(socket.socket())
                connection.settimeout(2)
                connection.connect((HOST, target.port))
        time.sleep(5)


def _malformed(target: Target, amount: int) -> None:
    for number in range(amount):
        with contextlib.suppress(OSError), target.connect() as connection:
            connection.sendall(struct.pack(">ihhi", 12, ApiKey.PRODUCE, 7, number) + b"\x7f\xff\xff\xff")
            connection.recv(1)


def _noise(target: Target, amount: int) -> None:
    """Frames of random bytes behind the header of a random API."""
    chance = random.Random(19)
    keys = list(ApiKey)
    for _ in range(amount):
        with contextlib.suppress(OSError), target.connect() as connection:
            connection.settimeout(1)
            body = chance.randbytes(chance.randrange(200))
            connection.sendall(frames.frame(chance.choice(keys), chance.randrange(14), 1, body))
            connection.recv(1)


# --- what is remembered ---------------------------------------------------------------------------------------------


def _producer_ids(target: Target, amount: int) -> None:
    now = _now_ms()

    def requests() -> Iterator[bytes]:
        for number in range(amount):
            yield frames.produce(1, TOPIC, 0, frames.record_batch(1, 10, now, (1_000_000_000 + number, 0, 0)))

    _pipelined(target, requests())


def _transactional_ids(target: Target, amount: int) -> None:
    def requests() -> Iterator[bytes]:
        for number in range(amount):
            name = frames.string(f"{number:0>1000}")
            yield frames.frame(ApiKey.INIT_PRODUCER_ID, 1, 1, name + struct.pack(">i", 60_000))

    _pipelined(target, requests())


def _group(number: int) -> bytes:
    """A JoinGroup 3 with 900 KB of metadata."""
    body = frames.string(f"group-{number}") + struct.pack(">ii", 30_000, 30_000) + frames.string("")
    body += frames.string("consumer") + struct.pack(">i", 1) + frames.string("range")
    metadata = bytes(900_000)
    return frames.frame(ApiKey.JOIN_GROUP, 3, 1, body + struct.pack(">i", len(metadata)) + metadata)


def _groups_ready(target: Target, _: int) -> None:
    """The topic of the groups is created with the first question for a coordinator."""
    deadline = time.monotonic() + _CREATE_SECONDS
    request = frames.frame(ApiKey.FIND_COORDINATOR, 0, 1, frames.string("group-0"))
    while struct.unpack_from(">h", target.ask(request), 4)[0]:
        if time.monotonic() > deadline:
            raise RuntimeError("there is no coordinator")
        time.sleep(0.2)


def _transactions_ready(target: Target, _: int) -> None:
    deadline = time.monotonic() + _CREATE_SECONDS
    request = frames.frame(ApiKey.FIND_COORDINATOR, 1, 1, frames.string("0") + b"\x01")
    while struct.unpack_from(">h", target.ask(request), 8)[0]:
        if time.monotonic() > deadline:
            raise RuntimeError("there is no coordinator")
        time.sleep(0.2)


def _groups(target: Target, amount: int) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(amount):
            connection = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                connection.sendall(_group(number))
        time.sleep(5)


def _partitions(target: Target, amount: int) -> None:
    body = struct.pack(">i", 1) + frames.string("wide") + struct.pack(">ihi", amount, 1, 0)
    body += struct.pack(">iib", 0, 60_000, 0)
    _pipelined(target, [frames.frame(ApiKey.CREATE_TOPICS, 2, 1, body)])
    time.sleep(5)


ATTACKS = (
    Attack("unread-fetches", "4 connections × {amount} pipelined Fetches of 60 MB, not read", 8, 64,
           _unread_fetches, _fill, most_mb=300),
    Attack("bombs", "{amount} zstd batches of 60 MB in 6 KB, on a topic with its own codec", 10, 40,
           _bombs, _recompressing, most_mb=150),
    Attack("repeated-partition", "one Fetch that names a partition {amount} times", 200_000, 1_500_000,
           _repeated_partition, _plain, most_mb=150),
    Attack("empty-names", "one Metadata with {amount} empty names", 300_000, 3_000_000, _empty_names, most_mb=50),
    Attack("largest-fetches", "{amount} connections with one Fetch of 249,000 unknown partitions each", 2, 10,
           _largest_fetches, most_mb=500),
    Attack("sessions", "{amount} fetch sessions with 200,000 unknown partitions each", 2, 15, _sessions,
           most_mb=300),
    Attack("unfinished-frames", "{amount} connections that each send 99 of 100 MB of a request", 4, 30,
           _unfinished_frames, most_mb=700),
    Attack("idle-connections", "{amount} idle connections, at most 1024 descriptors", 1_500, 1_500,
           _idle_connections, descriptors=1024, most_mb=30),
    Attack("malformed", "{amount} malformed frames", 1_000, 30_000, _malformed, most_mb=30),
    Attack("noise", "{amount} frames of random bytes", 1_000, 20_000, _noise, most_mb=50),
    Attack("producer-ids", "{amount} producer ids on one partition", 10_000, 200_000, _producer_ids, _plain,
           most_mb=60),
    Attack("transactional-ids", "{amount} transactional ids of 1,000 characters", 500, 20_000,
           _transactional_ids, _transactions_ready, most_mb=80),
    Attack("groups", "{amount} groups with 900 KB of metadata each", 20, 400, _groups, _groups_ready, most_mb=400),
    Attack("partitions", "one topic with {amount} partitions", 1_000, 10_000, _partitions, most_mb=150),
)  # fmt: skip
