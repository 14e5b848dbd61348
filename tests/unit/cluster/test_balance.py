"""Plans that bring a cluster back into balance."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cluster.balance import Held, moved, plan, shares


def after(partitions: list[Held], racks: dict[int, str | None]) -> list[Held]:
    return moved(partitions, plan(partitions, racks))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Held], list[int]]:
    brokers = list(range(1, draw(st.integers(2, 6)) + 1))
    some = st.lists(st.sampled_from(brokers[: draw(st.integers(1, len(brokers)))]), min_size=1, max_size=3, unique=True)
    count = draw(st.integers(1, 40))
    return [Held("t", index, tuple(draw(some)), draw(st.integers(0, 1000))) for index in range(count)], brokers


@given(clusters())
@settings(max_examples=150)
def test_leaders_and_replicas_differ_by_at_most_one_afterwards(cluster: tuple[list[Held], list[int]]) -> None:
    partitions, brokers = cluster
    balanced = after(partitions, dict.fromkeys(brokers))
    for before, now in zip(partitions, balanced, strict=True):
        assert len(set(now.replicas)) == len(before.replicas)
    found = shares(balanced, brokers).values()
    assert max(share.holds for share in found) - min(share.holds for share in found) <= 1
    assert max(share.leads for share in found) - min(share.leads for share in found) <= 1


def test_what_is_in_balance_stays() -> None:
    partitions = [Held("t", 0, (1, 2), 10), Held("t", 1, (2, 3), 10), Held("t", 2, (3, 1), 10)]
    assert plan(partitions, dict.fromkeys((1, 2, 3))) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    partitions = [Held("t", index, (index % 2 + 1,), 100) for index in range(12)]
    moves = plan(partitions, dict.fromkeys((1, 2, 3)))
    assert len(moves) == 4
    assert set(moves.values()) == {(3,)}


def test_bytes_differ_by_at_most_a_tenth_where_partitions_allow_it() -> None:
    partitions = [Held("big", n, (1,), 1000) for n in range(10)] + [Held("small", n, (2,), 10) for n in range(10)]
    found = shares(after(partitions, dict.fromkeys((1, 2))), [1, 2])
    assert abs(found[1].bytes - found[2].bytes) <= 505
    assert found[1].holds == found[2].holds == 10


def test_one_huge_partition_does_not_make_the_plan_run_for_ever() -> None:
    partitions = [Held("huge", 0, (1,), 10_000), *(Held("t", n, (2,), 1) for n in range(5))]
    found = shares(after(partitions, dict.fromkeys((1, 2))), [1, 2])
    assert {share.holds for share in found.values()} == {3}


def test_leadership_is_passed_along_a_chain_of_brokers() -> None:
    # broker 1 leads everything it can; broker 3 shares no partition with it
    partitions = [Held("t", n, (1, 2)) for n in range(4)] + [Held("t", 9, (2, 3)), Held("t", 10, (2, 3))]
    found = shares(after(partitions, {1: None, 2: None, 3: None}), [1, 2, 3])
    assert sorted(share.leads for share in found.values()) == [2, 2, 2]


def test_no_partition_stands_on_fewer_racks_than_before() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    partitions = [Held("t", n, (1, 3), 10) for n in range(8)]
    balanced = after(partitions, racks)
    assert all(len({racks[broker] for broker in held.replicas}) == 2 for held in balanced)
    assert {share.holds for share in shares(balanced, [1, 2, 3, 4]).values()} == {4}


def test_a_partition_with_a_replica_on_a_dead_broker_is_let_alone() -> None:
    partitions = [Held("t", n, (1, 9), 10) for n in range(4)]
    assert plan(partitions, {1: None, 2: None}) == {}


def test_a_cluster_of_many_partitions_comes_within_a_tenth() -> None:
    sizes = Random(7)
    partitions = [Held("t", n, tuple(sizes.sample([1, 2, 3, 4], 3)), sizes.randint(100, 1000)) for n in range(300)]
    found = shares(after(partitions, dict.fromkeys((1, 2, 3, 4, 5))), [1, 2, 3, 4, 5]).values()
    mean = sum(share.bytes for share in found) / 5
    assert max(share.bytes for share in found) - min(share.bytes for share in found) <= mean / 10
    assert {share.holds for share in found} == {180}
    assert {share.leads for share in found} == {60}
