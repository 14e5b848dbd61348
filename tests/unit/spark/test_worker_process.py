"""Spark's worker processes leave modules out of their garbage collection; nobody else's process is touched."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from headrace.spark.worker_process import freeze_loaded_modules


@pytest.mark.parametrize(
    ("started_as", "times"), [("pyspark.daemon", 1), ("pyspark.sql.worker.plan_data_source_read", 0), ("pytest", 0)]
)
def test_only_a_process_of_sparks_daemon_is_frozen_and_only_once(
    monkeypatch: pytest.MonkeyPatch, started_as: str, times: int
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name=started_as)))
    freeze_loaded_modules.cache_clear()
    freeze_loaded_modules()
    freeze_loaded_modules()
    freeze_loaded_modules.cache_clear()
    assert len(frozen) == times
