"""The examples work: the demo from start to a clean end, and headrace in Spark's declarative pipelines."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from examples.demo.weblogs import WebLogs
from headrace.spark.lake.lake import load_lake
from headrace.spark.pipelines.parsers import ACCESS_LINE
from headrace.testing.local_broker import LocalBroker
from tests.spark.topics import Topics

ROOT = Path(__file__).resolve().parents[3]
CONNECT = Path(sys.prefix) / "declarative"  # what spark-pipelines needs; `make install` puts it there
PATIENCE_S = 480.0


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PATH": path} | more


def test_web_logs_look_like_web_logs_and_some_come_twice() -> None:
    lines = list(WebLogs(seed=3).lines(2000, now_s=1_800_000_000))
    assert all(re.fullmatch(ACCESS_LINE, line.text) for line in lines)
    doubles = len(lines) - len({line.id for line in lines})
    assert 50 < doubles < 200
    assert list(WebLogs(seed=3).lines(2000, now_s=1_800_000_000)) == lines


def test_the_demo_fills_a_lake_and_ends_cleanly_when_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo", "--folder", str(tmp_path / "demo"), "--window", "1s"]
    output = tmp_path / "output"
    with output.open("wb") as file:
        demo = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=file, stderr=subprocess.STDOUT)
    lake = tmp_path / "demo" / "lake"
    give_up_at = time.monotonic() + PATIENCE_S
    while not list(lake.glob("manifest/*.json")):
        assert demo.poll() is None, output.read_text()
        assert time.monotonic() < give_up_at, f"nothing came into the lake:\n{output.read_text()}"
        time.sleep(0.1)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(PATIENCE_S) == 0, output.read_text()
    told = output.read_text()
    assert "rows in the lake" in told
    # A worker of Spark's own may complain that its JVM went first; a frame of ours in it would be a fault of ours.
    assert not re.findall(rf'File "{ROOT}/(?:headrace|examples|pyspark_headrace)/.*', told), told
    contents = load_lake(str(lake)).contents
    assert contents.topics() == ["weblogs-once"]
    assert contents.rows() > 0


def test_a_declarative_pipeline_reads_a_topic(tmp_path: Path, own_broker: Callable[[], LocalBroker]) -> None:
    assert CONNECT.exists(), "run `make install`: it also installs what spark-pipelines needs"
    broker = own_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
    topics = Topics(broker.bootstrap, "declarative")
    topics.send("orders", 0, [{"key": f"c{n % 2}", "value": str(n)} for n in range(10)])
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "declarative", project)
    specification = project / "spark-pipeline.yml"
    specification.write_text(
        specification.read_text().replace("storage: storage", f"storage: file://{project}/storage")
    )
    pipelines = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    output = tmp_path / "output"
    with output.open("wb") as file:
        running = subprocess.Popen(
            [pipelines, "run", "--spec", specification], cwd=project,
            env=environment(HEADRACE_BROKER=broker.bootstrap, PYTHONPATH=f"{ROOT}{os.pathsep}{CONNECT}"),
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        ended = running.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the pipeline did not end within {PATIENCE_S:g} s:\n{output.read_text()[-5000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert ended == 0, output.read_text()[-5000:]
    totals = pq.read_table(project / "spark-warehouse" / "totals")
    assert dict(zip(totals["customer"].to_pylist(), totals["total"].to_pylist(), strict=True)) == {"c0": 20, "c1": 25}
