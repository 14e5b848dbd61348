"""Builds librdkafka's settings from the SDK's arguments.

Pure: called once by each client. Later ones win: the SDK's own, the profile, the delivery, the program's overrides.
Invariant: an override that would break the delivery guarantee is rejected by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.sdk.delivery import CONSUMER_TERMS, PRODUCER_TERMS, Terms
from headrace.sdk.errors import BadSetting
from headrace.sdk.profiles import CONSUMER_PROFILES, PRODUCER_PROFILES

CLIENT_LOG = logging.getLogger("headrace.sdk.client")
logging.getLogger("headrace.sdk").addHandler(logging.NullHandler())  # libraries leave logging to the program

_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger")
_ALIASES = {
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}


# librdkafka 2.10 to 2.16 may wait for ever in send_offsets_to_transaction, whatever its timeout: when its cached
# coordinator has left the cluster (its issues 5456 and 5511), or when it rebootstraps after all brokers were
# unreachable for a moment. It retries whenever one of its connections opens or closes. So rebootstrapping is switched
# off, and idle connections are closed early.
TRANSACTION_GUARDS: Mapping[str, Any] = {"metadata.recovery.strategy": "none", "connections.max.idle.ms": 10_000}


def producer_settings(
    bootstrap: str, delivery: str, profile: str, transactional_id: str | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """librdkafka's settings for a producer."""
    terms = _chosen(PRODUCER_TERMS, delivery, "delivery")
    if delivery == "exactly-once" and not transactional_id:
        raise BadSetting(
            "exactly-once needs a transactional_id: a name unique to this producer, which it keeps over restarts"
        )
    if transactional_id and delivery != "exactly-once":
        raise BadSetting(
            f"transactional_id needs delivery exactly-once, and delivery is {delivery}: leave one of them out"
        )
    own = {
        # Keys are hashed as in the Java client; messages without a key go to a random partition each, because sticky
        # partitioning would not spread them evenly.
        "partitioner": "murmur2_random",
        "sticky.partitioning.linger.ms": 0,
        **_chosen(PRODUCER_PROFILES, profile, "profile"),
    }
    if transactional_id:
        own |= {"transactional.id": transactional_id, **TRANSACTION_GUARDS}
    return _merged(bootstrap, own, terms, delivery, overrides)


def consumer_settings(
    bootstrap: str, group: str, delivery: str, profile: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """librdkafka's settings for a consumer."""
    terms = _chosen(CONSUMER_TERMS, delivery, "delivery")
    if not group:
        raise BadSetting("group is empty: give the name of the consumer group that stores the offsets")
    own = {
        "group.id": group,
        "auto.offset.reset": "earliest",  # a new group misses no message
        **_chosen(CONSUMER_PROFILES, profile, "profile"),
    }
    return _merged(bootstrap, own, terms, delivery, overrides)


def _merged(
    bootstrap: str, own: Mapping[str, Any], terms: Terms, delivery: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    if not bootstrap:
        raise BadSetting("bootstrap is empty: give HOST:PORT of a broker, or several with commas")
    asked = {_setting_name(name): value for name, value in overrides.items()}
    for name, promised in terms.promised.items():
        if name in asked and not _same(asked[name], promised):
            raise BadSetting(
                f"{name}={asked[name]} breaks delivery {delivery}, which needs {name}={promised}: "
                "leave it out, or choose another delivery"
            )
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "headrace-sdk",
        "logger": CLIENT_LOG,
        **own,
        **terms.preferred,
        **asked,
        **terms.promised,
    }


def _setting_name(name: str) -> str:
    """linger_ms becomes linger.ms; names with dots, and librdkafka's few names with underscores, stay."""
    dotted = name if name in _UNDERSCORED else name.replace("_", ".")
    return _ALIASES.get(dotted, dotted)


def _same(one: Any, other: Any) -> bool:
    synonyms = {"-1": "all", "0": "0"}
    words = (synonyms.get(str(each).lower(), str(each).lower()) for each in (one, other))
    return len(set(words)) == 1


def _chosen(table: Mapping[str, Any], choice: str, what: str) -> Any:
    if choice not in table:
        raise BadSetting(f"there is no {what} {choice!r}: choose {', '.join(table)}")
    return table[choice]
