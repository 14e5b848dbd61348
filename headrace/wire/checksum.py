"""CRC32C, the checksum of Kafka's batches and of our own files. Pure; whoever needs one takes it from here.

The package crc32c works out its own version when it is imported, with a reader of package metadata that brings half of
the standard library along: a twentieth of a broker's start, for a string that nobody reads. So the compiled function
is taken out of the package without running that. Its name inside is private, so where a release has it elsewhere,
the package is imported as it wants to be.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def _module() -> ModuleType:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    compiled = PathFinder.find_spec("crc32c._crc32c", folders)
    if compiled is None or compiled.loader is None:
        import crc32c as whole

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = _module().crc32c
"""`crc32c(data, before=0)`: the checksum of `data`, going on from that of what came before it."""
