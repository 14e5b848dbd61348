"""Resolves a subscription by regular expression to topics (KIP-848).

Kafka uses RE2, whose running time is bounded. Python's `re` is not bounded: `(a|a)*b` tries every way to split a name.
So a pattern is accepted only if it is safe. It must not use what RE2 lacks too (look-around, back references,
possessive and atomic groups, conditions). A repeated part must be unambiguous. And the number of ways to match a name,
estimated beforehand, must stay below a limit: three `.*` are accepted, four are not. As in RE2, a repeat count is at
most 1,000, and the whole name must match.

Many long names can take long even so. They are tried in pieces of 10 ms, one with every heartbeat, and until all are
tried the pattern stands for what it stood for before. Results are cached by name, so a new topic in the cluster costs
each pattern one match. The cache holds the patterns that were asked for last: members may change theirs with every
heartbeat. Owned by the consumer groups of a groups shard.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

from headrace.model.names import MAX_TOPIC_NAME

MAX_LENGTH = 1_000
MAX_COUNT = 1_000
KEPT = 100  # patterns
MAX_WAYS = 2 * (MAX_TOPIC_NAME + 1) ** 3
AT_ONCE_S = 0.010  # how long names are tried in one piece of work
_PLAIN = {"literal", "not_literal", "any", "in", "at"}
_REPEATS = {"max_repeat", "min_repeat"}
_FOREIGN = re.compile(r"\(\?<[=!]|\\[1-9]|\(\?P=|\[\[:")


class UnfitPattern(Exception):
    """The pattern is not accepted; the message says why."""


def compile_pattern(text: str) -> re.Pattern[str]:
    """Raises UnfitPattern for an invalid or unsafe pattern."""
    if len(text) > MAX_LENGTH:
        raise UnfitPattern(f"it is longer than {MAX_LENGTH} characters")
    if _FOREIGN.search(text):
        raise UnfitPattern("look-around, back references and classes such as [[:alpha:]] are not supported")
    # RE2 has another syntax for the end of the text and for names of groups.
    spelled = re.sub(r"\(\?<(?=\w)", "(?P<", text).replace(r"\z", r"\Z")
    try:
        with warnings.catch_warnings(action="ignore"):
            ways = _ways(re._parser.parse(spelled), repeated=False)  # type: ignore[attr-defined]
            compiled = re.compile(spelled)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnfitPattern(str(error)) from None
    if ways > MAX_WAYS:
        raise UnfitPattern("it has too many repeats and alternatives; leave some out, or subscribe by more patterns")
    return compiled


def _ways(tree: Iterable[tuple[Any, Any]], *, repeated: bool) -> int:
    """An upper bound for the number of ways in which this part of a pattern can be matched with a name."""
    ways = 1
    for operation, argument in tree:
        name = str(operation).lower()
        if name in _REPEATS:
            least, most, body = argument
            endless = most is re._constants.MAXREPEAT  # type: ignore[attr-defined]
            if max(least, 0 if endless else most) > MAX_COUNT:
                raise UnfitPattern(f"a count goes up to {MAX_COUNT}")
            if repeated and least != most:
                raise UnfitPattern("what is repeated must not hold a repeat of its own")
            inside = _ways(body, repeated=repeated or most > 1)
            ways *= inside * (MAX_TOPIC_NAME + 1 if endless else most - least + 1)
        elif name == "subpattern":
            ways *= _ways(argument[-1], repeated=repeated)
        elif name == "branch":
            if repeated:
                raise UnfitPattern("what is repeated must not hold alternatives")
            ways *= sum(_ways(branch, repeated=False) for branch in argument[1])
        elif name not in _PLAIN:
            raise UnfitPattern(f"{name.replace('_', ' ')} is not supported")
        if ways > MAX_WAYS:
            return ways
    return ways


class _Known:
    def __init__(self, compiled: re.Pattern[str]) -> None:
        self.compiled = compiled
        self.seen: frozenset[str] = frozenset()
        self.matched: frozenset[str] = frozenset()
        self.tried: dict[str, bool] = {}  # whether it matches: names since then, as long as some were not tried


class TopicPatterns:
    def __init__(self, monotonic: Callable[[], float] = lambda: 0.0, kept: int = KEPT) -> None:
        self._monotonic = monotonic
        self._kept = kept
        self._known: dict[str, _Known] = {}  # the one that was asked for least recently comes first
        self._present: frozenset[str] = frozenset()  # one set for all patterns that have seen the same names

    def __len__(self) -> int:
        return len(self._known)

    def resolve(self, text: str, names: Collection[str]) -> frozenset[str] | None:
        """The names that match the pattern; None if that takes long: then it has to be called again. An unsafe pattern
        matches nothing."""
        known = self._known.pop(text, None)
        if known is None:
            try:
                known = _Known(compile_pattern(text))
            except UnfitPattern:  # it was stored by another version
                return frozenset()
        self._known[text] = known
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]
        present = frozenset(names)
        if present == self._present:
            present = self._present
        self._present = present
        return known.matched if known.seen is present or self._all_tried(known, present) else None

    def _all_tried(self, known: _Known, present: frozenset[str]) -> bool:
        """Whether the time of one piece of work was enough to try all new names."""
        end_s = self._monotonic() + AT_ONCE_S
        for name in present - known.seen - known.tried.keys():
            if self._monotonic() > end_s:
                return False
            known.tried[name] = known.compiled.fullmatch(name) is not None
        found = {name for name, matches in known.tried.items() if matches}
        known.matched = (known.matched | found) & present
        known.seen, known.tried = present, {}
        return True
