"""confluent-kafka clients that write down what they do: real histories for the checker of sim/history.

A client is opened under a name that nobody else has in the history, and used as usual; the recorder gets an event
before each request leaves and one when its outcome is known. A message's value carries its uid, the uid of the message
that it was made from (in a pipe), and a sha256 over key, body, headers and timestamp. Used by tests that run against
a real broker; docs/checker.md explains the events.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from sim.clients.orders import Known, Order
from sim.history.event import READ_COMMITTED, READ_UNCOMMITTED, Record
from sim.history.outcomes import outcome
from sim.history.payload import NO_TIME, Payload, digest_of, record_from
from sim.history.recorder import Recorder

CALL_TIMEOUT_S = 30.0
FINAL_READ_S = 60.0
FINAL_CHUNK = 1000
GENERATION_AT = len(b"CGMDv2:")  # librdkafka's form of a group's metadata: this tag, the generation, names
NO_OFFSET = -1
Headers = list[tuple[str, bytes]]


def name_of(topic: str | None, partition: int | None) -> str:
    return f"{topic}-{partition}"


def record_of(message: Message) -> Record:
    place = name_of(message.topic(), message.partition()), message.offset()
    return record_from(*place, message.key(), message.value(), message.headers() or [], message.timestamp()[1])


# --- producers -------------------------------------------------------------------------------------------------------


class RecordedProducer:
    def __init__(self, recorder: Recorder, proc: str, bootstrap: str, **settings: Any) -> None:
        """Idempotent unless `enable_idempotence=False`; settings are librdkafka's, with _ for each dot."""
        self.proc = proc
        self._recorder = recorder
        self._count = 0
        self._txn: str | None = None
        self.stored: list[Known] = []
        config = {"enable.idempotence": True, **_dotted(settings)}
        recorder.happened(
            proc,
            "open",
            details={
                "acks": "all" if str(config.get("acks", "all")) in ("all", "-1") else str(config["acks"]),
                "idempotent": bool(config["enable.idempotence"]),
                "in_flight": config.get("max.in.flight", 5),
                "txn_id": config.get("transactional.id"),
                "txn_timeout_ms": config.get("transaction.timeout.ms", 60_000),
            },
        )
        self.client = Producer({"bootstrap.servers": bootstrap, **config})

    def send(
        self,
        topic: str,
        body: bytes = b"",
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        src: str = "",
        order: Order | None = None,
    ) -> str:
        """Hand a message to the client and return its uid; the outcome is recorded when it is known. `order`: it is
        delayed, or cancels or moves another."""
        self._count += 1
        uid, timestamp_ms = f"{self.proc}/{self._count}", int(time.time() * 1000)
        digest = digest_of(uid, src, key, body, headers or [], timestamp_ms if order is None else NO_TIME)
        said: dict[str, Any] = {"uid": uid, "digest": digest, "txn": self._txn, "src": src or None}
        if order is not None:
            said["details"] = order.details
            headers = [*(headers or []), *((name, value or b"") for name, value in order.headers)]
        if partition is not None:
            said["tp"] = name_of(topic, partition)
        if key is not None:
            said["key"] = key.decode(errors="replace")
        op = self._recorder.invoke(self.proc, "send", **said)
        where = {} if partition is None else {"partition": partition}
        try:
            self.client.produce(
                topic, Payload(uid, src, digest, body).packed(), key, headers=headers or [], timestamp=timestamp_ms,
                on_delivery=lambda error, message: self._delivered(op, uid, error, message), **where,
            )  # fmt: skip
        except BufferError:
            self._recorder.fail(op, err="_QUEUE_FULL")
        except KafkaException as error:
            _failed(self._recorder, op, "send", error)
        self.client.poll(0)
        return uid

    def _delivered(self, op: int, uid: str, error: KafkaError | None, message: Message) -> None:
        if error is None:
            tp = name_of(message.topic(), message.partition())
            self._recorder.ok(op, tp=tp, off=message.offset())
            if message.offset() >= 0:
                self.stored.append(Known(uid, tp, message.offset()))
        else:
            self._recorder.end(op, outcome("send", error.name(), tried_once=False), err=error.name())

    def flush(self, timeout_s: float = CALL_TIMEOUT_S) -> int:
        return int(self.client.flush(timeout_s))

    def close(self) -> None:
        self.flush()
        self._recorder.happened(self.proc, "close")


