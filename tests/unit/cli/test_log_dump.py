"""The segment inspector names every kind of damage, with its position, and shows what is whole."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import restamp_crc
from headrace.wire.records import Record, encode_batch
from headrace.world.disk import RealDisk
from tests.unit.log.batches import NOW, open_log
from tests.unit.log.batches import batch as one_record

ZSTD = 4


def batch(offset: int, *values: bytes, codec: int = 0) -> bytearray:
    records = [
        Record(offset + index, 1_700_000_000_000 + index, b"k", value, (("h", b"1"),))
        for index, value in enumerate(values)
    ]
    return encode_batch(
        records, codec=codec, base_offset=offset, leader_epoch=2, producer_id=7, producer_epoch=1, base_sequence=offset
    )


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(batch(0, b"a", b"b") + batch(2, b"c" * 200, codec=ZSTD))
    return path


def dump(*arguments: str | Path) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])
    return result.exit_code, result.stdout.splitlines(), result.stderr


def test_whole_segments_are_shown_batch_by_batch(segment: Path) -> None:
    status, lines, _ = dump(segment.parent, "--json")
    first, second = map(json.loads, lines)
    assert status == 0
    assert (first["position"], first["base_offset"], first["last_offset"], first["count"]) == (0, 0, 1, 2)
    assert (first["leader_epoch"], first["producer_id"], first["producer_epoch"]) == (2, 7, 1)
    assert (first["base_sequence"], first["last_sequence"], first["codec"], first["crc_ok"]) == (0, 1, "none", True)
    assert (second["position"], second["base_offset"], second["codec"]) == (first["bytes"], 2, "zstd")


def test_the_table_says_that_each_crc_is_right(segment: Path) -> None:
    status, lines, remarks = dump(segment)
    assert status == 0
    assert lines[0] == str(segment)
    assert [line.split()[9] for line in lines[2:]] == ["ok", "ok"]
    assert "1 segment, 2 batches, 0 faults" in remarks


def test_records_are_decompressed_and_shown(segment: Path) -> None:
    _, lines, _ = dump(segment, "--records", "--json")
    first, second = (json.loads(line)["records"] for line in lines)
    assert [record["value"] for record in first] == ["a", "b"]
    assert first[0]["headers"] == [{"name": "h", "value": "1"}]
    assert second == [
        {"offset": 2, "timestamp": 1_700_000_000_000, "key": "k", "value": "c" * 200, "headers": first[0]["headers"]}
    ]


def test_records_cannot_fake_lines_of_the_table(segment: Path) -> None:
    segment.write_bytes(batch(0, b"x\ny", b"\xff"))
    _, lines, _ = dump(segment, "--records")
    assert 'value="x\\ny"' in lines[3]
    assert "value=base64:/w==" in lines[4]


def test_a_flipped_bit_is_found_and_the_batches_after_it_are_still_read(segment: Path) -> None:
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    status, lines, remarks = dump(segment, "--records")
    assert status == 1
    assert f"{segment} position 0: the batch at offset 0 does not match its CRC" in remarks
    assert [line.split()[9] for line in lines if " zstd " in line or " none " in line] == ["BAD", "ok"]


@pytest.mark.parametrize("kept", [1, 60, 61, 70])
def test_a_torn_tail_is_named_with_its_position(segment: Path, kept: int) -> None:
    whole = len(batch(0, b"a", b"b"))
    segment.write_bytes(segment.read_bytes()[: whole + kept])
    status, _, remarks = dump(segment)
    assert status == 1
    assert f"{segment} position {whole}: torn tail" in remarks


def test_zeroes_and_lying_lengths_do_not_break_the_inspector(segment: Path) -> None:
    whole = segment.stat().st_size
    for tail in (bytes(4096), b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 4 + b"\2" + bytes(60)):
        segment.write_bytes(segment.read_bytes()[:whole] + tail)
        status, _, remarks = dump(segment)
        assert status == 1
        assert f"position {whole}:" in remarks


def test_offsets_that_go_back_are_damage(segment: Path) -> None:
    segment.write_bytes(batch(5, b"a") + batch(3, b"b"))
    status, _, remarks = dump(segment)
    assert status == 1
    assert "offset 3 comes after offset 5" in remarks


def test_records_that_do_not_parse_behind_a_right_crc_are_damage(segment: Path) -> None:
    content = batch(0, b"a")
    content[61:] = b"\xff" * (len(content) - 61)
    restamp_crc(content, 0, len(content) - 12)
    segment.write_bytes(content)
    assert dump(segment)[0] == 0
    status, _, remarks = dump(segment, "--records")
    assert status == 1
    assert "position 0: cannot decode the records of the batch at offset 0" in remarks


def test_a_damage_is_a_json_line_too(segment: Path) -> None:
    segment.write_bytes(b"short")
    status, lines, _ = dump(segment, "--json")
    assert status == 1
    assert json.loads(lines[0])["position"] == 0


def test_an_empty_segment_is_whole(segment: Path) -> None:
    segment.write_bytes(b"")
    assert dump(segment)[0] == 0


def test_a_path_without_segments_is_one_clear_line(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "no segment"), (tmp_path / "nowhere", "does not exist")):
        status, _, remarks = dump(path)
        assert status == 1
        assert words in remarks
        assert remarks.count("\n") == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition's folder as a broker leaves it: three records a segment, from offset 0 on."""
    disk, path = RealDisk(), tmp_path / "orders-0"
    log = open_log(disk, TopicConfig(segment_bytes=3 * len(one_record())), path)
    for _ in range(11):
        log.append(one_record(), 0, now_ms=NOW)
    log.close()
    disk.close()
    return path


