"""Who leads, from the state as stored and who is alive."""

from __future__ import annotations

from headrace.cluster.election import elect, elect_preferred, first_state, needs_leader
from headrace.model.image import NO_LEADER, PartitionImage


def state(leader: int, isr: dict[int, int], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(0, replicas, tuple(isr), leader, 7, 0, tuple(isr.values()))


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    new = first_state(4, (3, 1, 2), {1: 10, 2: 20})
    assert (new.index, new.leader, new.isr, new.isr_epochs, new.leader_epoch) == (4, 1, (1, 2), (10, 20), 0)
    assert first_state(0, (3,), {1: 10}).leader == NO_LEADER


def test_a_leader_that_lives_on_stays() -> None:
    assert not needs_leader(state(1, {1: 10, 2: 20}), {1: 10, 2: 20})
    assert needs_leader(state(1, {1: 10}), {})
    assert needs_leader(state(1, {1: 10}), {1: 11})
    assert needs_leader(state(NO_LEADER, {1: 10}), {1: 10})


def test_an_in_sync_replica_takes_over_in_the_order_of_the_plan() -> None:
    elected = elect(state(1, {1: 10, 3: 30, 2: 20}), {2: 20, 3: 30})
    assert elected is not None
    assert (elected.leader, elected.isr, elected.isr_epochs, elected.leader_epoch) == (2, (2, 3), (20, 30), 8)


def test_one_that_lived_on_leads_before_one_that_was_restarted() -> None:
    elected = elect(state(1, {1: 10, 2: 20}), {1: 11, 2: 20})
    assert elected is not None
    assert (elected.leader, elected.isr) == (2, (2,))


def test_the_last_in_sync_replica_leads_again_after_its_restart() -> None:
    elected = elect(state(1, {1: 10}, (1,)), {1: 11})
    assert elected is not None
    assert (elected.leader, elected.isr, elected.isr_epochs, elected.leader_epoch) == (1, (1,), (11,), 8)


def test_nobody_leads_rather_than_one_that_lacks_records() -> None:
    gone = elect(state(1, {1: 10}), {2: 20})
    assert gone is not None
    assert (gone.leader, gone.isr, gone.leader_epoch) == (NO_LEADER, (1,), 8)
    assert elect(state(NO_LEADER, {1: 10}), {2: 20}) is None


def test_an_unclean_election_takes_any_live_replica() -> None:
    elected = elect(state(NO_LEADER, {1: 10}), {2: 20, 3: 30}, unclean=True)
    assert elected is not None
    assert (elected.leader, elected.isr, elected.isr_epochs) == (2, (2,), (20,))


def test_the_preferred_replica_leads_only_if_it_is_in_sync() -> None:
    elected = elect_preferred(state(2, {1: 10, 2: 20}), {1: 10, 2: 20})
    assert elected is not None
    assert (elected.leader, elected.isr, elected.leader_epoch) == (1, (1, 2), 8)
    assert elect_preferred(state(2, {2: 20}), {1: 10, 2: 20}) is None
    assert elect_preferred(state(2, {1: 10, 2: 20}), {2: 20}) is None
