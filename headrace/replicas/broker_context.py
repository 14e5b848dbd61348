"""What all partitions of one broker share: who the broker is, who else is alive, and the plugs to other rooms.

Owned by replicas.host, which keeps it in step with the cluster's image; partitions only read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headrace.log.partition_log import PartitionLog
from headrace.model.image import BrokerImage
from headrace.replicas.leadership import IsrStore
from headrace.replicas.throttle import Throttle
from headrace.world.clock import Clock

if TYPE_CHECKING:
    from headrace.replicas.partition import Partition

Sync = Callable[[PartitionLog], "asyncio.Future[None]"]
LeadershipChanged = Callable[[str, int, bool, int], None]  # topic, partition, leads or no longer does, epoch


class Pulls(Protocol):
    """Replication from other leaders: it keeps the partitions that this broker follows in step with theirs."""

    def follow(self, partition: Partition) -> None:
        """Pull from the leader of its state, under the epoch of its state."""
        ...

    def stop(self, partition: Partition) -> None: ...


class Releases(Protocol):
    """What releases delayed records when they are due."""

    def look(self, partition: Partition) -> None:
        """Something may be due earlier than was known."""
        ...

    def forget(self, partition: Partition) -> None:
        """It is led here no longer."""
        ...


def _ignore(topic: str, partition: int, leads: bool, epoch: int) -> None:
    pass


class BrokerContext:
    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        sync: Sync,
        off_loop: Callable[..., Awaitable[Any]],
        *,
        compute: Callable[..., Awaitable[Any]] | None = None,
        lag_s: float = 30.0,
        on_role: LeadershipChanged = _ignore,
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.sync = sync
        self.off_loop = off_loop
        """Runs what waits for the disk, off the event loop."""
        self.compute = compute or off_loop
        """Runs what only computes, likewise."""
        self.broker_epoch: int | None = None
        """Of this start of the broker; None on a broker that stands alone, where nobody else can be elected."""
        self.brokers: Mapping[int, BrokerImage] = {}
        """Those that are alive."""
        self.lag_s = lag_s
        """How long a replica may be behind and still count as in sync."""
        self.isr_writes: IsrStore | None = None
        self.pulls: Pulls | None = None
        self.lease: Callable[[], bool] | None = None
        """Whether this broker may still believe that it leads what it led: False when it has been out of touch for so
        long that others may have been elected."""
        self.releasing: Releases | None = None
        self.on_role = on_role
        self.leader_throttle = Throttle(clock)
        self.follower_throttle = Throttle(clock)

    def in_touch(self) -> bool:
        return self.lease is None or self.lease()