def segment_of(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def test_a_folder_in_which_nothing_is_missing_has_no_faults(folder: Path) -> None:
    status, _, remarks = dump(folder)
    assert status == 0
    assert "4 segments, 11 batches, 0 faults" in remarks


@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_missing_segment_is_named_with_its_offsets(folder: Path, base: int) -> None:
    segment_of(folder, base).unlink()
    status, _, remarks = dump(folder.parent)
    assert status == 1
    following = segment_of(folder, base + 3)
    assert f"{following} position 0: offsets {base} to {base + 2} are missing before this segment" in remarks
    assert "1 fault" in remarks


def test_a_missing_last_segment_is_named(folder: Path) -> None:
    segment_of(folder, 9).unlink()
    status, _, remarks = dump(folder)
    assert status == 1
    assert f"{segment_of(folder, 6)} position {3 * len(one_record())}: offsets 9 to 10 are missing after" in remarks


def test_a_segment_of_another_place_is_named(folder: Path) -> None:
    segment_of(folder, 6).write_bytes(segment_of(folder, 0).read_bytes())
    status, lines, remarks = dump(folder, "--json")
    assert status == 1
    assert f"{segment_of(folder, 6)} position 0: this is not the file of " in remarks
    assert "position 0: offset 0 is not one of this segment" in remarks
    assert any("damage" in json.loads(line) for line in lines)


def test_segments_follow_each_other_without_a_checkpoint_too(folder: Path) -> None:
    for name in ("checkpoint", "sealed-segments"):
        (folder / name).unlink()
    assert dump(folder)[0] == 0
    segment_of(folder, 3).unlink()
    assert "offsets 3 to 5 are missing" in dump(folder)[2]


def test_a_single_segment_says_nothing_about_its_neighbours(folder: Path) -> None:
    assert dump(segment_of(folder, 3))[0] == 0


def test_notes_are_told_in_words(tmp_path: Path) -> None:
    log = open_log(RealDisk(), TopicConfig(delayed=True), tmp_path / "orders-0")
    for headers in ((("headrace.delay-ms", b"1000"),), (("headrace.cancel", b"1"),)):
        log.append(memoryview(encode_batch([Record(0, NOW, None, b"x", headers)])), 0, now_ms=NOW)
    log.close()
    status, lines, _ = dump(tmp_path, "--records")
    assert status == 0
    told = [line.strip() for line in lines if line.strip().startswith("note")]
    assert told[0].startswith("note PARK: the next batch is its mate; 1 is due 2023-11-14")
    assert told[1] == "note PARK: the next batch is its mate; 1 is cancelled"
    first, *_ = [json.loads(line) for line in dump(tmp_path, "--json")[1]]
    assert first["note"]["kept"] == [{"id": 1, "due": NOW + 1000}]
