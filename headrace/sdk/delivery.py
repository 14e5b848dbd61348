"""Delivery guarantees, as settings of librdkafka.

Pure tables, read by settings.py. `promised` settings are what the guarantee rests on: an override of one is rejected.
`preferred` settings are defaults of this delivery, and a program may change them.

at-most-once: messages may be lost, there are no duplicates.
    Producer: acks=0, no retries. A message is sent once, and the client does not wait for an answer.
    Consumer: the offset is committed *before* messages are handed to the program. A crash loses the messages of a batch
    that were not processed yet.

at-least-once: no acknowledged message is lost, duplicates are possible.
    Producer: acks=all and retries until message.timeout.ms, idempotent, so retries of the client cause neither
    duplicates nor reordering. A duplicate arises only when a program crashes before the acknowledgement and sends the
    message again.
    Consumer: the offset is committed *after* the program is done with a message. After a crash in between it is
    redelivered.

exactly-once: every input message affects the output once, also when program or broker crash.
    Producer: transactions (needs a transactional id, unique per running producer and kept over restarts: by it the
    broker recognizes a restarted producer and fences the old one). Implies acks=all and idempotence.
    Consumer: read_committed, so records of aborted and open transactions are skipped; it commits no offsets itself,
    because they belong to the producer's transaction: `exactly_once` or `Producer.transaction(consumer)`.

All three read only committed transactions unless isolation_level says otherwise: with read_uncommitted, a transaction
that was aborted and retried would show its messages twice.
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
    "at-least-once": Terms(  # the SDK stores offsets of acknowledged messages, and librdkafka commits them periodically
        {"enable.auto.commit": True, "enable.auto.offset.store": False},
        {"isolation.level": "read_committed", "auto.commit.interval.ms": 1000},
    ),
    "exactly-once": Terms(
        {"enable.auto.commit": False, "enable.auto.offset.store": False, "isolation.level": "read_committed"}, {}
    ),
}
