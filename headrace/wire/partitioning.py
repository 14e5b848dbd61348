"""Which partition a key goes to: the hash of Kafka's Java client, so that all clients send a key to the same partition.

Pure. Called by code that must know the partition before a record is sent; librdkafka has the same partitioner under the
name murmur2_random. Invariant: for every key and count, `partition_for_key` returns what the Java client's default
partitioner and librdkafka's murmur2 return.

The hash is MurmurHash2 with Kafka's seed over little-endian 32-bit words; the last one to three bytes are mixed in at
the end. Java returns it as a signed number, and so does `murmur2`; the partition is computed without the sign bit.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_WORD = 0xFFFFFFFF
_WITHOUT_SIGN = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The hash of a key as Java returns it: a signed 32-bit number."""
    unsigned = _murmur2_word(key)
    return unsigned - (1 << 32) if unsigned > _WITHOUT_SIGN else unsigned


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key, in a topic with `partition_count` partitions."""
    return (_murmur2_word(key) & _WITHOUT_SIGN) % partition_count


def _murmur2_word(key: bytes) -> int:
    length = len(key)
    whole = length & ~3
    mixed = _SEED ^ length
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        word = (word * _MULTIPLIER) & _WORD
        word ^= word >> _SHIFT
        mixed = ((mixed * _MULTIPLIER) & _WORD) ^ ((word * _MULTIPLIER) & _WORD)
    if length > whole:
        mixed = ((mixed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER) & _WORD
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _WORD
    return mixed ^ (mixed >> 15)
