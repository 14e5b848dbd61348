"""Fetches of many partitions or bytes: in pieces, within the budget, and otherwise as any other fetch."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.api import fetch, fetch_reading, fetch_sessions
from headrace.api.contract import Caller, Held, Peer, Request, Steps
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import MOST_UNKNOWN, FetchSessions
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.pieces import Pieces, settled
from headrace.api.reply_budget import SMALL_BYTES, ReplyBudget
from headrace.api.view_fetch import Views
from headrace.log.logs import Logs
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.replicas.host import ReplicaHost
from headrace.wire.batches import walk
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.entropy import SeededEntropy
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from tests.unit.log.batches import batch

TOPIC, COUNT, PIECE, VERSION = "orders", 10, 3, 12
TURNS = 4  # of ten partitions, three at a time
MIB = 1 << 20


def caller(port: int) -> Caller:
    return Caller(Peer("client", port, "", 0))


def test_a_fetch_of_very_many_partitions_waits_for_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        room = Room()
        for most, waited_s in ((COUNT, 60.0), (COUNT - 1, 1.0)):
            monkeypatch.setattr(fetch, "AT_ONCE_ITEMS", most)
            began_s = room.clock.monotonic()
            await settled(room.ask(*range(COUNT), max_wait_ms=60_000))
            assert room.clock.monotonic() - began_s == pytest.approx(waited_s, abs=0.1)

    sim_loop.run(story(), seed=1)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetch, fetch_reading, fetch_sessions):
        monkeypatch.setattr(module, "PIECE", PIECE)


class Room:
    """A broker with ten empty partitions."""

    def __init__(self) -> None:
        self.clock, self.disk = SimClock(), SimDisk()
        self.disk.make_dirs(Path("/data"))
        self.host = ReplicaHost(1, Logs(self.disk, self.clock, Path("/data")), self.clock, {})
        self.image = ClusterImage("", -1)
        self.create(TOPIC, 5)
        self.budget = ReplyBudget(10 * MIB)
        hints = LeaderHints(lambda: self.image, lambda _, broker: (broker.host, broker.port))
        reading = FetchReading(self.host, self.disk.off_loop, 50 * MIB, hints, self.budget)
        self.sessions = FetchSessions(self.clock, SeededEntropy(1), 10, 10_000)
        self.fetch = Fetch(
            self.host,
            Gate(),
            self.sessions,
            self.clock,
            SeededEntropy(2),
            reading,
            reading,
            Views(SimComputing(), self.clock),
        )

    def create(self, name: str, number: int) -> None:
        states = tuple(PartitionImage(index, (1,), (1,), 1, 3, 0, ()) for index in range(COUNT))
        topic = TopicImage(name, uuid.UUID(int=number), states, {"max.message.bytes": "20000000"})
        known = list(self.image.topics.values())
        image = ClusterImage("c", 1, {1: BrokerImage(1, "h", 1, None, 1)}).with_topics([*known, topic])
        before, self.image = self.image, image
        self.host.follow(before, image)

    def append(self, index: int, *, size: int = 10, topic: str = TOPIC) -> None:
        self.host.find(topic, index).append(batch(value=b"v" * size))

    def ask(self, *partitions: int, topic: str = TOPIC, port: int = 1, **changed: Any) -> Any:
        """What the handler returns."""
        parts = [
            Message(
                partition=index, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
                partition_max_bytes=50 * MIB,
            )
            for index in partitions
        ]  # fmt: skip
        fields: dict[str, Any] = {
            "replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 * MIB, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
            "topics": [Message(topic=topic, topic_id=None, partitions=parts)] if parts else [],
            "replica_state": Message(replica_id=-1, replica_epoch=-1),
        }  # fmt: skip
        return self.fetch(Request(1, VERSION, "", Message(**fields | changed), caller(port)))

    def waiters(self) -> int:
        return sum(len(one.readers._committed.wanting) for one in self.host.partitions())


def told(answer: Message) -> dict[int, tuple[ErrorCode, int]]:
    """The error and the number of batches of each partition."""
    return {
        part.partition_index: (ErrorCode(vars(part).get("error_code", 0)), len(list(walk(part.records or b""))))
        for topic in answer.responses
        for part in topic.partitions
    }


def run(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, 1)


# --- in pieces -------------------------------------------------------------------------------------------------------


def test_many_partitions_are_read_in_pieces_and_answered_in_the_order_of_the_connection() -> None:
    async def story() -> None:
        room = Room()
        for index in range(COUNT):
            room.append(index)
        assert isinstance(room.ask(*range(PIECE - 1)), Message), "few are answered at once"
        held = room.ask(*range(COUNT))
        assert isinstance(held, Held)
        assert told(await settled(held)) == dict.fromkeys(range(COUNT), (ErrorCode.none, 1))

    run(story())


@pytest.mark.parametrize("after_turns", range(3 * TURNS))
@pytest.mark.parametrize("index", [0, COUNT - 1])
def test_an_append_between_two_pieces_is_not_missed(after_turns: int, index: int) -> None:
    async def story() -> None:
        room = Room()
        waiting = asyncio.ensure_future(settled(room.ask(*range(COUNT))))
        for _ in range(after_turns):
            await asyncio.sleep(0)
        room.append(index)
        started = room.clock.monotonic()
        assert told(await waiting)[index] == (ErrorCode.none, 1)
        assert room.clock.monotonic() - started < 0.1
        await asyncio.sleep(0)
        assert room.waiters() == 0

    run(story())


@pytest.mark.parametrize("after_turns", range(3 * TURNS))
def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(after_turns: int) -> None:
    async def story() -> None:
        room = Room()
        stage_one = asyncio.ensure_future(room.ask(*range(COUNT)).reply)
        for _ in range(after_turns):
            await asyncio.sleep(0)
        if stage_one.done():
            stage_one.result().cancel()
        stage_one.cancel()
        await asyncio.sleep(0.01)
        assert room.waiters() == 0

    run(story())


def test_a_large_fetch_that_waits_in_vain_is_answered_in_time() -> None:
    async def story() -> None:
        room = Room()
        answer = await settled(room.ask(*range(COUNT)))
        assert room.clock.monotonic() == pytest.approx(0.5, abs=0.01)
        assert told(answer) == dict.fromkeys(range(COUNT), (ErrorCode.none, 0))

    run(story())


def test_pieces_of_many_requests_have_their_turns_one_after_the_other() -> None:
    async def story() -> None:
        pieces, turns = Pieces(), list[str]()

        def steps(name: str) -> Steps[Message]:
            for _ in range(3):
                yield
                turns.append(name)
            return Message()

        async def count() -> None:
            while len(turns) - turns.count(".") < 6:
                await asyncio.sleep(0)
                turns.append(".")

        begun = [pieces.begin(steps(name)) for name in "ab"]
        counting = asyncio.ensure_future(count())
        await asyncio.gather(*(settled(one) for one in begun))
        await counting
        assert "ab" not in "".join(turns), "others have their turn in between"
        assert "ba" not in "".join(turns)

    run(story())


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_topic_that_comes_to_exist_is_read_by_the_session_that_asked_for_it_before() -> None:
    async def story() -> None:
        room = Room()
        opened = await settled(room.ask(0, topic="later", session_epoch=0))
        assert told(opened) == {0: (ErrorCode.unknown_topic_or_partition, 0)}
        again = await settled(room.ask(session_id=opened.session_id, session_epoch=1))
        assert told(again) == told(opened), "as long as it is so"
        room.create("later", 6)
        room.append(0, topic="later")
        found = await settled(room.ask(session_id=opened.session_id, session_epoch=2))
        assert (found.session_id, told(found)) == (opened.session_id, {0: (ErrorCode.none, 1)})

    run(story())


def test_a_session_that_asks_for_very_many_partitions_that_do_not_exist_is_not_kept() -> None:
    async def story() -> None:
        room = Room()
        unknown = range(COUNT, COUNT + MOST_UNKNOWN + 1)
        refused = await settled(room.ask(*unknown, session_epoch=0))
        assert (refused.session_id, len(told(refused)), len(room.sessions)) == (0, len(unknown), 0)
        opened = await settled(room.ask(0, session_epoch=0, max_wait_ms=0))
        grown = await settled(room.ask(*unknown, session_id=opened.session_id, session_epoch=1))
        assert (grown.session_id, len(told(grown)), len(room.sessions)) == (0, len(unknown), 0)
        late = await settled(room.ask(session_id=opened.session_id, session_epoch=2))
        assert late.error_code == ErrorCode.fetch_session_id_not_found

    run(story())


# --- the budget ------------------------------------------------------------------------------------------------------


def test_loaded_records_count_until_nobody_has_them() -> None:
    async def story() -> None:
        room = Room()
        room.append(0, size=MIB)
        room.append(1, size=MIB)
        answer = await settled(room.ask(0, 1))
        assert room.budget.held_bytes > 2 * MIB
        records = [part.records for part in answer.responses[0].partitions]
        del answer
        slices = [memoryview(one)[10:20] for one in records]
        del records
        assert room.budget.held_bytes > 2 * MIB
        slices.clear()
        assert room.budget.held_bytes == 0

    run(story())


@pytest.mark.parametrize("cold", [False, True])
def test_a_large_fetch_gets_what_there_is_room_for(cold: bool) -> None:
    async def story() -> None:
        room = Room()
        for _ in range(50):
            room.append(0, size=20_000)
        hog = room.budget.take(8 * MIB, "hog")
        room.disk.cold = cold
        answer = await settled(room.ask(0))
        assert told(answer) == {0: (ErrorCode.none, SMALL_BYTES // 20_000)}
        del hog
        del answer
        assert told(await settled(room.ask(0))) == {0: (ErrorCode.none, 50)}

    run(story())


def test_a_fetch_of_a_connection_that_has_not_read_the_last_one_waits() -> None:
    async def story() -> None:
        room = Room()
        for _ in range(5):
            room.append(0, size=MIB)
        unread = await settled(room.ask(0))
        hog = room.budget.take(2 * MIB, "hog")
        waiting = asyncio.ensure_future(settled(room.ask(0)))
        await asyncio.sleep(1)
        assert (room.budget.waiting, room.budget.crowded()) == (0 if waiting.done() else 1, True)
        assert not waiting.done()
        room.append(1)
        assert told(await settled(room.ask(1))) == {1: (ErrorCode.none, 1)}, "a brief one asks nobody"
        del unread
        assert told(await waiting) == {0: (ErrorCode.none, 1)}
        del hog

    run(story())


def test_a_fetch_that_waited_for_room_is_asked_by_the_rules_of_then() -> None:
    async def story() -> None:
        room = Room()
        room.append(0, size=9 * MIB)
        unread = await settled(room.ask(0))
        waiting = asyncio.ensure_future(settled(room.ask(0)))
        await asyncio.sleep(1)
        assert not waiting.done()
        partition = room.host.find(TOPIC, 0)
        partition.delete_records(-1)
        del unread
        assert told(await waiting) == {0: (ErrorCode.offset_out_of_range, 0)}

    run(story())
