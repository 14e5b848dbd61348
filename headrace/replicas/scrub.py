"""The daily check of everything that is stored: a batch that is damaged on disk is found before it is needed.

Runs in the broker's task group over all partitions, a mebibyte at a time and at a limited rate, once a day. Damage is
logged and counted. A follower that is not needed for the commits of its partition then repairs its copy: it reports to
its leader only what lies before the damage, waits until it is stored that it is out of sync, truncates the log there
and pulls the rest again (pulling.py). A leader resigns, if enough others are in sync, and becomes such a follower.
"""

from __future__ import annotations

import logging

from headrace.log.scrubbing import PIECE_BYTES, scrub
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock
from headrace.world.disk import is_lack

logger = logging.getLogger(__name__)

PASS_S = 24 * 3600.0
_AGAIN_S = 10.0  # after a lack of descriptors or memory


class Scrub:
    def __init__(self, host: ReplicaHost, clock: Clock, bytes_per_s: int) -> None:
        self.bytes_read = 0
        self.damages = 0
        self._host = host
        self._clock = clock
        self._pause_s = PIECE_BYTES / bytes_per_s if bytes_per_s else None

    async def run(self) -> None:
        """Until cancelled."""
        while self._pause_s is not None:
            await self._clock.sleep(PASS_S)
            await self.look_at_everything()

    async def look_at_everything(self) -> None:
        for partition in list(self._host.partitions()):
            await self.look_at(partition)

    async def look_at(self, partition: Partition) -> None:
        offset = partition.log.start_offset
        while not partition.log.offline:
            try:
                found = await self._host.off_loop(scrub, partition.log, offset)
            except KafkaError:  # the log was cut or closed meanwhile
                return
            except (OSError, MemoryError) as error:
                if not is_lack(error):
                    raise
                await self._clock.sleep(_AGAIN_S)
                continue
            self.bytes_read += found.size
            if found.damaged_at is not None:
                self.damages += 1
                logger.error(
                    "%s: the batch at offset %d is damaged on disk, in %s; check the disk",
                    partition, found.damaged_at, partition.log.directory,
                )  # fmt: skip
                partition.found_damage(found.damaged_at)
                return
            if not found.size:
                return
            offset = found.next_offset
            await self._clock.sleep(self._pause_s or 0.0)
