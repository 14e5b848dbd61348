"""Records that should be there and are not: the one sentence that says so.

Called on the driver and in tasks. With failOnDataLoss (the default) the query fails with it; without, the sentence is
logged and the read goes on where there are records again.
"""

from __future__ import annotations

import logging

from headrace.model.failure import Failure
from headrace.spark.source.positions import TopicPartition

_log = logging.getLogger(__name__)


class DataLoss(Failure):
    """Some records may have been missed."""


def report(fail: bool, what: str) -> None:
    """Raise, or warn, as failOnDataLoss says."""
    if fail:
        raise DataLoss(
            f"{what}. Some records may have been missed; to go on with those that are there, "
            "set the option failOnDataLoss to false"
        )
    _log.warning("%s. Some records may have been missed; failOnDataLoss is false, so the query goes on", what)


def aged_out(place: TopicPartition, wanted: int, earliest: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it begins at "
        f"offset {earliest}: what lay between was deleted by its retention or by hand"
    )


def went_back(place: TopicPartition, wanted: int, latest: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it ends at "
        f"offset {latest}: the topic was created anew, or lost its end"
    )


def gone(place: TopicPartition, wanted: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but it is gone: "
        "was the topic deleted?"
    )


def created_anew(place: TopicPartition, wanted: int) -> str:
    return (
        f"partition {place.partition} of topic {place.topic} was to be read from offset {wanted}, but the topic was "
        "deleted and created anew"
    )
