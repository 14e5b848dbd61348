"""Folders of partitions that are no longer this broker's: set aside when it joins its cluster, and removed later.

While a broker is away, a partition may be moved to others, or its topic be deleted; nobody can tell the broker then.
When it comes back and has read everything that is stored of its cluster, what it has on disk and has no replica of is
renamed to `NAME.N.stray`, and the log says so. A stray is of no use to anybody, except to a person who sees that a
mistake was made: so it is kept for a while, counted from each start of the broker.

Called where a broker of a cluster is built. One that stands alone has no strays: its metadata lie beside its data, and
if they lack a topic, the data may be all that is left of it. What holds: the topic's id decides, not its name; and what
does not say whose it is, under a name that nobody knows, is left alone.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable
from pathlib import Path

from headrace.log import identity
from headrace.model.failure import Failure
from headrace.model.image import ClusterImage
from headrace.world.clock import Clock
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

SUFFIX = ".stray"

IsStray = Callable[[str, int, uuid.UUID], bool]  # topic, partition, and the topic's id as the folder says it


def is_stray(image: ClusterImage, broker_id: int, topic: str, partition: int, topic_id: uuid.UUID) -> bool:
    """Whether this broker has no replica of what is in such a folder. `image` shows everything that is stored."""
    known = image.topics.get(topic)
    if topic_id == identity.UNKNOWN and known is None:
        return False
    if known is None or topic_id not in (known.id, identity.UNKNOWN):
        return True
    state = image.partition(topic, partition)
    return state is None or broker_id not in state.replicas


class Strays:
    """`set_aside` before the logs are opened; then `run`."""

    def __init__(self, disk: Disk, clock: Clock, folder: Path, delay_s: float) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._delay_s = delay_s
        self._found: list[str] = []

    def set_aside(self, stray: IsStray) -> None:
        """Rename every folder that is a stray. Blocks."""
        names = set(self._disk.list_dir(self._folder))
        self._found = sorted(name for name in names if name.endswith(SUFFIX))
        renamed = [aside for name in sorted(names) if (aside := self._renamed(name, names, stray)) is not None]
        if renamed:
            self._disk.sync_dir(self._folder)
        self._found += renamed

    def _renamed(self, name: str, taken: set[str], stray: IsStray) -> str | None:
        place = identity.parse_folder_name(name)
        if place is None or not stray(*place, self._topic_id(name)):
            return None
        aside = next(free for n in itertools.count() if (free := f"{name}.{n}{SUFFIX}") not in taken)
        try:
            self._disk.rename(self._folder / name, self._folder / aside)
        except OSError as error:
            logger.warning("%s is not this broker's any more and cannot be set aside: %s", self._folder / name, error)
            return None
        logger.warning(
            "%s is not this broker's any more (moved or deleted while it was away): renamed to %s, to be removed in "
            "%d s",
            self._folder / name, aside, self._delay_s,
        )  # fmt: skip
        return aside

    def _topic_id(self, name: str) -> uuid.UUID:
        try:
            return identity.load(self._disk, self._folder / name)
        except (OSError, Failure):  # whoever opens it says why
            return identity.UNKNOWN

    async def run(self) -> None:
        """Wait, and remove what was found at this start."""
        if not self._found:
            return
        await self._clock.sleep(self._delay_s)
        for name in self._found:
            await self._disk.off_loop(self._disk.remove_tree, self._folder / name)
            logger.info("removed %s", self._folder / name)
        await self._disk.off_loop(self._disk.sync_dir, self._folder)
