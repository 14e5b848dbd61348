"""All logs of one broker: opened at the start, found by topic and partition, kept in order in the background.

Built where the broker is built; `run` lives in the broker's task group and ends by cancellation, `close` follows it.
Appends and reads go to the logs directly. Here is what takes time: opening, flushing, retention, compaction and
removal, all of it off the event loop. Partition folders are `TOPIC-PARTITION`; a deleted one is renamed at once to
`NAME.N.deleted`, so that its topic's name is free, and is removed in the background.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from headrace.log import identity, recovery
from headrace.log.compaction import Compactor
from headrace.log.failing import passes
from headrace.log.files import FilePool
from headrace.log.flushing import Flusher
from headrace.log.folder import mark_clean
from headrace.log.group_commit import GroupCommit
from headrace.log.headroom import Headroom
from headrace.log.indexes import IndexShelf
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerLimits
from headrace.log.segment import Shelf
from headrace.model.broker_config import BY_NAME
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import KafkaError, Malformed
from headrace.world.clock import Clock
from headrace.world.disk import Disk

_log = logging.getLogger(__name__)

T = TypeVar("T")

CLEANER_BACKOFF_MS: int = BY_NAME["log.cleaner.backoff.ms"].default
_AT_ONCE = 64  # logs that one step of background work looks at before the event loop has its turn
_OPENED_AT_ONCE = 32


class Upkeep(Struct, frozen=True):
    """How often the background looks after the logs, and which producers are remembered."""

    flush_ms: int = 1000
    retention_check_ms: int = 5000
    producers: ProducerLimits = ProducerLimits()
    reserve_bytes: int = 0  # of the disk, that records may not take
    open_files: int = 2048  # the most


class Logs:
    def __init__(self, disk: Disk, clock: Clock, folder: Path, upkeep: Upkeep = Upkeep()) -> None:
        self.folder = folder
        self.cleaner_backoff_ms = CLEANER_BACKOFF_MS  # may change while the broker runs
        self._disk = disk
        self._clock = clock
        self._upkeep = upkeep
        self._headroom = Headroom(disk, folder, upkeep.reserve_bytes)
        self._shelf = Shelf(disk, FilePool(disk, upkeep.open_files), IndexShelf(), upkeep.producers, self._headroom)
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._unopened: set[tuple[str, int]] = set()  # at the start, and not since
        self._flusher = Flusher(disk, clock)
        self._commits = GroupCommit(disk, clock)
        self._compactor = Compactor(self._shelf)
        self._uncompactable: set[PartitionLog] = set()
        self._deletions: set[asyncio.Task[None]] = set()
        self._deletion_number = itertools.count()

    def __iter__(self) -> Iterator[tuple[tuple[str, int], PartitionLog]]:
        return iter(list(self._logs.items()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(
        self, wanted: Callable[[str], TopicConfig | None], progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Open every partition folder that is wanted. Others are left alone: unclaimed data is not deleted. One that
        cannot be opened keeps no other from it: `create` tries it again, and says why."""
        names = sorted(self._disk.list_dir(self.folder))
        for name in names:
            if name.endswith(".deleted"):
                self._remove_later(self.folder / name)
        jobs: list[tuple[tuple[str, int], str, TopicConfig]] = []
        for name in names:
            place = identity.parse_folder_name(name)
            if place is None:
                continue
            config = wanted(name)
            if config is None:
                _log.warning("%s belongs to no topic; remove the folder to free its space", self.folder / name)
            else:
                jobs.append((place, name, config))
        now_ms = self._clock.now_ms()
        chunks = [jobs[at : at + _OPENED_AT_ONCE] for at in range(0, len(jobs), _OPENED_AT_ONCE)]
        done = 0
        for finished in asyncio.as_completed([self._disk.off_loop(self._open_some, c, now_ms) for c in chunks]):
            for place, log in await finished:
                done += 1
                if log is None:
                    self._unopened.add(place)
                    continue
                self._logs[place] = log
                if log.offline is not None:
                    _log.error("%s", log.offline)
            if progress is not None:
                progress(done, len(jobs))

    def _open_some(
        self, jobs: list[tuple[tuple[str, int], str, TopicConfig]], now_ms: int
    ) -> list[tuple[tuple[str, int], PartitionLog | None]]:
        opened: list[tuple[tuple[str, int], PartitionLog | None]] = []
        for place, name, config in jobs:
            try:
                opened.append((place, self._open_log(self.folder / name, config, now_ms)))
            except Exception:  # whatever one partition's files do to us
                opened.append((place, None))
        return opened

    def _open_log(self, directory: Path, config: TopicConfig, now_ms: int) -> PartitionLog:
        loaded = recovery.load(self._shelf, directory, config, now_ms)
        log = PartitionLog(self._shelf, loaded, config, self._flusher.unsynced, now_ms)
        log.finish_truncation()
        for gap in log.missing:
            _log.error("%s", gap.told(directory))
        if loaded.scanned_bytes and log.offline is None:
            self._flusher.unsynced.add(log)
            if config.fsync:
                self._sync_opened(log)
        return log

    def _sync_opened(self, log: PartitionLog) -> None:
        """What a client may read on such a topic must be on disk. On a full disk that is what was there before the
        crash, until a later flush succeeds."""
        try:
            log.sync()
        except (OSError, MemoryError) as error:
            if not passes(error):
                raise

    # -- making and removing ------------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """The log of a new partition. Its folder is made for its first records and becomes durable with them.

        A folder of that name is taken up if it is this topic's, and set aside for removal if it is another's. One that
        could not be opened at the start has been found to be this topic's already, and is tried again.
        """
        directory = self.folder / identity.folder_name(topic, partition)
        now_ms = self._clock.now_ms()
        known = (topic, partition) in self._unopened
        if not known and self._disk.exists(directory) and identity.load(self._disk, directory) != topic_id:
            self._set_aside(directory)
        if self._disk.exists(directory):
            log = self._open_log(directory, config, now_ms)
        else:
            unborn = recovery.unborn(self._shelf, directory, topic_id, config, now_ms)
            log = PartitionLog(self._shelf, unborn, config, self._flusher.unsynced, now_ms)
        self._logs[topic, partition] = log
        self._unopened.discard((topic, partition))
        return log

    def delete(self, topic: str, partition: int) -> None:
        """The name is free at once; the files go in the background."""
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return
        self._flusher.forget(log)
        log.abandon()
        if self._disk.exists(log.directory):
            self._set_aside(log.directory)

    def _set_aside(self, directory: Path) -> None:
        target = directory.with_name(f"{directory.name}.{next(self._deletion_number)}.deleted")
        while self._disk.exists(target):
            target = directory.with_name(f"{directory.name}.{next(self._deletion_number)}.deleted")
        self._disk.rename(directory, target)
        self._remove_later(target)

    def _remove_later(self, path: Path) -> None:
        task = asyncio.get_running_loop().create_task(self._remove(path))
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _remove(self, path: Path) -> None:
        await self._disk.off_loop(self._disk.remove_tree, path)
        await self._disk.off_loop(self._disk.sync_dir, self.folder)

    # -- background ---------------------------------------------------------------------------------------------------

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        """Run work on a log that waits for the disk."""
        return await self._disk.off_loop(work, *args)

    def request_sync(self, log: PartitionLog) -> asyncio.Future[None]:
        """Done when everything that the log holds now is on stable storage; see group_commit.py."""
        return self._commits.request(log)

    async def run(self) -> None:
        """Flush every second, look for old segments and for compaction every few; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush_for_ever())
            tasks.create_task(self._trim_for_ever())
            tasks.create_task(self._compact_for_ever())

    async def _flush_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._upkeep.flush_ms / 1000)
            self._headroom.look()
            try:
                await self.flush()
            except MemoryError:
                _log.error("the logs are not flushed: out of memory; trying again")

    async def flush(self) -> None:
        await self._flusher.flush()

    async def _trim_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._upkeep.retention_check_ms / 1000)
            await self.trim()

    async def trim(self) -> None:
        """Roll and drop what is due in every log."""
        now_ms = self._clock.now_ms()
        logs = [log for log in self._logs.values() if log.trimming_due(now_ms)]
        for at in range(0, len(logs), _AT_ONCE):
            await self._disk.off_loop(self._trim_some, logs[at : at + _AT_ONCE], now_ms)

    def _trim_some(self, logs: list[PartitionLog], now_ms: int) -> None:
        for log in logs:
            if log.offline is None:
                try:
                    log.roll_if_due(now_ms)
                    log.apply_retention(now_ms)
                except (OSError, KafkaError, MemoryError) as error:
                    _log.error("cannot apply retention to %s: %s", log.directory, error)

    async def _compact_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self.cleaner_backoff_ms / 1000)
            await self.compact()

    async def compact(self) -> None:
        """Compact every log that needs it, one at a time."""
        for log in [log for log in self._logs.values() if log.config.compacted]:
            if log.offline is not None or log in self._uncompactable:
                continue
            try:
                await self._compactor.compact_if_due(log, self._clock.now_ms())
            except Malformed as error:
                self._uncompactable.add(log)
                _log.error("%s is not compacted any more: %s; check the disk", log.directory, error)
            except (OSError, KafkaError, MemoryError) as error:
                _log.error("cannot compact %s: %s", log.directory, error)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def close(self, broker_epoch: int | None = None) -> None:
        """A clean stop: everything is synced, so that the next start needs no scan. It stores the broker's epoch."""
        await self._commits.drain()
        logs = list(self._logs.values())
        chunks = [logs[at : at + _AT_ONCE] for at in range(0, len(logs), _AT_ONCE)]
        await asyncio.gather(*(self._disk.off_loop(self._close_some, chunk) for chunk in chunks))
        await asyncio.gather(*self._deletions)
        clean = not self._unopened and all(log.closed_cleanly for log in logs)
        self.abandon()
        if clean:
            await self._disk.off_loop(mark_clean, self._disk, self.folder, broker_epoch)

    def abandon(self) -> None:
        """Release everything without writing anything more, as if the process had been killed."""
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()
        self._flusher.forget_all()
        self._shelf.files.close()

    def _close_some(self, logs: list[PartitionLog]) -> None:
        for log in logs:
            try:
                log.close()
            except (OSError, MemoryError) as error:
                _log.error("cannot close %s cleanly: %s", log.directory, error)
