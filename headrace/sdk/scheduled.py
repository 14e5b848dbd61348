"""One pending message: a delayed message that its topic keeps back, or a recurring one.

Made by PendingView from the records of the list of what is pending; handed out by Schedules. Invariant: topic,
partition and id name the message as its producer's receipt did.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.model.cron import DEFAULT_ZONE
from headrace.model.delays import CRON_HEADER, CRON_TZ_HEADER, SCHEDULED_FOR_HEADER
from headrace.sdk.errors import SdkError
from headrace.sdk.message import Header, Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A message that is not due yet."""

    topic: str
    partition: int
    id: int
    due_ms: int
    message: Message
    """The message as it was sent, with its key, value and headers."""

    @property
    def due(self) -> datetime:
        """When it is delivered next, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    @property
    def key(self) -> bytes | None:
        return self.message.key

    @property
    def value(self) -> Any:
        """The value, decoded by the codec."""
        return self.message.value

    @property
    def cron(self) -> str | None:
        """The cron expression of a recurring message."""
        found = self.message.header(CRON_HEADER)
        return None if found is None else found.decode(errors="replace")

    @property
    def cron_tz(self) -> str | None:
        """The time zone of a recurring message."""
        found = self.message.header(CRON_TZ_HEADER)
        if found is None:
            return None if self.cron is None else DEFAULT_ZONE
        return found.decode(errors="replace")


def scheduled_of(topic: str, listed: Message) -> Scheduled:
    """A record of the list of what is pending in `topic`."""
    due = listed.header(SCHEDULED_FOR_HEADER)
    if due is None or not due.isdigit():
        raise SdkError(f"{listed} has no {SCHEDULED_FOR_HEADER}: is {listed.topic} the pending messages of {topic}?")
    headers: list[Header] = [header for header in listed.headers if header[0] != SCHEDULED_FOR_HEADER]
    return Scheduled(topic, listed.partition, listed.offset, int(due), listed.on(topic, headers))
