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
from headrace.log.delay_orders import Order, orders_in
from headrace.model.topic_config import TopicConfig
from headrace.wire import compression
from headrace.wire import records as wire_records
from headrace.wire.batches import (
    CODEC_MASK,
    BatchHeader,
    Buffer,
    split_produced,
    stamp_max_timestamp,
    walk,
)
from headrace.wire.errors import ErrorCode, KafkaError, Malformed, TooMuch
from headrace.wire.notes import Note, read_note

ON_LOOP_BYTES = 256 << 10
"""As much work as takes about a millisecond: bytes that are decompressed."""
MOST_OPENED_BYTES = 256 << 20
"""That the batches of one append may open into, whatever their size."""
MOST_RECORDS = 1_000_000
"""That the compressed batches of one append may hold: whoever reads them has an object of each."""
MOST_SCANNED = 50_000
"""The same on a topic with scans: what is known of each is dealt with on the event loop."""
_SMALL_BYTES = 16 << 10  # of a batch that is opened without being looked at before
_SCAN_COST_BYTES = 100  # a record that is scanned takes as long as so many bytes more
_LOOK_COST_BYTES = 10  # and one in which delay headers are looked for
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
    """What a topic has done with the batches of its clients; made by `wanted`."""

    config: TopicConfig
    scans: tuple[Scan, ...]
    names: tuple[bytes, ...]
    """Of the headers to be scanned."""
    transactional: bool
    delayed: bool
    """Delay headers are looked for."""
    recodes: tuple[bool, ...]
    """By codec, whether a batch is stored in another one."""
    costs: tuple[int, ...]
    """By codec, what a byte of records costs, in bytes that are decompressed. Nothing, if they are only looked
    through."""

    def opening_cost(self, header: BatchHeader, size: int) -> int:
        """Of a batch with so many bytes of records."""
        cost = self.costs[header.codec] * size + (_SCAN_COST_BYTES * header.record_count if self.scans else 0)
        return cost + (_LOOK_COST_BYTES * header.record_count if self.delayed else 0)

    @property
    def looks_inside(self) -> bool:
        """Whether it wants to know something of each record."""
        return self.delayed or bool(self.scans)

    def sealing_cost(self, header: BatchHeader, size: int) -> int:
        return _effort(*self._codec(header)) * size

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
        if not self.recodes[header.codec]:
            return header.codec, None
        return self.config.codec or 0, self.config.codec_level


def wanted(config: TopicConfig, scans: tuple[Scan, ...], *, transactional: bool = False) -> Wanted:
    codecs = range(CODEC_MASK + 1)  # also of those that nobody knows: a follower looks before it checks the CRC
    recodes = tuple(config.codec not in (None, codec) for codec in codecs)
    seals = 0 if config.codec is None else _effort(config.codec, config.codec_level)
    costs = tuple(
        int(bool(scans) or (codec != 0 and (config.delayed or config.opens(codec)))) + (seals if recodes[codec] else 0)
        for codec in codecs
    )
    names = tuple(scan.header for scan in scans)
    return Wanted(config, scans, names, transactional, config.delayed, recodes, costs)


def _effort(codec: int, level: int | None) -> int:
    if codec == compression.ZSTD and level is not None and level > _USUAL_ZSTD_LEVEL:
        return _HARD_EFFORT
    return _EFFORT[codec]


class OpenBatch(NamedTuple):
    header: BatchHeader
    at: int
    section: Buffer
    """Its records, decompressed. Nothing, if nobody asks for them any more."""
    scanned: tuple[Any, ...]
    """What each scan has read."""
    orders: Sequence[Order] = ()
    """What records ask for by delay headers."""


class Opened(NamedTuple):
    """A run of batches that may be appended as far as can be told without the log; or the `problem` with it."""

    wanted: Wanted
    records: memoryview
    found: Found
    """If nothing is wanted of each record, `records` and `found` are what is to be written."""
    batches: list[OpenBatch]
    """If something is wanted of each record, all of the run."""
    rewritten: tuple[Keeps, memoryview, Found] | None = None
    """What is to be written if these records stay."""
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
    try:
        return _open(records, wanted, now_ms, ON_LOOP_BYTES, on_loop=True)
    except TooMuch:
        raise Unprepared(partial(_opened_elsewhere, wanted, now_ms)) from None


def rewritten(run: Opened, keeps: Keeps) -> tuple[memoryview, Found]:
    """What is to be written if these records stay."""
    if run.rewritten is not None and run.rewritten[0] == keeps:
        return run.rewritten[1:]
    wanted = run.wanted
    if wanted.config.codec is None and keeps.count(None) == len(keeps):
        return run.records, run.found
    changed = [batch for batch, keep in zip(run.batches, keeps, strict=True) if _changes(batch, keep, wanted)]
    if not changed:
        return run.records, run.found
    if sum(wanted.sealing_cost(batch.header, len(batch.section)) for batch in changed) > ON_LOOP_BYTES:
        raise Unprepared(partial(_rewritten_elsewhere, run, keeps))
    return _rewrite(run, keeps)


