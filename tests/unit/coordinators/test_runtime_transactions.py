"""The runtime with records in transactions, and with follow-ups that run once records are committed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.coordinators.runtime import CoordinatorRuntime
from headrace.coordinators.shard import Outcome
from headrace.model.transaction_end import TransactionEnd
from headrace.wire.errors import ErrorCode, KafkaError
from sim.loop import SimClock, run
from tests.unit.coordinators.stage import MemoryJournal

END = TransactionEnd(producer_id=7, producer_epoch=1, coordinator_epoch=0, commit=True, version=2)


class Notebook:
    """A command is (what to write, by which producer, what is to be done); it is answered with what counts so far."""

    def __init__(self) -> None:
        self.counts: list[bytes] = []
        self.pending: dict[int, list[bytes]] = {}

    def decide(self, command: Any, now_ms: int) -> Outcome:
        text, producer, follow_up = command
        outcome = Outcome(reply=text, producer=producer)
        outcome.write((text, b""))
        if follow_up:
            outcome.follow_ups.append(follow_up)
        return outcome

    def apply(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        (self.counts if producer_id < 0 else self.pending.setdefault(producer_id, [])).append(key)

    def apply_end(self, producer_id: int, commit: bool) -> None:
        ended = self.pending.pop(producer_id, [])
        self.counts.extend(ended if commit else [])

    def loaded(self, now_ms: int) -> Outcome:
        return Outcome(follow_ups=["loaded"])


class Stage:
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.seen: list[Any] = []
        self.runtime = CoordinatorRuntime(
            self.journal,
            SimClock(),
            Notebook,
            lambda: 1,
            run_follow_up=lambda epoch, follow_up: self.seen.append((epoch, follow_up)),
        )

    @property
    def shard(self) -> Notebook:
        (shard,) = self.runtime.shards()
        return shard

    def submit(
        self, text: bytes, producer: tuple[int, int] | None = None, follow_up: str = ""
    ) -> "asyncio.Future[Any]":
        future = self.runtime.submit("k", (text, producer, follow_up))
        future.add_done_callback(lambda done: None if done.exception() else self.seen.append(done.result()))
        return future

    async def reload(self, epoch: int) -> None:
        self.runtime.on_leadership(0, True, epoch)
        await asyncio.sleep(0.1)


def on_stage(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.ensure_future(stage.runtime.run())
        await stage.reload(3)
        await story(stage)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main(), 1)


def test_a_follow_up_is_run_once_its_record_is_committed_and_before_the_reply() -> None:
    async def story(stage: Stage) -> None:
        assert stage.seen == [(3, "loaded")]
        stage.journal.hold()
        stage.submit(b"one", follow_up="go")
        await asyncio.sleep(1)
        assert stage.seen == [(3, "loaded")]
        stage.journal.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.seen == [(3, "loaded"), (3, "go"), b"one"]

    on_stage(story)


def test_what_was_not_written_sends_nobody_anywhere() -> None:
    async def story(stage: Stage) -> None:
        stage.journal.lose(KafkaError(ErrorCode.not_enough_replicas))
        with pytest.raises(KafkaError):
            await stage.submit(b"one", follow_up="go")
        await asyncio.sleep(1)
        assert (3, "go") not in stage.seen

    on_stage(story)


def test_records_of_a_transaction_count_with_its_end_now_and_after_a_restart() -> None:
    async def story(stage: Stage) -> None:
        await stage.submit(b"pending", (7, 0))
        await stage.submit(b"other", (8, 0))
        await stage.submit(b"plain")
        assert stage.shard.counts == [b"plain"]
        await stage.reload(4)
        assert (stage.shard.counts, stage.shard.pending) == ([b"plain"], {7: [b"pending"], 8: [b"other"]})
        await stage.runtime.end_transaction(0, END)
        assert stage.shard.counts == [b"plain", b"pending"]
        await stage.reload(5)
        assert (stage.shard.counts, stage.shard.pending) == ([b"plain", b"pending"], {8: [b"other"]})

    on_stage(story)


def test_an_end_is_refused_while_the_partition_is_not_here_or_loads() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(KafkaError) as refused:
            await stage.runtime.end_transaction(1, END)
        assert refused.value.code is ErrorCode.not_leader_or_follower
        stage.journal.block_reads()
        stage.runtime.on_leadership(0, True, 4)
        with pytest.raises(KafkaError) as refused:
            await stage.runtime.end_transaction(0, END)
        assert refused.value.code is ErrorCode.coordinator_load_in_progress

    on_stage(story)


def test_a_fenced_producer_costs_nobody_else_anything() -> None:
    async def story(stage: Stage) -> None:
        shard = stage.shard
        stage.journal.refuse(KafkaError(ErrorCode.invalid_producer_epoch))
        with pytest.raises(KafkaError) as refused:
            await stage.submit(b"late", (7, 0))
        assert refused.value.code is ErrorCode.invalid_producer_epoch
        stage.journal.refuse(KafkaError(ErrorCode.transaction_coordinator_fenced))
        with pytest.raises(KafkaError):
            await stage.runtime.end_transaction(0, END)
        assert stage.shard is shard, "it was not read back"
        assert shard.pending == {}

    on_stage(story)
