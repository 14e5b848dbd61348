"""The runtime: order, commits, loading, leadership, timers, and a journal that fails. On virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from headrace.coordinators.runtime import CoordinatorRuntime, partition_for, string_hash
from headrace.coordinators.shard import Outcome, Wait
from headrace.wire.errors import ErrorCode, KafkaError
from sim.loop import SimClock, run
from tests.unit.coordinators.stage import MemoryJournal


@dataclass(frozen=True)
class Say:
    """Write a word; answered with everything said so far."""

    word: bytes


@dataclass(frozen=True)
class Ask:
    """Answered with everything said so far."""


@dataclass(frozen=True)
class WaitForNext:
    """Answered when somebody says the next word."""


@dataclass(frozen=True)
class SayLater:
    word: bytes
    delay_ms: int


class Words:
    """The smallest shard that uses everything."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self._waiting: list[int] = []
        self._next_ticket = 0

    def decide(self, command: object, now_ms: int) -> Outcome:
        outcome = Outcome()
        match command:
            case Say(word):
                outcome.write((word, b""))
                outcome.reply = [*self.said, word]
                for ticket in self._waiting:
                    outcome.wake(ticket, word)
                self._waiting = []
            case Ask():
                outcome.reply = list(self.said)
            case WaitForNext():
                self._next_ticket += 1
                self._waiting.append(self._next_ticket)
                outcome.reply = Wait(self._next_ticket)
            case SayLater(word, delay_ms):
                outcome.set_timer("later", delay_ms, Say(word))
            case "never mind":
                outcome.cancel_timer("later")
        return outcome

    def apply(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        self.said.append(key)

    def loaded(self, now_ms: int) -> Outcome:
        return Outcome()


Runtime = CoordinatorRuntime[Words]


def play(story: Callable[[Runtime, MemoryJournal], Awaitable[None]], lead: bool = True) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        runtime: Runtime = CoordinatorRuntime(journal, SimClock(), Words, lambda: 1)
        running = asyncio.ensure_future(runtime.run())
        if lead:
            runtime.on_leadership(0, True, 1)
        await settle()
        await story(runtime, journal)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main(), seed=1)


async def settle() -> None:
    await asyncio.sleep(0.001)


