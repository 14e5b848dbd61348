"""What a log does when its disk fails, and the errors that its callers then get.

A full disk refuses one write and nothing else. Any other error takes the log offline until the next start: the kernel
may have dropped what it could not write, and a second attempt would report success. Used by every part of a log.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.disk import File

if TYPE_CHECKING:
    from headrace.log.tail import LogTail

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_failed(tail: LogTail, error: OSError) -> KafkaError:
    """What to raise for a write that failed with nothing changed."""
    if error.errno not in NO_ROOM:
        tail.offline = error
        return refusal(tail)
    directory = tail.segments[-1].directory
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"no room on disk for {directory.name} ({error.strerror}): nothing was written; free some space in "
        f"{directory.parent}",
    )


def refusal(tail: LogTail) -> KafkaError:
    """What to raise for a log that is offline."""
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"{tail.segments[-1].directory.name} is offline after a disk error: {tail.offline}; repair the disk, then "
        f"restart",
    )


def cut_back(tail: Any, segment: Any, file: File) -> None:
    """Drop what a failed write has left in the active segment, durably: if a new segment is begun before the next
    write, the end of this one is not checked again."""
    file.truncate(segment.size)
    try:
        file.sync()
    except OSError as error:
        tail.offline = error
        raise
