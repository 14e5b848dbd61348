"""Every setting that a topic can have, with its type, default and meaning; and one topic's settings, typed.

A topic's value wins over the broker's (`broker_name`), which wins over the default here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from headrace.model.settings import ABSENT, LONG_MAX, Setting, SettingType, problem_with
from headrace.model.tag_filter import MATCHES

_S = Setting
_T = SettingType
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_NOT_TIERED = "accepted for compatibility; there is no tiered storage, all data of a topic is local"

SETTINGS: tuple[Setting, ...] = (
    _S("cleanup.policy", _T.LIST, ("delete",), "delete old segments, compact by key, both, or neither",
       choices=("delete", "compact"), may_be_empty=True, broker_name="log.cleanup.policy"),
    _S("compression.gzip.level", _T.INT, -1, "the gzip level, if compression.type is gzip; -1: zlib's default",
       low=-1, high=9, broker_name="compression.gzip.level"),
    _S("compression.lz4.level", _T.INT, 9, "accepted for compatibility; the broker has a single lz4 level", low=1,
       high=17, broker_name="compression.lz4.level"),
    _S("compression.type", _T.STRING, "producer", "the codec of stored batches; `producer`: as they were sent",
       choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), broker_name="compression.type"),
    _S("compression.zstd.level", _T.INT, 3, "the zstd level, if compression.type is zstd", low=-131_072,
       high=22, broker_name="compression.zstd.level"),
    _S("delete.retention.ms", _T.LONG, DAY_MS, "how long a tombstone stays in a compacted topic", low=0,
       broker_name="log.cleaner.delete.retention.ms"),
    _S("file.delete.delay.ms", _T.LONG, 60_000, "how long the file of a deleted segment stays on disk", low=0,
       broker_name="log.segment.delete.delay.ms"),
    _S("flush.messages", _T.LONG, LONG_MAX, "accepted for compatibility; see headrace.flush", low=1,
       broker_name="log.flush.interval.messages"),
    _S("flush.ms", _T.LONG, LONG_MAX, "accepted for compatibility; see headrace.flush", low=0,
       broker_name="log.flush.interval.ms"),
    _S("follower.replication.throttled.replicas", _T.LIST, (),
       "replicas to which follower.replication.throttled.rate applies while they catch up: PARTITION:BROKER, or *",
       pattern=r"\*|\d+:\d+"),
    _S("headrace.dedup.max.bytes", _T.LONG, 64 << 20,
       "memory for the ids of one partition; if the window does not fit, the oldest ids are dropped first", low=1024),
    _S("headrace.dedup.window.ms", _T.LONG, 0,
       "a record is dropped if its headrace.id was stored in its partition within this time; 0: no deduplication",
       low=0),
    _S("headrace.delay.enable", _T.BOOLEAN, False,
       "look for delay headers: records with one are kept back until they are due"),
    _S("headrace.flush", _T.STRING, "page-cache",
       "page-cache: acknowledged from memory, flushed every second; fsync: acknowledged once on disk",
       choices=("page-cache", "fsync"), broker_name="headrace.flush"),
    _S("headrace.replica.lag.max.messages", _T.LONG, -1,
       "a replica that is further behind its leader leaves the ISR immediately; -1: only the time counts",
       low=-1, broker_name="headrace.replica.lag.max.messages"),
    _S("headrace.tags.enable", _T.BOOLEAN, False,
       "records may have tags (headrace.tag), and the topic may have views that keep some of them"),
    _S("headrace.view.match", _T.STRING, "any",
       "which records a view keeps: those with any, all or none of headrace.view.tags; fixed when it is created",
       choices=MATCHES),
    _S("headrace.view.of", _T.STRING, "",
       "makes the topic a read-only view of this one, by tags or of what is pending; fixed when it is created"),
    _S("headrace.view.pending", _T.BOOLEAN, False,
       "the view shows the delayed records of its base that are pending; fixed when it is created"),
    _S("headrace.view.tags", _T.LIST, (), "the tags that a view goes by; fixed when it is created"),
    _S("headrace.view.used", _T.LONG, 0,
       "set by brokers: when a view that readers share was needed last; see headrace.view.idle.ms", low=0),
    _S("index.interval.bytes", _T.INT, 4096, "log bytes between two index entries", low=0,
       broker_name="log.index.interval.bytes"),
    _S("leader.replication.throttled.replicas", _T.LIST, (),
       "leaders to which leader.replication.throttled.rate applies for replicas that catch up: "
       "PARTITION:BROKER, or *", pattern=r"\*|\d+:\d+"),
    _S("local.retention.bytes", _T.LONG, -2, _NOT_TIERED, low=-2),
    _S("local.retention.ms", _T.LONG, -2, _NOT_TIERED, low=-2),
    _S("max.compaction.lag.ms", _T.LONG, LONG_MAX, "the longest a record stays out of compaction", low=1,
       broker_name="log.cleaner.max.compaction.lag.ms"),
    _S("max.message.bytes", _T.INT, 1_048_588, "the largest record batch, as the producer compressed it", low=0,
       broker_name="message.max.bytes"),
    _S("message.timestamp.after.max.ms", _T.LONG, 3_600_000, "how far in the future a record's time may lie", low=0,
       broker_name="log.message.timestamp.after.max.ms"),
    _S("message.timestamp.before.max.ms", _T.LONG, LONG_MAX, "how far in the past a record's time may lie", low=0,
       broker_name="log.message.timestamp.before.max.ms"),
    _S("message.timestamp.type", _T.STRING, "CreateTime", "whose clock sets timestamps: the producer's or the broker's",
       choices=("CreateTime", "LogAppendTime"), broker_name="log.message.timestamp.type"),
    _S("min.cleanable.dirty.ratio", _T.DOUBLE, 0.5, "the share of uncompacted bytes that starts a compaction",
       low=0, high=1, broker_name="log.cleaner.min.cleanable.ratio"),
    _S("min.compaction.lag.ms", _T.LONG, 0, "how long a record is safe from compaction", low=0,
       broker_name="log.cleaner.min.compaction.lag.ms"),
    _S("min.insync.replicas", _T.INT, 1, "in-sync replicas required for acks=all", low=1,
       broker_name="min.insync.replicas"),
    _S("preallocate", _T.BOOLEAN, False, "accepted for compatibility; segments are not preallocated",
       broker_name="log.preallocate"),
    _S("remote.log.copy.disable", _T.BOOLEAN, False, _NOT_TIERED),
    _S("remote.log.delete.on.disable", _T.BOOLEAN, False, _NOT_TIERED),
    _S("remote.storage.enable", _T.BOOLEAN, False, _NOT_TIERED, choices=("false",)),
    _S("retention.bytes", _T.LONG, -1, "the partition size beyond which old segments are deleted; -1: no limit",
       low=-1, broker_name="log.retention.bytes"),
    _S("retention.ms", _T.LONG, 14 * DAY_MS, "the age at which old segments are deleted; -1: never", low=-1,
       broker_name="log.retention.ms",
       broker_synonyms=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))),
    _S("segment.bytes", _T.INT, 1 << 30, "the size at which a new segment starts", low=14,
       broker_name="log.segment.bytes"),
    _S("segment.index.bytes", _T.INT, 10 << 20, "the size of an index at which a new segment starts", low=4,
       broker_name="log.index.size.max.bytes"),
    _S("segment.jitter.ms", _T.LONG, 0, "accepted for compatibility; not needed here", low=0,
       broker_name="log.roll.jitter.ms"),
    _S("segment.ms", _T.LONG, 7 * DAY_MS, "the age at which a new segment starts", low=1,
       broker_name="log.roll.ms", broker_synonyms=(("log.roll.hours", HOUR_MS),)),
    _S("unclean.leader.election.enable", _T.BOOLEAN, False, "whether a replica that may lack records can be elected",
       broker_name="unclean.leader.election.enable"),
)  # fmt: skip

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}

_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # as in a batch's attributes

ELSEWHERE: Mapping[str, str] = {
    "headrace.ttl.": ABSENT.format("expiry with a dead letter topic"),
    "headrace.partitions.active": ABSENT.format("topics that lose partitions"),
    "remote.": ABSENT.format("tiered storage"),
    "remote.storage.enable": ABSENT.format("tiered storage"),
    "message.format.version": "Kafka removed it; record batches have format 2",
    "message.downconversion.enable": "Kafka removed it; record batches have format 2",
    "message.timestamp.difference.max.ms": (
        "Kafka removed it; use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}


class TopicConfig(Struct, frozen=True):
    """One topic's settings, every one with a value."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    codec: int | None = None  # the number of compression.type; None: as the producer sent it
    codec_level: int | None = None  # None: the codec's default
    dedup_max_bytes: int = 64 << 20
    dedup_window_ms: int = 0
    delayed: bool = False  # headrace.delay.enable
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    follower_throttled: tuple[str, ...] = ()
    fsync: bool = False
    index_interval_bytes: int = 4096
    leader_throttled: tuple[str, ...] = ()
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    timestamp_after_max_ms: int = 3_600_000
    timestamp_before_max_ms: int = LONG_MAX
    log_append_time: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    replica_lag_max_messages: int = -1
    retention_bytes: int = -1
    retention_ms: int = 14 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * DAY_MS
    tags: bool = False

    @property
    def batches_stay_closed(self) -> bool:
        """Whether the log stores a client's batch as it came, and leaves closed what is compressed: only base offset
        and leader epoch are written. Then the usual append of the log applies (log/tail.py)."""
        return self._nothing_changes and not self.delayed

    @property
    def opened_for_delays_only(self) -> bool:
        """Whether the usual append applies to batches that are not compressed and have no delay header."""
        return self._nothing_changes and self.delayed

    @property
    def _nothing_changes(self) -> bool:
        plain = self.codec is None and not self.log_append_time
        return plain and not self.compacted and not self.dedup_window_ms

    def opens(self, codec: int) -> bool:
        """Whether the log opens what a client has compressed with this codec before it stores it."""
        return self.compacted or self.dedup_window_ms > 0 or self.delayed or self.codec not in (None, codec)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        return "delete" in self.cleanup_policy