class RecordedTransactions(RecordedProducer):
    """A transactional producer. Calls raise what the client raises, after it was recorded."""

    def __init__(self, recorder: Recorder, proc: str, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        super().__init__(recorder, proc, bootstrap, transactional_id=transactional_id, **settings)
        self._txns = 0

    def init(self) -> None:
        self._call("init", {}, lambda: self.client.init_transactions(CALL_TIMEOUT_S))

    def begin(self) -> str:
        self.client.begin_transaction()
        self._txns += 1
        self._txn = f"{self.proc}#{self._txns}"
        self._recorder.happened(self.proc, "begin", txn=self._txn)
        return self._txn

    def send_offsets(self, consumer: RecordedConsumer) -> None:
        """Everything that the consumer got so far becomes part of the transaction."""
        offsets, said = consumer.positions()
        if offsets:
            group = consumer.client.consumer_group_metadata()
            self._call(
                "send_offsets",
                said | {"txn": self._txn},
                lambda: self.client.send_offsets_to_transaction(offsets, group, CALL_TIMEOUT_S),
            )

    def commit(self) -> None:
        """May be called again if it raises an error that says it is retriable."""
        self._end(True, lambda: self.client.commit_transaction(CALL_TIMEOUT_S))

    def abort(self) -> None:
        self._end(False, lambda: self.client.abort_transaction(CALL_TIMEOUT_S))

    def _end(self, commit: bool, work: Callable[[], object]) -> None:
        self._call("end", {"txn": self._txn, "details": {"commit": commit}}, work)
        self._txn = None

    def _call(self, f: str, said: dict[str, Any], work: Callable[[], object]) -> None:
        op = self._recorder.invoke(self.proc, f, **said)
        try:
            work()
        except KafkaException as error:
            _failed(self._recorder, op, f, error)
            raise
        self._recorder.ok(op)


# --- consumers -------------------------------------------------------------------------------------------------------


class RecordedConsumer:
    def __init__(
        self, recorder: Recorder, proc: str, bootstrap: str, group: str, in_pipe: bool = False, **settings: Any
    ) -> None:
        """A member of `group` from the earliest offset on, without automatic commits.

        It commits when it gives partitions back, unless it feeds a pipe: there transactions commit, and what an aborted
        one had read must be read again.
        """
        self.proc = proc
        self.group = group
        self._in_pipe = in_pipe
        self._recorder = recorder
        self._next: dict[tuple[str, int], int] = {}
        self._commits = 0
        config = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": READ_COMMITTED,
            **_dotted(settings),
        }
        recorder.happened(
            proc,
            "open",
            details={
                "group": group,
                "isolation": config["isolation.level"],
                "instance": config.get("group.instance.id"),
                "reset": config["auto.offset.reset"],
                "session_timeout_ms": config.get("session.timeout.ms", 45_000),
            },
        )
        self.client = Consumer({"bootstrap.servers": bootstrap, **config})

    def subscribe(self, *topics: str) -> None:
        self._recorder.happened(self.proc, "join", group=self.group)
        self.client.subscribe(
            list(topics),
            on_assign=lambda _, parts: self._told("assign", parts),
            on_revoke=self._revoked,
            on_lost=lambda _, parts: self._told("lost", parts),
        )

    def _revoked(self, _: Consumer, parts: list[TopicPartition]) -> None:
        if not self._in_pipe:
            self.commit()
        self._told("revoke", parts)

    def _told(self, f: str, parts: list[TopicPartition]) -> None:
        offs = {name_of(part.topic, part.partition): None for part in parts}
        self._recorder.happened(self.proc, f, group=self.group, offs=offs, epoch=self.generation())
        for part in parts:
            self._next.pop((part.topic, part.partition), None)

    def generation(self) -> int | None:
        """The group's generation, or the member's epoch, as the client knows it."""
        metadata = self.client.consumer_group_metadata()
        (generation,) = struct.unpack_from("=i", metadata, GENERATION_AT)
        return generation if generation >= 0 else None

    def poll(self, count: int = 500, timeout_s: float = 0.1, txn: str | None = None) -> list[Record]:
        op = self._recorder.invoke(self.proc, "poll", txn=txn)
        try:
            messages = self.client.consume(count, timeout_s)
        except KafkaException as error:
            _failed(self._recorder, op, "poll", error)
            return []
        messages = [message for message in messages if message.error() is None]
        records = [record_of(message) for message in messages]
        self._recorder.ok(op, records=records)
        for message in messages:
            self._next[message.topic(), message.partition()] = message.offset() + 1
        return records

    def positions(self) -> tuple[list[TopicPartition], dict[str, Any]]:
        """Where this member stands, as the client takes it and as the recorder does."""
        self._commits += 1
        meta = f"{self.proc}#{self._commits}"
        offsets = [TopicPartition(*place, off, meta) for place, off in sorted(self._next.items())]
        names = [name_of(offset.topic, offset.partition) for offset in offsets]
        said = {
            "group": self.group,
            "offs": {name: offset.offset for name, offset in zip(names, offsets, strict=True)},
            "metas": dict.fromkeys(names, meta),
            "epoch": self.generation(),
        }
        return offsets, said

    def commit(self) -> bool:
        """Commit everything that was delivered; whether it is certainly stored."""
        offsets, said = self.positions()
        if not offsets:
            return True
        op = self._recorder.invoke(self.proc, "commit", **said)
        try:
            for part in self.client.commit(offsets=offsets, asynchronous=False):
                if part.error is not None:
                    raise KafkaException(part.error)
        except KafkaException as error:
            _failed(self._recorder, op, "commit", error)
            return False
        self._recorder.ok(op)
        return True

    def committed(self, *places: tuple[str, int]) -> dict[str, int]:
        """Ask the group's coordinator."""
        op = self._recorder.invoke(self.proc, "committed", group=self.group)
        try:
            found = self.client.committed([TopicPartition(*place) for place in places], CALL_TIMEOUT_S)
        except KafkaException as error:
            _failed(self._recorder, op, "committed", error)
            return {}
        offs = {name_of(part.topic, part.partition): max(part.offset, NO_OFFSET) for part in found}
        metas = {name_of(part.topic, part.partition): part.metadata or None for part in found}
        self._recorder.ok(op, offs=offs, metas=metas)
        return offs

    def ask_end(self, topic: str, partition: int) -> int:
        """The high watermark, or for readers of committed data the last stable offset, as the broker tells it."""
        tp = name_of(topic, partition)
        op = self._recorder.invoke(self.proc, "list_offsets", tp=tp, details={"at": "end"})
        _, high = self.client.get_watermark_offsets(TopicPartition(topic, partition), CALL_TIMEOUT_S)
        self._recorder.ok(op, off=high)
        return int(high)

    def close(self) -> None:
        self._recorder.happened(self.proc, "leave", group=self.group)
        self.client.close()
        self._recorder.happened(self.proc, "close", group=self.group)


