"""The express lane of Fetch: a consumer without a session, as librdkafka's are.

It reads such a request and writes its answer by hand, where the full path (api.fetch) builds messages for it; the
reading between the two is the same. A request for which there are too few records yet waits as its bytes, and is read
once more when there are enough or its time is up. Whatever is unusual is left to the full path, which begins anew:
sessions, replicas, racks, errors, aborted transactions, and records that are not in memory. A property test holds both
paths against each other, byte for byte.

Request (v12 and up with compact lengths and tags, v13 and up with the topic's id instead of its name):
    replica (to v14), wait, min bytes, max bytes, isolation, session id and epoch (v7),
    [topic, [partition, leader epoch (v9), offset, last epoch (v12), log start (v5), max bytes]],
    what is forgotten (v7), rack (v11)
Response:
    throttle, error and session (v7), [topic, [partition, error, high watermark, last stable offset, log start (v5),
    aborted transactions, preferred replica (v11), records]]
"""

from __future__ import annotations

import struct
from functools import cache

from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.batches import Buffer
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock

READ_COMMITTED = 1
_NO_SESSION = (0, -1)
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_REPLY_HEAD = struct.Struct(">ii")  # size, correlation id
_MOST = 0x7F  # of anything in one compact byte


class Layout:
    """What stands where in the requests and responses of one version."""

    __slots__ = (
        "answer", "answer_head", "by_id", "compact", "head", "last_epoch", "leader_epoch", "log_start", "offset",
        "partition", "preferred", "replica", "sessions", "tail",
    )  # fmt: skip

    def __init__(self, version: int) -> None:
        self.compact, self.by_id = version >= 12, version >= 13
        self.replica, self.sessions, self.log_start = version < 15, version >= 7, version >= 5
        self.head = struct.Struct(f">{'i' * self.replica}iiib{'ii' * self.sessions}")
        self.leader_epoch = version >= 9
        self.last_epoch = self.compact
        self.offset = 1 + self.leader_epoch  # its place among the partition's fields
        self.partition = struct.Struct(f">i{'i' * self.leader_epoch}q{'i' * self.last_epoch}{'q' * self.log_start}i")
        self.tail = b"\x01\x01\x00" if self.compact else bytes(0 if version < 7 else 4 if version < 11 else 6)
        self.answer_head = bytes(1 if self.compact else 0) + bytes(10 if self.sessions else 4)
        self.answer = struct.Struct(">ihqqq" if self.log_start else ">ihqq")
        self.preferred = b"\xff\xff\xff\xff" if version >= 11 else b""  # no other replica


_layout = cache(Layout)
Topic = tuple[memoryview, str | bytes, list[tuple[int, ...]]]  # its name on the wire, its name or id, its partitions


class ExpressFetch:
    def __init__(self, host: ReplicaHost, clock: Clock, max_bytes: int) -> None:
        self._host = host
        self._clock = clock
        self._max_bytes = max_bytes

    def __call__(self, frame: memoryview, version: int, at: int, correlation_id: int) -> list[Buffer] | LongPoll | None:
        """The whole reply, or one that waits for more records; None if this request must take the full path."""
        found = self._read(frame, version, at)
        if found is None:
            return None
        if found.missing_bytes > 0 and found.wait_ms > 0:
            return LongPoll(self, frame, (version, at, correlation_id), found, self._clock)
        return found.whole(correlation_id)

    def answer(self, frame: memoryview, version: int, at: int, correlation_id: int) -> list[Buffer] | None:
        """The reply with what there is, be it enough or not."""
        found = self._read(frame, version, at)
        return None if found is None else found.whole(correlation_id)

    def _read(self, frame: memoryview, version: int, at: int) -> _Answer | None:
        try:
            return self._answer(frame, _layout(version), at)
        except (KafkaError, struct.error, IndexError, UnicodeDecodeError):
            return None

    def _answer(self, frame: memoryview, layout: Layout, at: int) -> _Answer | None:
        head = layout.head.unpack_from(frame, at)
        at += layout.head.size
        if layout.replica:
            if head[0] != -1:
                return None
            head = head[1:]
        if layout.sessions and head[4:] != _NO_SESSION:
            return None
        topics = _compact_topics(frame, layout, at) if layout.compact else _fixed_topics(frame, layout, at)
        if not topics:
            return None
        wait_ms, min_bytes, max_bytes, isolation = head[:4]
        answer = _Answer(layout, len(topics), isolation == READ_COMMITTED, min(max_bytes, self._max_bytes))
        for wire_name, name, partitions in topics:
            answer.topic(wire_name, len(partitions))
            for fields in partitions:
                if isinstance(name, str):
                    partition = self._host.find(name, fields[0])
                else:
                    partition = self._host.find_by_wire_id(name, fields[0])
                if not answer.partition(partition, fields):
                    return None
            answer.topic_ends()
        if not answer.read:
            return None
        answer.wait_ms = wait_ms
        answer.missing_bytes = 0 if answer.more else min(min_bytes, max_bytes) - answer.size
        return answer


