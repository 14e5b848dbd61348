"""Rows a second, lag and the time to catch up, from Spark's reports."""

import json
from typing import Any

from headrace.spark.pipelines.progress import StreamPace, offsets


def report(batch: int, rows: int, seconds: float, end: int, latest: int, second: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": int(seconds * 1000)},
        "sources": [{"endOffset": json.dumps({"t": {"0": end}}), "latestOffset": {"t": {"0": latest}}}],
    }


def test_a_stream_that_gains_on_its_topic_tells_when_it_will_have_caught_up() -> None:
    pace = StreamPace()
    first = pace.take(report(0, 1000, 1.0, 1000, 5000, 0), now_s=10)
    assert first is not None
    assert (first.rows, first.rows_per_s, first.lag, first.catch_up_s) == (1000, 1000, 4000, 4)
    second = pace.take(report(1, 1000, 1.0, 2000, 5500, 1), now_s=11)
    assert second is not None
    assert (second.lag, second.catch_up_s) == (3500, 3500 / (1000 - 500))


def test_a_stream_that_falls_behind_tells_no_time() -> None:
    pace = StreamPace()
    pace.take(report(0, 100, 1.0, 100, 200, 0), now_s=0)
    facts = pace.take(report(1, 100, 1.0, 200, 900, 1), now_s=1)
    assert facts is not None
    assert (facts.lag, facts.catch_up_s) == (700, None)


def test_a_report_counts_once_and_an_idle_one_does_not_slow_the_pace() -> None:
    pace = StreamPace()
    pace.take(report(0, 500, 0.5, 500, 500, 0), now_s=0)
    assert pace.take(report(0, 500, 0.5, 500, 500, 0), now_s=1) is None
    idle = pace.take(report(1, 0, 0.01, 500, 500, 5), now_s=5)
    assert idle is not None
    assert (idle.rows, idle.rows_per_s, idle.lag, idle.catch_up_s) == (500, 1000, 0, None)
    busy = pace.take(report(1, 300, 1.0, 800, 800, 9), now_s=9)
    assert busy is not None
    assert (busy.batch, busy.rows) == (1, 800), "an idle report has the number of the batch that comes"


def test_a_source_that_does_not_speak_of_partitions_has_no_lag() -> None:
    pace = StreamPace()
    silent = report(0, 5, 1.0, 0, 0, 0) | {"sources": [{"endOffset": {"step": 3}, "latestOffset": None}]}
    facts = pace.take(silent, now_s=0)
    assert facts is not None
    assert facts.lag is None
    assert [offsets(value) for value in (None, "x", "[1]", {"t": {"0": "many"}})] == [None] * 4
