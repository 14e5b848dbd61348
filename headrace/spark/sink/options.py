"""The options of the sink, parsed from the strings that Spark passes. Names are those of Spark's Kafka connector.

Parsed on the driver, and sent to the tasks with the writer. An option that has no effect is rejected with one line,
above all an unknown producer setting (`kafka.*`): a user would believe that a silently ignored setting works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model.failure import Failure
from headrace.spark.option_values import whole_number
from headrace.spark.sink.names import check_sink_name
from headrace.wire import compression

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_SERIALIZERS = ("kafka.key.serializer", "kafka.value.serializer")
_BATCHING_BY_SIZE = ("kafka.linger.ms", "kafka.buffer.memory", "kafka.max.block.ms")  # batches are not delayed here
_FIXED = {
    "kafka.enable.idempotence": ("true",),
    "kafka.acks": ("all", "-1"),
    "kafka.max.in.flight.requests.per.connection": ("1", "2", "3", "4", "5"),
}
# With headers and framing, a batch of this size stays below the default max.message.bytes of topics.
_BATCH_BYTES = 512 * 1024
_REQUEST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: tuple[str, ...]
    topic: str = ""  # "": each row names its own
    delivery: str = EXACTLY_ONCE
    sink_name: str = "sink"
    client_id: str = "headrace-spark-sink"
    codec: int = compression.NONE
    batch_bytes: int = _BATCH_BYTES
    request_bytes: int = _REQUEST_BYTES
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = 900_000  # the default transaction.max.timeout.ms of brokers

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def parse_options(options: Mapping[str, str]) -> SinkOptions:
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unheeded(given)
    servers = given.get("kafka.bootstrap.servers", "")
    if not servers.strip():
        raise Failure("option kafka.bootstrap.servers is missing: name a broker, such as 127.0.0.1:9092")
    delivery = given.get("delivery", EXACTLY_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise Failure(f"option delivery is {delivery!r}: write {EXACTLY_ONCE} (the default) or {AT_LEAST_ONCE}")
    codec = given.get("kafka.compression.type", "none")
    if codec not in compression.NAMES:
        raise Failure(f"option kafka.compression.type is {codec!r}: write one of {', '.join(compression.NAMES)}")
    usual = SinkOptions(())

    def number(name: str, default: int) -> int:
        return whole_number(name, given[name], 1) if name in given else default

    return SinkOptions(
        bootstrap=tuple(server.strip() for server in servers.split(",") if server.strip()),
        topic=given.get("topic", ""),
        delivery=delivery,
        sink_name=check_sink_name(given.get("sinkname", usual.sink_name)),
        client_id=given.get("kafka.client.id", usual.client_id),
        codec=compression.NAMES.index(codec),
        batch_bytes=number("kafka.batch.size", usual.batch_bytes),
        request_bytes=number("kafka.max.request.size", usual.request_bytes),
        request_timeout_ms=number("kafka.request.timeout.ms", usual.request_timeout_ms),
        delivery_timeout_ms=number("kafka.delivery.timeout.ms", usual.delivery_timeout_ms),
        transaction_timeout_ms=number("kafka.transaction.timeout.ms", usual.transaction_timeout_ms),
    )


def _refuse_unheeded(given: Mapping[str, str]) -> None:
    known = {
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "kafka.compression.type",
        "kafka.batch.size",
        "kafka.max.request.size",
        "kafka.request.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.transaction.timeout.ms",
    }
    for name, value in given.items():
        if not name.startswith("kafka.") or name in known or name in _BATCHING_BY_SIZE:
            continue
        if name in _SERIALIZERS:
            raise Failure(f"option {name} has no effect: keys and values are bytes or text, cast the columns instead")
        if name == "kafka.transactional.id":
            raise Failure(f"option {name} cannot be set: each task has its own transactional id, see option sinkName")
        allowed = _FIXED.get(name)
        if allowed is None:
            raise Failure(f"the sink has no option {name}: remove it, or see docs/spark-sink.md")
        if value.lower() not in allowed:
            raise Failure(f"option {name} is {value!r}, but the sink supports only {' or '.join(allowed)}")
