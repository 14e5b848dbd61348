"""Which of the places that can set a broker setting wins."""

from __future__ import annotations

import pytest

from headrace.model.image import ClusterImage
from headrace.model.settings_in_force import BrokerFile

FILE = BrokerFile(1, {"a": "file", "b": "file", "c": "file"})
IMAGE = (
    ClusterImage("c", 1)
    .with_broker_settings("", {"b": "all", "c": "all"}, 0)
    .with_broker_settings("1", {"c": "one"}, 0)
    .with_broker_settings("2", {"a": "two"}, 0)
)


@pytest.mark.parametrize(
    ("broker_id", "expected"),
    [
        pytest.param(None, {"a": "file", "b": "all", "c": "one"}, id="the-file's-own-broker"),
        pytest.param(1, {"a": "file", "b": "all", "c": "one"}, id="the-same-by-its-id"),
        pytest.param(2, {"a": "two", "b": "all", "c": "all"}, id="another-broker"),
        pytest.param(3, {"a": "file", "b": "all", "c": "all"}, id="a-broker-without-settings-of-its-own"),
    ],
)
def test_a_brokers_own_settings_win_over_those_of_all_and_these_over_the_file(
    broker_id: int | None, expected: dict[str, str]
) -> None:
    assert FILE.in_force(IMAGE, broker_id) == expected


def test_nothing_set_at_run_time_leaves_the_file() -> None:
    assert FILE.in_force(ClusterImage("", -1)) == FILE.settings