async def refused(answer: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await answer
    return caught.value.code


def test_command_takes_effect_before_submit_returns() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        runtime.submit("x", Say(b"one"))
        second = runtime.submit("x", Say(b"two"))
        assert journal.written[0] == [(b"one", b""), (b"two", b"")]
        assert await second == [b"one", b"two"]

    play(story)


def test_reply_waits_for_its_commit_and_for_every_earlier_one() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        journal.hold()
        said, asked = runtime.submit("x", Say(b"one")), runtime.submit("x", Ask())
        await settle()
        assert not said.done()
        assert not asked.done()
        journal.release()
        assert await asked == [b"one"]
        assert said.done()

    play(story)


def test_parked_command_is_answered_by_a_later_one() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        waiting = runtime.submit("x", WaitForNext())
        await settle()
        assert not waiting.done()
        runtime.submit("x", Say(b"one"))
        assert await waiting == b"one"

    play(story)


def test_nothing_is_answered_where_this_broker_does_not_lead() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        assert await refused(runtime.submit("x", Ask())) is ErrorCode.not_coordinator

    play(story, lead=False)


def test_a_broker_that_may_have_been_replaced_does_not_even_look_things_up() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        await runtime.submit("x", Say(b"one"))
        journal.out_of_touch = True
        assert await refused(runtime.submit("x", Ask())) is ErrorCode.not_coordinator
        assert await refused(runtime.ask_all(Ask())) is ErrorCode.not_coordinator
        journal.out_of_touch = False
        assert await runtime.submit("x", Ask()) == [b"one"]

    play(story)


def test_all_shards_are_asked_one_in_a_turn() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        for partition in (1, 2):
            runtime.on_leadership(partition, True, 1)
        await settle()
        asked = asyncio.ensure_future(runtime.ask_all(Ask()))
        turns = 0
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        assert asked.result() == [[], [], []]
        assert turns >= 3
        again = asyncio.ensure_future(runtime.ask_all(Ask()))
        await asyncio.sleep(0)
        runtime.on_leadership(2, False, 1)
        assert await refused(again) is ErrorCode.not_coordinator

    play(story)


def test_loading_is_said_and_then_everything_is_there() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        journal.put(0, [(b"%d" % number, b"") for number in range(10)])
        journal.block_reads()
        runtime.on_leadership(0, True, 1)
        await settle()
        assert await refused(runtime.submit("x", Ask())) is ErrorCode.coordinator_load_in_progress
        assert await refused(runtime.ask_all(Ask())) is ErrorCode.coordinator_load_in_progress
        runtime.tell_all(Say(b"told while loading"))
        assert runtime.loading() == 1
        journal.unblock_reads()
        await settle()
        assert await runtime.submit("x", Ask()) == [*(b"%d" % number for number in range(10)), b"told while loading"]

    play(story, lead=False)


def test_losing_leadership_answers_everybody_who_waits() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        parked = runtime.submit("x", WaitForNext())
        journal.hold()
        uncommitted = runtime.submit("x", Say(b"one"))
        again = runtime.submit("x", WaitForNext())
        runtime.submit("x", SayLater(b"later", 1_000))
        runtime.on_leadership(0, False, 2)
        for answer in (parked, uncommitted, again):
            assert await refused(answer) is ErrorCode.not_coordinator
        journal.release()
        await asyncio.sleep(5)
        assert journal.written[0] == [(b"one", b"")], "a timer of the former leader has written"

    play(story)


def test_what_an_older_epoch_says_is_ignored() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        runtime.on_leadership(0, True, 5)
        await settle()
        reads = journal.reads
        runtime.on_leadership(0, False, 4)
        runtime.on_leadership(0, True, 5)
        await settle()
        assert journal.reads == reads
        assert await runtime.submit("x", Ask()) == []
        runtime.on_leadership(0, False, 6)
        runtime.on_leadership(0, True, 5)
        await settle()
        assert await refused(runtime.submit("x", Ask())) is ErrorCode.not_coordinator

    play(story)


@pytest.mark.parametrize("error", [OSError("disk"), KafkaError(ErrorCode.kafka_storage_error)])
def test_journal_that_cannot_be_read_is_tried_again(error: Exception) -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        journal.put(0, [(b"one", b"")])
        journal.fail_read(error)
        runtime.on_leadership(0, True, 1)
        await settle()
        assert await refused(runtime.submit("x", Ask())) is ErrorCode.coordinator_load_in_progress
        await asyncio.sleep(5)
        assert await runtime.submit("x", Ask()) == [b"one"]

    play(story, lead=False)


def test_refused_append_leaves_memory_as_the_log_is() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        await runtime.submit("x", Say(b"one"))
        journal.refuse(KafkaError(ErrorCode.kafka_storage_error))
        assert await refused(runtime.submit("x", Say(b"two"))) is ErrorCode.not_coordinator
        await settle()
        assert await runtime.submit("x", Ask()) == [b"one"]

    play(story)


def test_append_that_fails_later_fails_everything_decided_after_it() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        await runtime.submit("x", Say(b"one"))
        journal.lose(KafkaError(ErrorCode.not_enough_replicas))
        lost, built_on_it = runtime.submit("x", Say(b"two")), runtime.submit("x", Ask())
        assert await refused(lost) is ErrorCode.coordinator_not_available
        assert await refused(built_on_it) is ErrorCode.coordinator_not_available
        await settle()
        assert await runtime.submit("x", Ask()) == [b"one"]

    play(story)


def test_a_journal_that_refuses_every_write_is_not_read_as_fast_as_can_be() -> None:
    """A timer that is due when a partition was read writes at once, is refused, and the partition is read again."""

    class Impatient(Words):
        def loaded(self, now_ms: int) -> Outcome:
            outcome = Outcome()
            outcome.set_timer("now", 0, Say(b"now"))
            return outcome

    async def main() -> None:
        journal = MemoryJournal()
        runtime: Runtime = CoordinatorRuntime(journal, SimClock(), Impatient, lambda: 1)
        running = asyncio.ensure_future(runtime.run())
        journal.refuse_all(KafkaError(ErrorCode.not_enough_replicas))
        runtime.on_leadership(0, True, 1)
        await asyncio.sleep(10)
        assert 90 < journal.reads < 110
        journal.refuse_all(None)
        await asyncio.sleep(1)
        assert await runtime.submit("x", Ask()) == [b"now"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main(), seed=1)


def test_request_whose_connection_is_gone_disturbs_nobody() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        gone, stays = runtime.submit("x", WaitForNext()), runtime.submit("x", WaitForNext())
        gone.cancel()
        runtime.submit("x", Say(b"one"))
        assert await stays == b"one"

    play(story)


@pytest.mark.parametrize(
    ("delays_ms", "said_at_ms"),
    [
        pytest.param([1_000], 1_000, id="once"),
        pytest.param([1_000, 3_000], 3_000, id="moved-back"),
        pytest.param([3_000, 1_000], 1_000, id="moved-forward"),
    ],
)
def test_timer_rings_when_it_was_last_set_to(delays_ms: list[int], said_at_ms: int) -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        for delay_ms in delays_ms:
            runtime.submit("x", SayLater(b"rings", delay_ms))
        await asyncio.sleep((said_at_ms - 1) / 1000)
        assert 0 not in journal.written
        await asyncio.sleep(10)
        assert journal.written[0] == [(b"rings", b"")]

    play(story)


def test_cancelled_timer_does_not_ring() -> None:
    async def story(runtime: Runtime, journal: MemoryJournal) -> None:
        runtime.submit("x", SayLater(b"rings", 1_000))
        runtime.submit("x", "never mind")
        await asyncio.sleep(5)
        assert 0 not in journal.written

    play(story)


@pytest.mark.parametrize(
    ("text", "java_hash"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("my-group", -1_906_497_762, id="ascii"),
        pytest.param("console-consumer-12345", 158_455_506, id="digits"),
        pytest.param("größe", 98_762_257, id="latin"),
        pytest.param("😀 group", -1_570_619_006, id="surrogate-pair"),
    ],
)
def test_string_hash_is_javas(text: str, java_hash: int) -> None:
    assert string_hash(text) == java_hash & 0xFFFFFFFF
    assert partition_for(text, 50) == (java_hash & 0x7FFFFFFF) % 50
