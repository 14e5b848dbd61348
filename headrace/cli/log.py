"""`headrace log`: a look into log files, with no broker in between.

Called by main. Prints as it reads, so a large segment shows its first line at once. Invariant: the exit code is 0 only
when every byte of every segment belongs to a whole batch whose CRC is right.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.moments import describe_moment
from headrace.cli.options import command_group, examples
from headrace.cli.screen import plural, remark
from headrace.cli.segment_file import Damage, StoredBatch, find_segments, read_segment

app = command_group(
    "Look into log files without a broker.",
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
    """Keeps `dump` a subcommand: a group with one command would otherwise become that command."""


@app.command(
    epilog=examples(
        "headrace log dump data/orders-0",
        "headrace log dump data/orders-0/00000000000000000000.log --json",
    )
)
def dump(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A segment file, or a folder with segments.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch and line.")] = False,
) -> None:
    """Show the batches of segment files and check their CRCs.

    Ends with exit code 1, and with the file and position on stderr, where a batch is corrupt or the tail is torn. The
    newest segment of a running broker may end in a batch that is just being written.
    """
    damages = 0
    batches = 0
    segments = find_segments(path)
    for segment in segments:
        if not as_json:
            typer.echo(f"{segment}\n{HEADING}")
        for found in read_segment(segment):
            if isinstance(found, Damage):
                damages += 1
                if as_json:
                    line = {"file": str(segment), "position": found.position, "damage": found.reason}
                    typer.echo(json.dumps(line, ensure_ascii=False))
                remark(f"headrace: {segment} position {found.position}: {found.reason}")
                continue
            batches += 1
            if as_json:
                typer.echo(json.dumps({"file": str(segment), **batch_document(found)}, ensure_ascii=False))
            else:
                typer.echo(batch_line(found))
    remark(f"{plural(len(segments), 'segment')}, {plural(batches, 'batch', 'es')}, {plural(damages, 'fault')}")
    if damages:
        raise typer.Exit(1)


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


def codec_name(codec: int) -> str:
    return CODECS[codec] if codec < len(CODECS) else f"codec {codec}"
