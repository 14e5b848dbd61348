"""The end of a log: everything that nearly every append touches, and nothing else, in small classes of their own.

`SegmentTail` is the base of `Segment`: how large the segment is and where its newest batches lie. `LogTail` is what
PartitionLog and its parts share: the segments, where the log begins and ends, and the write itself. It knows nothing
of who owns it; a failed write is raised. `TailView` is the base of PartitionLog and does nothing but show the tail's
attributes. They are apart so that they can be compiled: Python finds its way to forty attributes in as many look-ups,
compiled code reads them where they lie. Without a compiler the twin in Python (_tail_py.py) serves.

The compiled `LogTail` also has a way of its own for the usual append, `append_usual`: one batch about which nothing is
special. It refuses whatever is, with nothing done, and the twin refuses everything: PartitionLog.append, which is the
truth about appending, then does it. A property test holds the two against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.log._tail_py import LogTail, SegmentTail, TailView
else:
    try:
        from headrace.log._tail import LogTail, SegmentTail, TailView
    except ImportError:
        from headrace.log._tail_py import LogTail, SegmentTail, TailView

__all__ = ["LogTail", "SegmentTail", "TailView"]
