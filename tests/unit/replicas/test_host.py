"""One partition that cannot be hosted keeps no other one from it, and is tried again."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.log.logs import Logs
from headrace.log.partition_log import PartitionLog
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.topic_config import TopicConfig
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from sim.disk import SimDisk
from sim.loop import SimClock, run

FOLDER = Path("/data")
ELSEWHERE = 2


class FaultyLogs(Logs):
    """`faults` says which partitions cannot be opened, or not be removed, and why."""

    faults: dict[tuple[str, int], Exception]
    attempts = 0

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        self._fail_at(topic, partition)
        return super().create(topic, partition, topic_id, config)

    def delete(self, topic: str, partition: int) -> None:
        self._fail_at(topic, partition)
        super().delete(topic, partition)

    def _fail_at(self, topic: str, partition: int) -> None:
        if (topic, partition) in self.faults:
            self.attempts += 1
            raise self.faults[topic, partition]


class Stage:
    """One broker whose image the test changes."""

    def __init__(self, **faults: Exception) -> None:
        """`a_0=...`: partition 0 of topic a cannot be opened or removed."""
        disk = SimDisk()
        disk.make_dirs(FOLDER)
        self.clock = SimClock()
        self.logs = FaultyLogs(disk, self.clock, FOLDER)
        self.logs.faults = {(name[0], int(name[2:])): error for name, error in faults.items()}
        self.host = ReplicaHost(1, self.logs, self.clock, {})
        self.image = ClusterImage("", -1)

    def see(self, *topics: TopicImage, without: str | None = None) -> None:
        before = self.image
        after = before if before.cluster_id else ClusterImage("c", 1)
        if without is not None:
            after = after.without_topic(without)
        self.image = after.with_topics(topics)
        self.host.follow(before, self.image)

    def hosted(self) -> list[str]:
        return [f"{p.topic}-{p.index}" for p in self.host.partitions() if p.leads]

    def mended(self) -> None:
        self.logs.faults = {}


def topic(name: str, partitions: int = 1, broker: int = 1, settings: dict[str, str] | None = None) -> TopicImage:
    states = tuple(PartitionImage(index, (broker,), (broker,), broker, 0, 0) for index in range(partitions))
    return TopicImage(name, uuid.uuid5(uuid.NAMESPACE_URL, name), states, settings or {})


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(story(), seed=0)


@pytest.mark.parametrize(
    "fault", [OSError(5, "cannot read it"), KafkaError(ErrorCode.kafka_storage_error), ValueError("no such format")]
)
def test_one_partition_that_cannot_be_opened_keeps_no_other_one_from_being_hosted(fault: Exception) -> None:
    async def story() -> None:
        stage = Stage(a_1=fault)
        stage.see(topic("a", 3), topic("b"))
        assert stage.hosted() == ["a-0", "a-2", "b-0"]

    play(story)


def test_the_next_image_brings_what_could_not_be_hosted_though_its_topic_did_not_change() -> None:
    async def story() -> None:
        stage = Stage(a_1=OSError("too many files"))
        stage.see(topic("a", 3))
        stage.see(topic("b"))
        assert stage.hosted() == ["a-0", "a-2", "b-0"]
        stage.mended()
        stage.see(topic("c"))
        assert sorted(stage.hosted()) == ["a-0", "a-1", "a-2", "b-0", "c-0"]

    play(story)


def test_the_review_brings_what_could_not_be_hosted_when_no_image_comes() -> None:
    async def story() -> None:
        stage = Stage(a_0=OSError("too many files"))
        stage.see(topic("a"), topic("b"))
        running = asyncio.ensure_future(stage.host.run())
        await stage.clock.sleep(20)
        assert stage.hosted() == ["b-0"]
        assert stage.logs.attempts > 2
        stage.mended()
        await stage.clock.sleep(20)
        assert sorted(stage.hosted()) == ["a-0", "b-0"]
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(story)


def test_a_failure_is_told_once_with_its_partition_and_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stage = Stage(a_1=OSError("too many files"))
        with caplog.at_level(logging.INFO, "headrace.replicas.host"):
            stage.see(topic("a", 2))
            for other in "bcd":
                stage.see(topic(other))
            (told,) = caplog.messages
            assert "a-1" in told
            assert "too many files" in told
            stage.logs.faults["a", 1] = OSError("the disk is full")
            stage.see(topic("e"))
            assert "the disk is full" in caplog.messages[-1]
            stage.mended()
            stage.see(topic("f"))
            assert len(caplog.messages) == 3

    play(story)


def test_clients_are_told_that_the_partition_is_here_and_cannot_be_read() -> None:
    async def story() -> None:
        stage = Stage(a_0=OSError("too many files"))
        stage.see(topic("a"))
        with pytest.raises(KafkaError, match="too many files") as refused:
            stage.host.find("a", 0)
        assert refused.value.code is ErrorCode.kafka_storage_error

    play(story)


def test_settings_that_cannot_be_read_keep_only_their_own_topic_from_being_hosted() -> None:
    async def story() -> None:
        stage = Stage()
        stage.see(topic("a", settings={"retention.ms": "soon"}), topic("b"))
        assert stage.hosted() == ["b-0"]
        stage.see(topic("a"))
        assert sorted(stage.hosted()) == ["a-0", "b-0"]

    play(story)


def test_files_that_cannot_be_removed_keep_no_other_topic_from_being_dropped_or_hosted() -> None:
    async def story() -> None:
        stage = Stage()
        stage.see(topic("a", 2), topic("b", 2))
        stage.logs.faults = {("a", 0): OSError("not permitted"), ("b", 0): OSError("not permitted")}
        stage.see(topic("b", 2, ELSEWHERE), topic("c"), without="a")
        assert stage.hosted() == ["c-0"]
        assert [place for place, _ in stage.logs] == [("a", 0), ("b", 0), ("c", 0)]

    play(story)


def test_a_new_registration_reaches_every_partition_though_one_of_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("cannot write the epoch")

    async def story() -> None:
        stage = Stage()
        stage.see(topic("a", 3))
        monkeypatch.setattr(stage.host.find("a", 1), "forget_role", fail)
        stage.host.registered(5)
        assert stage.hosted() == ["a-1"]  # the others wait to be elected under the new epoch

    play(story)


def test_a_topic_that_was_deleted_or_moved_away_is_not_tried_again() -> None:
    async def story() -> None:
        stage = Stage(a_0=OSError("too many files"), b_0=OSError("too many files"))
        stage.see(topic("a"), topic("b"))
        stage.see(topic("b", 1, ELSEWHERE), without="a")
        attempts = stage.logs.attempts
        stage.see(topic("c"))
        assert stage.logs.attempts == attempts
        assert stage.hosted() == ["c-0"]

    play(story)
