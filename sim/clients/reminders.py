"""A producer that sends delayed messages in transactions: they are released only if, and after, these commit."""

from __future__ import annotations

import asyncio

from headrace.world.clock import Clock
from sim.clients.caller import Caller
from sim.clients.orders import Orders
from sim.clients.pipe import Pipe
from sim.clients.reader import Partition
from sim.history.recorder import Recorder


class Reminders(Pipe):
    """A pipe without input."""

    def __init__(
        self, caller: Caller, recorder: Recorder, clock: Clock, name: str, outputs: list[Partition], orders: Orders
    ) -> None:
        super().__init__(caller, recorder, clock, name, [], outputs)
        self._orders = orders

    def _introduce(self) -> None:
        pass

    async def _resume(self) -> None:
        pass

    async def _transaction(self, txn: str) -> None:
        chance = self._caller.random
        await asyncio.sleep(chance.uniform(0, 2))
        self._recorder.happened(self._proc, "begin", txn=txn)
        for place in chance.sample(self._outputs, chance.randint(1, 2)):
            tp, made = f"{place[0]}-{place[1]}", []
            for _ in range(chance.randint(1, 3)):
                made.append(self._writer.message(tp, b"", txn=txn, order=self._orders.draw(chance)))
            await self._store(place, made)
            await asyncio.sleep(chance.choice((0, 0.2, 3)))
        await self._end(txn, chance.random() < 0.7)
