"""Batches of a client on a topic that opens them: opened once, checked, scanned, and written anew where needed.

Pure: nothing here asks a log, so whatever is long is done off the event loop by the same functions. appending.py opens
a run of batches here, decides with the state of its log which records stay (`Keeps`), and has written anew here what
changes: another codec (`compression.type`), records that are left out.

What is done on the event loop is bounded by ON_LOOP_BYTES, not by the size of what came: 3 KB may hold 60 MB. A run
that needs more is `Unprepared`: the append raises it, with nothing done, and its `step` is to be run elsewhere
(api/long_appends.py). The append is then tried again with what the step has prepared, and decides everything again
that depends on the log.

A topic says with `Scan`s what it wants to know of its records; all their headers are read in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from headrace.log.admission import check_client_batch
from headrace.model.topic_config import TopicConfig
from headrace.wire import compression
from headrace.wire import records as wire_records
from headrace.wire.batches import CODEC_MASK, BatchHeader, Buffer, split_produced, stamp_max_timestamp, walk
from headrace.wire.errors import ErrorCode, KafkaError, Malformed, TooMuch

ON_LOOP_BYTES = 256 << 10
"""As much work as takes about a millisecond: bytes that are decompressed."""
MOST_OPENED_BYTES = 256 << 20
"""That the batches of one append may open into, whatever their size."""
MOST_RECORDS = 1_000_000
"""That the compressed batches of one append may hold: whoever reads them has an object of each."""
MOST_SCANNED = 100_000
"""The same on a topic with scans: what is known of each is dealt with on the event loop."""
_SCAN_COST_BYTES = 100  # a record that is scanned takes as long as so many bytes more
_EFFORT = (1, 4, 1, 1, 1)  # how much longer it takes to compress a byte than to open one, by codec
_HARD_EFFORT = 16  # with more than the usual zstd level
_USUAL_ZSTD_LEVEL = 3

Found = list[tuple[int, BatchHeader]]
Keeps = list[Sequence[bool] | None]
"""Of each batch which records stay; None if all do."""


class Scan(NamedTuple):
    """Something that is known of every record by one of its headers."""

    header: bytes
    read: Callable[[list[bytes | None]], Any]
    """What is made of the header's values, one for each record of a batch. Pure."""


class Wanted(NamedTuple):
    """What a topic has done with the batches of its clients."""

    config: TopicConfig
    scans: tuple[Scan, ...] = ()
    transactional: bool = False

    def works_on(self, header: BatchHeader) -> bool:
        """Whether a batch is decompressed, scanned or compressed, rather than only looked through."""
        return self.config.opens(header.codec) and (header.codec != 0 or bool(self.scans) or self.recodes(header))

    def recodes(self, header: BatchHeader) -> bool:
        return self.config.codec not in (None, header.codec)

    def opening_cost(self, header: BatchHeader, size: int) -> int:
        """Of a batch with so many bytes of records."""
        cost = size + (_SCAN_COST_BYTES * max(0, header.record_count) if self.scans else 0)
        return cost + (self.sealing_cost(header, size) if self.recodes(header) else 0)

    def sealing_cost(self, header: BatchHeader, size: int) -> int:
        codec, level = self._codec(header)
        hard = codec == compression.ZSTD and level is not None and level > _USUAL_ZSTD_LEVEL
        return size * (_HARD_EFFORT if hard else _EFFORT[codec])

    def sealed(self, header: BatchHeader, section: Buffer, keep: Sequence[bool] | None) -> Buffer:
        """The batch anew, with the records that stay, in the topic's codec."""
        if keep is not None and not any(keep):
            return wire_records.emptied_batch(header)
        codec, level = self._codec(header)
        changed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
        if keep is None:
            batch = wire_records.seal_batch(changed, section, level)
        else:
            batch = wire_records.filtered_batch(changed, section, keep, level=level)
        if len(section) > wire_records.default_limit_bytes(len(batch)):
            raise KafkaError(
                ErrorCode.message_too_large,
                f"{len(section)} bytes of records that the topic's compression.type makes so small, {len(batch)} "
                "bytes, that nobody would open them; send fewer records in a batch",
            )
        most = self.config.max_message_bytes
        if codec != header.codec and len(batch) > most:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"a record batch of {len(batch)} bytes in the topic's compression.type, but max.message.bytes is "
                f"{most}",
            )
        return batch

    def _codec(self, header: BatchHeader) -> tuple[int, int | None]:
        """In which a batch is stored, and how hard that tries."""
        codec = self.config.codec
        return (header.codec, None) if codec in (None, header.codec) else (codec or 0, self.config.codec_level)


