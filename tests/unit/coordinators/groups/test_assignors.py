"""The assignors as plain functions: every partition once, evenly, and with as few moves as possible."""

import uuid
from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinators.groups.assignors.range import assign_range
from headrace.coordinators.groups.assignors.simple import assign_simple
from headrace.coordinators.groups.assignors.uniform import assign_uniform
from headrace.coordinators.groups.assignors.wishes import Assignor, Plan, Wish

TOPICS = [uuid.uuid5(uuid.NAMESPACE_URL, f"topic {number}") for number in range(5)]

counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
names = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> tuple[dict[str, Wish], dict[uuid.UUID, int]]:
    """Members with what a former plan, of whatever kind, left them; nobody has what somebody else has."""
    counts, members = draw(counts_of_topics), draw(names)
    free = {(topic, number) for topic in TOPICS for number in range(14)}
    wishes = {}
    for member in members:
        wanted = frozenset(counts) if alike else draw(st.frozensets(st.sampled_from(TOPICS)))
        has = draw(st.sets(st.sampled_from(sorted(free)), max_size=10)) if free else set()
        free -= has
        parts = {topic: frozenset(n for t, n in has if t == topic) for topic, _ in has}
        wishes[member] = Wish(wanted, parts)
    return wishes, counts


def places(plan: Plan) -> list[tuple[str, uuid.UUID, int]]:
    return [(member, topic, number) for member, parts in plan.items() for topic in parts for number in parts[topic]]


def check_each_once(plan: Plan, wishes: Mapping[str, Wish], counts: Mapping[uuid.UUID, int]) -> None:
    given_out = Counter((topic, number) for _, topic, number in places(plan))
    wanted = {topic for wish in wishes.values() for topic in wish.topics if topic in counts}
    assert given_out == Counter((topic, number) for topic in wanted for number in range(counts[topic]))
    assert all(topic in wishes[member].topics for member, topic, _ in places(plan))
    assert plan.keys() == wishes.keys()


@given(groups(alike=False))
def test_every_partition_goes_to_one_member_that_wants_it(group) -> None:
    for assign in (assign_uniform, assign_range):
        check_each_once(assign(*group), *group)


def loads_of(plan: Plan) -> dict[str, int]:
    return {member: sum(map(len, parts.values())) for member, parts in plan.items()}


@given(groups(alike=True))
def test_uniform_shares_of_members_that_want_the_same_differ_by_one_at_most(group) -> None:
    loads = loads_of(assign_uniform(*group)).values()
    assert max(loads) - min(loads) <= 1


def least_moves(wishes: Mapping[str, Wish], counts: Mapping[uuid.UUID, int]) -> int:
    """Of members that want the same, the slow and obvious way: the fullest keep one more than the others."""
    loads = []
    for wish in wishes.values():
        loads.append(sum(1 for topic in wish.has for number in wish.has[topic] if number < counts.get(topic, 0)))
    loads.sort(reverse=True)
    each, more = divmod(sum(counts.values()), len(wishes))
    return sum(max(0, load - each - (number < more)) for number, load in enumerate(loads))


@given(groups(alike=True))
def test_uniform_takes_no_more_partitions_away_than_it_must(group) -> None:
    wishes, counts = group
    plan = assign_uniform(wishes, counts)
    taken = sum(
        number not in plan[member].get(topic, frozenset())
        for member, wish in wishes.items()
        for topic in wish.has
        for number in wish.has[topic]
        if number < counts.get(topic, 0)
    )
    assert taken == least_moves(wishes, counts)


@given(groups(alike=False))
def test_uniform_leaves_no_single_move_that_would_make_it_more_even(group) -> None:
    wishes, counts = group
    plan = assign_uniform(wishes, counts)
    loads = loads_of(plan)
    for giver, topic, _ in places(plan):
        assert all(loads[giver] - loads[taker] <= 1 for taker in wishes if topic in wishes[taker].topics)


@given(groups(alike=False))
@settings(max_examples=50)
def test_plan_made_again_from_itself_stays(group) -> None:
    wishes, counts = group
    for assign in (assign_uniform, assign_range):
        plan = assign(wishes, counts)
        again = {member: Wish(wish.topics, plan[member]) for member, wish in wishes.items()}
        assert assign(again, counts) == plan


def test_range_cuts_topics_of_one_size_in_the_same_places() -> None:
    counts = dict.fromkeys(TOPICS[:3], 7)
    plan = assign_range({name: Wish(frozenset(counts), {}) for name in "abc"}, counts)
    assert [sorted(map(sorted, set(parts.values()))) for parts in plan.values()] == [[[0, 1, 2]], [[3, 4]], [[5, 6]]]


