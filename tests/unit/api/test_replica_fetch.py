"""Fetch by other brokers: only what is new is looked at, and nothing is forgotten for want of room or time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.api import fetch_reading, replica_fetch
from headrace.api.contract import Caller, Peer, Request
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.pieces import settled
from headrace.api.reply_budget import ReplyBudget
from headrace.api.view_fetch import Views
from headrace.log.logs import Logs
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import walk
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.entropy import SeededEntropy
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from sim.net import SimNetwork
from tests.unit.log.batches import batch

TOPIC_ID = uuid.UUID(int=5)
COUNT = 8


class NoWrites:
    def change(self, topic: str, partition: PartitionImage, joins: object) -> asyncio.Future[PartitionImage]:
        return asyncio.get_running_loop().create_future()


class Room:
    """A leader of some partitions, and a replica on broker 2 that knows how far it is."""

    async def open(self) -> None:
        self.clock, disk = SimClock(), SimDisk()
        disk.make_dirs(Path("/data"))
        logs = Logs(disk, self.clock, Path("/data"))
        await logs.open(lambda _: None)
        self.host = ReplicaHost(1, logs, self.clock, {})
        self.host.join_cluster(SimNetwork(1).host("one"), NoWrites(), lambda: True)
        self.host.registered(1)
        self.see(0)
        sessions = FetchSessions(self.clock, SeededEntropy(1), 10, 10_000)
        hints = LeaderHints(lambda: self.image, lambda _, broker: (broker.host, broker.port))
        self.budget = ReplyBudget(1 << 20)
        reading = FetchReading(self.host, disk.off_loop, 50 << 20, hints, self.budget)
        self.fetch = Fetch(
            self.host,
            Gate(),
            sessions,
            self.clock,
            SeededEntropy(2),
            reading,
            reading,
            Views(SimComputing(), self.clock),
        )
        self.has = [0] * COUNT
        self.heard = [-1] * COUNT
        self.session = (0, 0)

    def see(self, epoch: int) -> None:
        brokers = {number: BrokerImage(number, "h", 1, None, 1) for number in (1, 2)}
        states = tuple(PartitionImage(i, (1, 2), (1, 2), 1, epoch, epoch, (1, 1)) for i in range(COUNT))
        topic = TopicImage("orders", TOPIC_ID, states, {}, version=epoch)
        image = ClusterImage("c", 1, brokers).with_topics([topic])
        self.host.follow(getattr(self, "image", ClusterImage("", -1)), image)
        self.image = image

    def partition(self, index: int) -> Partition:
        return self.host.find("orders", index)

    def question(self, index: int, epoch: int = 0) -> Message:
        return Message(
            partition=index, current_leader_epoch=epoch, fetch_offset=self.has[index], last_fetched_epoch=-1,
            log_start_offset=0, partition_max_bytes=1 << 20,
        )  # fmt: skip

    def fields(self, indexes: list[int], **changed: Any) -> Message:
        fields: dict[str, Any] = {
            "replica_id": -1, "replica_state": Message(replica_id=2, replica_epoch=1), "max_wait_ms": 500,
            "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "rack_id": "", "forgotten_topics_data": [],
            "session_id": self.session[0], "session_epoch": self.session[1],
            "topics": [Message(topic="", topic_id=TOPIC_ID, partitions=[self.question(i) for i in indexes])],
        }  # fmt: skip
        return Message(**fields | changed)

    async def ask(self, indexes: list[int], **changed: Any) -> Message:
        reply = self.fetch(Request(1, 17, "test", self.fields(indexes, **changed), Caller(Peer("", 0, "", 0))))
        answer = await settled(reply)
        if not vars(answer).get("error_code", 0):
            self.session = (answer.session_id, self.session[1] + 1)
        return answer

    async def round(self, indexes: list[int], **changed: Any) -> list[int]:
        """One fetch, and what it brought taken: the partitions that gave records."""
        gave = []
        for topic in (await self.ask(indexes, **changed)).responses:
            for part in topic.partitions:
                self.heard[part.partition_index] = part.high_watermark
                ends = [header.next_offset for _, header in walk(part.records)]
                if ends:
                    self.has[part.partition_index] = ends[-1]
                    gave.append(part.partition_index)
        return gave


def run(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, 1)


def test_a_waiting_fetch_is_answered_by_the_partition_that_got_something() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        room.clock.call_later(0.1, lambda: room.partition(5).append(batch()))
        assert await room.round([]) == [5]
        assert await room.round([5]) == []
        assert room.heard[5] == room.partition(5).high_watermark == 1, "asking for more said that it has this"

    run(story())


def test_nothing_is_missed_between_the_look_and_the_wait() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        waiting = asyncio.ensure_future(room.ask([]))
        await asyncio.sleep(0)  # the handler has looked; the wait has not begun
        room.partition(5).append(batch())
        started = room.clock.monotonic()
        assert (await waiting).responses[0].partitions[0].partition_index == 5
        assert room.clock.monotonic() - started < 0.1

        fields = room.fields([])
        reply = room.fetch(Request(1, 17, "test", fields, Caller(Peer("", 0, "", 0))))
        room.partition(6).append(batch())
        answer = await cast("Awaitable[Message]", reply)
        assert answer.responses[0].partitions[0].partition_index == 6
        assert room.clock.monotonic() - started < 0.1

    run(story())


@pytest.mark.parametrize("after_turns", range(2 * COUNT))
@pytest.mark.parametrize("index", [0, COUNT - 1])
def test_nothing_is_missed_between_two_pieces_of_a_look(
    monkeypatch: pytest.MonkeyPatch, index: int, after_turns: int
) -> None:
    for module in (replica_fetch, fetch_reading):
        monkeypatch.setattr(module, "PIECE", 2)

    async def story() -> None:
        room = Room()
        await room.open()
        assert await room.round(list(range(COUNT))) == []
        for one in range(COUNT):
            room.partition(one).append(batch())
        for _ in range(3):
            room.has = [room.partition(0).log.end_offset] * COUNT
            await room.ask(list(range(COUNT)), max_wait_ms=1)
        waiting = asyncio.ensure_future(room.ask(list(range(COUNT))))
        for _ in range(after_turns):
            await asyncio.sleep(0)
        room.partition(index).append(batch())
        started = room.clock.monotonic()
        found: list[int] = []
        answer = await waiting
        while not found:
            parts = [part for topic in answer.responses for part in topic.partitions]
            found = [part.partition_index for part in parts if part.records]
            answer = answer if found else await room.ask([])
        assert found == [index]
        assert room.clock.monotonic() - started < 0.01, "not only when the news of the high watermark come"

    run(story())


def test_a_new_session_ends_one_that_is_still_being_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetch, "PIECE", 2)

    async def story() -> None:
        room = Room()
        await room.open()
        first = asyncio.ensure_future(room.ask(list(range(COUNT)), session_id=0, session_epoch=0))
        await asyncio.sleep(0)
        second = await room.ask([0], session_id=0, session_epoch=0)
        assert (await first).session_id != second.session_id
        watched = [len(room.partition(index).readers._watchers) for index in range(COUNT)]
        assert watched == [1] + [0] * (COUNT - 1)

    run(story())


def test_a_crowded_budget_shortens_answers_and_loses_nothing() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        for index in range(COUNT):
            room.partition(index).append(batch(value=b"v" * 30_000))
        hog = room.budget.take(1 << 20, "hog")
        mentioned = list[int]()
        while room.has != [1] * COUNT:
            mentioned = await room.round(mentioned)
            assert len(mentioned) == 2
        del hog

    run(story())


def test_what_found_no_room_comes_with_the_next_answers() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        for index in range(COUNT):
            room.partition(index).append(batch())
        size, mentioned, rounds = len(batch()), list[int](), 0
        while room.has != [1] * COUNT:
            mentioned = await room.round(mentioned, max_bytes=2 * size)
            assert len(mentioned) <= 2
            rounds += 1
        assert rounds == COUNT // 2
        while room.heard != [1] * COUNT:
            mentioned = await room.round(mentioned)

    run(story())


def test_records_that_were_sent_are_sent_again_only_when_asked_for_again() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        room.partition(3).append(batch())
        assert await room.round([]) == [3]
        room.has[3] = 0  # it could not be stored
        assert await room.round([]) == []
        assert await room.round([3]) == [3]

    run(story())


def test_a_forgotten_partition_is_silent_and_a_new_epoch_is_told() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        forgotten = [Message(topic="", topic_id=TOPIC_ID, partitions=[3])]
        await room.round([], forgotten_topics_data=forgotten, max_wait_ms=0)
        room.partition(3).append(batch())
        assert await room.round([]) == []
        room.clock.call_later(0.1, lambda: room.see(1))
        answer = await room.ask([])
        codes = {part.partition_index: part.error_code for part in answer.responses[0].partitions}
        assert codes == dict.fromkeys([0, 1, 2, 4, 5, 6, 7], ErrorCode.fenced_leader_epoch)

    run(story())


def test_sessions_of_other_lives_and_lost_answers_are_refused() -> None:
    async def story() -> None:
        room = Room()
        await room.open()
        await room.round(list(range(COUNT)))
        number, epoch = room.session
        for session, code in (
            ((number + 1, epoch), ErrorCode.fetch_session_id_not_found),
            ((number, epoch + 1), ErrorCode.invalid_fetch_session_epoch),
        ):
            answer = await room.ask([], session_id=session[0], session_epoch=session[1])
            assert answer.error_code == code
        later = Message(replica_id=2, replica_epoch=2)
        answer = await room.ask([], replica_state=later)
        assert answer.error_code == ErrorCode.fetch_session_id_not_found, "it has to say again what it has"
        earlier = Message(replica_id=2, replica_epoch=0)
        answer = await room.ask([], session_id=0, session_epoch=0, replica_state=earlier)
        assert answer.error_code == ErrorCode.stale_broker_epoch
        waiting = asyncio.ensure_future(room.ask([]))
        await asyncio.sleep(0.1)
        await room.ask(list(range(COUNT)), session_id=0, session_epoch=0, max_wait_ms=0)
        assert (await waiting).responses == [], "whoever begins anew ends what waits"

    run(story())
