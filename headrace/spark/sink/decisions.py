"""Decisions of the sink: which transactions of a batch count. What they say, and how they stand in the decision log.

A stream has one latest decision, kept under one key of a compacted topic:

    intent     these transactions of this batch count; they are being committed
    done       all of them are committed (or there is no batch yet: -1)

A decision of many transactions is cut into parts under keys of their own. Parts stand before the head, in one
transaction with it, and the head says how many there are: the head is the decision. Beside it a decision remembers the
run that was abandoned last, whose transactions may be aborted already: that run can decide nothing any more.

Pure. Written and read by decision_log.py. Invariant: batches of a stream are decided in rising order, each once,
and never undone; so what belongs to a decided batch and is not in its decision will never count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.model.failure import Failure
from headrace.spark.sink.names import Stream, TaskAttempt

NO_BATCH = -1
MEMBERS_IN_A_PART = 8_000  # some 300 KB, well below what a topic takes as one record
_FORMAT = 1


class Member(NamedTuple):
    """A transaction that counts: of which task, and what its producer was."""

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
    abandoned: str = ""  # the run that was given up last
    parts: int = field(default=0, compare=False)  # how many the log holds beside the head

    def covers(self, attempt: TaskAttempt) -> bool:
        """Whether this attempt's transaction is one of those that count."""
        wanted = (attempt.partition, attempt.attempt)
        return (attempt.batch, attempt.run) == (self.batch, self.run) and any(
            (member.partition, member.attempt) == wanted for member in self.members
        )

    def finished(self) -> Decision:
        return replace(self, members=(), done=True)

    def attempt_of(self, member: Member) -> TaskAttempt:
        return TaskAttempt(self.stream, self.batch, member.partition, self.run, member.attempt)


def entries_of(decision: Decision, parts_before: int) -> list[tuple[bytes, bytes | None]]:
    """Keys and values in the order of writing, the head last. Parts that the log has and nobody needs are deleted."""
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
    """Nobody will ask for this stream again: a plain write that is done."""
    numbers = range(1, decision.parts + 1)
    return [*((_part_key(decision.stream, number), None) for number in numbers), (decision.stream.key.encode(), None)]


def decision_of(stream: Stream, latest: Mapping[bytes, bytes]) -> Decision:
    """The decision that the latest entries of the log say; one of no batch if there is none."""
    value = latest.get(stream.key.encode())
    if value is None:
        return Decision(stream)
    head = json.loads(value)
    if head["format"] != _FORMAT:
        raise Failure(f"the decision log has format {head['format']} for {stream}: use the headrace that wrote it")
    members = [Member(*found) for found in head["transactions"]]
    for number in range(1, head["parts"] + 1):
        part = json.loads(latest[_part_key(stream, number)])
        if (part["batch"], part["run"]) != (head["batch"], head["run"]):
            raise Failure(f"part {number} of the decision on batch {head['batch']} of {stream} is of another decision")
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