# Every field is in one of these; a test sees to it. The first may make `batches_stay_closed` false.
OPENING_FIELDS = frozenset({"cleanup_policy", "codec", "dedup_window_ms", "delayed", "log_append_time"})
CLOSED_FIELDS = frozenset(
    {
        "codec_level",  # means nothing without a codec
        "dedup_max_bytes",  # means nothing without a window
        "delete_retention_ms",
        "file_delete_delay_ms",
        "follower_throttled",
        "fsync",
        "index_interval_bytes",
        "leader_throttled",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "min_insync_replicas",
        "replica_lag_max_messages",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_ms",
        "tags",  # looked for when a view is read
        "timestamp_after_max_ms",  # these two are checked by a batch's header where it is compressed
        "timestamp_before_max_ms",
    }
)


def effective(topic: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, Any]:
    """Every topic setting by name with the value in force, typed."""
    return {setting.name: value_in_force(setting, topic, broker) for setting in SETTINGS}


def value_in_force(setting: Setting, topic: Mapping[str, str], broker: Mapping[str, str]) -> Any:
    text = topic.get(setting.name)
    if text is None and setting.broker_name is not None:
        text = broker.get(setting.broker_name)
        if text is None:
            text = from_synonyms(setting, broker)
    return setting.default if text is None else setting.parse(text)


