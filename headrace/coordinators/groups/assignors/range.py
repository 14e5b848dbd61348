"""The range assignor: splits each topic into ranges of consecutive partitions, one range per member.

Topics with the same number of partitions and the same subscribers are split at the same places. So a member gets the
same partition numbers of all of them, as joins on a key require. Members are ordered by instance id and then by member
id, so a static member that comes back gets the same range.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from headrace.coordinators.groups.assignors.wishes import Plan, Wish


def assign_range(wishes: Mapping[str, Wish], counts: Mapping[uuid.UUID, int]) -> Plan:
    order = sorted(wishes, key=lambda member: (wishes[member].instance_id or "", member))
    plan: dict[str, dict[uuid.UUID, frozenset[int]]] = {member: {} for member in order}
    for topic_id, count in counts.items():
        takers = [member for member in order if topic_id in wishes[member].topics]
        if not takers:
            continue
        each, more = divmod(count, len(takers))
        start = 0
        for number, member in enumerate(takers):
            end = start + each + (number < more)
            if end > start:
                plan[member][topic_id] = frozenset(range(start, end))
            start = end
    return dict(plan)
