"""A pending message, as it is made from the record that lists it."""

from datetime import UTC, datetime

import pytest

from headrace.sdk.codecs import codec_of
from headrace.sdk.errors import SdkError
from headrace.sdk.message import Header, Message
from headrace.sdk.scheduled import scheduled_of


def listed(*headers: Header) -> Message:
    return Message("orders.pending", 3, 41, b'{"n": 1}', b"key", 7, headers, codec_of("json"))


def test_it_is_the_message_that_was_sent_with_its_id_and_its_time() -> None:
    pending = scheduled_of("orders", listed(("a", b"1"), ("headrace.scheduled.for", b"1800000000000")))
    assert (pending.topic, pending.partition, pending.id, pending.key) == ("orders", 3, 41, b"key")
    assert pending.value == {"n": 1}
    assert pending.due == datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert (pending.cron, pending.cron_tz) == (None, None)
    assert (pending.message.topic, pending.message.headers) == ("orders", (("a", b"1"),))


def test_a_recurring_one_has_a_zone_even_if_none_was_given() -> None:
    due: Header = ("headrace.scheduled.for", b"1800000000000")
    pending = scheduled_of("orders", listed(("headrace.cron", b"0 8 * * *"), due))
    assert (pending.cron, pending.cron_tz) == ("0 8 * * *", "UTC")
    pending = scheduled_of("orders", listed(("headrace.cron", b"0 8 * * *"), ("headrace.cron-tz", b"Asia/Tokyo"), due))
    assert pending.cron_tz == "Asia/Tokyo"


@pytest.mark.parametrize("header", [("x", b"1"), ("headrace.scheduled.for", b"soon"), ("headrace.scheduled.for", None)])
def test_a_record_that_lists_nothing_is_not_taken_for_one(header: Header) -> None:
    with pytest.raises(SdkError, match=r"is orders\.pending the pending messages of orders"):
        scheduled_of("orders", listed(header))
