"""The follower's side of a fetch session (KIP-227): all partitions are named once, later only what changed.

Owned by replicas.follower, one for each conversation with a leader; the leader's side is `ReplicaSession` in
api/replica_fetch.py. Invariant: `asked` is what the leader has been asked for, so a response about a partition that is
not in it, or that is pulled under a new epoch by now, is ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from headrace.replicas.pulling import Pulled
from headrace.wire.messages import Message

Key = tuple[uuid.UUID, int]


class PullSession:
    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._told: dict[Key, tuple[int, int]] = {}  # where the log starts and ends, as sent
        self.asked: dict[Key, Pulled] = {}

    def restart(self) -> None:
        """Open a new session; the leader then drops the old one."""
        self._epoch = 0
        self._told.clear()
        self.asked.clear()

    @property
    def is_open(self) -> bool:
        """The leader keeps this session, so only changes need to be sent."""
        return self._epoch > 0

    def request(self, wanted: Iterable[Pulled], partition_bytes: int) -> Message:
        """The fields of a Fetch that name the partitions wanted from now on."""
        current = {(pulled.partition.topic_id, pulled.partition.index): pulled for pulled in wanted}
        topics: dict[uuid.UUID, Message] = {}
        for key, pulled in current.items():
            self._mention(topics, key, pulled, partition_bytes, known=self.asked.get(key) is pulled)
        forgotten: dict[uuid.UUID, list[int]] = {}
        for topic_id, index in self.asked.keys() - current.keys():
            forgotten.setdefault(topic_id, []).append(index)
            self._told.pop((topic_id, index), None)
        self.asked = current
        return Message(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[Message(topic_id=key, partitions=found) for key, found in forgotten.items()],
        )

    def request_more(self, changed: Iterable[Pulled], partition_bytes: int) -> Message:
        """The same partitions as before; only the log ends of these may have changed."""
        topics: dict[uuid.UUID, Message] = {}
        for pulled in changed:
            key = (pulled.partition.topic_id, pulled.partition.index)
            self._mention(topics, key, pulled, partition_bytes, known=True)
        return Message(
            session_id=self._id, session_epoch=self._epoch, topics=list(topics.values()), forgotten_topics_data=[]
        )

    def _mention(
        self, topics: dict[uuid.UUID, Message], key: Key, pulled: Pulled, partition_bytes: int, *, known: bool
    ) -> None:
        """Add the partition to the request, unless the leader knows its log start and end already."""
        extent = (pulled.log.start_offset, pulled.offset)
        if known and self._told.get(key) == extent:
            return
        self._told[key] = extent
        topic = topics.get(key[0])
        if topic is None:
            topic = topics[key[0]] = Message(topic_id=key[0], topic=pulled.partition.topic, partitions=[])
        topic.partitions.append(
            Message(
                partition=key[1],
                current_leader_epoch=pulled.epoch,
                fetch_offset=extent[1],
                last_fetched_epoch=-1,
                log_start_offset=extent[0],
                partition_max_bytes=partition_bytes,
            )
        )

    def answered(self, session_id: int) -> None:
        """The leader keeps this session. With 0 it keeps none, and every request must name everything."""
        self._id = session_id
        if session_id:
            self._epoch += 1
        else:
            self.restart()

    def mention_again(self, key: Key) -> None:
        """Its records could not be stored: the leader sends them again only if the partition is named again."""
        self._told.pop(key, None)

    def pulled(self, key: Key) -> Pulled | None:
        return self.asked.get(key)
