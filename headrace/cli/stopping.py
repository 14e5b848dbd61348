"""A clean stop on Ctrl-C and SIGTERM for long-running commands.

Called by produce and consume, whose loops check the flag between two steps, so that a signal never interrupts a record
or a commit. Invariant: only the first signal sets the flag; a second one ends the process at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """The stop flag: `signal_number` is the signal received, None if there was none."""

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
