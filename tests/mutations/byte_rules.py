"""The rules that keep bad bytes out, in compiled code and in its twins: how each is switched off, and who must notice.

Each is switched off in the compiled module and in the Python that serves without a compiler. docs/mutations.md is this
table in words. `make test` plays those that are marked `short`, `make soak` plays all.
"""

from __future__ import annotations

from typing import NamedTuple

TAIL, EXPRESS, RECORDS = "headrace/log/_tail", "headrace/api/_express", "headrace/wire/_records"
READING, WALK = "headrace/wire/_number_reading.pxi", "headrace/wire/_record_walk.pxi"
BATCHES = "headrace/wire/batches.py"

COUNTS = "tests/unit/log/test_tail.py::test_a_count_below_every_other_does_not_fit_the_offset_above_every_other"
DAMAGED = "tests/unit/log/test_tail.py::test_a_batch_that_was_damaged_is_refused_by_the_usual_append_too"
OLD = "tests/unit/wire/test_batches.py::test_old_record_formats_and_unknown_codecs_are_refused_by_name"
NOT_USUAL = "tests/unit/log/test_tail.py::test_what_is_not_usual_is_left_to_the_general_append"
TOO_OLD = "tests/unit/log/test_tail.py::test_of_uncompressed_records_each_time_counts_in_the_usual_append_too"
ADMISSION = "tests/unit/log/test_admission.py"
UNREADABLE = f"{ADMISSION}::test_a_batch_that_is_not_as_it_should_be_is_refused_with_its_place"
NOT_TAKEN = f"{ADMISSION}::test_the_usual_append_takes_nothing_that_is_to_be_refused"
PUT_RIGHT = f"{ADMISSION}::test_a_header_with_a_wrong_latest_time_is_put_right"
APPENDING = "tests/unit/log/test_partition_log.py"
MAY_NOT_SEND = f"{APPENDING}::test_what_a_client_may_not_send_is_refused_and_leaves_no_trace"
ROLLING = f"{APPENDING}::test_segments_roll_by_size_and_by_age"
GAPS = f"{APPENDING}::test_a_gap_and_a_fenced_producer_are_told_apart"
FULL = "tests/unit/log/test_headroom.py::test_a_broker_that_filled_its_disk_stops_cleanly_and_starts_again"
LANES = "tests/unit/api/test_express_twins.py"
LESS_THAN_NOTHING = f"{LANES}::test_a_name_of_less_than_nothing_does_not_lead_back_to_the_same_bytes"
ANY_REQUEST = f"{LANES}::test_they_agree_on_any_bytes"
TWINS = "tests/unit/wire/test_record_twins.py"
GARBLED = f"{TWINS}::test_they_refuse_the_same_garbled_bytes"
ANY_RECORDS = f"{TWINS}::test_they_agree_on_any_bytes"
NUMBER_LINE = f"{TWINS}::test_they_agree_on_the_ends_of_the_number_line"
BEYOND = f"{TWINS}::test_a_record_beyond_the_last_offset_of_its_batch_is_refused"
SAME_WORDS = f"{TWINS}::test_they_refuse_the_same_records_of_a_client_in_the_same_words"
WALL = f"{TWINS}::test_no_byte_is_read_behind_a_batch_that_is_cut_anywhere"
FAR_OUT = f"{TWINS}::test_a_length_that_leads_far_out_of_the_batch_is_refused"
AFTER_THE_END = f"{LANES}::test_a_request_with_bytes_after_its_end_is_left_to_the_full_path"

