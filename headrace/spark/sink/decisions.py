"""Decisions of the sink, which say what transactions of a batch count, and their format in the decision log.

A stream has one latest decision, stored under one key of a compacted topic:

    intent     these transactions of this batch count; they are being committed
    done       all of them are committed (or there is no batch yet: -1)

A decision on many transactions is split into parts with their own keys. Parts are written before the head, in the same
transaction, and the head stores their number. A decision also stores the run that was abandoned last: its transactions
may be aborted already, so it must not be decided.

Pure. Written and read by decision_log.py. Invariant: batches of a stream are decided in ascending order, each once, and
never undone; so a transaction of a decided batch that is not in the decision will never count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.model.failure import Failure
from headrace.spark.sink.names import Stream, TaskAttempt

NO_BATCH = -1
MEMBERS_IN_A_PART = 8_000  # some 300 KB, well below the default max.message.bytes
_FORMAT = 1


class Member(NamedTuple):
    """A transaction that counts: its task, and the id and epoch of its producer."""

    partition: int
    attempt: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    stream: Stream
    batch: int = NO_BATCH
    run: str = ""
    topic: str = ""  # the sink's topic option, "" if each row names its own
    members: tuple[Member, ...] = ()
    done: bool = True
    abandoned: str = ""  # the run that was abandoned last
    parts: int = field(default=0, compare=False)  # how many the log has besides the head

    def covers(self, attempt: TaskAttempt) -> bool:
        """Whether this attempt's transaction counts."""
        wanted = (attempt.partition, attempt.attempt)
        return (attempt.batch, attempt.run) == (self.batch, self.run) and any(
            (member.partition, member.attempt) == wanted for member in self.members
        )

    def finished(self) -> Decision:
        return replace(self, members=(), done=True)

    def attempt_of(self, member: Member) -> TaskAttempt:
        return TaskAttempt(self.stream, self.batch, member.partition, self.run, member.attempt)


def entries_of(decision: Decision, parts_before: int) -> list[tuple[bytes, bytes | None]]:
    """Keys and values in the order of writing, the head last. Obsolete parts in the log get tombstones."""
    cut = [
        decision.members[low : low + MEMBERS_IN_A_PART] for low in range(0, len(decision.members), MEMBERS_IN_A_PART)
    ]
    entries: list[tuple[bytes, bytes | None]] = []
    for number, part in enumerate(cut[1:], 1):
        content = {"batch": decision.batch, "run": decision.run, "transactions": part}
        entries.append((_part_key(decision.stream, number), json.dumps(content).encode()))
    entries += [(_part_key(decision.stream, number), None) for number in range(max(1, len(cut)), parts_before + 1)]
    head = {
        "format": _FORMAT,
        "state": "done" if decision.done else "intent",
        "batch": decision.batch,
        "run": decision.run,
        "topic": decision.topic,
        "abandoned": decision.abandoned,
        "parts": max(0, len(cut) - 1),
        "transactions": cut[0] if cut else (),
    }
    entries.append((decision.stream.key.encode(), json.dumps(head).encode()))
    return entries


def forget(decision: Decision) -> list[tuple[bytes, bytes | None]]:
    """Tombstones for the decision of a finished batch write, which is not needed any more."""
    numbers = range(1, decision.parts + 1)
    return [*((_part_key(decision.stream, number), None) for number in numbers), (decision.stream.key.encode(), None)]


def decision_of(stream: Stream, latest: Mapping[bytes, bytes]) -> Decision:
    """The decision in the latest entries of the log; one of batch -1 if there is none."""
    value = latest.get(stream.key.encode())
    if value is None:
        return Decision(stream)
    head = json.loads(value)
    if head["format"] != _FORMAT:
        raise Failure(
            f"the decision log has format {head['format']} for {stream}: use the version of headrace that wrote it"
        )
    members = [Member(*found) for found in head["transactions"]]
    for number in range(1, head["parts"] + 1):
        part = json.loads(latest[_part_key(stream, number)])
        if (part["batch"], part["run"]) != (head["batch"], head["run"]):
            raise Failure(
                f"part {number} of the decision on batch {head['batch']} of {stream} belongs to another decision"
            )
        members += [Member(*found) for found in part["transactions"]]
    return Decision(
        stream,
        head["batch"],
        head["run"],
        head["topic"],
        tuple(members),
        head["state"] == "done",
        head["abandoned"],
        head["parts"],
    )


def streams_in(latest: Mapping[bytes, bytes]) -> list[Stream]:
    """Every stream that has a decision."""
    keys = [key.decode().split("/") for key in latest]
    return [Stream(*parts) for parts in keys if len(parts) == 2]


def _part_key(stream: Stream, number: int) -> bytes:
    return f"{stream.key}/{number}".encode()
