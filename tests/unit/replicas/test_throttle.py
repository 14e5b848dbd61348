"""A replica that catches up takes no more than its rate; one that is in sync takes what there is."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.settings import LONG_MAX
from headrace.model.topic_config import problem
from headrace.replicas.throttle import Throttle, names
from tests.unit.log.batches import batch
from tests.unit.replicas.trio import Trio, play


class Hand:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_what_went_through_is_waited_off_at_the_rate() -> None:
    clock = Hand()
    throttle = Throttle(clock)  # type: ignore[arg-type]
    throttle.passed(10**9)
    assert throttle.is_open, "without a rate"
    throttle.limit(100)
    assert throttle.is_open
    throttle.passed(250)
    clock.now_s = 2.4
    assert not throttle.is_open
    clock.now_s = 2.6
    assert throttle.is_open
    throttle.passed(10)
    throttle.limit(LONG_MAX)
    assert throttle.is_open


def test_whom_a_list_names() -> None:
    assert names(["*"], 3, 1)
    assert names(["0:2", "3:1"], 3, 1)
    assert not names(["0:2", "3:2"], 3, 1)
    assert not names([], 3, 1)
    for good in ("*", "0:1", "0:1,12:3", ""):
        assert problem("leader.replication.throttled.replicas", good) is None
    for bad in ("1", "a:b", "0:1,x"):
        assert problem("follower.replication.throttled.replicas", bad) is not None


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_was_away_catches_up_at_the_rate_of_either_side(side: str) -> None:
    async def story(trio: Trio) -> None:
        one, three = trio.nodes[1], trio.nodes[3]
        await three.stop()
        trio.store(isr=(1, 2), isr_epochs=(1, 1))
        for _ in range(20):
            one.partition.append(batch(value=b"x" * 1000))
        await trio.until(lambda: one.partition.high_watermark == 20, "all is committed")
        size = one.partition.log.size_bytes
        trio.rates = {f"{side}.replication.throttled.rate": str(size // 20)}
        await three.start()
        trio.publish()
        started = trio.clock.monotonic()
        await trio.until(lambda: three.partition.log.end_offset == 20, "it has caught up")
        assert 15 <= trio.clock.monotonic() - started <= 30, "20 times what goes through in a second"
        await trio.until(lambda: len(trio.state.isr) == 3, "it is in sync")
        started = trio.clock.monotonic()
        one.partition.append(batch(value=b"x" * 10 * size))
        await trio.until(lambda: three.partition.log.end_offset == 21, "in sync it is not held up")
        assert trio.clock.monotonic() - started < 5

    settings: dict[str, Any] = {f"{side}_replication_throttled_replicas": "*"}
    play(story, **settings)
