"""`headrace log`: reads log files without a broker.

Called by main. Prints while it reads, so a large segment shows its first line at once. Invariant: the exit code is 0
only when every byte of every segment belongs to a complete batch with a correct CRC, and no segment is missing.
"""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.message_text import header_document, put_bytes
from headrace.cli.moments import describe_moment
from headrace.cli.note_words import note_document, note_in, note_words
from headrace.cli.options import command_group, examples
from headrace.cli.screen import plural, remark
from headrace.cli.segment_chain import SegmentChain
from headrace.cli.segment_file import Damage, StoredBatch, find_segments, read_records, read_segment

if TYPE_CHECKING:
    from headrace.wire.record import Record

app = command_group(
    "Show log files without a broker.",
    "headrace log dump data/orders-0",
    "headrace log dump data/orders-0/00000000000000000000.log --json",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADING = (
    f"{'position':>10} {'base':>10} {'last':>10} {'count':>6} {'epoch':>5} {'producer':>14} {'sequence':>8} "
    f"{'codec':<6} {'bytes':>9} {'crc':<3} first and last timestamp"
)


@app.callback()
def log() -> None:
    """Keeps `dump` a subcommand: Typer turns a group with one command into that command."""


@app.command(
    epilog=examples(
        "headrace log dump data/orders-0",
        "headrace log dump data/orders-0/00000000000000000000.log --records",
        "headrace log dump data/orders-0 --json",
    )
)
def dump(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A segment file, or a folder with segments.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Show the records of each batch too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch, one per line.")] = False,
) -> None:
    """Show the batches of segment files and check their CRCs.

    If a batch is corrupt, the tail is torn, or a segment is missing or another one's, it prints file and position to
    stderr and ends with exit code 1. The active segment of a running broker may end in a batch that is being written.
    """
    batches = faults = 0
    segments = find_segments(path)
    chain = SegmentChain() if path.is_dir() else None

    def report(damages: Iterable[tuple[Path, Damage]]) -> None:
        nonlocal faults
        for where, damage in damages:
            faults += 1
            print_damage(where, damage, as_json)

    for segment in segments:
        if not as_json:
            typer.echo(f"{segment}\n{HEADING}")
        if chain is not None:
            report(chain.begin(segment))
        for found in read_segment(segment):
            if isinstance(found, Damage):
                report([(segment, found)])
                continue
            batches += 1
            report((segment, damage) for damage in [print_batch(segment, found, records, as_json)] if damage)
            if chain is not None:
                report(chain.batch(found))
    if chain is not None:
        report(chain.finish())
    remark(f"{plural(len(segments), 'segment')}, {plural(batches, 'batch', 'es')}, {plural(faults, 'fault')}")
    if faults:
        raise typer.Exit(1)


def print_batch(segment: Path, batch: StoredBatch, with_records: bool, as_json: bool) -> Damage | None:
    """Print one batch; records of a batch with a wrong CRC are not decoded. Returns damage found while decoding."""
    document = {"file": str(segment), **batch_document(batch)}
    opened = read_records(batch) if with_records and batch.crc_ok else []
    damage = opened if isinstance(opened, Damage) else None
    records = opened if isinstance(opened, list) else []
    note = note_in(batch)
    if as_json:
        if note is not None:
            document["note"] = note_document(note, batch.header.base_offset)
        elif with_records:
            document["records"] = [record_document(record) for record in records]
        typer.echo(json.dumps(document, ensure_ascii=False))
        return damage
    typer.echo(batch_line(batch))
    if note is not None:
        typer.echo(f"    {note_words(note, batch.header.base_offset)}")
        return damage
    for record in records:
        typer.echo(record_line(record))
    return damage


def print_damage(segment: Path, damage: Damage, as_json: bool) -> None:
    """Report damage on stderr, and with --json on stdout too."""
    if as_json:
        document = {"file": str(segment), "position": damage.position, "damage": damage.reason}
        typer.echo(json.dumps(document, ensure_ascii=False))
    remark(f"headrace: {segment} position {damage.position}: {damage.reason}")


def batch_document(batch: StoredBatch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "codec": codec_name(header.codec),
        "control": header.is_control,
        "transactional": header.is_transactional,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "bytes": header.size,
        "crc_ok": batch.crc_ok,
    }


def batch_line(batch: StoredBatch) -> str:
    header = batch.header
    producer = "-" if header.producer_id < 0 else f"{header.producer_id}/{header.producer_epoch}"
    sequence = "-" if header.base_sequence < 0 else str(header.base_sequence)
    return (
        f"{batch.position:>10} {header.base_offset:>10} {header.last_offset:>10} {header.record_count:>6} "
        f"{header.leader_epoch:>5} {producer:>14} {sequence:>8} {codec_name(header.codec):<6} {header.size:>9} "
        f"{'ok' if batch.crc_ok else 'BAD':<3} "
        f"{describe_moment(header.base_timestamp)} {describe_moment(header.max_timestamp)}"
    )


def record_document(record: "Record") -> dict[str, Any]:
    document: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    put_bytes(document, "key", record.key)
    put_bytes(document, "value", record.value)
    document["headers"] = [header_document(name, value) for name, value in record.headers]
    return document


def record_line(record: "Record") -> str:
    headers = "".join(f" {name}={shown(value)}" for name, value in record.headers)
    moment = describe_moment(record.timestamp)
    return f"{'':>10} {record.offset:>10} {moment} key={shown(record.key)} value={shown(record.value)}{headers}"


def shown(content: bytes | None) -> str:
    """Bytes on one line: text is quoted, so that line breaks in it are escaped."""
    if content is None:
        return "null"
    try:
        return json.dumps(content.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()


def codec_name(codec: int) -> str:
    return CODECS[codec] if codec < len(CODECS) else f"codec {codec}"
