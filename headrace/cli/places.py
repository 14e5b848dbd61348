"""Parses places in a log (`start`, `end`, `offset:42`, `time:-2h`, `shift:-5`) and resolves them to offsets.

Called by `consume --from` and `group seek --to`, so both accept the same words. Invariant: a resolved offset is clamped
between the start and the end of its log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from headrace.cli.moments import parse_moment
from headrace.cli.topics import Partition, end_offsets, offsets_at, start_offsets
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient


@dataclass(frozen=True)
class LogPosition:
    """`kind` is start, end, offset, time or shift; `number` is an offset, epoch milliseconds or a difference."""

    kind: str
    number: int = 0


def parse_place(text: str, now: int, shift_allowed: bool = False) -> LogPosition:
    kind, colon, argument = text.partition(":")
    if kind in ("start", "end") and not colon:
        return LogPosition(kind)
    if kind == "time" and argument:
        return LogPosition("time", parse_moment(argument, now))
    if kind == "offset" or (kind == "shift" and shift_allowed):
        try:
            return LogPosition(kind, int(argument))
        except ValueError:
            pass
    words = "start, end, offset:N, time:T" + (" or shift:N" if shift_allowed else "")
    raise typer.BadParameter(f"{text!r} is not a place in a log: write {words}")


def resolve_place(
    admin: "AdminClient",
    place: LogPosition,
    partitions: Iterable[Partition],
    current: Mapping[Partition, int] | None = None,
) -> dict[Partition, int]:
    """The offset of the place in each partition. A negative offset counts back from the end; a shift is from
    `current`."""
    asked = list(partitions)
    starts = start_offsets(admin, asked)
    ends = end_offsets(admin, asked)
    if place.kind == "start":
        return starts
    if place.kind == "end":
        return ends
    if place.kind == "time":
        wanted = offsets_at(admin, asked, place.number)
    elif place.kind == "shift":
        wanted = {partition: position_of(partition, current) + place.number for partition in asked}
    else:
        wanted = {
            partition: place.number if place.number >= 0 else ends[partition] + place.number for partition in asked
        }
    return {partition: min(max(wanted[partition], starts[partition]), ends[partition]) for partition in asked}


def position_of(partition: Partition, current: Mapping[Partition, int] | None) -> int:
    if current is None or partition not in current:
        topic, number = partition
        raise Failure(
            f"the group has no committed offset in {topic} partition {number} to shift from: "
            "seek to start, end, offset:N or time:T instead"
        )
    return current[partition]
