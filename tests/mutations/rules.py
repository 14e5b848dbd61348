"""The rules of replication, how each is switched off, and which scenario must notice.

A rule may be switched off in several ways; each has to be found. docs/mutations.md is this table in words, and
test_mutations.py sees that the two agree. A scenario is a test of another suite (or of scenarios.py here), called as
a plain function.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.mutations.mutant import Mutation

REPLICATION = "tests.unit.replicas.test_replication"
IN_SYNC = "tests.unit.replicas.test_in_sync"
DISKS = "tests.unit.replicas.test_disks"
NEARBY = "tests.unit.replicas.test_reading_nearby"
ELECTION = "tests.unit.cluster.test_election"
CLUSTER = "tests.unit.cluster.test_controller_cluster"
SETTINGS = "tests.unit.cluster.test_settings_in_force"
LOG = "tests.unit.log"
HERE = "tests.mutations.scenarios"
SCHEDULE = "tests.unit.log.test_schedule"
RELEASING = "tests.unit.replicas.test_releasing"


class Case(NamedTuple):
    rule: int
    mutation: Mutation
    scenario: str  # module:function
    arguments: tuple[object, ...] = ()


def case(rule: int, module: str, line: str, instead: str, scenario: str, *arguments: object) -> Case:
    return Case(rule, Mutation(f"headrace.{module}", line, instead), scenario, arguments)


RULES = {
    1: "a follower never cuts its log to its high watermark",
    2: "logs that parted are cut where their epochs part, asking as often as it takes",
    3: "whoever believes in another leader epoch is fenced",
    4: "a follower reconciles before it fetches, in every epoch",
    5: "committed is what all have who may lead next",
    6: "nobody joins who lacks records of earlier epochs",
    7: "the ISR is written by comparing versions",
    8: "acks=all waits for the commit",
    9: "a leader out of touch serves nobody",
    10: "every write of a controller checks its epoch",
    11: "to be named as leader is not enough: the start of the broker must be meant",
    12: "a restart is seen by the broker's epoch",
    13: "who was started again cannot join under its old epoch",
    14: "the last ones in sync are remembered, and only those that lost nothing",
    15: "an unclean election happens only where it is allowed",
    16: "nobody leads while its log is being cut",
    17: "an older state never replaces a newer one",
    18: "a write whose answer was lost is looked for before it is made again",
    19: "a new leader tells no end before what was told",
    20: "old replicas leave when all new ones are in sync",
    21: "with fsync, what counts is on disk",
    22: "nothing damaged is stored or served",
    23: "a short write is cut back, and records leave room on the disk for what the broker needs",
    24: "every replica knows what producers have sent",
    25: "markers of earlier coordinators and epochs are refused",
    26: "a coordinator that loads says so, and answers when it is committed",
    27: "a follower serves only what it knows to be committed",
    47: "what was decided before work off the event loop is decided again after it",
    48: "a note counts only when its mates follow it",
    49: "what a transaction delays waits for its commit",
    50: "what is delayed is released when it is due and decided, in order, and not before",
    51: "no replica drops a record that waits, and what is not committed keeps it",
    52: "a jump of the wall clock releases nothing early and keeps nothing back",
}

CASES = [
    case(
        1,
        "replicas.pulling",
        "        if step.cut_at < self.offset:\n",
        "        step = step._replace(cut_at=min(step.cut_at, self.partition.high_watermark))\n"
        "        if step.cut_at < self.offset:\n",
        f"{HERE}:a_follower_that_has_not_heard_of_commits_cuts_nothing",
    ),
    case(
        2,
        "replicas.reconciling",
        "    return Step(own_end, True)",
        "    return Step(min(end_offset, known_end), False)",
        f"{REPLICATION}:test_logs_that_parted_twice_become_one_again",
    ),
    case(
        2,
        "replicas.pulling",
        "        if self.log.start_offset < leader_start == self._parted_at == self.offset:\n",
        "        if False:\n",
        "tests.unit.replicas.test_reparking:"
        "test_what_an_old_leader_parked_alone_goes_although_the_next_one_starts_behind_it",
    ),
    case(
        3,
        "replicas.partition",
        "        if known_epoch >= 0 and known_epoch != self.leader_epoch:",
        "        if False:",
        f"{REPLICATION}:test_a_partition_of_another_leader_refuses_writes_and_fences_epochs",
    ),
    case(
        3,
        "replicas.followed_log",
        "        if standing.leads or standing.leader_epoch != epoch or self.reshaping:",
        "        if standing.leads or self.reshaping:",
        f"{REPLICATION}:test_an_answer_of_another_epochs_leader_changes_nothing",
    ),
    case(
        4,
        "replicas.follower",
        "            if not pulled.reconciled and pulled.asked_epoch < 0:",
        "            if not pulled.reconciled:",
        f"{REPLICATION}:test_after_an_election_the_old_leaders_uncommitted_records_go_and_the_committed_stay",
    ),
    case(
        5,
        "replicas.leadership",
        "{*self.state.isr, *(self.wanted.isr if self.wanted is not None else ())}",
        "{*(self.wanted or self.state).isr}",
        f"{IN_SYNC}:test_while_a_change_is_under_way_both_sets_count",
    ),
    case(
        5,
        "replicas.isr",
        "    return len(partition.isr) >= partition.enough_in_sync(min_isr) and not partition.elr",
        "    return True",
        f"{IN_SYNC}:test_without_enough_in_sync_nothing_is_committed_and_everybody_is_told",
    ),
    case(
        6,
        "replicas.isr",
        "follower.end_offset >= max(high_watermark, epoch_start)",
        "follower.end_offset >= high_watermark",
        f"{HERE}:a_follower_of_a_new_leader_joins_with_all_of_earlier_epochs",
    ),
    case(
        7,
        "cluster.isr_writes",
        "Set(path, data, wanted.version - 1)",
        "Set(path, data)",
        f"{CLUSTER}:test_a_leader_that_was_replaced_learns_it_from_its_write",
    ),
    case(
        8,
        "replicas.committed_log",
        "        return None if last_offset < self.high_watermark else self._commits.wait_for(last_offset)",
        "        return None",
        f"{REPLICATION}:test_a_record_is_committed_when_every_replica_in_sync_has_it",
    ),
    case(
        9,
        "cluster.lease",
        "        return not self._lost and self._clock.monotonic() - self._asked_s < self._lasts_s",
        "        return not self._lost",
        "tests.unit.cluster.test_lease:test_after_a_stand_still_the_lease_holds_only_when_the_store_has_answered",
    ),
    case(
        9,
        "cluster.lease",
        "                await self._store.sync()",
        '                await self._store.exists("/")',
        "tests.unit.cluster.test_lease:test_a_server_that_is_cut_off_from_the_others_does_not_prolong_the_lease",
    ),
    case(
        9,
        "replicas.partition",
        "        if self._leader is None or not self._broker.in_touch():\n"
        "            raise KafkaError(ErrorCode.not_leader_or_follower)\n        self.check_epoch",
        "        if self._leader is None:\n"
        "            raise KafkaError(ErrorCode.not_leader_or_follower)\n        self.check_epoch",
        f"{REPLICATION}:test_out_of_touch_a_leader_serves_nobody",
    ),
    case(
        10,
        "cluster.change_queue",
        "        return [Check(znodes.CONTROLLER_EPOCH, self._epoch), *operations]",
        "        return [*operations]",
        f"{HERE}:a_controller_that_was_replaced_unseen_changes_nothing",
    ),
    case(
        11,
        "replicas.partition",
        "        return broker.broker_epoch is None or epochs.get(broker.broker_id) == broker.broker_epoch",
        "        return True",
        f"{REPLICATION}:test_a_leader_of_an_earlier_life_does_not_lead",
    ),
    case(
        12,
        "cluster.election",
        "    return found is not None and found.epoch == entry[1]",
        "    return found is not None",
        f"{ELECTION}:test_a_restarted_broker_is_compared_by_its_epoch_not_its_number",
    ),
    case(
        13,
        "cluster.isr_writes",
        "        operations += [Check(znodes.broker_epoch_path(broker), epoch) for broker, epoch in joins]\n",
        "",
        f"{CLUSTER}:test_a_broker_that_was_started_again_cannot_join_under_its_old_epoch",
    ),
    case(
        14,
        "cluster.election",
        "        elr=tuple(entry for entry in eligible if entry[0] not in broken),",
        "        elr=(),",
        f"{CLUSTER}:test_the_last_one_in_sync_comes_back_cleanly_and_leads_again",
    ),
    case(
        14,
        "cluster.election",
        "    return (found.disk_since if entry[0] in terms.synced else found.unbroken_since) <= entry[1]",
        "    return True",
        f"{ELECTION}:test_one_that_may_have_lost_records_is_no_longer_eligible",
    ),
    case(
        14,
        "cluster.election",
        "found.disk_since if entry[0] in terms.synced else",
        "0 if entry[0] in terms.synced else",
        f"{HERE}:a_broker_with_another_disk_is_not_eligible",
    ),
    case(
        14,
        "cluster.election",
        "found.disk_since if entry[0] in terms.synced else",
        "found.disk_since if terms.synced else",
        f"{SETTINGS}:test_a_crashed_replica_is_not_trusted_where_its_own_broker_did_not_sync",
    ),
    case(
        14,
        "cluster.election",
        "        return replace(after, elr=(), last_known=known)",
        "        return replace(after, elr=(), last_known=())",
        f"{ELECTION}:test_who_left_is_waited_for_when_those_who_stayed_were_dead_and_lost_what_they_had",
    ),
    case(
        14,
        "cluster.contact",
        "        self._since_s = self._clock.monotonic() if state is SessionState.CONNECTED else None",
        "        self._since_s = self._clock.monotonic()",
        "tests.unit.cluster.test_leavers:test_nobody_is_forgotten_while_zookeeper_is_away",
    ),
    case(
        15,
        "cluster.election",
        "    return unclean or (bool(partition.last_known) and everybody_is_back)",
        "    return True",
        f"{HERE}:nobody_leads_while_one_who_was_in_sync_is_away",
    ),
    case(
        16,
        "replicas.partition",
        "        if self.followed_log.reshaping:\n            self._state_after = state\n            return\n",
        "",
        f"{REPLICATION}:test_nobody_leads_while_its_log_is_being_cut",
    ),
    case(
        17,
        "replicas.partition",
        "        if known is not None and (state.leader_epoch, state.version) <= (known.leader_epoch, known.version):\n"
        "            return\n        if self.followed_log.reshaping",
        "        if self.followed_log.reshaping",
        f"{HERE}:news_that_is_old_changes_no_role",
    ),
    case(
        18,
        "cluster.membership",
        "        mine = await _own_registration(store, identity.broker_id) if reply_lost else None",
        "        mine = None",
        "tests.unit.cluster.test_membership:test_a_lost_answer_registers_a_broker_once",
        0,
    ),
    case(
        19,
        "replicas.leader_role",
        "        return leadership is not None and self._committed_log.high_watermark < leadership.epoch_start",
        "        return False",
        f"{NEARBY}:test_a_new_leader_does_not_tell_an_end_before_what_was_told",
    ),
    case(
        20,
        "cluster.reassignment",
        "    if not moves(partition) or not set(target) <= set(partition.isr):",
        "    if not moves(partition):",
        "tests.unit.cluster.test_reassignment:"
        "test_new_replicas_are_added_first_and_old_ones_leave_when_all_are_in_sync",
    ),
    case(
        21,
        "replicas.pulling",
        "        return log.offline is None and (not log.config.fsync or log.synced_offset >= log.end_offset)",
        "        return True",
        f"{DISKS}:test_a_follower_whose_disk_failed_to_sync_counts_for_nothing_until_it_is_left_out",
    ),
    case(
        22,
        "log.appending",
        "            if not crc_ok(records, at, header):",
        "            if False:",
        f"{DISKS}:test_a_batch_that_was_damaged_on_its_way_is_not_stored_and_asked_for_again",
    ),
    case(
        22,
        "log.recovery",
        "                if not crc_ok(view, at, header):",
        "                if False:",
        f"{LOG}.test_recovery:test_a_flipped_bit_ends_the_log_and_later_segments_go_with_it",
    ),
    case(
        22,
        "log.sealed",
        "        if _mark(segment) != entry.mark:",
        "        if False:",
        f"{LOG}.test_sealed:test_a_wrong_segment_of_the_same_size_is_never_served",
    ),
    case(
        22,
        "log.sealed",
        "        folder.disk.remove(folder.directory / NAME)\n",
        "",
        f"{LOG}.test_sealed:test_a_segment_that_compaction_has_rewritten_is_the_log_s_own",
    ),
    case(
        22,
        "log.recovery",
        "            if expected >= point.recovery_point:",
        "            if True:",
        f"{LOG}.test_sealed:test_nothing_is_removed_when_the_segment_of_the_recovery_point_is_missing",
    ),
    case(
        22,
        "log.recovery",
        "not fits or header.base_offset < expected or header.leader_epoch < epoch:",
        "not fits:",
        f"{LOG}.test_recovery:test_an_offset_or_epoch_outside_the_crc_that_is_not_that_of_its_place_ends_the_log",
        3,
        1,
        (0, ">q"),
    ),
    case(
        22,
        "log.aborted_txns",
        "            if not (data and self._take(data, end)) and base < torn_from:",
        "            if not self._take(data, end) and base < torn_from:",
        f"{LOG}.test_damaged_files:test_an_empty_list_of_aborted_transactions_is_made_again",
    ),
    case(
        22,
        "replicas.host",
        "        if is_new and partition.log.missing:",
        "        if False:",
        f"{DISKS}:test_a_segment_that_is_missing_at_a_start_comes_again_from_the_others",
        3,
        3,
    ),
    case(
        23,
        "log.failing",
        "        file.truncate(segment.size)\n        file.sync()",
        "        file.sync()",
        f"{HERE}:a_short_write_leaves_no_bytes_behind",
    ),
    case(
        23,
        "log.appending",
        "        self._take_room(len(records))\n",
        "",
        f"{LOG}.test_headroom:test_a_broker_that_filled_its_disk_stops_cleanly_and_starts_again",
    ),
    case(
        23,
        "log.appending",
        "        if takes_room:\n            self._take_room(total)\n",
        "",
        f"{LOG}.test_headroom:test_a_follower_keeps_the_reserve_too_but_copies_groups",
    ),
    case(
        23,
        "log.headroom",
        "        self._room_bytes -= size\n",
        "",
        f"{LOG}.test_headroom:test_a_broker_that_filled_its_disk_stops_cleanly_and_starts_again",
    ),
    case(
        24,
        "log.appending",
        "                news = news_in(header, header.leader_epoch > tail.epochs.latest)\n",
        "                news = 0\n",
        f"{REPLICATION}:test_every_replica_knows_what_producers_have_sent",
    ),
    case(
        24,
        "log.producer_state",
        "            if producer_id in self.open or producer.used_ms > producer.listed_ms:",
        "            if producer.used_ms > producer.listed_ms:",
        f"{LOG}.test_producer_state:test_no_producer_with_an_open_transaction_is_forgotten",
    ),
    case(
        25,
        "log.producer_state",
        "        if coordinator_epoch < producer.coordinator_epoch:",
        "        if False:",
        f"{LOG}.test_transactions:test_a_marker_may_not_have_a_lower_epoch_nor_come_from_an_earlier_coordinator",
    ),
    case(
        25,
        "log.producer_state",
        "        if epoch < producer.epoch or (strict and is_open and epoch == producer.epoch):",
        "        if False:",
        f"{LOG}.test_transactions:test_a_marker_may_not_have_a_lower_epoch_nor_come_from_an_earlier_coordinator",
    ),
    case(
        26,
        "coordinators.runtime",
        "        if not seat.ready:\n"
        "            _fail(future, _loading(self._topic, seat.partition))\n            return\n",
        "",
        "tests.unit.coordinators.test_runtime:test_loading_is_said_and_then_everything_is_there",
    ),
    case(
        9,
        "coordinators.runtime",
        "            self._journal.check_leads(self._topic, seat.partition)",
        "            pass",
        "tests.unit.coordinators.test_runtime:"
        "test_a_broker_that_may_have_been_replaced_does_not_even_look_things_up",
    ),
    case(
        27,
        "replicas.partition",
        "        if offset > self.high_watermark:\n"
        "            raise KafkaError(ErrorCode.offset_not_available",
        "        if False:\n            raise KafkaError(ErrorCode.offset_not_available",
        f"{NEARBY}:test_a_follower_serves_what_it_knows_to_be_committed_and_says_so_of_the_rest",
    ),
    case(
        47,
        "log.opening",
        "    if run.rewritten is not None and run.rewritten[0] == keeps:",
        "    if run.rewritten is not None:",
        f"{LOG}.test_opening:test_ids_that_came_while_a_batch_was_opened_or_rewritten_are_left_out",
    ),
    case(
        47,
        "log.opening",
        "        if prepared.wanted == wanted:",
        "        if True:",
        "tests.unit.api.test_long_appends:test_a_topic_with_other_settings_meanwhile_stores_by_those",
    ),
    case(
        47,
        "replicas.partition",
        "        leader, broker = self._leader, self._broker\n        if leader is None:",
        "        leader, broker = self._leader, self._broker\n        if leader is None and prepared is None:",
        "tests.unit.api.test_long_appends:test_who_lost_the_lead_meanwhile_writes_nothing",
    ),
    case(
        47,
        "log.appending",
        "        repeated = self._repeated(run.found)",
        "        repeated = None if prepared is not None else self._repeated(run.found)",
        f"{LOG}.test_opening:test_a_retry_that_overtook_its_first_is_found_when_that_is_opened",
    ),
    case(
        47,
        "replicas.followed_log",
        "            scanned = await self._broker.compute(unprepared.step, records)\n"
        "            self._check_follows(epoch)\n",
        "            scanned = await self._broker.compute(unprepared.step, records)\n",
        f"{REPLICATION}:test_what_an_earlier_leader_sent_is_not_stored_once_it_has_been_opened",
    ),
    case(
        48,
        "log.note_pairs",
        "        return header.crc & 0xFFFFFFFF == self.note.mate_crc",
        "        return True",
        f"{SCHEDULE}:test_a_follower_that_is_elected_between_note_and_mate_starts_from_what_counts",
    ),
    case(
        48,
        "log.scheduled",
        "        if note is not None and note.mates:",
        "        if False:",
        f"{SCHEDULE}:test_a_follower_that_got_the_note_alone_has_parked_nothing_until_the_mate_comes",
    ),
    case(
        48,
        "log.parking",
        "        for at, header in found:\n            stamp_append_time(",
        "        for at, header in []:\n            stamp_append_time(",
        f"{SCHEDULE}:test_the_note_names_the_mate_as_it_is_stored",
        True,
        None,
    ),
    case(
        49,
        "log.parking",
        "        producer_id=batch.header.producer_id if batch.header.is_transactional else NO_PRODUCER_ID,\n",
        "        producer_id=NO_PRODUCER_ID,\n",
        f"{SCHEDULE}:test_what_a_transaction_parked_waits_for_its_end",
        False,
        False,
    ),
    case(
        49,
        "log.schedule",
        "        if not commit:\n",
        "        if False:\n",
        f"{SCHEDULE}:test_what_a_transaction_parked_waits_for_its_end",
        False,
        False,
    ),
    case(
        50,
        "replicas.releasing",
        "schedule.due(office.now_ms(), _AT_ONCE, partition.last_stable_offset)",
        "schedule.due(office.now_ms(), _AT_ONCE, partition.log.end_offset)",
        f"{RELEASING}:test_what_is_not_decided_is_not_released_and_does_not_stop_others",
    ),
    case(
        50,
        "log.due_wheel",
        "            if due_ms > now_ms or due_ms >= closed_ms:",
        "            if due_ms >= closed_ms:",
        f"{SCHEDULE}:test_a_batch_of_both_kinds_is_split_and_offsets_are_what_the_producer_is_told",
    ),
    case(
        50,
        "log.due_wheel",
        "        for due_ms in heapq.nsmallest(limit + _AT_ONCE, exact.order):",
        "        for due_ms in heapq.nlargest(limit + _AT_ONCE, exact.order):",
        f"{RELEASING}:test_a_restart_releases_what_came_due_meanwhile_in_order",
    ),
    case(
        51,
        "log.trimming",
        "                count = self._without_what_waits(count)\n",
        "",
        f"{SCHEDULE}:test_retention_drops_no_segment_with_a_record_that_waits",
    ),
    case(
        51,
        "log.schedule",
        "        firsts = [note for _, note in self._moved]",
        "        firsts: list[int] = []",
        f"{SCHEDULE}:test_retention_drops_no_segment_with_a_record_that_waits",
    ),
    case(
        51,
        "log.schedule",
        "        if not deleting:\n",
        "        if False:\n",
        f"{SCHEDULE}:test_a_release_that_is_not_committed_keeps_what_it_released",
    ),
    case(
        51,
        "log.trimming",
        "                offset = min(offset, self._states.scheduled.needed_from("
        "tail.committed_offset, deleting=True))\n",
        "",
        f"{SCHEDULE}:test_the_start_of_a_log_does_not_pass_what_waits",
    ),
    case(
        51,
        "replicas.reparking",
        "            await repark(partition, partition.log.unwanted_before, self._notes)\n",
        "",
        "tests.unit.replicas.test_reparking:test_a_delay_of_an_hour_outlives_a_retention_of_a_second",
    ),
    case(
        52,
        "replicas.office_clock",
        "        return self._since_ms + int((self._clock.monotonic() - self._since_s) * 1000)",
        "        return self._clock.now_ms()",
        f"{RELEASING}:test_a_jump_of_the_wall_clock_changes_nothing",
        3_600_000,
    ),
    case(
        52,
        "replicas.partition",
        "                due_ms=leader.office.now_ms() if self.log.config.delayed else None,\n",
        "                due_ms=None,\n",
        f"{RELEASING}:test_a_jump_of_the_wall_clock_changes_nothing",
        3_600_000,
    ),
]  # fmt: skip