def test_range_orders_static_members_by_their_instances() -> None:
    wishes = {
        "z": Wish(frozenset(TOPICS[:1]), {}, instance_id="first"),
        "a": Wish(frozenset(TOPICS[:1]), {}, instance_id="second"),
    }
    plan = assign_range(wishes, {TOPICS[0]: 2})
    assert plan == {"z": {TOPICS[0]: frozenset({0})}, "a": {TOPICS[0]: frozenset({1})}}


def test_hundred_members_join_and_leave_a_thousand_partitions_with_the_fewest_moves() -> None:
    counts, members, plan = dict.fromkeys(TOPICS, 200), list[str](), Plan()
    assign: Assignor = assign_uniform
    for size in [*range(1, 101), *range(99, 0, -1)]:
        if size > len(members):
            members.append(f"member-{size:03}")
        else:
            plan.pop(members.pop(size // 2))
        wishes = {name: Wish(frozenset(TOPICS), plan.get(name, {})) for name in members}
        before, plan = plan, assign(wishes, counts)
        loads = loads_of(plan).values()
        assert (sum(loads), max(loads) - min(loads) <= 1) == (1000, True)
        moved = set(places(before)) - set(places(plan))
        assert len(moved) == least_moves(wishes, counts)


# --- share groups: a partition may go to many ------------------------------------------------------------------------


@st.composite
def share_groups(draw: st.DrawFn, *, alike: bool) -> tuple[dict[str, Wish], dict[uuid.UUID, frozenset[int]]]:
    """Members with what a former plan, of whatever kind, left them; some partitions may not be given out."""
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 12), max_size=8)))
    places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 14))
    wishes = {}
    for member in draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=12, unique=True)):
        wanted = frozenset(partitions) if alike else draw(st.frozensets(st.sampled_from(TOPICS)))
        has = draw(st.sets(places, max_size=10))
        wishes[member] = Wish(wanted, {topic: frozenset(n for t, n in has if t == topic) for topic, _ in has})
    return wishes, partitions


def shared_places(partitions: Mapping[uuid.UUID, frozenset[int]]) -> set[tuple[uuid.UUID, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


@given(share_groups(alike=True))
def test_members_of_a_share_group_that_want_the_same_get_the_same(group) -> None:
    wishes, partitions = group
    plan, everything = assign_simple(*group), shared_places(partitions)
    given_out = Counter((topic, number) for _, topic, number in places(plan))
    each = -(-len(wishes) // len(everything)) if everything else 0
    assert plan.keys() == wishes.keys()
    assert given_out == dict.fromkeys(everything, each)
    loads = loads_of(plan).values()
    assert max(loads) - min(loads) <= 1
    assert not everything or min(loads) >= min(1, len(everything) // len(wishes)) or each > 1


@given(share_groups(alike=False))
def test_each_topic_of_a_share_group_is_shared_by_its_subscribers(group) -> None:
    wishes, partitions = group
    plan = assign_simple(*group)
    assert all(topic in wishes[member].topics for member, topic, _ in places(plan))
    given_out = Counter((topic, number) for _, topic, number in places(plan))
    wanted = {topic for wish in wishes.values() for topic in wish.topics} & partitions.keys()
    assert given_out.keys() == {(topic, number) for topic in wanted for number in partitions[topic]}


@given(share_groups(alike=True), st.booleans())
def test_the_plan_of_a_share_group_changes_no_further_by_itself(group, one_leaves: bool) -> None:
    wishes, partitions = group
    plan = assign_simple(*group)
    again = {member: Wish(wish.topics, plan[member]) for member, wish in wishes.items()}
    assert assign_simple(again, partitions) == plan
    if one_leaves and len(again) > 1:
        again.pop(min(again))
        places_now = shared_places(partitions)
        if len(wishes) <= len(places_now):  # one member each, before and after: who stays loses nothing
            after = assign_simple(again, partitions)
            assert all(
                plan[member].get(topic, frozenset()) <= after[member].get(topic, frozenset())
                for member in again
                for topic in plan[member]
            )


def test_a_thousand_partitions_are_shared_by_two_hundred_members_in_no_time() -> None:
    partitions = {topic: frozenset(range(200)) for topic in TOPICS}
    wishes = {str(number): Wish(frozenset(TOPICS), {}) for number in range(200)}
    assert set(loads_of(assign_simple(wishes, partitions)).values()) == {5}
    few = {TOPICS[0]: frozenset(range(3))}
    takers = Counter((topic, number) for _, topic, number in places(assign_simple(wishes, few)))
    assert set(takers.values()) == {67}
