"""What members of share groups (KIP-932) do in a story, how their records read, and what the share coordinator has."""

import uuid
from collections.abc import Callable

from headrace.coordinators.groups.consumer_records import ConsumerKey
from headrace.coordinators.groups.coordinator import GroupCommand
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.reconciliation import Parts
from headrace.coordinators.groups.share_commands import (
    DescribeShareGroup,
    ShareGroupDescription,
    ShareHeartbeat,
)
from headrace.coordinators.groups.share_records import (
    SHARE_CURRENT,
    SHARE_EPOCH,
    SHARE_MEMBER,
    SHARE_PLAN,
    SHARE_STATES,
    SHARE_TARGET,
    read_share_value,
)
from headrace.wire.errors import ErrorCode
from tests.share_states import MemoryStates
from tests.unit.coordinators.stage import Cluster

GROUP = "g"
Ask = Callable[[str, GroupCommand, Callable[[object], str]], None]
_GONE = {
    SHARE_EPOCH: "group",
    SHARE_PLAN: "plan",
    SHARE_MEMBER: "member",
    SHARE_TARGET: "part",
    SHARE_CURRENT: "state",
    SHARE_STATES: "topics",
}


class ShareActs:
    def __init__(self, cluster: Cluster, states: MemoryStates, ask: Ask, see: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._states = states
        self._ask = ask
        self._see = see
        self._epochs: dict[str, int] = {}  # by member: what it was told last
        self._names: dict[uuid.UUID, str] = {}

    def beat(self, words: list[str]) -> None:
        name, options = words[0], dict(word.split("=", 1) for word in words[1:])
        epoch = int(options.get("epoch", self._epochs.get(name, 0)))
        topics = tuple(options["topics"].split(",")) if "topics" in options else None
        if epoch == 0 and topics is None:
            topics = ("t",)

        def told(reply: object) -> str:
            assert isinstance(reply, MembershipReply)
            if reply.error is not ErrorCode.none:
                self._epochs[name] = 0
                return reply.error.name.upper()
            self._epochs[name] = reply.epoch
            words = f"epoch {reply.epoch}"
            return words if reply.assignment is None else f"{words}, has {self._parts(reply.assignment)}"

        self._ask(name, ShareHeartbeat(GROUP, name, epoch, name, "/127.0.0.1", None, topics), told)

    def exit(self, words: list[str]) -> None:
        command = ShareHeartbeat(GROUP, words[0], -1, words[0], "/127.0.0.1", None, None)
        self._epochs.pop(words[0], None)
        self._ask(words[0], command, lambda reply: f"left {reply.error.name.upper()}")  # type: ignore[attr-defined]

    def describe(self) -> None:
        def told(group: object) -> str:
            assert isinstance(group, ShareGroupDescription)
            if group.error is not ErrorCode.none:
                return f"{group.error.name.upper()}: {group.message}"
            members = [
                f"{member.member_id} in epoch {member.epoch} has {self._parts(member.assignment)}"
                for member in group.members
            ]
            return f"{group.state}, epoch {group.epoch}, plan {group.plan_epoch}: {'; '.join(members) or 'nobody'}"

        self._ask("group", DescribeShareGroup(GROUP), told)

    def show_states(self) -> None:
        self._learn_names()
        starts = [
            f"{self._names[place.topic_id]}{place.partition} from {state.start_offset}"
            for place, state in self._states.states.items()
        ]
        self._see(f"states: {', '.join(sorted(starts)) or 'none'}")

    # --- records ----------------------------------------------------------------------------------------------------

    def record(self, key: ConsumerKey, raw: bytes | None) -> str:
        if raw is None:
            return f"{_GONE[key.type]} {key.name or ''} removed".replace("  ", " ")
        value = read_share_value(key.type, raw)
        if key.type == SHARE_EPOCH:
            return f"epoch {value.epoch}"
        if key.type == SHARE_PLAN:
            return f"plan {value.epoch}"
        if key.type == SHARE_MEMBER:
            return f"{key.name} subscribes to {' '.join(value.topics)}"
        if key.type == SHARE_TARGET:
            return f"plan {key.name}: {self._parts(value)}"
        if key.type == SHARE_CURRENT:
            return f"{key.name} in epoch {value.epoch} with {self._parts(value.assigned)}"
        kinds = {
            "initializing": value.initializing,
            "initialized": value.initialized,
            "deleting": value.deleting,
        }
        known = [
            f"{kind} {self._parts({topic_id: topic.partitions for topic_id, topic in topics.items()})}"
            for kind, topics in kinds.items()
            if topics
        ]
        return f"topics: {', '.join(known) or 'none'}"

    def _learn_names(self) -> None:
        for name, topic in self._cluster.image().topics.items():
            self._names[topic.id] = name

    def _parts(self, parts: Parts) -> str:
        self._learn_names()
        places = sorted((self._names[topic], number) for topic, numbers in parts.items() for number in numbers)
        return "+".join(f"{topic}{number}" for topic, number in places) or "nothing"
