"""Share groups on one broker, plugged together: the coordinator of stored states and the way to it, the share
partitions that are led here, and the sessions of their members.

Built and run by the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.share_sessions import ShareSessions
from headrace.coordinators.shares.coordinator import PrunableJournal, ShareCoordinator, Topics
from headrace.model.broker_config import BrokerConfig
from headrace.model.image import ClusterImage
from headrace.model.share_state import STATE_TOPIC
from headrace.replicas.share.live_partition import OffLoop
from headrace.replicas.share.live_partitions import LivePartitions
from headrace.replicas.share.terms import default_terms
from headrace.server.peers import Peers
from headrace.server.remote_shares import ShareStateDesk
from headrace.world.clock import Clock


class Shares:
    def __init__(
        self,
        journal: PrunableJournal,
        clock: Clock,
        topics: Topics,
        config: BrokerConfig,
        peers: Peers,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        off_loop: OffLoop,
    ) -> None:
        self.coordinator = ShareCoordinator(
            journal,
            clock,
            topics,
            updates_per_snapshot=config.share_updates_per_snapshot,
            prune_interval_ms=config.share_topic_prune_interval_ms,
        )
        self.states = ShareStateDesk(self.coordinator, topics.image, config.broker_id, peers, ensure_internal_topic)
        self.live = LivePartitions(self.states, default_terms, clock, off_loop)
        self.sessions = ShareSessions(self.live)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.coordinator.run()
        finally:
            self.live.close()

    def on_leadership(self, topic: str, partition: int, leads: bool, epoch: int) -> None:
        """This broker became, or ceased to be, the leader of a partition."""
        self.live.on_leadership(topic, partition, leads, epoch)
        if topic == STATE_TOPIC:
            self.coordinator.on_leadership(partition, leads, epoch)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        for topic_id in old.topics_by_id.keys() - new.topics_by_id.keys():
            self.coordinator.on_topic_deleted(topic_id)
