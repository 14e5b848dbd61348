"""What a client's batch must fulfil before it may enter a log. Called by appending.py for every produced batch.

Only the header is looked at, except where every record counts: on compacted topics, which need keys, and on those that
refuse what is too old.
"""

from __future__ import annotations

from headrace.model.topic_config import TopicConfig
from headrace.wire import records as wire_records
from headrace.wire.batches import CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, PREFIX_BYTES, TRANSACTIONAL, BatchHeader
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError, Malformed


def check_client_batch(
    records: memoryview, at: int, header: BatchHeader, config: TopicConfig, now_ms: int, *, transactional: bool = False
) -> None:
    """Raises KafkaError with the code that a Kafka broker would give. Only in a `transactional` request may there be
    transactional batches: without a coordinator that knows of them they would stay open for ever."""
    if header.length + PREFIX_BYTES > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a record batch of {header.size} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    if header.attributes & (CONTROL | TRANSACTIONAL | LOG_APPEND_TIME):
        _check_attributes(header, config, transactional)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise KafkaError(ErrorCode.invalid_record, f"producer {header.producer_id} sent no epoch or no sequence")
    if not config.log_append_time:
        latest, earliest = now_ms + config.timestamp_after_max_ms, now_ms - config.timestamp_before_max_ms
        if header.max_timestamp > latest or earliest > NO_TIMESTAMP:
            _check_times(records, at, header, earliest, latest)
    if config.compacted:
        _check_keys(records, at)


def _check_attributes(header: BatchHeader, config: TopicConfig, transactional: bool) -> None:
    attributes = header.attributes
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.invalid_record, "a producer may not send a control batch")
    if attributes & TRANSACTIONAL and not transactional:
        raise KafkaError(
            ErrorCode.transactional_id_authorization_failed, "a transactional batch without a transactional id"
        )
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        raise KafkaError(ErrorCode.invalid_record, "a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME and not config.log_append_time:
        raise KafkaError(ErrorCode.invalid_timestamp, "only the broker may mark a batch as LogAppendTime")


def _check_times(records: memoryview, at: int, header: BatchHeader, earliest: int, latest: int) -> None:
    """The header has the latest time only: where records may be too old, each is looked at, and else to name them."""
    try:
        times = wire_records.times(records, at)
    except Malformed as error:
        raise KafkaError(ErrorCode.corrupt_message, f"a record batch cannot be opened: {error}") from error
    wrong = [place for place, time in enumerate(times) if time != NO_TIMESTAMP and not earliest <= time <= latest]
    if wrong:
        raise InvalidRecords(
            wrong,
            f"the time is not within {earliest} to {latest}, by message.timestamp.before.max.ms and "
            "message.timestamp.after.max.ms",
            ErrorCode.invalid_timestamp,
        )
    if header.max_timestamp > latest:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"a batch says that its latest record is of {header.max_timestamp}; it has none",
        )


def _check_keys(records: memoryview, at: int) -> None:
    try:
        keyless = wire_records.without_key(records, at)
    except Malformed as error:
        raise KafkaError(ErrorCode.corrupt_message, f"a record batch cannot be opened: {error}") from error
    if keyless:
        raise InvalidRecords(keyless, "a compacted topic takes no record without a key")
