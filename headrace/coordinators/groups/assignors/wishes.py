"""The interface of an assignor: a pure function from the members' subscriptions and the sizes of topics to an
assignment.

The result assigns every partition of every subscribed topic to exactly one of its subscribers. The broker runs the
assignor (KIP-848); members name the one they prefer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import Parts


class Wish(Struct, frozen=True):
    """What one member subscribes to, and what the last assignment gave it."""

    topics: frozenset[uuid.UUID]
    has: Parts
    instance_id: str | None = None


Plan = dict[str, Parts]  # by member
Assignor = Callable[[Mapping[str, Wish], Mapping[uuid.UUID, int]], Plan]  # wishes by member, partition counts
