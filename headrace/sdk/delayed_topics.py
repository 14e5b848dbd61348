"""Which topics keep messages back: asked before a delayed message is sent, so that none is delivered at once.

On a topic without headrace.delay.enable, and on any other Kafka broker, the delay headers mean nothing and a message
would be delivered when it is sent. Used by the producer, by Schedules and by the command line. A topic's answer is
cached for a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from headrace.model.delays import ENABLE_SETTING
from headrace.sdk.errors import BadMessage, NotPermitted, TopicMissing, Unreachable, cause_of, explained
from headrace.world.clock import Clock

if TYPE_CHECKING:
    from concurrent.futures import Future

ANSWER_TIMEOUT_S = 10.0
ANSWER_GOOD_FOR_S = 60.0
_CONNECTION_SETTINGS = ("bootstrap.servers", "client.id", "logger", "security.", "sasl.", "ssl.", "broker.", "socket.")


class ConfigSource(Protocol):
    def describe_configs(self, resources: list[Any], **options: Any) -> dict[Any, Future[Any]]: ...


class DelayedTopics:
    """Knows the topics for which delayed messages are enabled. Opens its client when it is first asked."""

    def __init__(self, settings: Mapping[str, Any], clock: Clock) -> None:
        self._settings = connection_settings(settings)
        self._clock = clock
        self._good_until: dict[str, float] = {}
        self._admin: ConfigSource | None = None

    def knows(self, topic: str) -> bool:
        """Whether `require` answers without asking the broker."""
        return self._clock.monotonic() < self._good_until.get(topic, 0.0)

    def require(self, topic: str) -> None:
        """Raise BadMessage unless the topic keeps delayed messages back; this may block."""
        if self.knows(topic):
            return
        if self._admin is None:
            self._admin = open_admin(self._settings)
        require_delays(self._admin, str(self._settings["bootstrap.servers"]), topic)
        self._good_until[topic] = self._clock.monotonic() + ANSWER_GOOD_FOR_S


def require_delays(admin: ConfigSource, bootstrap: str, topic: str) -> None:
    """Raise BadMessage unless the topic keeps delayed messages back."""
    try:
        settings = topic_settings(admin, bootstrap, topic)
    except NotPermitted:
        return  # who may write need not be allowed to read settings; then the program has to know
    if ENABLE_SETTING not in settings:
        raise BadMessage(f"the broker at {bootstrap} has no delayed messages: it would deliver them to {topic} at once")
    if settings[ENABLE_SETTING] != "true":
        raise BadMessage(
            f"topic {topic} keeps no messages back: run `headrace topic alter {topic} -c {ENABLE_SETTING}=true` first"
        )


def topic_settings(admin: ConfigSource, bootstrap: str, topic: str) -> dict[str, str]:
    """Every setting of a topic, by name."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    doing = f"asking {bootstrap} about topic {topic}"
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        entries = admin.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S)[resource].result(
            ANSWER_TIMEOUT_S + 1
        )
    except KafkaException as error:
        if cause_of(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(
                f"topic {topic} does not exist at {bootstrap}: create it with "
                f"`headrace topic create {topic} -c {ENABLE_SETTING}=true`"
            ) from error
        raise explained(cause_of(error), doing) from error
    except TimeoutError:
        raise Unreachable(f"{doing}: no answer within {ANSWER_TIMEOUT_S:g} s") from None
    return {name: entry.value for name, entry in entries.items()}


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of a client that say how to reach the broker, for another client beside it."""
    return {name: value for name, value in settings.items() if name.startswith(_CONNECTION_SETTINGS)}


def open_admin(settings: Mapping[str, Any]) -> Any:
    """An admin client of librdkafka."""
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(dict(settings))
    except KafkaException as error:
        raise explained(cause_of(error), f"starting a client for {settings['bootstrap.servers']}") from error
