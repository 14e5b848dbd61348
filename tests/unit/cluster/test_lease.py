"""A broker that may have been replaced without knowing it does not believe in its leaderships."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace.cluster.lease import Lease
from headrace.cluster.sessions import Sessions
from headrace.cluster.store import SessionState
from headrace.world.clock import AdvanceableClock
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper


def test_the_lease_ends_before_the_session_can_and_comes_back_with_the_connection() -> None:
    async def story() -> None:
        ensemble, clock = SimZooKeeper(session_timeout_s=3.0), SimClock()
        sessions = Sessions(lambda: ensemble.connect("broker"))
        await sessions.begin()
        lease = Lease(sessions, clock, 3.0)
        beating = asyncio.create_task(lease.run())
        await clock.sleep(10)
        assert lease.holds()
        ensemble.stop()
        ensemble.break_connection("broker")
        await clock.sleep(1.4)
        assert lease.holds()
        await clock.sleep(0.7)
        assert not lease.holds()
        ensemble.start()
        await clock.sleep(1)
        assert lease.holds()
        ensemble.expire("broker")
        await clock.sleep(5)
        assert not lease.holds()
        await sessions.begin()
        await clock.sleep(1)
        assert lease.holds()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating

    run(story(), seed=1)


def test_a_line_that_is_cut_without_a_word_ends_the_lease_before_the_session() -> None:
    """The client notices it only when it has heard nothing for a while."""

    async def story() -> None:
        ensemble, clock = SimZooKeeper(session_timeout_s=3.0), SimClock()
        sessions = Sessions(lambda: ensemble.connect("broker"))
        await sessions.begin()
        states: list[SessionState] = []
        sessions.on_session(states.append)
        lease = Lease(sessions, clock, 3.0)
        beating = asyncio.create_task(lease.run())
        await clock.sleep(10)
        ensemble.cut("broker")
        await clock.sleep(2.0)
        assert not lease.holds()
        assert SessionState.LOST not in states
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating

    run(story(), seed=1)


def test_a_server_that_is_cut_off_from_the_others_does_not_prolong_the_lease() -> None:
    """It answers reads as before, also when the others have ended the session and other leaders are elected."""

    async def story() -> None:
        ensemble, clock = SimZooKeeper(session_timeout_s=3.0), SimClock()
        sessions = Sessions(lambda: ensemble.connect("broker"))
        await sessions.begin()
        await sessions.create("/here", ephemeral=True)
        states: list[SessionState] = []
        sessions.on_session(states.append)
        lease = Lease(sessions, clock, 3.0)
        beating = asyncio.create_task(lease.run())
        await clock.sleep(10)
        assert lease.holds()
        ensemble.strand("broker")
        while ensemble.peek("/here") is not None:
            held = lease.holds()
            await clock.sleep(0.01)
        assert not held, "it has to end before the session can"
        assert not lease.holds()
        assert SessionState.LOST not in states
        ensemble.mend("broker")
        await clock.sleep(1)
        assert states[-1] is SessionState.LOST
        assert not lease.holds()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating

    run(story(), seed=1)


def test_after_a_stand_still_the_lease_holds_only_when_the_store_has_answered() -> None:
    async def story() -> None:
        ensemble, clock = SimZooKeeper(session_timeout_s=3.0), AdvanceableClock()
        sessions = Sessions(lambda: ensemble.connect("broker"))
        await sessions.begin()
        lease = Lease(sessions, clock, 3.0)
        assert lease.holds()
        clock.advance(3.0)
        assert not lease.holds()
        beating = asyncio.create_task(lease.run())
        for _ in range(50):
            await asyncio.sleep(0.01)
            clock.advance(0.5)
            if lease.holds():
                break
        assert lease.holds()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating

    asyncio.run(story())
