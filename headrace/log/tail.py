"""The end of a log: everything that nearly every append touches, and nothing else, in two small classes.

`SegmentTail` is the base of `Segment`: how large the segment is and where its newest batches lie. `LogTail` is the base
of `DurableLog`: where the log ends, and the write itself. They are apart from what is built on them so that they can be
compiled: Python finds its way to forty attributes in as many looks into tables, compiled code reads them where they
lie. Without a compiler the twin in Python serves.

The compiled `LogTail` also has a way of its own for the usual append, `append_usual`: one batch about which nothing is
special. It refuses whatever is, with nothing done, and the twin refuses everything: PartitionLog.append, which is the
truth about appending, then does it. A property test holds the two against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.log._tail_py import LogTail, SegmentTail
else:
    try:
        from headrace.log._tail import LogTail, SegmentTail
    except ImportError:
        from headrace.log._tail_py import LogTail, SegmentTail

__all__ = ["LogTail", "SegmentTail"]
