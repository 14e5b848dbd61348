"""How sure delivery must be, as settings of librdkafka.

Pure tables, read by settings.py. `promised` settings make the promise: an override that changes one is refused.
`preferred` ones are this delivery's defaults, and a program may change them.

at-most-once: a message may be lost, none is doubled.
    Producer: acks=0, no retries. A message is sent once and nobody waits for an answer, so a retry can never double it.
    Consumer: the offset is committed *before* messages are handed to the program. A crash in the middle of a batch
    loses the rest of that batch.

at-least-once: no acknowledged message is lost, one may come twice.
    Producer: acks=all and retries until message.timeout.ms, idempotent, so that a retry of the client is neither stored
    twice nor out of order. What still doubles is a program that crashes, does not know, and sends again.
    Consumer: the offset is committed *after* the program is done with a message. A crash in between brings it again.

exactly-once: every input has its effect in the output once, through crashes of program and broker.
    Producer: transactions (a transactional id is needed, one per running producer, the same after a restart: it is how
    the broker tells a restarted producer from a second one). Implies acks=all and idempotence.
    Consumer: read_committed, so records of aborted and open transactions are not seen; it commits no offsets itself,
    because they belong into the producer's transaction: `exactly_once` or `Producer.transaction(consumer)`.

All three read only committed transactions unless isolation_level says otherwise: what was aborted was taken back, and
a transaction that was done again would show its messages twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]


@dataclass(frozen=True, slots=True)
class Terms:
    promised: Mapping[str, Any]
    preferred: Mapping[str, Any]


_WITHOUT_LIMIT = 2_147_483_647

PRODUCER_TERMS: Mapping[str, Terms] = {
    "at-most-once": Terms({"acks": "0", "retries": 0, "enable.idempotence": False}, {"message.timeout.ms": 30_000}),
    "at-least-once": Terms(
        {"acks": "all", "retries": _WITHOUT_LIMIT, "enable.idempotence": True}, {"message.timeout.ms": 120_000}
    ),
    "exactly-once": Terms(
        {"acks": "all", "retries": _WITHOUT_LIMIT, "enable.idempotence": True}, {"transaction.timeout.ms": 60_000}
    ),
}

CONSUMER_TERMS: Mapping[str, Terms] = {
    "at-most-once": Terms(
        {"enable.auto.commit": False, "enable.auto.offset.store": False}, {"isolation.level": "read_committed"}
    ),
    "at-least-once": Terms(  # the SDK stores what the program is done with, and librdkafka commits that now and then
        {"enable.auto.commit": True, "enable.auto.offset.store": False},
        {"isolation.level": "read_committed", "auto.commit.interval.ms": 1000},
    ),
    "exactly-once": Terms(
        {"enable.auto.commit": False, "enable.auto.offset.store": False, "isolation.level": "read_committed"}, {}
    ),
}
