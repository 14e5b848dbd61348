"""Topics with a compression.type of their own: what was sent in another codec is stored in the topic's."""

from __future__ import annotations

import pytest

from headrace.model.topic_config import TopicConfig, topic_config
from headrace.wire import compression
from headrace.wire.batches import crc_ok, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import NOW, append, open_log, read_all

NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
RECORDS = [Record(at, NOW + at, b"k%d" % at, b"v" * 500, (("h", None), ("i", b"x"))) for at in range(50)]


def sent(codec: int, producer: int = -1) -> memoryview:
    sequence = -1 if producer < 0 else 0
    epoch = -1 if producer < 0 else 3
    batch = encode_batch(RECORDS, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(batch)


@pytest.mark.parametrize("wanted", NAMES)
def test_batches_of_every_codec_are_stored_in_the_topics_codec_and_hold_the_same(wanted: str) -> None:
    log = open_log(SimDisk(), topic_config({"compression.type": wanted}, {}))
    for codec in range(5):
        log.append(sent(codec), 0, now_ms=NOW)
    data = log.read(0, 1 << 20, log.end_offset, at_least_one=True).load()
    stored = list(walk(data))
    assert [compression.NAMES[header.codec] for _, header in stored] == [wanted.replace("uncompressed", "none")] * 5
    assert all(crc_ok(data, at, header) for at, header in stored)
    assert [record.value for record in read_all(log)] == [record.value for record in RECORDS] * 5
    assert [record.headers for record in read_all(log)][-1] == RECORDS[-1].headers
    assert log.end_offset == 5 * len(RECORDS)


@pytest.mark.parametrize(("codec", "little", "much"), [("gzip", "1", "9"), ("zstd", "-1000", "19")])
def test_a_topic_says_how_hard_its_codec_tries(codec: str, little: str, much: str) -> None:
    words = b" ".join(b"%d" % (number * number) for number in range(3000))

    def size(*levels: str) -> int:
        settings = {"compression.type": codec, **{f"compression.{codec}.level": level for level in levels}}
        log = open_log(SimDisk(), topic_config(settings, {}))
        append(log, memoryview(encode_batch([Record(0, NOW, None, words, ())])))
        assert [record.value for record in read_all(log)] == [words]
        return log.size_bytes

    assert size(much) < size(little)
    assert size() == size({"gzip": "-1", "zstd": "3"}[codec])


@pytest.mark.parametrize("codec", ["lz4", "snappy", "uncompressed", "producer"])
def test_levels_of_other_codecs_change_nothing(codec: str) -> None:
    levels = {"compression.gzip.level": "9", "compression.lz4.level": "12", "compression.zstd.level": "19"}
    log = open_log(SimDisk(), topic_config({"compression.type": codec, **levels}, {}))
    log.append(sent(compression.GZIP), 0, now_ms=NOW)
    assert [record.value for record in read_all(log)] == [record.value for record in RECORDS]


def test_an_idempotent_producer_may_repeat_what_was_compressed_again() -> None:
    log = open_log(SimDisk(), TopicConfig(codec=compression.ZSTD))
    first = log.append(sent(compression.NONE, producer=7), 0, now_ms=NOW)
    again = log.append(sent(compression.NONE, producer=7), 0, now_ms=NOW)
    assert again.duplicate
    assert again.base_offset == first.base_offset
    assert log.end_offset == len(RECORDS)


def test_what_is_too_large_in_the_topics_codec_is_refused_and_nothing_is_stored() -> None:
    log = open_log(SimDisk(), TopicConfig(codec=compression.NONE, max_message_bytes=2000))
    with pytest.raises(KafkaError, match=r"max\.message\.bytes is 2000") as refused:
        log.append(sent(compression.ZSTD), 0, now_ms=NOW)
    assert refused.value.code is ErrorCode.message_too_large
    assert log.end_offset == 0
