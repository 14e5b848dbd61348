"""Good and bad histories of consumer groups: G1 to G7."""

from __future__ import annotations

from tests.sim.history.story import A, B, Story


def five_messages(story: Story) -> None:
    story.producer("p")
    story.send("p", "m0@0", "m1@1", "m2@2", "m3@3", "m4@4")


def two_members(story: Story) -> None:
    five_messages(story)
    story.member("c", "d")


def c_reads_two_and_commits(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0", "m1@1")
    story.commit("c", 2, "c1", epoch=1)


# --- good ------------------------------------------------------------------------------------------------------------


def good_handover(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.revoke("c")
    story.assign("d", epoch=2)
    story.poll("d", "m2@2", "m3@3", "m4@4")
    story.commit("d", 5, "d1", epoch=2)
    story.fetch("d", 5, "d1")


def good_commit_in_flight_at_the_handover(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.poll("c", "m2@2")
    op = story.begin_commit("c", 3, "c2", epoch=1)
    story.revoke("c", f="lost")
    story.assign("d", epoch=2)
    story.poll("d", "m2@2", "m3@3")
    story.recorder.info(op, err="_TIMED_OUT")


def good_member_finds_out_late_that_it_was_thrown_out(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.assign("d", epoch=2)
    story.poll("d", "m2@2")
    story.poll("c", "m2@2")
    story.revoke("c", f="lost")


def good_doubtful_commit_is_read(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0")
    story.recorder.info(story.begin_commit("c", 1, "c1"), err="_TIMED_OUT")
    story.fetch("d", -1)
    story.fetch("d", 1, "c1")
    story.fetch("d", 1, "c1")


def good_reads_around_a_commit(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.poll("c", "m2@2")
    op = story.begin_commit("c", 3, "c2")
    story.fetch("d", 2, "c1")
    story.fetch("d", 3, "c2")
    story.recorder.ok(op)
    story.fetch("d", 3, "c2")


def good_static_member_comes_back_in_its_generation(story: Story) -> None:
    five_messages(story)
    story.member("c/1", instance="i")
    story.assign("c/1", epoch=1)
    story.happened("c/1", "close", details={"crashed": True})
    story.member("c/2", instance="i")
    story.assign("c/2", epoch=1)


def good_member_keeps_what_it_had(story: Story) -> None:
    two_members(story)
    story.assign("c", A, B, epoch=1)
    story.revoke("c", B)
    story.assign("d", B, epoch=2)
    story.happened("c", "assign", group="g", offs={}, epoch=2)


def good_late_reset_skips_the_old(story: Story) -> None:
    five_messages(story)
    story.member("c", reset="latest")
    story.assign("c", epoch=1)
    story.poll("c", "m3@3", "m4@4")
    story.commit("c", 5, "c1")


def good_crash_is_noticed_after_the_session_timeout(story: Story) -> None:
    five_messages(story)
    story.member("c", "d", session_timeout_ms=10_000)
    story.assign("c", epoch=1)
    story.happened("c", "close", details={"crashed": True})
    story.later(11)
    story.assign("d", epoch=2)


# --- bad -------------------------------------------------------------------------------------------------------------


def g1_two_owners_in_one_generation(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.assign("d", epoch=1)


def g1_given_away_before_it_was_given_back(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.assign("d", epoch=2)
    story.revoke("c")


def g1_given_away_before_the_fence(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.assign("d", epoch=2)
    story.happened("c", "fenced", group="g")


def g1_kept_and_given_to_another(story: Story) -> None:
    two_members(story)
    story.assign("c", A, B, epoch=1)
    story.assign("d", B, epoch=2)
    story.happened("c", "assign", group="g", offs={}, epoch=2)


def g2_old_value_after_the_new_one(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.poll("c", "m2@2")
    story.commit("c", 3, "c2")
    story.fetch("d", 2, "c1")


def g2_values_take_turns(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.poll("c", "m2@2")
    op = story.begin_commit("c", 3, "c2")
    story.fetch("d", 3, "c2")
    story.fetch("d", 2, "c1")
    story.recorder.ok(op)


def g2_read_before_it_was_written(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0")
    story.fetch("d", 1, "c1")
    story.commit("c", 1, "c1")


def g2_refused_commit_is_read(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0")
    story.recorder.fail(story.begin_commit("c", 1, "c1"), err="ILLEGAL_GENERATION")
    story.fetch("d", 1, "c1")


def g2_nobody_committed_that(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.fetch("d", 4, "strange")


def g3_committed_and_never_delivered(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0", "m1@1")
    story.commit("c", 4, "c1")


def g3_committed_before_it_was_delivered(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0")
    story.commit("c", 2, "c1")
    story.poll("c", "m1@1")


def g3_first_message_left_out(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m1@1", "m2@2")
    story.commit("c", 3, "c1")


def g4_new_owner_begins_too_late(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.revoke("c")
    story.assign("d", epoch=2)
    story.poll("d", "m3@3")


def g4_new_owner_begins_too_early(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.revoke("c")
    story.assign("d", epoch=2)
    story.poll("d", "m0@0", "m1@1")


def g4_new_owner_begins_at_an_outdated_commit(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.poll("c", "m2@2", "m3@3")
    story.commit("c", 4, "c2")
    story.revoke("c")
    story.assign("d", epoch=2)
    story.poll("d", "m2@2")


def g5_forgotten(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.fetch("d", -1)


def g5_forgotten_after_it_was_read(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.poll("c", "m0@0")
    story.recorder.info(story.begin_commit("c", 1, "c1"), err="_TIMED_OUT")
    story.fetch("d", 1, "c1")
    story.fetch("d", -1)


def g6_old_owner_commits(story: Story) -> None:
    c_reads_two_and_commits(story)
    story.assign("d", epoch=2)
    story.poll("d", "m2@2", "m3@3")
    story.poll("c", "m2@2")
    story.commit("c", 3, "c2", epoch=1)
    story.revoke("c", f="lost")


def g7_generation_after_generation(story: Story) -> None:
    two_members(story)
    for epoch in range(1, 7):
        story.assign("c", epoch=epoch)
        story.revoke("c")


def g7_no_rest(story: Story) -> None:
    two_members(story)
    story.assign("c", epoch=1)
    story.later(20)
    story.revoke("c")
    story.assign("c", epoch=2)
