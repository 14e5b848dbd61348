"""A blocking connection to one broker, for Spark's executors and drivers, and tools.

Owns one socket and one Session. `call` sends a request and waits for its response; with `send` and `receive` several
requests can be in flight. Every failure of the connection raises ConnectionLost, which names the broker, and closes the
connection for good: make another. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from headrace.client.session import SIZE_BYTES, Session, frame_size
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.wire.messages import Buffer, Message
from headrace.world.net import Line, dial

Dial = Callable[[str, int, float], Line]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionLost(Exception):
    """The broker at `address` cannot be reached, or the connection to it ended."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"lost the broker at {address}: {why}")
        self.address = address
        self.why = why

    def __reduce__(self) -> tuple[type[ConnectionLost], tuple[Address, str]]:
        return ConnectionLost, (self.address, self.why)  # it travels from executor to driver


class ReceiveBuffer:
    """A buffer for responses that are processed before the next one is received.

    Reused memory costs nothing; fresh pages cost a page fault each, and a Fetch response has a thousand.
    """

    def __init__(self) -> None:
        self._room = bytearray()

    def view(self, size: int) -> memoryview:
        if len(self._room) < size:
            self._room = bytearray(size)
        return memoryview(self._room)[:size]


class BlockingConnection:
    def __init__(self, address: tuple[str, int], client_id: str, timeout_s: float = 30.0, dial: Dial = dial) -> None:
        self.address = Address(*address)
        self._timeout_s = timeout_s
        self._dial = dial
        self._session = Session(client_id)
        self._line: Line | None = None

    def open(self) -> None:
        """Connect, and ask for the broker's API versions."""
        try:
            self._line = self._dial(*self.address, self._timeout_s)
        except OSError as error:
            raise ConnectionLost(self.address, _reason(error)) from error
        self._write(self._session.ask_versions())
        answer = self.receive()
        try:
            self._session.versions_from(answer)
        except KafkaError as error:
            raise self._lose(f"{error}: {ErrorCode(answer.error_code).name}") from error

    @property
    def is_open(self) -> bool:
        return self._line is not None

    @property
    def open_requests(self) -> int:
        return self._session.open_requests

    def version_of(self, api_key: int) -> int:
        """The version that `send` would use."""
        return self._session.version_of(api_key)

    def call(
        self, api_key: int, message: Message, timeout_s: float | None = None, *, version: int | None = None
    ) -> Message:
        """Send a request and wait for the response; no other request may be in flight."""
        if self._session.open_requests:
            raise RuntimeError(f"{self._session.open_requests} requests are in flight: receive their responses first")
        self.send(api_key, message, version=version)
        return self.receive(timeout_s)

    def send(self, api_key: int, message: Message, *, version: int | None = None) -> None:
        """Send a request without waiting for its response."""
        if self._line is None:
            self.open()
        self._write(self._session.ask(api_key, message, version))

    def receive(self, timeout_s: float | None = None, buffer: ReceiveBuffer | None = None) -> Message:
        """The response to the oldest request in flight.

        `records` in it stay valid as long as they are referenced, or until the caller's buffer is reused.
        """
        if self._line is None:
            raise ConnectionLost(self.address, "the connection is closed")
        try:
            self._line.set_timeout(self._timeout_s if timeout_s is None else timeout_s)
            prefix = bytearray(SIZE_BYTES)
            self._line.receive_into(memoryview(prefix))
            size = frame_size(prefix)
            frame = memoryview(bytearray(size)) if buffer is None else buffer.view(size)
            self._line.receive_into(frame)
            return self._session.receive(frame)
        except (OSError, Malformed) as error:
            raise self._lose(_reason(error)) from error

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
            self._dial = _refuse

    def __enter__(self) -> BlockingConnection:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, frame: list[Buffer]) -> None:
        assert self._line is not None
        try:
            self._line.set_timeout(self._timeout_s)
            self._line.send(frame)
        except OSError as error:
            raise self._lose(_reason(error)) from error

    def _lose(self, why: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(self.address, why)


def _refuse(host: str, port: int, timeout_s: float) -> Line:
    raise ConnectionError("this connection was closed")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
