"""Views as topics: what may become a view, and what a topic that has views may not do. Pure.

A view is a node of its own with an id, the id of its base, and settings; it has no partitions. So whatever places,
elects, moves or stores partitions never meets one. Rejections are KafkaErrors with Kafka's codes. Called by
topic_changes.py and, through it, by setting_changes.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from msgspec import Struct

from headrace.cluster import znodes
from headrace.cluster.change import Change
from headrace.cluster.store import Create
from headrace.model import topic_config
from headrace.model.delays import ENABLE_SETTING, VIEW_PENDING, shows_pending
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.tag_filter import TAGS_ENABLE, VIEW_MATCH, VIEW_OF, VIEW_PREFIX, VIEW_TAGS, VIEW_USED, tag_filter
from headrace.wire.errors import ErrorCode, KafkaError


class Layout(Struct, frozen=True):
    """What a request says about the partitions of a new topic."""

    partitions: int
    replication_factor: int
    assigned: bool


def makes_view(settings: Mapping[str, str | None]) -> bool:
    """Whether something is said of a view. Whoever copies a topic may give every setting with its default."""
    return any(_says(name, text) for name, text in settings.items() if name.startswith(VIEW_PREFIX))


def _says(name: str, text: str | None) -> bool:
    setting = topic_config.BY_NAME.get(name)
    return text is None or setting is None or text.strip() != (setting.text(setting.default) or "")


def create_view(
    image: ClusterImage, name: str, settings: Mapping[str, str], layout: Layout, view_id: uuid.UUID
) -> Change[TopicImage]:
    settings = {setting: text for setting, text in settings.items() if _says(setting, text)}
    if VIEW_OF in settings:
        _check_content(name, settings)
    base = _base_of(image, name, settings)
    _check_own(name, settings)
    if layout.assigned or layout.partitions not in (-1, 1, len(base.partitions)):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"view {name!r} has the {len(base.partitions)} partitions of {base.name!r}: ask for -1, and assign none",
        )
    view = TopicImage(name, view_id, (), settings, base=base.id)
    stored = znodes.StoredTopic(view_id, 0, settings, base.id)

    def delta(image: ClusterImage) -> ClusterImage:
        return image if view_id in image.topics_by_id else image.with_topics([view])

    return Change([[Create(znodes.topic_path(name), znodes.encode_topic(stored))]], delta, view)


def _base_of(image: ClusterImage, name: str, settings: Mapping[str, str]) -> TopicImage:
    """The topic that is to be the base; its settings decide, and no default of a broker has tags."""
    named = settings.get(VIEW_OF, "")
    if not named:
        raise KafkaError(ErrorCode.invalid_config, f"view {name!r} does not say of which topic: set {VIEW_OF}")
    base = image.topics.get(named)
    if base is None:
        raise KafkaError(ErrorCode.invalid_config, f"{VIEW_OF}={named}: there is no such topic")
    if base.internal:
        raise KafkaError(ErrorCode.invalid_config, f"{VIEW_OF}={named}: it is an internal topic")
    if base.is_view:
        raise KafkaError(ErrorCode.invalid_config, f"{VIEW_OF}={named}: it is a view itself; name its base")
    needed = ENABLE_SETTING if shows_pending(settings) else TAGS_ENABLE
    if not _is_on(base.settings, needed):
        raise KafkaError(ErrorCode.invalid_config, f"{VIEW_OF}={named}: set {needed}=true on that topic first")
    return base


def _check_content(name: str, settings: Mapping[str, str]) -> None:
    """What the view shows: records by tags, or what is pending."""
    if shows_pending(settings):
        wrong = next((setting for setting in (VIEW_TAGS, VIEW_MATCH) if setting in settings), None)
        if wrong is not None:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"view {name!r}: {VIEW_PENDING}=true shows all that is pending, without {wrong}",
            )
        return
    try:
        tag_filter(settings)
    except ValueError as error:
        raise KafkaError(ErrorCode.invalid_config, f"view {name!r}: {error}") from None


def _check_own(name: str, settings: Mapping[str, str]) -> None:
    foreign = [setting for setting in settings if not setting.startswith(VIEW_PREFIX)]
    if foreign:
        raise KafkaError(
            ErrorCode.invalid_config, f"{name!r} is a view and has no records of its own: set {foreign[0]} on its base"
        )


def check_altered(image: ClusterImage, topic: TopicImage, settings: Mapping[str, str]) -> None:
    """Whether an existing topic may get these settings."""
    changed = (
        setting
        for setting in sorted({*topic.settings, *settings})
        if setting.startswith(VIEW_PREFIX)
        and not (setting == VIEW_USED and topic.is_view)
        and _value(topic.settings, setting) != _value(settings, setting)
    )
    wrong = next(changed, None)
    if wrong is not None:
        raise KafkaError(
            ErrorCode.invalid_config, f"{wrong} is fixed when a topic is created: make another view, or delete this one"
        )
    if topic.is_view:
        _check_own(topic.name, settings)
        return
    for needed, pending in ((TAGS_ENABLE, False), (ENABLE_SETTING, True)):
        if _is_on(topic.settings, needed) and not _is_on(settings, needed):
            views = [view for view in image.views_of(topic) if view.shows_pending is pending]
            _refuse_with(views, topic, f"{needed} must stay while it has", ErrorCode.invalid_config)


def _value(settings: Mapping[str, str], name: str) -> object:
    return topic_config.value_in_force(topic_config.BY_NAME[name], settings, {})


def check_unviewed(image: ClusterImage, topic: TopicImage) -> None:
    """Whether the topic may be deleted."""
    _refuse_with(image.views_of(topic), topic, "delete first", ErrorCode.invalid_request)


def _refuse_with(views: Iterable[TopicImage], topic: TopicImage, why: str, code: ErrorCode) -> None:
    names = sorted(view.name for view in views)
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise KafkaError(code, f"topic {topic.name!r} has views; {why} {', '.join(names[:5])}{more}")


def _is_on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() == "true"
