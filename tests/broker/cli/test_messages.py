"""`headrace produce` and `headrace consume` against a real broker."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cli.conftest import PATIENCE_S, Run, Start


def read_lines(process: "subprocess.Popen[bytes]", count: int) -> list[bytes]:
    """The next lines of a running command; the fixture kills one that never prints them."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_what_goes_in_comes_out_with_key_headers_time_and_partition(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-p", "2")
    arguments = ["-K", ":", "-H", "a=1", "-H", "a=2", "-p", "1", "--timestamp", "1700000000000", "-Z"]
    report = headrace("produce", "orders", *arguments, stdin="k1:v1\nplain\nk2:\n")
    assert report.stderr == "delivered 3 messages to orders\n"
    shown = headrace("consume", "orders", "-e", "-f", r"%t %p %o [%k] [%s] %T %h %S\n").stdout
    assert shown.splitlines() == [
        "orders 1 0 [k1] [v1] 1700000000000 a=1,a=2 2",
        "orders 1 1 [] [plain] 1700000000000 a=1,a=2 5",
        "orders 1 2 [k2] [] 1700000000000 a=1,a=2 -1",
    ]


def test_every_codec_and_every_acks_delivers(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    choices = [("none", "0"), ("gzip", "1"), ("snappy", "all"), ("lz4", "0"), ("zstd", "all")]
    for codec, acks in choices:
        text = "".join(f"{codec} {number}\n" for number in range(100))
        headrace("produce", "orders", "-z", codec, "--acks", acks, stdin=text)
    shown = headrace("consume", "orders", "-n", str(100 * len(choices))).stdout.splitlines()
    assert shown == [f"{codec} {number}" for codec, _ in choices for number in range(100)]


def test_keys_choose_the_partition_as_in_java(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-p", "10")
    headrace("produce", "orders", "-K", ":", stdin="foobar:1\n21:2\n")
    shown = headrace("consume", "orders", "-e", "-f", r"%k %p\n").stdout
    # murmur2 as published with Kafka's own tests: "foobar" is -790332482, "21" is -973932308; positive, modulo 10.
    expected = {f"{key} {(number & 0x7FFFFFFF) % 10}" for key, number in (("foobar", -790332482), ("21", -973932308))}
    assert set(shown.splitlines()) == expected


def test_files_zero_bytes_and_whole_inputs(headrace: Run, tmp_path: Path) -> None:
    headrace("topic", "create", "orders")
    file = tmp_path / "input"
    file.write_bytes(b"a\nb\0c\xff")
    headrace("produce", "orders", "--file", str(file), "-0")
    headrace("produce", "orders", "--file", str(file), "--whole", "-k", "key")
    values = [json.loads(line) for line in headrace("consume", "orders", "-e", "--json").stdout.splitlines()]
    assert [value["value"] for value in values] == ["a\nb", "Y/8=", "YQpiAGP/"]
    assert [value.get("value_encoding") for value in values] == [None, "base64", "base64"]
    assert values[2]["key"] == "key"


def test_a_message_too_large_is_reported_and_fails_the_command(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-c", "max.message.bytes=2000")
    refused = headrace("produce", "orders", "--whole", stdin="x" * 5000, status=1)
    assert "1 message not delivered to orders" in refused.stderr
    report = json.loads(headrace("produce", "orders", "--json", stdin="small\n").stdout)
    assert (report["delivered"], report["failed"]) == (1, 0)


def test_bad_places_and_files_are_one_line(headrace: Run, tmp_path: Path) -> None:
    headrace("topic", "create", "orders")
    for arguments, words in (
        (["produce", "orders", "-p", "7"], "topic orders has no partition 7"),
        (["produce", "orders", "-f", str(tmp_path / "nowhere")], "cannot read"),
        (["produce", "orders", "-f", str(tmp_path)], "it is a folder"),
        (["consume", "nowhere", "-e"], "topic nowhere does not exist"),
        (["consume", "^nowhere.*", "-e"], "no topic matches ^nowhere.*"),
        (["consume", "^(", "-e"], "is not a regular expression"),
        (["consume", "orders", "-p", "7", "-e"], "topic orders has no partition 7"),
    ):
        refused = headrace(*arguments, status=1)
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_consume_begins_where_it_is_told(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    headrace("produce", "orders", "--timestamp", "-2h", stdin="0\n1\n2\n")
    headrace("produce", "orders", stdin="3\n4\n")

    def values(*arguments: str) -> str:
        return headrace("consume", "orders", "-e", *arguments).stdout.replace("\n", "")

    assert values() == "01234"
    assert values("--from", "offset:3") == "34"
    assert values("--from", "offset:-1") == "4"
    assert values("--from", "offset:-99") == "01234"
    assert values("--from", "time:-1h") == "34"
    assert values("--from", "time:now") == ""
    assert values("--from", "end") == ""
    assert values("--from", "offset:1", "-n", "2") == "12"


def test_a_regex_reads_all_topics_that_match(headrace: Run) -> None:
    headrace("topic", "create", "orders-eu", "orders-us", "users")
    for topic in ("orders-eu", "orders-us", "users"):
        headrace("produce", topic, stdin=f"{topic}\n")
    assert sorted(headrace("consume", "^orders-.*", "-e").stdout.split()) == ["orders-eu", "orders-us"]


def test_a_group_goes_on_after_what_was_printed(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    headrace("produce", "orders", stdin="0\n1\n2\n3\n4\n")
    assert headrace("consume", "orders", "-g", "billing", "-n", "2").stdout == "0\n1\n"
    assert headrace("consume", "orders", "-g", "billing", "-e").stdout == "2\n3\n4\n"
    assert headrace("consume", "orders", "-g", "billing", "-e").stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_consume_cleanly_with_offsets_committed(
    headrace: Run, start_headrace: Start, number: signal.Signals
) -> None:
    headrace("topic", "create", "orders")
    headrace("produce", "orders", stdin="a\nb\n")
    reader = start_headrace("consume", "orders", "-g", "billing")
    assert read_lines(reader, 2) == [b"a\n", b"b\n"]
    reader.send_signal(number)
    _, errors = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, errors) == (0, b"")
    (group,) = json.loads(headrace("group", "describe", "billing", "--json").stdout)
    assert (group["state"], group["members"], group["partitions"][0]["committed"]) == ("empty", [], 2)


def test_a_signal_ends_produce_after_delivering_what_was_read(headrace: Run, start_headrace: Start) -> None:
    headrace("topic", "create", "orders")
    reader = start_headrace("consume", "orders")
    writer = start_headrace("produce", "orders")
    assert writer.stdin is not None
    writer.stdin.write(b"one\ntwo\npart of a li")
    writer.stdin.flush()
    assert read_lines(reader, 2) == [b"one\n", b"two\n"]
    writer.send_signal(signal.SIGINT)
    writer.wait(PATIENCE_S)
    assert writer.returncode == 128 + signal.SIGINT
    assert writer.stderr is not None
    assert writer.stderr.read() == b"delivered 2 messages to orders\n"
    assert headrace("consume", "orders", "-e").stdout == "one\ntwo\n"


def test_a_closed_pipe_ends_consume_quietly_even_when_nothing_more_comes(headrace: Run, start_headrace: Start) -> None:
    headrace("topic", "create", "orders")
    headrace("produce", "orders", stdin="a\n")
    reader: Any = start_headrace("consume", "orders")
    assert read_lines(reader, 1) == [b"a\n"]
    reader.stdout.close()
    assert reader.wait(PATIENCE_S) == 0
    assert reader.stderr.read() == b""
