"""`make test-spark-cluster`: the tests of source and sink on a real standalone cluster, a master and two workers.

The three are started from the pyspark wheel with its spark-class, on loopback and free ports, and ended by process
id. The tests are the same that `make test` runs on `local[2]`; HEADRACE_SPARK_MASTER tells them where Spark is.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.clients.broker_process import free_port

ROOT = Path(__file__).resolve().parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
HOST = "127.0.0.1"
WORKERS = 2
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 30.0
TESTS = ["tests/spark/test_source.py", "tests/spark/test_sink.py"]


@contextlib.contextmanager
def running(name: str, command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One process of the cluster, until the block ends."""
    environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_workers(web_port: int, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            break
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://{HOST}:{web_port}/json/", timeout=5) as page:
                alive = [worker for worker in json.load(page)["workers"] if worker["state"] == "ALIVE"]
            if len(alive) == WORKERS:
                return
        time.sleep(0.2)
    logs = "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(folder.glob("*.log")))
    raise SystemExit(f"the Spark cluster did not come up within {START_DEADLINE_S:.0f} s:\n{logs}")


def main() -> int:
    port, web_port = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    with tempfile.TemporaryDirectory(prefix="headrace-spark-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        command = [str(SPARK_CLASS), "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port)]
        started = [stack.enter_context(running("master", [*command, "--webui-port", str(web_port)], folder))]
        for number in range(WORKERS):
            command = [str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", "--host", HOST, "--cores", "1"]
            command += ["--memory", "1g", "--work-dir", str(folder / f"work-{number}"), "--webui-port", "0", master]
            started.append(stack.enter_context(running(f"worker-{number}", command, folder)))
        wait_for_workers(web_port, started, folder)
        print(f"a Spark master and {WORKERS} workers are up at {master}", flush=True)
        environment = {**os.environ, "HEADRACE_SPARK_MASTER": master}
        tests = sys.argv[1:] or TESTS
        return subprocess.run(
            [sys.executable, "-m", "pytest", *tests], cwd=ROOT, env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
