"""What is stored of a share partition: one partition of a topic, as one share group works through it.

The leader of the partition keeps who holds which record in memory. What must outlive it is one `ShareState`, kept by
the share coordinator in `__share_group_state`. `ShareStates` is the way there, from any broker.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from msgspec import Struct

STATE_TOPIC = "__share_group_state"
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
"""The numbers that Kafka's state batches have; a record that somebody holds is stored as available."""
NO_START = -1
"""The start offset of a share partition whose leader has not chosen one yet."""


class SharePartition(Struct, frozen=True):
    group: str
    topic_id: UUID
    partition: int


class StateBatch(Struct, frozen=True):
    """Records of the same state, both ends included."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class ShareState(Struct, frozen=True):
    state_epoch: int
    """Raised by each initialization; who writes with an older one is fenced."""
    leader_epoch: int
    start_offset: int
    """Everything before it is done with."""
    delivery_complete_count: int = -1
    """Of the records from the start on, how many are done with; -1: not known."""
    batches: tuple[StateBatch, ...] = ()


class ShareStates(Protocol):
    """Every method raises a KafkaError if the coordinator refuses or cannot be reached."""

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None: ...

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState: ...

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        """`state.batches` are what has changed; batches before the start offset are forgotten."""
        ...

    async def delete(self, partition: SharePartition) -> None: ...

    async def summary(self, partition: SharePartition) -> ShareState:
        """Without batches; reading it fences nobody."""
        ...
