"""What the client suites share: one real broker for the whole run, and the record of which story passed.

`HEADRACE_BOOTSTRAP=host:port` points the very same suites at another broker (Apache Kafka, to prove the tests right).
`HEADRACE_STORIES=file` makes the run leave `{slug: [outcome, …]}` there, for the compatibility table.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess, headrace_broker

running: list[BrokerProcess] = []
outcomes: dict[str, list[str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "story(slug): the row of docs/compatibility.md that this test proves")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    elsewhere = os.environ.get("HEADRACE_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    with headrace_broker(tmp_path_factory.mktemp("broker")) as broker:
        running.append(broker)
        yield broker.bootstrap
        running.remove(broker)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test uses, readable in the broker's log: `test_name.kind.random`."""
    test_name = request.node.originalname.removeprefix("test_")[:60]
    return lambda kind: f"{test_name}.{kind}.{uuid.uuid4().hex[:6]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment, misc]
    marker = item.get_closest_marker("story")
    if marker and (call.when == "call" or not report.passed):
        outcomes.setdefault(marker.args[0], []).append("pass" if report.passed else f"fail: {item.nodeid}")
    if report.failed:
        for broker in running:
            report.sections.append(("broker log (its end)", broker.log_tail(limit=4_000)))
    return report  # type: ignore[return-value]


def pytest_sessionfinish() -> None:
    report_path = os.environ.get("HEADRACE_STORIES")
    if report_path:
        Path(report_path).write_text(json.dumps(outcomes, indent=1))
