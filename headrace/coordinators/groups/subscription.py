"""Which topics a consumer subscribes to, read from the metadata that it joins with.

The metadata of a group of type `consumer` starts the same way in every version of Kafka's consumer protocol: version
(int16), then the topics as an array of strings. Other kinds of groups (Connect, say) keep their own secrets.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when the bytes are something else."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0:
            return None
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            if size < 0 or at + 2 + size > len(metadata):
                return None
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
