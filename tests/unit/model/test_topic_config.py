"""Every setting of a topic is known to leave batches closed, or not to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.model.topic_config import CLOSED_FIELDS, OPENING_FIELDS, TopicConfig

DEFAULTS = TopicConfig()
OPENING: dict[str, Any] = {
    "cleanup_policy": ("compact", "delete"),
    "codec": 0,
    "dedup_window_ms": 1,
    "delayed": True,
    "log_append_time": True,
}


def another(value: Any) -> Any:
    if value is None:
        return 1
    if isinstance(value, tuple):
        return ("*",)
    return not value if isinstance(value, bool) else value + 1


def test_each_field_is_classified_once() -> None:
    """A new setting belongs in OPENING_FIELDS, and into `batches_stay_closed`, if the broker must look into a batch of
    records, or change it, because of the setting; else in CLOSED_FIELDS."""
    assert set(TopicConfig.__struct_fields__) == OPENING_FIELDS | CLOSED_FIELDS
    assert not OPENING_FIELDS & CLOSED_FIELDS
    assert set(OPENING) == OPENING_FIELDS


@pytest.mark.parametrize("field", sorted(OPENING_FIELDS))
def test_a_setting_that_opens_batches_does(field: str) -> None:
    assert DEFAULTS.batches_stay_closed
    assert not replace(DEFAULTS, **{field: OPENING[field]}).batches_stay_closed


@pytest.mark.parametrize("field", sorted(CLOSED_FIELDS))
def test_any_other_setting_does_not(field: str) -> None:
    changed = replace(DEFAULTS, **{field: another(getattr(DEFAULTS, field))})
    assert changed != DEFAULTS
    assert changed.batches_stay_closed
