"""Connections leave descriptors for files, whatever the limit is."""

from __future__ import annotations

import pytest

from headrace.server.descriptors import divide


@pytest.mark.parametrize(
    ("limit", "connections", "log_files", "others"),
    [(256, 96, 96, 64), (1024, 384, 384, 256), (20_000, 17_696, 2_048, 256), (1 << 20, 1_046_272, 2_048, 256)],
)
def test_the_shares(limit: int, connections: int, log_files: int, others: int) -> None:
    assert divide(limit) == (connections, log_files, others)
    assert connections + log_files + others == limit