def from_synonyms(setting: Setting, broker: Mapping[str, str]) -> str | None:
    """The broker's setting in hours or minutes, in milliseconds; -1 (never) is unchanged."""
    for name, unit in setting.broker_synonyms:
        if name in broker:
            count = int(broker[name])
            return str(count * unit if count >= 0 else -1)
    return None


def topic_config(topic: Mapping[str, str], broker: Mapping[str, str]) -> TopicConfig:
    v = effective(topic, broker)
    return TopicConfig(
        cleanup_policy=v["cleanup.policy"],
        codec=_CODECS.get(v["compression.type"]),
        codec_level=_level(v),
        dedup_max_bytes=v["headrace.dedup.max.bytes"],
        dedup_window_ms=v["headrace.dedup.window.ms"],
        delayed=v["headrace.delay.enable"],
        delete_retention_ms=v["delete.retention.ms"],
        file_delete_delay_ms=v["file.delete.delay.ms"],
        follower_throttled=v["follower.replication.throttled.replicas"],
        fsync=v["headrace.flush"] == "fsync",
        index_interval_bytes=v["index.interval.bytes"],
        leader_throttled=v["leader.replication.throttled.replicas"],
        max_compaction_lag_ms=v["max.compaction.lag.ms"],
        max_message_bytes=v["max.message.bytes"],
        timestamp_after_max_ms=v["message.timestamp.after.max.ms"],
        timestamp_before_max_ms=v["message.timestamp.before.max.ms"],
        log_append_time=v["message.timestamp.type"] == "LogAppendTime",
        min_cleanable_dirty_ratio=v["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=v["min.compaction.lag.ms"],
        min_insync_replicas=v["min.insync.replicas"],
        replica_lag_max_messages=v["headrace.replica.lag.max.messages"],
        retention_bytes=v["retention.bytes"],
        retention_ms=v["retention.ms"],
        segment_bytes=v["segment.bytes"],
        segment_index_bytes=v["segment.index.bytes"],
        segment_ms=v["segment.ms"],
        tags=v["headrace.tags.enable"],
    )


def _level(values: Mapping[str, Any]) -> int | None:
    level: int | None = values.get(f"compression.{values['compression.type']}.level")
    return None if level == -1 and values["compression.type"] == "gzip" else level


def problem(name: str, text: str) -> str | None:
    """What is wrong with setting `name` to `text` on a topic, or None."""
    return problem_with(name, text, "a topic", BY_NAME, ELSEWHERE)


def contradiction(topic: Mapping[str, str], broker: Mapping[str, str]) -> str | None:
    """Why these settings contradict each other, or None."""
    shortest, longest = "min.compaction.lag.ms", "max.compaction.lag.ms"
    shortest_ms = value_in_force(BY_NAME[shortest], topic, broker)
    longest_ms = value_in_force(BY_NAME[longest], topic, broker)
    if shortest_ms > longest_ms:
        return f"{shortest}={shortest_ms} must not be greater than {longest}={longest_ms}"
    delayed, policy = "headrace.delay.enable", "cleanup.policy"
    if value_in_force(BY_NAME[delayed], topic, broker) and "compact" in value_in_force(BY_NAME[policy], topic, broker):
        return f"{delayed}=true does not go with {policy}=compact: what waits for its time must not be compacted away"
    return None
