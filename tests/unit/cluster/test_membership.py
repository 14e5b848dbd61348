"""How a cluster begins, and how a broker joins it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.cluster.membership import found_cluster, register_broker
from headrace.cluster.setting_changes import SettingChange, SettingOperation
from headrace.model.failure import Failure
from headrace.world.entropy import SeededEntropy
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


def test_two_brokers_cannot_have_one_id(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        with pytest.raises(Failure, match="id 1 is already running"):
            await register_broker(office.store, 1, "elsewhere", 9092, None)
        assert await register_broker(office.store, 2, "elsewhere", 9092, "r") == 0

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
