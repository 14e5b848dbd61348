"""Good and bad histories of delayed messages: D1 to D4. Each function tells one; its name says what happens.

Each event takes a millisecond, and the first one, which says what the time is, is at 1 ms.
"""

from __future__ import annotations

from typing import Any

from tests.sim.history.story import A, Story

HOUR_S, HOUR_MS = 3600, 3_600_000


def begin(story: Story, off_ms: int = 0) -> None:
    story.clock(off_ms)
    story.producer("p")
    story.client("c", isolation="read_uncommitted")


def park(story: Story, place: str, **order: Any) -> None:
    story.send("p", place, details=order)


def refused(story: Story, uid: str, **order: Any) -> None:
    story.recorder.fail(story.begin_send("p", uid, details=order), err="INVALID_RECORD")


def final_of(story: Story, start: int = 0) -> None:
    """What the polls have found from this offset on is what there is."""
    found = {r.off: r for event in story.events if event.f == "poll" for r in event.records or ()}
    story.happened("final", "final", tp=A, records=[found[off] for off in sorted(found) if off >= start],
                   details={"isolation": "read_uncommitted", "start": start})  # fmt: skip


# --- good ------------------------------------------------------------------------------------------------------------


def good_delivered_when_it_is_due(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S)
    story.released("c", f"x@5:1:{HOUR_MS + 4}")
    story.later(100)
    final_of(story)


def good_not_due_yet(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(60)
    story.poll("c")
    story.final()


def good_early_by_as_much_as_a_clock_was_wrong(story: Story) -> None:
    begin(story, off_ms=1_000_000)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S - 1000)
    story.released("c", f"x@5:1:{HOUR_MS + 4}")


def good_due_in_the_past(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=-HOUR_MS)
    story.released("c", f"x@3:1:{-HOUR_MS}")
    final_of(story)


