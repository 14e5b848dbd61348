"""Computing off the loop, simulated: the work is done inline, some time after it was asked for, one piece at a time.

Passes the same contract tests as the real thread (tests/contract/test_computing_contract.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

_SLOWEST_WORK_S = 0.02
T = TypeVar("T")


class SimComputing:
    def __init__(self, delays: random.Random | None = None) -> None:
        self._delays = delays
        self._turn = asyncio.Lock()

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        async with self._turn:
            await asyncio.sleep(0 if self._delays is None else self._delays.uniform(0, _SLOWEST_WORK_S))
            return work(*args)
