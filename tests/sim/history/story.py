"""Histories by hand, in few words: what the self-test's good and bad histories are told with.

Messages are written "uid@offset". Each event takes a millisecond; `later` lets time pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.history.event import READ_COMMITTED, READ_UNCOMMITTED, Event, Record
from sim.history.recorder import Recorder

Tale = Callable[["Story"], None]
A, B = "a-0", "b-0"  # the partitions of most stories


class Story:
    def __init__(self) -> None:
        self._now_ns = 0
        self.recorder = Recorder(self._tick)
        self._uids: dict[str, str | None] = {}  # uid -> src

    @property
    def events(self) -> list[Event]:
        return self.recorder.events

    def _tick(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    def now_ms(self) -> int:
        return self._now_ns // 1_000_000

    def later(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)

    def client(self, *procs: str, **details: Any) -> None:
        for proc in procs:
            self.recorder.happened(proc, "open", details=details)

    def producer(self, proc: str, **details: Any) -> None:
        self.client(proc, **({"idempotent": True} | details))

    def member(self, *procs: str, group: str = "g", **details: Any) -> None:
        for proc in procs:
            self.client(proc, group=group, **({"reset": "earliest"} | details))
            self.recorder.happened(proc, "join", group=group)

    # --- produce and consume -----------------------------------------------------------------------------------------

    def begin_send(self, proc: str, uid: str, tp: str | None = A, **said: Any) -> int:
        self._uids[uid] = said.get("src")
        return self.recorder.invoke(proc, "send", tp=tp, uid=uid, digest=f"sha-{uid}", **said)

    def send(self, proc: str, *places: str, tp: str = A, leader: int | None = None, **said: Any) -> None:
        for place in places:
            uid, _, off = place.partition("@")
            self.recorder.ok(self.begin_send(proc, uid, tp, **said), off=int(off), leader=leader)

    def doubtful_send(self, proc: str, *uids: str, tp: str = A, **said: Any) -> None:
        for uid in uids:
            self.recorder.info(self.begin_send(proc, uid, tp, **said), err="REQUEST_TIMED_OUT")

    def refused_send(self, proc: str, uid: str, tp: str = A) -> None:
        self.recorder.fail(self.begin_send(proc, uid, tp), err="MESSAGE_TOO_LARGE")

    def records(self, tp: str, places: tuple[str, ...]) -> list[Record]:
        found = []
        for place in places:
            name, _, off = place.partition("@")
            uid, _, key = name.partition("=")
            found.append(Record(tp, int(off), uid, f"sha-{uid}", key or None, self._uids.get(uid)))
        return found

    def poll(self, proc: str, *places: str, tp: str = A, **said: Any) -> None:
        op = self.recorder.invoke(proc, "poll", **({"txn": said["txn"]} if "txn" in said else {}))
        self.recorder.ok(op, records=self.records(tp, places), **said)

    def final(self, *places: str, tp: str = A, isolation: str = READ_UNCOMMITTED, **details: Any) -> None:
        details = {"isolation": isolation} | details
        self.recorder.happened("final", "final", tp=tp, records=self.records(tp, places), details=details)

    def committed_final(self, *places: str, tp: str = A, **details: Any) -> None:
        self.final(*places, tp=tp, isolation=READ_COMMITTED, **details)

    def ask_end(self, proc: str, off: int, tp: str = A, at: str = "end") -> None:
        self.recorder.ok(self.recorder.invoke(proc, "list_offsets", tp=tp, details={"at": at}), off=off)

    def happened(self, proc: str, f: str, **said: Any) -> None:
        self.recorder.happened(proc, f, **said)

    # --- delayed messages --------------------------------------------------------------------------------------------

    def clock(self, off_ms: int = 0) -> None:
        """The time is that of the history, and a broker's clock is wrong by this much."""
        self.happened("clock", "clock", details={"wall_ms": self._now_ns // 1_000_000 + 1, "off_ms": off_ms})

    def released(self, proc: str, *places: str, tp: str = A) -> None:
        """A poll of delayed messages, each as uid@offset:id:due."""
        found = []
        for place in places:
            name, key, due = place.split(":")
            (record,) = self.records(tp, (name,))
            found.append(record._replace(id=int(key), due=int(due)))
        self.recorder.ok(self.recorder.invoke(proc, "poll"), records=found)

    # --- groups ------------------------------------------------------------------------------------------------------

    def assign(self, proc: str, *tps: str, epoch: int | None = None, group: str = "g") -> None:
        self.happened(proc, "assign", group=group, offs=dict.fromkeys(tps or (A,)), epoch=epoch)

    def revoke(self, proc: str, *tps: str, f: str = "revoke", group: str = "g") -> None:
        self.happened(proc, f, group=group, offs=dict.fromkeys(tps or (A,)))

    def begin_commit(self, proc: str, off: int, meta: str, tp: str = A, **said: Any) -> int:
        f = "send_offsets" if "txn" in said else "commit"
        return self.recorder.invoke(proc, f, **({"group": "g", "offs": {tp: off}, "metas": {tp: meta}} | said))

    def commit(self, proc: str, off: int, meta: str, tp: str = A, **said: Any) -> None:
        self.recorder.ok(self.begin_commit(proc, off, meta, tp, **said))

    def begin_fetch(self, proc: str) -> int:
        return self.recorder.invoke(proc, "committed", group="g")

    def end_fetch(self, op: int, off: int, meta: str | None = None, tp: str = A) -> None:
        self.recorder.ok(op, offs={tp: off}, metas={tp: meta})

    def fetch(self, proc: str, off: int, meta: str | None = None, tp: str = A) -> None:
        self.end_fetch(self.begin_fetch(proc), off, meta, tp)

    # --- transactions ------------------------------------------------------------------------------------------------

    def transactional(self, *procs: str, txn_id: str = "t") -> None:
        for proc in procs:
            self.producer(proc, txn_id=txn_id)
            self.init(proc)

    def init(self, proc: str) -> None:
        self.recorder.ok(self.recorder.invoke(proc, "init"))

    def begin(self, proc: str, txn: str) -> None:
        self.happened(proc, "begin", txn=txn)

    def begin_end(self, proc: str, txn: str, commit: bool = True) -> int:
        return self.recorder.invoke(proc, "end", txn=txn, details={"commit": commit})

    def end(self, proc: str, txn: str, outcome: str = "ok", commit: bool = True) -> None:
        self.recorder.end(self.begin_end(proc, txn, commit), outcome)

    def abort(self, proc: str, txn: str) -> None:
        self.end(proc, txn, commit=False)

    # --- the log -----------------------------------------------------------------------------------------------------

    def batch(
        self, base: int, seq: int = 0, last: int | None = None, pid: int = 1, epoch: int = 0, **said: Any
    ) -> None:
        details = {"base": base, "last": base if last is None else last, "pid": pid, "epoch": epoch, "seq": seq}
        self.happened("scan", "batch", tp=A, details=details | {"txn": True} | said)

    def marker(self, base: int, control: str, pid: int = 1, epoch: int = 1) -> None:
        self.batch(base, seq=-1, pid=pid, epoch=epoch, control=control)

    def prepare(self, control: str, pid: int = 1, epoch: int = 1) -> None:
        self.happened("scan", "prepare", details={"pid": pid, "epoch": epoch, "control": control})


def told(tale: Tale) -> list[Event]:
    story = Story()
    tale(story)
    return story.events
