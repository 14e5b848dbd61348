"""A batch with only the records whose tags match. Called by views (log/tag_search.py), off the event loop.

What is left keeps its codec, its offsets and its producer: a consumer's position moves as on a compacted topic. The
compiled twin does the work if it could be built, otherwise the pure-Python twin; both return the same results.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire.batches import LOG_APPEND_TIME, Buffer
from headrace.wire.errors import Malformed
from headrace.wire.records import open_batch, seal_batch

if TYPE_CHECKING:
    from headrace.wire import _tags_py as tags_twin
else:
    try:
        from headrace.wire import _tags as tags_twin
    except ImportError:
        from headrace.wire import _tags_py as tags_twin

filter_tagged = tags_twin.filter_tagged

COMPILED: bool = tags_twin.__name__.endswith("._tags")


class Tagged(NamedTuple):
    """What is left of a batch."""

    kept: int
    """How many records."""
    whole: bool
    """All of them: the batch is given as it is stored."""
    batch: bytearray | None
    """The batch with some of them."""
    tags: list[bytes] | None
    """All tags in it; None if they are too many to be told."""
    untagged: bool
    """Some record has no tag."""
    opened_bytes: int


def tagged(batch: Buffer, at: int, name: bytes, wanted: tuple[bytes, ...], match: int) -> Tagged:
    """What the batch at `at` holds for a reader with this filter; Malformed if it cannot be opened."""
    header, section = open_batch(batch, at)
    kept, left, latest, tags, untagged = filter_tagged(section, header.record_count, name, wanted, match)
    if left is None or not kept:
        return Tagged(kept, kept > 0, None, tags, untagged, len(section))
    header = header._replace(record_count=kept)
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=header.base_timestamp + latest)
    try:
        return Tagged(kept, False, seal_batch(header, left), tags, untagged, len(section))
    except struct.error:
        raise Malformed("a record's timestamp needs more than 64 bits") from None
