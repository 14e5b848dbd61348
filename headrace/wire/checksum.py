"""CRC32C, the checksum of Kafka's batches and of headrace's own files. Pure; every room imports it from here.

When imported, the package crc32c looks up its version with importlib.metadata, which loads much of the standard
library: about 5 % of a broker's start-up time, for a string that is never used. So this module loads the compiled
extension directly. The extension's name is private; if a release does not have it, the package is imported normally.
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
"""`crc32c(data, before=0)`: the checksum of `data`; `before` is the checksum of the bytes that precede it."""