class OpenBatch(NamedTuple):
    header: BatchHeader
    at: int
    section: Buffer
    """Its records, decompressed. Nothing, if the batch stays closed."""
    scanned: tuple[Any, ...]
    """What each scan has read."""


class Rewritten(NamedTuple):
    """What is to be written of a run, if these records stay."""

    keeps: Keeps
    records: memoryview
    found: Found


class Opened(NamedTuple):
    """A run of batches that may be appended as far as can be told without the log; or the `problem` with it."""

    wanted: Wanted
    records: memoryview
    batches: list[OpenBatch]
    rewritten: Rewritten | None = None
    problem: KafkaError | None = None


Step = Callable[[memoryview], Opened]


class Unprepared(Exception):
    """An append needs work that is too long for the event loop, and has done nothing. `step`, called with the same
    records, does it; what it returns is for the next try."""

    def __init__(self, step: Step) -> None:
        super().__init__("an append needs work that is too long for the event loop")
        self.step = step


def opened(records: memoryview, wanted: Wanted, now_ms: int, prepared: Opened | None) -> Opened:
    """The run, as it was prepared or opened now. Raises KafkaError if a client may not send it."""
    if prepared is not None:
        if prepared.problem is not None:
            raise prepared.problem
        if prepared.wanted == wanted:
            return prepared  # else the topic has been given other settings meanwhile
    later = Unprepared(partial(_opened_elsewhere, wanted, now_ms))
    if _is_surely_long(records, wanted):
        raise later
    try:
        return _open(records, wanted, now_ms, ON_LOOP_BYTES, on_loop=True)
    except TooMuch:
        raise later from None


def rewritten(run: Opened, keeps: Keeps) -> Rewritten:
    """What is to be written if these records stay."""
    if run.rewritten is not None and run.rewritten.keeps == keeps:
        return run.rewritten
    wanted = run.wanted
    changed = [batch for batch, keep in zip(run.batches, keeps, strict=True) if _changes(batch, keep, wanted)]
    if sum(wanted.sealing_cost(batch.header, len(batch.section)) for batch in changed) > ON_LOOP_BYTES:
        raise Unprepared(partial(_rewritten_elsewhere, run, keeps))
    return _rewrite(run, keeps)


def _is_surely_long(records: memoryview, wanted: Wanted) -> bool:
    """By the size of what came, before anything is done with it."""
    costs = (wanted.opening_cost(header, header.size) for _, header in walk(records) if wanted.works_on(header))
    return sum(costs) > ON_LOOP_BYTES


def _open(records: memoryview, wanted: Wanted, now_ms: int, most: int, *, on_loop: bool) -> Opened:
    """TooMuch if this takes more than `most`: work on the event loop, elsewhere bytes that are opened."""
    batches: list[OpenBatch] = []
    config, left, count = wanted.config, most, 0
    names = tuple(scan.header for scan in wanted.scans)
    most_records = MOST_SCANNED if names else MOST_RECORDS
    for at, header in split_produced(records):
        newest, section = check_client_batch(
            records, at, header, config, now_ms, transactional=wanted.transactional, limit_bytes=left
        )
        if newest != header.max_timestamp and not config.log_append_time:
            header = stamp_max_timestamp(records, at, header, newest)
        if section is None:
            batches.append(OpenBatch(header, at, b"", ()))
            continue
        if not on_loop:
            left -= len(section) if header.codec else 0
        elif wanted.works_on(header) and (left := left - wanted.opening_cost(header, len(section))) < 0:
            raise TooMuch
        count += header.record_count if names or header.codec else 0
        if count > most_records:
            raise _too_many(count, most_records)
        values = wire_records.scan_headers(section, header.record_count, names) if names else ()
        read = tuple(scan.read(found) for scan, found in zip(wanted.scans, values, strict=True))
        batches.append(OpenBatch(header, at, section, read))
    run = Opened(wanted, records, batches)
    return run if names else _with(_rewrite(run, [None] * len(batches)), run)


