"""Acknowledgements of share groups, as ShareFetch and ShareAcknowledge bring them, and what each partition answers.

All of a partition's batches succeed or fail together. They are staged in the order of the requests; the answer waits
until they are stored. Called by both APIs.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence

from msgspec import Struct

from headrace.api.contract import Steps
from headrace.api.leader_hints import LeaderHints
from headrace.api.pieces import Pace
from headrace.api.share_sessions import ShareSessions
from headrace.replicas.host import ReplicaHost
from headrace.replicas.share.deliveries import RENEW, Acknowledgement
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

LEADER_IS_NEWS = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


class Acknowledged(Struct):
    """What has become of one partition's acknowledgements."""

    topic_id: uuid.UUID | None
    index: int
    stored: asyncio.Future[None] | None = None
    error: KafkaError | None = None

    async def settled(self) -> KafkaError | None:
        if self.stored is not None:
            try:
                await asyncio.shield(self.stored)
            except KafkaError as error:
                self.error = error
        return self.error


class Acknowledging:
    def __init__(self, host: ReplicaHost, sessions: ShareSessions, hints: LeaderHints) -> None:
        self.live = sessions.live
        self.sessions = sessions
        self.hints = hints
        self._host = host

    def stage(self, group: str, member: str, topics: Iterable[Message], *, renews: bool) -> Steps[list[Acknowledged]]:
        """`renews`: the request says that it renews locks."""
        results, pace = list[Acknowledged](), Pace()
        for topic in topics:
            for partition in topic.partitions:
                if partition.acknowledgement_batches:
                    result = Acknowledged(topic.topic_id, partition.partition_index)
                    try:
                        batches = partition.acknowledgement_batches
                        result.stored = self._stage_one(group, member, topic.topic_id, partition, batches, renews)
                    except KafkaError as error:
                        result.error = error
                    results.append(result)
                if pace.is_over(1 + len(partition.acknowledgement_batches)):
                    yield
        return results

    def _stage_one(
        self,
        group: str,
        member: str,
        topic_id: uuid.UUID | None,
        partition: Message,
        batches: Sequence[Message],
        renews: bool,
    ) -> asyncio.Future[None] | None:
        sent = [
            Acknowledgement(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types)) for batch in batches
        ]
        if any(RENEW in one.types for one in sent):
            if not renews:
                raise KafkaError(ErrorCode.invalid_request, "a request that renews locks has to say so")
            if not self.live.terms_of(group).renew:
                raise KafkaError(ErrorCode.invalid_record_state, f"share.renew.acknowledge.enable is false for {group}")
        hosted = self._host.find_by_id(topic_id, partition.partition_index)
        hosted.check_leader(-1)
        live = self.live.find(group, hosted.topic_id, hosted.index)
        if live is None:
            raise KafkaError(ErrorCode.invalid_record_state, f"nothing of {hosted} is handed out to {group} here")
        return live.acknowledge(member, sent)


def flags_problem(body: Message, *, fetches: bool) -> str | None:
    """Why the request contradicts itself, if it does."""
    if not body.group_id or not body.member_id:
        return "a group id and a member id are needed"
    if fetches and body.is_renew_ack and (body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms):
        return "a request that renews locks fetches nothing: its limits must be 0"
    return None


def refusal(error: KafkaError) -> Message:
    """Of the whole request."""
    return Message(error_code=error.code, error_message=str(error), responses=[], node_endpoints=[])
