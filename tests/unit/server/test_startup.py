"""A broker starts at once because of what it does not load. A fresh interpreter tells what that is."""

from __future__ import annotations

import json
import subprocess
import sys

PATIENCE_S = 60
LOAD_A_BROKER = """
import dataclasses, json, sys
import headrace.cli.entry, headrace.cli.serve, headrace.server.run

ours = {name: module for name, module in sys.modules.items() if name.startswith("headrace")}
classes = {
    f"{name}.{value.__name__}"
    for name, module in ours.items()
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == name and dataclasses.is_dataclass(value)
}
print(json.dumps({"modules": sorted(sys.modules), "dataclasses": sorted(classes)}))
"""
FOR_OTHERS = {
    "confluent_kafka": "the command line's client",
    "crc32c": "the package around the function: it reads its own version (wire/checksum.py)",
    "email": "what reading a package's metadata brings along",
    "headrace.cli.main": "the other commands",
    "headrace.cluster.zookeeper": "a cluster's store",
    "headrace.sdk": "programs",
    "headrace.server.metrics": "loaded with --metrics only",
    "headrace.spark": "Spark",
    "hypothesis": "tests; kio would make strategies with it (wire/errors.py)",
    "importlib.metadata": "versions of packages",
    "kazoo": "a cluster's store",
    "prometheus_client": "loaded with --metrics only",
    "pyarrow": "Spark",
    "rich": "the other commands",
    "typer": "the other commands",
}


def loaded_by_a_broker() -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_A_BROKER], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_a_broker_that_stands_alone_loads_nothing_that_only_others_need() -> None:
    loaded = loaded_by_a_broker()["modules"]
    needless = [f"{name}: {whose}" for name, whose in FOR_OTHERS.items() if name in loaded]
    assert not needless, "a broker now loads at its start:\n" + "\n".join(needless)


def test_no_class_of_a_broker_is_a_dataclass() -> None:
    """Each takes a millisecond to make, a msgspec.Struct next to nothing."""
    assert loaded_by_a_broker()["dataclasses"] == []
