"""Where a follower's log parts from its leader's: the steps of KIP-279, as arithmetic on leader epochs. Pure.

A follower asks where its last epoch ended in the leader's log (OffsetForLeaderEpoch). What it has beyond that, no
leader ever committed, so it goes. If the leader does not know that epoch, the follower's log has a branch that the
cluster left: it cuts the branch off and asks about the epoch before, until both know the same epoch. It never cuts to
its high watermark, which may lag behind what was committed (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.log.leader_epochs import LeaderEpochs
from headrace.wire.errors import ErrorCode, KafkaError


class Step(NamedTuple):
    cut_at: int
    """The log keeps what lies before."""
    ask_again: bool
    """The leader has to be asked about what is the last epoch then."""


def next_step(epochs: LeaderEpochs, end_offset: int, asked: int, known: int, known_end: int) -> Step:
    """The leader was asked about epoch `asked`; the largest epoch up to that which it knows is `known`, and it ended at
    `known_end`. `epochs` and `end_offset` are the follower's."""
    if known < 0 or known_end < 0 or known > asked:
        raise KafkaError(
            ErrorCode.unknown_leader_epoch, f"asked about epoch {asked}, the leader told of {known} up to {known_end}"
        )
    own = epochs.end_offset_for(min(known, epochs.latest), end_offset)
    if own is None:
        return Step(min(end_offset, known_end), False)
    own_epoch, own_end = own
    if own_epoch == known:
        return Step(min(own_end, known_end), False)
    return Step(own_end, True)
