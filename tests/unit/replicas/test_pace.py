"""Settings of a broker that change its pace while it runs."""

from __future__ import annotations

from pathlib import Path

from headrace.log.logs import Logs
from headrace.model.image import ClusterImage
from headrace.replicas.host import ReplicaHost
from sim.disk import SimDisk
from sim.loop import SimClock, run


def test_compaction_comes_as_often_as_the_settings_say_now() -> None:
    async def story() -> None:
        clock = SimClock()
        logs = Logs(SimDisk(), clock, Path("/data"))
        host = ReplicaHost(1, logs, clock, {"log.cleaner.backoff.ms": "9000"})
        image = ClusterImage("", -1)
        seen = []
        for broker, settings in (
            ("2", {"log.cleaner.backoff.ms": "1"}),
            ("", {"log.cleaner.backoff.ms": "800"}),
            ("1", {"log.cleaner.backoff.ms": "70"}),
            ("1", {}),
            ("", {}),
        ):
            before, image = image, image.with_broker_settings(broker, settings, 1)
            host.follow(before, image)
            seen.append(logs.cleaner_backoff_ms)
        assert seen == [9000, 800, 70, 800, 9000]
        ReplicaHost(1, logs, clock, {}).follow(ClusterImage("", -1), image)
        assert logs.cleaner_backoff_ms == 15_000

    run(story(), seed=0)
