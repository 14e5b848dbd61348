"""ListOffsets, v1 to v11: the offset for a timestamp.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp (KIP-734), -4 earliest on local
disk (KIP-405; here the same as earliest), -5 latest in tiered storage (KIP-1005; here none), -6 earliest not yet
uploaded to it (KIP-1023; here none). In a version before its own each is UNSUPPORTED_VERSION. Any other timestamp
returns the first record at or after it, or -1 if there is none. A partition that is repeated in a request is
INVALID_REQUEST. A view of what is pending starts at 0, and has no search by time (UNSUPPORTED_FOR_MESSAGE_FORMAT, which
clients take for "nothing so late"): its records are in the order of their ids.

A search may read the disk, so it runs off the event loop, in stage two. With isolation level 1 (read_committed) the log
ends at the last stable offset. A new leader returns OFFSET_NOT_AVAILABLE until it knows its predecessor's high
watermark (KIP-207), since the end of the log could otherwise go back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.api.contract import Request, Steps
from headrace.api.fetch_reading import first_offset
from headrace.api.pieces import Pace
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version that supports each special timestamp.
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

READ_COMMITTED = 1

OffLoop = Callable[..., Awaitable[Any]]


class ListOffsets:
    def __init__(self, host: ReplicaHost, off_loop: OffLoop) -> None:
        self._host = host
        self._off_loop = off_loop

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        pace, stable = Pace(), request.body.isolation_level == READ_COMMITTED
        named: dict[tuple[str, int], int] = {}
        for topic in request.body.topics:
            for asked in topic.partitions:
                place = (topic.name, asked.partition_index)
                named[place] = named.get(place, 0) + 1
            if pace.is_over(1 + len(topic.partitions)):
                yield
        answers, searches = [], list[tuple[Message, Callable[[], tuple[int, int] | None]]]()
        for topic in request.body.topics:
            partitions = []
            for asked in topic.partitions:
                answer = Message(partition_index=asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
                try:
                    if named[topic.name, asked.partition_index] > 1:
                        raise KafkaError(ErrorCode.invalid_request, "a partition is repeated in the request")
                    _check_meaning(asked.timestamp, request.version)
                    search = self._answer(topic.name, asked, answer, stable)
                    if search is not None:
                        searches.append((answer, search))
                except KafkaError as error:
                    answer.error_code = _code(error, request.version)
                partitions.append(answer)
                if pace.is_over():
                    yield
            answers.append(Message(name=topic.name, partitions=partitions))
        response = Message(topics=answers)
        return response if not searches else self._search(response, searches)

    def _answer(
        self, topic: str, asked: Message, answer: Message, stable: bool
    ) -> Callable[[], tuple[int, int] | None] | None:
        """Fills in the answer, or returns the search that will fill it in."""
        partition = self._host.find_readable(topic, asked.partition_index)
        partition.check_leader(asked.current_leader_epoch)
        log, when, view = partition.log, asked.timestamp, self._host.view(topic)
        end = partition.last_stable_offset if stable else partition.high_watermark
        if partition.is_settling and when not in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            raise KafkaError(ErrorCode.offset_not_available, f"{partition} has a new leader; try again")
        if when == LATEST:
            answer.offset, answer.leader_epoch = end, partition.leader_epoch
        elif when in (EARLIEST, EARLIEST_LOCAL):
            start = log.start_offset if view is None else first_offset(view, partition)
            answer.offset, answer.leader_epoch = start, log.epochs.epoch_of(log.start_offset)
        elif when in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            pass
        elif view is not None and view.shows_pending:
            raise KafkaError(ErrorCode.unsupported_for_message_format, f"{topic} is not in the order of times")
        elif when == MAX_TIMESTAMP:
            return lambda: _dated(log.find_max_timestamp(end), answer, log.epochs.epoch_of)
        else:
            return lambda: _dated(log.find_time(when, end), answer, log.epochs.epoch_of)
        return None

    async def _search(
        self, response: Message, searches: list[tuple[Message, Callable[[], tuple[int, int] | None]]]
    ) -> Message:
        for answer, search in searches:
            try:
                await self._off_loop(search)
            except KafkaError as error:
                answer.error_code = error.code
        return response


def _check_meaning(when: int, version: int) -> None:
    if when < 0 and version < _SINCE.get(when, version + 1):
        raise KafkaError(ErrorCode.unsupported_version, f"version {version} does not support timestamp {when}")


def _code(error: KafkaError, version: int) -> ErrorCode:
    """Before version 5 clients do not know OFFSET_NOT_AVAILABLE, so they get another code that they retry."""
    if error.code is ErrorCode.offset_not_available and version < 5:
        return ErrorCode.leader_not_available
    return error.code


def _dated(found: tuple[int, int] | None, answer: Message, epoch_of: Callable[[int], int]) -> tuple[int, int] | None:
    if found is not None:
        answer.offset, answer.timestamp = found
        answer.leader_epoch = epoch_of(found[0])
    return found
