"""The rules of share groups, how each is switched off, and which scenario must notice. docs/mutations.md has them in
words; test_share_mutations.py plays them."""

from __future__ import annotations

from typing import NamedTuple

from tests.mutations.mutant import Mutation

LIVE = "tests.unit.replicas.share.test_live_partition"
DELIVERIES = "tests.unit.replicas.share.test_deliveries"
WAITING = "tests.unit.api.test_share_reading"
READING = "tests.unit.replicas.share.test_reading"
SHARD = "tests.unit.coordinators.shares.test_shard"
SHARE = "headrace.replicas.share"


class ShareCase(NamedTuple):
    rule: str
    mutation: Mutation
    scenario: str  # module:function
    arguments: tuple[object, ...] = ()


SHARE_RULES = {
    "S1": "an acknowledgement is confirmed when it is stored",
    "S2": "what is being stored can neither time out nor be handed out",
    "S3": "a timer ends the lock that it was set for, and no later one",
    "S4": "a failed write leaves nothing locked, and what is stored decides",
    "S5": "retention wins over a late write",
    "S6": "the end of a leadership ends all waiting",
    "S7": "offsets without a record to hand out count as done with",
    "S8": "a record is handed out a limited number of times, at last alone",
    "S9": "nobody takes all locks while others want some",
    "S10": "the acknowledgements of a partition succeed or fail together",
    "S11": "who was replaced as leader writes nothing, nor does who read before a reset",
    "S12": "a start that was chosen is stored before anything is handed out",
    "S13": "only who holds a record acknowledges it",
    "S14": "a window full of records that are done with is not taken for free locks",
    "S15": "a fetch that ends leaves nothing behind",
    "S16": "who waits is woken by what comes back",
    "S17": "a write that comes late takes nothing back",
}


def case(rule: str, module: str, line: str, instead: str, scenario: str, *arguments: object) -> ShareCase:
    return ShareCase(rule, Mutation(module, line, instead), scenario, arguments)


