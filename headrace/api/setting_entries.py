"""Settings with their values and sources, for DescribeConfigs and CreateTopics.

The most specific source wins: the topic or group, this broker's dynamic settings, those for all brokers, this broker's
file, and last the default. `Entry.synonyms` lists every source that has a value, the winner first, as Kafka's tools
expect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from msgspec import Struct

from headrace.cluster.topic_changes import MIN_ISR
from headrace.model import broker_config, group_config, topic_config
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.settings import Setting
from headrace.model.settings_in_force import BrokerFile

_MIN_ISR_DEFAULT = str(topic_config.BY_NAME[MIN_ISR].default)


class Source(IntEnum):
    """The numbers are Kafka's."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(Struct, frozen=True):
    name: str
    value: str | None
    source: Source


class Entry(Struct, frozen=True):
    setting: Setting
    value: str | None
    synonyms: tuple[Synonym, ...]

    @property
    def source(self) -> Source:
        return self.synonyms[0].source


class BrokerPlaces(Struct, frozen=True):
    """The sources of a broker's settings."""

    own: Mapping[str, str]
    everybody: Mapping[str, str]
    file: Mapping[str, str]
    in_force: Mapping[str, str]

    def find(self, name: str) -> list[Synonym]:
        places = ((self.own, Source.BROKER), (self.everybody, Source.ALL_BROKERS), (self.file, Source.FILE))
        return [Synonym(name, values[name], source) for values, source in places if name in values]


def places_of(image: ClusterImage, broker_id: int, file: Mapping[str, str]) -> BrokerPlaces:
    """A cluster with eligible leaders (KIP-966) always has a min.insync.replicas for all brokers, as in Kafka 4.1."""
    dynamic = image.broker_settings
    everybody = {MIN_ISR: file.get(MIN_ISR, _MIN_ISR_DEFAULT), **dynamic.get("", {})}
    in_force = BrokerFile(broker_id, file).in_force(image)
    return BrokerPlaces(dynamic.get(str(broker_id), {}), everybody, file, in_force)


def topic_entries(topic: TopicImage, places: BrokerPlaces) -> list[Entry]:
    return [_topic_entry(setting, topic.settings, places) for setting in topic_config.SETTINGS]


def group_entries(settings: Mapping[str, str], places: BrokerPlaces) -> list[Entry]:
    """As in Kafka, a value that the group itself does not set has source default, even if it is in a broker's file."""
    entries = []
    for setting in group_config.SETTINGS:
        value = setting.text(topic_config.value_in_force(setting, {}, places.in_force))
        synonyms = [Synonym(setting.name, value, Source.DEFAULT)]
        if setting.name in settings:
            synonyms.insert(0, Synonym(setting.name, settings[setting.name], Source.GROUP))
        entries.append(Entry(setting, synonyms[0].value, tuple(synonyms)))
    return entries


def _topic_entry(setting: Setting, values: Mapping[str, str], places: BrokerPlaces) -> Entry:
    synonyms: list[Synonym] = []
    if setting.name in values:
        synonyms.append(Synonym(setting.name, values[setting.name], Source.TOPIC))
    if setting.broker_name is not None:
        for name in (setting.broker_name, *(name for name, _ in setting.broker_synonyms)):
            synonyms += places.find(name)
    default = setting.text(setting.default)
    synonyms.append(Synonym(setting.broker_name or setting.name, default, Source.DEFAULT))
    value = setting.text(topic_config.value_in_force(setting, values, places.in_force))
    return Entry(setting, value, tuple(synonyms))


def broker_entries(places: BrokerPlaces, replication_factor: int, told: Mapping[str, str]) -> list[Entry]:
    """`replication_factor` is used if no setting gives it, since tools expect a number. `told` has the values that the
    broker knows about itself, by the names of broker_config.TOLD.
    """
    unsaid = {"default.replication.factor": str(replication_factor), **dict(_in_all_units(places.in_force))}
    entries = []
    for setting in broker_config.SETTINGS:
        synonyms = places.find(setting.name)
        default = unsaid.get(setting.name, setting.text(setting.default))
        synonyms.append(Synonym(setting.name, default, Source.DEFAULT))
        entries.append(Entry(setting, synonyms[0].value, tuple(synonyms)))
    entries += [
        Entry(broker_config.TOLD[name], value, (Synonym(name, value, Source.FILE),)) for name, value in told.items()
    ]
    return entries


def _in_all_units(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Durations that can be set in hours, minutes or milliseconds, converted to all units; -1 means "never" in each."""
    for setting in topic_config.SETTINGS:
        if setting.broker_synonyms and setting.broker_name is not None:
            in_force_ms = topic_config.value_in_force(setting, {}, settings)
            for name, unit_ms in ((setting.broker_name, 1), *setting.broker_synonyms):
                yield name, str(in_force_ms // unit_ms if in_force_ms >= 0 else -1)


def all_brokers_entries(places: BrokerPlaces) -> list[Entry]:
    """Only the dynamic settings for all brokers: the file and the defaults belong to single brokers."""
    return [
        Entry(broker_config.BY_NAME[name], value, (Synonym(name, value, Source.ALL_BROKERS),))
        for name, value in sorted(places.everybody.items())
    ]
