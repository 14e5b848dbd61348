"""Creates the internal topics of the coordinators when a coordinator is first requested.

Called by handlers, through the broker that builds them. Invariant: concurrent callers wait for the same creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.api.metadata import TopicMaker
from headrace.cluster.topic_changes import NewTopic
from headrace.model.broker_config import BrokerConfig
from headrace.model.image import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ClusterImage, TopicImage
from headrace.model.share_state import STATE_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError


class InternalTopics:
    def __init__(self, maker: TopicMaker, image: Callable[[], ClusterImage], config: BrokerConfig) -> None:
        self._maker = maker
        self._image = image
        self._sizes = {
            GROUP_OFFSETS_TOPIC: (config.offsets_topic_partitions, config.offsets_topic_segment_bytes),
            TRANSACTION_STATE_TOPIC: (config.transaction_topic_partitions, config.transaction_topic_segment_bytes),
            STATE_TOPIC: (config.share_topic_partitions, config.share_topic_segment_bytes),
        }
        self._opening: dict[str, asyncio.Future[TopicImage]] = {}

    async def ensure(self, name: str) -> None:
        if name in self._image().topics:
            return
        opening = self._opening.get(name)
        if opening is None or opening.done():
            opening = self._opening[name] = self._maker.create_topic(self._new(name))
        try:
            await asyncio.shield(opening)
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    def _new(self, name: str) -> NewTopic:
        partitions, segment_bytes = self._sizes[name]
        settings = {"compression.type": "producer", "segment.bytes": str(segment_bytes)}
        # Updates of a share partition add up, so the latest record of a key is not enough; the coordinator prunes.
        pruned = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        settings |= pruned if name == STATE_TOPIC else {"cleanup.policy": "compact"}
        return NewTopic(name, partitions, -1, None, settings)
