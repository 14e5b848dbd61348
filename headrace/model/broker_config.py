"""Every setting of a broker, with its type, default and meaning; and the typed settings of one broker.

They come from a file of `key=value` lines (`headrace serve --config FILE`); those that are not read-only can also be
changed at run time. The broker-wide defaults for topics are taken from the topic table, under their broker names, so
the two tables cannot differ. If a default differs from Kafka's, the meaning says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from headrace.model import topic_config
from headrace.model.failure import Failure
from headrace.model.settings import ABSENT, INT_MAX, LONG_MAX, Setting, SettingType, problem_with
from headrace.world.disk import Disk

_T = SettingType


def _own(name: str, kind: SettingType, default: Any, meaning: str, **limits: Any) -> Setting:
    return Setting(name, kind, default, meaning, read_only=True, **limits)


_OWN: tuple[Setting, ...] = (
    _own("auto.create.topics.enable", _T.BOOLEAN, True, "create a missing topic when a client asks for it"),
    _own("auto.leader.rebalance.enable", _T.BOOLEAN, True,
         "return leadership to the preferred leader, some time after it has come back"),
    _own("broker.id", _T.INT, 1, "the number of this broker in its cluster; it never changes for a data folder", low=0),
    _own("broker.rack", _T.STRING, None, "the rack of this broker; clients can read it"),
    _own("connections.max.idle.ms", _T.LONG, 600_000, "how long an idle connection is kept open", low=1),
    _own("default.replication.factor", _T.INT, None,
         "replicas of topics created without a number; by default three, or as many as there are brokers", low=1,
         high=32_767),
    _own("delete.topic.enable", _T.BOOLEAN, True, "whether topics may be deleted"),
    _own("fetch.max.bytes", _T.INT, 57_671_680, "the largest response to a Fetch", low=1024),
    Setting("follower.replication.throttled.rate", _T.LONG, LONG_MAX,
            "bytes per second for replicas that catch up on this broker, if their topics list them as throttled",
            low=1),
    _own("group.consumer.assignors", _T.LIST, ("uniform", "range"),
         "the assignors for consumer groups; the first is used if members name none", choices=("uniform", "range")),
    _own("group.consumer.heartbeat.interval.ms", _T.INT, 5_000,
         "the heartbeat interval of members of consumer groups", low=1),
    _own("group.consumer.max.size", _T.INT, INT_MAX, "members that a consumer group may have", low=1),
    _own("group.consumer.migration.policy", _T.STRING, "bidirectional",
         "whether a group with members may change from the classic to the consumer protocol, and back",
         choices=("bidirectional", "upgrade", "downgrade", "disabled")),
    _own("group.consumer.session.timeout.ms", _T.INT, 45_000,
         "the session timeout of members of consumer groups", low=1),
    _own("group.initial.rebalance.delay.ms", _T.INT, 100,
         "how long the first member of a group waits for others; Kafka's default of 3 s delays every first consumer, "
         "and 100 ms are enough for members that are started together", low=0),
    _own("group.max.session.timeout.ms", _T.INT, 1_800_000, "the longest session timeout of a group member",
         low=1),
    _own("group.max.size", _T.INT, INT_MAX, "members that a group may have", low=1),
    _own("group.min.session.timeout.ms", _T.INT, 6_000, "the shortest session timeout of a group member",
         low=1),
    Setting("group.share.delivery.count.limit", _T.INT, 5,
            "how often a record is delivered to a share group before it counts as failed", low=2, high=10),
    Setting("group.share.heartbeat.interval.ms", _T.INT, 5_000, "the heartbeat interval of members of share groups",
            low=1),
    Setting("group.share.max.delivery.count.limit", _T.INT, 10, "the highest share.delivery.count.limit of a group",
            low=5, high=25),
    Setting("group.share.max.heartbeat.interval.ms", _T.INT, 15_000,
            "the longest share.heartbeat.interval.ms of a group",
            low=1),
    Setting("group.share.max.partition.max.record.locks", _T.INT, 4_000,
            "the highest share.partition.max.record.locks of a group", low=2_000, high=20_000),
    Setting("group.share.max.record.lock.duration.ms", _T.INT, 60_000,
            "the longest share.record.lock.duration.ms of a group", low=30_000, high=3_600_000),
    Setting("group.share.max.session.timeout.ms", _T.INT, 60_000, "the longest share.session.timeout.ms of a group",
            low=1),
    _own("group.share.max.size", _T.INT, 200, "members that a share group may have", low=1, high=1_000),
    Setting("group.share.min.delivery.count.limit", _T.INT, 2, "the lowest share.delivery.count.limit of a group",
            low=2, high=5),
    Setting("group.share.min.heartbeat.interval.ms", _T.INT, 5_000,
            "the shortest share.heartbeat.interval.ms of a group",
            low=1),
    Setting("group.share.min.partition.max.record.locks", _T.INT, 100,
            "the lowest share.partition.max.record.locks of a group", low=100, high=2_000),
    Setting("group.share.min.record.lock.duration.ms", _T.INT, 15_000,
            "the shortest share.record.lock.duration.ms of a group", low=1_000, high=30_000),
    Setting("group.share.min.session.timeout.ms", _T.INT, 45_000, "the shortest share.session.timeout.ms of a group",
            low=1),
    Setting("group.share.partition.max.record.locks", _T.INT, 2_000,
            "how many records of a partition may be with the members of a share group at a time", low=100, high=10_000),
    Setting("group.share.record.lock.duration.ms", _T.INT, 30_000,
            "how long a member of a share group may work on a record before others get it", low=1_000, high=3_600_000),
    Setting("group.share.session.timeout.ms", _T.INT, 45_000, "the session timeout of members of share groups", low=1),
    _own("headrace.busy.poll.us", _T.INT, 250,
         "how long a broker polls for the next request of a client that sends small ones one at a time, before it "
         "sleeps, in microseconds; it stops polling while no requests arrive or other processes need the CPU; 0: no "
         "polling", low=0, high=10_000),
    _own("headrace.disk.reserve.bytes", _T.LONG, 64 << 20,
         "disk space that records may not use, so that the broker can run, stop and start; at most a hundredth of the "
         "disk; 0: none", low=0),
    _own("headrace.fetch.session.max.partitions", _T.INT, 200_000,
         "the most partitions that all fetch sessions together remember; a client without a session names its "
         "partitions in each request", low=0),
    _own("headrace.flush.interval.ms", _T.LONG, 1_000,
         "how often records of topics with headrace.flush=page-cache are written to the disk; a power cut loses at "
         "most the records since then", low=1),
    _own("headrace.group.max.bytes", _T.INT, 1 << 20,
         "what all members of one group may say of themselves, in metadata and subscriptions; also the largest "
         "assignment that a leader may send", low=1 << 16),
    _own("headrace.group.state.max.bytes", _T.INT, 16 << 20,
         "memory for all groups of one partition of __consumer_offsets; beyond that, new members, groups and offsets "
         "are refused, and those that are known go on", low=1 << 16),
    _own("headrace.partition.producer.ids.max", _T.INT, 20_000,
         "how many idempotent producers a partition remembers; beyond that it forgets those that wrote least recently "
         "and have no open transaction, and a retry of theirs that comes later is stored twice", low=100,
         high=1_000_000),
    _own("headrace.reply.budget.bytes", _T.LONG, 256 << 20,
         "memory for fetched records that are not sent yet, for all consumers together, and as much again for all "
         "replicas; beyond it, a fetch waits or gets less. At least twice fetch.max.bytes is sensible", low=1 << 20),
    _own("headrace.scrub.bytes.per.second", _T.LONG, 4 << 20,
         "how fast all stored data is read once a day, to detect corruption; 0: it is not read",
         low=0),
    _own("headrace.stray.delete.delay.ms", _T.LONG, 3_600_000,
         "how long a broker of a cluster keeps the files of partitions that were moved or deleted while it was down; "
         "counted from its start", low=0),
    _own("headrace.transaction.state.max.bytes", _T.INT, 16 << 20,
         "memory for the transactional ids of one partition of __transaction_state; beyond that, those that were used "
         "least recently and have no open transaction are removed as if they had expired", low=1 << 16),
    _own("headrace.view.idle.ms", _T.LONG, 86_400_000,
         "how long a view that readers made by naming tags, or by listing what is pending, is kept without a reader "
         "and without offsets of a group",
         low=1000),
    _own("leader.imbalance.check.interval.seconds", _T.LONG, 30,
         "how often preferred leaders are checked; a broker must be ready in two checks in a row. Kafka's default of "
         "300 s leaves a cluster unbalanced for longer than a restart takes", low=1),
    _own("leader.imbalance.per.broker.percentage", _T.INT, 10,
         "the share of its preferred leaderships that a broker may lack before leadership is returned", low=0,
         high=100),
    Setting("leader.replication.throttled.rate", _T.LONG, LONG_MAX,
            "bytes per second that leaders on this broker send to replicas that catch up, if their topics list them as "
            "throttled", low=1),
    Setting("log.cleaner.backoff.ms", _T.LONG, 15_000, "how often compacted topics are checked for work", low=1),
    _own("log.retention.check.interval.ms", _T.LONG, 300_000, "how often retention is checked", low=1),
    _own("max.connections", _T.INT, None,
         "the most open connections; others are refused. By default what the limit of open files of the process "
         "leaves (`ulimit -n`; the soft limit is raised to the hard one): a quarter of it, but no more than 256, is "
         "kept for other brokers, ZooKeeper and metadata, and half of the rest, but no more than 2,048, for the files "
         "of the log. 64 more may come from the addresses of other brokers. Kafka has no limit by default", low=1),
    _own("max.connections.per.ip", _T.INT, INT_MAX, "the most open connections from one address", low=1),
    _own("max.incremental.fetch.session.cache.slots", _T.INT, 1_000, "the most fetch sessions", low=0),
    _own("num.partitions", _T.INT, 1, "partitions of topics created without a number", low=1),
    _own("offset.metadata.max.bytes", _T.INT, 4_096, "the longest metadata string of a committed offset", low=0),
    _own("offsets.retention.check.interval.ms", _T.LONG, 600_000, "how often expired offsets are looked for", low=1),
    _own("offsets.retention.minutes", _T.INT, 30_240,
         "how long the offsets of an empty group are kept; three weeks, since records are kept for two, and a group "
         "that comes back must find its offsets", low=1),
    _own("offsets.topic.num.partitions", _T.INT, 16,
         "partitions of __consumer_offsets, fixed when it is created; 16 spread the groups over as many brokers, "
         "Kafka's 50 would mean 50 folders on the smallest broker", low=1),
    _own("offsets.topic.segment.bytes", _T.INT, 104_857_600, "the segment size of that topic", low=1),
    _own("producer.id.expiration.ms", _T.INT, 86_400_000, "how long the sequence of an idle producer is remembered",
         low=1),
    _own("queued.max.request.bytes", _T.LONG, 512 << 20,
         "memory for requests that have not come completely, and for copies of those whose batches are being opened; "
         "connections that would need more are not read until others have finished, and one that does not send the "
         "rest of its request meanwhile is closed. At least one request of socket.request.max.bytes fits; requests of "
         "less than 64 KiB are not counted; -1: no limit, as in Kafka", low=-1),
    Setting("replica.alter.log.dirs.io.max.bytes.per.second", _T.LONG, LONG_MAX,
            "accepted for compatibility; a broker has one data folder, nothing moves between folders", low=1),
    _own("replica.fetch.max.bytes", _T.INT, 4 << 20, "the bytes that a replica requests from a partition at a time",
         low=1),
    _own("replica.fetch.wait.max.ms", _T.INT, 500, "how long a replica's fetch waits for new records", low=1),
    _own("replica.lag.time.max.ms", _T.LONG, 30_000,
         "how long a replica may be behind its leader and still count as in sync", low=1),
    _own("share.coordinator.snapshot.update.records.per.snapshot", _T.INT, 500,
         "how many changes of a share partition are stored before all of its state is stored again", low=1),
    _own("share.coordinator.state.topic.num.partitions", _T.INT, 16,
         "partitions of __share_group_state, fixed when it is created; see offsets.topic.num.partitions", low=1),
    _own("share.coordinator.state.topic.prune.interval.ms", _T.INT, 300_000,
         "how often that topic is rid of changes that were stored again since", low=1),
    _own("share.coordinator.state.topic.segment.bytes", _T.INT, 104_857_600, "the segment size of that topic", low=1),
    _own("socket.request.max.bytes", _T.INT, 104_857_600, "the largest request", low=1),
    _own("transaction.max.timeout.ms", _T.INT, 900_000, "the longest timeout that a transaction may have", low=1),
    _own("transaction.remove.expired.transaction.cleanup.interval.ms", _T.INT, 3_600_000,
         "how often expired transactional ids are looked for", low=1),
    _own("transaction.state.log.num.partitions", _T.INT, 16,
         "partitions of __transaction_state, fixed when it is created; see offsets.topic.num.partitions", low=1),
    _own("transaction.state.log.segment.bytes", _T.INT, 104_857_600, "the segment size of that topic", low=1),
    _own("transactional.id.expiration.ms", _T.INT, 604_800_000, "how long an unused transactional id is remembered",
         low=1),
    _own("zookeeper.connect", _T.STRING, None,
         "the ZooKeeper of this broker's cluster, host:port,host:port/folder; without it this is a single broker"),
    _own("zookeeper.session.timeout.ms", _T.INT, 3_000,
         "how long ZooKeeper waits for a silent broker before others take over its partitions; ZooKeeper's minimum is "
         "two ticks, so its tickTime must be 1500 or less for the default", low=100),
)  # fmt: skip


# Settings that Kafka can change at run time and that tools and clients' tests do change, but that have no effect here.
_TAKEN: tuple[Setting, ...] = tuple(
    Setting(name, kind, default, f"accepted for compatibility; {why}", low=1)
    for name, kind, default, why in (
        ("background.threads", _T.INT, 10, "there are no such threads"),
        ("log.cleaner.threads", _T.INT, 1, "there are no such threads"),
        ("num.io.threads", _T.INT, 8, "there are no such threads"),
        ("num.network.threads", _T.INT, 3, "there are no such threads"),
        ("num.recovery.threads.per.data.dir", _T.INT, 2, "there are no such threads"),
        ("num.replica.fetchers", _T.INT, 1, "there are no such threads"),
        ("sasl.kerberos.min.time.before.relogin", _T.LONG, 60_000, "there are no Kerberos logins"),
    )
)


def _for_topics() -> list[Setting]:
    """The broker-wide defaults of topic settings, also in coarser units."""
    settings: list[Setting] = []
    for setting in topic_config.SETTINGS:
        if setting.broker_name is not None:
            meaning = f"for topics without {setting.name}: {setting.meaning}"
            settings.append(
                replace(setting, name=setting.broker_name, meaning=meaning, broker_name=None, broker_synonyms=())
            )
            for name, _ in setting.broker_synonyms:
                unit = name.rpartition(".")[2]
                words = f"{setting.broker_name} in {unit}, if that is not set"
                settings.append(Setting(name, _T.INT, None, words, low=setting.low))
    return settings


SETTINGS: tuple[Setting, ...] = tuple(sorted((*_OWN, *_TAKEN, *_for_topics()), key=lambda setting: setting.name))
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}

# Settings that tools look for and that a broker reports, although they come from the command line.
TOLD: Mapping[str, Setting] = {
    name: _own(name, kind, None, meaning)
    for name, kind, meaning in (
        ("advertised.listeners", _T.LIST, "where clients reach this broker: `headrace serve --advertise HOST:PORT`"),
        ("listeners", _T.LIST, "where this broker listens: `headrace serve --listen HOST:PORT`"),
        ("log.dirs", _T.LIST, "the data folder of this broker: `headrace serve --data DIR`"),
        ("node.id", _T.INT, "the number of this broker in its cluster, broker.id"),
    )
}

ELSEWHERE: Mapping[str, str] = {
    "listeners": "use `headrace serve --listen HOST:PORT`",
    "advertised.listeners": "use `headrace serve --advertise HOST:PORT`",
    "log.dir": "use `headrace serve --data DIR`",
    "controller.quorum.": "headrace has no KRaft quorum",
    "process.roles": "headrace has no KRaft quorum",
    "node.id": "use broker.id",
    "listener.security.": ABSENT.format("TLS and SASL"),
    "security.": ABSENT.format("TLS and SASL"),
    "ssl.": ABSENT.format("TLS"),
    "sasl.": ABSENT.format("SASL"),
    "authorizer.": ABSENT.format("access control"),
    "super.users": ABSENT.format("access control"),
    "quota.": ABSENT.format("quotas"),
    "client.quota.": ABSENT.format("quotas"),
    "share.": "is a setting of groups; brokers have group.share. settings for what groups do not say",
    "remote.log.": ABSENT.format("tiered storage"),
}


class BrokerConfig(Struct, frozen=True):
    """One broker's settings, every one with a value."""

    auto_create_topics: bool = True
    auto_leader_rebalance_enable: bool = True
    broker_id: int = 1
    rack: str | None = None
    connections_max_idle_ms: int = 600_000
    default_replication_factor: int | None = None  # three, or as many as there are brokers
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_session_timeout_ms: int = 45_000
    group_initial_rebalance_delay_ms: int = 100
    group_max_session_timeout_ms: int = 1_800_000
    group_max_bytes: int = 1 << 20
    group_max_size: int = INT_MAX
    group_min_session_timeout_ms: int = 6_000
    group_share_max_size: int = 200
    group_state_max_bytes: int = 16 << 20
    flush_interval_ms: int = 1_000
    leader_imbalance_check_interval_seconds: int = 30
    leader_imbalance_per_broker_percentage: int = 10
    log_retention_check_interval_ms: int = 300_000
    max_connections: int | None = None  # what the limit of open files leaves, if there is one
    max_connections_per_ip: int = INT_MAX
    fetch_session_slots: int = 1_000
    fetch_session_max_partitions: int = 200_000
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 30_240
    offsets_topic_partitions: int = 16
    offsets_topic_segment_bytes: int = 104_857_600
    partition_producer_ids_max: int = 20_000
    producer_id_expiration_ms: int = 86_400_000
    queued_max_request_bytes: int = 512 << 20
    reply_budget_bytes: int = 256 << 20
    scrub_bytes_per_s: int = 4 << 20
    busy_poll_us: int = 250
    disk_reserve_bytes: int = 64 << 20
    stray_delete_delay_ms: int = 3_600_000
    view_idle_ms: int = 86_400_000
    replica_fetch_max_bytes: int = 4 << 20
    replica_fetch_wait_max_ms: int = 500
    replica_lag_time_max_ms: int = 30_000
    share_updates_per_snapshot: int = 500
    share_topic_partitions: int = 16
    share_topic_prune_interval_ms: int = 300_000
    share_topic_segment_bytes: int = 104_857_600
    socket_request_max_bytes: int = 104_857_600
    transaction_state_max_bytes: int = 16 << 20
    transaction_max_timeout_ms: int = 900_000
    transaction_expiry_interval_ms: int = 3_600_000
    transaction_topic_partitions: int = 16
    transaction_topic_segment_bytes: int = 104_857_600
    transactional_id_expiration_ms: int = 604_800_000
    zookeeper_connect: str | None = None
    zookeeper_session_timeout_ms: int = 3_000
    settings: Mapping[str, str] = field(default_factory=dict)  # the content of the file, by Kafka's names


