"""A rule switched off: one line of the product's source replaced, and the functions that it changes put in place.

The source file stays as it is. The changed text is compiled, and the code of each function of the running module is
exchanged for its changed twin, so that whoever has imported the function has the mutant. The line must be there
exactly once: when the product changes, a mutation that no longer fits says so instead of passing for found.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import types
from collections.abc import Iterator
from typing import Any, NamedTuple


class Mutation(NamedTuple):
    module: str
    line: str
    instead: str


def _functions(owner: Any, module: str, prefix: str = "") -> Iterator[tuple[str, types.FunctionType]]:
    for name, member in vars(owner).items():
        for part, function in (("", member), ("get", getattr(member, "fget", None)), ("", _unwrapped(member))):
            if isinstance(function, types.FunctionType) and function.__module__ == module:
                yield f"{prefix}{name}{part}", function
        if inspect.isclass(member) and member.__module__ == module:
            yield from _functions(member, module, f"{prefix}{name}.")


def _unwrapped(member: Any) -> Any:
    return member.__func__ if isinstance(member, staticmethod | classmethod) else None


@contextlib.contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The product with this line replaced, for as long as the block runs."""
    module = importlib.import_module(mutation.module)
    source = inspect.getsource(module)
    found = source.count(mutation.line)
    assert found == 1, f"{mutation.module} has {found} times: {mutation.line!r}; change the mutation with it"
    twin = types.ModuleType(mutation.module)
    twin.__file__ = module.__file__
    changed = compile(source.replace(mutation.line, mutation.instead), str(module.__file__), "exec")
    exec(changed, twin.__dict__)
    twins = dict(_functions(twin, mutation.module))
    originals = dict(_functions(module, mutation.module))
    before = {name: function.__code__ for name, function in originals.items()}
    try:
        for name, function in originals.items():
            if name in twins:
                function.__code__ = twins[name].__code__
        yield
    finally:
        for name, function in originals.items():
            function.__code__ = before[name]
