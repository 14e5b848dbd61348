"""The start offsets of share groups, as tools read, set and delete them: what three APIs have in common.

A start offset is kept by the share coordinator, and which partitions have one is known to the group's coordinator. So
each request asks both: first the group, whether there is one without members, then the share coordinator for each
partition, and last the group again, which writes down what has changed.

Called by the handlers of DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets. Invariant: what
a client is told to be done is stored.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.share_commands import (
    ListStates,
    PrepareForget,
    PrepareSeek,
    StatesDeleted,
    StatesOf,
    StatesPut,
)
from headrace.model.share_state import NO_START, SharePartition, ShareState, ShareStates
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError

AT_ONCE = 50
UNKNOWN_LAG = -1
NO_STATE = ShareState(0, 0, NO_START)


class LogEnds(Protocol):
    async def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        """The high watermark of each partition, or why it is not known."""
        ...


class StartOffset(Struct, frozen=True):
    start: int  # NO_START: there is none
    leader_epoch: int
    lag: int  # records that are not done with; UNKNOWN_LAG: not known
    error: ErrorCode = ErrorCode.none


class ShareGroupOffsets:
    def __init__(self, groups: GroupCoordinator, topics: Topics, states: ShareStates, log_ends: LogEnds) -> None:
        self._groups = groups
        self._topics = topics
        self._states = states
        self._log_ends = log_ends

    # --- reading ----------------------------------------------------------------------------------------------------

    async def known(self, group_id: str) -> list[TopicPartition]:
        """Every partition of which the group has state. KafkaError if there is no such group."""
        states: tuple[StatesOf, ...] | ErrorCode = await self._groups.submit(ListStates(group_id))
        if isinstance(states, ErrorCode):
            raise KafkaError(states, _why(states, group_id))
        known = self._topics.image().topics_by_id
        return [
            TopicPartition(found.topic, index)
            for found in states
            if found.topic_id in known
            for index in found.partitions
        ]

    async def describe(self, group_id: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, StartOffset]:
        """A partition without state has no start; that is no error, as in OffsetFetch."""
        await self._groups.submit(ListStates(group_id))  # only its coordinator answers
        topics = self._topics.image().topics
        found: dict[TopicPartition, ShareState] = {}
        for at in range(0, len(places), AT_ONCE):
            some = [place for place in places[at : at + AT_ONCE] if place.topic in topics]
            states = await asyncio.gather(*(self._summary(group_id, place, topics[place.topic].id) for place in some))
            found.update(zip(some, states, strict=True))
        with_lag = [place for place, state in found.items() if _has_lag(state)]
        ends = await self._log_ends.ends(with_lag) if with_lag else {}
        return {place: _start_offset(found.get(place, NO_STATE), ends.get(place)) for place in places}

    async def _summary(self, group_id: str, place: TopicPartition, topic_id: uuid.UUID) -> ShareState:
        try:
            return await self._states.summary(SharePartition(group_id, topic_id, place.partition))
        except KafkaError:
            return NO_STATE

    # --- changing ---------------------------------------------------------------------------------------------------

    async def seek(
        self, group_id: str, starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Sets start offsets. KafkaError about the group as a whole."""
        epoch: int | ErrorCode = await self._groups.submit(PrepareSeek(group_id))
        if isinstance(epoch, ErrorCode):
            raise KafkaError(epoch, _why(epoch, group_id))
        results: dict[TopicPartition, KafkaError | None] = {}
        places = list(starts)
        for at in range(0, len(places), AT_ONCE):
            some = places[at : at + AT_ONCE]
            ended = await asyncio.gather(*(self._seek(group_id, place, epoch, starts[place]) for place in some))
            results.update(zip(some, ended, strict=True))
        done = tuple(place for place, error in results.items() if error is None)
        await self._groups.submit(StatesPut(group_id, done))
        return results

    async def _seek(self, group_id: str, place: TopicPartition, epoch: int, start: int) -> KafkaError | None:
        topic = self._topics.image().topics.get(place.topic)
        if topic is None or not 0 <= place.partition < len(topic.partitions):
            return KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no partition {place.partition} of {place.topic!r}"
            )
        if start < 0:
            return KafkaError(ErrorCode.invalid_request, f"a start offset cannot be {start}")
        try:
            await self._states.initialize(SharePartition(group_id, topic.id, place.partition), epoch, start)
        except KafkaError as error:
            return KafkaError(error.code, error.message)  # without what was open when it was raised
        return None

    async def forget(self, group_id: str, topics: Sequence[str]) -> dict[str, KafkaError | None]:
        """Deletes the states of these topics. KafkaError about the group as a whole."""
        found: tuple[StatesOf, ...] | ErrorCode = await self._groups.submit(PrepareForget(group_id, tuple(topics)))
        if isinstance(found, ErrorCode):
            raise KafkaError(found, _why(found, group_id))
        results: dict[str, KafkaError | None] = {}
        for states in found:
            try:
                await self._groups.delete_states(group_id, states)
                await self._groups.submit(StatesDeleted(group_id, states))
                results[states.topic] = None
            except KafkaError as error:
                results[states.topic] = KafkaError(error.code, error.message)
        nothing = KafkaError(ErrorCode.unknown_topic_or_partition, "There is no offset information to delete.")
        known = self._topics.image().topics
        absent = KafkaError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        return {name: results.get(name, nothing if name in known else absent) for name in topics}


def _has_lag(state: ShareState) -> bool:
    return state.start_offset != NO_START and state.delivery_complete_count >= 0


def _start_offset(state: ShareState, end: int | ErrorCode | None) -> StartOffset:
    if isinstance(end, ErrorCode):
        return StartOffset(NO_START, 0, UNKNOWN_LAG, end)
    lag = UNKNOWN_LAG if end is None else max(0, end - state.start_offset - state.delivery_complete_count)
    return StartOffset(state.start_offset, state.leader_epoch, lag)


def _why(code: ErrorCode, group_id: str) -> str:
    if code is ErrorCode.non_empty_group:
        return f"Share group {group_id} is not empty."
    if code is ErrorCode.group_id_not_found:
        return f"Group {group_id} not found."
    return "GroupId can't be empty." if code is ErrorCode.invalid_group_id else ""
