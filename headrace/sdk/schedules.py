"""What is pending in topics: list it, cancel it, move it to another time.

Cancelling and moving are messages too: a header names the pending message, and the leader of the partition answers
whether it was still pending, so there is no moment at which a message is both cancelled and delivered. Each is a batch
of its own, sent one at a time, because a batch is accepted or refused as a whole. AsyncSchedules wraps this class.
Invariant: nothing is sent before its topic, id and times are known to be good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError

from headrace.model.delays import CANCEL_HEADER, CANCEL_KEY_HEADER, MOVE_HEADER
from headrace.sdk.codecs import Codec, CodecName, codec_of
from headrace.sdk.delayed_topics import DelayedTopics
from headrace.sdk.errors import BadMessage, NotDelivered, NotPending, SdkError
from headrace.sdk.message import Header, Message
from headrace.sdk.partitioner import Partitioner
from headrace.sdk.pending import PendingView
from headrace.sdk.producer import Producer
from headrace.sdk.record import Key, key_bytes
from headrace.sdk.scheduled import Scheduled
from headrace.sdk.settings import producer_settings
from headrace.sdk.timing import moment_ms, timing_headers
from headrace.world.clock import Clock, SystemClock

Found = list[Scheduled]  # `list` is a method here
Errors = list[SdkError]
Moment = datetime | int
ONE_AT_A_TIME = {"batch.num.messages": 1, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}


class Schedules:
    """The pending messages of topics with headrace.delay.enable.

    with Schedules("127.0.0.1:9092") as schedules:
        for pending in schedules.list("reminders", due_before=datetime.now(UTC) + timedelta(hours=1)):
            schedules.cancel("reminders", pending.partition, pending.id)

    `codec` decodes the values that `list` and `show` return. `partitioner` must be that of the producer if it has one,
    so that `cancel_key` goes to the partition of the key. Any setting of librdkafka can be given by name.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        codec: CodecName | Codec = "bytes",
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._clock = clock or SystemClock()
        settings = {**overrides, **ONE_AT_A_TIME}
        self._producer = Producer(bootstrap, partitioner=partitioner, clock=self._clock, **settings)
        connection = producer_settings(bootstrap, "at-least-once", "balanced", None, settings)
        self._topics = DelayedTopics(connection, self._clock)
        self._view = PendingView(connection, codec_of(codec), SystemClock().pause)

    def close(self) -> None:
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- looking ---

    def list(
        self,
        topic: str,
        key: Key | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
    ) -> Found:
        """What is pending, by due time: at or after `due_after` and before `due_before`, with this key."""
        found = self.each(topic, key, due_after, due_before)
        return sorted(found, key=lambda pending: (pending.due_ms, pending.partition, pending.id))

    def each(
        self,
        topic: str,
        key: Key | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
    ) -> Iterator[Scheduled]:
        """Like `list`, in the order in which answers come, and without keeping them in memory."""
        wanted_key = None if key is None else key_bytes(key)
        first_ms = None if due_after is None else moment_ms(due_after, "due_after")
        end_ms = None if due_before is None else moment_ms(due_before, "due_before")
        for pending in self._view.scan(topic):
            early = first_ms is not None and pending.due_ms < first_ms
            late = end_ms is not None and pending.due_ms >= end_ms
            if not early and not late and wanted_key in (None, pending.key):
                yield pending

    def show(self, topic: str, partition: int, id: int) -> Scheduled:
        """One pending message; NotPending if there is none with this id."""
        _check_place(partition, id)
        found = self._view.find(topic, partition, id)
        if found is None:
            raise _not_pending(topic, partition, id)
        return found

    # --- one message ---

    def cancel(self, topic: str, partition: int, id: int) -> None:
        """Never deliver this message (again). NotPending if it was delivered or cancelled before."""
        self._command(topic, partition, id, [_header(CANCEL_HEADER, id)])

    def move(
        self, topic: str, partition: int, id: int, *, delay: timedelta | None = None, deliver_at: Moment | None = None
    ) -> None:
        """Deliver this message at another time: `delay` from now, or at `deliver_at`. Its id stays."""
        self._command(topic, partition, id, [_header(MOVE_HEADER, id), *self._new_time(delay, deliver_at)])

    def cancel_key(self, topic: str, key: Key, partition: int | None = None) -> None:
        """Cancel everything that is pending with this key, in the partition of the key. NotPending if nothing is."""
        name = key_bytes(key)
        self._topics.require(topic)
        headers: Iterable[Header] = [(CANCEL_KEY_HEADER, name)]
        try:
            self._producer.send_and_wait(topic, None, key=name, partition=partition, headers=headers)
        except SdkError as error:
            if error.code != KafkaError.INVALID_RECORD:
                raise
            raise NotPending(f"topic {topic} has nothing pending with the key {key!r}", error.code) from error

    # --- several messages ---

    def cancel_due(
        self, topic: str, due_after: Moment | None = None, due_before: Moment | None = None, key: Key | None = None
    ) -> int:
        """Cancel what is due in this time, with this key, and return how many messages that were.

        A message that is delivered meanwhile does not count.
        """
        _check_limits(due_after, due_before, key)
        return self.cancel_each(self.each(topic, key, due_after, due_before))

    def move_due(
        self,
        topic: str,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        key: Key | None = None,
        *,
        delay: timedelta | None = None,
        deliver_at: Moment | None = None,
    ) -> int:
        """Move what is due in this time, with this key, and return how many messages that were."""
        _check_limits(due_after, due_before, key)
        self._new_time(delay, deliver_at)
        # The list is read to its end first: what was moved might come up again in it.
        found = self.list(topic, key, due_after, due_before)
        return self.move_each(found, delay=delay, deliver_at=deliver_at)

    def cancel_each(self, pending: Iterable[Scheduled]) -> int:
        """Cancel these, and return how many of them were still pending."""
        return self._commands((each, [_header(CANCEL_HEADER, each.id)]) for each in pending)

    def move_each(
        self, pending: Iterable[Scheduled], *, delay: timedelta | None = None, deliver_at: Moment | None = None
    ) -> int:
        """Move these, and return how many of them were still pending."""
        time = self._new_time(delay, deliver_at)
        return self._commands((each, [_header(MOVE_HEADER, each.id), *time]) for each in pending)

    # --- inside ---

    def _new_time(self, delay: timedelta | None, deliver_at: Moment | None) -> Iterable[Header]:
        time = timing_headers(delay, deliver_at, None, None, self._clock.now_ms())
        if not time:
            raise BadMessage("a move needs the new time: give delay or deliver_at")
        return time

    def _command(self, topic: str, partition: int, message_id: int, headers: Iterable[Header]) -> None:
        _check_place(partition, message_id)
        self._topics.require(topic)
        try:
            self._producer.send_and_wait(topic, None, partition=partition, headers=headers)
        except SdkError as error:
            if error.code != KafkaError.INVALID_RECORD:
                raise
            raise _not_pending(topic, partition, message_id) from error

    def _commands(self, commands: Iterable[tuple[Scheduled, Iterable[Header]]]) -> int:
        done = 0
        failures: Errors = []

        def count(error: SdkError | None, _receipt: Message) -> None:
            nonlocal done
            if error is None:
                done += 1
            elif error.code != KafkaError.INVALID_RECORD:
                failures.append(error)

        for pending, headers in commands:
            self._topics.require(pending.topic)
            self._producer.send(pending.topic, None, partition=pending.partition, headers=headers, on_delivery=count)
        self._producer.flush()
        if failures:
            raise NotDelivered(
                f"{len(failures)} not changed, {done} changed; the first error: {failures[0]}", failures[0].code
            )
        return done


def _header(name: str, message_id: int) -> Header:
    return name, str(message_id).encode()


def _check_place(partition: int, message_id: int) -> None:
    for name, number in (("partition", partition), ("id", message_id)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise BadMessage(f"{name}={number!r} is not a whole number from 0 on: the producer's receipt has it")


def _check_limits(due_after: Moment | None, due_before: Moment | None, key: Key | None) -> None:
    if due_after is None and due_before is None and key is None:
        raise BadMessage("give due_after, due_before or key: without a limit this would change all that is pending")


def _not_pending(topic: str, partition: int, message_id: int) -> NotPending:
    return NotPending(
        f"topic {topic} partition {partition} has no pending message {message_id}: "
        "it was delivered or cancelled, or never existed",
        KafkaError.INVALID_RECORD,
    )
