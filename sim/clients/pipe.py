"""An exactly-once pipe: its input offsets and its output are one transaction.

It assigns its input partitions itself. A session begins with InitProducerId, which fences the previous session and ends
its open transaction, and with the group's committed offsets. Each transaction then reads a few records, writes one
output for each, adds the new offsets, and commits, or sometimes aborts. Any permanent or lasting error ends the
session, and a new one begins, like a process that is restarted.
"""

from __future__ import annotations

import asyncio

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record as Stored
from headrace.world.clock import Clock
from sim.clients.caller import GROUP, TRANSACTION, Caller, Nobody
from sim.clients.member import offsets_told
from sim.clients.producer import STORED, Writer, batch_of, produce_request, told
from sim.clients.reader import Partition, Shelf
from sim.history.event import READ_COMMITTED, Record
from sim.history.recorder import Recorder

_BY_NAME = 12
_OFFSETS_BY_NAME = 8
_ATTEMPTS = 40
_TIMEOUT_MS = 15_000
_HOPELESS = (
    ErrorCode.invalid_producer_epoch,
    ErrorCode.producer_fenced,
    ErrorCode.transaction_abortable,
    ErrorCode.invalid_txn_state,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.unknown_producer_id,
    ErrorCode.invalid_producer_id_mapping,
)


class _Anew(Exception):
    """This session cannot continue."""


