"""Patterns that members subscribe by: which are taken, and which topics they stand for."""

import pytest

from headrace.coordinators.groups.topic_patterns import AT_ONCE_S, TopicPatterns, UnfitPattern, compile_pattern

NAMES = {"orders", "orders-eu", "billing", "billing.v2", "x" * 200}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", {"orders"}),
        ("^orders.*$", {"orders", "orders-eu"}),
        ("(orders|billing)", {"orders", "billing"}),
        (r"^orders$|billing\.v\d+\z", {"orders", "billing.v2"}),
        ("(?i)ORDERS-[A-Z]{2}", {"orders-eu"}),
        ("(?<area>[a-z]+)-..", {"orders-eu"}),
        ("(?:orders(?:-eu)?)", {"orders", "orders-eu"}),
        ("nothing", set()),
    ],
)
def test_whole_name_must_match(pattern: str, names: set[str]) -> None:
    assert TopicPatterns().resolve(pattern, NAMES) == names


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(", id="open"),
        pytest.param("[a", id="open-class"),
        pytest.param("*", id="nothing-to-repeat"),
        pytest.param(r"(a)\1", id="back-reference"),
        pytest.param("(?=a)b", id="look-ahead"),
        pytest.param("(?<!a)b", id="look-behind"),
        pytest.param("a++", id="possessive"),
        pytest.param("(?>a)", id="atomic"),
        pytest.param("(a)(?(1)b)", id="condition"),
        pytest.param("[[:alpha:]]+", id="posix-class"),
        pytest.param("a{1001}", id="count"),
        pytest.param("(a+)+b", id="repeat-in-repeat"),
        pytest.param("(aa?)*b", id="option-in-repeat"),
        pytest.param("(ab|a|b)*c", id="alternatives-in-repeat"),
        pytest.param(".*.*.*.*.*x", id="too-many-repeats"),
        pytest.param("a?" * 40 + "a" * 40, id="too-many-options"),
        pytest.param("(ab|a)" * 40, id="too-many-alternatives"),
        pytest.param("a" * 1001, id="long"),
    ],
)
def test_pattern_that_is_none_or_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(UnfitPattern, match=r"."):
        compile_pattern(pattern)
    assert TopicPatterns().resolve(pattern, NAMES) == frozenset()


def test_pattern_follows_topics_that_come_and_go() -> None:
    patterns = TopicPatterns()
    assert patterns.resolve("a.*", {"a1", "b"}) == {"a1"}
    assert patterns.resolve("a.*", {"a1", "a2", "b"}) == {"a1", "a2"}
    assert patterns.resolve("a.*", {"a2", "b"}) == {"a2"}
    assert patterns.resolve("a.*", {"a1"}) == {"a1"}


def test_patterns_that_nobody_asks_for_any_more_are_forgotten() -> None:
    """A member may change its pattern with every heartbeat."""
    patterns = TopicPatterns(kept=10)
    for number in range(1_000):
        assert patterns.resolve("orders", NAMES) == {"orders"}
        assert patterns.resolve(f"orders|x{number}", NAMES) == {"orders"}
    assert len(patterns) == 10


def test_patterns_share_what_they_have_seen() -> None:
    patterns = TopicPatterns()
    for number in range(3):
        patterns.resolve(f"orders|x{number}", set(NAMES))
    assert len({id(known.seen) for known in patterns._known.values()}) == 1


def test_names_that_take_long_are_tried_in_pieces() -> None:
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += AT_ONCE_S / 10
        return now_s

    patterns = TopicPatterns(monotonic)
    assert patterns.resolve("a.*", {"a1", "b"}) == {"a1"}
    many = {f"a{number}" for number in range(100)} | {"b"}
    tries = [patterns.resolve("a.*", many) for _ in range(20)]
    pieces = tries.count(None)
    assert 5 < pieces < 20
    assert tries == [None] * pieces + [many - {"b"}] * (20 - pieces)
    assert patterns.resolve("a.*", {"a7", "b"}) == {"a7"}
