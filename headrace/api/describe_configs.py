"""DescribeConfigs, v1 to v4: settings of topics, brokers and groups, with type, source and description.

No keys (null, or an empty list) means all of them. A broker returns only its own settings, and for the name "" those
that were set dynamically for all brokers. A group need not exist. headrace has no client metrics subscriptions, so each
returns an empty list; loggers are not configurable and are rejected. A resource that is named repeatedly is described
once, with the keys that were asked for last.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from headrace.api.contract import Peer, Request, Steps
from headrace.api.known_brokers import AddressOf
from headrace.api.pieces import Pace
from headrace.api.setting_entries import (
    Entry,
    all_brokers_entries,
    broker_entries,
    group_entries,
    places_of,
    topic_entries,
)
from headrace.cluster.topic_changes import TopicDefaults
from headrace.cluster.view import ClusterView
from headrace.model.names import topic_name_problem
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class ResourceType(IntEnum):
    """The types of resources that have settings; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_RESOURCES = 10  # that are described in one piece: each has dozens of settings


class DescribeConfigs:
    def __init__(
        self,
        view: ClusterView,
        broker_id: int,
        file_settings: Mapping[str, str],
        address_of: AddressOf,
        data: Path,
    ) -> None:
        self._view = view
        self._address_of = address_of
        self._data = data
        self._broker_id = broker_id
        self._file_settings = file_settings

    def __call__(self, request: Request) -> Steps[Message]:
        results, pace = list[Message](), Pace(_RESOURCES)
        for asked in {(asked.resource_type, asked.resource_name): asked for asked in request.body.resources}.values():
            results.append(self._result(asked, request))
            if pace.is_over():
                yield
        return Message(results=results)

    def _result(self, asked: Message, request: Request) -> Message:
        body = request.body
        resource = Message(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            entries = self._entries(asked.resource_type, asked.resource_name, request.peer)
        except KafkaError as error:
            resource.error_code, resource.error_message = error.code, error.message
            return resource
        wanted = asked.configuration_keys
        resource.configs = [
            _config(entry, body.include_synonyms, body.include_documentation)
            for entry in entries
            if not wanted or entry.setting.name in wanted
        ]
        return resource

    def _entries(self, kind: int, name: str, peer: Peer) -> list[Entry]:
        image = self._view.image
        places = places_of(image, self._broker_id, self._file_settings)
        if kind == ResourceType.TOPIC:
            topic = image.topics.get(name)
            if topic is not None:
                return topic_entries(topic, places)
            wrong = topic_name_problem(name)
            if wrong is not None:
                raise KafkaError(ErrorCode.invalid_topic_exception, wrong)
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        if kind == ResourceType.BROKER:
            if not name:
                return all_brokers_entries(places)
            if name != str(self._broker_id):
                raise KafkaError(
                    ErrorCode.invalid_request, f"this is broker {self._broker_id}: send the request to broker {name!r}"
                )
            return broker_entries(places, TopicDefaults(1).factor(len(image.brokers)), self._told(peer))
        if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "the resource name must not be empty")
            return group_entries(image.group_settings.get(name, {}), places) if kind == ResourceType.GROUP else []
        raise refused_resource(kind)

    def _told(self, peer: Peer) -> dict[str, str]:
        told = {"log.dirs": str(self._data), "node.id": str(self._broker_id)}
        broker = self._view.image.brokers.get(self._broker_id)
        if broker is not None:
            host, port = self._address_of(peer, broker)
            told["advertised.listeners"] = f"PLAINTEXT://{host}:{port}"
            told["listeners"] = f"PLAINTEXT://{peer.local_host}:{peer.local_port}"
        return told


def refused_resource(kind: int) -> KafkaError:
    names = {ResourceType.BROKER_LOGGER: "loggers", ResourceType.CLIENT_METRICS: "client metrics subscriptions"}
    what = names[ResourceType(kind)] if kind in names else f"resources of type {kind}"
    return KafkaError(ErrorCode.invalid_request, f"headrace has no {what}")


def _config(entry: Entry, with_synonyms: bool, with_documentation: bool) -> Message:
    setting = entry.setting
    return Message(
        name=setting.name,
        value=entry.value,
        read_only=setting.read_only,
        config_source=entry.source,
        synonyms=[Message(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
        if with_synonyms
        else [],
        config_type=setting.type,
        documentation=setting.meaning if with_documentation else None,
    )
