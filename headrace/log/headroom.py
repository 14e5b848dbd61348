"""Room on the disk that records may not take, so that a broker never fills its own disk to the last byte.

Shared by all logs of a broker, through the `Shelf`; `logs.py` looks at the disk every second. What clients produce, and
what followers copy of it, is refused while less than the reserve is free. What keeps the broker alive and its promises
kept may use the reserve: checkpoints, leader epochs, the state of groups and transactions, ends of transactions, and
everything that is written at a start and at a stop. Deletions and retention go on, and free the disk.

What holds: between two checks every admitted byte is counted, so that a burst cannot exceed the reserve; and nothing is
refused without checking the disk at that moment. So records are accepted again with the first write after there is room
for the reserve and a little more, which avoids alternating between the two.
"""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

_LARGEST_SHARE = 100  # the reserve is at most this part of the disk
_CALM = 8  # this part of the reserve must be free beside it until records are taken again


class Headroom:
    def __init__(self, disk: Disk, folder: Path, reserve_bytes: int) -> None:
        """0: nothing is reserved."""
        self._disk = disk
        self._folder = folder
        self._asked_bytes = reserve_bytes
        self._reserve_bytes = 0
        self._room_bytes = 0  # what may still be taken before the next look
        self._free_bytes = 0
        self.is_short = False

    def look(self) -> None:
        """How much is there now? One call of the system, which does not wait for the disk."""
        if not self._asked_bytes:
            return
        try:
            self._reserve_bytes = min(self._asked_bytes, self._disk.total_bytes(self._folder) // _LARGEST_SHARE)
            self._free_bytes = self._disk.free_bytes(self._folder)
        except OSError:
            return  # a disk that cannot even say that will fail the next write, which says why
        self._room_bytes = self._free_bytes - self._reserve_bytes
        if self.is_short and self._room_bytes >= self._reserve_bytes // _CALM:
            self.is_short = False
            logger.info("there is room in %s again (%d bytes): records are taken", self._folder, self._free_bytes)

    def take(self, size: int) -> None:
        """Before that many bytes of records are written; KafkaError, and nothing happens, if they would not fit."""
        if not self._asked_bytes:
            return
        if self.is_short or self._room_bytes < size:
            self.look()
            if self.is_short or self._room_bytes < size:
                raise self._refusal()
        self._room_bytes -= size

    def _refusal(self) -> KafkaError:
        why = (
            f"only {self._free_bytes} bytes are free in {self._folder}, and {self._reserve_bytes} are kept for the "
            f"broker itself (headrace.disk.reserve.bytes): nothing was written; free some space"
        )
        if not self.is_short:
            self.is_short = True
            logger.warning("records are refused: %s", why)
        return KafkaError(ErrorCode.kafka_storage_error, why)
