"""The settings of consumer groups, with Kafka's names beside them, and how they follow from a broker's."""

from __future__ import annotations

from msgspec import Struct

from headrace.model.broker_config import BrokerConfig
from headrace.model.settings_in_force import NO_FILE, BrokerFile
from headrace.model.topic_config import DAY_MS


class GroupSettings(Struct, frozen=True):
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_max_size: int = 2**31 - 1  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors; the first is the default
    migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    share_max_size: int = 200  # group.share.max.size
    share_wait_ms: int = 3_000  # how long a member that joins may wait for the state of its topics
    share_retry_ms: int = 1_000  # after the share coordinator could not be reached
    offsets_retention_ms: int = 7 * DAY_MS  # offsets.retention.minutes
    offsets_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    max_offset_metadata_bytes: int = 4_096  # offset.metadata.max.bytes
    max_group_bytes: int = 1 << 20  # headrace.group.max.bytes
    max_state_bytes: int = 16 << 20  # headrace.group.state.max.bytes
    new_member_timeout_ms: int = 300_000  # how long a new member may wait for its first generation
    file: BrokerFile = NO_FILE  # this broker's defaults for topics


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        max_group_bytes=config.group_max_bytes,
        max_state_bytes=config.group_state_max_bytes,
        consumer_assignors=config.group_consumer_assignors,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        migration_policy=config.group_consumer_migration_policy,
        share_max_size=config.group_share_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
        max_offset_metadata_bytes=config.offset_metadata_max_bytes,
        file=BrokerFile(config.broker_id, config.settings),
    )