class Pipe:
    def __init__(
        self,
        caller: Caller,
        recorder: Recorder,
        clock: Clock,
        name: str,
        inputs: list[Partition],
        outputs: list[Partition],
    ) -> None:
        self._caller = caller
        self._recorder = recorder
        self._clock = clock
        self._name = name
        self._group = f"{name}-group"
        self._inputs = inputs
        self._outputs = outputs
        self._shelf = Shelf(caller, READ_COMMITTED)
        self._sessions = 0
        self._commits = 0
        self._at: dict[Partition, int] = {}

    async def run(self, stop: asyncio.Event) -> None:
        self._introduce()
        ended = False
        while not ended:
            ended = stop.is_set()  # one more session, which ends open transactions and records the final offsets
            try:
                await self._session(stop)
            except _Anew:
                ended = False
                await self._caller.pause()

    def _introduce(self) -> None:
        places = [[f"{topic}-{index}" for topic, index in side] for side in (self._inputs, self._outputs)]
        details = {"group": self._group, "inputs": places[0], "outputs": places[1], "mode": "exactly-once"}
        self._recorder.happened(self._name, "pipe", details=details)

    async def _session(self, stop: asyncio.Event) -> None:
        self._sessions += 1
        self._proc = f"{self._name}/{self._sessions}"
        details = {
            "txn_id": self._name,
            "txn_timeout_ms": _TIMEOUT_MS,
            "idempotent": True,
            "isolation": READ_COMMITTED,
            "group": self._group,
            "reset": "earliest",
        }
        self._recorder.happened(self._proc, "open", details=details)
        self._writer = Writer(self._recorder, self._clock, self._proc)
        self._identity = await self._init()
        await self._resume()
        number = 0
        while not stop.is_set():
            number += 1
            await self._transaction(f"{self._proc}#{number}")
            await asyncio.sleep(self._caller.random.uniform(0, 0.5))

    async def _init(self) -> tuple[int, int]:
        op = self._recorder.invoke(self._proc, "init")
        body = Message(
            transactional_id=self._name, transaction_timeout_ms=_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = await self._insist(TRANSACTION, self._name, ApiKey.INIT_PRODUCER_ID, body)
        self._recorder.ok(op)
        return answer.producer_id, answer.producer_epoch

    async def _resume(self) -> None:
        topics = [Message(name=topic, partition_indexes=[index]) for topic, index in self._inputs]
        asked = Message(group_id=self._group, topics=topics, member_id=None, member_epoch=-1)
        op = self._recorder.invoke(self._proc, "committed", group=self._group)
        for _ in range(_ATTEMPTS):
            answer = await self._insist(
                GROUP, self._group, ApiKey.OFFSET_FETCH, Message(groups=[asked], require_stable=True), _OFFSETS_BY_NAME
            )
            found = offsets_told(answer)
            if found is not None:
                self._at = {place: max(0, off) for place, (off, _) in found.items()}
                offs: dict[str, int | None] = {f"{t}-{i}": off for (t, i), (off, _) in found.items()}
                self._recorder.ok(op, offs=offs, metas={f"{t}-{i}": n or None for (t, i), (_, n) in found.items()})
                self._recorder.happened(self._proc, "seek", offs={f"{t}-{i}": off for (t, i), off in self._at.items()})
                return
            self._caller.forget_coordinator(GROUP, self._group)
            await self._caller.pause()
        raise _Anew

    # --- a transaction ----------------------------------------------------------------------------------------------

    async def _transaction(self, txn: str) -> None:
        before = dict(self._at)
        self._recorder.happened(self._proc, "begin", txn=txn)
        read: list[Record] = []
        for place in self._inputs:
            read += await self._shelf.poll(self._recorder, self._proc, self._at, place, txn=txn) or []
        if not read:
            return
        sides: dict[Partition, list[Record]] = {}
        for record in read:
            sides.setdefault(self._outputs[record.off % len(self._outputs)], []).append(record)
        for place, records in sides.items():
            await self._write(place, records, txn)
        await self._send_offsets(before, txn)
        commit = self._caller.random.random() < 0.85
        await self._end(txn, commit)
        if not commit:
            self._at = before
            self._recorder.happened(self._proc, "seek", offs={f"{t}-{i}": off for (t, i), off in before.items()})

    async def _write(self, place: Partition, records: list[Record], txn: str) -> None:
        tp = f"{place[0]}-{place[1]}"
        made = [self._writer.message(tp, b"", src=record.uid or "", txn=txn) for record in records]
        await self._store(place, made)

    async def _store(self, place: Partition, made: list[tuple[int, Stored]]) -> int:
        """Writes one batch in the transaction; its first offset, -1 if that is not known."""
        batch = batch_of([record for _, record in made], self._identity, 0, TRANSACTIONAL)
        for _ in range(_ATTEMPTS):
            try:
                leader, _ = await self._caller.leader(*place)
                request = produce_request(*place, batch, self._name)
                part = told(await self._caller.at(leader, ApiKey.PRODUCE, request, _BY_NAME))
            except (ConnectionLost, Nobody):
                self._caller.forget_leader(*place)
                await self._caller.pause()
                continue
            if part.error_code in STORED:
                for at, (op, _) in enumerate(made):
                    offset = {"off": part.base_offset + at} if part.base_offset >= 0 else {}
                    self._recorder.ok(op, **offset)
                return int(part.base_offset)
            self._caller.forget_leader(*place)
            _give_up_if_hopeless(part.error_code)
            await self._caller.pause()
        raise _Anew

    async def _send_offsets(self, before: dict[Partition, int], txn: str) -> None:
        moved = {place: off for place, off in self._at.items() if off != before[place]}
        self._commits += 1
        note = f"{self._proc}#{self._commits}"
        names = {f"{topic}-{index}": off for (topic, index), off in moved.items()}
        op = self._recorder.invoke(
            self._proc, "send_offsets", group=self._group, txn=txn, offs=names, metas=dict.fromkeys(names, note)
        )
        topics = [
            Message(
                name=topic,
                partitions=[Message(partition_index=index, committed_offset=off, committed_metadata=note)],
            )
            for (topic, index), off in moved.items()
        ]
        body = Message(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            generation_id=-1,
            member_id="",
            topics=topics,
        )
        for _ in range(_ATTEMPTS):
            answer = await self._insist(GROUP, self._group, ApiKey.TXN_OFFSET_COMMIT, body)
            codes = [part.error_code for topic in answer.topics for part in topic.partitions]
            if all(code == ErrorCode.none for code in codes):
                self._recorder.ok(op)
                return
            for code in codes:
                _give_up_if_hopeless(code)
            self._caller.forget_coordinator(GROUP, self._group)
            await self._caller.pause()
        raise _Anew

    async def _end(self, txn: str, commit: bool) -> None:
        op = self._recorder.invoke(self._proc, "end", txn=txn, details={"commit": commit})
        body = Message(
            transactional_id=self._name,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        try:
            answer = await self._insist(TRANSACTION, self._name, ApiKey.END_TXN, body)
        except _Anew:
            self._recorder.info(op)
            raise
        self._recorder.ok(op)
        self._identity = (answer.producer_id, answer.producer_epoch)

    async def _insist(self, kind: int, key: str, api_key: int, body: Message, version: int | None = None) -> Message:
        """The coordinator's response; retried on retriable errors."""
        for _ in range(_ATTEMPTS):
            try:
                answer = await self._caller.at_coordinator(kind, key, api_key, body, version)
            except (ConnectionLost, Nobody):
                self._caller.forget_coordinator(kind, key)
                await self._caller.pause()
                continue
            code = getattr(answer, "error_code", ErrorCode.none)
            if code == ErrorCode.none:
                return answer
            _give_up_if_hopeless(code)
            self._caller.forget_coordinator(kind, key)
            await self._caller.pause()
        raise _Anew


def _give_up_if_hopeless(code: int) -> None:
    if code in _HOPELESS:
        raise _Anew