_SHARE_LIMITS = ("delivery.count.limit", "heartbeat.interval.ms", "partition.max.record.locks",
                 "record.lock.duration.ms", "session.timeout.ms")  # fmt: skip

_FIELDS: Mapping[str, str] = {
    "auto.create.topics.enable": "auto_create_topics",
    "broker.rack": "rack",
    "headrace.busy.poll.us": "busy_poll_us",
    "headrace.disk.reserve.bytes": "disk_reserve_bytes",
    "headrace.fetch.session.max.partitions": "fetch_session_max_partitions",
    "headrace.flush.interval.ms": "flush_interval_ms",
    "headrace.group.max.bytes": "group_max_bytes",
    "headrace.group.state.max.bytes": "group_state_max_bytes",
    "headrace.partition.producer.ids.max": "partition_producer_ids_max",
    "headrace.reply.budget.bytes": "reply_budget_bytes",
    "headrace.scrub.bytes.per.second": "scrub_bytes_per_s",
    "headrace.stray.delete.delay.ms": "stray_delete_delay_ms",
    "headrace.view.idle.ms": "view_idle_ms",
    "headrace.transaction.state.max.bytes": "transaction_state_max_bytes",
    "max.incremental.fetch.session.cache.slots": "fetch_session_slots",
    "offsets.topic.num.partitions": "offsets_topic_partitions",
    "share.coordinator.snapshot.update.records.per.snapshot": "share_updates_per_snapshot",
    "share.coordinator.state.topic.num.partitions": "share_topic_partitions",
    "share.coordinator.state.topic.prune.interval.ms": "share_topic_prune_interval_ms",
    "share.coordinator.state.topic.segment.bytes": "share_topic_segment_bytes",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "transaction_expiry_interval_ms",
    "transaction.state.log.num.partitions": "transaction_topic_partitions",
    "transaction.state.log.segment.bytes": "transaction_topic_segment_bytes",
} | {
    setting.name: setting.name.replace(".", "_")
    for setting in _OWN
    if setting.name.replace(".", "_") in BrokerConfig.__struct_fields__
}


