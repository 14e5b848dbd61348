"""What is told before and around Spark: a missing Java, Spark's own errors, metrics, the live line."""

import urllib.request
from pathlib import Path

import pytest

from headrace.cli.pipeline_screen import stream_line
from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import Metrics
from headrace.spark.pipelines.java import check_java
from headrace.spark.pipelines.metrics import PipelineMetrics
from headrace.spark.pipelines.progress import StreamFacts
from headrace.spark.pipelines.spark_errors import plain_error


def test_a_java_that_is_missing_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="Spark needs Java 17 or newer: there is no java on the PATH"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Failure, match=r"JAVA_HOME is .* does not run"):
        check_java()


@pytest.mark.parametrize(("version", "good"), [("1.8.0_392", False), ("11.0.2", False), ("17.0.1", True), ("21", True)])
def test_a_java_that_is_too_old_is_told(
    version: str, good: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if good:
        check_java()
    else:
        with pytest.raises(Failure, match=r"is Java (8|11): install openjdk-17-jre-headless"):
            check_java()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[STREAM_FAILED] Query [1]\n  File "x.py"\nheadrace.client.x.Gone: topic logs is gone: create it\n\tat',
            "topic logs is gone: create it",
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1\n'Project",
            "The table or view `x` cannot be found. [TABLE_OR_VIEW_NOT_FOUND]",
        ),
        (
            "[STREAM_FAILED] Query [1] ended: [DIVIDE_BY_ZERO] By zero. SQLSTATE: 1",
            "By zero. [DIVIDE_BY_ZERO]",
        ),
        ("Traceback\nbuiltins.OSError: [Errno 28] No space left", "[Errno 28] No space left (OSError)"),
        ("something else\nmore", "something else"),
    ],
)
def test_the_cause_is_found_in_the_pages_of_spark(text: str, told: str) -> None:
    assert plain_error(text) == told


def test_metrics_are_served_as_prometheus_reads_them() -> None:
    metrics = PipelineMetrics("archive", "logs")
    port, close = metrics.serve(Metrics(port=0))
    try:
        metrics.stream("archive", StreamFacts(0, 100, 50.0, 10, 0.2, 2.0))
        metrics.stream("archive", StreamFacts(1, 160, 60.0, 0, None, 1.0))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            text = page.read().decode()
        with pytest.raises(Failure, match="choose another port"):
            metrics.serve(Metrics(port=port))
    finally:
        close()
    labels = '{name="logs",pipeline="archive",query="archive"}'
    for line in (
        f"headrace_pipeline_rows_total{labels} 160.0",
        f"headrace_pipeline_batches_total{labels} 2.0",
        f"headrace_pipeline_rows_per_second{labels} 60.0",
        f"headrace_pipeline_lag_records{labels} 0.0",
        f"headrace_pipeline_catch_up_seconds{labels} 0.0",
    ):
        assert line in text


def test_the_live_line_tells_pace_lag_and_the_time_to_catch_up() -> None:
    assert stream_line("archive", StreamFacts(3, 1_204_000, 45_310.4, 12_000, 3.4, 1.0)) == (
        "archive  batch 3  1,204,000 rows  45,310 rows/s  lag 12,000  caught up in 3s"
    )
    assert stream_line("a", StreamFacts(3, 5, 1.0, 0, None, 1.0)).endswith("lag 0  caught up")
    assert stream_line("a", StreamFacts(3, 5, 1.0, 9, None, 1.0)).endswith("lag 9  falling behind")
    assert stream_line("a", StreamFacts(3, 5, 1.0, None, None, 1.0)) == "a  batch 3  5 rows  1 rows/s"
