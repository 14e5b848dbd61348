"""The express lane of Produce: one batch set for one partition, which is nearly every request of every client.

It reads such a request and writes its answer by hand, where the full path (api.produce) builds messages for it; the
append between the two is the same. Whatever is unusual in a request, or goes wrong with it, is left to the full path:
nothing has happened by then, since a failed append changes nothing. A property test holds both paths against each
other, byte for byte.

Request (v3 to v8 with fixed, v9 and up with compact lengths, v13 with the topic's id instead of its name):
    transactional id, acks, timeout, [topic, [partition, records]]
Response:
    [topic, [partition, error, base offset, append time, log start (v5), record errors and message (v8)]], throttle
"""

from __future__ import annotations

import struct

from headrace.model.image import INTERNAL_TOPICS
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import Buffer
from headrace.wire.errors import KafkaError

_FIXED_HEAD = struct.Struct(">hhiih")  # no transactional id, acks, timeout, one topic, its name's length
_FIXED_PARTITION = struct.Struct(">iii")  # one partition, its index, the records' length
_COMPACT_HEAD = struct.Struct(">BhiB")  # no transactional id, acks, timeout, one topic
_COMPACT_PARTITION = struct.Struct(">Bi")  # one partition, its index
_ANSWER = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start
_ANSWER_WITHOUT_START = struct.Struct(">ihqq")
_REPLY_HEAD = struct.Struct(">ii")  # size, correlation id
_NO_TAGS = bytes(3)  # of the partition, the topic and the request, with which it ends
_NO_THROTTLE = bytes(4)
_ONE = 2  # a compact array of one


class ExpressProduce:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, frame: memoryview, version: int, at: int, correlation_id: int) -> list[Buffer] | None:
        """The whole reply; None if this request must take the full path."""
        try:
            if version >= 9:
                return self._compact(frame, version, at, correlation_id)
            return self._fixed(frame, version, at, correlation_id)
        except (KafkaError, struct.error, IndexError, UnicodeDecodeError):
            return None

    def _fixed(self, frame: memoryview, version: int, at: int, correlation_id: int) -> list[Buffer] | None:
        transactional, acks, _, topics, size = _FIXED_HEAD.unpack_from(frame, at)
        name_at = at + 12
        at += 14 + size
        count, index, length = _FIXED_PARTITION.unpack_from(frame, at)
        at += 12
        if transactional != -1 or topics != 1 or count != 1 or size < 0 or at + length != len(frame):
            return None
        partition = self._host.find(str(frame[name_at + 2 : name_at + 2 + size], "utf-8"), index)
        if not _answers_at_once(partition, acks):
            return None
        appended = partition.append(frame[at:])
        if version >= 5:
            answer = _ANSWER.pack(index, 0, appended.base_offset, appended.append_time_ms, appended.log_start_offset)
        else:
            answer = _ANSWER_WITHOUT_START.pack(index, 0, appended.base_offset, appended.append_time_ms)
        if version >= 8:
            answer += b"\x00\x00\x00\x00\xff\xff"  # no record errors, no message
        name = frame[name_at : name_at + 2 + size]
        body = b"".join((b"\x00\x00\x00\x01", name, b"\x00\x00\x00\x01", answer, _NO_THROTTLE))
        return [_REPLY_HEAD.pack(4 + len(body), correlation_id) + body]

    def _compact(self, frame: memoryview, version: int, at: int, correlation_id: int) -> list[Buffer] | None:
        transactional, acks, _, topics = _COMPACT_HEAD.unpack_from(frame, at)
        name_at = at + 8
        if transactional or topics != _ONE or (frame[name_at] >= 0x80 and version < 13):
            return None
        at = name_end = name_at + (16 if version >= 13 else frame[name_at])
        count, index = _COMPACT_PARTITION.unpack_from(frame, at)
        at += 5
        length, shift = 0, 0
        while True:
            byte = frame[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        end = at + length - 1
        if count != _ONE or length < 1 or shift > 28 or frame[end:] != _NO_TAGS:
            return None
        if version >= 13:
            partition = self._host.find_by_wire_id(bytes(frame[name_at:name_end]), index)
        else:
            partition = self._host.find(str(frame[name_at + 1 : name_end], "utf-8"), index)
        if not _answers_at_once(partition, acks):
            return None
        appended = partition.append(frame[at:end])
        answer = _ANSWER.pack(index, 0, appended.base_offset, appended.append_time_ms, appended.log_start_offset)
        name = frame[name_at:name_end]
        # No tags in the header; one topic; one partition; no record errors, no message, no tags; no tags; throttle.
        body = b"".join((b"\x00\x02", name, b"\x02", answer, b"\x01\x00\x00\x00", _NO_THROTTLE, b"\x00"))
        return [_REPLY_HEAD.pack(4 + len(body), correlation_id) + body]


def _answers_at_once(partition: Partition, acks: int) -> bool:
    """Whether a client may write here, and the answer under these acks is known when the append returns."""
    if partition.topic in INTERNAL_TOPICS:
        return False
    return (acks == 1 and not partition.log.config.fsync) or (acks == -1 and partition.commits_at_once)
