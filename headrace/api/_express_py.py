"""The usual Produce and Fetch as bytes, in pure Python: the twin of _express.pyx, function by function.

It serves where there is no C compiler, and says what the compiled twin must do: a test feeds both the same bytes.
Called by api/express_codec.py, which picks one of the two.

Numbers are big-endian. To Produce v8 and Fetch v11, a name has its length in front (2 bytes), and so have an array (4)
and records (4). From then on lengths are varints, one more than what they count, and tags follow every structure; there
are none here. From v13 on the topic's id (16) stands for its name.

Produce request:
    transactional id, acks (2), timeout (4), [topic, [partition (4), records]]
Produce response:
    [topic, [partition (4), error (2), base offset (8), append time (8), log start (8, v5),
    record errors and message (v8)]], throttle (4)
Fetch request:
    replica (4, to v14), wait (4), min bytes (4), max bytes (4), isolation (1), session id and epoch (4 and 4, v7),
    [topic, [partition (4), leader epoch (4, v9), offset (8), last epoch (4, v12), log start (8, v5), max bytes (4)]],
    what is forgotten (v7), rack (v11)
Fetch response:
    throttle (4), error and session (2 and 4, v7), [topic, [partition (4), error (2), high watermark (8),
    last stable offset (8), log start (8, v5), aborted transactions, preferred replica (4, v11), records]]

Invariants: bytes that are cut short, that go on behind their end, or that say anything but the above are None, whatever
they are; and nothing is read that is not there. So is what nobody usual asks for: a transaction, a second partition in
a Produce, a replica, a session, something forgotten, a rack, a name or an array that needs a length of two bytes, and a
Fetch with more than MOST_FETCHED topics and partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

from headrace.wire.batches import Buffer

READ_COMMITTED = 1
MOST_FETCHED = 500  # what takes longer goes in pieces, on the full path

Topic = str | bytes  # its name, or the sixteen bytes of its id
ProduceAsked = tuple[int, Topic, int, memoryview]  # acks, topic, partition, records
FetchedPartition = tuple[int, int, int, int, int]  # partition, leader epoch, offset, last epoch, max bytes
FetchAsked = tuple[int, int, int, bool, list[tuple[Topic, list[FetchedPartition]]]]
"""Wait in milliseconds, min bytes, max bytes, whether only stable records, and the topics; -1 is an epoch unsaid."""
PartitionFound = tuple[int, int, int, int, Buffer]  # partition, high watermark, last stable offset, log start, records

_GARBLED = (struct.error, IndexError, UnicodeDecodeError)
_FIXED_HEAD = struct.Struct(">hhiih")  # no transactional id, acks, timeout, one topic, its name's length
_FIXED_PARTITION = struct.Struct(">iii")  # one partition, its index, the records' length
_COMPACT_HEAD = struct.Struct(">BhiB")  # no transactional id, acks, timeout, one topic
_COMPACT_PARTITION = struct.Struct(">Bi")  # one partition, its index
_ANSWER = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start
_ANSWER_WITHOUT_START = struct.Struct(">ihqq")
_REPLY_HEAD = struct.Struct(">ii")  # size, correlation id
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_ONE = 2  # a compact array of one
_MOST = 0x7F  # of anything in one compact byte
_NO_TAGS = bytes(3)  # of the partition, the topic and the request, with which a Produce ends
_NO_SESSION = (0, -1)


# --- Produce --------------------------------------------------------------------------------------------------------


def read_produce(frame: memoryview, version: int, at: int) -> ProduceAsked | None:
    """What the body at `at` asks for; the records are a view of the frame."""
    try:
        return _compact_produce(frame, version, at) if version >= 9 else _fixed_produce(frame, at)
    except _GARBLED:
        return None


def _fixed_produce(frame: memoryview, at: int) -> ProduceAsked | None:
    transactional, acks, _, topics, size = _FIXED_HEAD.unpack_from(frame, at)
    at += _FIXED_HEAD.size
    if transactional != -1 or topics != 1 or size < 0:
        return None
    name = frame[at : at + size]
    at += size
    count, index, length = _FIXED_PARTITION.unpack_from(frame, at)
    at += _FIXED_PARTITION.size
    if count != 1 or at + length != len(frame):
        return None
    return acks, str(name, "utf-8"), index, frame[at:]


def _compact_produce(frame: memoryview, version: int, at: int) -> ProduceAsked | None:
    transactional, acks, _, topics = _COMPACT_HEAD.unpack_from(frame, at)
    name_at = at + _COMPACT_HEAD.size
    if transactional or topics != _ONE or (version < 13 and frame[name_at] > _MOST):
        return None
    at = name_end = name_at + (16 if version >= 13 else frame[name_at])
    count, index = _COMPACT_PARTITION.unpack_from(frame, at)
    at += _COMPACT_PARTITION.size
    length, shift = 0, 0
    while True:
        byte = frame[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte <= _MOST:
            break
        shift += 7
    end = at + length - 1
    if count != _ONE or length < 1 or shift > 28 or frame[end:] != _NO_TAGS:
        return None
    name = bytes(frame[name_at:name_end]) if version >= 13 else str(frame[name_at + 1 : name_end], "utf-8")
    return acks, name, index, frame[at:end]


def write_produce(
    version: int, correlation_id: int, topic: Topic, index: int, base_offset: int, append_time_ms: int, log_start: int
) -> bytes:
    """The whole reply to one that went well."""
    if version >= 5:
        answer = _ANSWER.pack(index, 0, base_offset, append_time_ms, log_start)
    else:
        answer = _ANSWER_WITHOUT_START.pack(index, 0, base_offset, append_time_ms)
    if version >= 9:
        # No tags in the header; one topic; one partition; no record errors, no message, no tags; no tags; throttle.
        body = b"".join((b"\x00\x02", _compact_name(topic), b"\x02", answer, b"\x01\x00\x00\x00", bytes(4), b"\x00"))
    else:
        errors = b"\x00\x00\x00\x00\xff\xff" if version >= 8 else b""  # none, and no message
        body = b"".join((b"\x00\x00\x00\x01", _fixed_name(topic), b"\x00\x00\x00\x01", answer, errors, bytes(4)))
    return _REPLY_HEAD.pack(4 + len(body), correlation_id) + body


def _fixed_name(topic: Topic) -> bytes:
    name = topic.encode() if isinstance(topic, str) else topic
    return _INT16.pack(len(name)) + name


def _compact_name(topic: Topic) -> bytes:
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return _compact(len(name)) + name


def _compact(size: int) -> bytes:
    """The length of what has this size."""
    rest, length = size + 1, bytearray()
    while rest > _MOST:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes(length)


# --- Fetch ----------------------------------------------------------------------------------------------------------


class Layout:
    """What stands where in the Fetch requests of one version."""

    __slots__ = ("by_id", "compact", "head", "last_epoch", "leader_epoch", "offset", "partition", "replica", "tail")

    def __init__(self, version: int) -> None:
        self.compact, self.by_id, self.replica = version >= 12, version >= 13, version < 15
        self.head = struct.Struct(f">{'i' * self.replica}iiib{'ii' * (version >= 7)}")
        self.leader_epoch, self.last_epoch = version >= 9, version >= 12
        self.offset = 1 + self.leader_epoch  # its place among the partition's fields
        self.partition = struct.Struct(f">i{'i' * self.leader_epoch}q{'i' * self.last_epoch}{'q' * (version >= 5)}i")
        self.tail = b"\x01\x01\x00" if self.compact else bytes(0 if version < 7 else 4 if version < 11 else 6)

    def fetched(self, fields: tuple[int, ...]) -> FetchedPartition:
        leader_epoch = fields[1] if self.leader_epoch else -1
        return fields[0], leader_epoch, fields[self.offset], fields[3] if self.last_epoch else -1, fields[-1]


_layout = cache(Layout)


def read_fetch(frame: memoryview, version: int, at: int) -> FetchAsked | None:
    """What the body at `at` asks for."""
    layout = _layout(version)
    try:
        head = layout.head.unpack_from(frame, at)
        at += layout.head.size
        if layout.replica:
            if head[0] != -1:
                return None
            head = head[1:]
        if head[4:] not in ((), _NO_SESSION):
            return None
        topics = _compact_topics(frame, layout, at) if layout.compact else _fixed_topics(frame, layout, at)
    except _GARBLED:
        return None
    return None if topics is None else (head[0], head[1], head[2], head[3] == READ_COMMITTED, topics)


def _fixed_topics(frame: memoryview, layout: Layout, at: int) -> list[tuple[Topic, list[FetchedPartition]]] | None:
    topics: list[tuple[Topic, list[FetchedPartition]]] = []
    (count,) = _INT32.unpack_from(frame, at)
    at += 4
    left = MOST_FETCHED - max(0, count)
    if left < 0:
        return None
    for _ in range(count):
        (size,) = _INT16.unpack_from(frame, at)
        if size < 0:
            return None  # else one would come back to the same bytes, again and again
        name = frame[at + 2 : at + 2 + size]
        at += 2 + size
        (partitions,) = _INT32.unpack_from(frame, at)
        at += 4
        left -= max(0, partitions)
        if left < 0:
            return None
        asked = []
        for _ in range(partitions):
            asked.append(layout.fetched(layout.partition.unpack_from(frame, at)))
            at += layout.partition.size
        topics.append((str(name, "utf-8"), asked))
    return topics if frame[at:] == layout.tail else None


def _compact_topics(frame: memoryview, layout: Layout, at: int) -> list[tuple[Topic, list[FetchedPartition]]] | None:
    topics: list[tuple[Topic, list[FetchedPartition]]] = []
    count = frame[at] - 1
    at += 1
    left = MOST_FETCHED - max(0, count)
    if count >= _MOST:
        return None
    for _ in range(count):
        name_at = at
        at += 16 if layout.by_id else frame[at]
        name = frame[name_at:at]
        partitions = frame[at] - 1
        at += 1
        left -= max(0, partitions)
        if left < 0 or partitions >= _MOST or (not layout.by_id and name[0] > _MOST):
            return None
        asked = []
        for _ in range(partitions):
            asked.append(layout.fetched(layout.partition.unpack_from(frame, at)))
            at += layout.partition.size + 1
            if frame[at - 1]:  # tags
                return None
        if frame[at]:
            return None
        at += 1
        topics.append((bytes(name) if layout.by_id else str(name[1:], "utf-8"), asked))
    return topics if frame[at:] == layout.tail else None


def write_fetch(
    version: int, correlation_id: int, stable: bool, topics: Sequence[tuple[Topic, Sequence[PartitionFound]]]
) -> list[Buffer]:
    """The whole reply, in pieces: what was found of each partition is one of them."""
    compact = version >= 12
    count = _compact if compact else _INT32.pack
    name = _compact_name if compact else _fixed_name
    tags = b"\x00" if compact else b""
    preferred = b"\xff\xff\xff\xff" if version >= 11 else b""  # no other replica
    aborted = (b"\x01" if stable else b"\x00") if compact else bytes(4) if stable else b"\xff\xff\xff\xff"
    chunks: list[Buffer] = []
    text = bytearray(tags + bytes(10 if version >= 7 else 4) + count(len(topics)))
    for topic, partitions in topics:
        text += name(topic) + count(len(partitions))
        for index, high_watermark, last_stable_offset, log_start, records in partitions:
            if version >= 5:
                text += _ANSWER.pack(index, 0, high_watermark, last_stable_offset, log_start)
            else:
                text += _ANSWER_WITHOUT_START.pack(index, 0, high_watermark, last_stable_offset)
            text += aborted + preferred + count(len(records))
            if records:
                chunks += (text, records)
                text = bytearray()
            text += tags
        text += tags
    text += tags
    if text:
        chunks.append(text)
    chunks[0] = _REPLY_HEAD.pack(4 + sum(map(len, chunks)), correlation_id) + chunks[0]
    return chunks
