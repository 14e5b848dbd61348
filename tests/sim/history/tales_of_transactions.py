"""Good and bad histories of transactions and of the log that they leave: T1 to T8."""

from __future__ import annotations

from typing import Any

from tests.sim.history.story import A, B, Story


def two_partitions(story: Story, outcome: str = "ok", commit: bool = True) -> None:
    """One transaction with a message in each of two partitions."""
    story.transactional("p")
    story.client("c")
    story.begin("p", "t1")
    story.send("p", "x@0", txn="t1")
    story.send("p", "y@0", tp=B, txn="t1")
    story.end("p", "t1", outcome, commit)


def with_offsets(story: Story, outcome: str = "ok", commit: bool = True) -> None:
    """One transaction with a message and a group's offset."""
    story.transactional("p")
    story.client("c")
    story.begin("p", "t1")
    story.send("p", "x@0", tp=B, txn="t1")
    story.commit("p", 3, "o1", txn="t1")
    story.end("p", "t1", outcome, commit)


# --- good ------------------------------------------------------------------------------------------------------------


def good_committed(story: Story) -> None:
    two_partitions(story)
    story.poll("c", "x@0")
    story.poll("c", "y@0", tp=B)
    story.committed_final("x@0")
    story.committed_final("y@0", tp=B)


def good_aborted(story: Story) -> None:
    two_partitions(story, commit=False)
    story.committed_final()
    story.committed_final(tp=B)
    story.final("x@0")


def good_unknown_and_there(story: Story) -> None:
    two_partitions(story, "info")
    story.committed_final("x@0")
    story.committed_final("y@0", tp=B)


def good_unknown_and_not_there(story: Story) -> None:
    two_partitions(story, "info")
    story.committed_final()
    story.committed_final(tp=B)


def good_reader_passes_over_an_abort(story: Story) -> None:
    story.transactional("p")
    story.producer("q")
    story.client("c", "all")
    story.events[-1].details = {"isolation": "read_uncommitted"}
    story.send("q", "m@0")
    story.begin("p", "t1")
    story.send("p", "x@1", txn="t1")
    story.send("q", "n@2")
    story.abort("p", "t1")
    story.poll("c", "m@0", "n@2")
    story.poll("all", "m@0", "x@1", "n@2")
    story.committed_final("m@0", "n@2")
    story.final("m@0", "x@1", "n@2")


def good_offsets_with_the_transaction(story: Story) -> None:
    with_offsets(story)
    story.fetch("c", 3, "o1")


def good_commit_asked_again_after_a_timeout(story: Story) -> None:
    two_partitions(story, "info")
    story.end("p", "t1")
    story.committed_final("x@0")
    story.committed_final("y@0", tp=B)


def good_successor_fences(story: Story) -> None:
    story.transactional("p1")
    story.begin("p1", "t1")
    story.send("p1", "x@0", txn="t1")
    story.transactional("p2")
    story.recorder.fail(story.begin_send("p1", "late", txn="t1"), err="PRODUCER_FENCED")
    story.end("p1", "t1", "fail")
    story.begin("p2", "t2")
    story.send("p2", "y@2", txn="t2")
    story.end("p2", "t2")
    story.committed_final("y@2")


def pipe(story: Story, *outputs: str, committed: int = 2, **details: Any) -> None:
    """Two inputs; outputs are given as uids that are made from m0, m1, ... by their last figure."""
    story.producer("p")
    story.send("p", "m0@0", "m1@1", "m2@2")
    story.member("w", reset="earliest")
    story.transactional("q")
    for off, uid in enumerate(outputs):
        story.begin("q", f"t{off}")
        story.send("q", f"{uid}@{off}", tp=B, txn=f"t{off}", src=f"m{uid[-1]}")
        story.end("q", f"t{off}")
    story.happened("pipe", "pipe", details={"group": "g", "inputs": [A], "outputs": [B]} | details)
    story.fetch("w", committed)
    story.committed_final("m0@0", "m1@1", "m2@2")
    story.committed_final(*(f"{uid}@{off}" for off, uid in enumerate(outputs)), tp=B)


def good_pipe(story: Story) -> None:
    pipe(story, "out0", "out1")


def good_pipe_at_least_once(story: Story) -> None:
    pipe(story, "out0", "again0", "out1", "early2", mode="at-least-once")