def _open(records: memoryview, wanted: Wanted, now_ms: int, most: int, *, on_loop: bool) -> Opened:
    """TooMuch if this takes more than `most`: work on the event loop, elsewhere bytes that are opened."""
    config, left, count, changes = wanted.config, most, 0, False
    found = split_produced(records)
    batches: list[OpenBatch] = []
    for place, (at, header) in enumerate(found):
        codec = header.attributes & CODEC_MASK
        counts, recodes = wanted.delayed or wanted.costs[codec] > 0, wanted.recodes[codec]
        limit = left
        if not on_loop:
            limit = min(left, wire_records.default_limit_bytes(header.size))
        elif counts and header.length > _SMALL_BYTES and wanted.opening_cost(header, header.length) > left:
            raise TooMuch  # at the latest after it has been opened
        newest, section = check_client_batch(records, at, header, config, now_ms, wanted.transactional, limit)
        if newest != header.max_timestamp and not config.log_append_time:
            header = stamp_max_timestamp(records, at, header, newest)
            found[place] = at, header
        if counts and section is not None:
            if on_loop:
                left -= wanted.opening_cost(header, len(section))
                if left < 0:
                    raise TooMuch
            elif codec:
                left -= len(section)
            if codec or wanted.looks_inside:
                count += header.record_count
        if wanted.looks_inside and section is not None:
            _check_count(count, MOST_SCANNED)
            orders = orders_in(section, header.record_count) if wanted.delayed else ()
            batches.append(OpenBatch(header, at, section, _scanned(section, header, wanted), orders))
        elif recodes and section is not None:
            changes = True
            batches.append(OpenBatch(header, at, section, ()))
        elif config.codec is not None:
            batches.append(OpenBatch(header, at, b"", ()))
    if count > MOST_RECORDS:
        _check_count(count, MOST_RECORDS)
    run = Opened(wanted, records, found, batches)
    if wanted.looks_inside or not changes:
        return run
    records, found = _rewrite(run, [None] * len(batches))
    return Opened(wanted, records, found, [])


def _scanned(section: Buffer, header: BatchHeader, wanted: Wanted) -> tuple[Any, ...]:
    if not wanted.scans:
        return ()
    values = wire_records.scan_headers(section, header.record_count, wanted.names)
    return tuple([scan.read(of_header) for scan, of_header in zip(wanted.scans, values, strict=True)])


def scanned_note(note: Note, scans: Sequence[Scan]) -> tuple[Any, ...]:
    """What scans read of the records in a note; nothing, if they cannot be read."""
    try:
        values = wire_records.scan_headers(note.records, len(note.ids), tuple(scan.header for scan in scans))
    except Malformed:
        values = [[] for _ in scans]
    return tuple([scan.read(of_header) for scan, of_header in zip(scans, values, strict=True)])


def _rewrite(run: Opened, keeps: Keeps) -> tuple[memoryview, Found]:
    batches: Iterable[Buffer] = (
        run.wanted.sealed(batch.header, batch.section, keep)
        if _changes(batch, keep, run.wanted)
        else run.records[batch.at : batch.at + batch.header.size]
        for batch, keep in zip(run.batches, keeps, strict=True)
    )
    records = memoryview(bytearray().join(batches))
    return records, list(walk(records))


def _changes(batch: OpenBatch, keep: Sequence[bool] | None, wanted: Wanted) -> bool:
    return keep is not None or wanted.recodes[batch.header.codec]


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"{count} records in one request to a partition whose batches the broker opens, which takes at most "
            f"{most}; send fewer records in a batch",
        )


# --- on a follower --------------------------------------------------------------------------------------------------


def followed(records: memoryview, wanted: Wanted) -> Opened:
    """What the scans find in batches of the leader's log, of which nothing is refused any more: one that cannot be
    opened holds nothing. Of very many batches only the first, with `records` as far as these go."""
    try:
        return _followed(wanted, ON_LOOP_BYTES, True, records)
    except TooMuch:
        raise Unprepared(partial(_followed, wanted, MOST_OPENED_BYTES, False)) from None


def _followed(wanted: Wanted, most: int, on_loop: bool, records: memoryview) -> Opened:
    batches: list[OpenBatch] = []
    found: Found = []
    left, count = most, 0
    for at, header in walk(records):
        if on_loop and wanted.opening_cost(header, header.size) > left:
            raise TooMuch
        if batches and not on_loop and (left < 0 or count + header.record_count > MOST_SCANNED):
            records = records[:at]
            break
        scanned = tuple(scan.read([]) for scan in wanted.scans)
        note = read_note(records, at) if header.is_note else None
        if note is not None:
            scanned = scanned_note(note, wanted.scans)
            count += len(note.ids)
        elif header.record_count and not header.is_control:
            try:
                _, section = wire_records.open_batch(records, at, left if on_loop else None)
                left -= wanted.opening_cost(header, len(section)) if on_loop else len(section)
                count += header.record_count
                scanned = _scanned(section, header, wanted)
            except TooMuch:
                if on_loop:
                    raise
            except Malformed:
                pass
        batches.append(OpenBatch(header, at, b"", scanned))
        found.append((at, header))
    return Opened(wanted, records, found, batches)


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
    except KafkaError as error:
        problem = _alone(error)
    return Opened(wanted, records, [], [], problem=problem)


def _rewritten_elsewhere(run: Opened, keeps: Keeps, _: memoryview) -> Opened:
    try:
        return run._replace(rewritten=(keeps, *_rewrite(run, keeps)))
    except KafkaError as error:
        return run._replace(problem=_alone(error))


def _alone(error: KafkaError) -> KafkaError:
    """Without the frames in which it was raised: they hold what was opened."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
