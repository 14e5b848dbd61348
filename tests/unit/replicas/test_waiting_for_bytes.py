"""How long a consumer waits that wants at least so many bytes: for records, never for room in its own answer."""

from __future__ import annotations

import pytest

from tests.unit.log.batches import batch
from tests.unit.replicas.trio import Node, Trio, play

BATCH = 1000


async def fetched(node: Node, *, min_bytes: int, max_bytes: int, part_bytes: int) -> int:
    answer = await node.fetched(wait_ms=30_000, min_bytes=min_bytes, max_bytes=max_bytes, part_bytes=part_bytes)
    return len(answer.responses[0].partitions[0].records)


def of_1000_bytes() -> memoryview:
    records = batch(value=b"x" * (BATCH - 80))
    return batch(value=b"x" * (2 * BATCH - 80 - len(records)))


async def two_of_four_come_at_once(trio: Trio, **limits: int) -> None:
    one = trio.nodes[1]
    for _ in range(4):
        one.partition.append(of_1000_bytes())
    await trio.alike()
    before_s = trio.clock.monotonic()
    assert await fetched(one, **limits) == 2 * BATCH
    assert trio.clock.monotonic() == before_s


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "part_bytes"), [(2500, 2500, 1 << 20), (2500, 1 << 20, 2500), (1 << 20, 2500, 1 << 20)]
)
def test_who_has_no_room_for_more_is_answered_at_once(min_bytes: int, max_bytes: int, part_bytes: int) -> None:
    async def story(trio: Trio) -> None:
        await two_of_four_come_at_once(trio, min_bytes=min_bytes, max_bytes=max_bytes, part_bytes=part_bytes)

    play(story)


def test_what_goes_on_in_the_next_segment_is_not_waited_for() -> None:
    async def story(trio: Trio) -> None:
        await two_of_four_come_at_once(trio, min_bytes=1 << 20, max_bytes=1 << 20, part_bytes=1 << 20)

    play(story, segment_bytes=2500)


def test_who_could_take_more_waits_for_it() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        one.partition.append(of_1000_bytes())
        await trio.alike()
        trio.clock.call_later(5.0, lambda: one.partition.append(of_1000_bytes()))
        before_s = trio.clock.monotonic()
        assert await fetched(one, min_bytes=1500, max_bytes=1 << 20, part_bytes=1 << 20) == 2 * BATCH
        assert 5.0 <= trio.clock.monotonic() - before_s < 10.0

    play(story)
