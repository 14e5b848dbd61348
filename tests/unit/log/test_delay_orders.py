"""What delay headers ask for, and what is refused of them."""

from __future__ import annotations

import pytest

from headrace.log.delay_orders import Order, Verb, key_digest, orders_in
from headrace.model.delays import MAX_DELAY_MS
from headrace.wire.errors import InvalidRecords
from headrace.wire.record import Record
from headrace.wire.records import encode_batch, open_batch

NOW = 1_700_000_000_000


def ordered(*headers: tuple[str, bytes | None]) -> Order:
    records = [Record(0, 0, b"k", b"plain"), Record(1, 0, b"k", b"marked", tuple(headers))]
    _, section = open_batch(encode_batch(records))
    (order,) = orders_in(section, 2)
    assert order.place == 1
    return order


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([("headrace.delay-ms", b"0")], NOW),
        ([("headrace.delay-ms", b"%d" % MAX_DELAY_MS)], NOW + MAX_DELAY_MS),
        ([("headrace.deliver-at", b"1800000000000")], 1_800_000_000_000),
        ([("headrace.deliver-at", b"2027-01-15T08:00:00Z")], 1_800_000_000_000),
        ([("headrace.deliver-at", b"2027-01-15T09:00:00+01:00")], 1_800_000_000_000),
        ([("headrace.cron", b"0 8 15 1 *")], 1_705_305_600_000),
        ([("x", b"y"), ("headrace.cron", b"0 9 15 1 *"), ("headrace.cron-tz", b"Europe/Berlin")], 1_705_305_600_000),
    ],
)
def test_a_due_time(headers: list[tuple[str, bytes]], due_ms: int) -> None:
    order = ordered(*headers)
    assert order.verb is Verb.KEEP
    assert order.due(NOW) == due_ms


def test_cancels_and_moves() -> None:
    assert ordered(("headrace.cancel", b"7"))[4:] == (Verb.CANCEL, None, None, None, 7)
    assert ordered(("headrace.cancel-key", b"who"))[3:5] == (b"who", Verb.CANCEL_KEY)
    assert ordered(("headrace.move", b"7"), ("headrace.delay-ms", b"9"))[4:] == (Verb.MOVE, 9, None, None, 7)
    assert ordered(("headrace.move", b"7"), ("headrace.deliver-at", b"9"))[4:] == (Verb.MOVE, None, 9, None, 7)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("headrace.delay-ms", b"")], "whole number"),
        ([("headrace.delay-ms", None)], "null"),
        ([("headrace.delay-ms", b"1.5")], "whole number"),
        ([("headrace.delay-ms", b"-5")], "negative"),
        ([("headrace.delay-ms", b"NaN")], "whole number"),
        ([("headrace.delay-ms", b"\xd9\xa1")], "ASCII"),  # a digit, but not one of ASCII
        ([("headrace.delay-ms", b"%d" % (MAX_DELAY_MS + 1))], "more than 3660 days"),
        ([("headrace.delay-ms", b"9" * 400)], "too large"),
        ([("headrace.delay-ms", b"1"), ("headrace.delay-ms", b"1")], "twice"),
        ([("headrace.deliver-at", b"tomorrow")], "neither epoch milliseconds nor ISO 8601"),
        ([("headrace.deliver-at", b"-7")], "negative"),
        ([("headrace.deliver-at", b"1900-01-01T00:00:00Z")], "before 1970"),
        ([("headrace.deliver-at", b"2027-01-15T08:00:00")], "no time zone"),
        ([("headrace.deliver-at", b"%d" % (NOW + MAX_DELAY_MS + 1))], "3660 days"),
        ([("headrace.delay-ms", b"1"), ("headrace.deliver-at", b"1")], "contradict"),
        ([("headrace.cron", b"nope")], "not 5"),
        ([("headrace.cron", b"\xff")], "ASCII"),
        ([("headrace.cron", b"0 0 31 2 *")], "cron"),
        ([("headrace.cron-tz", b"UTC")], "means nothing without"),
        ([("headrace.cancel", b"x")], "whole number"),
        ([("headrace.cancel", b"1"), ("headrace.delay-ms", b"1")], "no other"),
        ([("headrace.cancel-key", b"1"), ("headrace.cancel", b"1")], "no other"),
        ([("headrace.move", b"1")], "needs the new time"),
        ([("headrace.move", b"1"), ("headrace.cron", b"* * * * *")], "takes no cron"),
    ],
)
def test_what_is_refused_says_why(headers: list[tuple[str, bytes | None]], why: str) -> None:
    with pytest.raises(InvalidRecords, match=why) as refused:
        ordered(*headers).due(NOW)
    assert refused.value.places == [1]


def test_digests_of_keys_differ_and_no_key_has_none() -> None:
    assert key_digest(None) == 0
    assert len({key_digest(b"%d" % number) for number in range(1000)}) == 1000
