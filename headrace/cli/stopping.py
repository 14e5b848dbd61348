"""A clean end on Ctrl-C and SIGTERM for the commands that run long.

Called by produce and consume, whose loops look at the flag between two steps, so that a signal never cuts a record or
a commit in half. Invariant: only the first signal is soft; a second one ends the process as it would without us.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """The wish to stop: `signal_number` says who asked, None while nobody did."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    @property
    def asked(self) -> bool:
        return self.signal_number is not None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.signal_number = number
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        restore()
