"""The consumer's ledger: which messages were fetched, handed out and acknowledged, and what may be committed.

Sans-IO: the consumer passes in messages, acknowledgements and the time. Shared by the blocking and the asyncio
consumer. Guarded by one lock, because acknowledgements may come from any thread.

Invariant: an offset becomes committable only when every message of its partition handed out below it has been
acknowledged, in whatever order. When a partition is forgotten (revoked, or after a seek) all its entries are dropped,
and late acknowledgements for it are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock

from headrace.model.tag_filter import TagFilter
from headrace.sdk.errors import BadSetting
from headrace.sdk.message import Message
from headrace.sdk.pace import Pace
from headrace.sdk.tag_view import tags_of

Partition = tuple[str, int]  # topic and partition

NO_LIMIT = 1 << 62


class _PartitionLedger:
    """One partition: the offsets in flight, oldest first, and which of them were acknowledged out of order."""

    def __init__(self, position: int) -> None:
        self.open: deque[int] = deque()
        self.done_early: set[int] = set()
        self.position = position  # the offset after the last one handed out
        self.settled = position  # committed up to here, or passed on to be committed
        self.sought = False  # the program chose the position by a seek, which is committed too

    @property
    def committable(self) -> int:
        return self.open[0] if self.open else self.position

    def hand_out(self, offset: int) -> None:
        self.open.append(offset)
        self.position = offset + 1

    def acknowledge(self, offset: int) -> int:
        """How many messages are no longer in flight."""
        if not self.open or offset < self.open[0] or offset >= self.position or offset in self.done_early:
            return 0
        self.done_early.add(offset)
        while self.open and self.open[0] in self.done_early:
            self.done_early.remove(self.open.popleft())
        return 1

    def acknowledge_all(self) -> int:
        count = len(self.open) - len(self.done_early)
        self.open.clear()
        self.done_early.clear()
        return count


class Ledger:
    def __init__(self, auto_ack: bool, in_flight_limit: int | None = None, pace: Pace | None = None) -> None:
        if in_flight_limit is not None and in_flight_limit < 1:
            raise BadSetting(f"in_flight_limit={in_flight_limit} would block every message: give 1 or more")
        self._auto_ack = auto_ack
        self._limit = NO_LIMIT if in_flight_limit is None else in_flight_limit
        self._pace = pace
        self._lock = Lock()
        self._fetched: deque[Message] = deque()
        self._held: dict[Partition, list[Message]] = {}  # of paused partitions
        self._lines: dict[Partition, _PartitionLedger] = {}
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Messages handed out and not yet acknowledged."""
        return self._in_flight

    @property
    def has_fetched(self) -> bool:
        return bool(self._fetched)

    def asked_for_more(self) -> None:
        """The program asks for more messages: with auto_ack, this acknowledges all it has."""
        if self._auto_ack:
            self.acknowledge_all()

    def room(self, now_s: float) -> int:
        """How many messages may be handed out now."""
        free = self._limit - self._in_flight
        return min(free, self._pace.permits(now_s)) if self._pace else free

    def wait_s(self, now_s: float) -> float:
        """Seconds until the rate limit allows a message; 0 also when only the in-flight limit holds messages back."""
        return self._pace.wait_s(now_s) if self._pace else 0.0

    def fetched(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                held = self._held.get((message.topic, message.partition))
                (self._fetched if held is None else held).append(message)

    def pass_over(self, messages: Iterable[Message], filter_: TagFilter) -> list[Message]:
        """Those with matching tags. Of the others, those that no message waits before count as progress."""
        kept = []
        with self._lock:
            waiting = {(each.topic, each.partition) for each in self._fetched} | self._held.keys()
            for message in messages:
                place = (message.topic, message.partition)
                if filter_.accepts(tags_of(message.headers)):
                    kept.append(message)
                    waiting.add(place)
                elif place not in waiting:
                    line = self._lines.setdefault(place, _PartitionLedger(message.offset))
                    line.position = message.offset + 1
        return kept

    def reached(self, positions: Mapping[Partition, int]) -> None:
        """There was nothing for the program before these offsets: the broker has left it out. That is progress."""
        with self._lock:
            waiting = {(each.topic, each.partition) for each in self._fetched} | self._held.keys()
            for place, offset in positions.items():
                line = self._lines.get(place)
                if place in waiting:
                    continue
                if line is None:
                    line = self._lines[place] = _PartitionLedger(offset)
                    line.sought = True
                elif line.position < offset:
                    line.position = offset

    def take(self, wanted: int, now_s: float) -> list[Message]:
        """Hand out up to `wanted` messages, within the limits."""
        with self._lock:
            count = max(0, min(wanted, self.room(now_s), len(self._fetched)))
            taken = [self._fetched.popleft() for _ in range(count)]
            for message in taken:
                place = (message.topic, message.partition)
                line = self._lines.get(place)
                if line is None:
                    line = self._lines[place] = _PartitionLedger(message.offset)
                line.hand_out(message.offset)
            self._in_flight += count
            if self._pace:
                self._pace.spend(count, now_s)
            return taken

    def acknowledge(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                line = self._lines.get((message.topic, message.partition))
                if line is not None:
                    self._in_flight -= line.acknowledge(message.offset)

    def acknowledge_all(self) -> None:
        with self._lock:
            self._in_flight -= sum(line.acknowledge_all() for line in self._lines.values())

    def committable(self) -> dict[Partition, int]:
        """The committable offset of each partition that advanced since it was last settled."""
        with self._lock:
            return {
                place: line.committable
                for place, line in self._lines.items()
                if line.sought or line.committable > line.settled
            }

    def progress(self) -> dict[Partition, int]:
        """The committable offset of every partition."""
        with self._lock:
            return {place: line.committable for place, line in self._lines.items()}

    def settle(self, offsets: Mapping[Partition, int]) -> None:
        """These offsets are committed, or passed on to be committed."""
        with self._lock:
            for place, offset in offsets.items():
                line = self._lines.get(place)
                if line is not None:
                    line.settled, line.sought = offset, False

    def has_unsettled(self, places: Iterable[Partition]) -> bool:
        """Whether messages of these partitions were handed out whose offsets are not settled."""
        lines = (self._lines.get(place) for place in places)
        return any(line is not None and line.position > line.settled for line in lines)

    def restart_points(self) -> dict[Partition, int]:
        """Where to rewind each partition to, so that everything not settled is redelivered."""
        with self._lock:
            points = {place: line.settled for place, line in self._lines.items()}
            for message in (*self._fetched, *(each for held in self._held.values() for each in held)):
                points.setdefault((message.topic, message.partition), message.offset)
            return points

    def forget(self, places: Iterable[Partition]) -> None:
        """Drop all entries of these partitions: they were revoked, or a seek follows."""
        with self._lock:
            gone = set(places)
            self._fetched = deque(each for each in self._fetched if (each.topic, each.partition) not in gone)
            for place in gone:
                self._held.pop(place, None)
                line = self._lines.pop(place, None)
                if line is not None:
                    self._in_flight -= line.acknowledge_all()

    def move(self, places: Mapping[Partition, int]) -> None:
        """The program has sought to these offsets, which counts as progress to be committed."""
        self.forget(places)
        with self._lock:
            for place, offset in places.items():
                line = self._lines[place] = _PartitionLedger(offset)
                line.sought = True

    def hold(self, places: Iterable[Partition]) -> None:
        """Hold back fetched messages of these partitions until `release`."""
        with self._lock:
            for place in places:
                self._held.setdefault(place, [])
            rest: list[Message] = []
            for message in self._fetched:
                held = self._held.get((message.topic, message.partition))
                (rest if held is None else held).append(message)
            self._fetched = deque(rest)

    def release(self, places: Iterable[Partition]) -> None:
        with self._lock:
            for place in places:
                self._fetched.extend(self._held.pop(place, ()))
