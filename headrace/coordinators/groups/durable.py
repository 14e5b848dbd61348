"""The durable state of a groups shard: committed offsets and the last written generation of each group.

Nothing but `apply` changes it, with records that the journal has; so it is the same after a crash, on another broker,
and in the property test that compares the two. The shard's decisions read it.
"""

from __future__ import annotations

import logging

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.coordinators.groups.records import (
    OffsetKey,
    StoredGroup,
    read_group,
    read_key,
    read_offset,
)
from headrace.wire.errors import Malformed

logger = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], CommittedOffset]  # by (topic, partition)


class DurableGroups:
    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[str, Offsets] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        try:
            self._apply(key, value)
        except Malformed as error:
            # One record that a newer version wrote must not cost the group all the others.
            logger.warning("skipped: %s", error)

    def _apply(self, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        if isinstance(what, OffsetKey):
            place = (what.topic, what.partition)
            if value is not None:
                self.offsets.setdefault(what.group_id, {})[place] = read_offset(value)
            elif what.group_id in self.offsets:
                self.offsets[what.group_id].pop(place, None)
                if not self.offsets[what.group_id]:
                    del self.offsets[what.group_id]
        elif value is not None:
            self.groups[what.group_id] = read_group(value)
        else:
            self.groups.pop(what.group_id, None)

    def names(self) -> list[str]:
        """Every group that has left a trace, in the order of the first one."""
        return list(dict.fromkeys([*self.groups, *self.offsets]))

    def has(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets

    def offsets_of(self, group_id: str) -> Offsets:
        return self.offsets.get(group_id, {})
