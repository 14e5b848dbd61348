"""A broker's standing in its cluster: registered, following, a candidate for controller; and so again when a session
was lost.

Used by the broker in a cluster; a broker that stands alone has a session that never ends and needs none of this. What
holds: while a session lasts, what is stored is followed. When it is lost, the broker lays down everything it leads,
waits for as long as it takes to open another session, and registers anew: the process goes on, and so do the data it
has, which the registration says (`kept_epoch`). It leads again what it is elected for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.cluster.contact import Contact
from headrace.cluster.following import Following
from headrace.cluster.membership import BrokerIdentity, new_token, register_broker, unregister_broker
from headrace.cluster.sessions import Sessions
from headrace.cluster.store import ConnectionLost, SessionLost, SessionState, StoreError
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

logger = logging.getLogger(__name__)

LEAVE_S = 5.0  # how long a clean stop waits until others lead


class Standing:
    """`follow`, then `register`, then `run` for as long as the broker lives; `leave` before a clean stop.

    The first two may be cut short by SessionLost or ConnectionLost; `register` then begins anew by itself.
    """

    def __init__(
        self,
        sessions: Sessions,
        view: ClusterView,
        clock: Clock,
        entropy: Entropy,
        session_timeout_s: float,
        campaign: Callable[[], Awaitable[None]],
    ) -> None:
        """`campaign` stands for controller, and is one if elected, for as long as the session lasts."""
        self.epoch = -1
        self._sessions = sessions
        self._view = view
        self._clock = clock
        self._entropy = entropy
        self._session_timeout_s = session_timeout_s
        self._campaign = campaign
        self._identity: BrokerIdentity | None = None
        self._kept_epoch: int | None = None  # the last epoch of which everything is still here
        self._leaving = False
        self._registered: list[Callable[[int], None]] = []
        self._lost_listeners: list[Callable[[], None]] = []
        self._lost = asyncio.Event()
        self._connected = True
        self._contact = Contact(sessions, clock)
        sessions.on_session(self._on_session)

    def on_registered(self, listener: Callable[[int], None]) -> None:
        """`listener` is told the broker's epoch, at once when there is one."""
        self._registered.append(listener)

    def on_lost(self, listener: Callable[[], None]) -> None:
        """`listener` is called when the session is over: nothing that this broker led is its own any more."""
        self._lost_listeners.append(listener)

    async def follow(self) -> None:
        """Returns when the view shows what is stored."""
        self._following = Following(self._sessions.current, self._view)
        await self._following.begin()

    async def register(self, identity: BrokerIdentity, kept_epoch: int | None) -> None:
        """Returns when the view shows this broker. Failure if its id is taken."""
        self._identity, self._kept_epoch = identity, kept_epoch
        try:
            await self._register(identity)
        except (SessionLost, ConnectionLost):
            await self._return(identity)

    async def _register(self, identity: BrokerIdentity) -> None:
        self.epoch = self._kept_epoch = await register_broker(
            self._sessions,
            identity,
            self._clock,
            token=new_token(self._entropy),
            kept_epoch=self._kept_epoch,
            contact=self._contact,
            patience_s=2 * self._session_timeout_s,
        )
        for listener in self._registered:
            listener(self.epoch)
        await self._following.look_at_brokers()  # whoever asks this broker now is told of a cluster that it belongs to

    async def run(self) -> None:
        assert self._identity is not None, "register first"
        while True:
            try:
                async with asyncio.TaskGroup() as session:
                    session.create_task(self._following.run())
                    session.create_task(_run(self._campaign))
                    session.create_task(self._until_lost())
            except* (SessionLost, ConnectionLost):
                logger.warning("the session with the cluster's store is lost; opening another one")
            for listener in self._lost_listeners:
                listener()
            await self._return(self._identity)

    async def leave(self) -> None:
        """Tell the cluster that this broker goes, and wait a little until others lead what it led."""
        self._leaving = True
        leaving = asyncio.ensure_future(self._leave())
        timer = self._clock.call_later(LEAVE_S if self._connected else 0, leaving.cancel)
        try:
            await asyncio.gather(leaving, return_exceptions=True)
        finally:
            timer.cancel()

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        self._connected = state is SessionState.CONNECTED
        if state is SessionState.LOST:
            self._lost.set()
        elif state is SessionState.SUSPENDED:
            logger.warning("the cluster's store cannot be reached")
        else:
            logger.info("connected to the cluster's store")

    async def _until_lost(self) -> None:
        await self._lost.wait()
        raise SessionLost("/", "the session is over")

    async def _return(self, identity: BrokerIdentity) -> None:
        if self._leaving:
            await asyncio.Event().wait()  # it has said goodbye and does not come back; `stop` ends this
        while True:
            self._lost.clear()
            await self._sessions.begin()
            try:
                await self.follow()
                await self._register(identity)
            except (SessionLost, ConnectionLost):
                continue
            return

    async def _leave(self) -> None:
        assert self._identity is not None
        broker_id = self._identity.broker_id
        changed = asyncio.Event()
        self._view.subscribe(lambda old, new: changed.set())
        try:
            await unregister_broker(self._sessions, broker_id)
        except StoreError:
            return
        while _leads_what_others_could(self._view.image, broker_id):
            changed.clear()
            await changed.wait()


async def _run(campaign: Callable[[], Awaitable[None]]) -> None:
    await campaign()


def _leads_what_others_could(image: ClusterImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id and any(other != broker_id and other in image.brokers for other in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )
