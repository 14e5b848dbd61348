"""From what a program asks for to what librdkafka is given.

Pure: called once by each client. The order is: the room's own, the profile, the delivery, then the program's overrides.
Invariant: no override breaks the promise of the delivery; such a one is refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.sdk.delivery import CONSUMER_TERMS, PRODUCER_TERMS, Terms
from headrace.sdk.errors import BadSetting
from headrace.sdk.profiles import CONSUMER_PROFILES, PRODUCER_PROFILES

CLIENT_LOG = logging.getLogger("headrace.sdk.client")
logging.getLogger("headrace.sdk").addHandler(logging.NullHandler())  # a library speaks only where it is listened to

_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger")
_ALIASES = {
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}


# librdkafka 2.10 to 2.16 may wait for ever in send_offsets_to_transaction, whatever its timeout: for a coordinator that
# it remembers and that has left the cluster (its issues 5456 and 5511), or after all brokers were away for a moment,
# when it begins anew with the bootstrap servers. It looks again when any of its connections comes or goes. So it does
# not begin anew, and gives up connections that it has no use for.
TRANSACTION_GUARDS: Mapping[str, Any] = {"metadata.recovery.strategy": "none", "connections.max.idle.ms": 10_000}


def producer_settings(
    bootstrap: str, delivery: str, profile: str, transactional_id: str | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """librdkafka's settings of a producer."""
    terms = _chosen(PRODUCER_TERMS, delivery, "delivery")
    if delivery == "exactly-once" and not transactional_id:
        raise BadSetting(
            "exactly-once needs a transactional_id: a name that this producer alone has, and keeps over a restart"
        )
    if transactional_id and delivery != "exactly-once":
        raise BadSetting(f"transactional_id means exactly-once, and delivery is {delivery}: choose one of the two")
    own = {
        # As the Java client: a key's hash chooses the partition; without a key chance does, message by message, because
        # staying with one partition for a while would not be even.
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
    """librdkafka's settings of a consumer."""
    terms = _chosen(CONSUMER_TERMS, delivery, "delivery")
    if not group:
        raise BadSetting("a consumer needs a group: the name under which its offsets are kept")
    own = {
        "group.id": group,
        "auto.offset.reset": "earliest",  # a new group loses nothing
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
    """Python's linger_ms is Kafka's linger.ms; names with dots and librdkafka's few with underscores stay."""
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
