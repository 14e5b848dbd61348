"""The arithmetic of replication against slow and obvious versions of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.log.leader_epochs import LeaderEpochs
from headrace.model.image import BrokerImage, PartitionImage
from headrace.replicas.isr import UNKNOWN, Follower, Limits, committed_end, falls_behind, is_near, may_join
from headrace.replicas.leadership import Leadership
from headrace.replicas.reconciling import next_step

LIMITS = Limits(lag_s=10.0, min_isr=2)


@given(st.integers(0, 20), st.dictionaries(st.integers(2, 6), st.integers(-1, 20)), st.data())
def test_committed_is_what_everybody_has_who_counts(own_end: int, ends: dict[int, int], data: st.DataObject) -> None:
    counted = data.draw(st.sets(st.integers(2, 7)))
    waited_for = data.draw(st.sets(st.sampled_from([b for b, end in ends.items() if end >= 0] or [0]))) - {0}
    followers = {broker: Follower(broker, 0.0, 1, end) for broker, end in ends.items()}
    found = committed_end(own_end, followers, counted, waited_for)
    if any(ends.get(broker, UNKNOWN) == UNKNOWN for broker in counted):
        assert found is None
        return
    logs = [set(range(own_end)), *(set(range(ends[broker])) for broker in counted | waited_for)]
    everywhere = set.intersection(*logs)
    assert found == len(everywhere)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.floats(0.01, 5)), max_size=30))
def test_caught_up_means_to_have_had_everything_there_was(steps: list[tuple[bool, int, float]]) -> None:
    """The slow version remembers the leader's end at every moment."""
    follower, now, end, has = Follower(2, 0.0), 0.0, 0, 0
    ends: list[tuple[float, int]] = [(0.0, 0)]
    asked: list[float] = []
    for fetches, count, passed in steps:
        now += passed
        if fetches:
            has = min(end, has + count)
            follower.fetched(1, has, end, now)
            asked.append(now)
        else:
            end += count
            ends.append((now, end))
        moments = [at for at in asked if max(e for t, e in ends if t <= at) <= has] if asked else []
        truth = max([0.0, *moments])
        assert follower.caught_up_s <= max(truth, 0.0)
        if asked and has == end:
            follower.fetched(1, has, end, now)
            asked.append(now)
            assert follower.caught_up_s == now


def test_a_follower_may_join_with_all_that_is_committed_and_all_of_earlier_epochs() -> None:
    assert not may_join(Follower(2, 0.0, 1, UNKNOWN), 0, 0)
    assert not may_join(Follower(2, 0.0, 1, 4), high_watermark=5, epoch_start=0)
    assert not may_join(Follower(2, 0.0, 1, 5), high_watermark=5, epoch_start=6)
    assert may_join(Follower(2, 0.0, 1, 6), high_watermark=5, epoch_start=6)


def test_who_falls_behind() -> None:
    late = Follower(2, 0.0, 1, 4)
    assert not falls_behind(late, 5, LIMITS, 10.0)
    assert falls_behind(late, 5, LIMITS, 10.1)
    assert not falls_behind(late, 4, LIMITS, 99.0), "it has everything; that nobody writes is no lag"
    assert falls_behind(Follower(2, 0.0), 5, LIMITS, 10.1), "never heard of"
    by_count = replace(LIMITS, lag_messages=3)
    assert not falls_behind(late, 7, by_count, 1.0)
    assert falls_behind(late, 8, by_count, 1.0)
    assert not is_near(late, 5, 6, LIMITS, 1.0), "it lacks records of earlier epochs"
    assert is_near(late, 4, 6, LIMITS, 10.0)
    assert not is_near(late, 4, 6, LIMITS, 10.1)
    assert not is_near(late, 4, 8, by_count, 1.0)


def test_a_partition_never_needs_more_in_sync_than_it_is_to_have() -> None:
    state = PartitionImage(0, (1, 2), (1, 2), 1, 0, 0, (1, 1))
    assert [state.enough_in_sync(count) for count in (1, 2, 3)] == [1, 2, 2]
    growing = replace(state, replicas=(1, 2, 3), adding=(2, 3))
    assert growing.enough_in_sync(2) == 1


BROKERS = {broker: BrokerImage(broker, "h", 1, None, 1) for broker in (1, 2, 3)}
ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("fetch"), st.integers(2, 3)),
    st.tuples(st.just("review"), st.just(0)),
    st.tuples(st.just("written"), st.booleans()),
    st.tuples(st.just("seen"), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 12)),
)


@given(st.lists(ACTIONS, max_size=60), st.integers(1, 3))
def test_whoever_is_stored_as_in_sync_has_everything_that_is_committed(
    actions: list[tuple[str, int]], min_isr: int
) -> None:
    """A leader's life with two followers and a store whose answers may be lost or late. At every moment, whoever is
    stored as in sync must have all that is committed: any of them may be elected next."""
    limits = Limits(lag_s=10.0, min_isr=min_isr)
    stored = PartitionImage(0, (1, 2, 3), (1, 2, 3), 1, 4, 0, (1, 1, 1))
    leader = Leadership(stored, 1, 0, 0.0)
    end, now, watermark = 0, 0.0, 0
    has = {2: 0, 3: 0}
    for action, value in actions:
        if action == "append":
            end += value
        elif action == "fetch":
            leader.fetched(value, 1, has[value], end, now)
            committed = leader.committed_end(end, limits, BROKERS, now)
            if committed is not None and committed > watermark:
                assert len(leader.state.isr) >= min_isr
                watermark = committed
            has[value] = end  # what the answer brings
        elif action == "review":
            due = leader.change_due(end, watermark, limits, BROKERS, now)
            if due is not None:
                assert leader.wanted is None, "one change at a time"
                leader.wanted = due[0]
        elif action == "written" and leader.wanted is not None and leader.wanted.version == stored.version:
            stored = replace(leader.wanted, version=stored.version + 1)
            if value:
                leader.adopt(stored, now)
        elif action == "seen":
            leader.adopt(stored, now)
        elif action == "time":
            now += value
        assert all(has[member] >= watermark for member in stored.isr if member != 1), (stored.isr, has, watermark)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as lists of the epochs of their records: a common beginning, then leaders of rising epochs."""
    common = sorted(draw(st.lists(st.integers(0, 4), max_size=6)))
    rest = draw(st.lists(st.tuples(st.integers(5, 12), st.booleans()), max_size=12, unique_by=lambda step: step[0]))
    one, other = list(common), list(common)
    (one if draw(st.booleans()) else other).extend(common[-1:] * draw(st.integers(0, 2)))
    for epoch, first in sorted(rest):
        (one if first else other).extend([epoch] * draw(st.integers(1, 3)))
    return one, other


def epochs_of(log: list[int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


@given(histories())
def test_reconciling_leaves_what_both_logs_have_and_nothing_else(logs: tuple[list[int], list[int]]) -> None:
    """Each epoch had one leader, so records of one epoch at one offset are the same record."""
    leader, follower = logs
    same = 0
    while same < min(len(leader), len(follower)) and leader[same] == follower[same]:
        same += 1
    theirs = epochs_of(leader)
    theirs.assign(99, len(leader))  # a leader notes its own epoch before it serves
    for _ in range(30):
        ours = epochs_of(follower)
        if not follower:
            break
        known = theirs.end_offset_for(ours.latest, len(leader))
        assert known is not None
        step = next_step(ours, len(follower), ours.latest, *known)
        follower = follower[: step.cut_at]
        if not step.ask_again:
            break
    else:
        raise AssertionError("it never ends")
    assert len(follower) == same