class LongPoll:
    """A request that waits for records to come, or for its time to be up."""

    __slots__ = ("_asked", "_lane", "due", "frame")

    def __init__(
        self, lane: ExpressFetch, frame: memoryview, asked: tuple[int, int, int], found: _Answer, clock: Clock
    ) -> None:
        self.frame = memoryview(bytes(frame))
        self._lane = lane
        self._asked = asked  # version, where the body begins, correlation id
        partitions = [partition for partition, _ in found.read]
        audience = Audience.STABLE if found.stable else Audience.COMMITTED
        self.due = Wait(partitions, audience, found.missing_bytes, found.wait_ms / 1000, clock).due

    def answer(self) -> list[Buffer] | None:
        return self._lane.answer(self.frame, *self._asked)


class _Answer:
    """A response as it grows: `text` between the records of two partitions, and `chunks` of both before that."""

    __slots__ = ("chunks", "layout", "left", "missing_bytes", "more", "read", "size", "stable", "text", "wait_ms")

    def __init__(self, layout: Layout, topics: int, stable: bool, max_bytes: int) -> None:
        self.layout = layout
        self.stable = stable
        self.left = max_bytes
        self.size = 0  # of all records
        self.more = False
        self.missing_bytes = 0  # to what the client would wait for
        self.wait_ms = 0
        self.read: list[tuple[Partition, int]] = []
        self.chunks: list[Buffer] = []
        count = bytes((topics + 1,)) if layout.compact else _INT32.pack(topics)
        self.text = bytearray(layout.answer_head + count)

    def topic(self, wire_name: memoryview, partitions: int) -> None:
        self.text += wire_name
        self.text += bytes((partitions + 1,)) if self.layout.compact else _INT32.pack(partitions)

    def topic_ends(self) -> None:
        if self.layout.compact:
            self.text.append(0)  # no tags

    def partition(self, partition: Partition, fields: tuple[int, ...]) -> bool:
        """Whether the records, which may be none, could be read at once."""
        layout, log = self.layout, partition.log
        partition.check_leader(fields[1] if layout.leader_epoch else -1)
        offset = fields[layout.offset]
        if layout.last_epoch and fields[3] >= 0 and partition.diverging(offset, fields[3]) is not None:
            return False
        if self.stable and log.aborted_txns:
            return False
        room = max(0, min(fields[-1], self.left))
        found = partition.read(offset, room, at_least_one=not self.size, stable=self.stable)
        records = found.load_cached()
        if records is None:
            return False
        self.left -= found.size
        self.size += found.size
        self.more = self.more or found.more
        self.read.append((partition, len(records)))
        marks = (fields[0], 0, partition.high_watermark, partition.last_stable_offset)
        self.text += layout.answer.pack(*marks, log.start_offset) if layout.log_start else layout.answer.pack(*marks)
        self._records(records)
        return True

    def _records(self, records: Buffer) -> None:
        layout, text = self.layout, self.text
        if layout.compact:
            text.append(1 if self.stable else 0)  # no aborted transactions; nobody asked for them
            text += layout.preferred
            rest = len(records) + 1
            while rest > _MOST:
                text.append(rest & 0x7F | 0x80)
                rest >>= 7
            text.append(rest)
        else:
            text += b"\x00\x00\x00\x00" if self.stable else b"\xff\xff\xff\xff"
            text += layout.preferred
            text += _INT32.pack(len(records))
        if records:
            self.chunks += (text, records)
            self.text = bytearray()
        if layout.compact:
            self.text.append(0)  # no tags

    def whole(self, correlation_id: int) -> list[Buffer]:
        for partition, size in self.read:
            partition.bytes_out += size
        chunks = self.chunks
        if self.layout.compact:
            self.text.append(0)  # no tags
        if self.text:
            chunks.append(self.text)
        chunks[0] = _REPLY_HEAD.pack(4 + sum(map(len, chunks)), correlation_id) + chunks[0]
        return chunks


def _fixed_topics(frame: memoryview, layout: Layout, at: int) -> list[Topic] | None:
    """None if something unusual follows them."""
    topics: list[Topic] = []
    (count,) = _INT32.unpack_from(frame, at)
    at += 4
    for _ in range(count):
        name_at = at
        at += 2 + _INT16.unpack_from(frame, at)[0]
        name = frame[name_at:at]
        (partitions,) = _INT32.unpack_from(frame, at)
        at += 4
        asked, step = [], layout.partition.size
        for _ in range(partitions):
            asked.append(layout.partition.unpack_from(frame, at))
            at += step
        topics.append((name, str(name[2:], "utf-8"), asked))
    return topics if frame[at:] == layout.tail else None


def _compact_topics(frame: memoryview, layout: Layout, at: int) -> list[Topic] | None:
    """None if there are so many of something, or names so long, that their number takes two bytes, or if something
    unusual follows."""
    topics: list[Topic] = []
    count = frame[at] - 1
    at += 1
    if count >= _MOST:
        return None
    for _ in range(count):
        name_at = at
        at += 16 if layout.by_id else frame[at]
        name = frame[name_at:at]
        partitions = frame[at] - 1
        at += 1
        if partitions >= _MOST or (not layout.by_id and name[0] > _MOST):
            return None
        asked, step = [], layout.partition.size
        for _ in range(partitions):
            asked.append(layout.partition.unpack_from(frame, at))
            at += step + 1
            if frame[at - 1]:  # tags
                return None
        if frame[at]:
            return None
        at += 1
        topics.append((name, bytes(name) if layout.by_id else str(name[1:], "utf-8"), asked))
    return topics if frame[at:] == layout.tail else None
