"""The exactly-once loop: read, transform, write, with input offsets and output in one transaction.

For each batch: read, transform, then commit the output and the offsets of the input in one transaction. So both count
or neither does, also when worker or broker crash; read_committed consumers of the output see each input's result once.
`transform` itself may run more than once for a message, so it should have no side effects.

`Pipe` has the rules, as blocking steps; the two loops below it, blocking and asyncio, call them in order. After an
abort (a rebalance, an unreachable broker) the batch is read again. A fenced producer or an unknown outcome ends the
loop with a one-line error, and the worker started next continues from the last commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from headrace.sdk.bridge import Bridge
from headrace.sdk.codecs import Codec, CodecName
from headrace.sdk.consumer import Consumer
from headrace.sdk.errors import BadMessage, TransactionAborted
from headrace.sdk.message import Message
from headrace.sdk.producer import Producer
from headrace.sdk.profiles import Profile
from headrace.sdk.record import Record
from headrace.world.clock import Clock, SystemClock

READ_WAIT_S = 0.25
ABORTS_IN_A_ROW = 20


@dataclass(slots=True)
class Tally:
    """What a run of the loop did: messages read and written in committed transactions, commits and aborts."""

    read: int = 0
    written: int = 0
    committed: int = 0
    aborted: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """When the loop ends. With none of these it runs until it is interrupted."""

    stop: Callable[[], bool] | None = None
    idle_s: float | None = None
    max_messages: int | None = None


class Pipe:
    """The two clients and the steps between them."""

    def __init__(self, consumer: Consumer, producer: Producer, produce_to: str | None, end: End, clock: Clock) -> None:
        self.tally = Tally()
        self._consumer = consumer
        self._producer = producer
        self._produce_to = produce_to
        self._end = end
        self._clock = clock
        self._busy_at_s = clock.monotonic()
        self._has_begun = False  # the group has assigned partitions to this worker
        self._aborts_in_a_row = 0

    def open(self) -> None:
        """Fence earlier workers with the same transactional id before the first offset is fetched."""
        self._producer.start_transactions()
        self._consumer.open()

    def close(self) -> None:
        try:
            self._consumer.close()
        finally:
            self._producer.close()

    def is_over(self) -> bool:
        end, now_s = self._end, self._clock.monotonic()
        idle = end.idle_s is not None and now_s - self._busy_at_s >= end.idle_s
        enough = end.max_messages is not None and self.tally.read >= end.max_messages
        return idle or enough or (end.stop is not None and end.stop())

    def read(self, batch_messages: int) -> list[Message]:
        if self._end.max_messages is not None:
            batch_messages = min(batch_messages, self._end.max_messages - self.tally.read)
        messages = self._consumer.poll(batch_messages, READ_WAIT_S)
        if not self._has_begun:  # the first rebalance does not count as idle time
            self._has_begun = bool(messages or self._consumer.assignment())
            self._busy_at_s = self._clock.monotonic()
        return messages

    def write(self, read: int, records: Sequence[Record]) -> None:
        """Write one transaction. If it is aborted, the consumer is rewound, and the loop reads the batch again."""
        try:
            with self._producer.transaction(self._consumer):
                for record in records:
                    self._producer.send_record(record)
        except TransactionAborted:
            self.tally.aborted += 1
            self._aborts_in_a_row += 1
            if self._aborts_in_a_row >= ABORTS_IN_A_ROW:
                raise
            return
        self._aborts_in_a_row = 0
        self._busy_at_s = self._clock.monotonic()
        self.tally.read += read
        self.tally.written += len(records)
        self.tally.committed += 1

    def records(self, message: Message, result: Any) -> Iterator[Record]:
        """The records of a transform's result: none, one, or all that an iterator yields."""
        results: Iterable[Any] = result if isinstance(result, Iterator) else (result,)
        for each in results:
            if each is None:
                continue
            record = each if isinstance(each, Record) else Record(each, message.key)
            if record.topic is None:
                if self._produce_to is None:
                    raise BadMessage(
                        f"the result for {message} has no topic: give produce_to, or a topic in the Record"
                    )
                record = record._replace(topic=self._produce_to)
            yield record


