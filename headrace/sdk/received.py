"""Converts librdkafka's message to the SDK's: the one place that reads librdkafka's."""

from __future__ import annotations

from typing import cast

import confluent_kafka

from headrace.sdk.codecs import Codec
from headrace.sdk.message import Header, Message

_NO_TIME = confluent_kafka.TIMESTAMP_NOT_AVAILABLE


def message_of(inner: confluent_kafka.Message, codec: Codec) -> Message:
    kind, timestamp_ms = inner.timestamp()
    offset, partition = inner.offset(), inner.partition()
    return Message(
        inner.topic() or "",
        -1 if partition is None else partition,
        -1 if offset is None else offset,
        inner.value(),
        inner.key(),
        None if kind == _NO_TIME else timestamp_ms,
        cast("list[Header]", inner.headers() or ()),
        codec,
    )
