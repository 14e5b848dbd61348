"""A broker opens its logs under the settings that are in force on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cluster.setting_changes import SettingChange, SettingOperation
from headrace.cluster.topic_changes import NewTopic
from headrace.log.logs import Logs
from headrace.model.broker_config import BrokerConfig
from headrace.model.topic_config import TopicConfig
from headrace.server.broker import Broker
from headrace.world.world import real_world


def test_logs_are_opened_under_the_brokers_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash, what is read back of a topic that syncs has to be on disk before it is served."""
    opened: list[TopicConfig | None] = []
    really = Logs.open

    async def noted(logs: Logs, wanted: Callable[[str], TopicConfig | None]) -> None:
        opened.append(wanted("orders-0"))
        await really(logs, wanted)

    async def story() -> None:
        for start in range(2):
            config = BrokerConfig(settings={"headrace.flush": "page-cache"})
            broker = Broker(real_world(), config, tmp_path, ("127.0.0.1", 0))
            await broker.start()
            if start == 0:
                await broker._controller.create_topic(NewTopic("orders"))
                for name, flush in (("", "page-cache"), ("1", "fsync")):
                    change = SettingChange(SettingOperation.SET, "headrace.flush", flush)
                    await broker._controller.alter_settings("broker", name, [change])
            await broker.stop()

    monkeypatch.setattr(Logs, "open", noted)
    asyncio.run(story())
    assert opened[0] is None
    assert opened[1] is not None
    assert opened[1].fsync
