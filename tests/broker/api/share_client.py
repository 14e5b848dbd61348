"""A member of a share group made of single requests, against a real broker; no group membership is needed for these."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.wire.records import Record, encode_batch, iterate
from tests.raw_client import RawClient

GROUP, TOPIC = "cooks", "orders"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Range = tuple[int, int, int]


class ShareClient(RawClient):
    def __init__(self, port: int, member: str = "ann", *, version: int = 2, group: str = GROUP) -> None:
        super().__init__(port)
        self.group, self.member, self.version = group, member, version
        self.epoch = 0
        self.topic_id = uuid.UUID(int=0)

    # --- what is around it ------------------------------------------------------------------------------------------

    def create_topic(self, partitions: int = 1, **settings: str) -> None:
        configs = [Message(name=name.replace("_", "."), value=value) for name, value in settings.items()]
        topic = Message(name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs)
        made = self.call(ApiKey.CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=20_000, validate_only=False))
        assert made.topics[0].error_code == 0, made
        self.know_topic()

    def know_topic(self) -> None:
        known = self.call(ApiKey.METADATA, 12, Message(topics=[Message(name=TOPIC, topic_id=None)]))
        self.topic_id = known.topics[0].topic_id

    def initialize(self, start: int = 0, epoch: int = 1, partition: int = 0) -> None:
        """As the group coordinator does when a topic is subscribed to."""
        key = f"{self.group}:{'A' * 22}:0"
        self.call(ApiKey.FIND_COORDINATOR, 6, Message(key_type=2, coordinator_keys=[key]))
        data = Message(partition=partition, state_epoch=epoch, start_offset=start)
        body = Message(group_id=self.group, topics=[Message(topic_id=self.topic_id, partitions=[data])])
        for _ in range(200):
            answer = self.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, body)
            if answer.results[0].partitions[0].error_code == 0:
                return
            time.sleep(0.02)
        raise AssertionError(answer)

    def stored(self, partition: int = 0) -> Message:
        data = Message(partition=partition, leader_epoch=-1)
        body = Message(group_id=self.group, topics=[Message(topic_id=self.topic_id, partitions=[data])])
        summary: Message = self.call(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, body).results[0].partitions[0]
        return summary

    def produce(self, *values: bytes, partition: int = 0) -> None:
        """One batch."""
        now = time.time_ns() // 1_000_000
        batch = encode_batch([Record(at, now, None, value, ()) for at, value in enumerate(values)])
        data = Message(index=partition, records=batch)
        body = Message(acks=-1, timeout_ms=10_000, topic_data=[Message(name=TOPIC, partition_data=[data])])
        answer = self.call(ApiKey.PRODUCE, 9, body)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    # --- sessions ---------------------------------------------------------------------------------------------------

    def fetch(
        self,
        *acknowledged: Any,
        wait_ms: int = 0,
        most: int = 500,
        mode: int = 0,
        partitions: Sequence[int] = (0,),
        epoch: int | None = None,
        **other: Any,
    ) -> Message:
        """The whole answer; `acknowledged`: (first, last, type or types)."""
        self.send_fetch(
            *acknowledged, wait_ms=wait_ms, most=most, mode=mode, partitions=partitions, epoch=epoch, **other
        )
        return self.receive(ApiKey.SHARE_FETCH, self.version)[1]

    def send_fetch(
        self,
        *acknowledged: Any,
        wait_ms: int = 0,
        most: int = 500,
        mode: int = 0,
        partitions: Sequence[int] = (0,),
        epoch: int | None = None,
        **other: Any,
    ) -> None:
        sent = self.epoch if epoch is None else epoch
        fields: dict[str, Any] = {
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": most,
            "batch_size": most,
            "share_acquire_mode": mode,
            "forgotten_topics_data": [],
        } | other
        topics = self._topics(acknowledged, partitions)
        body = Message(group_id=self.group, member_id=self.member, share_session_epoch=sent, topics=topics, **fields)
        self.send(ApiKey.SHARE_FETCH, self.version, body)
        if epoch is None:
            self.epoch += 1

    def acknowledge(self, *acknowledged: Any, epoch: int | None = None, **other: Any) -> Message:
        sent = self.epoch if epoch is None else epoch
        body = Message(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=sent,
            topics=self._topics(acknowledged, (0,)),
            **other,
        )
        answer = self.call(ApiKey.SHARE_ACKNOWLEDGE, self.version, body)
        if epoch is None:
            self.epoch += 1
        return answer

    def _topics(self, acknowledged: Sequence[Any], partitions: Sequence[int]) -> list[Message]:
        batches = [
            Message(first_offset=first, last_offset=last, acknowledge_types=[kind] if isinstance(kind, int) else kind)
            for first, last, kind in acknowledged
        ]
        parts = [
            Message(partition_index=index, acknowledgement_batches=batches if index == partitions[0] else [])
            for index in partitions
        ]
        return [Message(topic_id=self.topic_id, partitions=parts)]

    # --- in short ---------------------------------------------------------------------------------------------------

    def take(self, *acknowledged: Any, **other: Any) -> list[Range]:
        """(first, last, delivery count) of what is acquired from partition 0 within ten seconds."""
        other.setdefault("wait_ms", 10_000)
        return acquired(self.fetch(*acknowledged, **other))

    def code(self, *acknowledged: Any, **other: Any) -> int:
        """The error code of an acknowledgement of partition 0."""
        answer = self.acknowledge(*acknowledged, **other)
        assert answer.error_code == 0, answer
        return int(answer.responses[0].partitions[0].error_code)

    def close_session(self) -> Message:
        return self.acknowledge(epoch=-1)


def acquired(answer: Message, partition: int = 0) -> list[Range]:
    assert answer.error_code == 0, answer
    ranges = []
    for part in (part for topic in answer.responses for part in topic.partitions):
        assert part.error_code == 0, part
        if part.partition_index == partition:
            ranges += [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
    return ranges


def values(answer: Message) -> dict[int, bytes | None]:
    """The records of partition 0 that are acquired, by offset."""
    (part,) = (part for topic in answer.responses for part in topic.partitions if part.partition_index == 0)
    wanted = {at for first, last, _ in acquired(answer) for at in range(first, last + 1)}
    return {record.offset: record.value for record in iterate(part.records) if record.offset in wanted}
