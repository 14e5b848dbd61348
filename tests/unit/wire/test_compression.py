"""Each codec reads what other libraries write, is read by them, and never inflates beyond its limit."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import snappy_decode, snappy_encode

from headrace.wire import compression
from headrace.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.wire.errors import Malformed

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1024 * 1024
SAMPLE = b"".join(b"%d some words that come again " % number for number in range(10_000))

FOREIGN_WRITERS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (GZIP, gzip.compress),
    (SNAPPY, snappy.compress),
    (SNAPPY, snappy_encode),
    (LZ4, lz4.frame.compress),
    (LZ4, lambda data: lz4.frame.compress(data, block_linked=False, content_checksum=True)),
    (ZSTD, zstandard.compress),
    (ZSTD, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
]
FOREIGN_READERS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: gzip.decompress,
    SNAPPY: snappy_decode,
    LZ4: lz4.frame.decompress,
    ZSTD: zstandard.decompress,
}


@given(st.sampled_from([NONE, *CODECS]), st.binary(max_size=300), st.integers(1, 2000))
def test_data_comes_back(codec: int, data: bytes, times: int) -> None:
    data = data * times
    assert bytes(compression.decompress(codec, compression.compress(codec, data), len(data))) == data


@pytest.mark.parametrize(("codec", "write"), FOREIGN_WRITERS)
@pytest.mark.parametrize("data", [SAMPLE, b"x"])
def test_data_of_other_libraries_is_read(codec: int, write: Callable[[bytes], bytes], data: bytes) -> None:
    assert bytes(compression.decompress(codec, write(data), MIB)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_other_libraries_read_ours(codec: int) -> None:
    assert FOREIGN_READERS[codec](bytes(compression.compress(codec, SAMPLE))) == SAMPLE


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    """Java's reader takes no other frames."""
    frame = bytes(compression.compress(LZ4, SAMPLE))
    assert not lz4.frame.get_frame_info(frame)["block_linked"]
    noise = bytes(range(256)) * 2
    assert lz4.frame.decompress(bytes(compression.compress(LZ4, noise))) == noise


def test_concatenated_snappy_streams_are_read() -> None:
    assert bytes(compression.decompress(SNAPPY, snappy_encode(b"one, ") + snappy_encode(b"two"), 100)) == b"one, two"


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_without_being_inflated(codec: int) -> None:
    bomb = bytes(compression.compress(codec, bytes(64 * MIB)))
    tracemalloc.start()
    with pytest.raises(Malformed, match="allowed"):
        compression.decompress(codec, bomb, 4 * MIB)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10 * MIB


def test_a_snappy_block_that_lies_about_its_size_is_refused() -> None:
    with pytest.raises(Malformed):
        compression.decompress(SNAPPY, b"\xff\xff\xff\xff\x0f", MIB)
    with pytest.raises(Malformed):
        compression.decompress(SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1), MIB)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(Malformed):
        compression.decompress(codec, b"", MIB)
    with pytest.raises(Malformed):
        compression.compress(codec, b"")


@given(st.sampled_from(CODECS), st.data())
def test_garbled_data_raises_malformed_and_nothing_else(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compression.compress(codec, SAMPLE[: data.draw(st.integers(0, 2000))]))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        compression.decompress(codec, packed[: data.draw(st.integers(0, len(packed)))], MIB)
    except Malformed:
        pass


@given(st.sampled_from(CODECS), st.binary(max_size=64))
def test_any_bytes_raise_malformed_at_most(codec: int, data: bytes) -> None:
    try:
        compression.decompress(codec, data, MIB)
    except Malformed:
        pass
