"""What a client's batch must fulfil before it may enter a log. Called by opening.py for every produced batch that the
usual append (_tail.pyx) has not taken; that one declines whatever is refused here.

The records are looked at wherever they lie open: in a batch that is not compressed, and on a topic whose settings make
the broker open every batch. There each record must be whole, in its place, and of a time that the topic takes. Of a
compressed batch on any other topic only the header can be checked, and how its bytes begin. What is taken and refused,
beside what Apache Kafka does: docs/records.md.

A batch whose header names another latest time than its records have is no error: it is stored with the right one.
"""

from __future__ import annotations

from headrace.model.topic_config import TopicConfig
from headrace.wire import compression
from headrace.wire import records as wire_records
from headrace.wire.batches import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    PRODUCIBLE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from headrace.wire.errors import BadRecord, ErrorCode, InvalidRecords, KafkaError, Malformed, TooMuch

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def check_client_batch(
    records: memoryview,
    at: int,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    transactional: bool,
    limit_bytes: int,
) -> tuple[int, Buffer | None]:
    """The latest time of its records, as the header is to name it, and its records, unless they stay closed. Raises
    KafkaError with the code that a Kafka broker would give; TooMuch if it opens into more than `limit_bytes`. Only in a
    `transactional` request may there be transactional batches: without a coordinator that knows of them they would
    stay open for ever."""
    if header.length + PREFIX_BYTES > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a record batch of {header.size} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    if header.attributes & ~CODEC_MASK:
        _check_attributes(header, config, transactional)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise KafkaError(ErrorCode.invalid_record, f"producer {header.producer_id} sent no epoch or no sequence")
    if header.codec and not config.opens(header.codec):
        _check_closed(records[at + HEADER_BYTES : at + header.size], header, config, now_ms)
        return header.max_timestamp, None
    try:
        _, section = wire_records.open_batch(records, at, limit_bytes)
    except TooMuch:
        raise
    except Malformed as error:
        raise KafkaError(ErrorCode.invalid_record, f"a record batch cannot be opened: {error}") from error
    return check_section(section, header, config, now_ms), section


def _check_attributes(header: BatchHeader, config: TopicConfig, transactional: bool) -> None:
    attributes = header.attributes
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.invalid_record, "a producer may not send a control batch")
    if attributes & ~PRODUCIBLE:
        raise KafkaError(ErrorCode.invalid_record, f"a record batch has attributes that mean nothing: {attributes:#x}")
    if attributes & TRANSACTIONAL and not transactional:
        raise KafkaError(
            ErrorCode.transactional_id_authorization_failed, "a transactional batch without a transactional id"
        )
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        raise KafkaError(ErrorCode.invalid_record, "a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME and not config.log_append_time:
        raise KafkaError(ErrorCode.invalid_timestamp, "only the broker may mark a batch as LogAppendTime")


def check_section(section: Buffer, header: BatchHeader, config: TopicConfig, now_ms: int) -> int:
    """What `check_client_batch` checks of a batch's records, uncompressed; the latest time among them."""
    count, base = header.record_count, header.base_timestamp
    try:
        oldest, newest = wire_records.check_records(section, count, base)
    except BadRecord as error:
        raise InvalidRecords([error.place], error.why) from error
    earliest, latest = _limits(config, now_ms)
    if oldest < earliest or newest > latest:
        wrong = wire_records.times_outside(section, count, base, earliest, latest)
        if wrong:
            raise InvalidRecords(wrong, _not_within(earliest, latest), ErrorCode.invalid_timestamp)
    if config.compacted:
        keyless = wire_records.keyless(section, count)
        if keyless:
            raise InvalidRecords(keyless, "a compacted topic takes no record without a key")
    return newest


def _check_closed(body: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """What can be told of compressed records from outside."""
    if not compression.begins_as(header.codec, body):
        raise KafkaError(
            ErrorCode.invalid_record,
            f"a record batch says that it is compressed with {compression.NAMES[header.codec]}; its bytes are not",
        )
    earliest, latest = _limits(config, now_ms)
    for time in (header.base_timestamp, header.max_timestamp):
        if time != NO_TIMESTAMP and not earliest <= time <= latest:
            raise KafkaError(
                ErrorCode.invalid_timestamp,
                f"a compressed batch names the times {header.base_timestamp} and {header.max_timestamp}: "
                + _not_within(earliest, latest),
            )


def _limits(config: TopicConfig, now_ms: int) -> tuple[int, int]:
    if config.log_append_time:
        return _INT64_MIN, _INT64_MAX
    return (
        max(now_ms - config.timestamp_before_max_ms, _INT64_MIN),
        min(now_ms + config.timestamp_after_max_ms, _INT64_MAX),
    )


def _not_within(earliest: int, latest: int) -> str:
    return (
        f"the time is not within {earliest} to {latest}, by message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms"
    )
