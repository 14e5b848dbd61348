"""What everybody relies on who keeps states of share partitions, run on each implementation of `ShareStates`.

A new implementation is added to `states`.
"""

import asyncio
import uuid
from collections.abc import Awaitable

import pytest
from msgspec.structs import replace

from headrace.model.share_state import ACKNOWLEDGED, NO_START, SharePartition, ShareStates, StateBatch
from headrace.wire.errors import ErrorCode, KafkaError
from tests.share_states import MemoryStates
from tests.unit.replicas.share.leader import ShardStates

PLACE = SharePartition("s", uuid.UUID(int=7), 3)
OTHER = SharePartition("s", uuid.UUID(int=7), 4)


@pytest.fixture(params=[MemoryStates, ShardStates])
def states(request: pytest.FixtureRequest) -> ShareStates:
    made: ShareStates = request.param()
    return made


async def refused(answer: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await answer
    return caught.value.code


def test_what_is_initialized_is_told_and_read(states: ShareStates) -> None:
    async def story() -> None:
        await states.initialize(PLACE, 2, NO_START)
        await states.initialize(OTHER, 2, 5)
        found = await states.summary(PLACE)
        assert (found.state_epoch, found.start_offset, found.batches) == (2, NO_START, ())
        found = await states.read(OTHER, 9)
        assert (found.state_epoch, found.leader_epoch, found.start_offset) == (2, 9, 5)

    asyncio.run(story())


def test_it_may_be_initialized_twice_and_anew_but_not_by_the_past(states: ShareStates) -> None:
    async def story() -> None:
        await states.initialize(PLACE, 2, NO_START)
        await states.initialize(PLACE, 2, NO_START)
        await states.initialize(PLACE, 4, 7)
        assert await refused(states.initialize(PLACE, 3, 0)) == ErrorCode.fenced_state_epoch
        assert (await states.summary(PLACE)).start_offset == 7

    asyncio.run(story())


def test_a_new_initialization_forgets_what_was_written_and_fences_who_wrote(states: ShareStates) -> None:
    async def story() -> None:
        await states.initialize(PLACE, 2, 0)
        known = await states.read(PLACE, 1)
        done = replace(known, start_offset=3, delivery_complete_count=1, batches=(StateBatch(5, 5, ACKNOWLEDGED, 1),))
        await states.write(PLACE, done)
        found = await states.summary(PLACE)
        assert (found.start_offset, found.delivery_complete_count, found.batches) == (3, 1, ())
        await states.initialize(PLACE, 3, 1)
        assert await refused(states.write(PLACE, done)) == ErrorCode.fenced_state_epoch
        found = await states.read(PLACE, 2)
        assert (found.start_offset, found.batches) == (1, ())

    asyncio.run(story())


def test_a_deletion_may_be_repeated_and_leaves_nothing(states: ShareStates) -> None:
    async def story() -> None:
        await states.initialize(PLACE, 2, 0)
        await states.delete(PLACE)
        await states.delete(PLACE)
        await states.delete(OTHER)
        await refused(states.summary(PLACE))
        await states.initialize(PLACE, 1, 4)
        assert (await states.summary(PLACE)).start_offset == 4

    asyncio.run(story())
