"""What the tests that start drivers of their own share."""

from __future__ import annotations

import pytest

from tests.spark.conftest import SHORT_LIVED_JVM


@pytest.fixture(autouse=True)
def _short_lived_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drivers take it from the environment that they are started in."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED_JVM)
