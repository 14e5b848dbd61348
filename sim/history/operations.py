"""From events to operations: each send, commit, offset fetch and transaction with its beginning and its end.

One pass over the events, made once per verdict; the families of checks read only the result. Positions in time are
event numbers; `NEVER` stands for an end that nobody saw. Invariant: an operation without a completion is `info`, and a
transaction counts as aborted only if its commit certainly had no effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sim.history.event import FAIL, INFO, INVOKE, OK, READ_COMMITTED, READ_UNCOMMITTED, BadHistory, Event, Record

NEVER = 1 << 62
MEMBERSHIP = frozenset(("join", "leave", "assign", "revoke", "lost", "fenced", "close", "move", "partitions"))


@dataclass(slots=True)
class Session:
    """One client object, as its `open` event described it."""

    proc: str
    acks: str = "all"
    idempotent: bool = False
    in_flight: int = 5
    isolation: str = READ_COMMITTED
    group: str | None = None
    instance: str | None = None  # the name of a static member
    reset: str | None = None  # where a group without a committed offset begins: "earliest" or "latest"
    session_timeout_ms: int = 45_000
    txn_id: str | None = None
    txn_timeout_ms: int = 60_000

    @property
    def member(self) -> str:
        return self.instance or self.proc


@dataclass(slots=True)
class Send:
    uid: str
    proc: str
    n: int
    tp: str | None
    txn: str | None
    epoch: int | None
    digest: str | None
    key: str | None
    src: str | None
    order: dict[str, Any]  # what it asks for on a topic with delayed messages: docs/checker.md
    status: str = INFO
    off: int = -1  # of a delayed message: its id
    end: int = NEVER
    err: str | None = None

    @property
    def delayed(self) -> bool:
        """Whether it is kept back until it is due."""
        return bool(self.order) and not self.changes

    @property
    def changes(self) -> bool:
        """Whether it cancels or moves others, and is itself never delivered."""
        return not self.order.keys().isdisjoint(("cancel", "cancel_key", "move"))


@dataclass(slots=True)
class Commit:
    """One partition's part of an offset commit, alone or in a transaction."""

    proc: str
    off: int
    meta: str | None
    epoch: int | None
    sent: int  # when the offsets left the client
    n: int  # from here on they could take effect: at `sent`, or when the transaction's commit was invoked
    end: int = NEVER  # from here on everybody must see them
    status: str = INFO
    txn: str | None = None
    stable: bool = True  # do those who read it wait for transactions that are about to end?


@dataclass(slots=True)
class OffsetFetch:
    n: int
    end: int
    off: int
    meta: str | None


@dataclass(slots=True)
class Transaction:
    txn: str
    proc: str
    begin: int
    sends: list[Send] = field(default_factory=list)
    offsets: list[tuple[str, str, Commit]] = field(default_factory=list)  # group, partition, commit
    reads: list[Event] = field(default_factory=list)
    commit: int | None = None  # the invoke of its commit
    commit_status: str | None = None
    end: int = NEVER  # when its end was known to the client

    @property
    def status(self) -> str:
        """`ok`: committed; `fail`: certainly not committed; `info`: unknown."""
        if self.commit is None:
            return FAIL
        return self.commit_status or INFO


@dataclass(slots=True)
class Init:
    proc: str
    n: int
    end: int


@dataclass(slots=True)
class FinalRead:
    """Everything that a new client reads from a partition after the heal."""

    tp: str
    start: int
    records: list[Record] = field(default_factory=list)
    n: int = 0


@dataclass(slots=True)
class Operations:
    events: list[Event]
    sessions: dict[str, Session] = field(default_factory=dict)
    invokes: dict[int, Event] = field(default_factory=dict)
    sends: dict[str, Send] = field(default_factory=dict)
    polls: list[Event] = field(default_factory=list)
    commits: dict[tuple[str, str], list[Commit]] = field(default_factory=lambda: defaultdict(list))
    fetches: dict[tuple[str, str], list[OffsetFetch]] = field(default_factory=lambda: defaultdict(list))
    txns: dict[str, Transaction] = field(default_factory=dict)
    inits: dict[str, list[Init]] = field(default_factory=lambda: defaultdict(list))
    membership: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    finals: dict[tuple[str, str], FinalRead] = field(default_factory=dict)  # by partition and isolation
    starts: dict[str, int] = field(default_factory=dict)  # where final reads found the log to begin
    compacted: set[str] = field(default_factory=set)  # partitions of topics that are compacted
    batches: dict[tuple[str, int], list[Event]] = field(default_factory=lambda: defaultdict(list))  # and replica
    told: dict[str, list[Event]] = field(
        default_factory=lambda: defaultdict(list)
    )  # heal, pipe, prepare, aborted, clock, kept

    def isolation(self, proc: str) -> str:
        return self.sessions[proc].isolation

    def log_start(self, tp: str) -> int:
        return self.starts.get(tp, 0)

    def is_forgotten(self, tp: str | None, off: int) -> bool:
        """Whether what lay there is gone from the front of the log. A replica that started over behind it does not know
        its producer, as in Kafka: what that one then repeats is stored again."""
        return tp is not None and off < self.log_start(tp)


def gather(events: Iterable[Event]) -> Operations:
    """Joins invokes and completions; raises `BadHistory` for a history that contradicts itself."""
    ops = Operations(list(events))
    commits: dict[int, list[Commit]] = {}
    last_n = -1
    for event in ops.events:
        if event.n <= last_n:
            raise BadHistory(f"event {event.n} of {event.proc} comes after event {last_n}: sort or merge the files")
        last_n = event.n
        if event.type == INVOKE:
            ops.invokes[event.n] = event
            _begin(ops, event, commits)
            continue
        invoke = None
        if event.op is not None:
            invoke = ops.invokes.get(event.op)
            if invoke is None or invoke.f != event.f or invoke.proc != event.proc:
                raise BadHistory(f"event {event.n} completes {event.f} {event.op}, which {event.proc} did not begin")
        _end(ops, event, invoke, commits)
    _settle(ops)
    return ops


