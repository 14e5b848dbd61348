"""The replay pipeline: ranges of a lake come back into topics, once, in order, and go on after a failure."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.model.failure import Failure
from tests.spark.pipelines.runs import Listener, messages, run
from tests.spark.topics import Topics
from tests.unit.spark.lake.records import HOUR_MS, NOON_MS, append, every_minute, new_lake


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two hours of two partitions of logs, a record a minute."""
    held = new_lake(tmp_path / "lake")
    for first in range(0, 120, 40):
        append(held, every_minute(0, first, first + 40), every_minute(1, first, first + 40))
    held.release()
    return tmp_path / "lake"


def test_ranges_by_time_and_by_offset_come_back_once_and_in_order(
    spark: SparkSession, topics: Topics, lake: Path, tmp_path: Path
) -> None:
    target = topics.create("back", 2, retention_ms="-1")  # the records keep their times of long ago
    by_time = {
        "pipeline": "replay", "lake": str(lake), "since": "2025-11-16T13:00:00Z", "until": "2025-11-16T13:30:00",
        "to": {"brokers": topics.bootstrap, "topic": target, "keep_partition": True},
        "checkpoint": str(tmp_path / "c1"), "rows_per_step": 20,
    }  # fmt: skip
    listener = Listener()
    run(spark, by_time, listener)
    assert listener.batches[-1][0] == listener.batches[-1][1] > 1
    found = messages(topics.bootstrap, target, 2)
    for partition in (0, 1):
        own = [message for message in found if message.partition() == partition]
        assert [message.value() for message in own] == [b"v%d" % n for n in range(60, 90)]
        assert [message.timestamp()[1] for message in own] == [NOON_MS + n * 60_000 for n in range(60, 90)]
        assert own[0].key() is None
        assert own[1].key() == b"k61"
        assert own[0].headers() == [("h", None)]
    run(spark, by_time)
    assert len(messages(topics.bootstrap, target, 2)) == 60, "a replay that is through stays through"
    with pytest.raises(Failure, match="belongs to another query: since was"):
        run(spark, by_time | {"since": "2025-11-16T12:00:00Z"})

    by_offset = {
        "pipeline": "replay", "lake": str(lake), "offsets": {"logs": {1: [100]}},
        "to": {"brokers": topics.bootstrap, "topic": target, "keep_timestamp": False},
        "checkpoint": str(tmp_path / "c2"),
    }  # fmt: skip
    run(spark, by_offset)
    fresh = [
        message for message in messages(topics.bootstrap, target, 2) if message.timestamp()[1] > NOON_MS + 9 * HOUR_MS
    ]
    assert sorted(message.value() for message in fresh) == sorted(b"v%d" % n for n in range(100, 120))


def test_a_replay_of_what_is_not_there_is_refused(
    spark: SparkSession, topics: Topics, lake: Path, tmp_path: Path
) -> None:
    target = topics.create("back")
    wanted = {
        "pipeline": "replay", "lake": str(lake), "topics": ["payments"],
        "to": {"brokers": topics.bootstrap, "topic": target}, "checkpoint": str(tmp_path / "c"),
    }  # fmt: skip
    with pytest.raises(Failure, match="has no topic payments: choose from logs"):
        run(spark, wanted)
    with pytest.raises(Failure, match="there is no lake at"):
        run(spark, wanted | {"lake": str(tmp_path / "empty"), "checkpoint": str(tmp_path / "d")})
