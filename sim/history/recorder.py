"""The recorder: the only place where events get their number and their time.

Real clients share one recorder between their threads, simulated ones call it on their loop; both pass it the clock.
Called by tests/recorded_clients.py and by simulations. Invariant: number and time are taken under one lock, so the
order of numbers is the order of times, whoever calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TextIO

from sim.history.event import FAIL, INFO, INVOKE, OK, Event


class Recorder:
    """Keeps every event and, if it has a `sink`, writes it there as a line at once.

    Open the sink line-buffered (`open(path, "w", buffering=1)`) where the process may be killed: an event must be on
    its way to the file before what it announces is done.
    """

    def __init__(self, now_ns: Callable[[], int], sink: TextIO | None = None) -> None:
        self.events: list[Event] = []
        self._now_ns = now_ns
        self._sink = sink
        self._lock = threading.Lock()
        self._begun: dict[int, Event] = {}

    def invoke(self, proc: str, f: str, **said: Any) -> int:
        """An operation begins; the result names it when it ends. Call this before anything is sent."""
        event = self._add(proc, INVOKE, f, said)
        self._begun[event.n] = event
        return event.n

    def ok(self, op: int, **said: Any) -> Event:
        return self._complete(op, OK, said)

    def fail(self, op: int, **said: Any) -> Event:
        """The operation certainly had no effect; outcomes.py says which errors prove that."""
        return self._complete(op, FAIL, said)

    def info(self, op: int, **said: Any) -> Event:
        """It is unknown whether the operation took effect."""
        return self._complete(op, INFO, said)

    def end(self, op: int, outcome: str, **said: Any) -> Event:
        return self._complete(op, outcome, said)

    def happened(self, proc: str, f: str, **said: Any) -> Event:
        """Something that takes no time, such as an assignment."""
        return self._add(proc, OK, f, said)

    def _complete(self, op: int, outcome: str, said: dict[str, Any]) -> Event:
        begun = self._begun.pop(op)
        for name in ("group", "tp", "uid", "txn"):
            if name not in said and getattr(begun, name) is not None:
                said[name] = getattr(begun, name)
        return self._add(begun.proc, outcome, begun.f, said, op)

    def _add(self, proc: str, kind: str, f: str, said: dict[str, Any], op: int | None = None) -> Event:
        with self._lock:
            event = Event(len(self.events), self._now_ns(), proc, kind, f, op, **said)
            self.events.append(event)
            if self._sink is not None:
                self._sink.write(event.line() + "\n")
        return event
