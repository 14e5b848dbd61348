"""The report on dead letters: every number is on the page, and nothing from a record becomes markup."""

from html.parser import HTMLParser

from headrace.spark.pipelines.report_page import Letters, folded, page


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_escaped() -> None:
    evil = "<script>alert('x')</script>"
    letters = Letters(
        total=12_345,
        by_cause=[(evil, 12_000), ("timeout", 345)],
        by_origin=[("orders", 12_345)],
        by_hour=[("2026-11-16 10:00", evil, 12_000), ("2026-11-16 11:00", "timeout", 345)],
        examples=[{"time": "now", "value": evil}],
    )
    text = page("Dead letters", "today", letters)
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert "script" not in tags.seen
    assert tags.seen.count("rect") == 2
    for words in ("12,345", "timeout", "orders", "2026-11-16 10:00", "&lt;script&gt;"):
        assert words in text


def test_a_page_without_dead_letters_says_so() -> None:
    text = page("Dead letters", "today", Letters(0, [], [], [], []))
    assert "0 dead letters" in text
    assert "None." in text


def test_many_causes_are_folded_into_the_largest_and_the_rest() -> None:
    counts = [(f"cause {number}", number) for number in range(1, 11)]
    assert folded(counts, 4) == [("cause 10", 10), ("cause 9", 9), ("cause 8", 8), ("other", 28)]
    assert folded(counts[:2], 4) == [("cause 2", 2), ("cause 1", 1)]
