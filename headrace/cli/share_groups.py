"""Requests about share groups: which there are, their members, and where they start.

confluent-kafka's admin client has no calls for share groups, so these are sent directly to the group's coordinator.
Called by the commands for share groups and by those for all groups. Invariant: a missing group is None or a Failure,
never an empty result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from headrace.cli.direct_requests import Address, DirectRequests
from headrace.cli.topics import Partition
from headrace.model.failure import Failure
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

SHARE = "share"
_LIST_VERSION, _DESCRIBE_VERSION, _OFFSETS_VERSION = 5, 1, 1
_ALTER_VERSION, _DELETE_OFFSETS_VERSION, _DELETE_VERSION = 0, 0, 2
_LATER = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
_ATTEMPTS = 20
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class ListedShareGroup:
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class ShareMember:
    id: str
    client: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroup:
    name: str
    state: str
    epoch: int
    coordinator: Address
    members: tuple[ShareMember, ...]


@dataclass(frozen=True, slots=True)
class ShareStart:
    """Where a share group starts in a partition, and how many records it has left; None where that is not known."""

    start: int | None
    lag: int | None


class ShareRequests:
    def __init__(self, brokers: DirectRequests, pause: Callable[[float], None]) -> None:
        """`pause` waits between two attempts while a coordinator is loading."""
        self._brokers = brokers
        self._pause = pause

    def listed(self) -> list[ListedShareGroup]:
        """All share groups of the cluster; none on brokers that do not know of types of groups."""
        found: dict[str, ListedShareGroup] = {}
        for address in self._brokers.brokers():
            if not self._brokers.serves(address, ApiKey.LIST_GROUPS, _LIST_VERSION):
                continue
            ask = partial(self._list, address)
            for group in self._patiently(ask, f"cannot list the groups of {address[0]}:{address[1]}").groups:
                found[group.group_id] = ListedShareGroup(group.group_id, group.group_state.lower())
        return [found[name] for name in sorted(found)]

    def _list(self, address: Address) -> Message:
        body = Message(states_filter=[], types_filter=[SHARE])
        return self._brokers.call(address, ApiKey.LIST_GROUPS, _LIST_VERSION, body)

    def find(self, name: str) -> ShareGroup | None:
        """The share group of this name, if there is one."""
        coordinator = self._brokers.group_coordinator_of(name)
        if not self._brokers.serves(coordinator, ApiKey.SHARE_GROUP_DESCRIBE, _DESCRIBE_VERSION):
            return None
        body = Message(group_ids=[name])

        def ask() -> Message:
            answer = self._at_coordinator(name, ApiKey.SHARE_GROUP_DESCRIBE, _DESCRIBE_VERSION, body)
            return answer.groups[0]  # type: ignore[no-any-return]

        group = self._patiently(ask, f"cannot describe group {name}", missing=ErrorCode.group_id_not_found)
        if group.error_code == ErrorCode.group_id_not_found:
            return None
        members = tuple(map(_member, sorted(group.members, key=lambda member: str(member.member_id))))
        return ShareGroup(name, group.group_state.lower(), group.group_epoch, coordinator, members)

    def starts(self, name: str) -> dict[Partition, ShareStart]:
        """Of every partition of which the group has state."""
        body = Message(groups=[Message(group_id=name, topics=None)])

        def ask() -> Message:
            answer = self._at_coordinator(name, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, _OFFSETS_VERSION, body)
            return answer.groups[0]  # type: ignore[no-any-return]

        group = self._patiently(ask, f"cannot read the offsets of share group {name}")
        return {
            (topic.topic_name, part.partition_index): ShareStart(
                part.start_offset if part.start_offset >= 0 else None, part.lag if part.lag >= 0 else None
            )
            for topic in group.topics
            for part in topic.partitions
        }

    def seek(self, name: str, starts: Mapping[Partition, int]) -> None:
        topics: dict[str, list[Message]] = {}
        for (topic, index), start in starts.items():
            topics.setdefault(topic, []).append(Message(partition_index=index, start_offset=start))
        body = Message(
            group_id=name, topics=[Message(topic_name=topic, partitions=parts) for topic, parts in topics.items()]
        )
        ask = partial(self._at_coordinator, name, ApiKey.ALTER_SHARE_GROUP_OFFSETS, _ALTER_VERSION, body)
        answer = self._patiently(ask, f"cannot change the offsets of share group {name}")
        for topic in answer.responses:
            for part in topic.partitions:
                where = f"{topic.topic_name} partition {part.partition_index}"
                _check(part, f"cannot change the offset of share group {name} in {where}")

    def forget(self, name: str, topics: Iterable[str]) -> None:
        body = Message(group_id=name, topics=[Message(topic_name=topic) for topic in topics])
        ask = partial(self._at_coordinator, name, ApiKey.DELETE_SHARE_GROUP_OFFSETS, _DELETE_OFFSETS_VERSION, body)
        answer = self._patiently(ask, f"cannot delete the offsets of share group {name}")
        for topic in answer.responses:
            _check(topic, f"cannot delete the offsets of share group {name} in {topic.topic_name}")

    def delete(self, name: str) -> None:
        body = Message(groups_names=[name])

        def ask() -> Message:
            answer = self._at_coordinator(name, ApiKey.DELETE_GROUPS, _DELETE_VERSION, body)
            return answer.results[0]  # type: ignore[no-any-return]

        self._patiently(ask, f"cannot delete share group {name}")

    def _at_coordinator(self, name: str, api_key: ApiKey, version: int, body: Message) -> Message:
        return self._brokers.call(self._brokers.group_coordinator_of(name), api_key, version, body)

    def _patiently(self, ask: Callable[[], Message], doing: str, missing: ErrorCode = ErrorCode.none) -> Message:
        """A coordinator may be loading, or have moved."""
        answer = ask()
        for _ in range(_ATTEMPTS):
            if answer.error_code not in _LATER:
                break
            self._pause(_PAUSE_S)
            answer = ask()
        if answer.error_code != missing:
            _check(answer, doing)
        return answer


def _member(member: Message) -> ShareMember:
    partitions = [
        (str(topic.topic_name), int(index))
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    ]
    topics = tuple(member.subscribed_topic_names)
    return ShareMember(
        member.member_id, member.client_id, member.client_host, member.member_epoch, topics, tuple(sorted(partitions))
    )


def _check(answer: Message, doing: str) -> None:
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.none:
        words = getattr(answer, "error_message", None) or code.name.replace("_", " ")
        raise Failure(f"{doing}: {words}")
