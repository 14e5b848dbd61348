"""A blocking client of a cluster: its topics, leaders and coordinators, and calls to them.

Owns one connection per broker. Used by the Spark driver and its executors. Each request goes to a broker that can
answer it. While leaders move, brokers restart and coordinators load, it is retried for up to `patience_s`. After that a
lost connection is raised, and a response with an error code is returned to the caller. Not thread-safe.

Invariant: as long as one known broker is alive, from the bootstrap list or from metadata, the cluster can be asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from headrace.client.blocking import Address, BlockingConnection, ConnectionLost, Dial
from headrace.model.failure import Failure
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock
from headrace.world.net import dial

CoordinatorKind = Literal["group", "transaction"]

_KINDS: dict[CoordinatorKind, int] = {"group": 0, "transaction": 1}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

# Errors of a broker that is not, or not yet, the right one for the request: refresh the metadata and retry.
MOVED = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader_id: int  # -1: no leader
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: uuid.UUID | None  # None: the broker is older than topic ids
    is_internal: bool
    partitions: tuple[Partition, ...]


class ClusterUnreachable(Failure):
    """No broker of the cluster answers."""


class Cluster:
    def __init__(
        self,
        bootstrap: Sequence[str],
        client_id: str,
        *,
        patience_s: float = 30.0,
        timeout_s: float = 30.0,
        clock: SystemClock | None = None,
        dial: Dial = dial,
    ) -> None:
        self._bootstrap = [parse_address(text) for text in bootstrap]
        self._client_id = client_id
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._dial = dial
        self._connections: dict[Address, BlockingConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- metadata of topics and brokers -------------------------------------------------------------------------------

    def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """The existing topics of these names, or all; asks a broker each time. Never creates a topic."""
        for last in self.attempts():
            answer = self._ask_for_topics(names)
            electing = any(topic.error_code == ErrorCode.leader_not_available for topic in answer.topics)
            if not electing or last:
                break
        return {topic.name: self._topics[topic.name] for topic in answer.topics if topic.name in self._topics}

    def leader(self, topic: str, partition: int) -> Address:
        """The address of the partition's leader, from the cache if it is there."""
        for last in self.attempts():
            address = self.known_leader(topic, partition)
            if address is not None:
                return address
            self._ask_for_topics([topic])
            if self.known_leader(topic, partition) is None and last:
                break
        raise Failure(self._why_no_leader(topic, partition))

    def forget(self, topic: str) -> None:
        """Drop the cached metadata of this topic, so that the next call asks again."""
        self._topics.pop(topic, None)

    def brokers(self) -> list[Address]:
        """Every live broker."""
        self._ask_for_topics([])
        return list(self._brokers.values())

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, api_key: int, message: Message, timeout_s: float | None = None) -> Message:
        """Call any broker that answers."""
        return self._patiently(lambda: self._anywhere(api_key, message, timeout_s))

    def call_broker(self, address: Address, api_key: int, message: Message, timeout_s: float | None = None) -> Message:
        """Call this broker, once."""
        return self.connection(address).call(api_key, message, timeout_s)

    def call_leader(
        self,
        topic: str,
        partition: int,
        api_key: int,
        message: Message,
        timeout_s: float | None = None,
        *,
        version: int | None = None,
    ) -> Message:
        """Call the leader of a partition, following it when it moves."""

        def ask() -> Message:
            return self.connection(self.leader(topic, partition)).call(api_key, message, timeout_s, version=version)

        return self._patiently(ask, forget=lambda: self.forget(topic))

    def call_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        api_key: int,
        message: Message,
        timeout_s: float | None = None,
        *,
        version: int | None = None,
    ) -> Message:
        """Call the coordinator of a group or of a transactional id. KafkaError if there is none."""

        def ask() -> Message:
            if (kind, key) not in self._coordinators:
                self.find_coordinators(kind, [key])
            coordinator = self.connection(self._coordinators[kind, key])
            return coordinator.call(api_key, message, timeout_s, version=version)

        return self._patiently(ask, forget=lambda: self.forget_coordinator(kind, key))

    def find_coordinators(self, kind: CoordinatorKind, keys: Sequence[str]) -> dict[str, Address]:
        """The coordinators of these groups or ids, as far as one request returns them, at least the first one's.
        KafkaError if the first has none."""
        body = Message(key=keys[0], key_type=_KINDS[kind], coordinator_keys=list(keys))
        answer = self._anywhere(ApiKey.FIND_COORDINATOR, body)
        places = {place.key: place for place in answer.coordinators} or {keys[0]: answer}  # one by one before version 4
        code = ErrorCode(places[keys[0]].error_code)
        if code is not ErrorCode.none:  # raised, not returned: the caller expects a response of another API
            raise KafkaError(code, f"there is no coordinator for the {kind} {keys[0]}")
        found = {key: Address(place.host, place.port) for key, place in places.items() if not place.error_code}
        self._coordinators |= {(kind, key): address for key, address in found.items()}
        return found

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Drop the cached coordinator, so that the next call asks again."""
        self._coordinators.pop((kind, key), None)

    def connection(self, address: Address) -> BlockingConnection:
        """The open connection to this broker."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = BlockingConnection(address, self._client_id, self._timeout_s, self._dial)
            connection.open()
            self._connections[address] = connection
        return connection

    # --- retries ------------------------------------------------------------------------------------------------------

    def attempts(self) -> Iterator[bool]:
        """One item per attempt, with growing pauses between, until `patience_s` has passed; true for the last one."""
        start, pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        while self._clock.monotonic() - start < self._patience_s:
            yield False
            self._clock.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        yield True

    def _patiently(self, ask: Callable[[], Message], forget: Callable[[], None] = lambda: None) -> Message:
        for last in self.attempts():
            try:
                answer = ask()
            except ConnectionLost:
                if last:
                    raise
            except KafkaError as error:
                if last or error.code not in MOVED:
                    raise
            else:
                if last or not any(code in MOVED for code in error_codes(answer)):
                    return answer
            forget()
        raise AssertionError("the last attempt returns or raises")

    def _anywhere(self, api_key: int, message: Message, timeout_s: float | None = None) -> Message:
        """Try the brokers one after the other until one answers, those with an open connection first."""
        known = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        known.sort(key=lambda address: address not in self._connections)
        lost: ConnectionLost | None = None
        for address in known:
            try:
                return self.connection(address).call(api_key, message, timeout_s)
            except ConnectionLost as error:
                lost = lost or error
        assert lost is not None, "a cluster has at least one address"
        raise lost

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _ask_for_topics(self, names: Sequence[str] | None) -> Message:
        wanted = None if names is None else [Message(name=name) for name in names]
        body = Message(topics=wanted, allow_auto_topic_creation=False)
        for last in self.attempts():
            try:
                answer = self._anywhere(ApiKey.METADATA, body)
                break
            except ConnectionLost as error:
                if last:
                    tried = ", ".join(map(str, self._bootstrap))
                    raise ClusterUnreachable(
                        f"no broker of the cluster at {tried} answers ({error}): is it running, and is this the "
                        "address in kafka.bootstrap.servers?"
                    ) from error
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.error_code not in (ErrorCode.none, ErrorCode.leader_not_available):
                self._topics.pop(topic.name, None)
                continue
            partitions = sorted(topic.partitions, key=lambda part: int(part.partition_index))
            self._topics[topic.name] = Topic(
                topic.name,
                topic.topic_id,
                topic.is_internal,
                tuple(Partition(part.partition_index, part.leader_id, part.leader_epoch) for part in partitions),
            )
        return answer

    def known_leader(self, topic: str, partition: int) -> Address | None:
        """The cached leader; None if there was none, or nothing is cached."""
        known = self._topics.get(topic)
        for part in known.partitions if known else ():
            if part.index == partition:
                return self._brokers.get(part.leader_id)
        return None

    def _why_no_leader(self, topic: str, partition: int) -> str:
        known = self._topics.get(topic)
        if known is None:
            return f"topic {topic} does not exist: create it, or correct the name"
        if all(part.index != partition for part in known.partitions):
            return f"topic {topic} has no partition {partition}: it has {len(known.partitions)} partitions, from 0"
        return f"partition {partition} of topic {topic} has no leader: is a broker down?"


def parse_address(text: str) -> Address:
    """`host:port` or `[v6]:port`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failure(f"{text!r} is not the address of a broker: write HOST:PORT, such as 127.0.0.1:9092")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def error_codes(message: Message) -> Iterator[int]:
    """Every error code in a response, at any depth."""
    for name, value in vars(message).items():
        if name == "error_code":
            yield value
        elif isinstance(value, Message):
            yield from error_codes(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    yield from error_codes(item)
