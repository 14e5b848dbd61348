"""Replies leave at the end of the event loop's turn: those of all connections whose requests it found, one by one.

The first of them wakes a client that sleeps, which takes the kernel longer than everything else about a small request;
the clients of the others are awake by then, for they often share its process or its core. Ten clients with small
requests get half as much again out of a broker that way. A client that was also the last to be answered is probably
alone: its reply need not wait for others, and leaves at once; and if it was a brief one, the loop stays awake for the
next (vigil.py).

Owned by the listener; called by its connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from headrace.server.vigil import Vigil

logger = logging.getLogger(__name__)

_TOGETHER = 8  # connections whose replies leave together: more of them have left the processor's caches by then


class Sender(Protocol):
    def flush(self) -> None:
        """Send what there is to send."""
        ...


class Turns:
    __slots__ = ("_last", "_owing", "_vigil")

    def __init__(self, vigil: Vigil | None = None) -> None:
        self._vigil = vigil
        self._owing: list[Sender] = []
        self._last: Sender | None = None

    def owes(self, sender: Sender, *, brief: bool = False) -> None:
        """`sender` has replies that leave at the end of this turn, at the latest. A `brief` one is all that a client
        waits for which sends little at a time."""
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
    except Exception:  # the trouble of one connection is not that of the others
        logger.exception("replies could not be sent")
