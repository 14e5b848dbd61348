"""SIGKILL to the driver of an archive, as the command line runs it: rows in the lake equal the offsets in the manifest.

Each round starts `headrace pipeline run`, kills it and everything it started once it has committed some batches or
after a while, and starts it again. The last round runs to its end, under spark-submit.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import yaml

from tests.spark.pipelines.runs import lake_offsets
from tests.spark.topics import Topics

ROOT = Path(__file__).resolve().parents[3]
HEADRACE = str(Path(sys.executable).parent / "headrace")
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
PATIENCE_S = 480.0
PARTITIONS = 4


def start(config: Path, log: Path, submit: bool = False) -> subprocess.Popen[bytes]:
    """`headrace pipeline run`, or the same under spark-submit."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [HEADRACE, "pipeline", "run", str(config), "--master", "local[2]"]
    if submit:
        settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        command = [SUBMIT, *settings, str(ROOT / "examples" / "submit.py"), str(config)]
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)


def commits(lake: Path) -> int:
    return len(list((lake / "manifest").glob("*.json"))) if (lake / "manifest").exists() else 0


def kill_amid_work(config: Path, lake: Path, log: Path, chance: random.Random) -> bool:
    """One round; whether it was killed, and not too quick for that."""
    before, more = commits(lake), chance.randint(1, 4)
    driver = start(config, log)
    give_up_at = time.monotonic() + PATIENCE_S
    while commits(lake) < before + more and driver.poll() is None:
        assert time.monotonic() < give_up_at, f"no commit within {PATIENCE_S:g} s:\n{log.read_text()[-3000:]}"
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.4))
    killed = driver.poll() is None
    with contextlib.suppress(ProcessLookupError):  # it may have come to its end by itself
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(PATIENCE_S)
    return killed


def test_a_driver_that_is_killed_again_and_again_archives_every_row_once(topics: Topics, tmp_path: Path) -> None:
    kills, rows = 50, 250_000
    topic = topics.create("logs", PARTITIONS)
    for partition in range(PARTITIONS):
        topics.fill(topic, partition, (f"{n:08}" for n in range(rows)))
    lake, log, config = tmp_path / "lake", tmp_path / "log", tmp_path / "archive.yaml"
    document = {
        "pipeline": "archive",
        "source": {
            "brokers": topics.bootstrap, "topics": [topic],
            "options": {"maxOffsetsPerTrigger": str(max(1, PARTITIONS * rows // (8 * kills)))},
        },
        "lake": {"path": str(lake)},
        "compaction": {"every_batches": 3, "min_files": 4, "keep_replaced": "0s"},
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "available-now",
    }  # fmt: skip
    config.write_text(yaml.safe_dump(document))
    seed = int(os.environ.get("HEADRACE_KILL_SEED", "7"))
    print(f"seed {seed} (HEADRACE_KILL_SEED={seed} repeats it)")
    chance = random.Random(seed)
    killed = [kill_amid_work(config, lake, log, chance) for _ in range(kills)]
    assert any(killed)
    last = start(config, log, submit=True)
    assert last.wait(PATIENCE_S) == 0, f"the last run failed:\n{log.read_text()[-3000:]}"
    assert lake_offsets(lake) == {(topic, partition): list(range(rows)) for partition in range(PARTITIONS)}
