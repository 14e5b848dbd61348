"""A replica's side of a fetch session (KIP-227): all partitions are named once, later only what changed.

Kept by replicas.follower, one for each conversation with a leader. What holds: `asked` is what the leader believes that
we want, so an answer about a partition that is not in it, or that is pulled anew meanwhile, is none of ours.
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
        self._told: dict[Key, tuple[int, int]] = {}  # where our logs start and end
        self.asked: dict[Key, Pulled] = {}

    def restart(self) -> None:
        """Begin anew; the leader forgets what it knew under the same number."""
        self._epoch = 0
        self._told.clear()
        self.asked.clear()

    @property
    def is_open(self) -> bool:
        """The leader remembers what it was asked for."""
        return self._epoch > 0

    def request(self, wanted: Iterable[Pulled], partition_bytes: int) -> Message:
        """The fields of a Fetch that say what is wanted from now on."""
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
        """The same partitions as before, of which only these may have got something."""
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
        """Unless the leader knows already."""
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
        """The leader keeps this session; 0: it keeps none, and has to be told everything each time."""
        self._id = session_id
        if session_id:
            self._epoch += 1
        else:
            self.restart()

    def mention_again(self, key: Key) -> None:
        """What came of this partition was of no use: without being asked the leader would not send it again."""
        self._told.pop(key, None)

    def pulled(self, key: Key) -> Pulled | None:
        return self.asked.get(key)
