"""Both twins of the express lanes' codec, as far as they were built, and a lane that works with one of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from headrace.api import _express_py as python
from headrace.api.express_codec import COMPILED

TWINS = [python]
if COMPILED:
    from headrace.api import _express as compiled

    TWINS.append(compiled)


def working_with(twin: ModuleType, lane: ModuleType, *names: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(lane, name, getattr(twin, name))
        yield
