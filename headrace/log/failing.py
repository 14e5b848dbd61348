"""What a log does when its disk fails, and the errors that its callers then get.

A full disk refuses one write and nothing else, and so does a lack of descriptors or memory (`world.disk.is_lack`): the
call can be repeated. Any other error takes the log offline until the next start: the kernel may have dropped what it
could not write, and a second attempt would report success. Every part of a log asks `passes` which of the two it is.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.disk import NO_ROOM, File, is_lack, what_lacks

if TYPE_CHECKING:
    from headrace.log.tail import LogTail


def passes(error: BaseException | None) -> bool:
    """Whether the same call may succeed later, with nothing lost by then."""
    return is_lack(error) or (isinstance(error, OSError) and error.errno in NO_ROOM)


def write_failed(tail: LogTail, error: OSError | MemoryError) -> KafkaError:
    """What to raise for a write that failed with nothing changed."""
    if not passes(error):
        return interrupted(tail, error)
    if tail.offline is not None:
        return refusal(tail)
    directory = tail.segments[-1].directory
    if is_lack(error):
        return KafkaError(
            ErrorCode.kafka_storage_error, f"{directory.name}: {what_lacks(error)}; nothing was written, try again"
        )
    assert isinstance(error, OSError)
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"no room on disk for {directory.name} ({error.strerror}): nothing was written; free some space in "
        f"{directory.parent}",
    )


def interrupted(tail: LogTail, error: OSError | MemoryError) -> KafkaError:
    """What to raise for a change of several steps that has begun and cannot go on. The log is offline: until the next
    start, or, if the error `passes`, until the change is begun again and finished (truncation.py)."""
    tail.offline = error if isinstance(error, OSError) else OSError(errno.ENOMEM, what_lacks(error))
    return refusal(tail)


def refusal(tail: LogTail) -> KafkaError:
    """What to raise for a log that is offline."""
    name = tail.segments[-1].directory.name
    if passes(tail.offline):
        return KafkaError(ErrorCode.kafka_storage_error, f"{name} is offline: {tail.offline}")
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"{name} is offline after a disk error: {tail.offline}; repair the disk, then restart",
    )


def cut_back(tail: Any, segment: Any, file: File) -> None:
    """Drop what a failed write has left in the active segment, durably: if a new segment is begun before the next
    write, the end of this one is not checked again. If that fails, for whatever reason, the log is offline."""
    try:
        file.truncate(segment.size)
        file.sync()
    except OSError as error:
        tail.offline = error
        raise


def lost_count(tail: Any, error: MemoryError) -> NoReturn:
    """Memory ran out between a write and the notes about it: what is known of the log may not be what its file has.
    The log is offline, and opening it makes both agree again."""
    why = "memory ran out in the middle of an append"
    tail.offline = OSError(errno.ENOMEM, f"{why}; restart the broker", str(tail.segments[-1].directory))
    raise refusal(tail) from error
