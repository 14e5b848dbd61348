"""How the open files that a process may have are divided: connections, files of the log, and everything else.

Called by broker.py when a broker starts in a process of its own. Everything else is the metadata, connections to other
brokers, to ZooKeeper and to whoever reads the metrics, and files that are open for a moment. Connections get what is
left, so that strangers who open as many as they can take none of the others' share.
"""

from __future__ import annotations

from typing import NamedTuple

_MOST_LOG_FILES = 2048
_MOST_OTHERS = 256


class Descriptors(NamedTuple):
    connections: int
    log_files: int
    others: int


def divide(limit: int) -> Descriptors:
    """A quarter, but no more than 256, for everything else; half of the rest, but no more than 2048, for the log."""
    others = min(_MOST_OTHERS, limit // 4)
    log_files = min(_MOST_LOG_FILES, (limit - others) // 2)
    return Descriptors(max(1, limit - others - log_files), log_files, others)
