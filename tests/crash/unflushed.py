"""The bytes of a dead broker's log after its recovery points, which the next start has to scan."""

from pathlib import Path

from headrace.log.checkpoint import NAME, choose


def unflushed_bytes(data: Path) -> int:
    return sum(behind(folder) for folder in {segment.parent for segment in data.rglob("*.log")})


def behind(folder: Path) -> int:
    """Bytes of one partition's segments after its recovery point; all of them if it has none."""
    checkpoint = folder / NAME
    known = choose(checkpoint.read_bytes()) if checkpoint.exists() else None
    total = 0
    for segment in folder.glob("*.log"):
        size = segment.stat().st_size
        if known is None or int(segment.stem) > known.segment:
            total += size
        elif int(segment.stem) == known.segment:
            total += max(0, size - known.position)
    return total
