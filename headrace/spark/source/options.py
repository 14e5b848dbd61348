"""The options of the source, parsed and checked, as one object that is sent to the executors.

Names and meanings are those of Spark's Kafka connector, so that a program migrates by changing the format's name.
Called by data_source.py before anything else happens. Invariant: an option that is unknown, contradicts another or has
an invalid value is rejected with one line that names it; no option is silently ignored, except those that tune the
JVM's consumer and have no effect here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.client.metadata import parse_address
from headrace.model.failure import Failure
from headrace.model.tag_filter import MATCHES
from headrace.model.topic_partition import TopicPartition
from headrace.spark import option_values as values
from headrace.spark.source.partition_values import partition_lists, partition_numbers
from headrace.spark.source.positions import (
    AtTime,
    Earliest,
    Latest,
    Position,
    Positions,
    position_of_offset,
)

Kind = Literal["batch", "stream"]

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ONLY_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OWN = (
    "kafka.bootstrap.servers", *_SUBSCRIPTIONS, *_STARTS, *_ENDS, *_ONLY_STREAM, "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition", "group.id", "tags", "tagsMatch",
    "archive", "kafka.group.id", "kafka.isolation.level", "kafka.check.crcs", "kafka.fetch.max.bytes",
    "kafka.client.id", "kafka.max.partition.fetch.bytes", "kafka.default.api.timeout.ms", "kafka.request.timeout.ms",
    "kafka.security.protocol",
)  # fmt: skip
# They tune the JVM consumer of Spark's connector; accepted and ignored, because migrated programs still set them.
_WITHOUT_MEANING_HERE = (
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafka.max.poll.records", "kafka.max.poll.interval.ms", "kafka.fetch.min.bytes", "kafka.fetch.max.wait.ms",
    "kafka.receive.buffer.bytes", "kafka.send.buffer.bytes", "kafka.session.timeout.ms", "kafka.metadata.max.age.ms",
    "kafka.heartbeat.interval.ms", "kafka.auto.offset.reset", "kafka.enable.auto.commit",
    "kafka.connections.max.idle.ms", "kafka.reconnect.backoff.ms", "kafka.reconnect.backoff.max.ms",
    "kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms",
)  # fmt: skip
_CANONICAL = {name.lower(): name for name in (*_OWN, *_WITHOUT_MEANING_HERE)}


@dataclass(frozen=True)
class Subscription:
    """Which topics are read: by name, by pattern, or partition by partition."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    bootstrap: tuple[str, ...]
    subscription: Subscription
    starting: Positions
    ending: Positions
    time_not_found_is_latest: bool  # a starting time after the last record: start at the end instead of failing
    fail_on_data_loss: bool
    include_headers: bool
    max_per_trigger: int | None
    min_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    read_committed: bool
    check_crcs: bool
    fetch_bytes: int
    patience_s: float
    timeout_s: float
    client_id: str
    group_id: str | None
    tags: tuple[bytes, ...]
    tags_match: str
    archive: str | None


