"""The share partitions that are worked on at this broker, by group, topic id and partition.

One begins when a member of its group first fetches from a partition that is led here. It ends with the leadership, or
when the group's last session here is over and nothing is in flight, so that a state that is reset while a group has no
members is read anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from headrace.model.share_state import SharePartition, ShareStates
from headrace.replicas.partition import Partition
from headrace.replicas.share.live_partition import LivePartition, OffLoop
from headrace.replicas.share.terms import TermsOf
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock


class LivePartitions:
    def __init__(self, states: ShareStates, terms_of: TermsOf, clock: Clock, off_loop: OffLoop) -> None:
        self.terms_of = terms_of
        self._states = states
        self._clock = clock
        self._off_loop = off_loop
        self._live: dict[SharePartition, LivePartition] = {}

    def __iter__(self) -> Iterator[LivePartition]:
        return iter(self._live.values())

    def find(self, group: str, topic_id: uuid.UUID, index: int) -> LivePartition | None:
        return self._live.get(SharePartition(group, topic_id, index))

    def open(self, group: str, partition: Partition) -> LivePartition:
        """The one of this group, of the partition's leader epoch; a new one if need be."""
        key = SharePartition(group, partition.topic_id, partition.index)
        live = self._live.get(key)
        if live is not None and live.closed is None:
            same = live.partition is partition and live.leader_epoch == partition.leader_epoch
            if same and not (live.is_left and live.is_idle):
                live.is_left = False
                return live
            live.close(KafkaError(ErrorCode.not_leader_or_follower, f"{live} begins anew"))
        live = self._live[key] = LivePartition(key, partition, self._states, self.terms_of, self._clock, self._off_loop)
        return live

    def on_leadership(self, topic: str, index: int, leads: bool, epoch: int) -> None:
        """This broker became, or ceased to be, the leader of a partition."""
        for key, live in list(self._live.items()):
            place = live.partition.topic, live.partition.index
            if place == (topic, index) and not (leads and epoch == live.leader_epoch):
                del self._live[key]
                live.close(KafkaError(ErrorCode.not_leader_or_follower, f"{live} is led elsewhere"))

    def group_left(self, group: str) -> None:
        """It has no session here any more."""
        for key, live in list(self._live.items()):
            if key.group != group:
                continue
            live.is_left = True
            if live.is_idle:
                del self._live[key]
                live.close(KafkaError(ErrorCode.not_leader_or_follower, f"nobody works on {live}"))

    def close(self) -> None:
        for live in list(self._live.values()):
            live.close(KafkaError(ErrorCode.not_leader_or_follower, "this broker is stopping"))
        self._live.clear()
