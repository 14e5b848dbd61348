"""Every node of the metadata tree: its path, its content, and its encoding. No other module contains a path.

    /cluster/id                 the cluster's id, created once
    /controller                 ephemeral: which broker is the controller
    /controller_epoch           the last elected controller; its version fences every write of a controller
    /brokers/ids/N              ephemeral: broker N is alive, at this address; and the token by which other brokers
                                recognize requests that it forwards
    /brokers/epochs/N           its version is the broker's epoch: it rises with every start of broker N
                                content: the epoch since which all its stops were clean, its disk, and the epoch
                                since which it has that disk
    /topics/NAME                a topic: id, settings, partition count; a view also names its base, by id
    /partitions/ID              the folder of one topic's partition states, by topic id
    /partitions/ID/P            one partition: replicas, leader, leader epoch, in-sync replicas, who else may lead
    /config/brokers/N           settings changed at run time, of broker N, or of all (`default`)
    /config/groups              settings of single groups; few have any, so one node has all of them
    /producer_ids               the first producer id that was not handed out

Data is JSON with a "version" field, so that a later headrace can recognize the format.

Partition states are stored beside the topic rather than below it, because a topic may have more of them than fit into
one write (10,000 are about 1 MB, a write is at most 512 KiB). They are created first, in several writes, and the
topic's node last: the topic exists from that moment on. When a topic is deleted, its node is deleted first. A crash may
leave a folder without a topic, which the next controller removes. Folders are named by topic id, so a topic that is
created again under the same name never reuses one. With one node per partition, a leader can change its ISR on its own,
with one version check.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, Struct, json

from headrace.model.broker_token import NO_TOKEN, BrokerToken
from headrace.model.failure import Failure
from headrace.model.image import BrokerImage, PartitionImage

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKERS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
TOPICS = "/topics"
PARTITIONS = "/partitions"
BROKER_SETTINGS = "/config/brokers"
GROUP_SETTINGS = "/config/groups"
PRODUCER_IDS = "/producer_ids"

FOLDERS = ("/cluster", "/brokers", BROKERS, BROKER_EPOCHS, TOPICS, PARTITIONS, "/config", BROKER_SETTINGS)

_ALL_BROKERS = "default"
_VIEW = 2  # the version of the node of a view


class UnreadableNode(Failure):
    """A node in an unknown format: written by a later version, or not by headrace."""


def _encode(fields: dict[str, Any]) -> bytes:
    return json.encode({"version": 1, **fields})


def _decode(path: str, data: bytes, newest: int = 1) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.decode(data)
        version = fields["version"]
    except (DecodeError, ValueError, KeyError, TypeError):
        raise UnreadableNode(f"the metadata at {path} is garbled: {data[:80]!r}") from None
    if not 1 <= version <= newest:
        raise UnreadableNode(f"the metadata at {path} has version {version}: a later headrace wrote it, start that one")
    return fields


# --- the cluster and its controller ---------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(CLUSTER_ID, data)["id"])


def encode_controller(broker_id: int) -> bytes:
    return _encode({"broker": broker_id})


def decode_controller(data: bytes) -> int:
    return int(_decode(CONTROLLER, data)["broker"])


# --- brokers --------------------------------------------------------------------------------------------------------


class Registration(Struct, frozen=True):
    """The address of a live broker, and the epoch of its start."""

    host: str
    port: int
    rack: str | None
    epoch: int
    unbroken_since: int = 0
    disk_since: int = 0
    token: BrokerToken = NO_TOKEN
    registered_ms: int | None = None  # by its own clock, for people; brokers of earlier versions do not say it


class Past(Struct, frozen=True):
    """What is stored about a broker's earlier starts."""

    unbroken_since: int
    disk_id: str = ""
    disk_since: int = 0


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def broker_epoch_path(broker_id: int) -> str:
    return f"{BROKER_EPOCHS}/{broker_id}"


def encode_registration(broker: Registration) -> bytes:
    return _encode(
        {
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "epoch": broker.epoch,
            "unbroken_since": broker.unbroken_since,
            "disk_since": broker.disk_since,
            "token": broker.token.text,
            "registered_ms": broker.registered_ms,
        }
    )


def decode_registration(broker_id: int, data: bytes) -> Registration:
    fields = _decode(broker_path(broker_id), data)
    unbroken_since = fields.get("unbroken_since", fields["epoch"])
    reached = fields["host"], fields["port"], fields["rack"]
    token = BrokerToken(fields.get("token", ""))  # brokers of earlier versions have none
    since = unbroken_since, fields.get("disk_since", 0)
    return Registration(*reached, fields["epoch"], *since, token, fields.get("registered_ms"))


def broker_image(broker_id: int, data: bytes) -> BrokerImage:
    """A live broker, as the image shows it."""
    found = decode_registration(broker_id, data)
    starts = found.epoch, found.unbroken_since, found.disk_since
    return BrokerImage(broker_id, found.host, found.port, found.rack, *starts, found.token)


def encode_broker_epoch(past: Past) -> bytes:
    return _encode({"unbroken_since": past.unbroken_since, "disk_id": past.disk_id, "disk_since": past.disk_since})


