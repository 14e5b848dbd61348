"""Consumer groups under random members: nobody ever shares a partition, all settle, and the journal tells everything.

Members join, send heartbeats, take their time to let go, leave, fall silent; topics grow. A member holds a partition
from the answer that brings it until it has said that it let go.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinators.groups.commands import Heartbeat, Join, SessionExpired, Sync
from headrace.coordinators.groups.consumer_commands import ConsumerHeartbeat
from headrace.coordinators.groups.reconciliation import Parts
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import GroupShard
from headrace.coordinators.groups.subscription import read_assignment
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import SeededEntropy
from tests.conftest import SOAKING
from tests.unit.coordinators.stage import Cluster, subscription

SLOTS = 4
START_OVER = (ErrorCode.unknown_member_id, ErrorCode.group_id_not_found, ErrorCode.fenced_member_epoch)
PROTOCOLS = (("range", subscription("t")),)


@dataclass
class Process:
    """A consumer of topic t. `guest`: it speaks the classic protocol, and gives everything back before it joins."""

    member_id: str
    guest: bool
    epoch: int = 0
    holds: Parts = field(default_factory=dict)


class World:
    def __init__(self) -> None:
        self.cluster = Cluster({"t": {}, "u": {}})
        self.entropy = SeededEntropy(1)
        self.shard = self._fresh()
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.processes: dict[int, Process] = {}
        self.born = 0

    def _fresh(self) -> GroupShard:
        return GroupShard(GroupSettings(initial_rebalance_delay_ms=0), self.cluster, self.entropy)

    def decide(self, command: Any) -> Any:
        outcome = self.shard.decide(command, 1)
        self.journal += outcome.records
        for record in outcome.records:
            self.shard.apply(*record)
        return outcome

    def reload(self, *, compacted: bool) -> None:
        """What the journal says, also where only the last record of each key is left, is what the shard knew."""
        before = self.shard.durable
        kept = {key: number for number, (key, _) in enumerate(self.journal)}
        self.shard = self._fresh()
        for number, (key, value) in enumerate(self.journal):
            if not compacted or kept[key] == number:
                self.shard.apply(key, value)
        self.shard.loaded(1)
        after = self.shard.durable
        assert after.consumers.keys() == before.consumers.keys()
        for name, group in before.consumers.items():
            known, now = vars(group), vars(after.consumers[name])
            assert {key: known[key] for key in known} == {key: now[key] for key in known}

    # --- what processes do ------------------------------------------------------------------------------------------

    def beat(self, slot: int, *, guest: bool = False) -> None:
        if slot not in self.processes:
            self.born += 1
            self.processes[slot] = Process(f"m-{self.born}", guest)
        process = self.processes[slot]
        if process.guest:
            self._beat_as_guest(process)
            return
        joining = process.epoch == 0
        reply = self.decide(
            ConsumerHeartbeat(
                "g", process.member_id, process.epoch, "c", "/h", None, None, 60_000 if joining else -1,
                ("t",) if joining else None, None, None, process.holds,
            )
        ).reply  # fmt: skip
        if reply.error is not ErrorCode.none:
            assert reply.error in START_OVER
            process.epoch, process.holds = 0, {}
            return
        process.epoch = reply.epoch
        if reply.assignment is not None:
            process.holds = reply.assignment

    def _beat_as_guest(self, process: Process) -> None:
        """Joins and syncs when it is told to; it holds nothing in between."""
        answer = self.decide(Heartbeat("g", process.member_id, None, process.epoch)).reply
        if answer is ErrorCode.none:
            return
        process.holds = {}
        member_id = process.member_id if process.epoch else ""
        join = Join("g", member_id, None, "c", "/h", 10_000, 60_000, "consumer", PROTOCOLS, False, True)
        outcome = self.decide(join)
        joined = next((reply for _, reply in outcome.instructions if getattr(reply, "protocol", None)), outcome.reply)
        if getattr(joined, "error", None) is not ErrorCode.none:
            process.epoch = 0 if getattr(joined, "error", None) is ErrorCode.unknown_member_id else process.epoch
            return
        process.member_id, process.epoch = joined.member_id, joined.generation
        synced = self.decide(Sync("g", process.member_id, None, process.epoch, None, None, {})).reply
        if getattr(synced, "error", None) is ErrorCode.none:
            topics, named = self.cluster.image().topics, read_assignment(synced.assignment)
            process.holds = {topics[name].id: partitions for name, partitions in named.items()}

    def leave(self, slot: int) -> None:
        process = self.processes.pop(slot, None)
        if process is not None and not process.guest:
            goodbye = ConsumerHeartbeat("g", process.member_id, -1, "c", "/h", None, None, -1, None, None, None, None)
            self.decide(goodbye)
        elif process is not None:
            self.decide(SessionExpired("g", process.member_id))

    def fall_silent(self, slot: int) -> None:
        """Its session ends: from then on it holds nothing, as clients know by their own clocks."""
        process = self.processes.get(slot)
        if process is not None:
            process.holds, process.epoch = {}, 0 if process.guest else process.epoch
            self.decide(SessionExpired("g", process.member_id))

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check_exclusive(self) -> None:
        held = [(topic, n) for process in self.processes.values() for topic, ns in process.holds.items() for n in ns]
        assert len(held) == len(set(held)), f"shared: {self.processes}"

    def check_settles(self) -> None:
        for _ in range(6):
            for slot in list(self.processes):
                self.beat(slot)
        shares = [sum(map(len, process.holds.values())) for process in self.processes.values()]
        if shares:
            assert sum(shares) == self.cluster.size_of("t")
            assert max(shares) - min(shares) <= 1


def steps(*, guests: bool) -> st.SearchStrategy[list[tuple[str, int]]]:
    names = ["beat", "beat", "beat", "leave", "silent", "grow", "reload", "compact"] + (["guest"] if guests else [])
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, SLOTS - 1)), max_size=40)


def play(world: World, name: str, slot: int) -> None:
    if name in ("beat", "guest"):
        world.beat(slot, guest=name == "guest")
    elif name == "leave":
        world.leave(slot)
    elif name == "silent":
        world.fall_silent(slot)
    elif name == "grow":
        world.cluster.grow("t", world.cluster.size_of("t") + 1)
    else:
        world.reload(compacted=name == "compact")


@given(steps(guests=False))
@settings(max_examples=1000 if SOAKING else 50, deadline=None)
def test_no_partition_has_two_holders_and_all_settle(story: list[tuple[str, int]]) -> None:
    world = World()
    for name, slot in story:
        play(world, name, slot)
        world.check_exclusive()
    world.check_settles()


@given(steps(guests=True))
@settings(max_examples=1000 if SOAKING else 50, deadline=None)
def test_guests_of_the_classic_protocol_share_the_same_promises(story: list[tuple[str, int]]) -> None:
    world = World()
    world.beat(SLOTS)  # one of the new protocol stays, so it is a consumer group all the time
    for name, slot in story:
        play(world, name, slot)
        world.check_exclusive()
    world.check_settles()
