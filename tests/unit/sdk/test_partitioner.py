"""Which partition a key goes to: the hash that Java publishes, and a partitioner of the program's own."""

import pytest

from headrace.sdk import BadMessage
from headrace.sdk.partitioner import COUNT_GOOD_FOR_S, PartitionChoice
from headrace.wire.partitioning import murmur2


class FixedClock:
    """A clock that the test sets."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_that_the_java_client_publishes(key: bytes, java: int) -> None:
    assert murmur2(key) == java


def test_a_choice_outside_the_topic_is_refused_with_its_bounds() -> None:
    choice = PartitionChoice(lambda key, count: count, lambda topic: 3, FixedClock())
    with pytest.raises(BadMessage, match="chose 3 for t, which has partitions 0 to 2"):
        choice.choose("t", None)


def test_a_topic_that_grew_is_used_in_full_after_a_minute() -> None:
    clock, counts = FixedClock(), iter((2, 5))
    choice = PartitionChoice(lambda key, count: count - 1, lambda topic: next(counts), clock)
    assert [choice.choose("t", None), choice.choose("t", None)] == [1, 1]
    clock.now_s += COUNT_GOOD_FOR_S
    assert choice.choose("t", None) == 4
