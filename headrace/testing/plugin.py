"""The pytest plugin: a real broker for one test.

pytest loads this module in every run of every project that has headrace installed, so it imports nothing but pytest;
the broker is loaded by the first test that asks for one. Each broker runs in a thread of the test process, on a free
port of 127.0.0.1, with its data in the test's `tmp_path`; it needs no other plugin and shares nothing between the
workers of pytest-xdist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing.local_broker import LocalBroker


class BrokerFactory(Protocol):
    def __call__(self, settings: Mapping[str, str] | None = None) -> LocalBroker:
        """Start a broker with these broker settings, such as {"auto.create.topics.enable": "false"}."""
        ...


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Starts any number of independent brokers; they stop when the test ends."""
    from headrace.testing.local_broker import LocalBroker

    with ExitStack() as brokers:
        count = 0

        def start(settings: Mapping[str, str] | None = None) -> LocalBroker:
            nonlocal count
            count += 1
            return brokers.enter_context(LocalBroker(tmp_path / f"headrace-{count}", settings or {}))

        yield start


@pytest.fixture
def broker(broker_factory: BrokerFactory) -> LocalBroker:
    """A running broker: `broker.bootstrap` for clients, `broker.clock.advance(days=15)`, `restart()`, `kill()`."""
    return broker_factory()
