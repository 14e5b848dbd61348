"""The four codecs of record batches, by their number in the batch's attributes, behind two functions.

Called by wire/records.py alone, but for `begins_as`, which log/admission.py asks. Invariant: for any input,
`decompress` never returns more than `limit_bytes`, and raises only Malformed for bad bytes: TooMuch if they may be
good, but hold more than the limit. What opens into more than a megabyte is in memory of its own, which the system gets
back as soon as nobody has a view of it.

Two formats need care, because clients differ:
- snappy is one raw block (librdkafka), or a sequence of blocks in the framing of Java's snappy library: a magic of 8
  bytes, two version numbers, then (length, raw block) pairs. Several such streams may be concatenated.
- lz4 is the frame format. Java reads only frames with independent blocks, so frames are built here, from single blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam

from headrace.wire.errors import Malformed, TooMuch
from headrace.world.lazy_memory import LazyMemory, lazy_memory

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# How each begins: always the same, but for snappy, whose raw blocks begin with a length.
_MAGICS = (b"", b"\x1f\x8b\x08", b"", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")
_JAVA_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_JAVA_SNAPPY_HEADER = _JAVA_SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_JAVA_SNAPPY_BLOCK_BYTES = 32 * 1024
# Magic, independent blocks without checksums (0x60) of at most 64 KiB (0x40), the header's own checksum.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_FIRST_GUESS_BYTES = 16 * 1024
_GUESS_GROWTH = 4
_LARGEST_GUESS_BYTES = 1 << 20  # beyond it there is room for all that is allowed: what is not written takes no memory


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`level` trades time for size, on the codec's own scale; snappy and lz4 ignore it."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec == SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(memoryview(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    raise Malformed(f"compression codec {codec} is unknown")


def begins_as(codec: int, data: Buffer) -> bool:
    """Whether these bytes begin as those of this codec do; of snappy, only whether there are any."""
    return len(data) > 0 and bytes(data[:4]).startswith(_MAGICS[codec])


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """The original bytes; TooMuch if they are longer than the limit, Malformed if `data` is corrupt."""
    if codec == NONE:
        return data
    try:
        if codec == GZIP:
            return _inflate(cramjam.gzip.decompress_into, data, limit_bytes)
        if codec == SNAPPY:
            return _decompress_snappy(memoryview(data), limit_bytes)
        if codec == LZ4:
            return _inflate(cramjam.lz4.decompress_into, data, limit_bytes)
        if codec == ZSTD:
            return _inflate(cramjam.zstd.decompress_into, data, limit_bytes)
    except (cramjam.DecompressionError, struct.error) as error:
        raise Malformed(f"{NAMES[codec]} data is corrupt: {error}") from error
    raise Malformed(f"compression codec {codec} is unknown")


def _inflate(into: Callable[[Buffer, bytearray | LazyMemory], int], data: Buffer, limit_bytes: int) -> Buffer:
    """Decompresses into a buffer of fixed size, and into a larger one if that overflows, up to the limit."""
    guess = min(max(_FIRST_GUESS_BYTES, _GUESS_GROWTH * len(data)), limit_bytes)
    while True:
        if guess > _LARGEST_GUESS_BYTES:
            guess = limit_bytes
        out = _room(guess)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            # Only this message tells that the output buffer was too small.
            if "failed to write whole buffer" not in str(error):
                raise
            if guess == limit_bytes:
                raise _too_much(data, f"more than the {limit_bytes} allowed") from None
            guess = min(guess * _GUESS_GROWTH, limit_bytes)
        else:
            return memoryview(out)[:size]


def _room(size: int) -> bytearray | LazyMemory:
    return bytearray(size) if size <= _LARGEST_GUESS_BYTES else lazy_memory(size)


def _too_much(data: Buffer, held: str) -> TooMuch:
    return TooMuch(f"{len(data)} compressed bytes hold {held}")


def _decompress_snappy(data: memoryview, limit_bytes: int) -> Buffer:
    if data[: len(_JAVA_SNAPPY_MAGIC)] != _JAVA_SNAPPY_MAGIC:
        return _snappy_block(data, limit_bytes)
    out = bytearray()
    at, end = 0, len(data)
    while at < end:
        if data[at : at + len(_JAVA_SNAPPY_MAGIC)] == _JAVA_SNAPPY_MAGIC:
            at += len(_JAVA_SNAPPY_HEADER)
            continue
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0 or size > end - at:
            raise Malformed(f"a snappy block has {size} bytes, but {end - at} are left")
        out += _snappy_block(data[at : at + size], limit_bytes - len(out))
        at += size
    if at != end:
        raise Malformed("a snappy stream is truncated")
    return out


def _snappy_block(data: memoryview, limit_bytes: int) -> Buffer:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > limit_bytes:
        raise _too_much(data, f"{size}, more than the {limit_bytes} allowed")
    out = _room(size)
    cramjam.snappy.decompress_raw_into(data, out)
    return memoryview(out)


def _compress_snappy(data: memoryview) -> Buffer:
    out = bytearray(_JAVA_SNAPPY_HEADER)
    for at in range(0, len(data), _JAVA_SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _JAVA_SNAPPY_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return out


def _compress_lz4(data: memoryview) -> Buffer:
    out = bytearray(_LZ4_HEADER)
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += struct.pack("<I", len(block)) + block
        else:
            out += struct.pack("<I", len(plain) | _LZ4_STORED) + plain
    return out + bytes(4)
