"""Requests that confluent-kafka does not offer, sent directly to the broker that must answer.

Called by the commands for transactions and share groups, and by `cluster balance`. One blocking connection per broker,
one request at a time; leaders and coordinators are looked up first. Invariant: every connection error is a Failure that
names the broker; error codes in a response are for the caller.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import TracebackType

from headrace.cli.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, reach
from headrace.cli.options import parse_brokers
from headrace.model.failure import Failure
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, Malformed
from headrace.wire.messages import Message, decode_response, encode_request, header_version

Address = tuple[str, int]

_METADATA_VERSION = 9
_FIND_COORDINATOR_VERSION = 4
_CLIENT_ID = b"headrace-cli"
_GROUP, _TRANSACTION = 0, 1  # the key types of FindCoordinator
_MAX_RESPONSE_BYTES = 1 << 30


class DirectRequests:
    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._sockets: dict[Address, socket.socket] = {}
        self._metadata: Message | None = None
        self._versions: dict[Address, dict[int, tuple[int, int]]] = {}

    def __enter__(self) -> DirectRequests:
        reach(self._broker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._sockets.values():
            connection.close()

    # --- brokers, leaders and coordinators ----------------------------------------------------------------------------

    def brokers(self) -> list[Address]:
        return [(broker.host, broker.port) for broker in self._cluster().brokers]

    def partitions(self) -> Iterator[tuple[str, int, Address]]:
        """Every partition with a leader, and the leader's address."""
        cluster = self._cluster()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in cluster.brokers}
        for topic in cluster.topics:
            for partition in topic.partitions:
                if partition.leader_id in addresses:
                    yield topic.name, partition.partition_index, addresses[partition.leader_id]

    def coordinator_of(self, transactional_id: str) -> Address:
        return self._coordinator(_TRANSACTION, transactional_id, f"transactional id {transactional_id}")

    def group_coordinator_of(self, group: str) -> Address:
        return self._coordinator(_GROUP, group, f"group {group}")

    def _coordinator(self, kind: int, key: str, who: str) -> Address:
        body = Message(key_type=kind, coordinator_keys=[key])
        (found,) = self.anywhere(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, body).coordinators
        if found.error_code != ErrorCode.none:
            why = found.error_message or ErrorCode(found.error_code).name
            raise Failure(f"{who} has no coordinator: {why}")
        return found.host, found.port

    def serves(self, address: Address, api_key: int, version: int) -> bool:
        """Whether this broker has the API in this version."""
        if address not in self._versions:
            answer = self.call(address, ApiKey.API_VERSIONS, 0, Message())
            self._versions[address] = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        low, high = self._versions[address].get(api_key, (0, -1))
        return low <= version <= high

    def metadata(self) -> Message:
        """Metadata of the whole cluster, not cached."""
        self._metadata = None
        return self._cluster()

    def _cluster(self) -> Message:
        if self._metadata is None:
            self._metadata = self.anywhere(ApiKey.METADATA, _METADATA_VERSION, Message(topics=None))
        return self._metadata

    def anywhere(self, api_key: int, version: int, body: Message) -> Message:
        """The response of the first broker in the list that answers."""
        failure: Failure | None = None
        for address in parse_brokers(self._broker):
            try:
                return self.call(address, api_key, version, body)
            except Failure as error:
                failure = error
        assert failure is not None
        raise failure

    # --- one request ------------------------------------------------------------------------------------------------

    def call(self, address: Address, api_key: int, version: int, body: Message) -> Message:
        tags = b"\x00" if header_version(api_key, version, "request") >= 2 else b""
        head = struct.pack(">hhih", api_key, version, 0, len(_CLIENT_ID)) + _CLIENT_ID + tags
        frame = head + encode_request(api_key, version, body)
        try:
            connection = self._sockets.get(address)
            if connection is None:
                connection = self._sockets[address] = socket.create_connection(address, CONNECT_TIMEOUT_S)
                connection.settimeout(REQUEST_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 4 <= size <= _MAX_RESPONSE_BYTES:
                raise Malformed(f"a response of {size} bytes")
            answer = _exactly(connection, size)
            at = 5 if header_version(api_key, version, "response") >= 1 else 4
            return decode_response(api_key, version, memoryview(answer), at)
        except (OSError, Malformed) as error:
            reason = str(error) or "no answer"
            raise Failure(
                f"the broker at {address[0]}:{address[1]} does not answer as a Kafka broker ({reason}): "
                "is the address right?"
            ) from None


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("it closed the connection; is it too old for this request?")
        data += more
    return bytes(data)
