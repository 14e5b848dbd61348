"""Randomness. The only module that draws random numbers, so that a simulation can run from one seed."""

from __future__ import annotations

import os
import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    def uuid(self) -> uuid.UUID:
        """A random identifier, never all zeros."""
        ...

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...


class SystemEntropy:
    """The operating system's randomness for identifiers, a plain generator for everything else."""

    def __init__(self) -> None:
        self._random = random.Random()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=os.urandom(16), version=4)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class SeededEntropy:
    """Everything from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)
