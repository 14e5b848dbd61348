"""An asyncio connection to one broker, for followers and for brokers that forward requests.

Owns one socket and one Session. Any number of calls may be in flight; responses come in the order of the calls. Every
failure ends the connection: each pending call, and each later one, raises ConnectionLost, which names the broker; to
continue, make another connection. A call that times out ends the connection too, since the responses behind it could
not come either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from headrace.client.blocking import Address, ConnectionLost
from headrace.client.session import SIZE_BYTES, Session, frame_size
from headrace.wire.errors import KafkaError, Malformed
from headrace.wire.messages import Buffer, Message
from headrace.world.clock import Clock, Timer
from headrace.world.net import Net


class Connection(asyncio.BufferedProtocol):
    def __init__(self, net: Net, clock: Clock, host: str, port: int, client_id: str, timeout_s: float = 30.0) -> None:
        self.address = Address(host, port)
        self._net = net
        self._clock = clock
        self._timeout_s = timeout_s
        self._session = Session(client_id)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Message], Timer]] = deque()  # each with its timeout
        self._frame = bytearray(SIZE_BYTES)  # being received: first a size, then that many bytes
        self._filled = 0
        self._sized = False
        self._lost: ConnectionLost | None = None

    # --- calls --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and ask for the broker's API versions. Raises ConnectionLost."""
        connecting = asyncio.ensure_future(self._net.connect(self.address.host, self.address.port, lambda: self))
        timer = self._clock.call_later(self._timeout_s, connecting.cancel)
        try:
            await connecting
        except OSError as error:
            raise self._end(error.strerror or str(error)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._end(f"no answer for {self._timeout_s:g} s") from None
        finally:
            timer.cancel()
        answer = await self._send(self._session.ask_versions(), self._timeout_s)
        try:
            self._session.versions_from(answer)
        except KafkaError as error:
            raise self._end(str(error)) from error

    async def call(
        self, api_key: int, message: Message, version: int | None = None, *, timeout_s: float | None = None
    ) -> Message:
        """The response. `timeout_s` counts from now, also while earlier calls are still pending."""
        return await self.send(api_key, message, version, timeout_s=timeout_s)

    def send(
        self, api_key: int, message: Message, version: int | None = None, *, timeout_s: float | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; the future is its response."""
        if self._lost is not None:
            raise self._lost
        return self._send(self._session.ask(api_key, message, version), timeout_s or self._timeout_s)

    def version_of(self, api_key: int) -> int:
        """The version in which this API will be called; KafkaError if the broker does not serve it."""
        return self._session.version_of(api_key)

    @property
    def is_open(self) -> bool:
        return self._lost is None and self._transport is not None

    def close(self) -> None:
        self._end("it was closed here")

    def _send(self, frame: list[Buffer], timeout_s: float) -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._lost is not None or self._transport is None:
            answer.set_exception(self._lost or ConnectionLost(self.address, "it is not open"))
            return answer
        timer = self._clock.call_later(timeout_s, self._end, f"no answer for {timeout_s:g} s")
        self._waiting.append((answer, timer))
        self._transport.writelines(frame)
        return answer

    def _end(self, why: str) -> ConnectionLost:
        lost = self._lost = self._lost or ConnectionLost(self.address, why)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        while self._waiting:
            answer, timer = self._waiting.popleft()
            timer.cancel()
            if not answer.done():
                answer.set_exception(lost)
                answer.exception()  # marks it as retrieved, in case nobody awaits it
        return lost

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._lost is not None:  # connecting took too long and was given up
            cast("asyncio.Transport", transport).abort()
            return
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(str(exc) if exc is not None else "the broker closed it")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        frame, self._filled = self._frame, 0
        try:
            if self._sized:
                self._frame, self._sized = bytearray(SIZE_BYTES), False
                self._received(memoryview(frame))
            else:
                self._frame, self._sized = bytearray(frame_size(frame)), True
        except (Malformed, KafkaError) as error:
            self._end(str(error))

    def _received(self, frame: memoryview) -> None:
        message = self._session.receive(frame)
        answer, timer = self._waiting.popleft()
        timer.cancel()
        if not answer.done():
            answer.set_result(message)
