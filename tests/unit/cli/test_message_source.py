"""Bytes become messages, wherever the reads happened to end."""

import itertools
import signal

from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.message_source import Splitting, split_key, split_messages
from headrace.cli.stopping import Stop


def split(chunks: list[bytes], delimiter: bytes | None = b"\n", stop: Stop | None = None) -> list[bytes | None]:
    return list(split_messages(iter(chunks), delimiter, stop or Stop()))


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_the_cuts_between_reads_do_not_matter(content: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(content)]
    chunks = [content[start:stop] for start, stop in itertools.pairwise(edges) if content[start:stop]]
    lines = content.split(b"\n")
    assert split(chunks) == (lines if lines[-1] else lines[:-1])


def test_empty_lines_are_messages_and_the_last_line_needs_no_end() -> None:
    assert split([b"a\n\nb"]) == [b"a", b"", b"b"]


def test_silence_of_the_source_shows_between_messages() -> None:
    assert split([b"a\n", b"", b"b\n"]) == [b"a", None, b"b"]


def test_a_whole_input_is_one_message_even_if_empty() -> None:
    assert split([b"a\nb", b"\nc"], delimiter=None) == [b"a\nb\nc"]
    assert split([], delimiter=None) == [b""]


def test_a_part_of_a_message_is_not_sent_after_a_stop() -> None:
    stop = Stop()
    stop.signal_number = signal.SIGINT
    assert split([b"whole\npar"], stop=stop) == [b"whole"]


def test_a_key_ends_at_the_first_delimiter() -> None:
    splitting = Splitting(b"\n", b"::", fixed_key=b"fallback", empty_is_null=True)
    assert split_key(b"k::v::w", splitting) == (b"k", b"v::w")
    assert split_key(b"no key", splitting) == (b"fallback", b"no key")
    assert split_key(b"k::", splitting) == (b"k", None)
    assert split_key(b"::v", splitting) == (b"", b"v")


def test_an_empty_value_is_not_null_unless_asked_for() -> None:
    assert split_key(b"", Splitting(b"\n", None, None, empty_is_null=False)) == (None, b"")