SHARE_CASES = [
    case("S1", f"{SHARE}.live_partition", "        self._waiting.append(_Waiting(staged, stored))\n",
         "        self._waiting.append(_Waiting(staged, stored)); stored.set_result(None)\n",
         f"{LIVE}:test_an_acknowledgement_is_answered_when_it_is_stored_and_not_before"),
    case("S2", f"{SHARE}.window", "bytes([STAGED]) * (end - first)", "bytes([ACQUIRED]) * (end - first)",
         f"{LIVE}:test_a_staged_record_does_not_time_out_and_others_do"),
    case("S2", f"{SHARE}.window", "bytes([STAGED]) * (end - first)", "bytes([AVAILABLE]) * (end - first)",
         f"{LIVE}:test_an_acknowledgement_is_answered_when_it_is_stored_and_not_before"),
    case("S3", f"{SHARE}.window", "if max(deadlines) <= now:", "if True:",
         f"{LIVE}:test_a_lock_that_was_renewed_or_given_up_does_not_end_with_the_old_timer"),
    case("S3", f"{SHARE}.window", "self.of_state(ACQUIRED, max(first, self.base), min(end, self.end))",
         "[(max(first, self.base), min(end, self.end))]", f"{DELIVERIES}:play_deliveries"),
    case("S4", f"{SHARE}.live_partition", "await self._forget(deliveries, taken, error)",
         "_fail(taken, told_by_leader(error))", f"{LIVE}:refused", "unknown_server_error"),
    case("S4", f"{SHARE}.deliveries", "if begin < stop and batch.state != AVAILABLE:", "if False:",
         f"{LIVE}:test_a_write_whose_answer_was_lost_counts"),
    case("S4", f"{SHARE}.deliveries", "            if done_before > first:\n", "            if False:\n",
         f"{LIVE}:test_a_write_whose_answer_was_lost_counts"),
    case("S5", f"{SHARE}.deliveries", "first = max(first, window.base)  # what", "first = first  # what",
         f"{LIVE}:test_retention_wins_over_a_late_write"),
    case("S6", f"{SHARE}.live_partition", "        _fail(waiting, why)\n        self.wake()\n",
         "        _fail(waiting, why)\n",
         f"{LIVE}:test_the_end_of_the_leadership_ends_waiting_members_and_writes"),
    case("S6", f"{SHARE}.live_partition", "        _fail(waiting, why)\n        self.wake()\n", "        self.wake()\n",
         f"{LIVE}:test_the_end_of_the_leadership_ends_waiting_members_and_writes"),
    case("S7", f"{SHARE}.reading", "if first > self.next_offset:", "if False:",
         f"{READING}:test_holes_and_control_batches_are_nobodys"),
    case("S7", f"{SHARE}.reading", "not (header.is_control or dead)", "not header.is_control",
         f"{READING}:test_of_aborted_transactions_nothing_is_handed_out"),
    case("S8", f"{SHARE}.deliveries", "ARCHIVED if count >= limits.delivery_limit else AVAILABLE", "AVAILABLE",
         f"{DELIVERIES}:play_deliveries"),
    case("S8", f"{SHARE}.acquisition", "    if count < max(2, half):\n", "    if True:\n",
         f"{DELIVERIES}:test_a_record_that_kills_its_consumers_does_not_take_its_neighbours_along"),
    case("S9", f"{SHARE}.live_partition", "max(1, max_locks // len(seen))", "max_locks",
         f"{LIVE}:test_members_share_the_locks_and_the_last_one_has_them_all"),
    case("S10", f"{SHARE}.deliveries", "            if one.last >= max(self.window.end, self.trimmed_to):\n",
         "            if False:\n", f"{DELIVERIES}:play_wrong_acknowledgements"),
    case("S11", "headrace.coordinators.shares.shard", "        elif stored.leader_epoch > state.leader_epoch:\n",
         "        elif False:\n", f"{LIVE}:test_a_leader_that_was_fenced_ends"),
    case("S11", "headrace.coordinators.shares.shard", "        elif stored.state_epoch != state.state_epoch:\n",
         "        elif False:\n", f"{LIVE}:test_a_reset_makes_the_leader_read_anew"),
    case("S12", f"{SHARE}.live_partition", "await self._states.write(self.key, state)  # or else", "pass  #",
         f"{LIVE}:play_chosen_start"),
    case("S13", f"{SHARE}.window", "return self._owners[2 * low : 2 * high] == _owner(owner) * (high - low)",
         "return True", f"{DELIVERIES}:test_only_who_holds_a_record_acknowledges_it"),
    case("S14", f"{SHARE}.deliveries", "window.next_available(window.base) == window.end", "False",
         f"{DELIVERIES}:test_one_slow_record_does_not_stop_the_others_until_the_window_is_full"),
    case("S15", "headrace.api.share_reading", "live.waiters.pop(wait.due, None)", "pass",
         f"{WAITING}:test_a_fetch_in_vain_leaves_nothing_behind"),
    case("S16", f"{SHARE}.live_partition", "if self.crowded or deliveries.next_offset < deliveries.window.end:",
         "if False:", f"{WAITING}:test_a_fetch_is_woken_when_locks_are_free_again"),
    case("S16", f"{SHARE}.live_partition", "                waiter.set_result(None)\n", "                pass\n",
         f"{WAITING}:test_a_fetch_is_woken_by_records_by_a_release_and_by_a_lock_that_runs_out"),
    case("S17", "headrace.coordinators.shares.batches", "batch.state != AVAILABLE else",
         "True else", f"{SHARD}:play_late_write"),
    case("S17", "headrace.coordinators.shares.shard", "max(stored.start_offset, update.start_offset)",
         "update.start_offset", f"{SHARD}:play_late_write"),
]  # fmt: skip