def exactly_once(
    bootstrap: str,
    *,
    consume_from: str | Sequence[str],
    transform: Callable[[Message], Any],
    produce_to: str | None,
    group: str,
    transactional_id: str,
    codec: CodecName | Codec = "bytes",
    profile: Profile = "balanced",
    batch_messages: int = 1000,
    stop: Callable[[], bool] | None = None,
    idle_s: float | None = None,
    max_messages: int | None = None,
    clock: Clock | None = None,
) -> Tally:
    """Read `consume_from`, transform each message, and write the results to `produce_to`, exactly once.

    `transform(message)` returns None (nothing is written), a value (written with the message's key), or a `Record`
    (with its own topic, key, headers); or it is a generator that yields any number of these. If it raises, the batch
    counts as not read, and the exception is raised here.

    Run up to as many workers as the input has partitions, all with the same `group`, each with its own
    `transactional_id` that it keeps over restarts, such as "billing-0", "billing-1". A second worker with the same id
    fences the first, which raises Fenced and must stop.

    Each worker is a static member of the group, with its transactional id as group.instance.id: after a restart it has
    its partitions back at once. If it does not come back, they are reassigned after the session timeout (45 seconds).

    The loop ends when `stop()` is true, when no message came for `idle_s` (counted once it has partitions), or after
    `max_messages`; without these it runs until it is interrupted. However it ends, only complete transactions are
    committed.
    """
    end = End(stop, idle_s, max_messages)
    pipe = _pipe(bootstrap, consume_from, produce_to, group, transactional_id, codec, profile, end, clock)
    with closing(pipe):
        pipe.open()
        while not pipe.is_over():
            messages = pipe.read(batch_messages)
            if messages:
                records = [record for each in messages for record in pipe.records(each, transform(each))]
                pipe.write(len(messages), records)
    return pipe.tally


async def exactly_once_async(
    bootstrap: str,
    *,
    consume_from: str | Sequence[str],
    transform: Callable[[Message], Awaitable[Any] | Any],
    produce_to: str | None,
    group: str,
    transactional_id: str,
    codec: CodecName | Codec = "bytes",
    profile: Profile = "balanced",
    batch_messages: int = 1000,
    stop: Callable[[], bool] | None = None,
    idle_s: float | None = None,
    max_messages: int | None = None,
    clock: Clock | None = None,
) -> Tally:
    """`exactly_once` for asyncio: `transform` may be a coroutine function, and nothing blocks the event loop."""
    end = End(stop, idle_s, max_messages)
    pipe = _pipe(bootstrap, consume_from, produce_to, group, transactional_id, codec, profile, end, clock)
    bridge = Bridge("headrace-exactly-once")
    try:
        await bridge.run(pipe.open)
        while not pipe.is_over():
            messages = await bridge.run(pipe.read, batch_messages)
            records: list[Record] = []
            for each in messages:
                result = transform(each)
                records += pipe.records(each, await result if inspect.isawaitable(result) else result)
            if messages:
                await bridge.run(pipe.write, len(messages), records)
    finally:
        await bridge.run(pipe.close)
        bridge.close()
    return pipe.tally


def _pipe(
    bootstrap: str,
    consume_from: str | Sequence[str],
    produce_to: str | None,
    group: str,
    transactional_id: str,
    codec: CodecName | Codec,
    profile: Profile,
    end: End,
    clock: Clock | None,
) -> Pipe:
    consumer = Consumer(
        bootstrap,
        consume_from,
        group=group,
        delivery="exactly-once",
        profile=profile,
        codec=codec,
        clock=clock,
        group_instance_id=transactional_id,  # a restarted worker gets its partitions back at once
    )
    producer = Producer(
        bootstrap,
        delivery="exactly-once",
        profile=profile,
        codec=codec,
        transactional_id=transactional_id,
        clock=clock,
    )
    return Pipe(consumer, producer, produce_to, end, clock or SystemClock())
