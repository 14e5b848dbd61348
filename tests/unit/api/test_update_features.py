"""Levels of features, asked for over the wire."""

from __future__ import annotations

import asyncio

import pytest

from headrace.api.table import FEATURES
from headrace.api.update_features import UpdateFeatures
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.admin_room import ask

UPDATE_FEATURES = 57


@pytest.mark.parametrize("version", range(3))
def test_only_levels_that_are_in_force_are_granted(version: int) -> None:
    async def update(**levels: int) -> Message:
        updates = [Message(feature=name.replace("_", "."), max_version_level=level) for name, level in levels.items()]
        return await ask(UpdateFeatures(FEATURES), UPDATE_FEATURES, version, feature_updates=updates)

    async def story() -> None:
        granted = await update(group_version=1, transaction_version=2)
        assert (granted.error_code, granted.error_message) == (0, None)
        if version < 2:
            assert [(r.feature, r.error_code) for r in granted.results] == [
                ("group.version", 0),
                ("transaction.version", 0),
            ]
        for levels in ({"group_version": 1, "made_up": 1}, {"group_version": 0}, {"transaction_version": 3}):
            refused = await update(**levels)
            assert refused.error_code == ErrorCode.invalid_update_version
            assert refused.error_message

    asyncio.run(story())
