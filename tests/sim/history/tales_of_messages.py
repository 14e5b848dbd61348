"""Good and bad histories of produce and consume: P1 to P10. Each function tells one; its name says what happens."""

from __future__ import annotations

from tests.sim.history.story import B, Story


def three_messages(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0", "y@1", "z@2")


# --- good ------------------------------------------------------------------------------------------------------------


def good_everything_arrives(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1")
    story.poll("c", "z@2")
    story.ask_end("c", 3)
    story.final("x@0", "y@1", "z@2")


def good_doubtful_send_is_there(story: Story) -> None:
    three_messages(story)
    story.doubtful_send("p", "maybe")
    story.poll("c", "x@0", "y@1", "z@2", "maybe@3")
    story.final("x@0", "y@1", "z@2", "maybe@3")


def good_doubtful_send_is_not_there(story: Story) -> None:
    three_messages(story)
    story.doubtful_send("p", "maybe")
    story.final("x@0", "y@1", "z@2")


def good_retention_took_the_oldest(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1", "z@2")
    story.final("y@1", "z@2", start=1)


def good_what_retention_took_was_sent_again(story: Story) -> None:
    story.producer("p")
    story.client("c")
    op = story.begin_send("p", "x")
    story.poll("c", "x@0")
    story.recorder.ok(op, off=3)
    story.final("x@3", start=2)


def good_compaction_took_the_older_value(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0", key="k")
    story.send("p", "y@1", key="other")
    story.send("p", "z@2", key="k")
    story.poll("c", "y=other@1", "z=k@2")
    story.final("y=other@1", "z=k@2", compacted=True)


def good_offsets_with_holes(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0", "y@4", "z@9")
    story.poll("c", "x@0", "y@4", "z@9")
    story.final("x@0", "y@4", "z@9")


def good_seek_back_reads_again(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1", "z@2")
    story.happened("c", "seek", offs={"a-0": 0})
    story.poll("c", "x@0", "y@1")


def good_plain_producer_doubles_and_swaps(story: Story) -> None:
    story.producer("p", idempotent=False)
    story.send("p", "x@1")
    story.send("p", "y@0")
    story.final("y@0", "x@1", "x@2")


def good_unread_tail_without_a_final_read(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1")


def good_single_ack_may_be_lost(story: Story) -> None:
    story.producer("p", acks="1", idempotent=False)
    story.send("p", "x@0")
    story.producer("q")
    story.send("q", "y@0")
    story.final("y@0")


def good_end_asked_while_sending(story: Story) -> None:
    story.producer("p")
    op = story.begin_send("p", "x")
    story.ask_end("p", 0)
    story.recorder.ok(op, off=0)
    story.ask_end("p", 1)


def good_late_delivery_before_the_deadline(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0")
    story.happened("faults", "heal")
    story.later(59)
    story.poll("c", "y@1", "z@2")
    story.later(10)
    story.poll("c")


def good_reader_left_before_the_deadline(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0")
    story.happened("faults", "heal")
    story.later(5)
    story.happened("c", "close")
    story.later(100)
    story.final("x@0", "y@1", "z@2")


def good_replaced_leader_hands_out_committed_data(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0", leader=3)
    story.send("p", "y@1", leader=4)
    story.poll("c", "x@0", marks={"a-0": (3, 1)})
    story.final("x@0", "y@1")


# --- bad -------------------------------------------------------------------------------------------------------------


def p1_acknowledged_and_not_in_the_final_read(story: Story) -> None:
    three_messages(story)
    story.final("x@0", "z@2")


def p1_tail_lost(story: Story) -> None:
    three_messages(story)
    story.final("x@0", "y@1")


def p1_compaction_took_the_last_value(story: Story) -> None:
    story.producer("p")
    story.send("p", "x@0", key="k")
    story.send("p", "y@1", key="other")
    story.final("x=k@0", compacted=True)


def p1_p7_readers_went_past_it(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "z@2")


def p2_two_messages_at_one_offset(story: Story) -> None:
    story.producer("p")
    story.client("c", "d")
    story.doubtful_send("p", "x")
    story.producer("q")
    story.doubtful_send("q", "y")
    story.poll("c", "x@0")
    story.poll("d", "y@0")


def p2_offset_given_twice(story: Story) -> None:
    story.producer("p")
    story.producer("q")
    story.send("p", "x@0")
    story.send("q", "y@0")


def p3_read_and_gone(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.doubtful_send("p", "x")
    story.poll("c", "x@0")
    story.final()


def p1_p3_acknowledged_read_and_gone(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1", "z@2")
    story.final("x@0", "y@1")


def p4_refused_and_read(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.refused_send("p", "x")
    story.poll("c", "x@0")


def p4_refused_and_in_the_final_read(story: Story) -> None:
    story.producer("p")
    story.refused_send("p", "x")
    story.final("x@0")


def p5_stored_twice(story: Story) -> None:
    three_messages(story)
    story.final("x@0", "y@1", "z@2", "y@3")


def p5_acknowledged_here_and_read_there(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0")
    story.poll("c", "x@1")


def p6_order_swapped(story: Story) -> None:
    story.producer("p")
    story.send("p", "x@1")
    story.send("p", "y@0")
    story.final("y@0", "x@1")


def p6_one_in_flight_and_swapped(story: Story) -> None:
    story.producer("p", idempotent=False, in_flight=1)
    story.send("p", "x@1")
    story.send("p", "y@0")


def p6_gap_within_an_epoch(story: Story) -> None:
    story.producer("p")
    story.send("p", "x@0", epoch=0)
    story.doubtful_send("p", "y", epoch=0)
    story.send("p", "z@1", epoch=0)
    story.final("x@0", "z@1")


def p7_skip_inside_a_poll(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "z@2")
    story.final("x@0", "y@1", "z@2")


def p7_skip_between_polls(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0")
    story.poll("c", "z@2")
    story.final("x@0", "y@1", "z@2")


def p7_same_again(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1")
    story.poll("c", "y@1", "z@2")


def p7_back_inside_a_poll(story: Story) -> None:
    three_messages(story)
    story.poll("c", "y@1", "x@0")


def p7_skip_in_a_partition_that_was_kept(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0")
    story.happened("c", "assign", offs={B: None})  # the other partition's assignment changes nothing here
    story.poll("c", "z@2")
    story.final("x@0", "y@1", "z@2")


def p8_end_below_an_acknowledged_offset(story: Story) -> None:
    three_messages(story)
    story.ask_end("c", 2)


def p8_end_goes_down(story: Story) -> None:
    story.client("c", "d")
    story.ask_end("c", 5)
    story.ask_end("d", 4)


def p8_stable_offset_goes_down(story: Story) -> None:
    story.client("c", "d")
    story.ask_end("c", 5, at="stable")
    story.ask_end("d", 4, at="stable")


def p8_end_below_what_was_read(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.doubtful_send("p", "x")
    story.poll("c", "x@0")
    story.ask_end("c", 0)


def p8_read_above_the_high_watermark(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.send("p", "x@0", leader=4)
    story.poll("c", "x@0", marks={"a-0": (3, 0)})


def p9_never_delivered_after_the_heal(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1")
    story.happened("faults", "heal")
    story.later(100)
    story.poll("c")
    story.final("x@0", "y@1", "z@2")


def p9_delivered_too_late(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1")
    story.happened("faults", "heal")
    story.later(61)
    story.poll("c", "z@2")


def p10_contents_changed(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1", "z@2")
    records = story.events[-1].records
    assert records is not None
    records[1] = records[1]._replace(digest="something else")


def p10_nobody_sent_it(story: Story) -> None:
    three_messages(story)
    story.poll("c", "x@0", "y@1", "z@2", "ghost@3")


def p10_not_to_be_understood(story: Story) -> None:
    three_messages(story)
    story.final("x@0", "y@1", "z@2", "?@3")
    records = story.events[-1].records
    assert records is not None
    records[3] = records[3]._replace(uid=None)


def p10_in_another_partition(story: Story) -> None:
    story.producer("p")
    story.client("c")
    story.doubtful_send("p", "x")
    story.poll("c", "x@0", tp=B)


def p10_replicas_differ(story: Story) -> None:
    for replica, crc in ((1, 77), (2, 78)):
        story.batch(0, pid=-1, txn=False, replica=replica, crc=crc)
