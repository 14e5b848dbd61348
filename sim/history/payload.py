"""The payload of a recorded message: its uid, the uid of its source, and a digest of everything that was sent.

Shared by the clients of simulations (sim/clients) and those for real brokers (tests/recorded_clients.py). Invariant:
the digest of a message that arrives is computed from what arrived, never copied from it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from sim.history.event import Record

SCHEDULED_ID, SCHEDULED_FOR = "headrace.scheduled.id", "headrace.scheduled.for"
_SCHEDULED = (SCHEDULED_ID, SCHEDULED_FOR)
NO_TIME = 0  # in the digest of a delayed message, which gets its timestamp at its release


class Payload(NamedTuple):
    uid: str
    src: str
    digest: str
    body: bytes

    def packed(self) -> bytes:
        return b"\n".join((self.uid.encode(), self.src.encode(), self.digest.encode(), self.body))


def digest_of(
    uid: str, src: str, key: bytes | None, body: bytes, headers: Iterable[tuple[str, bytes]], timestamp_ms: int
) -> str:
    parts = [uid.encode(), src.encode(), b"-" if key is None else b"+" + key, body, str(timestamp_ms).encode()]
    for name, value in headers:
        parts += [name.encode(), value]
    sizes = struct.pack(f">{len(parts)}I", *map(len, parts))  # so that different lists of parts have different digests
    return hashlib.sha256(b"".join((sizes, *parts))).hexdigest()


def record_from(
    tp: str,
    off: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
    timestamp_ms: int,
) -> Record:
    """A message as the checker sees it."""
    fields = (value or b"").split(b"\n", 3)
    if len(fields) != 4:
        return Record(tp, off, None)
    uid, src, body = fields[0].decode(errors="replace"), fields[1].decode(errors="replace"), fields[3]
    headers = list(headers)
    scheduled = {name: int(value) for name, value in headers if name in _SCHEDULED}
    if scheduled:
        timestamp_ms = NO_TIME
        headers = [header for header in headers if header[0] not in _SCHEDULED]
    digest = digest_of(uid, src, key, body, headers, timestamp_ms)
    shown_key = None if key is None else key.decode(errors="replace")
    due, number = scheduled.get(SCHEDULED_FOR), scheduled.get(SCHEDULED_ID)
    return Record(tp, off, uid, digest, shown_key, src or None, due, number)