def _with(written: Rewritten, run: Opened) -> Opened:
    """The run without its records, which nobody needs any more."""
    return run._replace(rewritten=written, batches=[batch._replace(section=b"") for batch in run.batches])


def _rewrite(run: Opened, keeps: Keeps) -> Rewritten:
    pairs = list(zip(run.batches, keeps, strict=True))
    if not any(_changes(batch, keep, run.wanted) for batch, keep in pairs):
        return Rewritten(keeps, run.records, [(batch.at, batch.header) for batch in run.batches])
    batches: Iterable[Buffer] = (
        run.wanted.sealed(batch.header, batch.section, keep)
        if _changes(batch, keep, run.wanted)
        else run.records[batch.at : batch.at + batch.header.size]
        for batch, keep in pairs
    )
    records = memoryview(bytearray().join(batches))
    return Rewritten(keeps, records, list(walk(records)))


def _changes(batch: OpenBatch, keep: Sequence[bool] | None, wanted: Wanted) -> bool:
    return keep is not None or wanted.recodes(batch.header)


# --- on a follower --------------------------------------------------------------------------------------------------


def followed(records: memoryview, wanted: Wanted) -> Opened:
    """What the scans find in batches of the leader's log, of which nothing is refused any more: one that cannot be
    opened holds nothing. Of very many batches only the first, with `records` as far as these go."""
    later = Unprepared(partial(_followed, wanted, MOST_OPENED_BYTES, False))
    if _is_surely_long(records, wanted):
        raise later
    try:
        return _followed(wanted, ON_LOOP_BYTES, True, records)
    except TooMuch:
        raise later from None


def _followed(wanted: Wanted, most: int, on_loop: bool, records: memoryview) -> Opened:
    batches: list[OpenBatch] = []
    names, left, found = tuple(scan.header for scan in wanted.scans), most, 0
    for at, header in walk(records):
        if batches and not on_loop and (left < 0 or found + header.record_count > MOST_SCANNED):
            return Opened(wanted, records[:at], batches)
        values: list[list[bytes | None]] = [[] for _ in names]
        if header.record_count and not header.is_control:
            try:
                _, section = wire_records.open_batch(records, at, max(left, 0) if on_loop else None)
                values = wire_records.scan_headers(section, header.record_count, names)
                left -= wanted.opening_cost(header, len(section)) if on_loop else len(section)
                found += header.record_count
            except TooMuch:
                if on_loop:
                    raise
            except Malformed:
                pass
        read = tuple(scan.read(of_header) for scan, of_header in zip(wanted.scans, values, strict=True))
        batches.append(OpenBatch(header, at, b"", read))
    return Opened(wanted, records, batches)


# --- elsewhere: as above, in a thread -------------------------------------------------------------------------------


def _opened_elsewhere(wanted: Wanted, now_ms: int, records: memoryview) -> Opened:
    most = min(wire_records.default_limit_bytes(len(records)), MOST_OPENED_BYTES)
    try:
        return _open(records, wanted, now_ms, most, on_loop=False)
    except TooMuch as error:
        problem = KafkaError(
            ErrorCode.message_too_large,
            f"record batches that open into too much: {error}; send fewer records in a batch",
        )
        return Opened(wanted, records, [], problem=problem)
    except KafkaError as error:
        return Opened(wanted, records, [], problem=_alone(error))


def _rewritten_elsewhere(run: Opened, keeps: Keeps, _: memoryview) -> Opened:
    try:
        return run._replace(rewritten=_rewrite(run, keeps))
    except KafkaError as error:
        return run._replace(problem=_alone(error))


def _alone(error: KafkaError) -> KafkaError:
    """Without the frames in which it was raised: they hold what was opened."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _too_many(count: int, most: int) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large,
        f"{count} records in one request to a partition whose batches the broker opens, which takes at most {most}; "
        "send fewer records in a batch",
    )
