"""Readers: consumers without a group that read one partition at a time from its leader; and the final read.

A `Shelf` is one reader's access to partitions: it fetches from an offset on, decodes the batches, and skips control
records and, for `read_committed`, records of aborted transactions. Members of groups and pipes use it too. The caller
records what was fetched, since only the caller knows the purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import walk
from headrace.wire.end_markers import read_marker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.records import decode
from sim.clients.caller import Caller, Nobody
from sim.history.event import READ_COMMITTED, READ_UNCOMMITTED, Record
from sim.history.payload import record_from
from sim.history.recorder import Recorder

_BY_NAME = 12  # the last version of Fetch that names topics
_MAX_WAIT_MS = 500
_MAX_BYTES = 4096  # small, so that reading takes several fetches
Partition = tuple[str, int]


class Fetched(NamedTuple):
    records: list[Record]
    after: int  # where to go on
    leader_epoch: int
    high_watermark: int
    log_start: int = 0  # if that lies behind the offset that was asked for


class Shelf:
    def __init__(self, caller: Caller, isolation: str) -> None:
        self._caller = caller
        self._committed = isolation == READ_COMMITTED

    async def fetch(self, place: Partition, offset: int) -> Fetched | None:
        """The records from `offset` on; None on an error."""
        topic, index = place
        try:
            leader, epoch = await self._caller.leader(topic, index)
            answer = await self._caller.at(leader, ApiKey.FETCH, self._request(place, offset, epoch), _BY_NAME)
        except (ConnectionLost, Nobody):
            self._caller.forget_leader(topic, index)
            return None
        part = answer.responses[0].partitions[0] if answer.responses else None
        if part is not None and part.error_code == ErrorCode.offset_out_of_range:
            return await self._from_start(place, offset, epoch)
        if part is None or part.error_code != ErrorCode.none:
            self._caller.forget_leader(topic, index)
            return None
        records, after = self._open(f"{topic}-{index}", offset, part)
        return Fetched(records, after, epoch, part.high_watermark)

    async def _from_start(self, place: Partition, offset: int, epoch: int) -> Fetched | None:
        """Where to go on if the log begins behind this offset; None if it does not."""
        try:
            start = await self._caller.start_offset(*place)
        except (ConnectionLost, Nobody):
            return None
        return Fetched([], start, epoch, start, start) if start > offset else None

    async def poll(
        self,
        recorder: Recorder,
        proc: str,
        at: dict[Partition, int],
        place: Partition,
        *,
        marks: bool = False,
        **asked: Any,
    ) -> list[Record] | None:
        """A fetch that is recorded and advances `at`; with `marks`, the leader's high watermark is recorded too."""
        op = recorder.invoke(proc, "poll", **asked)
        found = await self.fetch(place, at[place])
        if found is None:
            recorder.info(op)
            return None
        more = {"marks": {f"{place[0]}-{place[1]}": (found.leader_epoch, found.high_watermark)}} if marks else {}
        recorder.ok(op, records=found.records, **more)
        if found.log_start:  # a leader took what lies before; another one may still have it when it leads
            recorder.happened(proc, "seek", offs={f"{place[0]}-{place[1]}": found.after})
        at[place] = found.after
        return found.records

    def _request(self, place: Partition, offset: int, epoch: int) -> Message:
        part = Message(
            partition=place[1],
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=_MAX_BYTES,
        )
        return Message(
            replica_id=-1,
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self._committed),
            session_id=0,
            session_epoch=-1,
            topics=[Message(topic=place[0], partitions=[part])],
        )

    def _open(self, tp: str, offset: int, part: Message) -> tuple[list[Record], int]:
        data = bytes(part.records or b"")
        aborted = sorted((txn.first_offset, txn.producer_id) for txn in part.aborted_transactions or ())
        if not self._committed:
            aborted = []
        records: list[Record] = []
        after = offset
        skipped: set[int] = set()
        for at, header in walk(data):
            after = max(after, header.next_offset)
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, at)
                if marker is not None and not marker.commit:
                    skipped.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipped:
                records += [record for record in _records(tp, data, at) if record.off >= offset]
        return records, after


def _records(tp: str, data: bytes, at: int) -> Iterator[Record]:
    for record in decode(data, at):
        headers = [(name, value or b"") for name, value in record.headers]
        yield record_from(tp, record.offset, record.key, record.value, headers, record.timestamp)


class Reader:
    """Reads these partitions from their beginning, and sometimes requests their ends."""

    def __init__(self, caller: Caller, recorder: Recorder, name: str, places: list[Partition], isolation: str) -> None:
        self._caller = caller
        self._recorder = recorder
        self._proc = f"{name}/1"
        self._at = dict.fromkeys(places, 0)
        self._shelf = Shelf(caller, isolation)
        recorder.happened(self._proc, "open", details={"isolation": isolation})

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for place in self._at:
                await self._poll(place)
                if self._caller.random.random() < 0.1:
                    await self._ask_end(place)

    async def catch_up(self) -> None:
        """Reads to the current ends of the partitions."""
        for place in self._at:
            end = await sure_end(self._caller, place)
            while self._at[place] < end:
                await self._poll(place)

    async def _poll(self, place: Partition) -> None:
        if await self._shelf.poll(self._recorder, self._proc, self._at, place, marks=True) is None:
            await self._caller.pause()

    async def _ask_end(self, place: Partition) -> None:
        details = {"at": "end"}
        op = self._recorder.invoke(self._proc, "list_offsets", tp=f"{place[0]}-{place[1]}", details=details)
        try:
            end = await self._caller.end_offset(*place)
        except (ConnectionLost, Nobody) as error:
            self._recorder.info(op, err=str(error))
        else:
            self._recorder.ok(op, off=end)


async def sure_end(caller: Caller, place: Partition, *, stable: bool = False) -> int:
    """The end of a partition; retried until there is a response."""
    while True:
        try:
            return await caller.end_offset(*place, stable=stable)
        except (ConnectionLost, Nobody):
            await caller.pause()


async def read_everything(caller: Caller, recorder: Recorder, places: list[Partition]) -> None:
    """The final read: every partition from its start to its end, once for each isolation."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        shelf = Shelf(caller, isolation)
        for place in places:
            end = await sure_end(caller, place, stable=isolation == READ_COMMITTED)
            records: list[Record] = []
            at = start = 0
            while at < end:
                found = await shelf.fetch(place, at)
                if found is None:
                    await caller.pause()
                    continue
                records += found.records
                at, start = found.after, max(start, found.log_start)
            details = {"isolation": isolation, "start": start, "end": end}
            recorder.happened("final-read", "final", tp=f"{place[0]}-{place[1]}", records=records, details=details)
