"""What a client is tuned for, as settings of librdkafka.

Pure tables, read by settings.py; each setting may be overridden by name.

throughput: messages are collected for up to 50 ms and sent in large compressed batches; a long queue keeps the program
    from waiting. A consumer fetches and prefetches large amounts.
latency: a message is sent at once, and the queue is short: under load `send` blocks, instead of queueing a message
    behind a thousand others, so the latency of a queued message stays bounded. A fetch is answered as soon as
    there is one message.
balanced: messages are collected for 5 ms, enough for batches, and hardly noticed.
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