def read_everything(recorder: Recorder, bootstrap: str, topics: Mapping[str, int], **settings: Any) -> None:
    """The final read: a fresh client reads these topics (name -> partitions) to their ends, once for each isolation."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        client = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "final-read",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                **_dotted(settings),
            }
        )
        try:
            parts = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
            _read_partitions(recorder, client, parts, isolation)
        finally:
            client.close()


def _read_partitions(recorder: Recorder, client: Consumer, parts: list[TopicPartition], isolation: str) -> None:
    records: dict[str, list[Record]] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for part in parts:
        tp = name_of(part.topic, part.partition)
        records[tp], bounds[tp] = [], client.get_watermark_offsets(part, CALL_TIMEOUT_S)
        part.offset = bounds[tp][0]
    client.assign(parts)
    unfinished = set(records)
    give_up_at = time.monotonic() + FINAL_READ_S
    while unfinished:
        if time.monotonic() > give_up_at:
            raise AssertionError(f"the final read did not reach the end of {sorted(unfinished)} in {FINAL_READ_S:g} s")
        for message in client.consume(FINAL_CHUNK, 0.05):
            error, tp = message.error(), name_of(message.topic(), message.partition())
            if error is None:
                records[tp].append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(tp)
            else:
                raise KafkaException(error)
    for tp, (start, end) in bounds.items():
        details = {"isolation": isolation, "start": start, "end": end}
        recorder.happened("final-read", "final", tp=tp, records=records[tp], details=details)


def _failed(recorder: Recorder, op: int, f: str, error: KafkaException) -> None:
    cause = error.args[0]
    name = cause.name() if isinstance(cause, KafkaError) else str(cause)
    recorder.end(op, outcome(f, name, tried_once=False), err=name)


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    named = {
        name if name.endswith("_cb") or name == "log_level" else name.replace("_", "."): value
        for name, value in settings.items()
    }
    return {name: value for name, value in named.items() if value is not None}
