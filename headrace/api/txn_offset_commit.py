"""TxnOffsetCommit, v0 to v5: offsets of a group that take effect when a producer's transaction commits (KIP-98).

From v3 on the request names the member of the group, and a member that lost its partitions is rejected (KIP-447). The
group's partition of `__consumer_offsets` must be in the transaction: from v5 on it is added here (KIP-890) before it is
verified. OffsetFetch does not return offsets of an open transaction; with `require_stable` it returns
UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.pieces import PIECE, Pace
from headrace.api.transaction_entry import Admission, Claim, TransactionEntry
from headrace.api.transaction_errors import told
from headrace.coordinators.groups.commands import CommitInTransaction, OffsetToCommit
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.runtime import partition_for
from headrace.model.image import GROUP_OFFSETS_TOPIC, ClusterImage
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_ADDS_PARTITION = 5
_KNOWS_ABORTABLE = 4
_KNOWS_LOADING = 2


class TxnOffsetCommit:
    def __init__(self, groups: GroupCoordinator, topics: Topics, host: ReplicaHost, entry: TransactionEntry) -> None:
        self._groups = groups
        self._topics = topics
        self._host = host
        self._entry = entry

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        body, image = request.body, self._topics.image()
        offsets, waiting = list[OffsetToCommit](), list[Message]()
        topics, pace = list[Message](), Pace()
        for asked in body.topics:
            topics.append((yield from _topic(asked, image, offsets, waiting, pace)))
        response = Message(topics=topics)
        return self._commit(request, offsets, response, waiting) if offsets else response

    async def _commit(
        self, request: Request, offsets: list[OffsetToCommit], response: Message, waiting: list[Message]
    ) -> Message:
        """Very many a piece at a time: what comes between two pieces gives the later ones its error."""
        entered = False
        for at in range(0, len(offsets), PIECE):
            answers = waiting[at : at + PIECE]
            try:
                if not entered:
                    if not request.body.group_id:
                        raise KafkaError(ErrorCode.invalid_group_id)
                    await self._enter(request, self._journal_of(request.body.group_id))
                    entered = True
                codes = await self._groups.submit(_command(request.body, offsets[at : at + PIECE]))
            except KafkaError as error:
                codes = [_word(request.version, error.code)] * len(answers)
            for answer, code in zip(answers, codes, strict=True):
                answer.error_code = code
        return response

    def _journal_of(self, group_id: str) -> Partition:
        """The partition of `__consumer_offsets` that holds the group's offsets."""
        topic = self._topics.image().topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "__consumer_offsets does not exist yet")
        try:
            return self._host.find(GROUP_OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions)))
        except KafkaError:
            raise KafkaError(ErrorCode.not_coordinator, f"this broker does not coordinate {group_id!r}") from None

    async def _enter(self, request: Request, journal: Partition) -> None:
        body = request.body
        adds = request.version >= _ADDS_PARTITION
        claim, admission = Claim(body.transactional_id, body.producer_id, body.producer_epoch, adds), Admission()
        entered: asyncio.Future[None] | None = self._entry.enter(claim, [journal], admission)
        if entered is not None:
            await entered
        problem = admission.problem(journal)
        if problem is not None:
            raise KafkaError(problem)


def _command(body: Message, offsets: list[OffsetToCommit]) -> CommitInTransaction:
    return CommitInTransaction(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.producer_id,
        body.producer_epoch,
        tuple(offsets),
    )


def _topic(
    asked: Message, image: ClusterImage, offsets: list[OffsetToCommit], waiting: list[Message], pace: Pace
) -> Steps[Message]:
    """The topic's part of the response; adds what is to be committed to `offsets`, and its answers to `waiting`."""
    known, partitions = image.topics.get(asked.name), []
    for part in asked.partitions:
        answer = Message(partition_index=part.partition_index, error_code=ErrorCode.unknown_topic_or_partition)
        partitions.append(answer)
        if known is not None and 0 <= part.partition_index < len(image.partitions_of(known)):
            waiting.append(answer)
            offsets.append(
                OffsetToCommit(
                    topic=known.name,
                    topic_id=known.id,
                    partition=part.partition_index,
                    offset=part.committed_offset,
                    leader_epoch=part.committed_leader_epoch,
                    metadata=part.committed_metadata or "",
                )
            )
        if pace.is_over():
            yield
    return Message(name=asked.name, partitions=partitions)


def _word(version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.concurrent_transactions and version < _ADDS_PARTITION:
        code = ErrorCode.coordinator_load_in_progress  # an error that clients retry
    if code is ErrorCode.coordinator_load_in_progress and version < _KNOWS_LOADING:
        return ErrorCode.coordinator_not_available  # Java producers before 2.0 do not retry LOAD_IN_PROGRESS
    return told(code, knows_fenced=False, knows_abortable=version >= _KNOWS_ABORTABLE)