def decode_broker_epoch(broker_id: int, data: bytes) -> Past | None:
    """None if the node was written before this was stored."""
    if not data:
        return None
    fields = _decode(broker_epoch_path(broker_id), data)
    return Past(int(fields["unbroken_since"]), fields.get("disk_id", ""), fields.get("disk_since", 0))


# --- topics ---------------------------------------------------------------------------------------------------------


class StoredTopic(Struct, frozen=True):
    id: uuid.UUID
    partitions: int
    settings: Mapping[str, str]
    base: uuid.UUID | None = None  # of a view


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def encode_topic(topic: StoredTopic) -> bytes:
    """A view has a version of its own, which an earlier headrace refuses: it would take it for a topic."""
    fields = {"id": topic.id.hex, "partitions": topic.partitions, "settings": dict(topic.settings)}
    return _encode(fields if topic.base is None else {**fields, "version": _VIEW, "base": topic.base.hex})


def decode_topic(name: str, data: bytes) -> StoredTopic:
    fields = _decode(topic_path(name), data, _VIEW)
    base = uuid.UUID(fields["base"]) if fields["version"] == _VIEW else None
    return StoredTopic(uuid.UUID(fields["id"]), fields["partitions"], fields["settings"], base)


# --- partitions -----------------------------------------------------------------------------------------------------


class PartitionState(Struct, frozen=True):
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]  # broker and the broker epoch under which it was in sync
    controller_epoch: int  # of the controller that wrote this
    elr: tuple[tuple[int, int], ...] = ()
    last_known: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False


def partitions_path(topic_id: uuid.UUID) -> str:
    return f"{PARTITIONS}/{topic_id.hex}"


def partition_path(topic_id: uuid.UUID, index: int) -> str:
    return f"{PARTITIONS}/{topic_id.hex}/{index}"


def place_of(path: str) -> tuple[uuid.UUID, int]:
    """The inverse: from a partition's path to its topic's id and its number."""
    topic_id, _, index = path.removeprefix(f"{PARTITIONS}/").partition("/")
    return uuid.UUID(topic_id), int(index)


def encode_partition(state: PartitionState) -> bytes:
    return _encode(
        {
            "replicas": state.replicas,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "controller_epoch": state.controller_epoch,
            "elr": state.elr,
            "last_known": state.last_known,
            "adding": state.adding,
            "removing": state.removing,
            "recovering": state.recovering,
        }
    )


def decode_partition(path: str, data: bytes) -> PartitionState:
    fields = _decode(path, data)
    return PartitionState(
        tuple(fields["replicas"]),
        fields["leader"],
        fields["leader_epoch"],
        tuple((broker, epoch) for broker, epoch in fields["isr"]),
        fields["controller_epoch"],
        tuple((broker, epoch) for broker, epoch in fields.get("elr", ())),
        tuple(fields.get("last_known", ())),
        tuple(fields.get("adding", ())),
        tuple(fields.get("removing", ())),
        fields.get("recovering", False),
    )


def state_of(partition: PartitionImage, controller_epoch: int) -> PartitionState:
    """The stored state of a partition."""
    return PartitionState(
        partition.replicas,
        partition.leader,
        partition.leader_epoch,
        tuple(zip(partition.isr, partition.isr_epochs, strict=True)),
        controller_epoch,
        partition.elr,
        partition.last_known,
        partition.adding,
        partition.removing,
        partition.recovering,
    )


def image_of(index: int, state: PartitionState, version: int) -> PartitionImage:
    """The inverse; `version` is that of the node."""
    return PartitionImage(
        index,
        state.replicas,
        tuple(broker for broker, _ in state.isr),
        state.leader,
        state.leader_epoch,
        version,
        tuple(epoch for _, epoch in state.isr),
        state.elr,
        state.last_known,
        state.adding,
        state.removing,
        state.recovering,
    )


# --- settings and producer ids --------------------------------------------------------------------------------------


def broker_settings_path(broker: str) -> str:
    """`broker` is a broker's number, or "" for all brokers."""
    return f"{BROKER_SETTINGS}/{broker or _ALL_BROKERS}"


def broker_of_settings(name: str) -> str:
    """The inverse: from the last part of the path."""
    return "" if name == _ALL_BROKERS else name


def encode_settings(settings: Mapping[str, str]) -> bytes:
    return _encode({"settings": dict(settings)})


def decode_settings(path: str, data: bytes) -> dict[str, str]:
    return dict(_decode(path, data)["settings"])


def encode_group_settings(groups: Mapping[str, Mapping[str, str]]) -> bytes:
    return _encode({"groups": {group: dict(settings) for group, settings in groups.items()}})


def decode_group_settings(data: bytes) -> dict[str, dict[str, str]]:
    return {group: dict(settings) for group, settings in _decode(GROUP_SETTINGS, data)["groups"].items()}


def encode_next_producer_id(first_free: int) -> bytes:
    return _encode({"first_free": first_free})


def decode_next_producer_id(data: bytes) -> int:
    return int(_decode(PRODUCER_IDS, data)["first_free"])
