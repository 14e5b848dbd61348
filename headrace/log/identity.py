"""Which topic a partition folder belongs to: its name is `TOPIC-PARTITION`, and a file holds the topic's id.

A topic that was deleted and created again has the same name and another id, so the id decides.
File `partition.id`, text: `headrace-partition 1`, then `topic_id UUID`. Written once; it is synced with the first
records, so a folder without it holds nothing that was promised to anybody.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from headrace.model.failure import other_version
from headrace.world.disk import Disk

NAME = "partition.id"
_FIRST_LINE = "headrace-partition 1"
UNKNOWN = uuid.UUID(int=0)


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """(topic, partition), or None if this is not a partition's folder."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdecimal() or not number.isascii():
        return None
    return (topic, int(number)) if str(int(number)) == number else None


def load(disk: Disk, directory: Path) -> uuid.UUID:
    try:
        lines = disk.read_bytes(directory / NAME).decode("ascii", "replace").split("\n")
    except FileNotFoundError:
        return UNKNOWN
    if len(lines) < 2 or not lines[0].startswith("headrace-partition "):
        return UNKNOWN
    if lines[0] != _FIRST_LINE:
        raise other_version(directory / NAME, lines[0].split(" ", 1)[1], 1)
    key, _, value = lines[1].partition(" ")
    try:
        return uuid.UUID(value) if key == "topic_id" and len(value) == 36 else UNKNOWN
    except ValueError:
        return UNKNOWN


def make_folder(disk: Disk, directory: Path, topic_id: uuid.UUID) -> None:
    disk.make_dirs(directory)
    save(disk, directory, topic_id)


def save(disk: Disk, directory: Path, topic_id: uuid.UUID) -> None:
    file = disk.open(directory / NAME, create=True)
    try:
        file.truncate(0)
        file.append((f"{_FIRST_LINE}\ntopic_id {topic_id}\n".encode(),))
    finally:
        file.close()


def sync(disk: Disk, directory: Path) -> None:
    """A folder may have lost the file in a power cut before its first sync; its name then says whose it is."""
    try:
        file = disk.open(directory / NAME)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()