def broker_config(settings: Mapping[str, str]) -> BrokerConfig:
    """The typed settings; ValueError for an invalid value or an unknown name."""
    for name, text in settings.items():
        wrong = problem(name, text)
        if wrong is not None:
            raise ValueError(wrong)
    wrong = _share_contradiction(settings)
    if wrong is not None:
        raise ValueError(wrong)
    typed = {_FIELDS[name]: BY_NAME[name].parse(text) for name, text in settings.items() if name in _FIELDS}
    return BrokerConfig(**typed, settings=dict(settings))


def _share_contradiction(settings: Mapping[str, str]) -> str | None:
    """What share groups get by default must be what a share group may set."""
    for rest in _SHARE_LIMITS:
        names = [f"group.share.{part}{rest}" for part in ("min.", "", "max.")]
        values = [BY_NAME[name].parse(settings[name]) if name in settings else BY_NAME[name].default for name in names]
        if values != sorted(values):
            words = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
            return f"{words}: each must be at least as great as the one before"
    return None


def problem(name: str, text: str) -> str | None:
    """What is wrong with setting `name` to `text` on a broker, or None."""
    return problem_with(name, text, "a broker", BY_NAME, {**topic_config.ELSEWHERE, **ELSEWHERE})


def load_broker_config(path: Path, disk: Disk) -> BrokerConfig:
    """From a file of `key=value` lines. Failure names the file, the line and what to do."""
    try:
        text = disk.read_bytes(path).decode()
    except OSError as error:
        raise Failure(f"cannot read the settings in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{path} is not a text file; settings are lines of key=value") from None
    return parse_broker_config(text, str(path))


def parse_broker_config(text: str, source: str) -> BrokerConfig:
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise Failure(f"{source}, line {number}: {line!r} is not of the form key=value")
        wrong = f"{name} is set twice; keep one" if name in settings else problem(name, value)
        if wrong is not None:
            raise Failure(f"{source}, line {number}: {wrong}")
        settings[name] = value
    return broker_config(settings)
