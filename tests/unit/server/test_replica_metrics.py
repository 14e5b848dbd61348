"""The metrics of replication say who leads, who is behind and who is missing."""

from __future__ import annotations

from headrace.replicas.host import ReplicaHost
from headrace.replicas.scrub import Scrub
from headrace.server.replica_metrics import replica_metrics
from sim.loop import SimClock
from tests.unit.log.batches import batch
from tests.unit.replicas.trio import Trio, play


def read(host: ReplicaHost) -> dict[str, float]:
    """By name, and by name and broker where there is one."""
    found: dict[str, float] = {}
    for metric in replica_metrics(host, Scrub(host, SimClock(), 0)):
        for sample in metric.samples:
            broker = sample.labels.get("broker")
            found[f"{metric.name}-{broker}" if broker else metric.name] = sample.value
    return found


def test_a_replica_that_is_away_shows_at_its_leader() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.partition.append(batch())
        await trio.alike()
        quiet = read(one.host)
        assert (quiet["headrace_partitions"], quiet["headrace_leaders"]) == (1, 1)
        assert (quiet["headrace_under_replicated_partitions"], quiet["headrace_replica_lag-2"]) == (0, 0)
        assert read(two.host)["headrace_leaders"] == 0
        await two.stop(crash=True)
        await trio.nodes[3].stop(crash=True)
        one.partition.append(batch(5))
        await trio.until(lambda: trio.state.isr == (1,), "both are out of sync")
        alone = read(one.host)
        assert alone["headrace_replica_lag-2"] == 5
        assert alone["headrace_under_replicated_partitions"] == alone["headrace_under_min_isr_partitions"] == 1
        assert (alone["headrace_isr_shrinks"], alone["headrace_isr_expands"]) == (1, 0)
        assert alone["headrace_committed_records_lost"] == 0

    play(story, min_insync_replicas=2)
