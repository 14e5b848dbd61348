"""What every test on real Spark shares: one Spark session on two threads, one broker, and topics of one's own.

A JVM takes seconds to start and the first query seconds more, so all tests of a run use the same session. The broker is
shared too; a test makes topics under names of its own, and whoever stops, restarts or starves a broker starts its own.

HEADRACE_SPARK_MASTER runs them on a Spark cluster instead (`make test-spark-cluster`), HEADRACE_BOOTSTRAP against
another broker, such as Apache Kafka (`make test-clients`); tests that need a headrace broker are skipped then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.testing.local_broker import LocalBroker
from tests.spark.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = os.environ.get("HEADRACE_BOOTSTRAP")
# Every JVM of these tests lives for seconds: what the optimising compiler and the parallel collector do in that time
# costs more than it gives, above all on two cores that three workers share.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads, small and quiet."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    session = (
        SparkSession.builder.master(os.environ.get("HEADRACE_SPARK_MASTER", "local[2]"))
        .appName("headrace-tests")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JVM)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.stopTimeout", "60s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@dataclass(frozen=True)
class BrokerElsewhere:
    """A broker that others started."""

    bootstrap: str


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker | BrokerElsewhere]:
    if ELSEWHERE:
        yield BrokerElsewhere(ELSEWHERE)
        return
    with LocalBroker(tmp_path_factory.mktemp("shared-broker")) as broker:
        yield broker


@pytest.fixture
def topics(shared_broker: LocalBroker | BrokerElsewhere, request: pytest.FixtureRequest) -> Topics:
    """Topics of this test on the shared broker."""
    return Topics(shared_broker.bootstrap, request.node.name)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[[], LocalBroker]]:
    """Start a broker that the test may ill-treat."""
    if ELSEWHERE:
        pytest.skip("needs a headrace broker of its own")
    started: list[LocalBroker] = []

    def start() -> LocalBroker:
        broker = LocalBroker(tmp_path / f"broker-{len(started)}")
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()
