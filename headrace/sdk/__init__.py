"""The Python SDK: producers and consumers with a chosen delivery, blocking and asyncio."""

from headrace.sdk.async_consumer import AsyncConsumer
from headrace.sdk.async_producer import AsyncProducer
from headrace.sdk.async_schedules import AsyncSchedules
from headrace.sdk.codecs import Codec
from headrace.sdk.consumer import Consumer
from headrace.sdk.errors import (
    BadMessage,
    BadSetting,
    Broken,
    Fenced,
    NotDelivered,
    NotPending,
    NotPermitted,
    SdkError,
    TopicMissing,
    TransactionAborted,
    Unreachable,
    WrongMoment,
)
from headrace.sdk.message import Message
from headrace.sdk.pipe import Tally, exactly_once, exactly_once_async
from headrace.sdk.producer import Producer
from headrace.sdk.record import Record
from headrace.sdk.scheduled import Scheduled
from headrace.sdk.schedules import Schedules

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSchedules",
    "BadMessage",
    "BadSetting",
    "Broken",
    "Codec",
    "Consumer",
    "Fenced",
    "Message",
    "NotDelivered",
    "NotPending",
    "NotPermitted",
    "Producer",
    "Record",
    "Scheduled",
    "Schedules",
    "SdkError",
    "Tally",
    "TopicMissing",
    "TransactionAborted",
    "Unreachable",
    "WrongMoment",
    "exactly_once",
    "exactly_once_async",
]
