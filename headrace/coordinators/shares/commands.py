"""The commands of the share coordinator. Each names one share partition; handlers submit one for each that they are
asked for. The reply is what the docstring says, or a Refusal."""

from __future__ import annotations

import base64
import binascii
import uuid

from msgspec import Struct

from headrace.model.share_state import SharePartition, ShareState
from headrace.wire.errors import ErrorCode, KafkaError

_UUID_TEXT = 22  # characters of sixteen bytes in base64, without padding


class Refusal(Struct, frozen=True):
    code: ErrorCode
    why: str = ""


class InitializeState(Struct, frozen=True):
    """Answered with None. Whatever was stored is forgotten."""

    partition: SharePartition
    state_epoch: int
    start_offset: int


class ReadState(Struct, frozen=True):
    """Answered with the ShareState. From then on, earlier leaders are fenced."""

    partition: SharePartition
    leader_epoch: int


class WriteState(Struct, frozen=True):
    """Answered with None."""

    partition: SharePartition
    state: ShareState


class DeleteState(Struct, frozen=True):
    """Answered with None, also if there is nothing to delete."""

    partition: SharePartition


class SummarizeState(Struct, frozen=True):
    """Answered with the ShareState without its batches."""

    partition: SharePartition


class SnapshotCold(Struct, frozen=True):
    """Snapshots of some share partitions that have none of this round yet. Answered with how many are left."""


class NextRound(Struct, frozen=True):
    """Snapshots count for the next round from now on. Answered with how many share partitions there are."""


class ForgetTopic(Struct, frozen=True):
    """The topic was deleted. Not answered."""

    topic_id: uuid.UUID


Command = InitializeState | ReadState | WriteState | DeleteState | SummarizeState


def coordinator_key(partition: SharePartition) -> str:
    """What hashes to the partition of `__share_group_state`, as Kafka and its clients write it."""
    topic_id = base64.urlsafe_b64encode(partition.topic_id.bytes).rstrip(b"=").decode()
    return f"{partition.group}:{topic_id}:{partition.partition}"


def check_coordinator_key(key: str) -> None:
    """KafkaError unless it has the form of `coordinator_key`. A group's name may have colons in it."""
    group, _, rest = key.partition(":") if key.count(":") < 3 else _split_last(key)
    topic_id, _, partition = rest.partition(":")
    try:
        if len(topic_id) != _UUID_TEXT or not group:
            raise ValueError
        uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
        if int(partition) < 0:
            raise ValueError
    except (ValueError, binascii.Error):
        raise KafkaError(
            ErrorCode.invalid_request, f"{key!r} does not name a share partition: group:topic id:partition"
        ) from None


def _split_last(key: str) -> tuple[str, str, str]:
    group, topic_id, partition = key.rsplit(":", 2)
    return group, ":", f"{topic_id}:{partition}"
