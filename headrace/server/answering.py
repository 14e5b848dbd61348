"""What a connection asks of whoever answers its requests: the dispatcher, or a fake in tests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from headrace.api.contract import Caller

Buffer = bytes | bytearray | memoryview


class Pending(Protocol):
    """A reply that is not known yet."""

    @property
    def awaited(self) -> Awaitable[Any]: ...

    def finish(self, result: Any) -> list[Buffer] | Pending | None:
        """As `Dispatch`, once what was awaited is there."""
        ...

    @property
    def holds(self) -> bool:
        """Whether no other request of this connection may be handled before that."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Of a request that `holds`: how much of it was copied and is kept until then."""
        ...


class Dispatch(Protocol):
    def __call__(self, frame: memoryview, caller: Caller) -> list[Buffer] | Pending | None:
        """Handle one request: its reply with size and header, a pending one, or None for no reply."""
        ...
