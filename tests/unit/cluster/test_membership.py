"""How a cluster begins, and how a broker joins it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from headrace.cluster import znodes
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.setting_changes import SettingChange, SettingOperation
from headrace.model.failure import Failure
from headrace.world.clock import SystemClock
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper
from tests.unit.cluster.controller_office import Office

InOffice = Callable[..., None]


def test_a_cluster_keeps_its_id_and_a_broker_gets_a_new_epoch_with_every_start(in_office: InOffice) -> None:
    ids: set[str] = set()
    epochs: list[int] = []

    async def story(office: Office) -> None:
        ids.add(office.view.image.cluster_id)
        ids.add(await found_cluster(office.store, SeededEntropy(99)))
        epochs.append(office.view.image.brokers[1].epoch)
        assert office.view.image.controller_id == 1

    in_office(story, story, story)
    assert len(ids) == 1
    assert len(ids.pop()) == 22
    assert epochs == [0, 1, 2]


def test_a_cluster_from_before_groups_had_settings_gets_a_place_for_them(in_office: InOffice) -> None:
    async def before(office: Office) -> None:
        await office.store.delete(znodes.GROUP_SETTINGS)

    async def after(office: Office) -> None:
        longer = SettingChange(SettingOperation.SET, "consumer.session.timeout.ms", "60000")
        settings = await office.controller.alter_settings("group", "g", [longer])
        assert office.view.image.group_settings == {"g": settings} == {"g": {"consumer.session.timeout.ms": "60000"}}

    in_office(before, after)


def test_two_brokers_cannot_have_one_id(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        with pytest.raises(Failure, match="id 1 is already running"):
            await register_broker(office.store, BrokerIdentity(1, "elsewhere", 9092, None), SystemClock())
        assert await register_broker(office.store, BrokerIdentity(2, "elsewhere", 9092, "r"), SystemClock()) == 0

    in_office(story)


def test_settings_changed_at_run_time_outlive_a_restart(in_office: InOffice) -> None:
    async def before(office: Office) -> None:
        set_bytes = SettingChange(SettingOperation.SET, "log.segment.bytes", "1000")
        set_hours = SettingChange(SettingOperation.SET, "log.roll.hours", "1")
        await asyncio.gather(
            office.controller.alter_settings("broker", "", [set_bytes]),
            office.controller.alter_settings("broker", "", [set_hours]),
            office.controller.alter_settings("broker", "1", [set_hours]),
        )

    async def after(office: Office) -> None:
        assert office.view.image.broker_settings == {
            "": {"log.segment.bytes": "1000", "log.roll.hours": "1"},
            "1": {"log.roll.hours": "1"},
        }
        drop = SettingChange(SettingOperation.DELETE, "log.roll.hours")
        assert await office.controller.alter_settings("broker", "", [drop]) == {"log.segment.bytes": "1000"}

    in_office(before, after)


def test_a_listener_that_fails_neither_hides_a_change_nor_stops_the_controller(
    in_office: InOffice, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(office: Office) -> None:
        told: list[int] = []
        office.view.subscribe(lambda old, new: 1 // 0)  # type: ignore[arg-type,return-value]
        office.view.subscribe(lambda old, new: told.append(new.version))
        change = SettingChange(SettingOperation.SET, "log.segment.bytes", "1000")
        await office.controller.alter_settings("broker", "", [change])
        await office.controller.alter_settings("broker", "", [change])
        assert told == sorted(told)
        assert len(told) == 2

    in_office(story)
    assert "a listener failed" in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_a_lost_answer_registers_a_broker_once(seed: int) -> None:
    async def story() -> None:
        ensemble = SimZooKeeper(seed)
        store = await ensemble.connect("broker")
        await found_cluster(store, SeededEntropy(1))
        ensemble.lose_reply("broker")
        assert await register_broker(store, BrokerIdentity(1, "here", 9092, None), SimClock()) == 0
        assert await store.children(znodes.BROKERS) == ["1"]

    run(story(), seed=seed)


def test_what_an_earlier_session_left_is_waited_out_and_a_living_broker_is_not() -> None:
    async def story() -> None:
        ensemble, clock, place = SimZooKeeper(1), SimClock(), BrokerIdentity(1, "here", 9092, None)
        first = await ensemble.connect("first")
        await found_cluster(first, SeededEntropy(1))
        await register_broker(first, place, clock)
        second = await ensemble.connect("second")
        began_s = clock.monotonic()
        with pytest.raises(Failure, match="id 1 is already running"):
            await register_broker(second, place, clock, patience_s=6.0)
        assert 6.0 <= clock.monotonic() - began_s < 7.0
        ensemble.cut("first")
        assert await register_broker(second, place, clock, patience_s=6.0) == 1

    run(story(), seed=1)


@pytest.mark.parametrize("away_s", [1, 20, 300])
def test_a_broker_that_restarts_while_zookeeper_is_away_waits_for_the_end_of_its_own_session(away_s: float) -> None:
    """No session ends meanwhile, and each gets its full timeout again afterwards."""

    async def story() -> None:
        ensemble, clock, place = SimZooKeeper(1), SimClock(), BrokerIdentity(1, "here", 9092, None)
        first = await ensemble.connect("first")
        await found_cluster(first, SeededEntropy(1))
        await register_broker(first, place, clock)
        ensemble.cut("first")  # the process is killed
        second = await ensemble.connect("second")
        again = asyncio.create_task(register_broker(second, place, clock, patience_s=6.0))
        await clock.sleep(0.5)
        ensemble.stop()
        await clock.sleep(away_s)
        assert not again.done()
        ensemble.start()
        assert await again == 1

    run(story(), seed=1)


def test_the_refusal_of_an_id_names_the_address_that_holds_it_and_since_when() -> None:
    async def story() -> None:
        ensemble, clock = SimZooKeeper(1), SimClock()
        first = await ensemble.connect("first")
        await found_cluster(first, SeededEntropy(1))
        await register_broker(first, BrokerIdentity(1, "old.example", 9093, None), clock)
        second = await ensemble.connect("second")
        with pytest.raises(Failure) as refused:
            await register_broker(second, BrokerIdentity(1, "new.example", 9092, None), clock)
        moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        assert str(refused.value) == (
            "a broker with id 1 is already running in this cluster, at old.example:9093, registered since "
            f"{moment:%Y-%m-%d %H:%M:%S} UTC; give this one another broker.id, or stop that one"
        )

    run(story(), seed=1)


def test_a_registration_of_an_earlier_version_does_not_say_since_when() -> None:
    async def story() -> None:
        store = await SimZooKeeper(1).connect("first")
        await found_cluster(store, SeededEntropy(1))
        old = b'{"version":1,"host":"old.example","port":9093,"rack":null,"epoch":0}'
        await store.create(znodes.broker_path(1), old)
        with pytest.raises(Failure, match=r"at old\.example:9093; give"):
            await register_broker(store, BrokerIdentity(1, "new.example", 9092, None), SimClock())

    run(story(), seed=1)


def test_a_broker_lost_nothing_only_if_it_can_show_its_last_epoch() -> None:
    async def start(ensemble: SimZooKeeper, kept_epoch: int | None) -> tuple[int, int]:
        store = await ensemble.connect("broker")
        await found_cluster(store, SeededEntropy(1))
        await register_broker(store, BrokerIdentity(1, "here", 9092, None), SimClock(), kept_epoch=kept_epoch)
        found = znodes.decode_registration(1, (await store.get(znodes.broker_path(1)))[0])
        await store.close()
        return found.epoch, found.unbroken_since

    async def story() -> None:
        ensemble = SimZooKeeper(1)
        assert await start(ensemble, None) == (0, 0)
        assert await start(ensemble, 0) == (1, 0)
        assert await start(ensemble, 1) == (2, 0)
        assert await start(ensemble, None) == (3, 3)
        assert await start(ensemble, 1) == (4, 4), "a marker of an earlier stop proves nothing"
        assert await start(ensemble, 4) == (5, 4)

    run(story(), seed=1)


def test_a_broker_that_comes_with_another_disk_has_it_from_that_start_on() -> None:
    async def start(ensemble: SimZooKeeper, disk_id: str) -> tuple[int, int]:
        store = await ensemble.connect("broker")
        await register_broker(store, BrokerIdentity(1, "here", 9092, None, disk_id), SimClock())
        found = znodes.decode_registration(1, (await store.get(znodes.broker_path(1)))[0])
        await store.close()
        return found.epoch, found.disk_since

    async def story() -> None:
        ensemble = SimZooKeeper()
        store = await ensemble.connect("founder")
        await found_cluster(store, SeededEntropy(1))
        starts = [await start(ensemble, disk_id) for disk_id in ("a", "a", "b", "b", "a")]
        assert starts == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4)]

    run(story(), seed=0)