def good_cancelled(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    park(story, "c1@3", cancel="x")
    story.later(2 * HOUR_S)
    story.final()


def good_cancelled_by_key_and_the_next_with_it_is_not(story: Story) -> None:
    begin(story)
    story.send("p", "x@1", key="k", details={"delay_ms": HOUR_MS})
    park(story, "c1@3", cancel_key="k")
    story.send("p", "y@5", key="k", details={"delay_ms": HOUR_MS})
    story.later(HOUR_S)
    story.released("c", f"y@7:5:{HOUR_MS + 8}")
    story.later(100)
    final_of(story)


def good_cancel_in_doubt(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    park(story, "y@3", delay_ms=HOUR_MS)
    for uid in ("x", "y"):
        story.doubtful_send("p", f"c-{uid}", details={"cancel": uid})
    story.later(HOUR_S)
    story.released("c", f"y@9:3:{HOUR_MS + 6}")
    story.later(100)
    final_of(story)


def good_cancel_after_the_release_is_refused(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S)
    story.released("c", f"x@5:1:{HOUR_MS + 4}")
    refused(story, "c1", cancel="x")
    final_of(story)


def good_moved(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=HOUR_MS)
    park(story, "m1@3", move="x", deliver_at=2 * HOUR_MS)
    story.later(2 * HOUR_S)
    story.released("c", f"x@5:1:{2 * HOUR_MS}")
    story.later(100)
    final_of(story)


def good_cron_comes_again_until_it_is_cancelled(story: Story) -> None:
    begin(story)
    park(story, "x@1", cron="* * * * *", period_ms=60_000)
    for minute in (1, 2):
        story.later(60)
        story.released("c", f"x@{2 * minute + 1}:1:{minute * 60_000}")
    park(story, "c1@7", cancel="x")
    story.later(200)
    final_of(story)


def good_cron_goes_on_after_it_was_moved(story: Story) -> None:
    begin(story)
    park(story, "x@1", cron="* * * * *", period_ms=60_000)
    park(story, "m1@3", move="x", deliver_at=30_000)
    story.later(60)
    story.released("c", "x@5:1:30000", "x@7:1:60000")


def good_order_of_what_was_sent_too_late(story: Story) -> None:
    """It was due before the other, and not there yet when that was released."""
    begin(story)
    park(story, "x@1", deliver_at=1000)
    story.later(1)
    park(story, "y@3", deliver_at=900)
    story.released("c", "x@5:1:1000", "y@6:3:900")


def good_aborted_transaction(story: Story) -> None:
    story.clock()
    story.transactional("p")
    story.begin("p", "t1")
    story.send("p", "x@1", txn="t1", details={"delay_ms": 1000})
    story.abort("p", "t1")
    story.later(100)
    story.final()


def good_retention_took_it_after_its_release(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.later(100)
    story.final(start=5)


def good_what_retention_took_was_sent_again(story: Story) -> None:
    begin(story)
    op = story.begin_send("p", "x", details={"delay_ms": 1000})
    story.later(2)
    story.released("c", "x@2:1:1004")
    story.recorder.ok(op, off=7)
    story.later(2)
    story.released("c", "x@9:7:3006")
    final_of(story, start=8)


def good_alone_without_a_clock(story: Story) -> None:
    story.producer("p")
    story.client("c")
    park(story, "x@1", delay_ms=1000)
    story.later(1)
    story.released("c", "x@3:1:777777")


# --- bad -------------------------------------------------------------------------------------------------------------


def d1_delivered_before_it_is_due(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S - 1)
    story.released("c", f"x@5:1:{HOUR_MS + 4}")


def d1_due_sooner_than_it_was_to_be(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(60)
    story.released("c", "x@5:1:60000")


def d1_a_clock_that_jumps_does_not_shorten_the_wait_under_one_leader(story: Story) -> None:
    begin(story, off_ms=HOUR_MS)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(60)
    story.released("c", f"x@3:1:{HOUR_MS + 4}")
    for base in range(4):
        story.batch(base, pid=-1, txn=False, leader=7)


def d1_delivered_as_if_it_were_not_delayed(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S)
    story.poll("c", "x@5")


def d1_delivered_at_another_time_than_asked(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=HOUR_MS)
    story.later(HOUR_S)
    story.released("c", f"x@5:1:{HOUR_MS + 1}")


def d1_delivered_as_if_it_had_not_been_moved(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=HOUR_MS)
    park(story, "m1@3", move="x", deliver_at=2 * HOUR_MS)
    story.later(2 * HOUR_S)
    story.released("c", f"x@5:1:{HOUR_MS}")


def d1_without_a_clock(story: Story) -> None:
    story.producer("p")
    story.client("c")
    park(story, "x@1", delay_ms=10_000)
    story.later(1)
    story.released("c", "x@3:1:777777")


def d2_delivered_late(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S + 61)
    story.released("c", f"x@5:1:{HOUR_MS + 4}")


def d3_lost(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    story.later(HOUR_S + 61)
    story.final()


def d3_lost_although_a_cancel_was_refused(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.later(2)
    refused(story, "c1", cancel="x")
    story.later(100)
    story.final()


def d3_lost_after_it_was_moved(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=HOUR_MS)
    park(story, "m1@3", move="x", deliver_at=2 * HOUR_MS)
    story.later(2 * HOUR_S + 61)
    story.final()


def d3_lost_although_nothing_was_removed_any_more(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.happened("faults", "kept", tp=A)
    story.later(100)
    story.final(start=5)


def d3_lost_with_a_committed_transaction(story: Story) -> None:
    story.clock()
    story.transactional("p")
    story.begin("p", "t1")
    story.send("p", "x@1", txn="t1", details={"delay_ms": 1000})
    story.end("p", "t1")
    story.later(100)
    story.final()


def d3_delivered_twice(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.later(1)
    story.released("c", "x@3:1:1004", "x@5:1:1004")
    final_of(story)


def d3_one_occurrence_twice(story: Story) -> None:
    begin(story)
    park(story, "x@1", cron="* * * * *", period_ms=60_000)
    story.later(61)
    story.released("c", "x@3:1:60000", "x@5:1:60000")


def d3_cancelled_and_delivered(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    park(story, "c1@3", cancel="x")
    story.later(1)
    story.released("c", "x@5:1:1004")


def d3_delivered_and_cancelled(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.later(1)
    story.released("c", "x@3:1:1004")
    park(story, "c1@5", cancel="x")


def d3_cancelled_by_key_and_delivered(story: Story) -> None:
    begin(story)
    story.send("p", "x@1", key="k", details={"delay_ms": 1000})
    park(story, "c1@3", cancel_key="k")
    story.later(1)
    story.released("c", "x@5:1:1004")


def d3_cron_comes_after_its_cancel(story: Story) -> None:
    begin(story)
    park(story, "x@1", cron="* * * * *", period_ms=60_000)
    story.later(60)
    story.released("c", "x@3:1:60000")
    park(story, "c1@5", cancel="x")
    story.later(60)
    story.released("c", "x@7:1:120000")


def d3_cancel_of_what_is_pending_is_refused(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    refused(story, "c1", cancel="x")


def d3_a_cancel_is_delivered(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=HOUR_MS)
    park(story, "c1@3", cancel="x")
    story.poll("c", "c1@3")


def d3_delivered_with_another_id(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.later(1)
    story.released("c", "x@5:2:1004")


def d3_one_id_for_two(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    park(story, "y@1", delay_ms=1000)


def d3_an_id_where_another_message_lies(story: Story) -> None:
    begin(story)
    park(story, "x@1", delay_ms=1000)
    story.send("p", "y@1")


def d3_aborted_and_delivered(story: Story) -> None:
    story.clock()
    story.transactional("p")
    story.client("c", isolation="read_uncommitted")
    story.begin("p", "t1")
    story.send("p", "x@1", txn="t1", details={"delay_ms": 1000})
    story.abort("p", "t1")
    story.later(1)
    story.released("c", "x@5:1:1004")


def d4_later_before_earlier(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=2000)
    park(story, "y@3", deliver_at=1000)
    story.later(3)
    story.released("c", "x@5:1:2000", "y@6:3:1000")


def d4_same_time_and_higher_id_first(story: Story) -> None:
    begin(story)
    park(story, "x@1", deliver_at=2000)
    park(story, "y@3", deliver_at=2000)
    story.later(3)
    story.released("c", "y@5:3:2000", "x@6:1:2000")
