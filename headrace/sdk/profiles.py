"""What a client is tuned for, as settings of librdkafka.

Pure tables, read by settings.py; each setting may be overridden by name.

throughput: messages wait up to 50 ms for company, leave in large compressed batches, and a long queue lets the program
    run ahead. A consumer asks for much at once and keeps a lot ready.
latency: nothing waits. A message leaves at once, and the queue is short: under load `send` waits rather than a
    message behind a thousand others, so how long an accepted message takes stays bounded. A consumer is
    answered as soon as there is one message.
balanced: a wait of 5 ms, too short to notice, long enough for batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Profile = Literal["throughput", "latency", "balanced"]

PRODUCER_PROFILES: Mapping[str, Mapping[str, Any]] = {
    "throughput": {
        "linger.ms": 50,
        "batch.size": 1_000_000,
        "batch.num.messages": 100_000,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 500_000,
    },
    "latency": {
        "linger.ms": 0,
        "batch.size": 16_384,
        "compression.type": "none",
        "queue.buffering.max.messages": 32,
        "socket.nagle.disable": True,
    },
    "balanced": {"linger.ms": 5, "batch.size": 1_000_000, "compression.type": "lz4"},
}

CONSUMER_PROFILES: Mapping[str, Mapping[str, Any]] = {
    "throughput": {
        "fetch.min.bytes": 65_536,
        "fetch.wait.max.ms": 100,
        "max.partition.fetch.bytes": 4_194_304,
        "queued.min.messages": 500_000,
        "fetch.queue.backoff.ms": 10,
    },
    "latency": {
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 500,
        "max.partition.fetch.bytes": 1_048_576,
        "queued.min.messages": 1_000,
        "fetch.queue.backoff.ms": 1,
        "socket.nagle.disable": True,
    },
    "balanced": {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "fetch.queue.backoff.ms": 10},
}
