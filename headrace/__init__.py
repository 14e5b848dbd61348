"""headrace: a durable message queue that speaks the Kafka protocol.

The SDK's classes can be imported from here. They are loaded on first use: a broker never loads the SDK, and `import
headrace` alone is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.sdk import (
        AsyncConsumer,
        AsyncProducer,
        AsyncSchedules,
        Consumer,
        Message,
        Producer,
        Record,
        Schedules,
        SdkError,
        exactly_once,
        exactly_once_async,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSchedules",
    "Consumer",
    "Message",
    "Producer",
    "Record",
    "Schedules",
    "SdkError",
    "__version__",
    "exactly_once",
    "exactly_once_async",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("headrace.sdk"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
