"""Folders of partitions that are no longer a broker's are set aside, and removed when they have lain for a while."""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from pathlib import Path

import pytest

from headrace.log import identity
from headrace.log.strays import Strays, is_stray
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from sim.disk import SimDisk
from sim.loop import SimClock, run

DATA = Path("/data")
ORDERS, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def image() -> ClusterImage:
    """Broker 1 has a replica of orders-0, and one of orders-1 that it is to give up; none of orders-2."""
    states = (
        PartitionImage(0, (1, 2), (1, 2), 1, 0, 0, (0, 0)),
        PartitionImage(1, (2, 3, 1), (2, 1), 2, 0, 0, (0, 0), removing=(1,)),
        PartitionImage(2, (2, 3), (2, 3), 2, 0, 0, (0, 0)),
    )
    return ClusterImage("c", 1).with_topics([TopicImage("orders", ORDERS, states, {})])


def disk_with(**folders: uuid.UUID | None) -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(DATA)
    for name, topic_id in folders.items():
        folder = DATA / name.replace("_", "-")
        disk.make_dirs(folder)
        if topic_id is not None:
            identity.save(disk, folder, topic_id)
    return disk


def set_aside(disk: SimDisk) -> list[str]:
    strays = Strays(disk, SimClock(), DATA, 60)
    strays.set_aside(partial(is_stray, image(), 1))
    return sorted(disk.list_dir(DATA))


def test_what_a_broker_has_a_replica_of_stays() -> None:
    assert set_aside(disk_with(orders_0=ORDERS, orders_1=ORDERS)) == ["orders-0", "orders-1"]


def test_what_was_moved_away_is_set_aside() -> None:
    assert set_aside(disk_with(orders_2=ORDERS)) == ["orders-2.0.stray"]


def test_what_belonged_to_a_topic_that_was_deleted_or_made_again_is_set_aside() -> None:
    assert set_aside(disk_with(gone_0=OTHER, orders_0=OTHER)) == ["gone-0.0.stray", "orders-0.0.stray"]


def test_a_partition_that_its_topic_does_not_have_is_set_aside() -> None:
    assert set_aside(disk_with(orders_7=ORDERS)) == ["orders-7.0.stray"]


def test_a_folder_that_does_not_say_whose_it_is_is_taken_by_its_name_or_left_alone() -> None:
    found = set_aside(disk_with(orders_0=None, orders_2=None, unheard_0=None))
    assert found == ["orders-0", "orders-2.0.stray", "unheard-0"]


def test_a_stray_never_takes_the_place_of_another() -> None:
    disk = disk_with(orders_2=ORDERS)
    disk.make_dirs(DATA / "orders-2.0.stray")
    assert set_aside(disk) == ["orders-2.0.stray", "orders-2.1.stray"]


def test_the_new_name_survives_a_power_cut() -> None:
    disk = disk_with(orders_2=ORDERS)
    disk.sync_dir(DATA)
    set_aside(disk)
    assert disk._folder(DATA).durable.keys() == {"orders-2.0.stray"}


def test_strays_are_removed_when_their_time_is_up_also_those_of_earlier_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        disk = disk_with(orders_0=ORDERS, orders_2=ORDERS)
        disk.make_dirs(DATA / "orders-1.0.stray")
        strays = Strays(disk, SimClock(), DATA, 60)
        with caplog.at_level(logging.INFO):
            strays.set_aside(partial(is_stray, image(), 1))
            removing = asyncio.ensure_future(strays.run())
            await asyncio.sleep(59)
            assert sorted(disk.list_dir(DATA)) == ["orders-0", "orders-1.0.stray", "orders-2.0.stray"]
            await removing
        assert disk.list_dir(DATA) == ["orders-0"]
        said = [record.getMessage() for record in caplog.records]
        assert said[0].startswith("/data/orders-2 is not this broker's any more")
        assert said[1:] == ["removed /data/orders-1.0.stray", "removed /data/orders-2.0.stray"]

    run(story(), seed=0)