BYTE_RULES = {
    28: "a batch is stored only if it matches its CRC",
    29: "a batch is as long as it says, and no longer than its topic allows",
    30: "a batch is of the present format",
    31: "a batch counts as many records as it takes offsets",
    32: "an idempotent producer's batch is the next of its epoch",
    33: "times that a topic does not allow are refused",
    34: "a segment grows no larger than its topic allows",
    35: "the usual append leaves room on the disk too",
    36: "a length in a request is not below zero, and leads to no bytes but the request's",
    37: "a request ends where its body ends",
    38: "a batch ends where its last record ends",
    39: "the offset of a record lies within its batch",
    40: "a length in a record leads to no bytes but the batch's",
    41: "a record that does not fit into a batch is not written",
    42: "records that nobody could read are not stored",
    43: "the records that a client sends follow each other without gaps",
    44: "a walk over records leads to no bytes but the batch's",
    45: "a batch names the latest time of its records",
    46: "what is not compressed as it says is not stored",
}


# In Python a slice cannot lead out of the batch, and what it lacks is missed where the record ends: without its check
# the same bytes are refused.
COMPILED_ONLY = {40, 44}


class ByteCase(NamedTuple):
    rule: int
    module: str  # the compiled module, without its suffix
    source: str  # of the line; a .py means the twin, or what does the work without the compiled module
    line: str
    instead: str
    scenario: str
    short: bool = False
    beside: bool = False  # the twins are compared, so that the compiled module stays while its twin is changed

    @property
    def compiled(self) -> bool:
        return not self.source.endswith(".py")


def in_tail(rule: int, line: str, instead: str, scenario: str = NOT_USUAL, *, short: bool = False) -> ByteCase:
    return ByteCase(rule, TAIL, f"{TAIL}.pyx", line, instead, scenario, short)


def without_tail(rule: int, source: str, line: str, instead: str, scenario: str, *, short: bool = False) -> ByteCase:
    return ByteCase(rule, TAIL, source, line, instead, scenario, short)


def in_lanes(rule: int, suffix: str, line: str, instead: str, scenario: str, *, short: bool = False) -> ByteCase:
    return ByteCase(rule, EXPRESS, EXPRESS + suffix, line, instead, scenario, short, beside=True)


def in_records(rule: int, source: str, line: str, instead: str, scenario: str) -> ByteCase:
    return ByteCase(rule, RECORDS, source, line, instead, scenario, beside=True)


