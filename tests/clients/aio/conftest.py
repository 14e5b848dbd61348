"""Clients of aiokafka, and the loop their tests run in.

A test here is a coroutine. It takes `clients`, asks it for started producers, consumers and admins, and need not stop
them: that is done in the test's own event loop when it ends.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.aio.clients import Clients

TEST_DEADLINE_S = 90.0


@pytest.fixture
def clients(bootstrap: str, unique: Callable[[str], str]) -> Clients:
    return Clients(bootstrap, unique)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        try:
            async with asyncio.timeout(TEST_DEADLINE_S):
                await pyfuncitem.obj(**arguments)
        finally:
            await arguments["clients"].stop()

    asyncio.run(run())
    return True
