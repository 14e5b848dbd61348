"""Splits a file or stdin into messages as bytes arrive.

Called by produce. Invariant: a message is never split at the end of a read, nor by a stop signal: complete messages
read before the signal are returned, an incomplete one is not.
"""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.cli.stopping import Stop

CHUNK_BYTES = 256 * 1024
LOOK_S = 0.2  # how long to wait for stdin before checking the stop flag again


@dataclass(frozen=True)
class Splitting:
    """How input is split into messages. `delimiter` None: the whole input is one message."""

    delimiter: bytes | None
    key_delimiter: bytes | None
    fixed_key: bytes | None
    empty_is_null: bool


def read_chunks(descriptor: int, stop: Stop) -> Iterator[bytes]:
    """Chunks of input until its end or a stop signal; an empty one whenever there was none for a while."""
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
    """Complete messages; None whenever there is no input for a while.

    The last message needs no delimiter after it, unless reading was stopped: then it may be incomplete.
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
    """Key and value of one message; without the key delimiter, all of it is the value."""
    key, value = splitting.fixed_key, content
    if splitting.key_delimiter is not None:
        before, found, after = content.partition(splitting.key_delimiter)
        if found:
            key, value = before, after
    return key, None if splitting.empty_is_null and not value else value
