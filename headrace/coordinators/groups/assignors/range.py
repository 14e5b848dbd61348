"""The range assignor: each topic is cut into runs of neighbouring partitions, one run per member.

Topics with equally many partitions and the same subscribers are cut in the same places, so a member has the same
partition numbers of all of them: what joins on a key needs. Members stand in the order of their instance ids, then of
their member ids, so a static member that comes back gets the same run.
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
