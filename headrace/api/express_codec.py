"""The bytes of the requests that take an express lane, and of their replies.

Called by express_produce and express_fetch. What is not such a request is None. Compiled code does the work where it
could be built, its pure-Python twin elsewhere; both give the same answers, and the formats stand at the top of the
latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.api._express_py import FetchedPartition, PartitionFound, Topic

if TYPE_CHECKING:
    from headrace.api import _express_py as codec_twin
else:
    try:
        from headrace.api import _express as codec_twin
    except ImportError:
        from headrace.api import _express_py as codec_twin

__all__ = [
    "COMPILED",
    "FetchedPartition",
    "PartitionFound",
    "Topic",
    "read_fetch",
    "read_produce",
    "write_fetch",
    "write_produce",
]

read_fetch = codec_twin.read_fetch
read_produce = codec_twin.read_produce
write_fetch = codec_twin.write_fetch
write_produce = codec_twin.write_produce

COMPILED: bool = codec_twin.__name__.endswith("._express")
