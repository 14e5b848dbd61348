"""Whether a log has batches that a consumer is not given as they are (visible.py): with fewer records than offsets, or
notes.

A derived state (derived.py) of one bit, stored in the checkpoint. Once true it stays so until the log starts over:
truncation and retention may take the last such batch away, and then reading costs a little more than it must.
"""

from __future__ import annotations

from headrace.log.derived import GAPS, NOTES, DerivedState, Join, LogOnDisk, Moment, StoredBatch
from headrace.log.visible import is_thinned


class Thinned(DerivedState):
    __slots__ = ("known",)

    hears = GAPS | NOTES

    def __init__(self) -> None:
        self.known = False

    def load(self, log: LogOnDisk) -> int:
        # A checkpoint of an earlier version does not say so of a topic with deduplication.
        self.known = log.checkpoint.thinned or log.config.dedup_window_ms > 0
        return log.end_offset if self.known or log.clean else log.safe_to

    def appended(self, batch: StoredBatch) -> None:
        if not self.known:
            self.known = batch.header.is_note or is_thinned(batch.header)

    def cut_back(self, log: LogOnDisk) -> None:
        pass

    def restarted(self, log: LogOnDisk) -> None:
        self.known = False

    def joining(self, join: Join) -> None:
        self.known = True

    def snapshot(self, moment: Moment) -> None:
        moment.fields["thinned"] = self.known
