"""Brokers of a cluster in memory: each connection is a Line that answers from plain functions."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence

from headrace.client.blocking import Address
from headrace.wire.frames import parse_request_header, response_prefix
from headrace.wire.messages import Buffer, Message, decode_request, encode_response

Answer = Callable[[int, Message], Message | None]

API_VERSIONS = 18
VERSIONS = Message(
    error_code=0,
    api_keys=[
        Message(api_key=key, min_version=0, max_version=highest)
        for key, highest in ((1, 12), (2, 7), (3, 12), (10, 4), (18, 4), (26, 3))
    ],
)


class FakeLine:
    """One connection: what is sent is answered at once, None hangs up."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._incoming = bytearray()
        self.closed = False
        self.timeouts: list[float] = []

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self.closed:
            raise ConnectionError("closed")
        frame = memoryview(b"".join(buffers))[4:]
        api_key, version, number, at = parse_request_header(frame)
        asked = decode_request(api_key, version, frame, at)
        answer = VERSIONS if api_key == API_VERSIONS else self._answer(api_key, asked)
        if answer is None:
            self.closed = True
            return
        body = b"".join(encode_response(api_key, version, answer))
        reply = response_prefix(api_key, version, number) + body
        self._incoming += struct.pack(">i", len(reply)) + reply

    def receive_into(self, buffer: memoryview) -> None:
        if len(self._incoming) < len(buffer):
            raise ConnectionError("it hung up")
        buffer[:] = self._incoming[: len(buffer)]
        del self._incoming[: len(buffer)]

    def set_timeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def close(self) -> None:
        self.closed = True


class FakeNet:
    """Who is at which address; an address without an answer refuses connections."""

    def __init__(self) -> None:
        self.answers: dict[Address, Answer] = {}
        self.dialled: deque[Address] = deque()
        self.lines: list[FakeLine] = []

    def dial(self, host: str, port: int, timeout_s: float) -> FakeLine:
        address = Address(host, port)
        self.dialled.append(address)
        if address not in self.answers:
            raise ConnectionRefusedError("connection refused")
        line = FakeLine(self.answers[address])
        self.lines.append(line)
        return line
