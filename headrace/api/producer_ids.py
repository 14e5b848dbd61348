"""Allocates producer ids from blocks that are reserved in the metadata store, so that each is used only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator


class ProducerIds:
    def __init__(self, reserve: Callable[[], Awaitable[range]]) -> None:
        self._reserve = reserve
        self._block: Iterator[int] = iter(())
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        async with self._refill:
            found = next(self._block, None)
            while found is None:
                self._block = iter(await self._reserve())
                found = next(self._block, None)
            return found
