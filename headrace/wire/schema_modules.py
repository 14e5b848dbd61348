"""kio's schema modules, loaded without the parts that only kio's own codec needs.

kio has a frozen dataclass for each struct of each version of each message. Creating one takes a millisecond, nearly all
of it for methods that `dataclass` generates and compiles; and importing a kio package loads requests and responses
together. headrace only reads the fields (schemas.py), so this module runs kio's code with a `dataclass` that generates
no methods. That takes a tenth of the time, which the first request of each API and version would otherwise wait for.

The classes are separate from those that a normal import of kio creates.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import kio.schema

_FOLDER = Path(kio.schema.__path__[0])
_SCHEMAS = f"{kio.schema.__name__}."

_fields_only = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)
_dataclasses = SimpleNamespace(field=dataclasses.field, dataclass=lambda **_: _fields_only)


@cache
def load(name: str) -> ModuleType:
    """One module of kio.schema by its full name."""
    path = _FOLDER.joinpath(*name.removeprefix(_SCHEMAS).split(".")).with_suffix(".py")
    code = SourceFileLoader(name, str(path)).get_code(name)
    assert code is not None, f"no code in {path}"
    module = ModuleType(name)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
    exec(code, module.__dict__)
    return module


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> Any:
    """The `import` of those modules: replaces `dataclasses` with the version above, and loads schemas with `load`."""
    if name == "dataclasses":
        return _dataclasses
    if name.startswith(_SCHEMAS) and name.count(".") > 2:  # modules such as kio.schema.types are shared
        return load(name)
    return builtins.__import__(name, globals, locals, fromlist, level)
