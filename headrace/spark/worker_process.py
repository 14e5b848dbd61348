"""The Python process that runs tasks: what is done once in each, so that its next tasks cost less.

Spark's daemon forks such a process, keeps it for the next task, and makes it collect all garbage after every one. That
is a walk over some 45,000 objects of modules, which are never garbage: 26 ms of CPU, more than a small task takes to
read its records. Frozen objects are left out of the walk.

Called at the start of every task of the source and the sink. Invariant: a process that is not Spark's own is left as
it is, and what later tasks leave behind is collected as before.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

_DAEMON = "pyspark.daemon"


@cache
def freeze_loaded_modules() -> None:
    """Freeze what is loaded by now, once."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(main, "name", None) == _DAEMON:
        gc.freeze()