def _begin(ops: Operations, event: Event, commits: dict[int, list[Commit]]) -> None:
    if event.proc not in ops.sessions:
        raise BadHistory(f"event {event.n}: {event.proc} acts without an `open` event that says what it is")
    if event.f == "send":
        if event.uid is None or event.uid in ops.sends:
            raise BadHistory(f"event {event.n}: {event.proc} sends uid {event.uid!r}, which must be new and there")
        send = Send(
            event.uid,
            event.proc,
            event.n,
            event.tp,
            event.txn,
            event.epoch,
            event.digest,
            event.key,
            event.src,
            event.details or {},
        )
        ops.sends[event.uid] = send
        if event.txn is not None:
            _txn(ops, event).sends.append(send)
    elif event.f in ("commit", "send_offsets"):
        assert event.group is not None
        begun = commits[event.n] = []
        for tp, off in (event.offs or {}).items():
            commit = Commit(
                event.proc, off or 0, (event.metas or {}).get(tp), event.epoch, event.n, event.n, txn=event.txn
            )
            begun.append(commit)
            ops.commits[event.group, tp].append(commit)
            if event.f == "send_offsets":
                _txn(ops, event).offsets.append((event.group, tp, commit))
    elif event.f == "end" and (event.details or {}).get("commit"):
        txn = _txn(ops, event)
        if txn.commit is None:
            txn.commit = event.n


def _end(ops: Operations, event: Event, invoke: Event | None, commits: dict[int, list[Commit]]) -> None:
    f, details = event.f, event.details or {}
    if f == "open":
        ops.sessions[event.proc] = Session(event.proc, **details)
    elif f == "send":
        assert invoke is not None
        assert invoke.uid is not None
        send = ops.sends[invoke.uid]
        send.status, send.end, send.tp, send.err = event.type, event.n, event.tp or send.tp, event.err
        if event.type == OK and event.off is not None:
            send.off = event.off
        send.epoch = send.epoch if event.epoch is None else event.epoch
    elif f == "poll":
        if event.type == OK:
            ops.polls.append(event)
            if event.txn is not None:
                _txn(ops, event).reads.append(event)
    elif f == "commit":
        for commit in commits[event.op or 0]:
            commit.status = event.type
            commit.end = event.n if event.type == OK else NEVER
    elif f == "committed":
        if event.type == OK:
            assert event.group is not None
            for tp, off in (event.offs or {}).items():
                fetch = OffsetFetch(
                    event.op or event.n, event.n, -1 if off is None else off, (event.metas or {}).get(tp)
                )
                ops.fetches[event.group, tp].append(fetch)
    elif f == "init":
        txn_id = ops.sessions[event.proc].txn_id
        if event.type == OK and txn_id is not None:
            ops.inits[txn_id].append(Init(event.proc, event.op or event.n, event.n))
    elif f == "begin":
        assert event.txn is not None
        ops.txns[event.txn] = Transaction(event.txn, event.proc, event.n)
    elif f == "end":
        _end_transaction(ops, event, invoke)
    elif f == "final":
        _add_final(ops, event, details)
    elif f == "batch":
        ops.batches[event.tp or "", details.get("replica", 0)].append(event)
    elif f in MEMBERSHIP:
        if f == "close" and event.group is None:
            event.group = ops.sessions[event.proc].group
        ops.membership[event.group or ""].append(event)
    else:
        ops.told[f].append(event)


def _txn(ops: Operations, event: Event) -> Transaction:
    if event.txn not in ops.txns:
        raise BadHistory(f"event {event.n}: {event.proc} speaks of transaction {event.txn!r}, which never began")
    return ops.txns[event.txn]


def _end_transaction(ops: Operations, event: Event, invoke: Event | None) -> None:
    assert invoke is not None
    txn = _txn(ops, invoke)
    if (invoke.details or {}).get("commit") and (event.type == OK or txn.commit_status in (None, FAIL)):
        txn.commit_status = event.type  # a commit may be retried; the status stays unknown until an `ok`
    txn.end = event.n if event.type == OK else txn.end


def _add_final(ops: Operations, event: Event, details: dict[str, Any]) -> None:
    assert event.tp is not None
    key = event.tp, details.get("isolation", READ_UNCOMMITTED)
    if key not in ops.finals:
        start = details.get("start", 0)
        ops.finals[key] = FinalRead(event.tp, start, n=event.n)
        ops.starts[event.tp] = max(start, ops.starts.get(event.tp, 0))
        if details.get("compacted"):
            ops.compacted.add(event.tp)
    ops.finals[key].records.extend(event.records or ())


def _settle(ops: Operations) -> None:
    """Offsets in a transaction take effect only if it commits.

    Its end is acknowledged before its markers are written, so only clients that ask for stable offsets, as
    `read_committed` consumers do, must see them from then on.
    """
    unstable = {session.group for session in ops.sessions.values() if session.isolation == READ_UNCOMMITTED}
    for txn in ops.txns.values():
        for group, _, commit in txn.offsets:
            commit.status = txn.status
            commit.n = commit.sent if txn.commit is None else txn.commit
            commit.stable = group not in unstable
            commit.end = txn.end if txn.status == OK and commit.stable else NEVER
