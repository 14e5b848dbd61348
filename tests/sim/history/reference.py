"""A broker that cannot be wrong, small enough to be read at one go, and clients that overlap on it.

Every client is a generator that pauses between the beginning of an operation, its effect and its end; chance decides
who goes on. So operations overlap, take effect although they time out, or time out and never happen, members take
over from each other and transactional producers fence each other, as in life. What comes out is a history in which
nothing is wrong. Used by test_random_histories.py.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from sim.history.event import FAIL, INFO, OK, READ_COMMITTED, READ_UNCOMMITTED, Event, Record
from tests.sim.history.story import A, B, Story

Steps = Iterator[None]
MOST_STEPS = 100_000


@dataclass
class Entry:
    """One batch of the log: a message or a marker."""

    off: int
    uid: str | None
    pid: int
    epoch: int
    seq: int = -1
    src: str | None = None
    txn: str | None = None
    control: str | None = None
    due: int | None = None
    id: int | None = None


@dataclass
class Txn:
    name: str
    pid: int
    epoch: int
    first: dict[str, int] = field(default_factory=dict)  # where its data begins, by partition without marker
    offsets: list[tuple[str, str, int, str]] = field(default_factory=list)
    decision: str | None = None


class Reference:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.story = Story()
        self.log: dict[str, list[Entry]] = {A: [], B: []}
        self.registers: dict[tuple[str, str], tuple[int, str]] = {}
        self.sequences: dict[tuple[str, int, int], int] = defaultdict(int)
        self.open: dict[str, Txn] = {}
        self.aborted: set[str] = set()
        self.epochs: dict[str, int] = {}  # transactional id -> epoch
        self.counter = 0
        self.waiting: dict[int, tuple[int, str, str]] = {}  # delayed messages of A: id -> due time, uid, key
        self.generation = 0  # of the pipe's group

    # --- the broker --------------------------------------------------------------------------------------------------

    def append(self, tp: str, uid: str, pid: int, epoch: int, src: str | None = None, txn: Txn | None = None) -> int:
        off = len(self.log[tp])
        seq = self.sequences[tp, pid, epoch]
        self.sequences[tp, pid, epoch] += 1
        self.log[tp].append(Entry(off, uid, pid, epoch, seq, src, txn.name if txn else None))
        if txn is not None:
            self.open[txn.name] = txn
            txn.first.setdefault(tp, off)
        return off

    def decide(self, txn: Txn, decision: str) -> None:
        if txn.decision is None:
            txn.decision = decision
            self.story.prepare(decision, txn.pid, txn.epoch + 1)

    def markers(self, txn: Txn) -> Steps:
        """The coordinator's work after a decision, a partition at a time."""
        assert txn.decision is not None
        if txn.decision == "abort":
            self.aborted.add(txn.name)
        for tp in sorted(txn.first):
            yield
            self.log[tp].append(Entry(len(self.log[tp]), None, txn.pid, txn.epoch + 1, control=txn.decision))
            del txn.first[tp]
        yield
        if txn.decision == "commit":
            for group, tp, off, meta in txn.offsets:
                self.registers[group, tp] = (off, meta)
        self.open.pop(txn.name, None)

    def stable(self, tp: str) -> int:
        return min((txn.first[tp] for txn in self.open.values() if tp in txn.first), default=len(self.log[tp]))

    def read(self, tp: str, position: int, count: int, isolation: str) -> list[Record]:
        end = self.stable(tp) if isolation == READ_COMMITTED else len(self.log[tp])
        found = []
        for entry in self.log[tp][position:end]:
            if entry.uid is None or (isolation == READ_COMMITTED and entry.txn in self.aborted):
                continue
            sha = f"sha-{entry.uid}"
            found.append(Record(tp, entry.off, entry.uid, sha, None, entry.src, entry.due, entry.id))
            if len(found) == count:
                break
        return found

    # --- delayed messages --------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.story.now_ms()

    def empty(self, pid: int) -> int:
        """The place of a message that is kept back, or of a cancel."""
        off, seq = len(self.log[A]), self.sequences[A, pid, 0]
        self.sequences[A, pid, 0] += 1
        self.log[A].append(Entry(off, None, pid, 0, seq))
        return off

    def release(self, limit: int = 3) -> None:
        """Some of what is due, in order."""
        due = sorted((due, key) for key, (due, _, _) in self.waiting.items() if due <= self.now_ms())
        for due_ms, key in due[:limit]:
            _, uid, _ = self.waiting.pop(key)
            self.log[A].append(Entry(len(self.log[A]), uid, -1, -1, due=due_ms, id=key))

    def scheduler(self, proc: str, pid: int, count: int) -> Steps:
        """Sends messages that are due soon, and cancels some."""
        self.story.producer(proc)
        known: list[str] = []
        for _ in range(count):
            uid, key = self.fresh("d"), self.rng.choice("kl")
            target, change = self.rng.choice(known or [""]), self.rng.random() < 0.3
            delay_ms = self.rng.randint(0, 60)
            order = ({"cancel": target} if self.rng.random() < 0.6 else {"cancel_key": key}) if change else {}
            op = self.story.begin_send(proc, uid, A, key=key, details=order or {"delay_ms": delay_ms})
            yield
            lost = self.rng.random() < 0.1
            found = [
                i
                for i, (_, other, k) in self.waiting.items()
                if order.get("cancel") == other or order.get("cancel_key") == k
            ]
            if change and not found and not lost:
                yield
                self.story.recorder.fail(op, err="INVALID_RECORD")
                continue
            off = -1 if lost else self.empty(pid)
            if not lost and not change:
                self.waiting[off] = (self.now_ms() + delay_ms, uid, key)
            for gone in [] if lost else found:
                del self.waiting[gone]
            yield
            if lost or self.rng.random() < 0.1:
                self.story.recorder.info(op, err="REQUEST_TIMED_OUT")
            else:
                self.story.recorder.ok(op, off=off)
            if not change:
                known.append(uid)
            yield

    # --- clients -----------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def producer(self, proc: str, pid: int, count: int) -> Steps:
        self.story.producer(proc)
        epoch = 0
        for _ in range(count):
            tp, uid = self.rng.choice((A, B)), self.fresh("m")
            op = self.story.begin_send(proc, uid, tp, epoch=epoch)
            yield
            fate = self.rng.choices((OK, INFO, "lost", FAIL), (10, 1, 1, 1))[0]
            if fate in (OK, INFO):
                off = self.append(tp, uid, pid, epoch)
            yield
            if fate == OK:
                self.story.recorder.ok(op, off=off, leader=0)
            elif fate == FAIL:
                self.story.recorder.fail(op, err="MESSAGE_TOO_LARGE")
            else:
                self.story.recorder.info(op, err="REQUEST_TIMED_OUT")
            if fate == "lost":
                epoch += 1
            yield

    def reader(self, proc: str, isolation: str, count: int) -> Steps:
        self.story.client(proc, isolation=isolation)
        position = {A: 0, B: 0}
        for _ in range(count):
            tp = self.rng.choice((A, B))
            yield from self.poll(proc, tp, position, isolation)
            at = "end" if isolation == READ_UNCOMMITTED else "stable"
            op = self.story.recorder.invoke(proc, "list_offsets", tp=tp, details={"at": at})
            yield
            off = len(self.log[tp]) if at == "end" else self.stable(tp)
            yield
            self.story.recorder.ok(op, off=off)

    def poll(
        self, proc: str, tp: str, position: dict[str, int], isolation: str, txn: str | None = None
    ) -> Generator[None, None, list[Record]]:
        op = self.story.recorder.invoke(proc, "poll", **({"txn": txn} if txn else {}))
        yield
        records = self.read(tp, position[tp], self.rng.randint(1, 4), isolation)
        if records:
            position[tp] = records[-1].off + 1
        yield
        self.story.recorder.ok(op, records=records, **({"txn": txn} if txn else {}))
        return records

    def commit(self, proc: str, tp: str, off: int, epoch: int) -> Steps:
        meta = self.fresh("c")
        op = self.story.begin_commit(proc, off, meta, tp, epoch=epoch)
        yield
        fate = self.rng.choices((OK, INFO, "lost"), (8, 1, 1))[0]
        if fate != "lost":
            self.registers["g", tp] = (off, meta)
        yield
        self.story.recorder.end(op, OK if fate == OK else INFO)

    def fetch(self, proc: str, group: str, tp: str) -> Steps:
        op = self.story.recorder.invoke(proc, "committed", group=group)
        yield
        while any(key[:2] == (group, tp) for txn in self.open.values() if txn.decision for key in txn.offsets):
            yield  # those who read committed data wait until it is clear
        off, meta = self.registers.get((group, tp), (-1, None))
        yield
        self.story.recorder.ok(op, offs={tp: off}, metas={tp: meta})

    def member(self, proc: str, tps: list[str], epoch: int) -> Steps:
        """What a member does with its partitions in one generation."""
        position = {tp: max(self.registers.get(("g", tp), (0, ""))[0], 0) for tp in tps}
        for _ in range(self.rng.randint(0, 4)):
            tp = self.rng.choice(tps)
            before = position[tp]
            yield from self.poll(proc, tp, position, READ_COMMITTED)
            if position[tp] > before and self.rng.random() < 0.7:
                yield from self.commit(proc, tp, position[tp], epoch)
            if self.rng.random() < 0.3:
                yield from self.fetch(proc, "g", self.rng.choice((A, B)))

    def group(self, generations: int) -> Steps:
        procs = ["c", "d"]
        self.story.member(*procs)
        for epoch in range(1, generations + 1):
            owners = {tp: self.rng.choice(procs) for tp in (A, B)}
            busy = []
            for proc in procs:
                if tps := [tp for tp in owners if owners[tp] == proc]:
                    self.story.assign(proc, *tps, epoch=epoch)
                    busy.append((proc, tps))
                    yield
            yield from self.interleaved([self.member(proc, tps, epoch) for proc, tps in busy])
            for proc, tps in busy:
                self.story.revoke(proc, *tps)
                yield
            self.story.member(self.rng.choice(procs))  # a change of its subscription makes the next generation

    def worker(self, proc: str, rounds: int) -> Steps:
        """A pipe from A to B, exactly once, until it ends or is replaced by the next."""
        self.story.producer(f"{proc}/p", txn_id="pipe")
        self.story.member(f"{proc}/c", group="pipes")
        op = self.story.recorder.invoke(f"{proc}/p", "init")
        yield
        epoch = self.epochs["pipe"] = self.epochs.get("pipe", -2) + 2
        for txn in [txn for txn in self.open.values() if txn.pid == 100]:
            self.decide(txn, "abort")
        while any(txn.pid == 100 for txn in self.open.values()):
            yield
        self.story.recorder.ok(op, epoch=epoch)
        self.generation += 1
        self.story.assign(f"{proc}/c", A, group="pipes", epoch=self.generation)
        position = {A: self.registers.get(("pipes", A), (0, ""))[0]}
        for _ in range(rounds):
            txn = Txn(self.fresh("t"), 100, epoch)
            self.story.begin(f"{proc}/p", txn.name)
            records = yield from self.poll(f"{proc}/c", A, position, READ_COMMITTED, txn.name)
            if not (yield from self.fill(f"{proc}/p", txn, records, position[A], epoch)):
                return
            epoch += 1

    def fill(self, proc: str, txn: Txn, inputs: list[Record], upto: int, epoch: int) -> Generator[None, None, bool]:
        """Outputs, offsets and the end of one transaction; False if its worker has to give up."""
        for record in inputs:
            uid = self.fresh("o")
            op = self.story.begin_send(proc, uid, B, txn=txn.name, src=record.uid)
            yield
            if self.epochs["pipe"] != epoch or txn.decision:
                self.story.recorder.fail(op, err="PRODUCER_FENCED")
                return False
            off = self.append(B, uid, 100, txn.epoch, record.uid, txn)
            yield
            self.story.recorder.ok(op, off=off)
        meta = self.fresh("o")
        op = self.story.recorder.invoke(
            proc, "send_offsets", group="pipes", offs={A: upto}, metas={A: meta}, txn=txn.name
        )
        yield
        if self.epochs["pipe"] != epoch or txn.decision:
            self.story.recorder.fail(op, err="PRODUCER_FENCED")
            return False
        self.open[txn.name] = txn
        txn.offsets.append(("pipes", A, upto, meta))
        self.story.recorder.ok(op)
        fate = self.rng.choices(("commit", "abort", INFO, "lost"), (6, 1, 1, 1))[0]
        op = self.story.begin_end(proc, txn.name, fate != "abort")
        yield
        if self.epochs["pipe"] != epoch or txn.decision:
            self.story.recorder.fail(op, err="PRODUCER_FENCED")
            return False
        if fate != "lost":
            self.decide(txn, "abort" if fate == "abort" else "commit")
            self.epochs["pipe"] += 1
        yield
        if fate in ("commit", "abort"):
            self.story.recorder.ok(op)
        else:
            self.story.recorder.info(op, err="_TIMED_OUT")
        while txn.decision and txn.name in self.open:
            yield
        return fate == "commit"

    def workers(self, count: int) -> Steps:
        """One worker after the other; sometimes the next one comes while the last is still at it."""
        running: list[Steps] = []
        for number in range(count):
            running.append(self.worker(f"w{number}", self.rng.randint(1, 4)))
            for _ in range(self.rng.randint(5, 60)):
                running = [steps for steps in running if next(steps, self) is not self]
                yield
        yield from self.interleaved(running)

    def coordinator(self) -> Steps:
        """Writes markers; ends when the story does."""
        while True:
            for txn in [txn for txn in self.open.values() if txn.decision]:
                yield from self.markers(txn)
            yield

    # --- the story ---------------------------------------------------------------------------------------------------

    def interleaved(self, clients: list[Steps]) -> Steps:
        while clients:
            client = self.rng.choice(clients)
            if next(client, self) is self:
                clients.remove(client)
            yield

    def run(self, length: int) -> list[Event]:
        coordinator = self.coordinator()
        self.story.clock()
        clients = [
            self.producer("p", 1, length),
            self.producer("q", 2, length),
            self.scheduler("s", 3, length),
            self.reader("all", READ_UNCOMMITTED, length // 2),
            self.reader("committed", READ_COMMITTED, length // 2),
            self.group(length // 4),
            self.workers(length // 4),
        ]
        for step, _ in enumerate(self.interleaved(clients)):
            if self.rng.random() < 0.5:
                next(coordinator)
            if self.rng.random() < 0.3:
                self.release()
            assert step < MOST_STEPS, "the clients of this story wait for each other"
        for txn in list(self.open.values()):
            self.decide(txn, "abort")
        while self.open:
            next(coordinator)
        self.story.later(1)
        self.release(len(self.waiting))
        self.story.later(100)
        self.finish()
        return self.story.events

    def finish(self) -> None:
        story = self.story
        story.client("auditor")
        for group, tp in (("g", A), ("g", B), ("pipes", A)):
            for _ in self.fetch("auditor", group, tp):
                pass
        story.happened("pipe", "pipe", details={"group": "pipes", "inputs": [A], "outputs": [B]})
        for tp, entries in self.log.items():
            for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
                story.happened(
                    "auditor",
                    "final",
                    tp=tp,
                    records=self.read(tp, 0, len(entries), isolation),
                    details={"isolation": isolation},
                )
            first: dict[int, int] = {}
            aborts = []
            for entry in entries:
                details = {"base": entry.off, "last": entry.off, "pid": entry.pid, "epoch": entry.epoch}
                details |= {"seq": entry.seq, "txn": entry.txn is not None, "control": entry.control, "leader": 0}
                if entry.uid is None and not entry.control:
                    details["offs"] = []
                story.happened("scan", "batch", tp=tp, details=details)
                if entry.txn is not None:
                    first.setdefault(entry.pid, entry.off)
                elif entry.control and entry.pid in first:
                    start = first.pop(entry.pid)
                    if entry.control == "abort":
                        aborts.append([entry.pid, start])
            story.happened("scan", "aborted", tp=tp, details={"aborted": aborts})
