"""What processes of consumer groups (KIP-848) do in a story, and how their records read.

A process makes its own member id, NAME with a number, and keeps in mind its epoch and what it has. A heartbeat says
everything when it joins, and what the process has whenever that has changed, as real clients do.
"""

import uuid
from collections.abc import Callable

from headrace.coordinators.groups.consumer_commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
)
from headrace.coordinators.groups.consumer_records import (
    CURRENT,
    EPOCH,
    PATTERN,
    PLAN,
    SUBSCRIPTION,
    TARGET,
    ConsumerKey,
    read_consumer_value,
)
from headrace.coordinators.groups.coordinator import GroupCommand
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.reconciliation import Parts, parts_of
from headrace.wire.errors import ErrorCode
from tests.unit.coordinators.stage import Cluster

GROUP = "g"
Ask = Callable[[str, GroupCommand, Callable[[object], str]], None]


class Acting:
    """A process: what it was told last."""

    def __init__(self, name: str, life: int) -> None:
        self.member_id = f"{name}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{name} {life}')}"
        self.instance: str | None = None
        self.epoch = 0
        self.has: Parts = {}
        self.reported: Parts | None = None  # what it last said that it has


class ConsumerActs:
    def __init__(self, cluster: Cluster, ask: Ask, see: Callable[[str], None]) -> None:
        self.processes: dict[str, Acting] = {}
        self._cluster = cluster
        self._ask = ask
        self._see = see
        self._names: dict[uuid.UUID, str] = {}
        self._lives = 0

    def beat(self, words: list[str]) -> None:
        name, flags = words[0], {word for word in words[1:] if "=" not in word}
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        if name not in self.processes:
            self._lives += 1
            self.processes[name] = Acting(name, self._lives)
        process = self.processes[name]
        epoch = int(options.get("epoch", process.epoch))
        joining = epoch == 0
        process.instance = options.get("instance", process.instance)
        topics = tuple(options["topics"].split(",")) if "topics" in options else None
        if joining and topics is None and "pattern" not in options:
            topics = ("t",)
        owned = process.has if process.has != process.reported else None
        command = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=process.member_id,
            epoch=epoch,
            client_id=name,
            client_host="/127.0.0.1",
            instance_id=process.instance,
            rack=None,
            rebalance_timeout_ms=60_000 if joining else -1,
            topics=topics,
            pattern=options.get("pattern"),
            assignor=options.get("assignor"),
            owned={} if joining else owned,
        )
        process.reported = process.has

        def told(reply: object) -> str:
            assert isinstance(reply, MembershipReply)
            if reply.error is not ErrorCode.none:
                if reply.error in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
                    process.epoch, process.has, process.reported = 0, {}, None
                return reply.error.name.upper()
            process.epoch = reply.epoch
            if reply.assignment is None:
                return f"epoch {reply.epoch}"
            if "slow" not in flags:
                process.has = reply.assignment
            return f"epoch {reply.epoch}, should have {self._parts(reply.assignment)}"

        self._ask(name, command, told)

    def exit(self, words: list[str]) -> None:
        process = self.processes.pop(words[0])
        epoch = -2 if "for-now" in words else -1
        command = ConsumerHeartbeat(
            GROUP, process.member_id, epoch, words[0], "/127.0.0.1", process.instance, None, -1, None, None, None, None
        )
        self._ask(words[0], command, lambda reply: f"left {reply.error.name.upper()}")

    def describe(self) -> None:
        def told(group: object) -> str:
            assert isinstance(group, ConsumerGroupDescription)
            if group.error is not ErrorCode.none:
                return group.error.name.upper()
            members = []
            for member in group.members:
                kind = " (classic)" if member.classic else ""
                words = f"{member.member_id}{kind} in epoch {member.epoch} has {self._parts(member.assignment)}"
                if member.assignment != member.target:
                    words += f" of {self._parts(member.target)}"
                members.append(words)
            epochs = f"epoch {group.epoch}, plan {group.plan_epoch} by {group.assignor}"
            return f"{group.state}, {epochs}: {'; '.join(members) or 'nobody'}"

        self._ask("group", DescribeConsumerGroup(GROUP), told)

    # --- records ----------------------------------------------------------------------------------------------------

    def record(self, key: ConsumerKey, raw: bytes | None) -> str:
        if raw is None:
            gone = {EPOCH: "group", PLAN: "plan", SUBSCRIPTION: "member", TARGET: "part", CURRENT: "state"}
            return f"{gone.get(key.type, 'pattern')} {key.name or ''} removed".replace("  ", " ")
        value = read_consumer_value(key.type, raw)
        if key.type == EPOCH:
            return f"epoch {value.epoch}"
        if key.type == PLAN:
            return f"plan {value.epoch}"
        if key.type == SUBSCRIPTION:
            kind = " in the classic way" if value.classic is not None else ""
            wanted = [*value.topics, *([value.pattern] if value.pattern else [])]
            return f"{key.name} subscribes to {' '.join(wanted) or 'nothing'}{kind}"
        if key.type == TARGET:
            return f"plan {key.name}: {self._parts(value)}"
        if key.type == PATTERN:
            return f"{key.name} stands for {' '.join(sorted(value.topics)) or 'nothing'}"
        state, has = value.state.name.lower(), self._parts(parts_of(value.assigned))
        words = f"{key.name} in epoch {value.epoch} {state} with {has}"
        return words + (f", lets go of {self._parts(parts_of(value.revoking))}" if value.revoking else "")

    def _parts(self, parts: Parts) -> str:
        for name, topic in self._cluster.image().topics.items():
            self._names[topic.id] = name
        places = sorted((self._names[topic], number) for topic, numbers in parts.items() for number in numbers)
        return "+".join(f"{topic}{number}" for topic, number in places) or "nothing"
