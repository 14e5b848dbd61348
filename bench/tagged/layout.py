"""The tagged records of the section "views": which of them carry the rare tag.

Pure. One in a hundred is `gold`, the others are `silver`. In `runs`, a thousand gold records stand together, in large
plain batches; this suits an index over tags. Spread at `random`, in lz4 batches of 16 KB, nearly every batch has some
gold, so each has to be opened; this is the hard case.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

Layout = Literal["runs", "random"]
LAYOUTS: tuple[Layout, ...] = ("runs", "random")
TAG_HEADER, GOLD, SILVER = "headrace.tag", b"gold", b"silver"
ONE_IN = 100
RUN = 1000
VALUE_BYTES = 100
SETTINGS: dict[Layout, dict[str, str]] = {
    "runs": {},
    "random": {"compression.type": "lz4", "batch.size": "16384"},
}
_WORDS = b"GET /rivers/%d/levels?from=%d HTTP/1.1 200 "


def is_gold(layout: Layout, count: int) -> Iterator[bool]:
    """For each record, whether it is one of the few."""
    if layout == "runs":
        for number in range(count):
            yield number % (RUN * ONE_IN) < RUN
        return
    chance = random.Random(20)
    for _ in range(count):
        yield chance.randrange(ONE_IN) == 0


def values(distinct: int = 4096) -> list[bytes]:
    """Lines as of an access log: about half of each compresses well, the rest does not."""
    chance = random.Random(21)
    made = []
    for number in range(distinct):
        line = _WORDS % (number, chance.getrandbits(30))
        made.append((line + chance.randbytes(VALUE_BYTES).hex().encode())[:VALUE_BYTES])
    return made
