"""Frames written by hand for the many-clients load agree with an independent client's reading of the protocol."""

from __future__ import annotations

import struct

from aiokafka.record.default_records import DefaultRecordBatch

from bench import frames, lag


def test_the_batch_is_read_back_by_another_client() -> None:
    batch = DefaultRecordBatch(frames.record_batch(200, 100, 1_700_000_000_000))
    assert batch.validate_crc()
    records = list(batch)
    assert [record.offset for record in records] == list(range(200))
    assert {(record.timestamp, record.value) for record in records} == {(1_700_000_000_000, b"x" * 100)}


def test_a_batch_of_an_idempotent_producer_says_whose_it_is() -> None:
    batch = DefaultRecordBatch(frames.record_batch(3, 10, 0, (1 << 40, 2, 600)))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1 << 40, 2, 600)


def test_a_frame_starts_with_its_length_and_names_its_api() -> None:
    for frame, api, version in (
        (frames.api_versions(7), 18, 0),
        (frames.metadata(7, "t"), 3, 1),
        (frames.produce(7, "t", 0, b"batch"), 0, 7),
        (frames.fetch(7, "t", 0, 0), 1, 11),
    ):
        assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, api, version, 7)


def test_whole_batches_of_a_fetch_are_counted_and_a_torn_one_is_left() -> None:
    first, second = frames.record_batch(10, 5, 0), struct.pack(">q", 10) + frames.record_batch(10, 5, 0)[8:]
    torn = struct.pack(">q", 20) + frames.record_batch(10, 5, 0)[8:-1]
    answer = fetch_answer("topic", first + second + torn)
    assert frames.fetched(answer, "topic", 0) == frames.Fetched(error=0, records=20, next_offset=20)


def test_an_empty_fetch_moves_nothing() -> None:
    assert frames.fetched(fetch_answer("topic", b""), "topic", 5) == frames.Fetched(error=0, records=0, next_offset=5)


def test_lag_buckets_are_read_from_the_exposition() -> None:
    text = "".join(
        f"{line}\n"
        for line in (
            "# TYPE headrace_event_loop_lag_seconds histogram",
            'headrace_event_loop_lag_seconds_bucket{le="0.001"} 3',
            'headrace_event_loop_lag_seconds_bucket{le="+Inf"} 4',
            "headrace_event_loop_lag_seconds_count 4",
            "headrace_event_loop_lag_seconds_sum 0.5",
        )
    )
    assert lag.parse(text) == {0.001: 3.0, float("inf"): 4.0}


def fetch_answer(topic: str, records: bytes) -> bytes:
    """A Fetch 11 response without its length: correlation, throttle, error, session, then one topic and partition."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    head = struct.pack(">iihii", 1, 0, 0, 0, 1) + name + struct.pack(">ii", 1, 0)
    return head + struct.pack(">hqqqiii", 0, 100, 100, 0, -1, -1, len(records)) + records
