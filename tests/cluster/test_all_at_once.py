"""All brokers die at once, and come back: what was acknowledged is there."""

from __future__ import annotations

from tests.cluster.clusters import Cluster, produced
from tests.cluster.test_survival import read_all


def test_three_brokers_that_were_killed_together_have_everything_when_they_are_back(cluster: Cluster) -> None:
    cluster.create_topic("doomed", 6)
    values = produced(cluster.producer(), "doomed", [b"%d" % at for at in range(600)], 6)
    assert len(values) == 600
    for broker in cluster.brokers.values():
        broker.kill()
    for number in cluster.brokers:
        cluster.restart(number)
    # Nobody can be trusted after a crash, so all are asked how long their logs are, and the longest leads.
    cluster.wait_until_in_sync("doomed")
    assert sorted(read_all(cluster, "doomed", 6)) == sorted(values)
    more = produced(cluster.producer(), "doomed", [b"more%d" % at for at in range(60)], 6)
    assert sorted(read_all(cluster, "doomed", 6)) == sorted(values + more)
