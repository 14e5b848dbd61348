"""A client that cancels and moves delayed messages, one request at a time, as an idempotent producer.

A request that was not answered is sent again, with the same sequence, until it is; so a cancel that took effect and
whose answer was lost must be answered as done, not refused as of something that is not pending any more. Only a refusal
of the message itself is an end without effect.
"""

from __future__ import annotations

import asyncio

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.world.clock import Clock
from sim.clients.caller import Caller, Nobody
from sim.clients.orders import Order, Orders, cancel, cancel_key, move
from sim.clients.producer import STORED, Writer, batch_of, produce_request, told
from sim.history.outcomes import outcome
from sim.history.recorder import Recorder

_BY_NAME = 12
_PER_SECOND = 0.8
_RECENT = 40  # of the messages that are known, those that may still be pending
_ATTEMPTS = 40


class Changer:
    def __init__(self, caller: Caller, recorder: Recorder, clock: Clock, name: str, orders: Orders) -> None:
        self._caller = caller
        self._recorder = recorder
        self._clock = clock
        self._name = name
        self._orders = orders
        self._sessions = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._sessions += 1
            proc = f"{self._name}/{self._sessions}"
            self._recorder.happened(proc, "open", details={"acks": "all", "idempotent": True, "in_flight": 1})
            await self._session(stop, Writer(self._recorder, self._clock, proc))
            self._recorder.happened(proc, "close")

    async def _session(self, stop: asyncio.Event, writer: Writer) -> None:
        """Until it is not known whether a request took effect, or to the end."""
        identity = await self._caller.producer_id()
        sequences: dict[str, int] = {}
        while not stop.is_set():
            await asyncio.sleep(self._caller.random.expovariate(_PER_SECOND))
            drawn = self._draw()
            if drawn is None:
                continue
            tp, order = drawn
            op, record = writer.message(tp, b"", order=order)
            stored = await self._send(tp, op, record, identity, sequences.get(tp, 0))
            if stored is None:
                return
            sequences[tp] = sequences.get(tp, 0) + int(stored)

    def _draw(self) -> tuple[str, Order] | None:
        chance, known = self._caller.random, self._orders.known
        if not known:
            return None
        target = chance.choice(known[-_RECENT:] if chance.random() < 0.7 else known)
        kind = chance.random()
        if kind < 0.1:
            return target.tp, cancel_key(f"k{chance.randrange(10)}")
        return target.tp, cancel(target) if kind < 0.5 else move(target, self._orders.time(chance))

    async def _send(self, tp: str, op: int, record: Record, identity: tuple[int, int], sequence: int) -> bool | None:
        """Whether it was stored; None if that is not known."""
        topic, _, index = tp.rpartition("-")
        batch = batch_of([record], identity, sequence)
        err = "_TIMED_OUT"
        for _ in range(_ATTEMPTS):
            try:
                place, _ = await self._caller.leader(topic, int(index))
                request: Message = produce_request(topic, int(index), batch)
                part = told(await self._caller.at(place, ApiKey.PRODUCE, request, _BY_NAME))
            except (ConnectionLost, Nobody):
                self._caller.forget_leader(topic, int(index))
                await self._caller.pause()
                continue
            if part.error_code in STORED:
                self._recorder.ok(op, **({"off": part.base_offset} if part.base_offset >= 0 else {}))
                return True
            err = ErrorCode(part.error_code).name.upper()
            if part.error_code == ErrorCode.invalid_record:
                self._recorder.end(op, outcome("send", err, tried_once=False), err=err)
                return False
            self._caller.forget_leader(topic, int(index))
            await self._caller.pause()
        self._recorder.info(op, err=err)
        return None
