"""One real ZooKeeper for all tests of a run: started by the first that asks, gone when the tests end.

Every test works in a folder of its own there, so that none meets what another left.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from functools import cache
from pathlib import Path

from headrace.cli.local_zookeeper import LocalZooKeeper, free_ports

_folders = itertools.count()


@cache
def shared_zookeeper() -> LocalZooKeeper:
    folder = Path(tempfile.mkdtemp(prefix="headrace-zookeeper-"))
    server = LocalZooKeeper(folder, free_ports(1)[0])
    server.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    server.wait_until_ready()
    return server


def fresh_hosts() -> str:
    """The shared server, with a folder in it that nobody has used."""
    return f"{shared_zookeeper().address}/test-{next(_folders)}"
