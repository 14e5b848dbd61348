"""Where replicas go, over many shapes of clusters."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.placement import Load, Plan, check_manual, grown, place
from headrace.wire.errors import ErrorCode, KafkaError


def spread(counts: Counter[int], brokers: int) -> int:
    return max(counts.values(), default=0) - (min(counts.values(), default=0) if len(counts) == brokers else 0)


def leaders(plan: Plan) -> Counter[int]:
    return Counter(replicas[0] for replicas in plan)


def holders(plan: Plan) -> Counter[int]:
    return Counter(broker for replicas in plan for broker in replicas)


@given(st.data(), st.integers(1, 9), st.integers(1, 40))
def test_leaders_and_replicas_of_a_topic_differ_by_at_most_one(
    data: st.DataObject, brokers: int, partitions: int
) -> None:
    factor = data.draw(st.integers(1, brokers))
    numbers = list(range(10, 10 + brokers))
    counts = st.fixed_dictionaries({number: st.integers(0, 20) for number in numbers})
    plan = place(partitions, factor, dict.fromkeys(numbers), Load(data.draw(counts), data.draw(counts)))
    assert len(plan) == partitions
    assert all(len(set(replicas)) == factor for replicas in plan)
    assert spread(leaders(plan), brokers) <= 1
    assert spread(holders(plan), brokers) <= 1


@given(st.integers(1, 9), st.integers(1, 4), st.lists(st.integers(1, 12), min_size=1, max_size=20))
def test_many_topics_one_after_the_other_spread_their_leaders_and_replicas(
    brokers: int, factor: int, sizes: list[int]
) -> None:
    plans: Plan = []
    for size in sizes:
        load = Load(leaders(plans), holders(plans))
        plans += place(size, min(factor, brokers), dict.fromkeys(range(brokers)), load)
    assert spread(leaders(plans), brokers) <= 1
    assert spread(holders(plans), brokers) <= 2  # small topics whose leader must hold what others have less of


@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 30))
def test_replicas_stand_on_different_racks_while_there_are_any(
    data: st.DataObject, racks: int, per_rack: int, partitions: int
) -> None:
    where = {rack * 10 + n: f"rack-{rack}" for rack in range(racks) for n in range(per_rack)}
    factor = data.draw(st.integers(1, len(where)))
    plan = place(partitions, factor, where)
    for replicas in plan:
        assert len({where[broker] for broker in replicas}) == min(factor, racks)
    assert spread(leaders(plan), len(where)) <= 1


def test_more_replicas_go_where_the_fewest_are_and_to_other_racks_first() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert grown((1,), 2, racks, Load({}, {3: 5, 4: 4})) == (1, 4)
    assert grown((1, 4), 3, racks, Load({}, {2: 1, 3: 0})) == (1, 4, 3)
    assert grown((1, 2, 3, 4), 3, racks, Load()) == (1, 2, 3, 4)
    assert grown((1,), 3, {1: None, 2: None}, Load()) == (1, 2)


@pytest.mark.parametrize("factor", [0, -1, 3])
def test_a_factor_that_cannot_be_had_is_refused(factor: int) -> None:
    with pytest.raises(KafkaError, match="2 live broker") as refused:
        place(1, factor, {1: None, 2: None})
    assert refused.value.code is ErrorCode.invalid_replication_factor


def test_a_plan_made_by_hand_is_taken_as_it_is() -> None:
    assert check_manual({1: [2, 1], 0: [1, 2]}, {1: None, 2: None}) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ({0: [1], 2: [1]}, "without a gap"),
        ({0: []}, "no replica"),
        ({0: [1, 1]}, "twice"),
        ({0: [3]}, "broker 3, which is not alive"),
        ({0: [1], 1: [1, 2]}, "partition 1 has 2 replicas, others have 1"),
    ],
)
def test_a_plan_that_cannot_be_used_says_why(assignments: dict[int, list[int]], words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        check_manual(assignments, {1: None, 2: None})
    assert refused.value.code is ErrorCode.invalid_replica_assignment


def test_partitions_that_are_added_by_hand_have_as_many_replicas_as_the_others() -> None:
    brokers = {1: None, 2: None}
    assert check_manual({4: [2, 1]}, brokers, 4, 2) == [(2, 1)]
    with pytest.raises(KafkaError, match="partition 4 has 1 replicas, others have 2") as refused:
        check_manual({4: [2]}, brokers, 4, 2)
    assert refused.value.code is ErrorCode.invalid_replica_assignment
