"""Who leads, from the state as stored and who is alive."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.cluster import election
from headrace.cluster.election import (
    Terms,
    can_recover,
    first_state,
    needs_leader,
    preferred,
    recover,
    settled,
    with_isr,
    without_leavers,
)
from headrace.model.image import NO_LEADER, BrokerImage, PartitionImage
from tests.unit.cluster.replica_model import Lost, ReplicaModel, sound

TWO = Terms(min_isr=2)


def brokers(**epochs: int | tuple[int, int]) -> dict[int, BrokerImage]:
    """`_1=10`: broker 1 is alive with epoch 10, started after a crash; `_1=(11, 10)`: and lost nothing since 10."""
    alive = {}
    for name, given in epochs.items():
        epoch, since = given if isinstance(given, tuple) else (given, given)
        alive[int(name[1:])] = BrokerImage(int(name[1:]), "", 0, None, epoch, since)
    return alive


def state(leader: int, isr: dict[int, int], replicas: tuple[int, ...] = (1, 2, 3), **more: object) -> PartitionImage:
    return replace(PartitionImage(0, replicas, tuple(isr), leader, 7, 5, tuple(isr.values())), **more)


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    new = first_state(4, (3, 1, 2), brokers(_1=10, _2=20))
    assert (new.index, new.leader, new.isr, new.isr_epochs, new.leader_epoch) == (4, 1, (1, 2), (10, 20), 0)
    assert first_state(0, (3,), brokers(_1=10)).leader == NO_LEADER


def test_a_leader_that_lives_on_stays() -> None:
    assert not needs_leader(state(1, {1: 10, 2: 20}), brokers(_1=10, _2=20))
    assert needs_leader(state(1, {1: 10}), {})
    assert needs_leader(state(1, {1: 10}), brokers(_1=(11, 10)))
    assert needs_leader(state(NO_LEADER, {1: 10}), brokers(_1=10))
    quiet = state(1, {1: 10, 2: 20})
    assert settled(quiet, brokers(_1=10, _2=20), TWO) is quiet


def test_an_in_sync_replica_takes_over_in_the_order_of_the_plan() -> None:
    after = settled(state(1, {1: 10, 3: 30, 2: 20}), brokers(_2=20, _3=30), TWO)
    assert (after.leader, after.isr, after.isr_epochs) == (2, (3, 2), (30, 20))
    assert (after.leader_epoch, after.elr) == (8, ())


def test_a_dead_follower_leaves_the_isr_at_once_and_the_leader_keeps_its_epoch() -> None:
    after = settled(state(1, {1: 10, 2: 20, 3: 30}), brokers(_1=10, _3=30), TWO)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 7, (1, 3))


def test_a_restarted_broker_is_compared_by_its_epoch_not_its_number() -> None:
    after = settled(state(1, {1: 10, 2: 20, 3: 30}), brokers(_1=11, _2=20, _3=30), TWO)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 3), 8)


def test_who_leaves_an_isr_that_is_then_too_small_may_still_lead() -> None:
    first = settled(state(1, {1: 10, 2: 20}), brokers(_1=10), TWO)
    assert (first.leader, first.isr, first.elr) == (1, (1,), ((2, 20),))
    nobody = settled(first, {}, TWO)
    assert (nobody.leader, nobody.isr, nobody.elr) == (NO_LEADER, (), ((2, 20), (1, 10)))
    back = settled(nobody, brokers(_2=(21, 20)), TWO)
    assert (back.leader, back.isr, back.isr_epochs, back.elr) == (2, (2,), (21,), ((1, 10),))


def test_one_that_may_have_lost_records_is_no_longer_eligible() -> None:
    nobody = state(NO_LEADER, {}, elr=((1, 10), (2, 20)))
    after = settled(nobody, brokers(_2=21), TWO)
    assert (after.leader, after.elr, after.last_known) == (NO_LEADER, ((1, 10),), (2,))
    assert not can_recover(after, brokers(_2=21, _3=30), unclean=False)


def test_who_left_is_waited_for_when_those_who_stayed_were_dead_and_lost_what_they_had() -> None:
    """Broker 3 was killed and is back at once; the others are registered still, but have lost power."""
    stayed = settled(state(3, {3: 30, 1: 10, 2: 20}), brokers(_1=10, _2=20, _3=31), TWO)
    assert (stayed.leader, stayed.isr, stayed.last_known) == (1, (1, 2), (3,))
    assert settled(stayed, brokers(_1=10, _2=20, _3=31), TWO) is stayed
    found_out = settled(stayed, brokers(_3=31), TWO)
    lost = settled(found_out, brokers(_1=11, _2=21), TWO)
    assert (lost.leader, set(lost.last_known)) == (NO_LEADER, {1, 2, 3})
    assert not can_recover(lost, brokers(_1=11, _2=21), unclean=False)
    everybody = brokers(_1=11, _2=21, _3=31)
    assert can_recover(lost, everybody, unclean=False)
    led = recover(lost, {1: (0, 5), 2: (0, 0), 3: (0, 9)}, everybody, unclean=False)
    assert led is not None
    assert (led.leader, led.last_known) == (3, ())


def test_who_left_is_forgotten_only_while_those_who_stayed_live() -> None:
    partition = state(1, {1: 10, 2: 20}, last_known=(3,))
    assert without_leavers(partition, brokers(_1=10, _2=21)) is None
    assert without_leavers(state(1, {1: 10}, elr=((2, 20),), last_known=(3,)), brokers(_1=10)) is None
    assert without_leavers(state(NO_LEADER, {}, last_known=(3,)), brokers(_1=10)) is None
    forgotten = without_leavers(partition, brokers(_1=10, _2=20))
    assert forgotten is not None
    assert (forgotten.isr, forgotten.last_known, forgotten.leader_epoch) == ((1, 2), (), partition.leader_epoch)


def test_who_left_and_is_back_in_sync_is_not_remembered() -> None:
    partition = state(1, {1: 10, 2: 20}, last_known=(3,))
    assert with_isr(partition, [(1, 10), (2, 20), (3, 31)], TWO).last_known == ()


def test_a_topic_that_syncs_trusts_whoever_comes_back() -> None:
    nobody = state(NO_LEADER, {}, elr=((1, 10), (2, 20)))
    after = settled(nobody, brokers(_2=21), Terms(min_isr=2, synced=frozenset({1, 2, 3})))
    assert (after.leader, after.elr) == (2, ((1, 10),))


def test_a_partition_with_one_replica_always_takes_it_back() -> None:
    after = settled(state(1, {1: 10}, (1,)), brokers(_1=11), TWO)
    assert (after.leader, after.isr, after.isr_epochs, after.leader_epoch) == (1, (1,), (11,), 8)


def test_when_all_who_were_known_are_back_the_longest_log_leads() -> None:
    lost = settled(state(1, {1: 10, 2: 20}), brokers(_1=11, _2=21), TWO)
    assert (lost.leader, lost.elr, lost.last_known) == (NO_LEADER, (), (1, 2))
    alive = brokers(_1=11, _2=21, _3=30)
    assert can_recover(lost, alive, unclean=False)
    assert not can_recover(lost, brokers(_1=11, _3=30), unclean=False)
    assert recover(lost, {1: (3, 90), 3: (2, 200)}, alive, unclean=False) is None  # broker 2 has not answered
    after = recover(lost, {1: (3, 90), 2: (3, 100), 3: (2, 200)}, alive, unclean=False)
    assert after is not None
    assert (after.leader, after.isr, after.isr_epochs, after.last_known) == (2, (2,), (21,), ())
    assert (after.leader_epoch, after.recovering) == (lost.leader_epoch + 1, False)
    among_equals = recover(replace(lost, replicas=(3, 1, 2)), dict.fromkeys((1, 2, 3), (3, 9)), alive, unclean=False)
    assert among_equals is not None
    assert among_equals.leader == 1


def test_an_unclean_election_takes_the_longest_log_and_says_so() -> None:
    nobody = state(NO_LEADER, {}, elr=((1, 10),))
    alive = brokers(_2=20, _3=30)
    assert not can_recover(nobody, alive, unclean=False)
    assert can_recover(nobody, alive, unclean=True)
    after = recover(nobody, {2: (3, 10), 3: (3, 12)}, alive, unclean=True)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.recovering, after.leader_epoch) == (3, (3,), (), True, 8)
    joined = with_isr(after, [(3, 30), (2, 20)], TWO)
    assert not joined.recovering


def test_an_isr_that_is_large_enough_again_forgets_who_else_might_lead() -> None:
    small = state(1, {1: 10}, elr=((2, 20),), last_known=(3,))
    grown = with_isr(small, [(1, 10), (3, 31)], TWO)
    assert (grown.isr, grown.elr, grown.last_known) == ((1, 3), (), ())
    shrunk = with_isr(grown, [(1, 10)], TWO)
    assert (shrunk.isr, shrunk.elr, shrunk.leader_epoch) == ((1,), ((3, 31),), 7)


def test_a_leader_that_takes_itself_out_is_not_eligible() -> None:
    left = with_isr(state(1, {1: 10, 2: 20}), [(2, 20)], TWO)
    assert (left.isr, left.elr, left.last_known) == ((2,), (), (1,))
    after = settled(left, brokers(_1=10, _2=20), TWO)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 8)


def test_less_is_enough_where_the_plan_has_fewer_replicas() -> None:
    assert state(1, {1: 10}, (1,)).enough_in_sync(TWO.min_isr) == 1
    assert state(1, {1: 10}, (1, 2), adding=(2,)).enough_in_sync(TWO.min_isr) == 1
    after = settled(state(1, {1: 10}, (1, 2), elr=((2, 20),)), brokers(_1=10), Terms(min_isr=1))
    assert (after.elr, after.leader_epoch) == ((), 7)


def test_the_preferred_replica_leads_only_if_it_is_in_sync() -> None:
    after = preferred(state(2, {1: 10, 2: 20}), brokers(_1=10, _2=20))
    assert after is not None
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 8)
    assert preferred(state(2, {2: 20}), brokers(_1=10, _2=20)) is None
    assert preferred(state(2, {1: 10, 2: 20}), brokers(_2=20)) is None
    assert preferred(state(2, {1: 10, 2: 20}), brokers(_1=(11, 10), _2=20)) is None


def test_a_leader_is_taken_from_those_who_stay_before_those_who_are_to_go() -> None:
    moving = state(1, {1: 10, 2: 20, 3: 30}, adding=(3,), removing=(1, 2))
    assert settled(moving, brokers(_2=20, _3=30), TWO).leader == 3


@pytest.mark.parametrize("min_isr", [1, 2, 3])
@pytest.mark.parametrize("synced", [(), (1, 2, 3), (2,), (1, 3)])
def test_nobody_is_elected_who_may_lack_a_committed_record(min_isr: int, synced: tuple[int, ...]) -> None:
    elections = committed = 0
    for seed in range(70):
        model = ReplicaModel(seed, Terms(min_isr, frozenset(synced)), forgets=True, recovers=False)
        try:
            for _ in range(6):
                model.play(40)
                assert sound(model.stored)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        elections += model.elections
        committed += len(model.committed)
    assert elections > 100
    assert committed > 100


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_after_crashes_that_lost_nothing_everybody_back_means_everything_back(min_isr: int) -> None:
    for seed in range(70):
        model = ReplicaModel(seed, Terms(min_isr), forgets=False, recovers=True)
        try:
            model.play(240)
            model.heal()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        assert model.stored.leader != NO_LEADER, f"seed {seed}: {model.stored}"
        assert not model.stored.elr, f"seed {seed}: {model.stored}"


def test_the_model_finds_that_a_broker_which_crashed_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_may_be_whole", lambda *_: True)
    models = [ReplicaModel(seed, Terms(2), forgets=True, recovers=False) for seed in range(100)]
    with pytest.raises(Lost):
        [model.play(240) for model in models]
