"""What the tests of the source share: a broker for each file, topics on it with names of their own, and the source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.testing.local_broker import LocalBroker
from tests.broker.spark.source.world import Source
from tests.spark.topics import Topics


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topics(broker: LocalBroker, request: pytest.FixtureRequest) -> Topics:
    return Topics(broker.bootstrap, request.node.name)


@pytest.fixture
def source(broker: LocalBroker) -> Source:
    return Source(broker.bootstrap)
