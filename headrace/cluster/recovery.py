"""Partitions that no replica may lead: asks the live replicas for the ends of their logs, and elects the longest log.

This happens when all last members of the ISR are back but none can be trusted, and where unclean elections are allowed
or requested. Called by cluster.tending and cluster.controller. Invariant: the answers are used only for the state of
the partition for which they were requested; if it changed in the meantime, the store rejects the write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.cluster import election
from headrace.cluster.change import Change, change_partition
from headrace.cluster.election import LogEnd
from headrace.cluster.partition_requests import known_partition
from headrace.model.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class LogEnds(Protocol):
    async def ask(self, broker: BrokerImage, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """The log ends on that broker. Partitions without an answer in time are left out."""
        ...


class Recovery:
    def __init__(self, log_ends: LogEnds | None) -> None:
        self._log_ends = log_ends
        self.unclean_elections = 0  # since this broker was started

    async def ends(
        self, image: ClusterImage, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Mapping[int, LogEnd]]:
        """The log ends by partition and broker; all live replicas are asked in parallel."""
        found: dict[TopicPartition, dict[int, LogEnd]] = {place: {} for place in places}
        if self._log_ends is None:
            return found
        by_broker: dict[int, list[TopicPartition]] = {}
        for place in places:
            partition = image.partition(*place)
            for broker in () if partition is None else partition.replicas:
                if broker in image.brokers:
                    by_broker.setdefault(broker, []).append(place)
        answers = await asyncio.gather(
            *(self._log_ends.ask(image.brokers[broker], asked) for broker, asked in by_broker.items())
        )
        for broker, answer in zip(by_broker, answers, strict=True):
            for place, end in answer.items():
                found[place][broker] = end
        return found

    def check(self, image: ClusterImage, place: TopicPartition, *, unclean: bool) -> PartitionImage:
        """The partition, if such an election is possible; KafkaError if it does not exist or needs no election."""
        partition = known_partition(image, *place)
        if partition.leader != NO_LEADER:
            raise KafkaError(ErrorCode.election_not_needed, f"{place} is led by broker {partition.leader}")
        if not election.can_recover(partition, image.brokers, unclean=unclean):
            raise KafkaError(ErrorCode.eligible_leaders_not_available, f"{place} waits for replicas that are not alive")
        return partition

    def plan(
        self,
        image: ClusterImage,
        place: TopicPartition,
        ends: Mapping[int, LogEnd],
        controller_epoch: int,
        *,
        unclean: bool,
    ) -> Change[PartitionImage]:
        """KafkaError if there is no leader to elect, or no need to."""
        partition = self.check(image, place, unclean=unclean)
        elected = election.recover(partition, ends, image.brokers, unclean=unclean)
        if elected is None:
            raise KafkaError(
                ErrorCode.eligible_leaders_not_available,
                f"not all live replicas of {place} said how long their logs are; try again",
            )
        return change_partition(image, place.topic, elected, controller_epoch)

    def tell(self, topic: str, elected: PartitionImage, ends: Mapping[int, LogEnd]) -> None:
        """Count and log what was stored."""
        lengths = ", ".join(f"broker {broker}: offset {end} of epoch {epoch}" for broker, (epoch, end) in ends.items())
        if elected.recovering:
            self.unclean_elections += 1
            logger.warning(
                "unclean election: broker %d leads %s-%d and may lack acknowledged records (log ends: %s)",
                elected.leader, topic, elected.index, lengths,
            )  # fmt: skip
        else:
            logger.info("broker %d has the longest log of %s-%d and leads it (%s)",
                        elected.leader, topic, elected.index, lengths)  # fmt: skip
