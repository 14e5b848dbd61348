"""Exactly once: whatever the driver dies of, and wherever, the rows of a batch count once and no transaction stays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.local_broker import LocalBroker
from tests.unit.spark.sink_world import Crash, CrashingNet, Driver, committed, create_topic, sink_options

FIRST = [["a", "b", "c"], ["d"]]
SECOND = [["e"], ["f", "g"]]
numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    folder: Path = tmp_path_factory.mktemp("sink")
    with LocalBroker(folder) as running:
        yield running


@pytest.fixture
def driver(broker: LocalBroker) -> Driver:
    return new_driver(broker)


def new_driver(broker: LocalBroker) -> Driver:
    topic = f"out-{next(numbers)}"
    create_topic(broker.bootstrap, topic)
    return Driver(sink_options(broker.bootstrap, topic))


def result(driver: Driver) -> list[str]:
    return committed(driver.options.bootstrap[0], driver.options.topic)


def rows(*batches: list[list[str]]) -> list[str]:
    return sorted(row for batch in batches for share in batch for row in share)


def test_batches_count_when_they_are_committed(driver: Driver) -> None:
    driver.run(0, FIRST)
    assert result(driver) == rows(FIRST)
    driver.run(1, SECOND)
    assert result(driver) == rows(FIRST, SECOND)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_request_of_a_commit_loses_and_doubles_nothing(
    broker: LocalBroker, after: bool
) -> None:
    for at in itertools.count():
        driver = new_driver(broker)
        driver.run(0, FIRST)
        net = CrashingNet(at, after=after)
        try:
            driver.run(1, SECOND, net)
        except Crash:
            driver.again().run(1, SECOND)
            assert result(driver) == rows(FIRST, SECOND), f"it died {at=} {after=}"
            driver.again().run(2, [["h"]])
            assert result(driver) == rows(FIRST, SECOND, [["h"]]), f"it died {at=} {after=}"
        else:
            assert net.requests <= at
            assert at > 20
            return
