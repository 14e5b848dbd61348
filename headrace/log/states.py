"""The list of all derived states of a log (derived.py). A new kind of state is a file of its own, and an entry here."""

from __future__ import annotations

from collections.abc import Callable

from headrace.log.aborted_txns import AbortedTxns
from headrace.log.dedup import SeenIds
from headrace.log.derived import PLAIN, PRODUCER, DerivedState, Moment, Store, StoredBatch
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.opening import Scan
from headrace.log.producer_snapshots import ProducerSnapshots
from headrace.log.producer_state import ProducerLimits
from headrace.log.scheduled import Scheduled
from headrace.log.sealed import SealedSegments
from headrace.log.tag_index import TagIndexes
from headrace.log.thinned import Thinned

MORE: list[Callable[[], DerivedState]] = []
"""Kinds that are kept for every log and that no part of a log asks by name."""


class LogStates:
    """The states of one log. `walk` has all of them, in the order in which they are told and loaded."""

    __slots__ = (
        "aborted_txns",
        "epochs",
        "scheduled",
        "sealed",
        "seen_ids",
        "snapshots",
        "tag_indexes",
        "thinned",
        "walk",
    )

    def __init__(self, producers: ProducerLimits = ProducerLimits()) -> None:
        self.epochs = LeaderEpochs()
        self.thinned = Thinned()
        self.sealed = SealedSegments()
        self.snapshots = ProducerSnapshots(producers)
        self.aborted_txns = AbortedTxns(self.snapshots.states)
        self.seen_ids = SeenIds(self.snapshots.states)
        self.scheduled = Scheduled()
        self.tag_indexes = TagIndexes()
        self.walk: tuple[DerivedState, ...] = (
            self.epochs,
            self.thinned,
            self.sealed,
            self.aborted_txns,  # before the producers: a marker is compared with what is open
            self.snapshots,
            self.seen_ids,
            self.scheduled,
            self.tag_indexes,
            *(make() for make in MORE),
        )

    @property
    def hears_all(self) -> bool:
        """Whether another state than the producers' has to be told of batches in which nothing is special, or only that
        they are a producer's. Otherwise whoever appends such a batch may tell the producers, and nobody else."""
        return any(state.hears & (PLAIN | PRODUCER) for state in self.walk if state is not self.snapshots)

    @property
    def scans(self) -> tuple[Scan, ...]:
        """What states want to know of a client's batches before they are written."""
        return self.seen_ids.scans

    def appended(self, news: int, batch: StoredBatch) -> None:
        """Tell the states that hear of such news (derived.py)."""
        news |= PLAIN
        for state in self.walk:
            if state.hears & news:
                state.appended(batch)

    def stores(self, moment: Moment) -> list[Store]:
        """What all of them want stored on this occasion."""
        return [store for state in self.walk if (store := state.snapshot(moment)) is not None]

    def suffixes(self) -> tuple[str, ...]:
        """Of the files that belong to one segment each."""
        return tuple(suffix for state in self.walk for suffix in state.suffixes)
