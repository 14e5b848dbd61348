"""Sends replies at the end of an event loop iteration, for all connections whose requests were read in it.

The first reply to a sleeping client wakes that client, which takes the kernel longer than all other work for a small
request; the other clients are awake by then, because they often share its process or core. With ten clients that send
small requests, this increases throughput by half. If the same client was the last to be answered as well, it is
probably alone: its reply is sent immediately, and if it was brief, the loop polls for the next request (vigil.py).

Owned by the listener; called by its connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from headrace.server.vigil import Vigil

logger = logging.getLogger(__name__)

_TOGETHER = 8  # connections whose replies are sent together: with more, the first are no longer in the CPU caches


class Sender(Protocol):
    def flush(self) -> None:
        """Send all pending replies."""
        ...


class Turns:
    __slots__ = ("_last", "_owing", "_vigil")

    def __init__(self, vigil: Vigil | None = None) -> None:
        self._vigil = vigil
        self._owing: list[Sender] = []
        self._last: Sender | None = None

    def owes(self, sender: Sender, *, brief: bool = False) -> None:
        """`sender` has replies, to be sent at the end of this turn at the latest. `brief`: this reply is all that the
        client waits for, and the client sends small requests."""
        owing = self._owing
        if sender is self._last and not owing:
            _flush(sender)
            if brief and self._vigil is not None:
                self._vigil.answered()
            return
        self._last = sender
        if not owing:
            asyncio.get_running_loop().call_soon(self._end)
        owing.append(sender)
        if len(owing) == _TOGETHER:
            self._end()

    def _end(self) -> None:
        owing, self._owing = self._owing, []
        for sender in owing:
            _flush(sender)


def _flush(sender: Sender) -> None:
    try:
        sender.flush()
    except Exception:  # an error of one connection must not affect the others
        logger.exception("replies could not be sent to a client")
