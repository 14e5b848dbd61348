"""What every suite shares: the order of running, the report of seconds against tests/budgets.toml, and soaking.

A suite is a folder of tests/. With HEADRACE_SOAK=1 only tests that have a long form are run, with HEADRACE_SOAK_PART
only those of one part (parts.py). `make test` runs several workers (pytest-xdist), since most tests spend their time
waiting. The tests of a file stay with one worker, and so do those of a folder in a suite whose budget says `together`,
since they share something expensive, such as a Spark session.
"""

import os
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.parts import read_parts

TESTS = Path(__file__).parent
BUDGETS: dict[str, dict[str, int]] = tomllib.loads((TESTS / "budgets.toml").read_text())["suites"]
SOAKING = os.environ.get("HEADRACE_SOAK", "") not in ("", "0")
SOAK_PART = os.environ.get("HEADRACE_SOAK_PART")
PARTS = {name: part for name, part in read_parts().items() if SOAK_PART in (None, "", name)}

# Machines are shared and noisy: no test may fail because drawing its input, or one example, took long. `make test`
# tries the same examples every time, so that a change is judged by what it changes; new ones are for `make soak`.
# A mutation is found by the first example that fails, and a shorter one is of no use.
FIRST_FAILURE = "HEADRACE_FIRST_FAILURE" in os.environ
settings.register_profile(
    "headrace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SOAKING,
    database=None,
    phases=[Phase.explicit, Phase.generate] if FIRST_FAILURE else tuple(Phase),
)
settings.load_profile("headrace")

# Brokers and commands that tests start keep the bytecode of their modules, as they do for users: without it each of
# them would compile all of headrace again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

spent_s: dict[str, float] = defaultdict(float)
remarks: list[str] = []


def suite_of(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def part_of(nodeid: str) -> str | None:
    test = nodeid.removeprefix("tests/")
    return next((name for name, part in PARTS.items() if part.has(test)), None)


def is_wanted(part: str | None) -> bool:
    """Whether a test of this part is run: any that has a long form when soaking, else any that has a short one."""
    return part is not None if SOAKING else part is None or not PARTS[part].long_only


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cheapest suite first, so that a plain mistake shows itself in the first minute; with several workers the longest
    first, so that none is left alone with it at the end."""
    several = hasattr(config, "workerinput")
    items.sort(key=lambda item: BUDGETS.get(suite_of(item.path), {}).get("seconds", 0), reverse=several)
    left_out = [item for item in items if not is_wanted(part_of(item.nodeid))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(optionalhook=True)  # it is there only where there are workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which tests stay together is read from their ids: xdist's own mark for that writes into ids, and pytest 9.2 does
    not heed that."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = config.rootpath / nodeid.partition("::")[0]
            return str(file.parent if BUDGETS.get(suite_of(file), {}).get("together") else file)

    return ByPlace(config, log)


@pytest.fixture(scope="session")
def soaking() -> bool:
    """Whether the long form is wanted."""
    return SOAKING


@pytest.fixture(scope="session")
def remark() -> Callable[[str], None]:
    """Put a line into the summary at the end of the run: facts that a passing test wants known."""
    return remarks.append


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = part_of(report.nodeid) if SOAKING else None
    spent_s[name or report.nodeid.split("/")[1]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["remarks"] = remarks


@pytest.hookimpl(optionalhook=True)  # it is there only where there are workers
def pytest_testnodedown(node: Any) -> None:
    remarks.extend(getattr(node, "workeroutput", {}).get("remarks", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in remarks:
        terminalreporter.write_line(line)
    for name, seconds in spent_s.items():
        budget = PARTS[name].soak_seconds if SOAKING else BUDGETS.get(name, {}).get("seconds", 0)
        over = "  over its budget" if seconds > budget else ""
        terminalreporter.write_line(f"{name:<16}{seconds:7.1f} s of {budget} s{over}")


@pytest.fixture(autouse=True, scope="session")
def _no_response_has_a_field_that_no_version_knows() -> Iterator[None]:
    """A field that is misspelt would silently be sent as its default; in tests it is an error."""
    from headrace.server import reply_frame
    from headrace.wire.messages import check_fields

    plain = reply_frame.encode_response

    def checked(api_key: int, version: int, message: Any, most_items: int) -> Any:
        check_fields(api_key, "response", message)
        return plain(api_key, version, message, most_items)

    reply_frame.encode_response = checked
    yield
    reply_frame.encode_response = plain
