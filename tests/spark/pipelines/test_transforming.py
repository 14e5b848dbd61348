"""The pipelines that change records on their way: aggregate, dedup, dead letters, sql."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.model.failure import Failure
from tests.spark.pipelines.runs import Listener, messages, run
from tests.spark.topics import Topics


def source(topics: Topics, topic: str) -> dict[str, Any]:
    return {"brokers": topics.bootstrap, "topics": [topic]}


def access_line(minute: int, path: str, status: int, seconds: float) -> str:
    moment = f"16/Nov/2026:12:{minute:02}:01 +0000"
    return f'10.0.0.1 - - [{moment}] "GET {path} HTTP/1.1" {status} 100 "-" "curl/8" {seconds}'


def test_lines_become_numbers_in_a_topic_and_in_files(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    lines, numbers = topics.create("lines"), topics.create("numbers")
    first = [access_line(0, "/a", 200, n / 10) for n in range(10)] + [access_line(0, "/b", 500, 3.0), "no log line"]
    topics.fill(lines, 0, [*first, access_line(1, "/a", 200, 0.5), access_line(30, "/late", 200, 0.1)])
    wanted = {
        "pipeline": "aggregate", "source": source(topics, lines), "parse": {"format": "access-log"}, "time": "time",
        "window": "1m", "watermark": "5m", "by": ["status"],
        "measures": {
            "requests": "count", "per_second": "rate", "p90": {"percentile": 0.9, "of": "seconds"},
            "paths": {"top": 1, "of": "path"}, "slow": {"count_if": "seconds > 0.45"},
        },
        "to": {"topic": {"topic": numbers}, "parquet": {"path": str(tmp_path / "numbers")}},
        "checkpoint": str(tmp_path / "checkpoint"), "trigger": "available-now",
    }  # fmt: skip
    assert run(spark, wanted)["lines taken in"] == 14
    rows = {
        (row["window_start"], row["status"]): row
        for row in (json.loads(message.value()) for message in messages(topics.bootstrap, numbers, 1))
    }
    minute = "2026-11-16T12:00:00.000Z"
    assert sorted(rows) == [(minute, 200), (minute, 500), ("2026-11-16T12:01:00.000Z", 200)]
    assert rows[minute, 200] == {
        "window_start": minute, "window_end": "2026-11-16T12:01:00.000Z", "status": 200, "requests": 10,
        "per_second": 10 / 60, "p90": 0.8, "paths": [{"item": "/a", "count": 10}], "slow": 5,
    }  # fmt: skip
    written = pq.read_table(tmp_path / "numbers")
    assert sorted(zip(written["status"].to_pylist(), written["requests"].to_pylist(), strict=True)) == [
        (200, 1), (200, 10), (500, 1),
    ]  # fmt: skip
    with pytest.raises(Failure, match="belongs to another query: window was '1m' and is '2m'"):
        run(spark, wanted | {"window": "2m"})


def test_doubles_are_dropped_also_across_runs_and_what_has_no_id_is_kept(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    doubled, once = topics.create("doubled"), topics.create("once")

    def send(ids: list[str | None], start: int) -> None:
        topics.send(doubled, 0, [
            {"value": f"{start + n}", "key": "k", "headers": [("headrace.id", name)] if name else []}
            for n, name in enumerate(ids)
        ])  # fmt: skip

    send(["a", "b", "a", None, None, "c"], 0)
    wanted = {
        "pipeline": "dedup", "source": source(topics, doubled), "to": {"topic": once}, "within": "1h",
        "checkpoint": str(tmp_path / "checkpoint"), "trigger": "available-now",
    }  # fmt: skip
    run(spark, wanted)
    send(["c", "d", None], 6)
    run(spark, wanted)
    found = messages(topics.bootstrap, once, 1)
    assert len(found) == 7
    values = sorted(int(message.value()) for message in found)
    assert set(values) - {0, 2} == {1, 3, 4, 5, 7, 8}, "one of the two with id a, and all others that are no doubles"
    assert {message.key() for message in found} == {b"k"}
    assert [("headrace.id", b"d")] in [message.headers() for message in found]


def test_dead_letters_are_reported_and_a_selection_goes_back_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    dead, orders = topics.create("dead"), topics.create("orders")

    def letter(value: str, cause: str, origin: str | None) -> dict[str, Any]:
        headers = [("__dlq.errors.message", cause), ("own", "kept")]
        return {"value": value, "headers": headers + ([("__dlq.errors.topic", origin)] if origin else [])}

    topics.send(dead, 0, [
        letter("1", "timeout", orders), letter("2", "<b>schema</b>", orders), letter("3", "timeout", None),
        letter("4", "timeout", orders), {"value": "5"},
    ])  # fmt: skip
    wanted = {
        "pipeline": "dlq-report", "source": source(topics, dead), "page": str(tmp_path / "page.html"),
        "redrive": {"where": "cause = 'timeout' and redriven < 3"}, "checkpoint": str(tmp_path / "checkpoint"),
    }  # fmt: skip
    facts = run(spark, wanted)
    assert (facts["dead letters"], facts["causes"], facts["dead letters looked at"]) == (5, 3, 5)
    page = (tmp_path / "page.html").read_text()
    assert "5 dead letters" in page
    assert "&lt;b&gt;schema" in page
    assert "<svg" in page
    back = messages(topics.bootstrap, orders, 1)
    assert sorted(message.value() for message in back) == [b"1", b"4"], "what has no origin cannot go back"
    assert back[0].headers() == [("own", b"kept"), ("headrace.redriven", b"1")]
    topics.send(dead, 0, [letter("6", "timeout", orders)])
    run(spark, wanted | {"page": ""})
    assert sorted(message.value() for message in messages(topics.bootstrap, orders, 1)) == [b"1", b"4", b"6"]
    with pytest.raises(Failure, match=r"redrive\.where: .*reason"):
        run(spark, wanted | {"redrive": {"where": "reason = 1"}, "checkpoint": str(tmp_path / "other"), "page": ""})


def test_a_statement_reads_topics_as_tables(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    events, counts = topics.create("events", 2), topics.create("counts")
    for partition in (0, 1):
        topics.fill(events, partition, [json.dumps({"kind": kind, "n": 2}) for kind in ("a", "b", "a")])
    table = {"source": source(topics, events), "parse": {"format": "json", "fields": {"kind": "string", "n": "int"}}}
    statement = "select kind, sum(n) as total from events group by kind order by kind;"
    listener = Listener()
    to_console = {"pipeline": "sql", "tables": {"events": table}, "statement": statement, "to": {"console": {}}}
    assert run(spark, to_console, listener)["rows"] == 2
    assert listener.tables == [(["kind", "total"], [["a", 8], ["b", 4]])]

    (tmp_path / "query.sql").write_text(statement)
    from_file = {"pipeline": "sql", "tables": {"events": table}, "file": str(tmp_path / "query.sql")}
    run(spark, from_file | {"to": {"topic": {"topic": counts}}})
    values = [json.loads(message.value()) for message in messages(topics.bootstrap, counts, 1)]
    assert sorted(values, key=lambda row: row["kind"]) == [{"kind": "a", "total": 8}, {"kind": "b", "total": 4}]
    run(spark, from_file | {"to": {"parquet": {"path": str(tmp_path / "counts")}}})
    assert sorted(pq.read_table(tmp_path / "counts")["total"].to_pylist()) == [4, 8]

    streamed = to_console | {
        "statement": "select key, value from events where kind = 'b'", "mode": "stream", "trigger": "available-now",
        "checkpoint": str(tmp_path / "checkpoint"), "to": {"topic": {"topic": counts}},
    }  # fmt: skip
    run(spark, streamed)
    run(spark, streamed)
    assert len(messages(topics.bootstrap, counts, 1)) == 4
    with pytest.raises(Failure, match=r"`nothing` cannot be found.*TABLE_OR_VIEW_NOT_FOUND"):
        run(spark, to_console | {"statement": "select * from nothing"})
