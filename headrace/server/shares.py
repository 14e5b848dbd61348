"""Share groups on one broker, plugged together: the coordinator of stored states and the way to it, the share
partitions that are led here, and the sessions of their members.

Built and run by the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.share_sessions import ShareSessions
from headrace.coordinators.shares.coordinator import PrunableJournal, ShareCoordinator, Topics
from headrace.model.broker_config import BrokerConfig
from headrace.model.group_config import share_group_config
from headrace.model.image import ClusterImage
from headrace.model.settings_in_force import BrokerFile
from headrace.model.share_state import STATE_TOPIC
from headrace.replicas.share.live_partitions import LivePartitions
from headrace.replicas.share.terms import ShareTerms, terms_of
from headrace.server.peers import Peers
from headrace.server.remote_shares import ShareStateDesk
from headrace.world.world import World

_MOST_TERMS = 10_000  # that are remembered; anybody may name groups


class Shares:
    def __init__(
        self,
        journal: PrunableJournal,
        world: World,
        topics: Topics,
        config: BrokerConfig,
        peers: Peers,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        clock = world.clock
        self.coordinator = ShareCoordinator(
            journal,
            clock,
            topics,
            updates_per_snapshot=config.share_updates_per_snapshot,
            prune_interval_ms=config.share_topic_prune_interval_ms,
        )
        self.states = ShareStateDesk(self.coordinator, topics.image, config.broker_id, peers, ensure_internal_topic)
        self._topics = topics
        self._file = BrokerFile(config.broker_id, config.settings)
        self._terms: dict[str, ShareTerms] = {}
        self._terms_image = topics.image()  # for which those are right
        self.live = LivePartitions(self.states, self._terms_of, clock, world.disk.off_loop)
        self.sessions = ShareSessions(self.live, most_places=config.fetch_session_max_partitions)

    def _terms_of(self, group: str) -> ShareTerms:
        image = self._topics.image()
        if image is not self._terms_image or len(self._terms) > _MOST_TERMS:
            self._terms, self._terms_image = {}, image
        terms = self._terms.get(group)
        if terms is None:
            config = share_group_config(image.group_settings.get(group, {}), self._file.in_force(image))
            terms = self._terms[group] = terms_of(config)
        return terms

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
