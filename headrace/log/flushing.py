"""The flush of every second: many logs synced together, and which of them get a checkpoint with it.

A thread that syncs one log after the other takes the interpreter lock back after each of them, and delays the event
loop, which serves the requests, each time. Here the files of several logs are synced in one call (`Disk.sync_files`),
and the rest is done for all of them after that.

A checkpoint bounds what is scanned after a crash. It costs a dozen small calls, so a log with little traffic gets one
rarely: a few of the logs that have waited longest, and more if too much would have to be scanned in all.

Owned by logs.py. Only its threads take the sync lock of a log while they hold another's, so there is no deadlock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from headrace.log.durability import Syncing
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.world.clock import Clock
from headrace.world.disk import Disk, File, is_lack, what_lacks

_log = logging.getLogger(__name__)

CHECKPOINT_S = 10.0  # that long a log goes without one, at the least
CHECKPOINTS_AT_ONCE = 16
MOST_SCAN_BYTES = 256 << 20  # of all logs, after a crash
_PER_STEP = 64  # logs in one turn of a thread
_TOGETHER = 16  # logs in one call: a client that waits for one of them waits for all

Problems = dict[PartitionLog, OSError | MemoryError]


class Flusher:
    def __init__(self, disk: Disk, clock: Clock) -> None:
        self.unsynced: set[PartitionLog] = set()  # a log adds itself with each write, and a sync removes it
        self._disk = disk
        self._clock = clock
        self._behind: dict[PartitionLog, float] = {}  # without a checkpoint, and since when; the oldest first
        self._put_off: dict[PartitionLog, OSError | MemoryError] = {}  # in this flush, for a lack
        self._lacks = False  # as of the last flush

    def forget(self, log: PartitionLog) -> None:
        self.unsynced.discard(log)
        self._behind.pop(log, None)

    def forget_all(self) -> None:
        self.unsynced.clear()
        self._behind.clear()

    async def flush(self) -> None:
        """Sync what is not."""
        now_s = self._clock.monotonic()
        for log in sorted(self.unsynced, key=_by_name):
            self._behind.setdefault(log, now_s)
        checkpoints = to_checkpoint(self._behind, now_s)
        for log in checkpoints:
            del self._behind[log]
        logs = sorted(self.unsynced.union(checkpoints), key=_by_name)
        halves = [half for half in (logs[0::2], logs[1::2]) if half]  # leave threads for those who read
        self._put_off.clear()
        await asyncio.gather(*(self._flush(half, checkpoints) for half in halves))
        self._tell_lack()

    def _tell_lack(self) -> None:
        """One line when it begins and one when it is over, for any number of logs."""
        put_off, lacked = self._put_off, self._lacks
        self._lacks = bool(put_off)
        if put_off and not lacked:
            log, error = next(iter(put_off.items()))
            _log.warning(
                "cannot flush %s and %d other logs now: %s; trying again every second",
                log.directory, len(put_off) - 1, what_lacks(error),
            )  # fmt: skip
        elif lacked and not put_off:
            _log.info("all logs are flushed again")

    async def _flush(self, logs: Sequence[PartitionLog], checkpoints: set[PartitionLog]) -> None:
        for at in range(0, len(logs), _PER_STEP):
            await self._disk.off_loop(self._sync, logs[at : at + _PER_STEP], checkpoints)

    def _sync(self, logs: Sequence[PartitionLog], checkpoints: set[PartitionLog]) -> None:
        healthy = [log for log in logs if log.offline is None]
        for log, error in sync_all(self._disk, healthy, checkpoints).items():
            if is_lack(error) and log.offline is None:
                self._put_off[log] = error
            elif not log.abandoned:  # else its topic was deleted meanwhile
                _log.error("cannot flush %s: %s", log.directory, error)


def _by_name(log: PartitionLog) -> str:
    return log.directory.name


def to_checkpoint(behind: Mapping[PartitionLog, float], now_s: float) -> set[PartitionLog]:
    """Those that have gone without for longest, and as many of the largest as have too much to scan together."""
    old = [log for log, since_s in behind.items() if now_s - since_s >= CHECKPOINT_S]
    chosen = set(old[:CHECKPOINTS_AT_ONCE])
    rest = sorted((log for log in behind if log not in chosen), key=lambda log: log.bytes_since_checkpoint)
    scan_bytes = sum(log.bytes_since_checkpoint for log in rest)
    while scan_bytes > MOST_SCAN_BYTES:
        largest = rest.pop()
        scan_bytes -= largest.bytes_since_checkpoint
        chosen.add(largest)
    return chosen


def sync_all(disk: Disk, logs: Sequence[PartitionLog], checkpoints: set[PartitionLog]) -> Problems:
    """Sync these logs, some of them with a checkpoint; tells which could not be, and why. Blocks."""
    problems: Problems = {}
    together = [log for log in logs if not log.config.fsync]
    for at in range(0, len(together), _TOGETHER):
        _sync_together(disk, together[at : at + _TOGETHER], checkpoints, problems)
    for log in logs:
        if log.config.fsync:  # somebody may wait for just this one
            with _noted(problems, log):
                log.sync(checkpoint=log in checkpoints)
    return problems


def _sync_together(
    disk: Disk, logs: Sequence[PartitionLog], checkpoints: set[PartitionLog], problems: Problems
) -> None:
    begun: list[tuple[PartitionLog, Syncing]] = []
    places: list[tuple[PartitionLog, Syncing, Segment]] = []
    files: list[File] = []
    with ExitStack() as held:
        for log in logs:
            with _noted(problems, log):
                due = held.enter_context(log.syncing(checkpoint=log in checkpoints))
                begun.append((log, due))
                for segment in due.segments:
                    try:
                        files.append(held.enter_context(segment.file))
                        places.append((log, due, segment))
                    except (OSError, MemoryError) as error:
                        log.sync_failed(due, segment, error)
        for (log, due, segment), problem in zip(places, _synced(disk, files), strict=True):
            if problem is not None:
                with _noted(problems, log):
                    log.sync_failed(due, segment, problem)
        for log, due in begun:
            if log not in problems:
                with _noted(problems, log):
                    log.end_sync(due)


def _synced(disk: Disk, files: Sequence[File]) -> Sequence[OSError | MemoryError | None]:
    try:
        return disk.sync_files(files)
    except MemoryError as error:
        return [error] * len(files)


@contextmanager
def _noted(problems: Problems, log: PartitionLog) -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError) as error:
        problems[log] = error
