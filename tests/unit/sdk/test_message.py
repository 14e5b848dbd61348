"""What a message shows of itself, and what codecs and keys make of values."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.sdk.codecs import codec_of
from headrace.sdk.errors import BadMessage, BadSetting
from headrace.sdk.message import Message
from headrace.sdk.producer import Producer
from headrace.sdk.record import ANY_PARTITION, Record, key_bytes, outgoing


def message(**parts: Any) -> Message:
    return Message("orders", 3, 41, **{"raw": b"value", **parts})


def test_a_key_is_bytes_text_or_an_integer() -> None:
    assert message(key="kö".encode()).key_text == "kö"
    assert message(key=b"\xff\xff\xff\xfe").key_int == -2
    assert message(key=key_bytes(7)).key_int == 7
    assert message().key_text is None
    assert message().key_int is None


def test_a_view_that_does_not_fit_says_where_the_message_stands() -> None:
    with pytest.raises(BadMessage, match="orders-3 offset 41 has 3 bytes"):
        _ = message(key=b"abc").key_int
    with pytest.raises(BadMessage, match="key of orders-3 offset 41 is not UTF-8"):
        _ = message(key=b"\xff").key_text
    with pytest.raises(BadMessage, match=r"the codec cannot decode orders-3 offset 41.*message\.raw"):
        _ = message(raw=b"{", codec=codec_of("json")).value


def test_tags_and_id_are_headers() -> None:
    headers = [("headrace.tag", b"a"), ("x", None), ("headrace.tag", b"b"), ("headrace.id", b"i-1"), ("x", b"2")]
    found = message(headers=headers)
    assert (found.tags, found.id, found.header("x"), found.header("y")) == (("a", "b"), "i-1", b"2", None)
    assert (message().tags, message().id) == ((), None)


def test_size_counts_key_value_and_headers() -> None:
    assert message(key=b"key", headers=[("h", b"12")]).size == 3 + 5 + 1 + 2
    assert message(raw=None).size == 0


def test_crc_is_crc32c_of_key_and_value() -> None:
    assert message(key=b"1234", raw=b"56789").crc == 0xE3069283  # the check value of CRC-32C
    assert message(key=None, raw=b"123456789").crc == 0xE3069283


def test_time_is_utc() -> None:
    assert message(timestamp_ms=1_700_000_000_123).timestamp == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert message().timestamp is None


def test_a_tombstone_is_none_for_every_codec() -> None:
    for name in ("bytes", "text", "json"):
        assert message(raw=None, codec=codec_of(name)).value is None


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("text", "ä", "ä".encode()),
        ("json", {"ä": [1, None]}, '{"ä":[1,null]}'.encode()),
    ],
)
def test_codecs_go_both_ways(codec: Any, value: Any, data: bytes) -> None:
    assert outgoing(codec_of(codec), "t", value)[1] == data
    assert message(raw=data, codec=codec_of(codec)).value == value


class Shouting:
    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode().lower()


def test_a_codec_can_be_plugged_in() -> None:
    assert outgoing(codec_of(Shouting()), "t", "hey")[1] == b"HEY"
    assert message(raw=b"HEY", codec=codec_of(Shouting())).value == "hey"


def test_a_codec_that_is_none_is_refused() -> None:
    with pytest.raises(BadSetting, match="choose bytes, text or json"):
        codec_of("xml")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="needs encode"):
        codec_of(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(("codec", "value"), [("bytes", 1), ("text", b"x"), ("json", {1, 2}), ("json", float("nan"))])
def test_a_value_that_the_codec_does_not_take_names_the_topic(codec: Any, value: Any) -> None:
    with pytest.raises(BadMessage, match="cannot encode a value for orders"):
        outgoing(codec_of(codec), "orders", value)


def test_what_is_sent_becomes_headers_and_bytes() -> None:
    topic, value, key, partition, _, _, timestamp_ms, headers = outgoing(
        codec_of("bytes"), "t", "v", "k", None, [("h", b"1")], ("a", "b"), "i", 5
    )
    assert (topic, value, key, partition, timestamp_ms) == ("t", b"v", b"k", ANY_PARTITION, 5)
    assert headers == [("h", b"1"), ("headrace.tag", b"a"), ("headrace.tag", b"b"), ("headrace.id", b"i")]


def test_a_record_that_names_no_topic_cannot_be_sent() -> None:
    with pytest.raises(BadMessage, match="has no topic"):
        Producer("127.0.0.1:1").send_record(Record("v"))


def test_keys_that_are_no_keys_are_refused() -> None:
    with pytest.raises(BadMessage, match="does not fit into 8 bytes"):
        key_bytes(1 << 63)
    with pytest.raises(BadMessage, match="not float"):
        key_bytes(1.5)  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="not bool"):
        key_bytes(True)
