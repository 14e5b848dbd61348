"""Where a follower's log diverges from its leader's: the steps of KIP-279, as arithmetic on leader epochs. Pure.

A follower asks where its last epoch ended in the leader's log (OffsetForLeaderEpoch). Records beyond that were never
committed, so they are truncated. If the leader does not know that epoch, the follower truncates the whole epoch and
asks about the one before, until both know the same epoch. It never truncates to its high watermark, which may lag
behind what was committed (KIP-101). Called by replicas.pulling.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.log.leader_epochs import LeaderEpochs
from headrace.wire.errors import ErrorCode, KafkaError


class Step(NamedTuple):
    cut_at: int
    """Truncate the log to this offset."""
    ask_again: bool
    """Then ask the leader about the epoch that is the last one after the truncation."""


def next_step(epochs: LeaderEpochs, end_offset: int, asked: int, known: int, known_end: int) -> Step:
    """The leader was asked about epoch `asked`. It answered with `known`, the largest epoch up to that in its log, and
    its end, `known_end`. `epochs` and `end_offset` are the follower's."""
    if known < 0 or known_end < 0 or known > asked:
        raise KafkaError(
            ErrorCode.unknown_leader_epoch,
            f"asked about epoch {asked}, the leader answered epoch {known}, end {known_end}",
        )
    own = epochs.end_offset_for(min(known, epochs.latest), end_offset)
    if own is None:
        return Step(min(end_offset, known_end), False)
    own_epoch, own_end = own
    if own_epoch == known:
        return Step(min(own_end, known_end), False)
    return Step(own_end, True)
