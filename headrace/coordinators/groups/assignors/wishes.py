"""What an assignor is: a pure function from the members' wishes and the sizes of topics to a plan.

The plan gives every partition of every topic that somebody wants to exactly one member who wants it. The broker runs
the assignor (KIP-848); members name the one they prefer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import Parts


class Wish(Struct, frozen=True):
    """What one member wants, and what the last plan gave it."""

    topics: frozenset[uuid.UUID]
    has: Parts
    instance_id: str | None = None


Plan = dict[str, Parts]  # by member
Assignor = Callable[[Mapping[str, Wish], Mapping[uuid.UUID, int]], Plan]  # wishes by member, partition counts
