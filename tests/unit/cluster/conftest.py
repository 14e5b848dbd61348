"""Stories told to a controller in office."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.cluster.controller_office import Office, office

OfficeStory = Callable[[Office], Awaitable[None]]


@pytest.fixture
def in_office(tmp_path: Path) -> Callable[..., None]:
    """Runs stories one after the other, each with a fresh start of the same broker."""

    def run(*stories: OfficeStory, brokers: int = 1, partitions: int = 1) -> None:
        async def one(story: OfficeStory) -> None:
            async with office(tmp_path / "metadata.db", brokers, partitions) as opened:
                await asyncio.wait_for(story(opened), 60)

        for story in stories:
            asyncio.run(one(story))

    return run
