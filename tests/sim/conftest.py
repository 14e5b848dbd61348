"""What simulated processes that were killed leave behind is swept away at the end of the test that killed them.

Their coroutines are closed when Python finds them, and complain; at some later moment that would be in the middle of
another test, where it does harm: a coroutine that is closed while source is compiled makes CPython 3.11 fail.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def swept() -> Iterator[None]:
    yield
    complaints, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = complaints