def good_pipe_at_most_once(story: Story) -> None:
    pipe(story, "out1", mode="at-most-once")


def good_log(story: Story) -> None:
    story.prepare("commit", epoch=1)
    story.prepare("abort", epoch=2)
    story.batch(0, last=2)
    story.batch(3, seq=3, last=4)
    story.marker(5, "commit")
    story.batch(6, seq=0, epoch=1, last=7)
    story.batch(8, pid=-1, txn=False)
    story.marker(9, "abort", epoch=2)
    story.happened("scan", "aborted", tp=A, details={"aborted": [[1, 6]]})


def good_sequence_wraps(story: Story) -> None:
    last = (1 << 31) - 1
    story.final(start=10)
    story.batch(10, seq=last, txn=False)
    story.batch(11, seq=0, txn=False)


def good_transaction_still_open(story: Story) -> None:
    story.transactional("p")
    story.begin("p", "t1")
    story.send("p", "x@0", txn="t1")
    story.batch(0)


def interleaved(story: Story, second: tuple[str, str]) -> None:
    """Two transactions, each with messages in two partitions, in the given order of offsets in the second one."""
    story.transactional("p", txn_id="t")
    story.transactional("q", txn_id="u")
    story.begin("p", "t1")
    story.begin("q", "u1")
    for off, (proc, uid, txn) in enumerate((("p", "x", "t1"), ("q", "v", "u1"))):
        story.send(proc, f"{uid}@{off}", txn=txn)
    for off, (proc, uid, txn) in enumerate((("p", "y", "t1"), ("q", "w", "u1"))):
        story.send(proc, f"{uid}@{second.index(uid) if uid in second else off}", tp=B, txn=txn)
    story.end("p", "t1")
    story.end("q", "u1")


def good_writes_cross(story: Story) -> None:
    interleaved(story, ("w", "y"))


# --- bad -------------------------------------------------------------------------------------------------------------


def t1_half_of_a_committed_transaction(story: Story) -> None:
    two_partitions(story)
    story.final("x@0")
    story.committed_final("x@0")
    story.final("y@0", tp=B)
    story.committed_final(tp=B)


def t1_half_of_an_unknown_transaction(story: Story) -> None:
    two_partitions(story, "info")
    story.committed_final("x@0")
    story.final("y@0", tp=B)
    story.committed_final(tp=B)


def t1_aborted_and_in_the_final_read(story: Story) -> None:
    two_partitions(story, commit=False)
    story.committed_final("x@0")


def t1_aborted_and_polled(story: Story) -> None:
    two_partitions(story, commit=False)
    story.poll("c", "x@0")


def t1_never_ended_and_read(story: Story) -> None:
    story.transactional("p")
    story.client("c")
    story.begin("p", "t1")
    story.send("p", "x@0", txn="t1")
    story.poll("c", "x@0")


def t1_aborted_and_its_offset_stays(story: Story) -> None:
    with_offsets(story, commit=False)
    story.fetch("c", 3, "o1")


def t1_committed_without_its_offset(story: Story) -> None:
    with_offsets(story)
    story.fetch("c", 1, None)


def t1_offset_without_its_messages(story: Story) -> None:
    with_offsets(story, "info")
    story.fetch("c", 3, "o1")
    story.final("x@0", tp=B)
    story.committed_final(tp=B)


def t2_read_before_the_commit(story: Story) -> None:
    story.transactional("p")
    story.client("c")
    story.begin("p", "t1")
    story.send("p", "x@0", txn="t1")
    story.poll("c", "x@0")
    story.end("p", "t1")


def t2_own_client_reads_too_early(story: Story) -> None:
    story.transactional("worker/p")
    story.client("worker/c")
    story.begin("worker/p", "t1")
    story.send("worker/p", "x@0", txn="t1")
    story.poll("worker/c", "x@0")
    story.end("worker/p", "t1")


def t3_input_left_out(story: Story) -> None:
    pipe(story, "out0")


def t3_two_outputs(story: Story) -> None:
    pipe(story, "out0", "out1", "again0")


def t3_output_beyond_the_committed(story: Story) -> None:
    pipe(story, "out0", "out1", "early2")


def t3_at_least_once_loses(story: Story) -> None:
    pipe(story, "out0", mode="at-least-once")


