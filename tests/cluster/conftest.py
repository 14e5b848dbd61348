"""One cluster of three broker processes for all tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.clusters import Cluster, running
from tests.zookeeper import fresh_hosts

# Few partitions of internal topics: their leaders move with every broker that a test kills.
SETTINGS = "offsets.topic.num.partitions=3\ntransaction.state.log.num.partitions=3\n"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("cluster"), fresh_hosts(), settings=SETTINGS)) as started:
        yield started