def source_options(given: Mapping[str, str], kind: Kind) -> SourceOptions:
    """The options of a read, or a Failure that names the first invalid one."""
    options = _named(given)
    if kind == "stream":
        _refuse(options, _ENDS, "a stream has no end: remove the option, or read with spark.read")
    else:
        _refuse(options, _ONLY_STREAM, "only a stream has triggers: remove the option, or read with spark.readStream")

    def text(name: str, default: str) -> str:
        return options.get(name, default)

    def number(name: str, default: int, least: int = 1) -> int:
        return values.whole_number(name, options[name], least) if name in options else default

    def limit(name: str) -> int | None:
        return values.whole_number(name, options[name], 1) if name in options else None

    fetch_bytes = max(number("kafka.fetch.max.bytes", 0), number("kafka.max.partition.fetch.bytes", 0)) or 4 << 20
    return SourceOptions(
        bootstrap=_bootstrap(options),
        subscription=_subscription(options),
        starting=_starting(options, kind),
        ending=_ending(options),
        time_not_found_is_latest=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        fail_on_data_loss=values.boolean("failOnDataLoss", text("failOnDataLoss", "true")),
        include_headers=values.boolean("includeHeaders", text("includeHeaders", "false")),
        max_per_trigger=limit("maxOffsetsPerTrigger"),
        min_per_trigger=limit("minOffsetsPerTrigger"),
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", text("maxTriggerDelay", "15m")),
        min_partitions=limit("minPartitions"),
        max_records_per_partition=limit("maxRecordsPerPartition"),
        read_committed=_choice(options, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
        == "read_committed",
        check_crcs=values.boolean("kafka.check.crcs", text("kafka.check.crcs", "true")),
        fetch_bytes=fetch_bytes,
        patience_s=number("kafka.default.api.timeout.ms", 60_000) / 1000,
        timeout_s=number("kafka.request.timeout.ms", 30_000) / 1000,
        client_id=text("kafka.client.id", "headrace-spark"),
        group_id=options.get("group.id", options.get("kafka.group.id")),
        tags=tuple(tag.encode() for tag in values.names("tags", options["tags"])) if "tags" in options else (),
        tags_match=_tags_match(options),
        archive=options.get("archive"),
    )


def _tags_match(options: Mapping[str, str]) -> str:
    found = options.get("tagsMatch", MATCHES[0]).strip().lower()
    if found not in MATCHES:
        raise Failure(f"option tagsMatch is {options['tagsMatch']!r}: write {', '.join(MATCHES)}")
    if "tagsMatch" in options and "tags" not in options:
        raise Failure("option tagsMatch: it says how the option tags is meant; give that, too")
    return found


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """The options under their canonical names: Spark treats option names as case-insensitive."""
    if "path" in given:
        raise Failure('load() takes no path: name the topic with .option("subscribe", "orders")')
    named: dict[str, str] = {}
    for key, value in given.items():
        name = _CANONICAL.get(key.lower())
        if name is None:
            raise Failure(_unknown(key))
        named[name] = value
    if named.get("kafka.security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise Failure("option kafka.security.protocol: only PLAINTEXT is supported")
    return named


def _unknown(key: str) -> str:
    if key.lower().startswith(("kafka.ssl.", "kafka.sasl.")):
        return f"option {key} is not supported: connections are neither encrypted nor authenticated"
    close = difflib.get_close_matches(key.lower(), _CANONICAL, n=1)
    hint = f"did you mean {_CANONICAL[close[0]]}?" if close else "docs/spark.md lists the options"
    return f"the source has no option {key}: {hint}"


def _refuse(options: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in options:
            raise Failure(f"option {name}: {why}")


def _bootstrap(options: Mapping[str, str]) -> tuple[str, ...]:
    if "kafka.bootstrap.servers" not in options:
        raise Failure("option kafka.bootstrap.servers is missing: name a broker, such as 127.0.0.1:9092")
    found = values.names("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
    for address in found:
        parse_address(address)
    return found


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        said = f"options {' and '.join(given)} contradict each other" if given else "no topic is named"
        raise Failure(f"{said}: give exactly one of subscribe, subscribePattern and assign")
    name = given[0]
    if name == "subscribe":
        return Subscription(topics=values.names(name, options[name]))
    if name == "assign":
        return Subscription(assigned=partition_lists(name, options[name]))
    try:
        re.compile(options[name])
    except re.error as error:
        raise Failure(f"option {name} is {options[name]!r}, which is not a regular expression: {error}") from None
    return Subscription(pattern=options[name])


def _starting(options: Mapping[str, str], kind: Kind) -> Positions:
    found = _positions(options, _STARTS, Earliest() if kind == "batch" else Latest())
    if kind == "batch" and (found.everywhere == Latest() or Latest() in found.each.values()):
        raise Failure(f"option {found.option}: a batch that starts at the end has nothing to read; start earlier")
    return found


def _ending(options: Mapping[str, str]) -> Positions:
    found = _positions(options, _ENDS, Latest())
    if found.everywhere == Earliest() or Earliest() in found.each.values():
        raise Failure(f"option {found.option}: a batch that ends at the beginning has nothing to read; end later")
    return found


def _positions(options: Mapping[str, str], names: tuple[str, ...], default: Position) -> Positions:
    """A time for all partitions takes precedence, then times per partition, then offsets: as in Spark's connector."""
    by_offset, by_time, by_times = names
    if by_time in options:
        return Positions(by_time, AtTime(values.whole_number(by_time, options[by_time], 0)))
    if by_times in options:
        times = partition_numbers(by_times, options[by_times])
        if any(time < 0 for time in times.values()):
            raise Failure(f"option {by_times}: a time is in milliseconds since 1970, and at least 0")
        return Positions(by_times, None, {place: AtTime(time) for place, time in times.items()})
    text = options.get(by_offset, "").strip()
    if text.lower() in ("", "earliest", "latest"):
        return Positions(by_offset, {"": default, "earliest": Earliest(), "latest": Latest()}[text.lower()])
    offsets = partition_numbers(by_offset, text)
    if any(offset < -2 for offset in offsets.values()):
        raise Failure(f"option {by_offset}: an offset is at least 0, or -2 for the beginning, or -1 for the end")
    return Positions(by_offset, None, {place: position_of_offset(offset) for place, offset in offsets.items()})


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, str]) -> str:
    """One of two values; the first is the default."""
    value = options.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise Failure(f"option {name} is {options[name]!r}: write {' or '.join(allowed)}")
    return value
