"""What the headers of a produced record ask for: a delay, a schedule, a cancel or a move.

Pure, and independent of the time and of what is pending, so that it can be done off the event loop (opening.py). A
header that cannot be understood, or that contradicts another, refuses the batch: INVALID_RECORD names the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from headrace.model import delays
from headrace.model.cron import DEFAULT_ZONE, next_due_ms
from headrace.wire.batches import Buffer
from headrace.wire.errors import InvalidRecords
from headrace.wire.record_headers import Marked, marked_records

NAMES = tuple(
    name.encode()
    for name in (
        delays.DELAY_MS_HEADER,
        delays.DELIVER_AT_HEADER,
        delays.CRON_HEADER,
        delays.CRON_TZ_HEADER,
        delays.CANCEL_HEADER,
        delays.CANCEL_KEY_HEADER,
        delays.MOVE_HEADER,
    )
)
DELAY, AT, CRON, ZONE, CANCEL, CANCEL_KEY, MOVE = NAMES
_SHOWN = 60  # bytes of a wrong value


class Verb(Enum):
    KEEP = "keep"
    CANCEL = "cancel"
    CANCEL_KEY = "cancel-key"
    MOVE = "move"


class Order(NamedTuple):
    """Of one record of a batch, which lies at [start, stop) among its records."""

    place: int
    start: int
    stop: int
    key: bytes | None
    verb: Verb
    delay_ms: int | None = None
    """When it is due, from now on; or `due_ms`; or `cron`."""
    due_ms: int | None = None
    cron: tuple[str, str] | None = None
    target: int = -1
    """The id that is cancelled or moved."""

    def due(self, now_ms: int) -> int:
        """When it is due. InvalidRecords if that is too far away, or never."""
        try:
            return self._due(now_ms)
        except ValueError as error:
            raise InvalidRecords([self.place], str(error)) from None

    def _due(self, now_ms: int) -> int:
        if self.delay_ms is not None:
            return now_ms + self.delay_ms
        if self.due_ms is not None:
            return delays.checked_due(self.due_ms, now_ms)
        assert self.cron is not None
        return next_due_ms(*self.cron, now_ms)


def orders_in(section: Buffer, count: int) -> Sequence[Order]:
    """Of the records of an opened batch that have such headers, which are few or none in the usual batch."""
    return [_order(marked) for marked in marked_records(section, count, NAMES)]


def key_digest(key: bytes | None) -> int:
    """What is remembered of the key of a record that waits; 0 without a key."""
    if key is None:
        return 0
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


def _order(marked: Marked) -> Order:
    place, start, stop, key, marks = marked
    if len(marks) == 1 and marks[0][0] == 0:  # as nearly always
        return Order(place, start, stop, key, Verb.KEEP, _read(place, DELAY, marks[0][1], delays.delay_ms))
    values: dict[bytes, bytes] = {}
    for which, value in marks:
        name = NAMES[which]
        if name in values:
            raise InvalidRecords([place], f"the header {name.decode()} stands there twice")
        if value is None:
            raise InvalidRecords([place], f"the header {name.decode()} has no value")
        values[name] = value
    _check_alone(place, values)
    if CANCEL in values:
        return Order(place, start, stop, key, Verb.CANCEL, target=_target(place, CANCEL, values[CANCEL]))
    if CANCEL_KEY in values:
        return Order(place, start, stop, values[CANCEL_KEY], Verb.CANCEL_KEY)
    delay_ms = due_ms = cron = None
    if DELAY in values:
        delay_ms = _read(place, DELAY, values[DELAY], delays.delay_ms)
    elif AT in values:
        due_ms = _read(place, AT, values[AT], delays.moment_ms)
    else:
        cron = _cron(place, values)
    if MOVE in values:
        target = _target(place, MOVE, values[MOVE])
        return Order(place, start, stop, key, Verb.MOVE, delay_ms, due_ms, target=target)
    return Order(place, start, stop, key, Verb.KEEP, delay_ms, due_ms, cron)


def _check_alone(place: int, values: dict[bytes, bytes]) -> None:
    """Which of these headers go together."""
    times = [name for name in (DELAY, AT, CRON) if name in values]
    for name in (CANCEL, CANCEL_KEY):
        if name in values and len(values) > 1:
            raise InvalidRecords([place], f"the header {name.decode()} goes with no other of headrace's delay headers")
    if len(times) > 1:
        raise InvalidRecords([place], f"{times[0].decode()} and {times[1].decode()} contradict each other")
    if ZONE in values and CRON not in values:
        raise InvalidRecords([place], f"{ZONE.decode()} means nothing without {CRON.decode()}")
    if MOVE in values and (not times or CRON in values):
        raise InvalidRecords(
            [place], f"{MOVE.decode()} needs the new time, in {DELAY.decode()} or {AT.decode()}, and takes no cron"
        )


def _target(place: int, name: bytes, value: bytes) -> int:
    return _read(place, name, value, lambda text: delays.record_id(text, name.decode()))


def _read(place: int, name: bytes, value: bytes | None, read: Callable[[str], int]) -> int:
    try:
        return read(_text(place, name, value))
    except ValueError as error:
        raise InvalidRecords([place], str(error)) from None


def _cron(place: int, values: dict[bytes, bytes]) -> tuple[str, str]:
    zone = _text(place, ZONE, values[ZONE]) if ZONE in values else DEFAULT_ZONE
    return _text(place, CRON, values[CRON]), zone


def _text(place: int, name: bytes, value: bytes | None) -> str:
    try:
        if value is not None:
            return value.decode("ascii")
    except UnicodeDecodeError:
        pass
    shown = "null" if value is None else repr(value[:_SHOWN])[1:]
    raise InvalidRecords([place], f"{name.decode()} is {shown}: it must be ASCII text")
