"""Data loss: records that a query should read and that no longer exist, as one sentence.

Called on the driver and in tasks. With failOnDataLoss (the default) the query fails with it; without, it is logged as a
warning and the query continues at the next existing record.
"""

from __future__ import annotations

import logging

from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class DataLoss(Failure):
    """Some records may have been missed."""


def report(fail: bool, what: str) -> None:
    """Raise, or warn, as failOnDataLoss says."""
    if fail:
        raise DataLoss(
            f"{what}. Some records may have been missed; to continue with those that still exist, "
            "set the option failOnDataLoss to false"
        )
    _log.warning("%s. Some records may have been missed; failOnDataLoss is false, so the query continues", what)


def aged_out(place: TopicPartition, wanted: int, earliest: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it begins at "
        f"offset {earliest}: the records in between were deleted, by retention or by DeleteRecords"
    )


def went_back(place: TopicPartition, wanted: int, latest: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it ends at "
        f"offset {latest}: the topic was deleted and recreated, or its log was truncated"
    )


def gone(place: TopicPartition, wanted: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it no longer "
        "exists: was the topic deleted?"
    )


def created_anew(place: TopicPartition, wanted: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but the topic was "
        "deleted and recreated"
    )
