"""Group commit: one sync per log at a time, shared by everybody who asked before it started.

Called through logs.py for topics with headrace.flush=fsync. A request that arrives during a sync waits for the
next one, because the running one may have started before the records of the request were written.If the disk
is full, or descriptors or memory are lacking, the sync is tried again until it can be done: those who wait for it lose
nothing but time.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.log.failing import passes
from headrace.log.partition_log import PartitionLog
from headrace.world.clock import Clock
from headrace.world.disk import Disk, what_lacks

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0


class GroupCommit:
    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._draining = False
        self._waiting: dict[PartitionLog, asyncio.Future[None]] = {}  # the future of the sync that has not started
        self._running: dict[PartitionLog, asyncio.Task[None]] = {}

    def request(self, log: PartitionLog) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if log.synced_offset >= log.end_offset:
            done: asyncio.Future[None] = loop.create_future()
            done.set_result(None)
            return done
        waiting = self._waiting.get(log)
        if waiting is None:
            waiting = self._waiting[log] = loop.create_future()
            if log not in self._running:
                self._running[log] = loop.create_task(self._serve(log))
        return waiting

    async def _serve(self, log: PartitionLog) -> None:
        try:
            while log in self._waiting:
                waiting = self._waiting.pop(log)
                try:
                    await self._sync(log)
                except (OSError, MemoryError) as error:
                    if not waiting.done():
                        waiting.set_exception(error)
                        waiting.exception()  # asyncio would log an exception that nobody retrieves
                else:
                    if not waiting.done():
                        waiting.set_result(None)
        finally:
            del self._running[log]

    async def _sync(self, log: PartitionLog) -> None:
        said = False
        while True:
            try:
                return await self._disk.off_loop(log.sync)
            except (OSError, MemoryError) as error:
                if not passes(error) or log.offline is not None or self._draining:
                    raise
                if not said:
                    _log.warning("cannot sync %s now: %s; trying again", log.directory, what_lacks(error))
                    said = True
            await self._clock.sleep(_AGAIN_S)

    async def drain(self) -> None:
        """Returns when no sync is under way; what cannot be synced then is not waited for."""
        self._draining = True
        await asyncio.gather(*self._running.values())
