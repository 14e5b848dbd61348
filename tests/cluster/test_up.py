"""`headrace up` brings a cluster up, tells where it is, and Ctrl-C takes all of it down."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = str(Path(sys.executable).with_name("headrace"))
    return subprocess.run([command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=True)


def test_a_cluster_comes_up_shows_what_it_keeps_and_goes_down(tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [str(Path(sys.executable).with_name("headrace")), "up", "--brokers", "2", "--port", "0"]
    with output.open("wb") as out:
        process = subprocess.Popen([*command, "--data", str(tmp_path / "cluster")], stdout=out, stderr=out)
    try:
        said = until("the state of the cluster", lambda: _state(output), PATIENCE_S, pause_s=0.1)
        bootstrap = re.search(r"bootstrap servers: (\S+)", said)
        zookeeper = re.search(r"--zookeeper (\S+)\)", said)
        assert bootstrap
        assert zookeeper
        assert "2 brokers (1, 2)" in said
        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        admin = AdminClient({"bootstrap.servers": bootstrap[1], "log_level": 0})
        assert sorted(admin.list_topics(timeout=PATIENCE_S).brokers) == [1, 2]
        tree = headrace("zk", "tree", "--zookeeper", zookeeper[1]).stdout
        assert re.search(r"^  ids\n    1  v0 .*\n    2  v0 ", tree, re.MULTILINE)
        node = headrace("zk", "get", "/brokers/ids/2", "--zookeeper", zookeeper[1]).stdout
        assert node.startswith("/brokers/ids/2: a live broker")
        info = headrace("cluster", "info", "-b", bootstrap[1]).stdout
        assert "rack-2" in info
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert not any(child.is_running() for child in children)
    finally:
        for left in psutil.Process(process.pid).children() if process.poll() is None else ():
            left.kill()
        if process.poll() is None:
            process.kill()
        process.wait()


def _state(output: Path) -> str | None:
    text = output.read_text()
    return text if "controller 1" in text or "controller 2" in text else None
