"""A client that can say anything: one socket, one request at a time, any API and version, and also nonsense."""

from __future__ import annotations

import socket
import struct

from headrace.wire.messages import Message, decode_response, encode_request, header_version


class RawClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: Message) -> int:
        """Send a request and do not wait; its correlation id."""
        self._correlation_id += 1
        tags = b"\x00" if header_version(api_key, version, "request") >= 2 else b""
        head = struct.pack(">hhih", api_key, version, self._correlation_id, 3) + b"raw" + tags
        self.send_frame(head + encode_request(api_key, version, body))
        return self._correlation_id

    def receive(self, api_key: int, version: int) -> tuple[int, Message]:
        frame = self.receive_frame()
        at = 5 if header_version(api_key, version, "response") >= 1 else 4
        return struct.unpack_from(">i", frame)[0], decode_response(api_key, version, memoryview(frame), at)

    def call(self, api_key: int, version: int, body: Message) -> Message:
        sent = self.send(api_key, version, body)
        received, response = self.receive(api_key, version)
        assert received == sent
        return response

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def closed_by_peer(self) -> bool:
        """True if the next thing that arrives is the end of the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)
