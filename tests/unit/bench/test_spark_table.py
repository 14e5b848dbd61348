"""The table of the Spark bench says what was measured, the ratio of each round's pair, and which goals were reached."""

from __future__ import annotations

from bench.figures import Samples
from bench.spark.table import OURS, THEIRS, as_markdown, as_text, rows


def filled(key: str, ours: list[float], theirs: list[float]) -> Samples:
    samples = Samples()
    for mine, other in zip(ours, theirs, strict=True):
        samples.add(key, OURS, mine)
        samples.add(key, THEIRS, other)
    return samples


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # In the second round the machine was busy: both were slow, and their ratio says the same as before.
    samples = filled("aggregate, 100 B.rate", [1500, 300, 1600], [1000, 200, 1000])
    assert rows(samples, {}) == [
        ("aggregate, 100 B", "1500 k rows/s", "1000 k rows/s", "1.50x", ">= 1.4x", "met"),
    ]


def test_goals_are_judged_and_works_without_one_are_not() -> None:
    missed = filled("aggregate, 100 B.cpu", [1.0], [1.0])
    assert rows(missed, {})[0][3:] == ("1.00x", "<= 0.9x", "MISSED")
    free = filled("stream in 20 batches, 100 B.rate", [1.0], [2.0])
    assert rows(free, {})[0][3:] == ("0.50x", "", "")
    assert rows(Samples(), {"values": 19e6})[0][1:] == ("19.0M rows/s", "", "", ">= 20M rows/s", "MISSED")


def test_the_table_reads_in_a_terminal_and_in_markdown() -> None:
    table = rows(filled("start", [0.5], [0.25]), {})
    assert " ".join(as_text(table).splitlines()[1].split()) == "start of a stream 0.50 s 0.25 s 2.00x"
    assert as_markdown(table).splitlines()[2].startswith("| start of a stream | 0.50 s | 0.25 s | 2.00x |")