def t3_at_most_once_doubles(story: Story) -> None:
    pipe(story, "out0", "again0", mode="at-most-once")


def t4_fenced_send_is_taken(story: Story) -> None:
    story.transactional("p1")
    story.begin("p1", "t1")
    story.transactional("p2")
    story.send("p1", "x@0", txn="t1")
    story.abort("p1", "t1")


def t4_fenced_commit_is_taken(story: Story) -> None:
    story.transactional("p1")
    story.begin("p1", "t1")
    story.send("p1", "x@0", txn="t1")
    story.transactional("p2")
    story.end("p1", "t1")


def t4_doubtful_send_of_a_fenced_producer_is_read(story: Story) -> None:
    story.transactional("p1")
    story.client("c")
    story.begin("p1", "t1")
    story.transactional("p2")
    story.doubtful_send("p1", "x", txn="t1")
    story.end("p1", "t1", "info")
    story.poll("c", "x@0")


def t5_marker_does_not_rise(story: Story) -> None:
    story.batch(0, epoch=1)
    story.marker(1, "commit", epoch=1)


def t5_two_markers(story: Story) -> None:
    story.batch(0)
    story.marker(1, "commit")
    story.marker(2, "commit")


def t5_no_decision(story: Story) -> None:
    story.prepare("commit", epoch=1)
    story.batch(0)
    story.marker(1, "abort")


def t5_next_epoch_before_the_marker(story: Story) -> None:
    story.batch(0)
    story.batch(1, epoch=1)
    story.marker(2, "commit", epoch=2)


def t5_write_from_the_grave(story: Story) -> None:
    story.batch(0)
    story.marker(1, "abort")
    story.batch(2, seq=1)
    story.marker(3, "abort", epoch=2)


def t5_hanging(story: Story) -> None:
    story.transactional("p")
    story.begin("p", "t1")
    story.send("p", "x@0", txn="t1")
    story.later(71)
    story.batch(0)


def t6_gap(story: Story) -> None:
    story.batch(0, txn=False)
    story.batch(1, seq=2, txn=False)


def t6_twice(story: Story) -> None:
    story.batch(0, txn=False)
    story.batch(1, seq=0, txn=False)


def t6_new_epoch_not_from_zero(story: Story) -> None:
    story.batch(0, txn=False)
    story.batch(1, seq=1, epoch=1, txn=False)


def t6_first_batch_not_from_zero(story: Story) -> None:
    story.batch(0, seq=7, txn=False)


def t7_read_from_each_other(story: Story) -> None:
    story.transactional("p", txn_id="t")
    story.transactional("q", txn_id="u")
    story.client("c", "d")
    story.begin("p", "t1")
    story.begin("q", "u1")
    story.send("p", "x@0", txn="t1")
    story.send("q", "y@0", tp=B, txn="u1")
    one, other = story.begin_end("p", "t1"), story.begin_end("q", "u1")
    story.poll("c", "y@0", tp=B, txn="t1")
    story.poll("d", "x@0", txn="u1")
    story.recorder.ok(one)
    story.recorder.ok(other)


def t2_t7_read_of_a_later_transaction(story: Story) -> None:
    story.transactional("p", txn_id="t")
    story.transactional("q", txn_id="u")
    story.client("c")
    story.begin("p", "t1")
    story.doubtful_send("q", "other")
    op = story.begin_end("p", "t1")
    story.recorder.ok(op)
    story.begin("q", "u1")
    story.send("q", "y@0", tp=B, txn="u1")
    story.poll("c", "y@0", tp=B, txn="t1")
    story.end("q", "u1")


def t8_abort_not_in_the_index(story: Story) -> None:
    story.batch(0)
    story.marker(1, "abort")
    story.happened("scan", "aborted", tp=A, details={"aborted": []})


def t8_index_has_a_commit(story: Story) -> None:
    story.batch(0)
    story.marker(1, "commit")
    story.happened("scan", "aborted", tp=A, details={"aborted": [[1, 0]]})


def t8_reader_got_aborted_data(story: Story) -> None:
    story.producer("p")
    story.doubtful_send("p", "x")
    story.batch(0)
    story.marker(1, "abort")
    story.committed_final("x@0")


def t8_reader_missed_committed_data(story: Story) -> None:
    story.batch(0)
    story.marker(1, "commit")
    story.committed_final()
