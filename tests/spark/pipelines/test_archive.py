"""The archive pipeline: rows in the lake equal the offsets in the manifest, whatever happens on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.model.failure import Failure
from headrace.spark.lake.lake import load_lake
from headrace.spark.lake.storage import Folder
from headrace.spark.pipelines.checkpoints import open_checkpoint
from tests.spark.pipelines.runs import Listener, lake_offsets, run
from tests.spark.topics import Topics


def archive(topics: Topics, topic: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": "archive",
        "source": {"brokers": topics.bootstrap, "topics": [topic], "options": {"maxOffsetsPerTrigger": "60"}},
        "lake": {"path": str(folder / "lake")},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": "available-now",
        **more,
    }


def fill(topics: Topics, topic: str, partition: int, first: int, end: int) -> None:
    messages = [{"key": f"k{n}", "value": f"v{n}", "headers": [("n", str(n))]} for n in range(first, end)]
    topics.send(topic, partition, messages)


def test_a_topic_is_archived_once_compacted_and_read_together_with_its_log(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("logs", 2)
    fill(topics, topic, 0, 0, 100)
    fill(topics, topic, 1, 0, 50)
    compaction = {"every_batches": 2, "min_files": 2, "keep_replaced": "0s"}
    wanted = archive(topics, topic, tmp_path, compaction=compaction, metrics={"port": 0})
    listener = Listener()
    facts = run(spark, wanted, listener)
    assert (facts["rows taken in"], facts["rows in the lake"]) == (150, 150)
    assert listener.notes[0].startswith("metrics at http://127.0.0.1:")
    assert listener.streams[-1][1].lag == 0
    assert lake_offsets(tmp_path / "lake") == {(topic, 0): list(range(100)), (topic, 1): list(range(50))}
    contents = load_lake(str(tmp_path / "lake")).contents
    assert any(load_lake(str(tmp_path / "lake")).read_commit(n).removed for n in range(1, contents.number + 1))
    status = open_checkpoint(wanted["checkpoint"]).status()
    assert status is not None
    assert (status.state, status.rows, status.lag) == ("finished", 150, 0)

    fill(topics, topic, 0, 100, 130)
    run(spark, wanted)
    assert lake_offsets(tmp_path / "lake")[topic, 0] == list(range(130)), "a second run goes on"

    wanted["checkpoint"] = str(tmp_path / "another")
    run(spark, wanted)
    assert lake_offsets(tmp_path / "lake")[topic, 0] == list(range(130)), "the lake knows what it has"

    topics.cut(topic, 0, 120)  # as retention would
    fill(topics, topic, 0, 130, 140)
    spanning = spark.read.format("headrace").options(**{
        "kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "archive": str(tmp_path / "lake"),
        "includeHeaders": "true",
    }).load()  # fmt: skip
    rows = spanning.where("partition = 0").orderBy("offset").collect()
    assert [row["offset"] for row in rows] == list(range(140)), "lake and live log, no gap, no double"
    assert [bytes(row["value"]) for row in rows[::69]] == [b"v0", b"v69", b"v138"]
    assert bytes(rows[7]["headers"][0]["value"]) == b"7"


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_is_also_a_table_of_another_format(
    kind: str, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("logs")
    fill(topics, topic, 0, 0, 70)
    lake = {"path": str(tmp_path / "lake"), "format": kind}
    run(spark, archive(topics, topic, tmp_path, lake=lake, compaction={"every_batches": 2, "min_files": 2}))
    if kind == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(tmp_path / "lake").to_pyarrow_table(columns=["offset"])
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
        rows = catalog.load_table("lake.records").scan(selected_fields=("offset",)).to_arrow()
    assert sorted(rows.column("offset").to_pylist()) == list(range(70))


@pytest.mark.parametrize("dies", ["before the commit", "after the commit"])
def test_a_driver_that_dies_around_a_commit_neither_loses_nor_doubles(
    dies: str, spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("logs")
    fill(topics, topic, 0, 0, 150)
    plain: Callable[..., None] = Folder.put
    commits = 0

    def dying(self: Folder, name: str, data: Any) -> None:
        nonlocal commits
        if name.startswith("manifest/"):
            commits += 1
            if commits == 2 and dies == "before the commit":
                raise OSError("the driver died")
            plain(self, name, data)
            if commits == 2:
                raise OSError("the driver died")
        else:
            plain(self, name, data)

    monkeypatch.setattr(Folder, "put", dying)
    with pytest.raises(Failure, match="the driver died"):
        run(spark, archive(topics, topic, tmp_path))
    monkeypatch.undo()
    status = open_checkpoint(str(tmp_path / "checkpoint")).status()
    assert status is not None
    assert status.state == "failed"
    listener = Listener()
    run(spark, archive(topics, topic, tmp_path), listener)
    assert lake_offsets(tmp_path / "lake") == {(topic, 0): list(range(150))}
    swept = [note for note in listener.notes if "never committed" in note]
    assert bool(swept) == (dies == "before the commit")
    lake = tmp_path / "lake"
    on_disk = {path.relative_to(lake).as_posix() for path in lake.rglob("*.parquet")}
    assert on_disk == set(load_lake(str(lake)).contents.files)


def test_what_cannot_be_archived_is_refused_in_one_line(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("logs")
    fill(topics, topic, 0, 0, 20)
    with pytest.raises(Failure, match=r"topic nowhere does not exist at .*`headrace topic create nowhere`"):
        run(spark, archive(topics, "nowhere", tmp_path))
    run(spark, archive(topics, topic, tmp_path))
    other = topics.create("other")
    with pytest.raises(Failure, match=r"belongs to another query: topics was \['.*logs'\] and is \['.*other'\]"):
        run(spark, archive(topics, other, tmp_path))
    topics.delete(topic)
    topics.create("logs")
    with pytest.raises(Failure, match=r"ends at offset 0, but the lake .* has it up to 20: the topic was recreated"):
        run(spark, archive(topics, topic, tmp_path))
    lake_before = lake_offsets(tmp_path / "lake")
    assert lake_before == {(topic, 0): list(range(20))}
