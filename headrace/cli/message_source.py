"""Messages to produce, cut out of a file or of stdin as the bytes arrive.

Called by produce. Invariant: a message is never cut where a read happened to end, also not by a stop signal: whole
messages that were read before it are handed on, a part of one is not.
"""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.cli.stopping import Stop

CHUNK_BYTES = 256 * 1024
LOOK_S = 0.2  # how long a silent stdin is waited for before the stop flag is looked at again


@dataclass(frozen=True)
class Splitting:
    """How bytes become messages. `delimiter` None: everything is one message."""

    delimiter: bytes | None
    key_delimiter: bytes | None
    fixed_key: bytes | None
    empty_is_null: bool


def read_chunks(descriptor: int, stop: Stop) -> Iterator[bytes]:
    """Chunks as they come, an empty one whenever nothing came for a while, until the end or a stop signal."""
    while not stop.asked:
        ready, _, _ = select.select([descriptor], [], [], LOOK_S)
        if not ready:
            yield b""
            continue
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def split_messages(chunks: Iterator[bytes], delimiter: bytes | None, stop: Stop) -> Iterator[bytes | None]:
    """Whole messages; None between them whenever the source is silent.

    The last message needs no delimiter behind it, unless reading was stopped: then nobody knows where it ends.
    """
    pending: list[bytes] = []
    for chunk in chunks:
        if not chunk:
            yield None
        elif delimiter is None or delimiter not in chunk:
            pending.append(chunk)
        else:
            *whole, rest = b"".join([*pending, chunk]).split(delimiter)
            yield from whole
            pending = [rest] if rest else []
    if (pending or delimiter is None) and not stop.asked:
        yield b"".join(pending)


def split_key(content: bytes, splitting: Splitting) -> tuple[bytes | None, bytes | None]:
    """Key and value of one message; without the delimiter in it, it is all value."""
    key, value = splitting.fixed_key, content
    if splitting.key_delimiter is not None:
        before, found, after = content.partition(splitting.key_delimiter)
        if found:
            key, value = before, after
    return key, None if splitting.empty_is_null and not value else value