BYTE_CASES = [
    in_tail(
        28, "if <uint32_t> int32_at(batch + 17) != <uint32_t> crc32c(records[21:]):", "if False:", DAMAGED, short=True
    ),
    without_tail(
        28, BATCHES, "if crc32c(records[at + 21 : stop]) != header.crc:", "if False:", MAY_NOT_SEND, short=True
    ),
    in_tail(29, " or int32_at(batch + 8) != size - PREFIX_BYTES", ""),
    in_tail(29, " or size > self._max_message_bytes", ""),
    without_tail(
        29,
        "headrace/log/admission.py",
        "if header.length + PREFIX_BYTES > config.max_message_bytes:",
        "if False:",
        MAY_NOT_SEND,
    ),
    in_tail(30, "batch[16] != MAGIC or ", ""),
    without_tail(30, BATCHES, "        if header.magic != MAGIC:", "        if False:", OLD),
    in_tail(31, " or int32_at(batch + 57) != <int64_t> last_offset_delta + 1", ""),
    without_tail(
        31,
        BATCHES,
        "if header.last_offset_delta != header.record_count - 1 or header.record_count <= 0:",
        "if False:",
        COUNTS,
    ),
    in_tail(32, "base_sequence == <int64_t> producer.next_sequence and ", ""),
    in_tail(32, " and epoch == <int64_t> producer.epoch", ""),
    without_tail(32, "headrace/log/producer_state.py", "if producer.next_sequence in (first, _ANY):", "if True:", GAPS),
    in_tail(33, " and latest <= now_ms + self._after_max_ms", ""),
    in_tail(33, "earliest >= now_ms - self._before_max_ms and ", "", TOO_OLD),
    without_tail(
        33,
        "headrace/log/admission.py",
        "if oldest < earliest or newest > latest:",
        "if False:",
        MAY_NOT_SEND,
    ),
    in_tail(34, "segment.size + size > self._segment_bytes", "segment.size > self._segment_bytes", ROLLING),
    without_tail(
        34,
        f"{TAIL}_py.py",
        "segment.size + size > config.segment_bytes",
        "segment.size > config.segment_bytes",
        ROLLING,
    ),
    in_tail(35, "                self._headroom.take(size)", "                pass", FULL),
    without_tail(35, "headrace/log/appending.py", "            self._headroom.take(size)", "            pass", FULL),
    in_lanes(
        36,
        ".pyx",
        "if size < 0 or size > body.end - taken:",
        "if size > body.end - taken:",
        LESS_THAN_NOTHING,
        short=True,
    ),
    in_lanes(36, ".pyx", "if size < 0 or size > body.end - taken:", "if size < 0:", ANY_REQUEST),
    in_lanes(36, "_py.py", "        if size < 0:", "        if False:", LESS_THAN_NOTHING),
    in_lanes(
        37,
        ".pyx",
        "    if body.at != body.end:\n        raise Unusual\n    return acks",
        "    return acks",
        AFTER_THE_END,
    ),
    in_lanes(37, "_py.py", " or frame[end:] != _NO_TAGS:", ":", AFTER_THE_END),
    in_records(38, READING, "    if at != end:", "    if False:", GARBLED),
    in_records(
        38,
        f"{RECORDS}_py.py",
        "    if at != len(data):\n        raise Malformed",
        "    if False:\n        raise Malformed",
        GARBLED,
    ),
    in_records(39, READING, "if delta < 0 or delta > last_offset_delta:", "if delta < 0:", BEYOND),
    in_records(39, f"{RECORDS}_py.py", "if delta < 0 or delta > last_offset_delta:", "if delta < 0:", BEYOND),
    in_records(40, READING, "    if size > end - at[0]:", "    if False:", FAR_OUT),
    in_records(41, f"{RECORDS}.pyx", " or (narrow and (delta < 0 or delta > INT32_MAX)):", ":", NUMBER_LINE),
    in_records(41, f"{RECORDS}_py.py", "if not 0 <= offset - base_offset <= _INT32_MAX:", "if False:", NUMBER_LINE),
    in_tail(
        42, "if not walk_records(&walk, int32_at(batch + 57)):", "if walk_records(&walk, 1) < 0:", NOT_TAKEN, short=True
    ),
    in_records(
        42,
        WALK,
        '    if at != end:\n        return "it is longer',
        '    if False:\n        return "it is longer',
        SAME_WORDS,
    ),
    in_records(42, WALK, "    if at + 1 != stop or at[0]:", "    if at[0]:", SAME_WORDS),
    in_records(42, f"{RECORDS}_py.py", "        _require(at == len(body))\n", "", SAME_WORDS),
    in_records(43, WALK, "&number) or number != place:", "&number):", SAME_WORDS),
    in_records(43, f"{RECORDS}_py.py", "        _require(offset == place)\n", "", SAME_WORDS),
    in_records(44, WALK, "&size) or size > end - at[0]:", "&size):", WALL),
    in_records(44, WALK, " or number >= 0x4000 or stop > end:", " or number >= 0x4000:", WALL),
    in_records(44, WALK, "    if end - at < PLAIN_BYTES:", "    if False:", WALL),
    in_tail(45, "            if latest != max_timestamp:\n                return False\n", ""),
    without_tail(
        45, "headrace/log/opening.py", "if newest != header.max_timestamp and not", "if False and not", PUT_RIGHT
    ),
    in_tail(
        46, "            if not begins_as(batch[22], batch + HEADER_BYTES, end):", "            if False:", NOT_TAKEN
    ),
    without_tail(
        46, "headrace/log/admission.py", "if not compression.begins_as(header.codec, body):", "if False:", UNREADABLE
    ),
]
