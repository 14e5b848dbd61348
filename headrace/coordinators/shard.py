"""What a coordinator shard is: the state of one partition of an internal topic, and the rules that change it.

A shard is a plain object without clock, disk or event loop. It has two kinds of state:

- Durable state is derived from the journal. Only `apply` changes it: when the runtime has written a record, and when
  the journal is read again after a restart or a change of leader.
- Live state may be lost in a crash: waiting requests, members that have just joined. Only `decide` changes it.

`decide` takes a command and returns an `Outcome`: records to write, the reply, timers, and replies to requests that
waited. It never writes anything itself, so a test passes three commands and compares lists. If the records of an
outcome cannot be written, the runtime discards the shard and reads the journal again: memory is never ahead of the log.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from msgspec import Struct, field

from headrace.model.journal_entry import NO_PRODUCER_ID

Record = tuple[bytes, bytes | None]


class Wait(Struct, frozen=True):
    """The reply to a command that is answered later, by an outcome that names this ticket."""

    ticket: int


class Alarm(Struct, frozen=True):
    """After `delay_ms`, `command` is decided like any other."""

    delay_ms: int
    command: Any


class Outcome(Struct):
    """The result of one command. Its replies are sent only once its records are committed."""

    records: list[Record] = field(default_factory=list)
    reply: Any = None
    timers: dict[Hashable, Alarm | None] = field(default_factory=dict)  # by name; None cancels
    instructions: list[tuple[int, Any]] = field(default_factory=list)  # (ticket, reply): wake who waited
    follow_ups: list[Any] = field(default_factory=list)  # work outside the shard, once the records are committed
    producer: tuple[int, int] | None = None  # the records belong to the transaction of this producer id and epoch

    def write(self, record: Record) -> None:
        self.records.append(record)

    def set_timer(self, name: Hashable, delay_ms: int, command: Any) -> None:
        self.timers[name] = Alarm(delay_ms, command)

    def cancel_timer(self, name: Hashable) -> None:
        self.timers[name] = None

    def wake(self, ticket: int, reply: Any) -> None:
        self.instructions.append((ticket, reply))


class Shard(Protocol):
    def decide(self, command: Any, now_ms: int) -> Outcome: ...

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record of the journal. One of a transaction takes effect when that has ended, see `apply_end`."""
        ...

    def apply_end(self, producer_id: int, commit: bool) -> None:
        """Applies the end of a producer's transaction, as the journal says."""
        ...

    def loaded(self, now_ms: int) -> Outcome:
        """The whole journal has been applied: sets the timers."""
        ...
