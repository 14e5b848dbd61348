"""Offsets in transactions: whatever the order of ends, what was written last and not aborted counts."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.records import offset_record, offset_tombstone

GROUPS, PARTITIONS, PRODUCERS = ["g", "h"], [0, 1], [7, 8, 9]

spots = st.tuples(st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), spots),
        st.tuples(st.just("delete"), spots),
        st.tuples(st.just("send"), spots, st.sampled_from(PRODUCERS)),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    ),
    max_size=40,
)


def offset(number: int) -> CommittedOffset:
    return CommittedOffset(number, -1, "", 0, uuid.UUID(int=1))


class Obvious:
    """Remembers every write with its place in the journal, and whether its transaction was committed."""

    def __init__(self) -> None:
        self.writes: list[tuple[tuple[str, int], int | None, int, str]] = []  # spot, offset, producer, fate

    def counted(self) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for spot, number, _, fate in self.writes:
            if fate != "counts":
                continue
            found.pop(spot, None)
            if number is not None:
                found[spot] = number
        return found

    def open(self) -> set[tuple[str, int]]:
        """Spots that an open transaction may still change: nothing that counts was written after it."""
        last = {spot: at for at, (spot, _, _, fate) in enumerate(self.writes) if fate == "counts"}
        return {spot for at, (spot, _, _, fate) in enumerate(self.writes) if fate == "open" and at > last.get(spot, -1)}

    def end(self, producer: int, commit: bool) -> None:
        fate = "counts" if commit else "gone"
        self.writes = [
            (spot, number, whose, fate if (whose, now) == (producer, "open") else now)
            for spot, number, whose, now in self.writes
        ]


@given(steps)
def test_the_last_write_that_counts_wins(story: list[tuple[object, ...]]) -> None:
    durable, obvious = DurableGroups(), Obvious()
    for number, (what, *words) in enumerate(story):
        if what == "end":
            producer, commit = words
            durable.apply_end(producer, commit)  # type: ignore[arg-type]
            obvious.end(producer, commit)  # type: ignore[arg-type]
            continue
        group, partition = spot = words[0]  # type: ignore[misc]
        if what == "delete":
            durable.apply(*offset_tombstone(group, "t", partition))
            obvious.writes.append((spot, None, -1, "counts"))
        elif what == "commit":
            durable.apply(*offset_record(group, "t", partition, offset(number)))
            obvious.writes.append((spot, number, -1, "counts"))
        else:
            durable.apply(*offset_record(group, "t", partition, offset(number)), words[1])  # type: ignore[arg-type]
            obvious.writes.append((spot, number, words[1], "open"))  # type: ignore[arg-type]
    kept = {
        (group, partition): committed.offset
        for group, offsets in durable.offsets.items()
        for (_, partition), committed in offsets.items()
    }
    assert kept == obvious.counted()
    unstable = {(group, partition) for group in GROUPS for _, partition in durable.pending.of(group)}
    assert unstable == obvious.open()
