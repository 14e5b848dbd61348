"""How much of a dead broker's log lies behind its recovery points: what the next start has to look through."""

from pathlib import Path

from headrace.log.checkpoint import NAME, choose


def unflushed_bytes(data: Path) -> int:
    return sum(behind(checkpoint) for checkpoint in data.rglob(NAME))


def behind(checkpoint: Path) -> int:
    """Bytes of one partition's segments behind its recovery point; all of them if it has none."""
    known = choose(checkpoint.read_bytes())
    total = 0
    for segment in checkpoint.parent.glob("*.log"):
        size = segment.stat().st_size
        if known is None or int(segment.stem) > known.segment:
            total += size
        elif int(segment.stem) == known.segment:
            total += max(0, size - known.position)
    return total
