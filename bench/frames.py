"""Kafka frames written by hand, for the many-clients measurements and the readiness probe.

Pure bytes: no socket here. swarm.py holds a thousand connections in one process, which a thousand librdkafka instances
could not do; it needs only ApiVersions 0, Metadata 1, Produce 7 and Fetch 11, one topic and one partition per request.
Everything is independent of headrace's own codecs, so that a mistake there is not hidden.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

import crc32c

from headrace.wire.api_keys import ApiKey

_BATCH_HEADER_BYTES = 61
_BATCH_LENGTH_AT, _LAST_OFFSET_DELTA_AT = 8, 23


@dataclass(frozen=True)
class Fetched:
    """What a consumer needs from one Fetch response."""

    error: int
    records: int
    next_offset: int


def api_versions(correlation: int) -> bytes:
    return frame(ApiKey.API_VERSIONS, 0, correlation, b"")


def metadata(correlation: int, topic: str) -> bytes:
    return frame(ApiKey.METADATA, 1, correlation, struct.pack(">i", 1) + string(topic))


def produce(correlation: int, topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    """Produce 7: no transactional id, acks, timeout, then one topic with one partition."""
    head = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic)
    return frame(ApiKey.PRODUCE, 7, correlation, head + struct.pack(">iii", 1, partition, len(batch)) + batch)


def produced_bytes(topic: str) -> int:
    """The size of a Produce 7 response for one partition, its length field included."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + struct.calcsize(">ihqqq") + 4


def produced(response: bytes, topic: str) -> tuple[int, int]:
    """The error code and the base offset of a Produce 7 response (without its length field)."""
    at = 4 + 4 + 2 + len(topic) + 4 + 4  # correlation, topics, the topic, partitions, partition
    error, base_offset = struct.unpack_from(">hq", response, at)
    return error, base_offset


def fetch(correlation: int, topic: str, partition: int, offset: int, max_wait_ms: int = 500) -> bytes:
    """Fetch 11 without a session, with the wait and sizes of a stock consumer."""
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 * 1024 * 1024, 0, 0, -1)
    one = struct.pack(">iiiqqi", 1, partition, -1, offset, -1, 1024 * 1024)
    return frame(
        ApiKey.FETCH, 11, correlation, head + struct.pack(">i", 1) + string(topic) + one + struct.pack(">ih", 0, 0)
    )


def fetched(response: bytes, topic: str, offset: int) -> Fetched:
    """Count the records from `offset` on in a Fetch 11 response (without its length field), whole batches only."""
    top_error = struct.unpack_from(">h", response, 8)[0]  # after correlation and throttle time
    if top_error:
        return Fetched(top_error, 0, offset)
    # After the error: session, topics, the topic, partitions, partition, then error, three offsets, aborted list.
    at = 10 + 4 + 4 + 2 + len(topic) + 4 + 4
    error, _, _, _, aborted = struct.unpack_from(">hqqqi", response, at)
    at += 2 + 24 + 4 + 16 * max(aborted, 0) + 4  # the last four: preferred replica
    size = struct.unpack_from(">i", response, at)[0]
    at += 4
    end, start = at + max(size, 0), offset
    while at + _BATCH_HEADER_BYTES <= end:
        base, length = struct.unpack_from(">qi", response, at)
        if at + 12 + length > end:
            break
        last_delta = struct.unpack_from(">i", response, at + _LAST_OFFSET_DELTA_AT)[0]
        offset = base + last_delta + 1
        at += 12 + length
    return Fetched(error, offset - start, offset)


def record_batch(
    records: int, value_bytes: int, timestamp_ms: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """One uncompressed version-2 batch of equal records, as a producer would send it; with the producer's id, epoch and
    sequence if it is idempotent."""
    body = _records(records, value_bytes)
    after_crc = struct.pack(">hiqqqhii", 0, records - 1, timestamp_ms, timestamp_ms, *producer, records) + body
    crc = crc32c.crc32c(after_crc)
    after_length = struct.pack(">ibI", -1, 2, crc) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


@lru_cache(maxsize=4)
def _records(count: int, value_bytes: int) -> bytes:
    return b"".join(_record(delta, b"x" * value_bytes) for delta in range(count))


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """Kafka's signed variable-length integer: zigzag, then seven bits a byte."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def frame(api: int, version: int, correlation: int, body: bytes) -> bytes:
    payload = struct.pack(">hhi", api, version, correlation) + string("bench") + body
    return struct.pack(">i", len(payload)) + payload
